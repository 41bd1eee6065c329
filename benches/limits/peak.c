/* Runs a program and writes its own peak of memory, in KiB, to a file: FILE PROGRAM ARGUMENTS...
 *
 * Not that of its children, which getrusage(2) and wait4(2) would count in. The program is traced
 * for that, and stands still for a moment as it exits; its children are not traced. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(int good, const char *act) {
    if (good) return;
    fprintf(stderr, "%s: %s\n", act, strerror(errno));
    exit(1);
}

static void tell(pid_t child, const char *file) {
    char name[64], line[256];
    long peak = -1;
    snprintf(name, sizeof name, "/proc/%d/status", child);
    FILE *status = fopen(name, "r");
    must(status != NULL, name);
    while (fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %ld kB", &peak);
    fclose(status);
    FILE *told = fopen(file, "w");
    must(told != NULL && 0 < fprintf(told, "%ld\n", peak) && !fclose(told), file);
}

int main(int argc, char **words) {
    must(3 <= argc, "FILE PROGRAM ARGUMENTS...");
    pid_t child = fork();
    must(0 <= child, "fork");
    if (child == 0) {
        must(!ptrace(PTRACE_TRACEME, 0, 0, 0), "traceme");
        execvp(words[2], words + 2);
        must(0, words[2]);
    }
    int status;
    must(waitpid(child, &status, 0) == child && WIFSTOPPED(status), "exec");
    must(!ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL), "options");
    ptrace(PTRACE_CONT, child, 0, 0);
    for (;;) {
        must(waitpid(child, &status, 0) == child, "wait");
        if (!WIFSTOPPED(status)) break;
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8)) {
            tell(child, words[1]);
            ptrace(PTRACE_CONT, child, 0, 0);
            continue;
        }
        /* its own signals reach it */
        ptrace(PTRACE_CONT, child, 0, WSTOPSIG(status));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
