int main(int count, char **names) {
    for (int at = 1; at < count; at++) {
        struct stat about;
        if (stat(names[at], &about)) { printf("%s %s\n", names[at], strerrorname_np(errno)); continue; }
        printf("%s %s %d:%d\n", names[at], S_ISCHR(about.st_mode) ? "device" : "other",
            major(about.st_rdev), minor(about.st_rdev));
    }
    return 0;
}
