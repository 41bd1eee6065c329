int main(void) {
    try("sys", open("/sys/fs/cgroup", O_RDONLY));
    try("release", open("/sys/fs/cgroup/memory/release_agent", O_WRONLY));
    try("procs", open("/sys/fs/cgroup/cgroup.procs", O_WRONLY));
    FILE *mounts = fopen("/proc/self/mountinfo", "r");
    char line[4096];
    int found = 0;
    while (fgets(line, sizeof line, mounts)) found += strstr(line, " - cgroup") != NULL;
    printf("mounts %d\n", found);
    try("namespace", unshare(CLONE_NEWCGROUP));
    return 0;
}
