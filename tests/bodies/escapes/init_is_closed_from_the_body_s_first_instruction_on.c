static const char *names[] = {"mem", "environ", "maps", "fd", "fd/0", "fd/3", "fd/4", "fdinfo", "root", "cwd",
    "exe", "ns/net", "map_files", "syscall", "auxv", "task/1/mem", "clear_refs", NULL};
int main(void) {
    /* only on one's own processes a link is followed, memory opened or a list read */
    for (int round = 0; round < 300; round++) {
        for (const char **name = names; *name; name++) {
            char path[64], bytes[64];
            snprintf(path, sizeof path, "/proc/1/%s", *name);
            int fd = open(path, O_RDONLY | O_NONBLOCK);
            if (fd < 0 && errno == EISDIR) fd = open(path, O_RDONLY | O_DIRECTORY);
            if (fd < 0) continue;
            struct stat about;
            fstat(fd, &about);
            long got = S_ISDIR(about.st_mode) ? syscall(SYS_getdents64, fd, bytes, 64) : read(fd, bytes, 64);
            if (got > 0 || strchr(*name, '/') || !strcmp(*name, "mem")) printf("%s open\n", path);
            close(fd);
        }
        if (round == 0) fork();
    }
    puts("tried");
    return 0;
}
