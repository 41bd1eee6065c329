int main(int count, char **words) {
    try("remount root", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    try("remount usr", mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL));
    try("remount asked", mount(NULL, words[1], NULL, MS_REMOUNT | MS_BIND, NULL));
    try("superblock", mount(NULL, "/", NULL, MS_REMOUNT, "size=100%"));
    try("mask", umount2("/proc/keys", MNT_DETACH));
    try("kallsyms", umount2("/proc/kallsyms", MNT_DETACH));
    try("proc", umount2("/proc", MNT_DETACH));
    try("usr", umount2("/usr", MNT_DETACH));
    try("asked", umount2(words[1], MNT_DETACH));
    try("root", umount2("/", MNT_DETACH));
    try("expire", umount2("/tmp", MNT_EXPIRE));
    /* every mount that there is, by every flag */
    int flags[] = {0, MNT_FORCE, MNT_DETACH, UMOUNT_NOFOLLOW | MNT_DETACH}, gone = 0, seen = 0;
    FILE *mounts = fopen("/proc/self/mountinfo", "r");
    static char line[1 << 13], place[1 << 12];
    while (fgets(line, sizeof line, mounts)) {
        if (sscanf(line, "%*d %*d %*s %*s %4095s", place) != 1) return 9;
        for (int at = 0; at < 4; at++, seen++) gone += umount2(place, flags[at]) == 0 || errno != EPERM;
        gone += mount(NULL, place, NULL, MS_REMOUNT | MS_BIND, NULL) == 0 || errno != EPERM;
        uint64_t clear[4] = {0, 1, 0, 0};
        gone += syscall(SYS_mount_setattr, -100, place, 0x8000, clear, sizeof clear) == 0 || errno != ENOSYS;
    }
    try("all", gone || seen < 40 ? 0 : (errno = EPERM, -1));
    try("write", open("/usr/x", O_WRONLY | O_CREAT, 0600));
    return 0;
}
