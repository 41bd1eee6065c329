int main(void) {
    char *places[] = {"/tmp/n", "/dev/shm/n", "/bundle/n", "/scratch/n", NULL};
    for (char **place = places; *place; place++) {
        try("character", mknod(*place, S_IFCHR | 0666, makedev(1, 1)));
        try("block", mknod(*place, S_IFBLK | 0666, makedev(254, 0)));
        try("at", mknodat(AT_FDCWD, *place, S_IFBLK | 0666, makedev(254, 0)));
        try("whiteout", mknod(*place, S_IFCHR, 0));
    }
    try("high", syscall(SYS_mknod, "/tmp/n", 0x100000000UL | S_IFCHR | 0666, makedev(1, 1)));
    try("fifo", mkfifo("/tmp/fifo", 0600));
    try("file", mknod("/tmp/file", S_IFREG | 0600, 0));
    return 0;
}
