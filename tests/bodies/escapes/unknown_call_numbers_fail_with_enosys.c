int main(void) {
    for (long number = 470; number < 1024; number++) {
        errno = 0;
        long result = syscall(number, 0, 0, 0, 0, 0, 0);
        if (result != -1 || errno != ENOSYS) printf("%ld %ld %s\n", number, result, strerrorname_np(errno));
    }
    try("large", syscall(0x3fffffff, 0, 0, 0));
    try("largest", syscall(0x7fffffff, 0, 0, 0));
    try("negative", syscall(-1, 0, 0, 0));
    return 0;
}
