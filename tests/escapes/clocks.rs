//! Clocks and processors: what a body changes of them is its own.

use super::attempts::{assert_lines, attempt};
use support::{Ground, skip};

/// What the host's processes have of clocks and processors.
fn of_the_host() -> (String, String, String) {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let processors = status
        .lines()
        .find(|line| line.starts_with("Cpus_allowed_list:"))
        .expect("a line")
        .to_owned();
    let zone = std::fs::read_link("/proc/self/ns/time")
        .map(|link| link.display().to_string())
        .unwrap_or_default();
    (offsets, processors, zone)
}

/// B-55: offsets of a time namespace, every clock, the time stamp counter, and processors that the
/// body was not given.
#[test]
fn clocks_and_processors_of_others_cannot_be_changed() {
    let before = of_the_host();
    let ground = Ground::new();
    let text = r#"
#include <sys/timex.h>
#include <time.h>
static long put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    return fd < 0 ? -1 : write(fd, text, strlen(text));
}
static int counts(void) {
    struct timespec before, after;
    long plain = syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &before);
    /* by the page that the kernel lends */
    int lent = clock_gettime(CLOCK_MONOTONIC, &after);
    long apart = (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec;
    return plain == 0 && lent == 0 && apart >= 0;
}
int main(void) {
    /* once there was a process in the namespace, its offsets are settled */
    try("offsets", put("/proc/self/timens_offsets", "monotonic 1000 0"));
    try("of init", put("/proc/1/timens_offsets", "monotonic 1000 0"));
    try("namespace", unshare(0x80));
    struct timespec now;
    struct timex change = {.modes = ADJ_OFFSET, .offset = 1000};
    for (int clock = 0; clock < 12; clock++) {
        if (clock == 10 || clock_gettime(clock, &now)) continue;
        now.tv_sec += 1000;
        if (syscall(SYS_clock_settime, clock, &now) == 0 || errno != EPERM) printf("set %d\n", clock);
        if (syscall(SYS_clock_adjtime, clock, &change) >= 0 || errno != EPERM) printf("adjusted %d\n", clock);
    }
    struct timeval day = {1000, 0};
    try("day", syscall(SYS_settimeofday, &day, NULL));
    try("adjust", syscall(SYS_adjtimex, &change));
    printf("counts %d\n", counts());
    /* every processor that the kernel could have: those beyond the cpuset are left out */
    cpu_set_t had, wanted, got;
    sched_getaffinity(0, sizeof had, &had);
    memset(&wanted, 0xff, sizeof wanted);
    try("all processors", sched_setaffinity(0, sizeof wanted, &wanted));
    sched_getaffinity(0, sizeof got, &got);
    printf("more %d\n", CPU_COUNT(&got) > sysconf(_SC_NPROCESSORS_CONF));
    CPU_ZERO(&wanted);
    CPU_SET(1000, &wanted);
    try("no processor", sched_setaffinity(0, sizeof wanted, &wanted));
    for (int at = 0; at < CPU_SETSIZE; at++) if (CPU_ISSET(at, &had)) { CPU_ZERO(&wanted); CPU_SET(at, &wanted); break; }
    try("one processor", sched_setaffinity(0, sizeof wanted, &wanted));
    try("cpuset", open("/sys/fs/cgroup/cpuset/cpuset.cpus", O_WRONLY));
#if defined(__x86_64__)
    try("counter", prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0));
    int status;
    pid_t child = fork();
    if (child == 0) { __builtin_ia32_rdtsc(); _exit(0); }
    waitpid(child, &status, 0);
    printf("own counter %d\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
#else
    puts("counter ok\nown counter 1");
#endif
    return 0;
}
"#;
    let done = attempt(&ground, "clocks", text);
    let text = done.text();
    let mut lines: Vec<&str> = text.lines().collect();
    for name in ["of init", "offsets"] {
        let line = lines
            .iter()
            .position(|line| line.starts_with(name))
            .expect("a line");
        // A kernel without time namespaces, one of another user, or one that is settled.
        let (_, answer) = lines.remove(line).rsplit_once(' ').expect("two words");
        assert!(["ENOENT", "EACCES", "EPERM"].contains(&answer), "{text}");
    }
    assert_eq!(
        lines,
        [
            "namespace EPERM",
            "day EPERM",
            "adjust EPERM",
            "counts 1",
            "all processors ok",
            "more 0",
            "no processor EINVAL",
            "one processor ok",
            "cpuset ENOENT",
            "counter ok",
            "own counter 1",
        ]
    );
    assert_eq!(of_the_host(), before);
}

/// B-55: a body that is confined to one processor by its cgroup or its caller takes nobody else with
/// it: the next run has what the host gives.
#[test]
fn processor_settings_of_one_body_do_not_affect_the_next() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    cpu_set_t had, one;
    sched_getaffinity(0, sizeof had, &had);
    printf("%d\n", CPU_COUNT(&had));
    CPU_ZERO(&one);
    for (int at = 0; at < CPU_SETSIZE; at++) if (CPU_ISSET(at, &had)) { CPU_SET(at, &one); break; }
    sched_setaffinity(0, sizeof one, &one);
    struct sched_param idle = {0};
    sched_setscheduler(0, SCHED_IDLE, &idle);
    return 0;
}
"#;
    let first = attempt(&ground, "processors", text).text();
    for _run in 0..2 {
        assert_lines(&attempt(&ground, "processors", text), &first);
    }
}

/// B-55: without offsets a time namespace hides nothing. What the processors have done since the
/// start (`/proc/stat`, the second field of `/proc/uptime`) no namespace hides.
#[test]
fn the_body_s_clocks_begin_with_the_run() {
    if !std::path::Path::new("/proc/self/ns/time").exists() {
        skip("this kernel has no time namespaces");
        return;
    }
    let text = r#"
#include <sys/sysinfo.h>
#include <time.h>
int main(void) {
    struct timespec monotonic, boot;
    struct sysinfo info;
    if (clock_gettime(CLOCK_MONOTONIC, &monotonic) || clock_gettime(CLOCK_BOOTTIME, &boot)) return 1;
    if (sysinfo(&info)) return 2;
    printf("%ld\n%ld\n%ld\n", monotonic.tv_sec, boot.tv_sec, info.uptime);
    return 0;
}
"#;
    let ground = Ground::new();
    let started = std::time::Instant::now();
    let done = attempt(&ground, "uptime", text);
    // The offsets are whole seconds, so the clocks begin with up to one; sysinfo(2) rounds up.
    let most = started.elapsed().as_secs() + 2;
    let clocks: Vec<u64> = done
        .text()
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(clocks.len(), 3, "{done:#?}");
    assert!(
        clocks.iter().all(|clock| *clock <= most),
        "{clocks:?} {most}"
    );
}
