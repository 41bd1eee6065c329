#include <poll.h>
int main(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mount, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog program = {6, rules};
    long listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    try("listener", listener < 0 ? -1 : 0);
    /* who is asked would wait for an answer that nobody gives */
    try("unshare", unshare(CLONE_NEWUSER));
    try("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
    struct pollfd question = {listener, POLLIN, 0};
    printf("asked %d\n", poll(&question, 1, 0));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        syscall(SYS_getpriority, PRIO_PROCESS, 0);
        _exit(0);
    }
    int asked = poll(&question, 1, 60000);
    printf("of what is allowed %d %d\n", asked, (question.revents & POLLIN) != 0);
    kill(child, SIGKILL);
    return 0;
}
