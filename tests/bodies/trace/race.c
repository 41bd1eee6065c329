/* Makes refused calls, in between calls that are looked at, while a thread changes the path of both. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static char path[64] = "/usr/bin/true";
static volatile int ended;

static void *change(void *nothing) {
    while (!ended) {
        memcpy(path, "/no/such/place", 15);
        memset(path, 'x', 20);
        memcpy(path, "/usr/bin/true", 14);
    }
    return nothing;
}

static void refused(const char *name, long result, int expected) {
    if (result >= 0 || errno != expected) {
        printf("%s: %ld, %s\n", name, result, strerrorname_np(errno));
        exit(1);
    }
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, change, NULL);
    for (int round = 0; round < 2000; round++) {
        int file = open(path, O_RDONLY);
        if (file >= 0) close(file);
        refused("chroot", chroot(path), EPERM);
        access(path, F_OK);
        refused("mount", mount(path, path, NULL, MS_BIND, NULL), EPERM);
        refused("pivot_root", syscall(SYS_pivot_root, path, path), EPERM);
        refused("ptrace", ptrace(PTRACE_TRACEME, 0, 0, 0), EPERM);
        refused("unshare", unshare(CLONE_NEWUSER), EPERM);
        refused("setns", setns(0, 0), EPERM);
        refused("socket", socket(AF_PACKET, SOCK_RAW, 0), EAFNOSUPPORT);
    }
    ended = 1;
    pthread_join(thread, NULL);
    return 0;
}
