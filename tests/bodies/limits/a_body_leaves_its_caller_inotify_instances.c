#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>
int main(void) {
    int count = 0;
    while (count < 1000 && inotify_init() >= 0) count++;
    printf("%d\n", count);
    fflush(stdout);
    char go;
    return read(0, &go, 1) < 0;
}
