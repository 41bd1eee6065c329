#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void) {
    char name[64]; long made = 0;
    for (;; made++) {
        sprintf(name, "/scratch/%ld", made);
        int failed = made % 3 == 0 ? close(open(name, O_CREAT | O_WRONLY, 0600)) < 0
            : made % 3 == 1 ? symlink("x", name) < 0 : mkdir(name, 0700) < 0;
        if (failed) break;
        if (made > 200000) return 1;
    }
    int full = mkdir("/tmp/one-more", 0700) < 0 && errno == ENOSPC;
    printf("%d %d\n", full, made > 60000 && made <= 65536);
    return 0;
}
