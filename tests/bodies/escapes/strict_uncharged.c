int main(void) {
    int file = open("/tmp/file", O_CREAT | O_RDWR, 0600);
    struct flock part = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 1};
    try("F_SETLK", fcntl(file, F_SETLK, &part));
    try("F_SETLKW", fcntl(file, F_SETLKW, &part));
    try("F_OFD_SETLK", fcntl(file, F_OFD_SETLK, &part));
    try("F_OFD_SETLKW", fcntl(file, F_OFD_SETLKW, &part));
    try("high", syscall(SYS_fcntl, file, 0x100000006, &part));
    try("lockf", lockf(file, F_LOCK, 1));
    try("netlink", socket(AF_NETLINK, SOCK_RAW, 0));
    try("datagrams of netlink", socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    try("F_GETLK", fcntl(file, F_GETLK, &part));
    try("F_DUPFD", fcntl(file, F_DUPFD_CLOEXEC, 9));
    try("flock", flock(file, LOCK_EX));
    try("stream", socket(AF_INET, SOCK_STREAM, 0));
    try("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){0}));
    return 0;
}
