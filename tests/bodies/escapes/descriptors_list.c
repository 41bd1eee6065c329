int main(void) {
    for (int fd = 0; fd < 65536; fd++) {
        struct stat about;
        if (fstat(fd, &about) != 0) continue;
        const char *kind = S_ISDIR(about.st_mode) ? "directory" : S_ISFIFO(about.st_mode) ? "pipe"
            : S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 3) ? "null" : "other";
        int out = openat(fd, "../../..", O_RDONLY | O_DIRECTORY);
        printf("%d %s %s\n", fd, kind, out < 0 ? strerrorname_np(errno) : "open");
        if (out >= 0) close(out);
    }
    return 0;
}
