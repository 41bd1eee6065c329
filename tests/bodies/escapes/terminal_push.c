static void push(const char *where, int fd) {
    char line[64];
    char byte = 'x';
    if (fd < 0) { printf("%s absent %s\n", where, strerrorname_np(errno)); fflush(stdout); return; }
    snprintf(line, sizeof line, "%s sti", where);
    try(line, ioctl(fd, TIOCSTI, &byte));
    snprintf(line, sizeof line, "%s high", where);
    try(line, syscall(SYS_ioctl, fd, 0x100005412UL, &byte));
    snprintf(line, sizeof line, "%s highest", where);
    try(line, syscall(SYS_ioctl, fd, 0xffffffff00005412UL, &byte));
    char paste[] = {3, 0};
    snprintf(line, sizeof line, "%s linux", where);
    try(line, ioctl(fd, TIOCLINUX, paste));
    snprintf(line, sizeof line, "%s linux high", where);
    try(line, syscall(SYS_ioctl, fd, 0x10000541cUL, paste));
}
int main(void) {
    push("0", 0);
    push("1", 1);
    push("2", 2);
    push("tty", open("/dev/tty", O_RDWR));
    printf("controlling %s\n", ioctl(0, TIOCSCTTY, 1) ? strerrorname_np(errno) : "ok");
    return 0;
}
