int main(void) {
    mkdir("/tmp/jail", 0700);
    int kept = open("/", O_RDONLY | O_DIRECTORY);
    try("chroot", chroot("/tmp/jail"));
    try("chroot here", chroot("."));
    try("pivot_root", syscall(SYS_pivot_root, "/tmp/jail", "/tmp/jail"));
    try("pivot dots", syscall(SYS_pivot_root, ".", "."));
    try("fchdir", fchdir(kept));
    struct stat above, root;
    for (int level = 0; level < 64; level++) chdir("..");
    stat(".", &above);
    stat("/", &root);
    printf("top %s\n", above.st_ino == root.st_ino && above.st_dev == root.st_dev ? "root" : "outside");
    return 0;
}
