#include <sys/timex.h>
#include <time.h>
static long put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    return fd < 0 ? -1 : write(fd, text, strlen(text));
}
static int counts(void) {
    struct timespec before, after;
    long plain = syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &before);
    /* by the page that the kernel lends */
    int lent = clock_gettime(CLOCK_MONOTONIC, &after);
    long apart = (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec;
    return plain == 0 && lent == 0 && apart >= 0;
}
int main(void) {
    /* once there was a process in the namespace, its offsets are settled */
    try("offsets", put("/proc/self/timens_offsets", "monotonic 1000 0"));
    try("of init", put("/proc/1/timens_offsets", "monotonic 1000 0"));
    try("namespace", unshare(0x80));
    struct timespec now;
    struct timex change = {.modes = ADJ_OFFSET, .offset = 1000};
    for (int clock = 0; clock < 12; clock++) {
        if (clock == 10 || clock_gettime(clock, &now)) continue;
        now.tv_sec += 1000;
        if (syscall(SYS_clock_settime, clock, &now) == 0 || errno != EPERM) printf("set %d\n", clock);
        if (syscall(SYS_clock_adjtime, clock, &change) >= 0 || errno != EPERM) printf("adjusted %d\n", clock);
    }
    struct timeval day = {1000, 0};
    try("day", syscall(SYS_settimeofday, &day, NULL));
    try("adjust", syscall(SYS_adjtimex, &change));
    printf("counts %d\n", counts());
    /* every processor that the kernel could have: those beyond the cpuset are left out */
    cpu_set_t had, wanted, got;
    sched_getaffinity(0, sizeof had, &had);
    memset(&wanted, 0xff, sizeof wanted);
    try("all processors", sched_setaffinity(0, sizeof wanted, &wanted));
    sched_getaffinity(0, sizeof got, &got);
    printf("more %d\n", CPU_COUNT(&got) > sysconf(_SC_NPROCESSORS_CONF));
    CPU_ZERO(&wanted);
    CPU_SET(1000, &wanted);
    try("no processor", sched_setaffinity(0, sizeof wanted, &wanted));
    for (int at = 0; at < CPU_SETSIZE; at++) if (CPU_ISSET(at, &had)) { CPU_ZERO(&wanted); CPU_SET(at, &wanted); break; }
    try("one processor", sched_setaffinity(0, sizeof wanted, &wanted));
    try("cpuset", open("/sys/fs/cgroup/cpuset/cpuset.cpus", O_WRONLY));
#if defined(__x86_64__)
    try("counter", prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0));
    int status;
    pid_t child = fork();
    if (child == 0) { __builtin_ia32_rdtsc(); _exit(0); }
    waitpid(child, &status, 0);
    printf("own counter %d\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
#else
    puts("counter ok\nown counter 1");
#endif
    return 0;
}
