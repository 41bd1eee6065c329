static long restrict_to(uint64_t handled) {
    uint64_t attributes[1] = {handled};
    long fd = syscall(444, attributes, sizeof attributes, 0);
    if (fd < 0) return fd;
    long result = syscall(446, fd, 0);
    int kept = errno;
    close(fd);
    errno = kept;
    return result;
}
int main(void) {
    try("read before", open("/usr/bin/env", O_RDONLY));
    try("write before", open("/tmp/file", O_CREAT | O_RDWR, 0600));
    try("write rights", restrict_to(1 << 1));
    try("read", open("/usr/bin/env", O_RDONLY));
    try("write", open("/tmp/file", O_RDWR));
    try("read rights", restrict_to(1 << 2));
    try("read", open("/usr/bin/env", O_RDONLY));
    long result = 0;
    int layers = 0;
    while (layers < 32 && (result = restrict_to(1 << 2)) == 0) layers++;
    int deep = errno;
    try("too deep", (errno = deep, result));
    try("usr", open("/usr/new", O_CREAT | O_WRONLY, 0600));
    return 0;
}
