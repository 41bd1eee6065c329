#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    char name[64]; long made = 0;
    for (long i = 0; i < 1000000; i++) {
        sprintf(name, "/tmp/%ld", i);
        int file = open(name, O_CREAT | O_WRONLY, 0600);
        if (file >= 0) { close(file); made++; }
    }
    printf("%d\n", made <= 65536);
    return 0;
}
