#include <pthread.h>
int main(void) {
    struct rlimit none = {0, 0};
    cpu_set_t one, own;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    struct sched_param priority = {0};
    struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t rt; uint64_t t[3]; } attr =
        {.size = 48, .policy = SCHED_IDLE};
    try("cpu", syscall(SYS_prlimit64, 1, RLIMIT_CPU, &none, NULL));
    try("memory", syscall(SYS_prlimit64, 1, RLIMIT_AS, &none, NULL));
    try("files", syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, &none, NULL));
    try("affinity", sched_setaffinity(1, sizeof one, &one));
    try("scheduler", sched_setscheduler(1, SCHED_IDLE, &priority));
    try("param", sched_setparam(1, &priority));
    try("attr", syscall(SYS_sched_setattr, 1, &attr, 0));
    try("nice", setpriority(PRIO_PROCESS, 1, 19));
    try("nice-group", setpriority(PRIO_PGRP, 1, 19));
    try("nice-user", setpriority(PRIO_USER, 0, 19));
    try("nice-uid", setpriority(PRIO_USER, getuid(), 19));
    try("io", syscall(SYS_ioprio_set, 1, 1, 3 << 13));
    try("io-group", syscall(SYS_ioprio_set, 2, 1, 3 << 13));
    try("io-user", syscall(SYS_ioprio_set, 3, getuid(), 3 << 13));
    struct rlimit files = {64, 64};
    try("own-files", prlimit(0, RLIMIT_NOFILE, &files, NULL));
    try("pid-files", prlimit(getpid(), RLIMIT_NOFILE, &files, NULL));
    sched_getaffinity(0, sizeof own, &own);
    try("own-affinity", sched_setaffinity(gettid(), sizeof own, &own));
    try("thread-affinity", -pthread_setaffinity_np(pthread_self(), sizeof own, &own));
    try("own-nice", setpriority(PRIO_PROCESS, 0, 19));
    try("own-io", syscall(SYS_ioprio_set, 1, 0, 3 << 13));
    return 0;
}
