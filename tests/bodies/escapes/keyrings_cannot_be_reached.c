int main(void) {
    try("add", syscall(SYS_add_key, "user", "x", "y", 1, -3));
    try("request", syscall(SYS_request_key, "user", "canary", NULL, 0));
    try("join", syscall(SYS_keyctl, 1, NULL));
    try("persistent", syscall(SYS_keyctl, 22, -1, -3));
    try("search", syscall(SYS_keyctl, 10, -4, "user", "canary", 0));
    char bytes[8];
    int fd = open("/proc/keys", O_RDONLY);
    printf("keys %ld\n", fd < 0 ? 0L : (long)read(fd, bytes, 8));
    return 0;
}
