int main(void) {
    try("shmget", syscall(SYS_shmget, 0, 4096, 0));
    try("mq_open", syscall(SYS_mq_open, "q", O_CREAT | O_RDWR, 0600, NULL));
    unsigned long context = 0;
    try("io_setup", syscall(SYS_io_setup, 1, &context));
    int pair[2], other[2];
    if (pipe(pair) || pipe(other) || write(pair[1], "x", 1) != 1) return 7;
    try("tee", tee(pair[0], other[1], 1, 0));
    struct sched_param none = {0};
    try("batch", sched_setscheduler(0, SCHED_BATCH, &none));
    try("syncfs", syncfs(pair[0]));
    try("get_robust_list", syscall(SYS_get_robust_list, 0, &context, &context));
    try("futex_wake", syscall(454, &context, 1, 1, 2));
    try("pipe", read(pair[0], pair, 1));
    try("fsync", fsync(open("/tmp/file", O_CREAT | O_WRONLY, 0600)));
    try("affinity", sched_getaffinity(0, sizeof context, (cpu_set_t *)&context));
    try("eventfd", syscall(SYS_eventfd2, 0, 0));
    return 0;
}
