/* Runs its arguments under a filter that has a listener, which this process keeps open, and asks it nothing. */
int main(int count, char **words) {
    (void)count;
    struct sock_filter rules[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, rules};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program) < 0) abort();
    pid_t child = fork();
    if (child == 0) {
        execv(words[1], words + 1);
        _exit(111);
    }
    int status;
    if (waitpid(child, &status, 0) != child) abort();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 112;
}
