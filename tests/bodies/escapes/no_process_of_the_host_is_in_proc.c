int main(int count, char **words) {
    for (int pid = 1; pid <= 70000; pid++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d", pid);
        struct stat about;
        if (stat(path, &about) == 0) printf("%d\n", pid == getpid() ? 0 : pid);
    }
    try("environ", open(words[1], O_RDONLY));
    return 0;
}
