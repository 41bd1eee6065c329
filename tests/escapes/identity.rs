//! The identity of the body: ids, capabilities, groups, session, the root directory, /proc.

use std::collections::BTreeMap;

use super::attempts::{assert_lines, attempt, attempt_with, shell};
use support::{Ground, is_root};

/// B-14, B-44, B-45: no capability in any set, no way to gain one, and a loaded filter.
#[test]
fn the_body_has_no_capability_and_cannot_gain_privileges() {
    let ground = Ground::new();
    let lines = shell(&ground, &[], "cat /proc/self/status");
    let status: BTreeMap<&str, &str> = lines
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status[set], "0000000000000000", "{set}");
    }
    assert_eq!((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"));
    assert_eq!(status["Uid"], "1000\t1000\t1000\t1000");
    assert_eq!(status["Gid"], "1000\t1000\t1000\t1000");
    if is_root() {
        assert_eq!(status["Groups"], "", "root drops its supplementary groups");
    }
}

/// B-20: nothing of the caller's session, so no terminal of it either.
#[test]
fn the_body_leads_a_session_of_its_own() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/the_body_leads_a_session_of_its_own.c");
    let done = attempt(&ground, "session", text);
    assert_lines(&done, "session 1\ngroup 1\nparent 1\ntty ENXIO");
}

/// B-18.
#[test]
fn the_body_sees_itself_at_the_root_of_every_cgroup_hierarchy() {
    let ground = Ground::new();
    let lines = shell(&ground, &[], "cat /proc/self/cgroup");
    assert!(!lines.is_empty());
    for line in lines {
        assert_eq!(line.splitn(3, ':').nth(2), Some("/"), "{line}");
    }
}

/// B-27, B-41, F-08: only listed entries exist.
#[test]
fn the_root_directory_holds_the_documented_names_and_no_other() {
    let ground = Ground::new();
    let always = [
        "bin", "bundle", "dev", "etc", "home", "lib", "proc", "runner", "sbin", "scratch", "tmp",
        "usr",
    ];
    let by_host = ["lib32", "lib64", "libx32"];
    let names = shell(&ground, &[], "ls -A /");
    for name in &names {
        let name = name.as_str();
        assert!(always.contains(&name) || by_host.contains(&name), "{name}");
    }
    for name in always {
        assert!(names.iter().any(|found| found == name), "{name} is missing");
    }
    assert_eq!(shell(&ground, &[], "ls -A /home"), ["runner"]);
    assert_eq!(shell(&ground, &[], "ls -A /runner"), ["out"]);
    let empty = "ls -A /bundle /scratch /tmp /dev/shm /home/runner /runner/out | grep -v :";
    let found = shell(&ground, &[], &format!("{empty}; true"));
    assert!(found.iter().all(String::is_empty), "{found:?}");
    let etc = [
        "alternatives",
        "ca-certificates",
        "group",
        "hosts",
        "ld.so.cache",
        "localtime",
        "mime.types",
        "nsswitch.conf",
        "passwd",
        "protocols",
        "resolv.conf",
        "services",
        "ssl",
    ];
    for name in shell(&ground, &[], "ls -A /etc") {
        let of_java = name.starts_with("java-");
        assert!(of_java || etc.contains(&name.as_str()), "/etc/{name}");
    }
}

/// B-16: of /proc, only files of the body's own processes are writable.
#[test]
fn nothing_of_proc_but_the_body_s_own_processes_can_be_opened_for_writing() {
    let ground = Ground::new();
    let text = include_str!(
        "../bodies/escapes/nothing_of_proc_but_the_body_s_own_processes_can_be_opened_for_writing.c"
    );
    assert_lines(&attempt(&ground, "walk-proc", text), "enough 1");
}

/// B-16, B-60: masked files are empty, the others are closed.
#[test]
fn the_kernel_s_secrets_in_proc_and_sys_are_masked_closed_or_absent() {
    let ground = Ground::new();
    let text = include_str!(
        "../bodies/escapes/the_kernel_s_secrets_in_proc_and_sys_are_masked_closed_or_absent.c"
    );
    let names = [
        "/proc/kcore",
        "/proc/kmsg",
        "/proc/kallsyms",
        "/proc/keys",
        "/proc/key-users",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/slabinfo",
        "/proc/vmallocinfo",
        "/proc/config.gz",
        "/proc/partitions",
        "/proc/diskstats",
        "/proc/interrupts",
        "/proc/locks",
        "/proc/sys/kernel/random/boot_id",
        "/proc/kpagecount",
        "/proc/kpageflags",
        "/proc/sysrq-trigger",
        "/proc/1/environ",
        "/proc/1/mem",
        "/proc/1/maps",
        "/proc/1/syscall",
        "/proc/1/stack",
        "/proc/latency_stats",
        "/proc/timer_stats",
        "/proc/acpi/wakeup",
        "/proc/asound/cards",
        "/proc/scsi/scsi",
        "/proc/sys/kernel/cad_pid",
        "/dev/kmsg",
        "/sys/kernel/security",
        "/sys/devices/virtual/powercap",
        "/sys/firmware",
        "/sys/kernel/debug",
        "/sys/kernel/tracing",
        "/sys/kernel/vmcoreinfo",
        "/sys/fs/cgroup",
    ];
    let done = attempt_with(&ground, &[], "read-secrets", text, &names);
    let refusals = ["empty", "EACCES", "EPERM", "ENOENT", "EISDIR"];
    super::attempts::assert_all_refused(&done, names.len(), &refusals);
}

/// F-02, F-07: init starts with the runner's command line, which must be overwritten.
#[test]
fn init_s_command_line_and_name_tell_nothing_of_the_runner_s_arguments() {
    let ground = Ground::new();
    let word = "unmistakable-word-of-the-caller";
    let tmpfs = format!("/{word}");
    let text = "tr '\\0' ' ' </proc/1/cmdline; cat /proc/1/comm";
    let lines = shell(&ground, &["--tmpfs", &tmpfs], text);
    let shown: Vec<&str> = lines.iter().flat_map(|line| line.split(' ')).collect();
    let shown: Vec<&str> = shown.into_iter().filter(|word| !word.is_empty()).collect();
    assert_eq!(shown, ["init", "init"]);
}

/// B-49, syscalls.md: nosuid everywhere, nodev except for devices, and few writable mounts.
#[test]
fn every_mount_is_nosuid_and_only_the_documented_places_take_writes() {
    let ground = Ground::new();
    let lines = shell(&ground, &[], "cat /proc/self/mountinfo");
    assert!(10 < lines.len());
    for line in &lines {
        let fields: Vec<&str> = line.split(' ').collect();
        let (place, options) = (fields[4], fields[5]);
        let has = |name| options.split(',').any(|option| option == name);
        assert!(has("nosuid"), "{line}");
        let of_devices = place.starts_with("/dev/") && place != "/dev/shm";
        let is_mask = place.starts_with("/proc/");
        assert!(has("nodev") || of_devices || is_mask, "{line}");
        let writable = [
            "/bundle",
            "/scratch",
            "/runner/out",
            "/tmp",
            "/home/runner",
            "/dev/shm",
            "/proc",
        ];
        let takes_writes = writable.contains(&place) || of_devices || is_mask;
        assert!(has("ro") || takes_writes, "{line}");
        assert!(!place.starts_with("/sys"), "{line}");
        let optional = fields.iter().skip(6).take_while(|field| **field != "-");
        for tag in optional {
            assert!(!tag.starts_with("shared:"), "B-51: {line}");
        }
    }
}
