#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
enum { MOST = 100000 };
int main(void) {
    long timers = 0, signals = 0, polls = 0, instances = 0, watches = 0;
    long segments = 0, semaphores = 0, queues = 0, keys = 0;
    sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, 0);
    timer_t timer; struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
    union sigval value = { 0 };
    while (signals < MOST && sigqueue(getpid(), SIGRTMIN + 1, value) == 0) signals++;
    // Taken from the queue: timers are counted together with them.
    for (long n = 0; n < signals; n++) sigwaitinfo(&all, 0);
    while (timers < MOST && timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) timers++;
    while (polls < MOST && epoll_create1(0) >= 0) polls++;
    close_range(3, ~0U, 0);
    while (instances < MOST && inotify_init() >= 0) instances++;
    close_range(4, ~0U, 0);
    // Two watches of one directory are one, so each has a directory of its own.
    char name[32];
    for (; watches < MOST; watches++) {
        sprintf(name, "/tmp/%ld", watches);
        if (mkdir(name, 0700) < 0 || inotify_add_watch(3, name, IN_CREATE) < 0) break;
    }
    while (segments < MOST && shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600) >= 0) segments++;
    while (semaphores < MOST && semget(IPC_PRIVATE, 1, IPC_CREAT | 0600) >= 0) semaphores++;
    while (queues < MOST && msgget(IPC_PRIVATE, IPC_CREAT | 0600) >= 0) queues++;
    while (keys < MOST && syscall(SYS_add_key, "user", "k", "v", 1, -2) >= 0) keys++;
    printf("%ld %ld %ld %ld %ld %ld %ld %ld %ld\n", timers, signals, polls, instances,
        watches, segments, semaphores, queues, keys);
    return 0;
}
