int main(int count, char **words) {
    int six = atoi(words[1]);
    int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET, SOCK_DCCP, SOCK_PACKET};
    for (int family = 0; family < 64; family++) {
        for (int at = 0; at < 7; at++) {
            errno = 0;
            int fd = socket(family, types[at], 0);
            int answer = errno;
            if (fd >= 0) { printf("%d %d\n", family, types[at]); close(fd); continue; }
            int known = family == 1 || family == 2 || family == 10 || family == 16;
            if (family == 10 && !six && answer == EAFNOSUPPORT) continue;
            if (answer != (known ? EPROTONOSUPPORT : EAFNOSUPPORT))
                printf("%d %d %s\n", family, types[at], strerrorname_np(answer));
        }
        errno = 0;
        if (socket(family, SOCK_STREAM, 77) >= 0) printf("%d with protocol 77\n", family);
        int pair[2];
        errno = 0;
        if (socketpair(family, SOCK_STREAM, 0, pair) == 0) printf("pair %d\n", family);
        else if (errno != EAFNOSUPPORT) printf("pair %d %s\n", family, strerrorname_np(errno));
    }
    return 0;
}
