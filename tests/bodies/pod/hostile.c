/* What a body in a pod must not reach. Prints each attempt that succeeds, and the number of attempts. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int attempts;
#define REFUSED(attempt)                                          \
    do {                                                          \
        attempts++;                                               \
        if ((long)(attempt) != -1) printf("possible: %s\n", #attempt); \
    } while (0)

static int reach(const char *address, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &to.sin_addr);
    return connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&to, sizeof to);
}

int main(void) {
    /* The volumes and directories of the pod. */
    REFUSED(open("/work", O_RDONLY));
    REFUSED(open("/work/report.json", O_RDWR));
    REFUSED(open("/dev/shm/runner", O_RDONLY));
    REFUSED(open("/var/lib/runner", O_RDONLY));
    REFUSED(open("/etc/runner/seed", O_RDONLY));
    REFUSED(open("/var/run/secrets/kubernetes.io", O_RDONLY));
    REFUSED(open("/usr/bin/runner", O_RDWR));
    REFUSED(open("/usr/bin/new", O_RDWR | O_CREAT, 0600));
    /* proc, of which the pod masks nothing. */
    REFUSED(open("/proc/1/environ", O_RDONLY));
    REFUSED(open("/proc/1/root/work", O_RDONLY));
    REFUSED(open("/proc/sysrq-trigger", O_WRONLY));
    REFUSED(open("/proc/kcore", O_RDONLY));
    REFUSED(open("/proc/sys/kernel/core_pattern", O_WRONLY));
    REFUSED(open("/proc/sys/vm/drop_caches", O_WRONLY));
    REFUSED(open("/sys/fs/cgroup", O_RDONLY));
    /* Calls that the profile of the pod allows, for the supervisor. */
    REFUSED(mount("none", "/tmp", "tmpfs", 0, 0));
    REFUSED(umount2("/proc", MNT_DETACH));
    REFUSED(unshare(CLONE_NEWUSER));
    REFUSED(unshare(CLONE_NEWNS));
    REFUSED(syscall(SYS_pivot_root, "/", "/tmp"));
    REFUSED(syscall(SYS_fsopen, "tmpfs", 0));
    REFUSED(chroot("/tmp"));
    REFUSED(sethostname("x", 1));
    /* And others. */
    REFUSED(syscall(SYS_keyctl, 0, -3, 0));
    REFUSED(ptrace(PTRACE_ATTACH, 1, 0, 0));
    REFUSED(reach("10.0.0.1", 443));
    REFUSED(reach("169.254.169.254", 80));
    printf("%d attempts\n", attempts);
    return 0;
}
