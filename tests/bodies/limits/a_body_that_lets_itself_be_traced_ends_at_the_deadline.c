#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <unistd.h>
int main(void) {
    if (fork() == 0) { long ok = ptrace(PTRACE_TRACEME, 0, 0, 0); raise(SIGSTOP); _exit(ok != 0); }
    for (;;) pause();
}
