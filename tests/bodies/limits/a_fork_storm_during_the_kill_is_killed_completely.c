#include <signal.h>
#include <unistd.h>
int main(void) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < 12; i++) if (fork() == 0) {
        setsid();
        for (;;) { int next = fork(); if (next > 0) _exit(0); }
    }
    for (;;) pause();
}
