// A body that has exited before its child is gone, whose memory takes the kernel some time to free.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 150 << 20 };

int main(void) {
    int held[2];
    if (pipe(held)) return 1;
    if (fork() == 0) {
        char *memory = malloc(BYTES);
        if (memory == NULL) return 1;
        memset(memory, 1, BYTES);
        if (write(held[1], memory, 1) != 1) return 1;
        pause();
    }
    char byte;
    return read(held[0], &byte, 1) != 1;
}
