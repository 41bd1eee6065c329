#include <sys/stat.h>
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
int main(int count, char **words) {
    chdir(words[1]);
    umask(0);
    int file = open("plain", O_CREAT | O_RDWR, 0755);
    try("chmod 4755", chmod("plain", 04755));
    try("chmod 2755", chmod("plain", 02755));
    try("fchmod 4755", fchmod(file, 04755));
    try("fchmodat 4755", fchmodat(AT_FDCWD, "plain", 04755, 0));
    try("fchmodat2 4755", syscall(SYS_fchmodat2, AT_FDCWD, "plain", 04755, 0));
    try("open", open("opened", O_CREAT | O_WRONLY, 04755));
    try("openat", openat(AT_FDCWD, "opened", O_CREAT | O_WRONLY, 02755));
    try("O_TMPFILE", open(".", O_TMPFILE | O_WRONLY, 06755));
    try("creat", creat("created", 04755));
    try("mknod", mknod("made", S_IFREG | 04755, 0));
    try("openat2", syscall(SYS_openat2, AT_FDCWD, "opened", 0, 0));
    try("chmod 1777", chmod("plain", 01777));
    int plain = open("plain", O_RDONLY, 04755);
    try("open without creating", plain < 0 ? -1 : 0);
    return 0;
}
