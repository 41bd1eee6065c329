static long load(unsigned answer, unsigned flags) {
    struct sock_filter one = BPF_STMT(BPF_RET | BPF_K, answer);
    struct sock_fprog program = {1, &one};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}
static void probe(void) {
    try("unshare", unshare(CLONE_NEWUSER));
    try("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
    try("clone3", syscall(SYS_clone3, NULL, 0));
    try("socket", socket(AF_PACKET, SOCK_RAW, 0));
}
int main(void) {
    try("allow", load(SECCOMP_RET_ALLOW, 0));
    probe();
    try("all threads", load(SECCOMP_RET_ALLOW, SECCOMP_FILTER_FLAG_TSYNC));
    try("log", load(SECCOMP_RET_LOG, 0));
    try("trace", load(SECCOMP_RET_TRACE, 0));
    return 0;
}
