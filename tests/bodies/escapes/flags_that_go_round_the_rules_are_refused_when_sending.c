int main(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 9;
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct mmsghdr messages = {.msg_hdr = message};
    try("oob", send(pair[0], &byte, 1, MSG_OOB));
    try("oob msg", sendmsg(pair[0], &message, MSG_OOB));
    try("oob mmsg", sendmmsg(pair[0], &messages, 1, MSG_OOB));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(9)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    try("fastopen", sendto(fd, &byte, 1, MSG_FASTOPEN, (void *)&at, sizeof at));
    message.msg_name = &at;
    message.msg_namelen = sizeof at;
    try("fastopen msg", sendmsg(fd, &message, MSG_FASTOPEN));
    try("high", syscall(SYS_sendto, fd, &byte, 1, 0x100000000UL | MSG_FASTOPEN, &at, sizeof at));
    try("plain", send(pair[0], &byte, 1, MSG_NOSIGNAL));
    return 0;
}
