/* Tries files below the directory argv[1] that are not in the view, each named in another way. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static char *hidden(const char *name) {
    static char path[8192];
    snprintf(path, sizeof path, "hidden/%s", name);
    return path;
}

static void *in_a_thread(void *directory) {
    char path[8192];
    snprintf(path, sizeof path, "%s/hidden/thread", (char *)directory);
    if (open(path, O_RDONLY) >= 0) abort();
    return NULL;
}

static void must_fail(long result) {
    if (result >= 0) abort();
}

int main(int count, char **words) {
    if (count != 2) abort();
    if (chdir(words[1]) != 0) abort();
    must_fail(open(hidden("relative"), O_RDONLY));
    must_fail(open("seen/../hidden/./dots", O_RDONLY));
    must_fail(open("seen/link", O_RDONLY));
    must_fail(open("seen/chain", O_RDONLY));
    must_fail(open(hidden("line\nbreak"), O_RDONLY));
    int directory = open(words[1], O_PATH | O_DIRECTORY);
    if (directory < 0 || chdir("/") != 0) abort();
    must_fail(openat(directory, hidden("descriptor"), O_RDONLY));
    struct stat found;
    must_fail(fstatat(directory, hidden("stat"), &found, 0));
    must_fail(faccessat(directory, hidden("access"), R_OK, 0));
    char text[10];
    must_fail(readlinkat(directory, hidden("readlink"), text, sizeof text));
    must_fail(openat(directory, "hidden/new", O_WRONLY | O_CREAT, 0600));
    must_fail(mkdirat(directory, "hidden/directory", 0700));
    must_fail(unlinkat(directory, hidden("removed"), 0));
    must_fail(renameat(directory, hidden("moved"), directory, "seen/moved"));
    /* Fail whatever the view is. */
    char *longest = malloc(4097);
    memset(longest, 'a', 4096);
    longest[4096] = 0;
    for (int at = 1; at < 4096; at += 2) longest[at] = '/';
    must_fail(open(longest, O_RDONLY));
    must_fail(open((char *)(uintptr_t)16, O_RDONLY));
    must_fail(open("", O_RDONLY));
    /* The longest that the kernel takes, at the end of a page. */
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || munmap(pages + 2 * 4096, 4096) != 0) abort();
    char *last = pages + 4096;
    memset(last, '/', 4095);
    last[4095] = 0;
    size_t length = snprintf(NULL, 0, "%s/hidden/long", words[1]);
    snprintf(last + 4095 - length, length + 1, "%s/hidden/long", words[1]);
    must_fail(open(last, O_RDONLY));
    pthread_t threads[4];
    for (int at = 0; at < 4; at++) pthread_create(&threads[at], NULL, in_a_thread, words[1]);
    for (int at = 0; at < 4; at++) pthread_join(threads[at], NULL);
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) abort();
    if (fchdir(directory) != 0) abort();
    must_fail(open(hidden("not-dumpable"), O_RDONLY));
    must_fail(open(hidden("nowhere"), O_RDONLY));
    return 0;
}
