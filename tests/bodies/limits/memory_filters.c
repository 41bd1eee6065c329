#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static struct sock_filter rules[245];
static int install(void) {
    struct sock_fprog program = {245, rules};
    int count = 0;
    while (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0) count++;
    return count;
}
int main(int count, char **words) {
    for (int at = 0; at < 244; at++) {
        struct sock_filter load = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
        struct sock_filter look = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 4000 + at, 0, 0);
        rules[at] = at % 2 ? look : load;
    }
    rules[244] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    if (count == 1) {
        int installed = install();
        printf("%d %s\n", installed, strerrorname_np(errno));
        return 0;
    }
    /* One after the other; each stays, and so do its filters. */
    for (char told;;) {
        int ends[2];
        if (pipe(ends)) return 1;
        int child = fork();
        if (child < 0) return 2;
        if (child == 0) { install(); write(ends[1], "x", 1); for (;;) pause(); }
        close(ends[1]);
        if (read(ends[0], &told, 1) != 1) return 3;
        close(ends[0]);
    }
}
