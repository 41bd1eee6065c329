/* What a body does again and again: KIND COUNT [DIRECTORY]. Prints nanoseconds for one of it.
 *
 * The work is done in ten parts of COUNT and the fastest one is told: what else the machine did
 * meanwhile is not what the confinement costs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PARTS = 10, FILES = 64 };
static char names[FILES][512];
static const char *self, *directory;

static void must(int good, const char *act) {
    if (good) return;
    fprintf(stderr, "%s: %s\n", act, strerror(errno));
    exit(1);
}

static void calls(long count) {
    for (long at = 0; at < count; at++) syscall(SYS_getpid);
}

/* The filters of all peers refuse it; bare, the kernel does. */
static void refused(long count) {
    for (long at = 0; at < count; at++) syscall(SYS_mount, NULL, NULL, NULL, 0, NULL);
}

/* Another file each time, five directories below DIRECTORY. */
static void paths(long count) {
    struct stat facts;
    for (long at = 0; at < count; at++) {
        const char *name = names[at % FILES];
        int file = open(name, O_RDONLY | O_CLOEXEC);
        must(0 <= file, name);
        close(file);
        must(!stat(name, &facts), name);
    }
}

static void writes(long count) {
    char old[600], new[600];
    snprintf(old, sizeof old, "%s/old", directory);
    snprintf(new, sizeof new, "%s/new", directory);
    for (long at = 0; at < count; at++) {
        int file = open(old, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        must(0 <= file && write(file, "text", 4) == 4, old);
        close(file);
        must(!rename(old, new) && !unlink(new), new);
    }
}

static void forks(long count) {
    for (long at = 0; at < count; at++) {
        pid_t child = fork();
        must(0 <= child, "fork");
        if (child == 0) {
            char *words[] = {(char *)self, "end", NULL};
            execv(self, words);
            _exit(1);
        }
        int status;
        must(waitpid(child, &status, 0) == child && status == 0, self);
    }
}

/* Multiplies, and reads and writes 256 KiB in no order. */
static void computes(long count) {
    static uint64_t table[1 << 15];
    uint64_t state = 88172645463325252u;
    for (long at = 0; at < count; at++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        table[state >> 49] += state;
    }
    __asm__ volatile("" : : "r"(table) : "memory");
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

int main(int argc, char **words) {
    static const struct { const char *name; void (*work)(long); } kinds[] = {
        {"calls", calls}, {"refused", refused}, {"paths", paths}, {"writes", writes}, {"forks", forks}, {"computes", computes}};
    if (argc == 2) return strcmp(words[1], "end") != 0;
    must(3 <= argc, "KIND COUNT [DIRECTORY]");
    self = words[0];
    directory = argc == 4 ? words[3] : ".";
    for (int at = 0; at < FILES; at++)
        snprintf(names[at], sizeof names[at], "%s/one/two/three/four/five/%d", directory, at);
    long count = atol(words[2]);
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        if (strcmp(kinds[kind].name, words[1])) continue;
        uint64_t fastest = UINT64_MAX;
        for (int part = 0; part < PARTS; part++) {
            uint64_t start = now();
            kinds[kind].work(count);
            uint64_t took = now() - start;
            if (took < fastest) fastest = took;
        }
        printf("%.3f\n", (double)fastest / count);
        return 0;
    }
    return 2;
}
