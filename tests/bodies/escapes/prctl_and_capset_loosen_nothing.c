int main(void) {
    try("new privileges", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    try("no seccomp", prctl(PR_SET_SECCOMP, 0, 0, 0, 0));
    try("ambient", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0));
    try("bounding", prctl(PR_CAPBSET_DROP, 21, 0, 0, 0));
    try("securebits", prctl(PR_SET_SECUREBITS, 0, 0, 0, 0));
    try("exe", prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, 0, 0, 0));
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct all[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
    try("capset", syscall(SYS_capset, &header, all));
    all[0].effective = all[0].permitted = all[1].effective = all[1].permitted = 0;
    try("inheritable", syscall(SYS_capset, &header, all));
    printf("still %d %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
    /* its own affairs */
    try("dumpable", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    try("death signal", prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0));
    try("reaper", prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    return 0;
}
