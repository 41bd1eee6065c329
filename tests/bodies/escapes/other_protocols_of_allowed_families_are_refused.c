int main(void) {
    for (int family = 2; family <= 10; family += 8) {
        try("mptcp", socket(family, SOCK_STREAM, 262));
        try("sctp", socket(family, SOCK_STREAM, 132));
        try("ping", socket(family, SOCK_DGRAM, family == 2 ? 1 : 58));
        try("udplite", socket(family, SOCK_DGRAM, 136));
        try("raw", socket(family, SOCK_RAW, 255));
        try("tcp", socket(family, SOCK_STREAM, 6));
        try("udp", socket(family, SOCK_DGRAM, 17));
    }
    for (int protocol = 1; protocol < 32; protocol++)
        if (socket(AF_NETLINK, SOCK_RAW, protocol) >= 0 || errno != EPROTONOSUPPORT) printf("netlink %d\n", protocol);
    try("packet, high", syscall(SYS_socket, 0x100000011UL, SOCK_RAW, 0));
    try("mptcp, high", syscall(SYS_socket, 0x100000002UL, SOCK_STREAM, 0x100000106UL));
    try("flags", socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return 0;
}
