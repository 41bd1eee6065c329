int main(void) {
    struct stat root, found;
    stat("/", &root);
    pid_t child = fork();
    if (child == 0) { chdir("/tmp"); for (;;) pause(); }
    const char *ends[] = {"root", "root/..", "root/../../..", "cwd/../../../..", "task/%d/root/..", NULL};
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    int seen = 0;
    while ((entry = readdir(proc))) {
        int pid = atoi(entry->d_name);
        if (pid == 0 && strcmp(entry->d_name, "self") && strcmp(entry->d_name, "thread-self")) continue;
        for (const char **end = ends; *end; end++) {
            char form[128], path[512];
            snprintf(form, sizeof form, "/proc/%s/%s", entry->d_name, *end);
            snprintf(path, sizeof path, form, pid);
            int fd = open(path, O_PATH | O_DIRECTORY);
            if (fd < 0 || fstat(fd, &found)) continue;
            if (pid == 1) printf("init by %s\n", path);
            if (found.st_dev != root.st_dev || found.st_ino != root.st_ino) printf("outside by %s\n", path);
            seen++;
            close(fd);
        }
    }
    kill(child, SIGKILL);
    printf("enough %d\n", seen >= 9);
    return 0;
}
