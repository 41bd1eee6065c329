static struct sockaddr_un name_of(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strncpy(name.sun_path, path, sizeof name.sun_path - 1);
    return name;
}
int main(int count, char **words) {
    struct sockaddr_un stream = name_of(words[1]), datagram = name_of(words[2]);
    int pair[2], fd = socket(AF_UNIX, SOCK_STREAM, 0), kept = errno;
    try("stream", fd < 0 ? (errno = kept, fd) : connect(fd, (void *)&stream, sizeof stream));
    fd = socket(AF_UNIX, SOCK_DGRAM, 0), kept = errno;
    try("datagram", fd < 0 ? (errno = kept, fd) : sendto(fd, "x", 1, 0, (void *)&datagram, sizeof datagram));
    fd = socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), kept = errno;
    try("pair of datagrams", fd < 0 ? (errno = kept, fd) : sendto(pair[0], "x", 1, 0, (void *)&datagram, sizeof datagram));
    fd = socketpair(AF_UNIX, SOCK_RAW, 0, pair), kept = errno;
    try("raw pair", fd < 0 ? (errno = kept, fd) : sendto(pair[0], "x", 1, 0, (void *)&datagram, sizeof datagram));
    try("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    try("pair to a name", connect(pair[0], (void *)&stream, sizeof stream));
    close(pair[1]);
    try("left pair to a name", connect(pair[0], (void *)&stream, sizeof stream));
    try("pair of packets", socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    try("packets to a name", sendto(pair[0], "x", 1, 0, (void *)&stream, sizeof stream));
    return 0;
}
