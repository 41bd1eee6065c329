static long put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0) return -1;
    long result = write(fd, text, strlen(text));
    close(fd);
    return result;
}
int main(void) {
    try("uid_map", put("/proc/self/uid_map", "0 0 4294967295\n"));
    try("gid_map", put("/proc/self/gid_map", "0 0 4294967295\n"));
    try("allow", put("/proc/self/setgroups", "allow"));
    try("init", put("/proc/1/uid_map", "0 0 1\n"));
    gid_t none[] = {0};
    try("setgroups", setgroups(1, none));
    try("setuid", setuid(0));
    try("setresuid", setresuid(0, 0, 0));
    try("setgid", setgid(0));
    try("nobody", setuid(65534));
    try("fsuid", syscall(SYS_setfsuid, 0) == 1000 && syscall(SYS_setfsuid, -1) == 1000 ? -1 : 0);
    printf("ids %d %d %d %d\n", getuid(), geteuid(), getgid(), getegid());
    return 0;
}
