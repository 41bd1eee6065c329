int main(void) {
    const char *names[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts", NULL};
    for (const char **name = names; *name; name++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", *name);
        int fd = open(path, O_RDONLY);
        if (fd < 0) { printf("%s absent\n", *name); continue; }
        try("own", setns(fd, 0));
        snprintf(path, sizeof path, "/proc/1/ns/%s", *name);
        try("init", open(path, O_RDONLY));
    }
    int pidfd = syscall(SYS_pidfd_open, getpid(), 0);
    try("pidfd", setns(pidfd, CLONE_NEWNET | CLONE_NEWNS));
    pidfd = syscall(SYS_pidfd_open, 1, 0);
    try("pidfd of init", setns(pidfd, CLONE_NEWUSER));
    return 0;
}
