#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    if (fork() == 0) for (;;) {
        char *more = malloc(1 << 20);
        if (!more) _exit(9);
        memset(more, 1, 1 << 20); __asm__ volatile("" :: "r"(more) : "memory");
    }
    int status; wait(&status);
    printf("%d\n", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return 5;
}
