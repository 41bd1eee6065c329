#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    signal(SIGXFSZ, SIG_IGN);
    int file = open("/scratch/hole", O_CREAT | O_RDWR, 0600);
    int huge = ftruncate(file, 1L << 60) < 0 && errno == EFBIG;
    int large = ftruncate(file, 1L << 30) < 0 && errno == EFBIG;
    int reserved = fallocate(file, 0, 0, 1L << 40) < 0;
    int far = pwrite(file, "x", 1, 1L << 40) < 0;
    int fits = ftruncate(file, 1 << 20) == 0 && fallocate(file, 0, 0, 1 << 20) == 0
        && fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 19) == 0;
    printf("%d %d %d %d %d\n", huge, large, reserved, far, fits);
    return 0;
}
