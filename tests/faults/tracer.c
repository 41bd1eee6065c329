/* Runs a program and counts the system calls of each of its processes; at one of them it makes the
 * kernel answer with an error of our choice, without doing it, or kills the process instead.
 *
 *   tracer LOG ROLE CALL NTH ACT PROGRAM ARGUMENTS…
 *
 * ROLE is 0 for the program itself, 1 for its first child, 2 for its first grandchild; others have
 * numbers from 3 on, in the order of their making. CALL is a number, NTH counts this role's calls of this number from 1. ACT is
 * an errno, or `kill`. A ROLE of -1 changes nothing.
 *
 * LOG gets lines: `call ROLE CALL NTH RESULT DETAIL` when nothing is to be changed, `hit ROLE` when
 * something was, `body FACTS` when process 2 executes its program: from there on it is let alone. Ends as the program ends, once every process has ended; 98 where that is never. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES_MAX = 64, CALLS_MAX = 600, HANG_AFTER_S = 20, PROGRAM = 0, INIT = 1, BODY = 2, UNKNOWN = -1 };

struct process {
    pid_t pid;
    int role, known, held, inside, alone, injected;
    long call;
    char detail[200];
};

static struct process processes[PROCESSES_MAX];
static int count, hang;
static int seen[PROCESSES_MAX][CALLS_MAX];
static FILE *log_file;

static struct process *find(pid_t pid) {
    for (int i = 0; i < count; i++)
        if (processes[i].pid == pid) return &processes[i];
    if (count == PROCESSES_MAX) exit(97);
    struct process *made = &processes[count];
    made->pid = pid;
    made->role = UNKNOWN;
    count++;
    return made;
}

static int has(int role) {
    for (int i = 0; i < count; i++)
        if (processes[i].role == role) return 1;
    return 0;
}

/* The role of a child of a process with `role`. An init that was given up for another one has no
 * children, so the first grandchild is the body. */
static int role_below(int role) {
    static int others = BODY;
    int role_of_first = role == PROGRAM ? INIT : BODY;
    return has(role_of_first) ? ++others : role_of_first;
}

static void on_alarm(int number) {
    (void)number;
    hang = 1;
    for (int i = 0; i < count; i++)
        if (processes[i].pid) kill(processes[i].pid, SIGKILL);
}

/* The text at an address of another process, its odd bytes as dots. */
static void text_of(pid_t pid, unsigned long address, char *text, size_t size) {
    size_t first = 4096 - address % 4096, length = size - 1;
    if (length < first) first = length;
    memset(text, 0, size);
    struct iovec here = {text, length};
    struct iovec there[2] = {{(void *)address, first}, {(void *)(address + first), length - first}};
    /* What lies on the second page may not be there. */
    process_vm_readv(pid, &here, 1, there, 2, 0);
    for (char *byte = text; *byte; byte++)
        if (*byte <= ' ' || 126 < *byte) *byte = '.';
}

/* What a call is about, as far as it tells one place of the program from another. */
static void describe(struct process *process, struct user_regs_struct *regs) {
    char *detail = process->detail;
    size_t size = sizeof process->detail;
    detail[0] = '-', detail[1] = 0;
    switch (process->call) {
    case SYS_open: case SYS_readlink: case SYS_chdir: case SYS_statfs: case SYS_execve:
    case SYS_stat: case SYS_access:
        return text_of(process->pid, regs->rdi, detail, size);
    case SYS_openat: case SYS_openat2: case SYS_mkdirat: case SYS_unlinkat: case SYS_newfstatat:
    case SYS_statx: case SYS_readlinkat: case SYS_mknodat: case SYS_mount_setattr:
    case SYS_faccessat2: case SYS_mount: case SYS_renameat: case SYS_renameat2: case SYS_execveat:
        return text_of(process->pid, regs->rsi, detail, size);
    case SYS_symlinkat:
        return text_of(process->pid, regs->rdx, detail, size);
    case SYS_write: {
        char start[32];
        text_of(process->pid, regs->rsi, start, sizeof start);
        snprintf(detail, size, "fd=%lld,%s", regs->rdi, start);
        return;
    }
    case SYS_prctl:
        snprintf(detail, size, "option=%lld", regs->rdi);
        return;
    case SYS_fcntl: case SYS_ioctl:
        snprintf(detail, size, "%#llx", regs->rsi);
        return;
    case SYS_prlimit64:
        snprintf(detail, size, "resource=%lld", regs->rsi);
        return;
    case SYS_getrandom:
        snprintf(detail, size, "flags=%lld", regs->rdx);
        return;
    case SYS_fsconfig:
        return text_of(process->pid, regs->rdx, detail, size);
    default:
        return;
    }
}

static void dump(pid_t pid, const char *name) {
    char path[64], line[4096];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(log_file, "body %s cannot be read: %d\n", name, errno);
        return;
    }
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        fprintf(log_file, "body %s %s\n", name, line);
    }
    fclose(file);
}

/* What the kernel holds the body to, as the host sees it, the moment after its exec. */
static void dump_body(pid_t pid) {
    static const char *const spaces[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"};
    dump(pid, "status");
    dump(pid, "limits");
    dump(pid, "cgroup");
    dump(pid, "mountinfo");
    dump(pid, "oom_score_adj");
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        char path[64], its[64] = "", ours[64] = "";
        snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, spaces[i]);
        if (readlink(path, its, sizeof its - 1) < 0) its[0] = '?';
        snprintf(path, sizeof path, "/proc/self/ns/%s", spaces[i]);
        if (readlink(path, ours, sizeof ours - 1) < 0) ours[0] = '!';
        fprintf(log_file, "body namespace %s %s\n", spaces[i], strcmp(its, ours) ? "own" : "host's");
    }
}

int main(int argc, char **argv) {
    if (argc < 7) return 96;
    log_file = fopen(argv[1], "we");
    if (!log_file) return 95;
    int wanted_role = atoi(argv[2]), wanted_nth = atoi(argv[4]);
    long wanted_call = atol(argv[3]);
    int ending = !strcmp(argv[5], "end"), killing = ending || !strcmp(argv[5], "kill"), error = atoi(argv[5]);
    int recording = wanted_role < 0, status, result = 94;

    pid_t first = fork();
    if (first == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        execv(argv[6], argv + 6);
        _exit(93);
    }
    find(first)->role = PROGRAM;
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, 0);
    alarm(HANG_AFTER_S);
    for (;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0) {
            if (errno == EINTR) continue;
            break;
        }
        struct process *process = find(pid);
        if (!WIFSTOPPED(status)) {
            process->pid = 0;
            if (pid == first) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16, deliver = 0;
        if (!process->known && signal == SIGSTOP) {
            process->known = 1;
            if (pid != first && process->role == UNKNOWN) {
                /* Until its parent has said so it is nobody's. */
                process->held = 1;
                continue;
            }
            if (pid == first)
                ptrace(PTRACE_SETOPTIONS, pid, 0,
                       PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                           PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC);
        } else if (event == PTRACE_EVENT_EXEC) {
            if (process->role == BODY) {
                dump_body(pid);
                process->alone = 1;
            }
        } else if (event) {
            unsigned long made = 0;
            if (ptrace(PTRACE_GETEVENTMSG, pid, 0, &made) == 0 && made) {
                int role = role_below(process->role);
                struct process *child = find((pid_t)made);
                child->role = role;
                if (child->held) ptrace(PTRACE_SYSCALL, child->pid, 0, 0);
                child->held = 0;
            }
        } else if (signal == (SIGTRAP | 0x80)) {
            struct user_regs_struct regs;
            struct iovec all = {&regs, sizeof regs};
            if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &all) == 0) {
                if (!process->inside) {
                    process->call = (long)regs.orig_rax;
                    int call = process->call < 0 || CALLS_MAX <= process->call ? 0 : (int)process->call;
                    int nth = ++seen[process->role][call];
                    if (recording) describe(process, &regs);
                    if (process->role == wanted_role && process->call == wanted_call && nth == wanted_nth) {
                        fprintf(log_file, "hit %d\n", process->role);
                        if (killing) {
                            if (ending) kill(first, SIGTERM);
                            kill(pid, SIGKILL);
                        } else {
                            regs.orig_rax = (unsigned long long)-1;
                            ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &all);
                            process->injected = 1;
                        }
                    }
                } else if (process->injected) {
                    regs.rax = (unsigned long long)-error;
                    ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &all);
                    process->injected = 0;
                } else if (recording) {
                    int call = process->call < 0 || CALLS_MAX <= process->call ? 0 : (int)process->call;
                    fprintf(log_file, "call %d %ld %d %lld %s\n", process->role, process->call,
                            seen[process->role][call], (long long)regs.rax, process->detail);
                }
                process->inside = !process->inside;
            }
        } else {
            deliver = signal;
        }
        ptrace(process->alone ? PTRACE_CONT : PTRACE_SYSCALL, pid, 0, deliver);
    }
    fclose(log_file);
    return hang ? 98 : result;
}
