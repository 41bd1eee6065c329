#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    for (;;) {
        char *more = malloc(1 << 20);
        if (!more) { puts("refused"); return 3; }
        memset(more, 1, 1 << 20); __asm__ volatile("" :: "r"(more) : "memory");
    }
}
