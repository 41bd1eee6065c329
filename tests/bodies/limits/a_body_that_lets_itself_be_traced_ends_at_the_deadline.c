#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <unistd.h>
int main(void) {
    if (fork() == 0) {
        puts(ptrace(PTRACE_TRACEME, 0, 0, 0) ? strerrorname_np(errno) : "traced");
        fflush(stdout);
        raise(SIGSTOP);
        puts("continued");
        _exit(0);
    }
    for (;;) pause();
}
