int main(void) {
    char parameters[120] = {0};
    try("setup", syscall(SYS_io_uring_setup, 8, parameters));
    try("high", syscall(SYS_io_uring_setup, 0x100000008UL, parameters));
    try("enter", syscall(SYS_io_uring_enter, 0, 1, 1, 0, NULL));
    try("register", syscall(SYS_io_uring_register, 0, 0, NULL, 0));
    return 0;
}
