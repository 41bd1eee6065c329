#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static char text[4000000];
int main(int count, char **words) {
    int ready[2];
    char sign;
    if (pipe(ready)) return 2;
    if (fork() == 0) {
        setsid();
        for (int n = 1; n < 65; n++) signal(n, SIG_IGN);
        if (fork()) _exit(0);
        close(0); close(1); close(2);
        memset(text, 'a', sizeof text);
        int file = open("/scratch/file", O_WRONLY | O_CREAT, 0644);
        if (write(file, text, sizeof text) != sizeof text) _exit(3);
        close(file);
        if (symlink(words[1], "/scratch/link")) _exit(3);
        for (long round = 0;; round++) {
            rename("/scratch/file", "/scratch/out");
            rename("/scratch/out", "/scratch/file");
            rename("/scratch/link", "/scratch/out");
            rename("/scratch/out", "/scratch/link");
            if (round == 100 && write(ready[1], "x", 1) != 1) _exit(3);
        }
    }
    return read(ready[0], &sign, 1) == 1 ? 0 : 4;
}
