#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    static char block[1 << 16]; long held = 0;
    for (int i = 0; i < 64; i++) {
        int file = open("/tmp/x", O_CREAT | O_EXCL | O_RDWR, 0600);
        if (file < 0) break;
        unlink("/tmp/x");
        for (int n = 0; n < 16; n++) { long count = write(file, block, sizeof block); if (count > 0) held += count; }
    }
    printf("%d %d\n", held <= 8 << 20, errno == ENOSPC);
    return 0;
}
