#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    static char block[1 << 20];
    memset(block, 1, sizeof block);
    signal(SIGXFSZ, SIG_IGN);
    int file = memfd_create("x", 0);
    for (int i = 0; i < 256; i++)
        if (write(file, block, sizeof block) < 0) { printf("%d\n", errno == EFBIG); return 0; }
    return 1;
}
