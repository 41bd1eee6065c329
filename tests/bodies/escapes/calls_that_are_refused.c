/* Each refused call once or several times, and two that libraries only test for. */
int main(void) {
    try("unshare", unshare(CLONE_NEWUSER));
    try("cgroup", unshare(CLONE_NEWCGROUP));
    for (int at = 0; at < 3; at++) try("ptrace", ptrace(PTRACE_TRACEME, 0, 0, 0));
    try("packet", socket(AF_PACKET, SOCK_RAW, 3));
    try("packet", socket(AF_PACKET, SOCK_DGRAM, 4));
    try("alg", socket(AF_ALG, SOCK_SEQPACKET, 0));
    try("clone3", syscall(435, 0, 0));
    try("new", syscall(1000));
    return FAILS;
}
