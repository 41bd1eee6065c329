int main(void) {
    mkdir("/tmp/at", 0700);
    try("proc", mount("proc", "/tmp/at", "proc", 0, NULL));
    try("sysfs", mount("sysfs", "/tmp/at", "sysfs", 0, NULL));
    try("tmpfs", mount("tmpfs", "/tmp/at", "tmpfs", 0, NULL));
    try("cgroup", mount("cgroup", "/tmp/at", "cgroup", 0, "memory"));
    try("cgroup2", mount("cgroup2", "/tmp/at", "cgroup2", 0, NULL));
    try("devpts", mount("devpts", "/tmp/at", "devpts", 0, NULL));
    try("mqueue", mount("mqueue", "/tmp/at", "mqueue", 0, NULL));
    try("bind", mount("/usr", "/tmp/at", NULL, MS_BIND, NULL));
    try("overlay", mount("overlay", "/tmp/at", "overlay", 0, "lowerdir=/usr,upperdir=/tmp,workdir=/scratch"));
    try("fuse", mount("fuse", "/tmp/at", "fuse", 0, "fd=0,rootmode=40000,user_id=0,group_id=0"));
    try("block", mount("/dev/vda", "/tmp/at", "ext4", 0, NULL));
    try("shared", mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL));
    try("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    try("fsconfig", syscall(SYS_fsconfig, 0, 6, NULL, NULL, 0));
    try("fsmount", syscall(SYS_fsmount, 0, 0, 0));
    try("fspick", syscall(SYS_fspick, -100, "/", 0));
    try("open_tree", syscall(SYS_open_tree, -100, "/usr", 1));
    try("move_mount", syscall(SYS_move_mount, -100, "/usr", -100, "/tmp/at", 0));
    try("mount_setattr", syscall(SYS_mount_setattr, -100, "/", 0, NULL, 0));
    try("open_tree_attr", syscall(467, -100, "/", 1, NULL, 0));
    try("statmount", syscall(457, NULL, NULL, 0, 0));
    try("listmount", syscall(458, NULL, NULL, 0, 0));
    return 0;
}
