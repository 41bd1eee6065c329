static void write_to(const char *directory) {
    DIR *open_directory = opendir(directory);
    struct dirent *entry;
    while (open_directory && (entry = readdir(open_directory))) {
        char path[512];
        struct stat about;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] == '.' || lstat(path, &about) || !S_ISREG(about.st_mode)) continue;
        int fd = open(path, O_WRONLY);
        if (fd >= 0 && write(fd, "1", 1) > 0) printf("%s written\n", path);
        if (fd >= 0) close(fd);
    }
    if (open_directory) closedir(open_directory);
}
int main(int count, char **words) {
    int refused = strcmp(words[1], "refused") == 0;
    int pidfd = syscall(SYS_pidfd_open, 1, 0);
    for (int number = 1; number <= 64; number++) {
        siginfo_t info = {.si_signo = number, .si_code = SI_QUEUE};
        long sent[] = {
            kill(1, number), syscall(SYS_tgkill, 1, 1, number), syscall(SYS_tkill, 1, number),
            syscall(SYS_rt_sigqueueinfo, 1, number, &info), syscall(SYS_rt_tgsigqueueinfo, 1, 1, number, &info),
            syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0),
        };
        for (int way = 0; way < 6; way++)
            if (refused && sent[way] == 0) printf("signal %d by way %d\n", number, way);
    }
    /* the kernel sends these for a descriptor whose owner is init */
    int ends[2];
    for (int number = 1; number <= 64; number++) {
        if (pipe(ends)) return 1;
        fcntl(ends[0], F_SETOWN, 1);
        fcntl(ends[0], F_SETSIG, number);
        fcntl(ends[0], F_SETFL, O_ASYNC);
        if (write(ends[1], "x", 1) != 1) return 1;
        close(ends[0]);
        close(ends[1]);
    }
    write_to("/proc/1");
    write_to("/proc/1/task/1");
    write_to("/proc/1/attr");
    struct { unsigned long head; size_t length; } list;
    try("robust-list", syscall(SYS_get_robust_list, 1, &list.head, &list.length));
    /* PR_SCHED_CORE, PR_SCHED_CORE_SHARE_TO */
    if (prctl(62, 2, 1, 0, 0) == 0) puts("core scheduling shared");
    /* init goes on: it reaps a process whose parent has ended */
    pid_t *orphan = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t parent = fork();
    if (parent == 0) {
        pid_t own = fork();
        if (own != 0) *orphan = own;
        _exit(0);
    }
    waitpid(parent, NULL, 0);
    while (kill(*orphan, 0) == 0) usleep(1000);
    puts("reaped");
    return 0;
}
