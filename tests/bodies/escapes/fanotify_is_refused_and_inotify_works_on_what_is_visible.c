#include <sys/fanotify.h>
#include <sys/inotify.h>
int main(void) {
    try("fanotify", syscall(SYS_fanotify_init, FAN_CLASS_NOTIF, O_RDONLY));
    try("unprivileged", syscall(SYS_fanotify_init, 0x200, O_RDONLY));
    try("mark", syscall(SYS_fanotify_mark, 0, 1, 2, -1, "/"));
    int fd = inotify_init1(0);
    try("watch", inotify_add_watch(fd, "/tmp", IN_CREATE));
    try("host", inotify_add_watch(fd, "/root", IN_CREATE));
    return 0;
}
