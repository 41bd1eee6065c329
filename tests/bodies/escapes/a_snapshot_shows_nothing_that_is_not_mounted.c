#include <linux/btrfs.h>
#include <linux/fs.h>

/* The file system need not be btrfs: the filter answers first. */
int main(int count, char **words) {
    int directory = open(words[1], O_RDONLY | O_DIRECTORY);
    struct btrfs_ioctl_vol_args args = {.fd = directory, .name = "stolen"};
    struct btrfs_ioctl_vol_args_v2 args_v2 = {.fd = directory, .name = "stolen"};
    try("snapshot", ioctl(directory, BTRFS_IOC_SNAP_CREATE, &args));
    try("snapshot v2", ioctl(directory, BTRFS_IOC_SNAP_CREATE_V2, &args_v2));
    struct btrfs_ioctl_vol_args_v2 by_id = {.flags = BTRFS_SUBVOL_SPEC_BY_ID, .subvolid = 256};
    try("delete by id", ioctl(directory, BTRFS_IOC_SNAP_DESTROY_V2, &by_id));
    char bcachefs[32] = {0};
    try("bcachefs", ioctl(directory, _IOC(_IOC_WRITE, 0xbc, 16, sizeof bcachefs), bcachefs));
    int file = open("clone", O_RDWR | O_CREAT, 0600);
    try("clone", ioctl(file, FICLONE, -1) < 0 && errno == EPERM ? -1 : 0);
    return 0;
}
