/* Four processes that use 200 MiB each, and wait. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    const size_t step = 4 << 20;
    fork();
    fork();
    for (size_t used = 0; used < 200u << 20; used += step) {
        char *part = malloc(step);
        if (!part) return 3;
        memset(part, 1, step);
        usleep(20000);
    }
    for (;;) pause();
}
