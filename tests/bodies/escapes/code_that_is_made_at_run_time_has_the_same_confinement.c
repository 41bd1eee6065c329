static void probe(const char *how) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    int filtered = 0;
    while (fgets(line, sizeof line, status))
        filtered += !strcmp(line, "Seccomp:\t2\n") || !strcmp(line, "NoNewPrivs:\t1\n") || !strcmp(line, "CapBnd:\t0000000000000000\n");
    printf("%s %d ", how, filtered);
    try("unshare", unshare(CLONE_NEWUSER));
}
static void copy_to(int to) {
    char bytes[65536];
    long got;
    int from = open("/proc/self/exe", O_RDONLY);
    while ((got = read(from, bytes, sizeof bytes)) > 0) if (write(to, bytes, got) != got) _exit(8);
    close(from);
}
static void child(const char *how, int fd, const char *path) {
    pid_t pid = fork();
    if (pid == 0) {
        char *words[] = {"inner", (char *)how, NULL}, *none[] = {NULL};
        if (path) execve(path, words, none);
        else if (!strcmp(how, "fexecve")) fexecve(fd, words, none);
        else syscall(SYS_execveat, fd, "", words, none, AT_EMPTY_PATH);
        printf("%s %s\n", how, strerrorname_np(errno));
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}
int main(int count, char **words) {
    if (!strcmp(words[0], "inner")) { probe(words[1]); return 0; }
    probe("body");
    int fd = memfd_create("code", MFD_CLOEXEC);
    copy_to(fd);
    child("fexecve", fd, NULL);
    child("execveat", fd, NULL);
    const char *places[] = {"/dev/shm/code", "/tmp/code", "/scratch/code", NULL};
    for (const char **place = places; *place; place++) {
        int file = open(*place, O_CREAT | O_WRONLY, 0700);
        copy_to(file);
        close(file);
        child(*place, -1, *place);
    }
#if defined(__x86_64__)
    /* unshare(CLONE_NEWUSER), answer in eax */
    unsigned char code[] = {0xb8, 0x10, 1, 0, 0, 0xbf, 0, 0, 0, 0x10, 0x0f, 5, 0xc3};
    int file = open("/tmp/mapped", O_CREAT | O_RDWR, 0700);
    if (write(file, code, sizeof code) != sizeof code) return 7;
    int (*run)(void) = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    printf("mapped %d\n", run());
#else
    puts("mapped -1");
#endif
    return 0;
}
