int main(int count, char **words) {
    if (chdir(words[1])) return 9;
    try("open", open("file", O_WRONLY));
    try("both", open("file", O_RDWR));
    try("truncating", open("file", O_RDONLY | O_TRUNC));
    try("create", open("new", O_WRONLY | O_CREAT, 0600));
    try("nameless", open(".", O_TMPFILE | O_RDWR, 0600));
    try("truncate", truncate("file", 0));
    try("chmod", chmod("file", 0777));
    try("chmod self", chmod(".", 0777));
    try("chown", chown("file", 1000, 1000));
    try("setxattr", setxattr("file", "user.x", "x", 1, 0));
    try("removexattr", removexattr("file", "user.x"));
    try("utime", utimensat(AT_FDCWD, "file", NULL, 0));
    try("rename", rename("file", "other"));
    try("rename out", rename("file", "/tmp/out"));
    try("link", link("file", "hard"));
    try("link out", link("file", "/tmp/hard"));
    try("symlink", symlink("file", "soft"));
    try("unlink", unlink("file"));
    try("mkdir", mkdir("made", 0700));
    try("rmdir", rmdir("deep/er"));
    try("fifo", mkfifo("fifo", 0600));
    /* one that was made would hold whoever reads the tree afterwards */
    unlink("fifo");
    int fd = open("file", O_RDONLY);
    try("ftruncate", ftruncate(fd, 0));
    try("fchmod", fchmod(fd, 0777));
    try("fallocate", fallocate(fd, 0, 0, 1));
    char again[64];
    snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
    try("reopen", open(again, O_WRONLY));
    try("map", mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
    int flags = 0x10;
    try("flags", ioctl(fd, _IOW('f', 2, long), &flags));
    return 0;
}
