// Says what confines it, a word and a value a line: a bench runs it as the floor's body and
// believes nothing that it does not see here.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    static const char *const spaces[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        char path[64], target[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", spaces[i]);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length < 0) return 1;
        target[length] = 0;
        printf("%s %s\n", spaces[i], target);
    }
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) {
        char *colon = strchr(line, ':');
        if (!colon) continue;
        *colon = 0;
        static const char *const wanted[] = {"Uid", "NoNewPrivs", "Seccomp", "CapEff", "CapBnd"};
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
            if (!strcmp(line, wanted[i])) printf("%s %s", line, colon + 1);
        }
    }
    // The root is a writable tmpfs: whoever refuses is Landlock. In /tmp nobody refuses.
    printf("write_root %d\n", mkdir("/x", 0700) ? errno : 0);
    printf("write_tmp %d\n", mkdir("/tmp/x", 0700) ? errno : 0);
    printf("write_usr %d\n", mkdir("/usr/x", 0700) ? errno : 0);
    printf("sees_host %d\n", !access("/root", F_OK) || !access("/home", F_OK));
    return 0;
}
