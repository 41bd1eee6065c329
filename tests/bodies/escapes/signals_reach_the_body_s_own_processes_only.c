static int alive(pid_t pid) { int status; return waitpid(pid, &status, WNOHANG) == 0; }
int main(int count, char **words) {
    pid_t host = atoi(words[1]), child = fork();
    if (child == 0) { for (;;) pause(); }
    siginfo_t info = {.si_signo = SIGKILL, .si_code = SI_QUEUE};
    try("kill", kill(host, SIGKILL));
    try("tgkill", syscall(SYS_tgkill, host, host, SIGKILL));
    try("tkill", syscall(SYS_tkill, host, SIGKILL));
    try("queue", syscall(SYS_rt_sigqueueinfo, host, SIGKILL, &info));
    try("pidfd", syscall(SYS_pidfd_open, host, 0));
    try("owner", fcntl(0, F_SETOWN, host));
    try("group", kill(-host, SIGKILL));
    try("priority", setpriority(PRIO_PROCESS, host, 19));
    struct rlimit nothing = {0, 0};
    try("limits", syscall(SYS_prlimit64, host, RLIMIT_CPU, &nothing, NULL));
    try("affinity", syscall(SYS_sched_setaffinity, host, 8, &nothing));
    printf("before %d\n", alive(child));
    /* everything that the body may reach, but itself */
    kill(-1, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    printf("after %d\n", WTERMSIG(status));
    kill(1, SIGKILL);
    kill(1, SIGTERM);
    kill(0, SIGCONT);
    try("init", kill(getppid(), SIGKILL) < 0 ? -1 : 0);
    puts("alive");
    return 0;
}
