/* Runs a program whose clocks it holds in its hand: `clock FILE jump PROGRAM…` lets the wall clock be
 * a day ahead or a day behind, by turns, at each look; `clock FILE fail N PROGRAM…` lets the N-th
 * look at the monotonic clock fail. How many looks there were goes into FILE.
 *
 * The program is traced. Its vDSO is hidden from it, so that each look is a system call. Children of
 * the program are not traced. */
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DAY_S 86400L

static void registers(pid_t child, struct user_regs_struct *all, int request) {
    struct iovec whole = { all, sizeof *all };
    if (ptrace(request, child, NT_PRSTATUS, &whole)) exit(91);
}

static long *stack_pointer(struct user_regs_struct *all) {
#if defined(__x86_64__)
    return (long *)all->rsp;
#else
    return (long *)all->sp;
#endif
}

static void hide_the_vdso(pid_t child) {
    struct user_regs_struct all;
    registers(child, &all, PTRACE_GETREGSET);
    long *at = stack_pointer(&all);
    /* The number of arguments, the arguments, nothing, the environment, nothing, pairs. */
    for (int nothing = 0, first = 1; nothing < 2; at++, first = 0)
        if (!first && ptrace(PTRACE_PEEKDATA, child, at, 0) == 0) nothing++;
    for (long kind; (kind = ptrace(PTRACE_PEEKDATA, child, at, 0)) != AT_NULL; at += 2)
        if (kind == AT_SYSINFO_EHDR && ptrace(PTRACE_POKEDATA, child, at, AT_IGNORE)) exit(92);
}

static void let_it_fail(pid_t child) {
    struct user_regs_struct all;
    registers(child, &all, PTRACE_GETREGSET);
#if defined(__x86_64__)
    all.rax = -EINVAL;
#else
    all.regs[0] = -EINVAL;
#endif
    registers(child, &all, PTRACE_SETREGSET);
}

static void jump(pid_t child, long *seconds, long looks) {
    long now = ptrace(PTRACE_PEEKDATA, child, seconds, 0);
    if (ptrace(PTRACE_POKEDATA, child, seconds, now + (looks % 2 ? DAY_S : -DAY_S))) exit(93);
}

int main(int argc, char **argv) {
    (void)argc;
    int jumps = strcmp(argv[2], "jump") == 0;
    long wanted = jumps ? 0 : atol(argv[3]), looks = 0;
    char **program = argv + (jumps ? 3 : 4);
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execv(program[0], program);
        _exit(94);
    }
    int status, started = 0;
    struct __ptrace_syscall_info entered, now;
    memset(&entered, 0, sizeof entered);
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        int signal = WSTOPSIG(status);
        if (!started) {
            started = 1;
            ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
            hide_the_vdso(child);
            signal = 0;
        } else if (signal == (SIGTRAP | 0x80)) {
            signal = 0;
            ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof now, &now);
            if (now.op == PTRACE_SYSCALL_INFO_ENTRY) {
                entered = now;
            } else if (entered.entry.nr == SYS_clock_gettime) {
                long *seconds = (long *)entered.entry.args[1];
                if (jumps && entered.entry.args[0] == CLOCK_REALTIME) jump(child, seconds, ++looks);
                if (!jumps && entered.entry.args[0] == CLOCK_MONOTONIC && ++looks == wanted) let_it_fail(child);
            }
        }
        ptrace(PTRACE_SYSCALL, child, 0, signal);
    }
    FILE *file = fopen(argv[1], "w");
    if (!file || fprintf(file, "%ld\n", looks) < 0 || fclose(file)) return 95;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
