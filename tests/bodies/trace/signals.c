/* Signals to process 1, each refused, and others that are no denials. words[1] is a process of the host. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void expect(long result, int expected) {
    if (result != -1 || errno != expected) abort();
}

static long queued(int number, int code) {
    siginfo_t info = {.si_signo = number, .si_code = code};
    return syscall(SYS_rt_sigqueueinfo, 1, number, &info);
}

static long by_pidfd(int process, int number, siginfo_t *info, unsigned flags) {
    return syscall(SYS_pidfd_send_signal, process, number, info, flags);
}

/* Each refused, by calls of which memory or a descriptor says what they do, and others that are no denials. */
static void inferred(void) {
    pid_t own = getpid();
    int init = syscall(SYS_pidfd_open, 1, 0), self = syscall(SYS_pidfd_open, own, 0);
    if (init < 0 || self < 0) abort();
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE};
    expect(queued(SIGUSR1, SI_QUEUE), EPERM);
    expect(syscall(SYS_rt_tgsigqueueinfo, 1, 1, SIGUSR1, &info), EPERM);
    expect(by_pidfd(init, SIGUSR2, NULL, 0), EPERM);
    expect(by_pidfd(init, SIGUSR2, NULL, 1), EPERM);
    expect(by_pidfd(init, SIGUSR2, NULL, 2), EPERM);
    expect(by_pidfd(init, SIGUSR1, &info, 0), EPERM);

    /* The kernel refuses these codes whoever gets the signal. */
    expect(queued(SIGALRM, SI_USER), EPERM);
    expect(queued(SIGALRM, SI_TKILL), EPERM);
    expect(queued(65, SI_QUEUE), EINVAL);
    expect(syscall(SYS_rt_sigqueueinfo, 1, SIGALRM, NULL), EFAULT);
    expect(syscall(SYS_rt_tgsigqueueinfo, own, 1, SIGALRM, &info), ESRCH);
    expect(by_pidfd(init, SIGALRM, &info, 0), EINVAL);
    expect(by_pidfd(init, SIGALRM, (siginfo_t *)8, 0), EFAULT);
    expect(by_pidfd(init, SIGALRM, NULL, 3), EINVAL);
    expect(by_pidfd(init, 65, NULL, 0), EINVAL);
    expect(by_pidfd(-1, SIGALRM, NULL, 0), EBADF);
    expect(by_pidfd(0, SIGALRM, NULL, 0), EBADF);
    if (by_pidfd(self, 0, NULL, 0)) abort();
    info.si_signo = 0;
    if (by_pidfd(self, 0, &info, 0)) abort();
    /* It depends on the group of process 1. */
    by_pidfd(init, 0, NULL, 4);
}

int main(int count, char **words) {
    if (count != 2 || getppid() != 1 || getpid() != 2) abort();
    pid_t host = atoi(words[1]), own = getpid();
    expect(kill(1, SIGTERM), EPERM);
    expect(syscall(SYS_kill, (int64_t)0x700000001, SIGTERM), EPERM);
    expect(kill(1, 0), EPERM);
    expect(syscall(SYS_tkill, 1, SIGHUP), EPERM);
    expect(syscall(SYS_tgkill, 1, 1, SIGHUP), EPERM);
    expect(kill(1, 64), EPERM);

    expect(kill(1, 65), EINVAL);
    expect(kill(1, -1), EINVAL);
    expect(syscall(SYS_tgkill, own, 1, SIGKILL), ESRCH);
    expect(syscall(SYS_tgkill, 1, own, SIGKILL), ESRCH);
    expect(syscall(SYS_tgkill, 0, 1, SIGKILL), EINVAL);
    expect(kill(host, SIGKILL), ESRCH);
    expect(kill(-host, SIGKILL), ESRCH);
    expect(kill(-1, SIGCONT), ESRCH);
    if (kill(own, 0) || kill(0, 0)) abort();
    inferred();
    /* A stopped process is signalled as any other. */
    pid_t child = fork();
    if (child == 0) for (;;) pause();
    return child < 0 || kill(child, SIGKILL);
}
