#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    (void)argc;
    alarm(60);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int patience_us = atoi(argv[1]), status = 0;
    pid_t child = fork();
    if (child == 0) {
        execv(argv[2], argv + 2);
        _exit(71);
    }
    if (0 <= patience_us) {
        usleep(patience_us);
        kill(child, SIGKILL);
    }
    waitpid(child, &status, 0);
    int orphans = 0;
    while (0 < waitpid(-1, 0, 0)) orphans++;
    if (0 <= patience_us) return 0;
    return orphans ? 70 : WIFEXITED(status) ? WEXITSTATUS(status) : 72;
}
