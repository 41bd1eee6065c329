#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    char *memory = malloc(40 << 20); memset(memory, 1, 40 << 20);
    __asm__ volatile("" :: "r"(memory) : "memory"); usleep(3000000);
    return memory[7] == 1 ? 0 : 1; }
