// Makes each call with arguments that no call accepts, and prints a line for each: its name, and `ok` or the
// errno. A number that the kernel takes has no effect with them.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL(name) {#name, SYS_##name}

static const struct {
    const char *name;
    long number;
} CALLS[] = {
    CALL(acct), CALL(add_key), CALL(adjtimex), CALL(bpf), CALL(close), CALL(copy_file_range),
    CALL(delete_module), CALL(dup), CALL(epoll_ctl), CALL(fanotify_init), CALL(fchmod), CALL(fchown),
    CALL(finit_module), CALL(flock), CALL(fstatfs), CALL(fsync), CALL(ftruncate), CALL(getcpu),
    CALL(getdents64), CALL(getpid), CALL(getuid), CALL(init_module), CALL(io_setup), CALL(io_uring_setup),
    CALL(kcmp), CALL(kexec_load), CALL(keyctl), CALL(lseek), CALL(mount), CALL(move_mount), CALL(mq_unlink),
    CALL(name_to_handle_at), CALL(open_by_handle_at), CALL(openat), CALL(perf_event_open),
    CALL(pivot_root), CALL(process_vm_readv), CALL(ptrace), CALL(quotactl), CALL(read), CALL(readlinkat),
    CALL(reboot), CALL(request_key), CALL(sched_getaffinity), CALL(sendfile), CALL(setdomainname),
    CALL(sethostname), CALL(setns), CALL(settimeofday), CALL(splice), CALL(swapoff), CALL(swapon),
    CALL(syslog), CALL(tee), CALL(umount2), CALL(userfaultfd), CALL(vhangup), CALL(vmsplice), CALL(write),
};

int main(void) {
    for (unsigned at = 0; at < sizeof CALLS / sizeof *CALLS; at++) {
        long result = syscall(CALLS[at].number, -1L, -1L, -1L, -1L, -1L, -1L);
        printf("%s %s\n", CALLS[at].name, result == -1 ? strerrorname_np(errno) : "ok");
        fflush(stdout);
    }
    return 0;
}
