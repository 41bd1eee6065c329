#include <sys/uio.h>
int main(int count, char **words) {
    int pids[] = {1, atoi(words[1]), getpid()};
    for (int at = 0; at < 3; at++) {
        int pid = pids[at];
        char bytes[8];
        struct iovec here = {bytes, 8}, there = {(void *)0x400000, 8};
        try("attach", ptrace(PTRACE_ATTACH, pid, 0, 0));
        try("seize", ptrace(PTRACE_SEIZE, pid, 0, 0));
        try("readv", process_vm_readv(pid, &here, 1, &there, 1, 0));
        try("writev", process_vm_writev(pid, &here, 1, &there, 1, 0));
        try("kcmp", syscall(SYS_kcmp, pid, getpid(), 0, 0, 0));
        try("getfd", syscall(SYS_pidfd_getfd, 0, 0, 0));
        try("madvise", syscall(SYS_process_madvise, 0, NULL, 0, 4, 0));
        try("migrate", syscall(SYS_migrate_pages, pid, 0, NULL, NULL));
    }
    try("traceme", ptrace(PTRACE_TRACEME, 0, 0, 0));
    return 0;
}
