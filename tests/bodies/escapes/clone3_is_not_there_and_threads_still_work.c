struct arguments { uint64_t flags, pidfd, child, parent, exit_signal, stack, size, tls, set, set_size, cgroup; };
static long clone3_with(unsigned long flags) {
    struct arguments arguments = {.flags = flags, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0) _exit(0);
    return pid;
}
static void *work(void *unused) { return unused; }
int main(void) {
    try("plain", clone3_with(0));
    for (int at = 0; at < 8; at++) try(kinds[at].name, clone3_with(kinds[at].bit));
    try("no arguments", syscall(SYS_clone3, NULL, 0));
    pthread_t thread;
    printf("thread %d\n", pthread_create(&thread, NULL, work, NULL));
    printf("joined %d\n", pthread_join(thread, NULL));
    return 0;
}
