//! System calls: refused numbers, other ABIs, numbers that nobody knows, and code made at run time.

use std::os::unix::fs::PermissionsExt as _;

use super::attempts::{assert_all_refused, assert_lines, attempt, case, program};
use support::Ground;

/// B-29, B-19 ("shocker"), B-15 (CVE-2016-0728).
#[test]
fn administrative_calls_fail_with_eperm() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
#define number(name) try(#name, syscall(SYS_##name, 0, 0, 0, 0, 0, 0))
    number(bpf); number(perf_event_open); number(userfaultfd); number(kexec_load);
    number(kexec_file_load); number(init_module); number(finit_module); number(delete_module);
    number(reboot); number(swapon); number(swapoff); number(acct); number(quotactl);
    number(settimeofday); number(clock_settime); number(adjtimex); number(clock_adjtime);
    number(sethostname); number(setdomainname); number(syslog); number(lookup_dcookie);
    number(vhangup); number(open_by_handle_at); number(name_to_handle_at); number(fanotify_init);
    number(add_key); number(request_key); number(keyctl); number(ptrace); number(kcmp);
    number(pidfd_getfd); number(process_madvise); number(process_vm_readv);
    number(process_vm_writev); number(mbind); number(set_mempolicy); number(get_mempolicy);
    number(migrate_pages); number(move_pages); number(io_uring_setup); number(io_uring_enter);
    number(io_uring_register); number(quotactl_fd); number(process_mrelease); number(memfd_secret);
    number(nfsservctl);
#if defined(__x86_64__)
    number(iopl); number(ioperm); number(modify_ldt); number(uselib); number(sysfs); number(ustat);
    number(create_module);
#endif
    return 0;
}
"#;
    let done = attempt(&ground, "refused-calls", text);
    assert_all_refused(&done, 46, &["EPERM"]);
}

/// B-30 (CVE-2026-43494): refused at set-up, so that programs fall back instead of dying.
#[test]
fn io_uring_cannot_be_set_up_and_asking_does_not_kill() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    char parameters[120] = {0};
    try("setup", syscall(SYS_io_uring_setup, 8, parameters));
    try("high", syscall(SYS_io_uring_setup, 0x100000008UL, parameters));
    try("enter", syscall(SYS_io_uring_enter, 0, 1, 1, 0, NULL));
    try("register", syscall(SYS_io_uring_register, 0, 0, NULL, 0));
    return 0;
}
"#;
    assert_lines(
        &attempt(&ground, "io-uring", text),
        "setup EPERM\nhigh EPERM\nenter EPERM\nregister EPERM",
    );
}

/// B-15: a key of the caller's keyrings is not visible either.
#[test]
fn keyrings_cannot_be_reached() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    try("add", syscall(SYS_add_key, "user", "x", "y", 1, -3));
    try("request", syscall(SYS_request_key, "user", "canary", NULL, 0));
    try("join", syscall(SYS_keyctl, 1, NULL));
    try("persistent", syscall(SYS_keyctl, 22, -1, -3));
    try("search", syscall(SYS_keyctl, 10, -4, "user", "canary", 0));
    char bytes[8];
    int fd = open("/proc/keys", O_RDONLY);
    printf("keys %ld\n", fd < 0 ? 0L : (long)read(fd, bytes, 8));
    return 0;
}
"#;
    assert_lines(
        &attempt(&ground, "keyrings", text),
        "add EPERM\nrequest EPERM\njoin EPERM\npersistent EPERM\nsearch EPERM\nkeys 0",
    );
}

/// B-31 (CVE-2009-0835): the 32-bit entry from 64-bit code ends the body, nothing is run.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_32_bit_entry_kills_the_body() {
    let ground = Ground::new();
    let text = r#"
int main(int count, char **words) {
    long number = atol(words[1]), result;
    puts("before");
    fflush(stdout);
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(0), "c"(0), "d"(0) : "memory");
    printf("after %ld\n", result);
    return 0;
}
"#;
    let into = program("int80", text);
    // getpid, socketcall, mount, unshare and a number that nobody has, by the 32-bit table.
    for number in ["20", "102", "21", "310", "9999"] {
        let done = case(&ground, &[], &into, &[number]).done();
        done.assert_outcome("signaled", 128 + 31);
        assert_eq!(done.text(), "before\n", "{number}");
    }
}

/// B-31: a program for the other ABI; a kernel without it does not execute it.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_program_is_killed_or_not_executed() {
    let ground = Ground::new();
    // xor ebx, ebx; mov eax, 1 (exit); int 0x80
    let code = [0x31, 0xdb, 0xb8, 1, 0, 0, 0, 0xcd, 0x80];
    let entry: u32 = 0x0804_8054;
    let mut image = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for half in [2_u16, 3] {
        image.extend(half.to_le_bytes());
    }
    for word in [1, entry, 52, 0, 0] {
        image.extend(word.to_le_bytes());
    }
    for half in [52_u16, 32, 1, 0, 0, 0] {
        image.extend(half.to_le_bytes());
    }
    let size = u32::try_from(84 + code.len()).expect("small");
    for word in [1, 0, 0x0804_8000, 0x0804_8000, size, size, 5, 0x1000] {
        image.extend(word.to_le_bytes());
    }
    image.extend(code);
    let path = ground.write("program-32", image);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
    let done = case(&ground, &[], &path, &[]).done();
    let seen = (done.outcome(), done.code);
    assert!(
        matches!(seen, ("signaled", 159) | ("failed", 126)),
        "{done:#?}"
    );
}

/// B-32.
#[cfg(target_arch = "x86_64")]
#[test]
fn numbers_of_the_x32_abi_are_not_there() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    static char room[256];
    for (long number = 0; number < 600; number++) {
        errno = 0;
        long result = syscall(0x40000000 | number, room, room, room, room, room, room);
        if (result != -1 || errno != ENOSYS) printf("%ld %ld %s\n", number, result, strerrorname_np(errno));
    }
    try("exit_group", syscall(0x40000000 | SYS_exit_group, 3));
    return 0;
}
"#;
    assert_lines(&attempt(&ground, "x32", text), "exit_group ENOSYS");
}

/// B-33.
#[test]
fn unknown_call_numbers_fail_with_enosys() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    for (long number = 470; number < 1024; number++) {
        errno = 0;
        long result = syscall(number, 0, 0, 0, 0, 0, 0);
        if (result != -1 || errno != ENOSYS) printf("%ld %ld %s\n", number, result, strerrorname_np(errno));
    }
    try("large", syscall(0x3fffffff, 0, 0, 0));
    try("largest", syscall(0x7fffffff, 0, 0, 0));
    try("negative", syscall(-1, 0, 0, 0));
    return 0;
}
"#;
    assert_lines(
        &attempt(&ground, "unknown-numbers", text),
        "large ENOSYS\nlargest ENOSYS\nnegative ENOSYS",
    );
}

/// B-36.
#[test]
fn personalities_that_weaken_the_address_space_are_refused() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    try("0", personality(0));
    try("8", personality(8));
    try("20008", personality(0x20008));
    try("20000", personality(0x20000));
    try("query", personality(0xffffffff));
    personality(0);
    try("no randomisation", personality(ADDR_NO_RANDOMIZE));
    try("executable", personality(READ_IMPLIES_EXEC));
    try("both", personality(ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC));
    try("page 0", personality(MMAP_PAGE_ZERO));
    try("high", syscall(SYS_personality, 0x100000000UL | ADDR_NO_RANDOMIZE));
    printf("now %x\n", personality(0xffffffff));
    return 0;
}
"#;
    assert_lines(
        &attempt(&ground, "personality", text),
        "0 ok
        8 ok
        20008 ok
        20000 ok
        query ok
        no randomisation EPERM
        executable EPERM
        both EPERM
        page 0 EPERM
        high EPERM
        now 0",
    );
}

/// B-37: whatever way code comes to run, it runs under the same filter.
#[test]
fn code_that_is_made_at_run_time_has_the_same_confinement() {
    let ground = Ground::new();
    let text = r#"
static void probe(const char *how) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    int filtered = 0;
    while (fgets(line, sizeof line, status))
        filtered += !strcmp(line, "Seccomp:\t2\n") || !strcmp(line, "NoNewPrivs:\t1\n") || !strcmp(line, "CapBnd:\t0000000000000000\n");
    printf("%s %d ", how, filtered);
    try("unshare", unshare(CLONE_NEWUSER));
}
static void copy_to(int to) {
    char bytes[65536];
    long got;
    int from = open("/proc/self/exe", O_RDONLY);
    while ((got = read(from, bytes, sizeof bytes)) > 0) if (write(to, bytes, got) != got) _exit(8);
    close(from);
}
static void child(const char *how, int fd, const char *path) {
    pid_t pid = fork();
    if (pid == 0) {
        char *words[] = {"inner", (char *)how, NULL}, *none[] = {NULL};
        if (path) execve(path, words, none);
        else if (!strcmp(how, "fexecve")) fexecve(fd, words, none);
        else syscall(SYS_execveat, fd, "", words, none, AT_EMPTY_PATH);
        printf("%s %s\n", how, strerrorname_np(errno));
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}
int main(int count, char **words) {
    if (!strcmp(words[0], "inner")) { probe(words[1]); return 0; }
    probe("body");
    int fd = memfd_create("code", MFD_CLOEXEC);
    copy_to(fd);
    child("fexecve", fd, NULL);
    child("execveat", fd, NULL);
    const char *places[] = {"/dev/shm/code", "/tmp/code", "/scratch/code", NULL};
    for (const char **place = places; *place; place++) {
        int file = open(*place, O_CREAT | O_WRONLY, 0700);
        copy_to(file);
        close(file);
        child(*place, -1, *place);
    }
#if defined(__x86_64__)
    /* unshare(CLONE_NEWUSER), answer in eax */
    unsigned char code[] = {0xb8, 0x10, 1, 0, 0, 0xbf, 0, 0, 0, 0x10, 0x0f, 5, 0xc3};
    int file = open("/tmp/mapped", O_CREAT | O_RDWR, 0700);
    if (write(file, code, sizeof code) != sizeof code) return 7;
    int (*run)(void) = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    printf("mapped %d\n", run());
#else
    puts("mapped -1");
#endif
    return 0;
}
"#;
    assert_lines(
        &attempt(&ground, "made-code", text),
        "body 3 unshare EPERM
        fexecve 3 unshare EPERM
        execveat 3 unshare EPERM
        /dev/shm/code 3 unshare EPERM
        /tmp/code 3 unshare EPERM
        /scratch/code 3 unshare EPERM
        mapped -1",
    );
}

/// B-56.
#[test]
fn the_body_cannot_put_itself_before_others() {
    let ground = Ground::new();
    let text = r#"
static long put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    return fd < 0 ? -1 : write(fd, text, strlen(text));
}
int main(void) {
    struct sched_param first = {.sched_priority = 1};
    try("fifo", sched_setscheduler(0, SCHED_FIFO, &first));
    try("round robin", sched_setscheduler(0, SCHED_RR, &first));
    uint64_t deadline[] = {48 | (6UL << 32), 0, 0, 1000000, 2000000, 2000000};
    try("deadline", syscall(SYS_sched_setattr, 0, deadline, 0));
    try("nice", setpriority(PRIO_PROCESS, 0, -20));
    try("io", syscall(SYS_ioprio_set, 1, 0, 1 << 13));
    try("oom", put("/proc/self/oom_score_adj", "-1000"));
    struct rlimit more = {1UL << 40, 1UL << 40};
    try("locked", setrlimit(RLIMIT_MEMLOCK, &more));
    struct rlimit locked;
    getrlimit(RLIMIT_MEMLOCK, &locked);
    /* no more than the limit says, which the body's own memory counts against anyway */
    char *much = mmap(NULL, 256 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int above = locked.rlim_cur < 256 << 20;
    try("lock", above && mlock(much, 256 << 20) ? -1 : 0);
    munmap(much, 256 << 20);
    try("files", setrlimit(RLIMIT_NOFILE, &more));
    try("size", setrlimit(RLIMIT_FSIZE, &more));
    struct rlimit core;
    getrlimit(RLIMIT_CORE, &core);
    printf("core %d\n", core.rlim_max <= 1);
    return 0;
}
"#;
    assert_lines(
        &attempt(&ground, "priorities", text),
        "fifo EPERM
        round robin EPERM
        deadline EPERM
        nice EACCES
        io EPERM
        oom EACCES
        locked EPERM
        lock ENOMEM
        files EPERM
        size EPERM
        core 1",
    );
}

/// B-58: programs that make sandboxes say why they cannot, and end.
#[test]
fn a_sandbox_inside_the_sandbox_fails_with_a_clear_error() {
    let ground = Ground::new();
    let done = ground.run(&[], &["unshare", "--user", "--map-root-user", "true"]);
    done.assert_exited(1);
    assert!(done.stderr.contains("Operation not permitted"), "{done:#?}");
    let bwrap = "/usr/bin/bwrap";
    if std::path::Path::new(bwrap).exists() {
        let words = [bwrap, "--unshare-all", "--ro-bind", "/", "/", "true"];
        let done = ground.run(&[], &words);
        done.assert_exited(1);
        assert!(done.stderr.starts_with("bwrap: "), "{done:#?}");
    } else {
        support::skip("bwrap is not installed");
    }
    let runner = support::runner();
    let runner = runner.to_str().expect("a plain path");
    let done = ground.run(&["--ro", runner], &[runner, "run", "--", "true"]);
    done.assert_exited(125);
    assert!(done.stderr.contains("runner:"), "{done:#?}");
}
