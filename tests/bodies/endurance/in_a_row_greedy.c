#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 128; i++) {
        char *p = malloc(1 << 20);
        if (!p) return 9;
        memset(p, 1, 1 << 20);
    }
    return 8;
}
