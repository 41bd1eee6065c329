#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(void) {
    for (int i = 1; i < 65; i++) signal(i, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int i = 0; i < 8; i++) if (fork() == 0) {
        setsid();
        if (fork() == 0) { prctl(PR_SET_PDEATHSIG, 0); raise(SIGSTOP); for (;;) fork(); }
        if (i % 2) _exit(0);
        for (;;) pause();
    }
    for (;;) pause();
}
