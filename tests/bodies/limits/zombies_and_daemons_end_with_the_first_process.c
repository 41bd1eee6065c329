#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, 0);
    for (int i = 0; i < 150; i++) if (fork() == 0) _exit(0);
    for (int i = 0; i < 20; i++) if (fork() == 0) {
        setsid();
        if (fork()) _exit(0);
        chdir("/scratch");
        for (;;) pause();
    }
    usleep(100000);
    puts("done");
    return 7;
}
