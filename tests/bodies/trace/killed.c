/* Kills processes while their calls are looked at, and then tries a file itself. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 2) abort();
    for (int round = 0; round < 300; round++) {
        pid_t child = fork();
        if (child < 0) abort();
        if (child == 0) {
            for (;;) open("/no/such/file", O_RDONLY);
        }
        usleep(round * 7 % 1000);
        if (kill(child, SIGKILL) != 0 || waitpid(child, NULL, 0) != child) abort();
    }
    return open(words[1], O_RDONLY) >= 0;
}
