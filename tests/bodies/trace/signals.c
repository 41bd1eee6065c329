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
    /* A stopped process is signalled as any other. */
    pid_t child = fork();
    if (child == 0) for (;;) pause();
    return child < 0 || kill(child, SIGKILL);
}
