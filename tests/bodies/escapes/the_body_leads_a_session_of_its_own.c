int main(void) {
    printf("session %d\n", getsid(0) == getpid());
    printf("group %d\n", getpgrp() == getpid());
    printf("parent %d\n", getppid());
    try("tty", open("/dev/tty", O_RDWR));
    return 0;
}
