int main(void) {
    struct stat mine, controlling;
    char *name = ttyname(0);
    printf("name %s\n", name ? name : strerrorname_np(errno));
    printf("all %d\n", isatty(0) && isatty(1) && isatty(2));
    int tty = open("/dev/tty", O_RDWR);
    printf("tty %s\n", tty < 0 ? strerrorname_np(errno) : "ok");
    printf("session %d\n", tcgetsid(tty) == getpid() && tcgetpgrp(tty) == getpid());
    fstat(0, &mine);
    stat(name, &controlling);
    printf("same %d\n", mine.st_rdev == controlling.st_rdev && mine.st_ino == controlling.st_ino);
    printf("group %d\n", tcsetpgrp(tty, getpgrp()));
    struct termios raw;
    tcgetattr(0, &raw);
    cfmakeraw(&raw);
    printf("raw %d\n", tcsetattr(0, TCSANOW, &raw));
    return 0;
}
