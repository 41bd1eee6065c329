/* What opening and looking at one file costs under Landlock rulesets that handle this and that:
 * DIRECTORY, with five directories and a file below it. One line for each ruleset, three numbers:
 * nanoseconds for open and close, for stat, for all three; a tab; its name. The fastest of PARTS. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PARTS = 12, COUNT = 3000 };
enum {
    EXECUTE = 1 << 0, WRITE = 1 << 1, READ = 1 << 2, READ_DIRECTORY = 1 << 3, MAKE_REMOVE = 0x1ff0,
    REFER = 1 << 13, TRUNCATE = 1 << 14, CONTROL = 1 << 15,
    OURS = EXECUTE | WRITE | MAKE_REMOVE | REFER,
};
enum where { NOWHERE, AT_TOP, AT_FIVE, AT_ROOT };

static const struct { const char *name; uint64_t files, network, scopes; int layers; enum where where; uint64_t extra; } rulesets[] = {
    {"no ruleset", 0, 0, 0, 0, NOWHERE, 0},
    {"scopes only", 0, 0, 3, 1, NOWHERE, 0},
    {"executing only", EXECUTE, 0, 0, 1, NOWHERE, 0},
    {"ours: writing, executing, scopes", OURS, 0, 3, 1, NOWHERE, 0},
    {"ours and TCP", OURS, 3, 3, 1, NOWHERE, 0},
    {"ours and IOCTL_DEV", OURS | CONTROL, 0, 3, 1, NOWHERE, 0},
    {"ours and TRUNCATE, allowed nowhere", OURS | TRUNCATE, 0, 3, 1, NOWHERE, 0},
    {"ours and TRUNCATE, allowed at /", OURS | TRUNCATE, 0, 3, 1, AT_ROOT, TRUNCATE},
    {"ours and TRUNCATE, allowed six levels up", OURS | TRUNCATE, 0, 3, 1, AT_TOP, TRUNCATE},
    {"ours and TRUNCATE, allowed one level up", OURS | TRUNCATE, 0, 3, 1, AT_FIVE, TRUNCATE},
    {"ours and READ_FILE, allowed six levels up", OURS | READ, 0, 3, 1, AT_TOP, READ},
    {"every right, read allowed six levels up", OURS | READ | READ_DIRECTORY | TRUNCATE | CONTROL, 0, 3, 1, AT_TOP, READ | READ_DIRECTORY},
    {"ours in two layers", OURS, 0, 3, 2, NOWHERE, 0},
    {"ours in four layers", OURS, 0, 3, 4, NOWHERE, 0},
};
enum { RULESETS = sizeof rulesets / sizeof *rulesets };

static char five[1024], file[1100];

static void must(int good, const char *act) {
    if (good) return;
    fprintf(stderr, "%s: %s\n", act, strerror(errno));
    exit(1);
}

static void allow(int ruleset, const char *path, uint64_t allowed) {
    struct { uint64_t allowed; int32_t fd; } __attribute__((packed)) rule = {allowed, open(path, O_PATH | O_CLOEXEC)};
    if (!allowed || rule.fd < 0) return;
    must(!syscall(445, ruleset, 1, &rule, 0), path);
    close(rule.fd);
}

static void restrict_to(int which, const char *top) {
    static const char *own[] = {"/dev/shm", "/var", "/run", "/home", "/opt", "/srv"};
    static const char *devices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"};
    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    for (int layer = 0; layer < rulesets[which].layers; layer++) {
        uint64_t handled = rulesets[which].files;
        uint64_t attributes[3] = {handled, rulesets[which].network, rulesets[which].scopes};
        int ruleset = syscall(444, attributes, sizeof attributes, 0);
        if (ruleset < 0) _exit(7);
        for (int at = 0; at < 6; at++) {
            allow(ruleset, own[at], handled & (OURS & ~(1 << 6) & ~(1 << 11)));
            allow(ruleset, devices[at], handled & WRITE);
        }
        allow(ruleset, "/proc", handled & WRITE);
        allow(ruleset, "/usr", handled & EXECUTE);
        allow(ruleset, top, handled & EXECUTE);
        static const char *places[] = {"", NULL, five, "/"};
        places[AT_TOP] = top;
        allow(ruleset, places[rulesets[which].where], rulesets[which].extra);
        must(!syscall(446, ruleset, 0), "restrict");
        close(ruleset);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void measure(double *best) {
    struct stat facts;
    double start = now();
    for (int at = 0; at < COUNT; at++) {
        int opened = open(file, O_RDONLY | O_CLOEXEC);
        must(0 <= opened, file);
        close(opened);
    }
    double middle = now();
    for (int at = 0; at < COUNT; at++) must(!stat(file, &facts), file);
    double end = now();
    double found[] = {(middle - start) / COUNT, (end - middle) / COUNT, (end - start) / COUNT};
    for (int at = 0; at < 3; at++) if (!best[at] || found[at] < best[at]) best[at] = found[at];
}

int main(int argc, char **words) {
    must(argc == 2, "DIRECTORY");
    snprintf(five, sizeof five, "%s/one/two/three/four/five", words[1]);
    snprintf(file, sizeof file, "%s/0", five);
    double (*best)[3] = mmap(NULL, RULESETS * sizeof *best, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(best != MAP_FAILED, "memory");
    for (int part = 0; part < PARTS; part++) for (int at = 0; at < RULESETS; at++) {
        int which = (at + part) % RULESETS, status;
        pid_t child = fork();
        if (child == 0) {
            restrict_to(which, words[1]);
            measure(best[which]);
            _exit(0);
        }
        must(waitpid(child, &status, 0) == child, "wait");
        /* 7: this kernel does not know the right */
        must(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 7), rulesets[which].name);
    }
    for (int which = 0; which < RULESETS; which++)
        printf("%.1f %.1f %.1f\t%s\n", best[which][0], best[which][1], best[which][2], rulesets[which].name);
    return 0;
}
