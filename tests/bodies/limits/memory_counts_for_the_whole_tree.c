#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 6; i++) if (fork() == 0) {
        char *part = malloc(20 << 20);
        if (part) { memset(part, 1, 20 << 20); __asm__ volatile("" :: "r"(part) : "memory"); }
        for (;;) pause();
    }
    wait(0);
    return 0;
}
