int main(int count, char **words) {
    for (int at = 1; at < count; at++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC)) return 9;
        pid_t child = fork();
        if (child == 0) {
            int null = open("/dev/null", O_RDWR);
            dup2(null, 0); dup2(null, 1); dup2(null, 2);
            alarm(3);
            execl(words[at], words[at], "--version", NULL);
            int code = errno;
            write(ends[1], &code, sizeof code);
            _exit(0);
        }
        close(ends[1]);
        int code = 0;
        read(ends[0], &code, sizeof code);
        close(ends[0]);
        siginfo_t info;
        waitid(P_PID, child, &info, WEXITED | WNOWAIT);
        char path[64], line[256];
        snprintf(path, sizeof path, "/proc/%d/status", child);
        FILE *status = fopen(path, "r");
        if (code) printf("not executed: %s\n", strerrorname_np(code));
        while (fgets(line, sizeof line, status)) {
            if (!strncmp(line, "Uid:", 4) && strcmp(line, "Uid:\t1000\t1000\t1000\t1000\n")) printf("%s %s", words[at], line);
            if (!strncmp(line, "Gid:", 4) && strcmp(line, "Gid:\t1000\t1000\t1000\t1000\n")) printf("%s %s", words[at], line);
            if (!strncmp(line, "CapBnd:", 7) && strcmp(line, "CapBnd:\t0000000000000000\n")) printf("%s %s", words[at], line);
            if (!strcmp(line, "NoNewPrivs:\t0\n")) printf("%s %s", words[at], line);
        }
        fclose(status);
        waitpid(child, NULL, 0);
    }
    puts("all");
    return 0;
}
