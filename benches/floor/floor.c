// The floor: what the kernel asks for the isolation of a run, with nothing else around it.
//
//   floor classic|dot ROOT BODY
//
// BODY runs alone in user, mount, pid, network, ipc, uts and cgroup namespaces of its own, on a
// tmpfs with /usr, a few files of /etc and itself read-only, a fresh /proc and /tmp, with
// no_new_privs, a Landlock ruleset and a list of allowed system calls. ROOT is an empty directory.
// "classic" puts the old root into a directory of the new one, "dot" stacks it at the same place
// (pivot_root(2), the last of its notes).
//
// What a supervisor adds is missing on purpose: no cgroup, no init, no loopback device, no masks, no
// limits, no time limit, no output, no report, nothing that cleans up after a crash.
//
// Started as root the body becomes uid 1000 inside and HOST_ID outside, else uid 1000 and the
// caller.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define INSIDE_ID 1000
// Of nobody, and not in the range that bodies of the product have.
#define HOST_ID 1879200000

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    _exit(125);
}

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
    close(fd);
}

// `inside outside 1` for both maps of a process.
static void write_maps(const char *process, unsigned uid, unsigned gid) {
    char path[64], line[64];
    snprintf(path, sizeof path, "/proc/%s/uid_map", process);
    snprintf(line, sizeof line, "%u %u 1\n", INSIDE_ID, uid);
    write_file(path, line);
    snprintf(path, sizeof path, "/proc/%s/gid_map", process);
    snprintf(line, sizeof line, "%u %u 1\n", INSIDE_ID, gid);
    write_file(path, line);
}

// A place that cannot be written to. Flags that the source has cannot be taken off (EPERM).
static void bind(const char *from, const char *to) {
    struct statfs facts;
    must(!mount(from, to, NULL, MS_BIND, NULL), from);
    must(!statfs(to, &facts), to);
    unsigned long flags = (unsigned long)facts.f_flags & (MS_NOEXEC | MS_NOATIME | MS_NODIRATIME);
    if (facts.f_flags & ST_RELATIME) flags |= MS_RELATIME;
    flags |= MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV;
    must(!mount(NULL, to, NULL, flags, NULL), to);
}

static void make_root(const char *root, const char *body, int is_classic) {
    must(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
    must(!mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755"), "the new root");
    must(!chdir(root), root);
    static const char *const folders[] = {"usr", "etc", "proc", "tmp", "old"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) must(!mkdir(folders[i], 0755), folders[i]);
    static const char *const links[][2] = {
        {"usr/bin", "bin"}, {"usr/sbin", "sbin"}, {"usr/lib", "lib"}, {"usr/lib64", "lib64"}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) must(!symlink(links[i][0], links[i][1]), links[i][1]);
    bind("/usr", "usr");
    static const char *const files[][2] = {{"/etc/passwd", "etc/passwd"}, {"/etc/group", "etc/group"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        must(!mknod(files[i][1], S_IFREG | 0444, 0), files[i][1]);
        bind(files[i][0], files[i][1]);
    }
    must(!mknod("body", S_IFREG | 0555, 0), "body");
    bind(body, "body");
    // While the host's own is still in sight: the kernel wants to see one unmasked.
    must(!mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "proc");
    must(!mount("tmpfs", "tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700"), "tmp");
    if (is_classic) {
        must(!syscall(SYS_pivot_root, ".", "old"), "pivot_root");
        must(!chdir("/"), "/");
        must(!umount2("/old", MNT_DETACH), "the old root");
    } else {
        must(!syscall(SYS_pivot_root, ".", "."), "pivot_root");
        must(!umount2(".", MNT_DETACH), "the old root");
        must(!chdir("/"), "/");
    }
    must(!rmdir("/old"), "/old");
}

// Writing in /tmp alone, executing in /usr and of the body alone.
static void restrict_paths(void) {
    const __u64 executing = LANDLOCK_ACCESS_FS_EXECUTE;
    const __u64 writing = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
        LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
        LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
        LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
    // Only what the first version of Landlock has: older kernels take no longer structure.
    __u64 handled = executing | writing;
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    must(ruleset >= 0, "landlock_create_ruleset");
    const struct { const char *path; __u64 access; } rules[] = {
        {"/usr", executing}, {"/body", executing}, {"/tmp", writing}, {"/proc/self", LANDLOCK_ACCESS_FS_WRITE_FILE}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct landlock_path_beneath_attr rule = {
            .allowed_access = rules[i].access, .parent_fd = open(rules[i].path, O_PATH | O_CLOEXEC)};
        must(rule.parent_fd >= 0, rules[i].path);
        must(!syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0), rules[i].path);
        close(rule.parent_fd);
    }
    must(!syscall(SYS_landlock_restrict_self, ruleset, 0), "landlock_restrict_self");
    close(ruleset);
}

#if defined __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

// What a program needs that computes, reads, writes and ends. Others fail with EPERM.
static const int allowed[] = {
#ifdef SYS_open
    SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_mkdir, SYS_rmdir, SYS_unlink, SYS_arch_prctl,
    SYS_poll, SYS_pipe, SYS_dup2,
#endif
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_close, SYS_fstat, SYS_lseek,
    SYS_openat, SYS_newfstatat, SYS_readlinkat, SYS_faccessat, SYS_mkdirat, SYS_unlinkat, SYS_getdents64,
    SYS_mmap, SYS_mprotect, SYS_munmap, SYS_brk, SYS_madvise, SYS_mremap,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack,
    SYS_ioctl, SYS_fcntl, SYS_dup, SYS_dup3, SYS_pipe2, SYS_ppoll, SYS_futex, SYS_nanosleep, SYS_clock_nanosleep,
    SYS_clock_gettime, SYS_gettimeofday, SYS_getpid, SYS_gettid, SYS_getppid, SYS_getuid, SYS_geteuid,
    SYS_getgid, SYS_getegid, SYS_getcwd, SYS_chdir, SYS_uname, SYS_getrandom, SYS_prlimit64,
    SYS_set_tid_address, SYS_set_robust_list, SYS_rseq, SYS_sched_yield, SYS_sched_getaffinity,
    SYS_execve, SYS_wait4, SYS_kill, SYS_tgkill, SYS_exit, SYS_exit_group,
};

static void restrict_calls(void) {
    enum { COUNT = sizeof allowed / sizeof *allowed };
    // Jumps are relative: from each comparison to the last instruction.
    struct sock_filter filter[COUNT + 6] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    for (int i = 0; i < COUNT; i++) {
        filter[4 + i] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, (__u32)allowed[i], (__u8)(COUNT - i), 0);
    }
    filter[COUNT + 4] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    filter[COUNT + 5] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = COUNT + 6, .filter = filter};
    must(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), "seccomp");
}

int main(int count, char **words) {
    must(count == 4, "usage: floor classic|dot ROOT BODY");
    int is_classic = !strcmp(words[1], "classic"), is_root = !geteuid(), mapped[2];
    unsigned uid = geteuid(), gid = getegid();
    must(!pipe2(mapped, O_CLOEXEC), "pipe");
    // Like fork: no stack is given.
    unsigned long spaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
        CLONE_NEWUTS | CLONE_NEWCGROUP;
    pid_t child = (pid_t)syscall(SYS_clone, spaces | SIGCHLD, NULL, NULL, NULL, NULL);
    must(child >= 0, "clone");
    if (child) {
        if (is_root) {
            char process[16];
            snprintf(process, sizeof process, "%d", child);
            write_maps(process, HOST_ID, HOST_ID);
            must(write(mapped[1], "", 1) == 1, "the child");
        }
        int status;
        must(waitpid(child, &status, 0) == child, "waitpid");
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (is_root) {
        char byte;
        must(read(mapped[0], &byte, 1) == 1, "the parent");
        must(!setgroups(0, NULL), "setgroups");
        must(!setresgid(INSIDE_ID, INSIDE_ID, INSIDE_ID), "setresgid");
        must(!setresuid(INSIDE_ID, INSIDE_ID, INSIDE_ID), "setresuid");
    } else {
        write_file("/proc/self/setgroups", "deny");
        write_maps("self", uid, gid);
    }
    must(!prctl(PR_SET_PDEATHSIG, SIGKILL), "PR_SET_PDEATHSIG");
    make_root(words[2], words[3], is_classic);
    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    restrict_paths();
    restrict_calls();
    char *const argv[] = {"body", NULL}, *const environment[] = {"PATH=/usr/bin:/bin", NULL};
    execve("/body", argv, environment);
    must(0, "execve");
}
