static int seen;
static void walk(const char *path) {
    DIR *directory = opendir(path);
    if (!directory) return;
    struct dirent *entry;
    while ((entry = readdir(directory))) {
        if (entry->d_name[0] == '.') continue;
        if (!strcmp(path, "/proc") && entry->d_name[0] >= '0' && entry->d_name[0] <= '9') continue;
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        struct stat about;
        if (lstat(name, &about)) continue;
        if (S_ISLNK(about.st_mode)) continue;
        if (S_ISDIR(about.st_mode)) { walk(name); continue; }
        seen++;
        /* masks are /dev/null: what is written there is gone */
        if (S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 3)) continue;
        int fd = open(name, O_WRONLY | O_NONBLOCK);
        /* everybody may open this one; writing takes a capability */
        if (fd >= 0 && !strcmp(name, "/proc/sys/kernel/ns_last_pid") && write(fd, "9", 1) < 0 && errno == EPERM) continue;
        if (fd >= 0) { printf("writable %s\n", name); close(fd); }
    }
    closedir(directory);
}
int main(void) {
    walk("/proc");
    printf("enough %d\n", seen > 200);
    return 0;
}
