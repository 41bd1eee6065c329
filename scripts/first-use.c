// first-use SYMBOLS ORDER -- COMMAND...
//
// Runs COMMAND one instruction at a time and writes to ORDER (appended to) the name of each function
// of it in the order of their first execution, those of its children included, up to the programs
// that they execute. SYMBOLS has the lines `ADDRESS NAME` in the order of addresses, as nm(1) prints
// them with -n. The program must lie at fixed addresses.
//
// Exits with COMMAND's own code, or with 126 and a message where something cannot be done.

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

struct function {
    unsigned long start;
    char *name;
    int seen;
};

static struct function *functions;
static size_t count;

static void fail(const char *act) {
    fprintf(stderr, "first-use: %s: %s\n", act, strerror(errno));
    exit(126);
}

static void read_symbols(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) fail(path);
    size_t room = 0;
    unsigned long start;
    char *name = NULL;
    while (fscanf(file, "%lx %ms", &start, &name) == 2) {
        if (count == room) {
            room = room ? 2 * room : 4096;
            functions = realloc(functions, room * sizeof *functions);
            if (!functions) fail("realloc");
        }
        functions[count++] = (struct function){start, name, 0};
    }
    if (!count) fail("no symbols");
    fclose(file);
}

// The function that holds `address`: the last one that starts no later.
static struct function *at(unsigned long address) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (functions[middle].start <= address) low = middle + 1;
        else high = middle;
    }
    // Behind the last one may lie anything, the vdso for one.
    return low == 0 || low == count ? NULL : &functions[low - 1];
}

// Each instruction is two changes of process, which are cheaper where both share a processor.
static void share_a_processor(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) < 0) fail("sched_setaffinity");
}

static void step(pid_t process, int signal) {
    // ESRCH: it was killed meanwhile, which the next wait tells.
    if (ptrace(PTRACE_SINGLESTEP, process, 0, signal) < 0 && errno != ESRCH) fail("step");
}

int main(int words, char **word) {
    if (words < 5 || strcmp(word[3], "--") != 0) {
        fprintf(stderr, "usage: first-use SYMBOLS ORDER -- COMMAND...\n");
        return 126;
    }
    read_symbols(word[1]);
    FILE *order = fopen(word[2], "a");
    if (!order) fail(word[2]);
    share_a_processor();
    pid_t first = fork();
    if (first < 0) fail("fork");
    if (first == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        execvp(word[4], word + 4);
        _exit(127);
    }
    int status, started = 0, code = 126;
    if (waitpid(first, &status, 0) < 0) fail("wait");
    long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                   PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, first, 0, options) < 0) fail("trace");
    if (ptrace(PTRACE_CONT, first, 0, 0) < 0) fail("continue");
    pid_t process;
    while ((process = waitpid(-1, &status, __WALL)) > 0) {
        if (!WIFSTOPPED(status)) {
            if (process == first) {
                code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
                break;
            }
            continue;
        }
        int event = status >> 16, signal = WSTOPSIG(status);
        if (event == PTRACE_EVENT_EXEC && (process != first || started++)) {
            ptrace(PTRACE_DETACH, process, 0, 0);
        } else if (event || signal == SIGSTOP) {
            step(process, 0);
        } else if (signal == SIGTRAP) {
            errno = 0;
            size_t place = offsetof(struct user_regs_struct, rip);
            unsigned long address = ptrace(PTRACE_PEEKUSER, process, place, 0);
            struct function *function = errno ? NULL : at(address);
            if (function && !function->seen) {
                function->seen = 1;
                fprintf(order, "%s\n", function->name);
            }
            step(process, 0);
        } else {
            step(process, signal);
        }
    }
    if (fclose(order)) fail(word[2]);
    return code;
}
