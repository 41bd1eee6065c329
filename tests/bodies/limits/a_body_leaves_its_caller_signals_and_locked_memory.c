#include <signal.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <unistd.h>
/* With an argument it takes one of each, else as many as it gets. */
int main(int count, char **arguments) {
    (void)arguments;
    const long most = count > 1 ? 1 : 100000;
    long signals = 0, locked = 0;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    union sigval value = {0};
    while (signals < most && sigqueue(getpid(), SIGRTMIN, value) == 0) signals++;
    for (; locked < most; locked++) {
        int segment = shmget(IPC_PRIVATE, 64 << 10, IPC_CREAT | 0600);
        int held = segment >= 0 && shmctl(segment, SHM_LOCK, 0) == 0;
        if (most == 1) shmctl(segment, IPC_RMID, 0);
        if (!held) break;
    }
    printf("%ld %ld\n", signals, locked);
    fflush(stdout);
    char go;
    return most > 1 && read(0, &go, 1) < 0;
}
