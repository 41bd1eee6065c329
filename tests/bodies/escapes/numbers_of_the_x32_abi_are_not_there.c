int main(void) {
    static char room[256];
    for (long number = 0; number < 600; number++) {
        errno = 0;
        long result = syscall(0x40000000 | number, room, room, room, room, room, room);
        if (result != -1 || errno != ENOSYS) printf("%ld %ld %s\n", number, result, strerrorname_np(errno));
    }
    try("exit_group", syscall(0x40000000 | SYS_exit_group, 3));
    return 0;
}
