//! Kernels and hosts that lack a part of the confinement: the run is refused with the reason, or
//! continues and reports the missing part.

use std::process::Command;

use crate::host::{assert_clear, without};
use crate::runtime::Runtime;
use support::{Case, Done, Ground, is_root, needs_root, skip, tier_includes};

/// Calls that every run needs, and the messages without them.
const NEEDED: [(&str, libc::c_long, &str); 17] = [
    ("clone3", libc::SYS_clone3, "cannot make a user namespace"),
    ("fsopen", libc::SYS_fsopen, "cannot make the writable space"),
    (
        "fsconfig",
        libc::SYS_fsconfig,
        "cannot make the writable space",
    ),
    (
        "fsmount",
        libc::SYS_fsmount,
        "cannot make the writable space",
    ),
    (
        "move_mount",
        libc::SYS_move_mount,
        "cannot attach the new root",
    ),
    (
        "mount_setattr",
        libc::SYS_mount_setattr,
        "cannot assemble the new root",
    ),
    ("mount", libc::SYS_mount, "cannot make the mounts private"),
    ("umount2", libc::SYS_umount2, "cannot enter the new root"),
    (
        "pivot_root",
        libc::SYS_pivot_root,
        "cannot enter the new root",
    ),
    ("unshare", libc::SYS_unshare, "cannot leave the host's"),
    ("prctl", libc::SYS_prctl, "cannot set the death signal"),
    (
        "prlimit64",
        libc::SYS_prlimit64,
        "cannot raise the limit of open descriptors",
    ),
    ("capset", libc::SYS_capset, "cannot drop the capabilities"),
    (
        "seccomp",
        libc::SYS_seccomp,
        "cannot apply the seccomp filter",
    ),
    (
        "landlock_add_rule",
        libc::SYS_landlock_add_rule,
        "cannot add a Landlock rule",
    ),
    (
        "landlock_restrict_self",
        libc::SYS_landlock_restrict_self,
        "cannot apply the Landlock ruleset",
    ),
    ("flock", libc::SYS_flock, "cannot claim a record"),
];

/// The errno of a kernel without the call, and of a filter that denies it.
const ERRNOS: [i32; 2] = [libc::ENOSYS, libc::EPERM];

/// Calls for which there is a fallback.
const REPLACED: [(&str, libc::c_long); 4] = [
    ("openat2", libc::SYS_openat2),
    ("open_tree", libc::SYS_open_tree),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("faccessat2", libc::SYS_faccessat2),
];

/// E-10, E-14: an older kernel, or a container whose filter denies all of these.
#[test]
fn a_kernel_without_a_required_call_is_reported_and_nothing_runs() {
    let long = tier_includes("long");
    for (name, call, told) in NEEDED {
        for errno in ERRNOS.iter().take(if long { 2 } else { 1 }).copied() {
            let done = without(call, errno, &[]);
            assert_clear(&done, told);
            assert_eq!(done.text(), "", "{name}: the body ran");
        }
    }
    for (name, call) in REPLACED {
        let done = without(call, libc::ENOSYS, &[]);
        done.assert_exited(0);
        assert_eq!(done.text(), "ran\n", "{name}");
    }
}

/// E-12: clone3(2) fails with EPERM or ENOSYS if a filter forbids it, with ENOSPC if there are too many.
#[test]
fn a_refused_user_namespace_is_reported_with_the_setting_to_change() {
    for (errno, setting) in [
        // No setting of this host forbids it, so something else does.
        (libc::EPERM, "runner doctor"),
        (libc::ENOSYS, "runner doctor"),
        (libc::ENOSPC, "user.max_user_namespaces="),
    ] {
        let done = without(libc::SYS_clone3, errno, &[]);
        assert_clear(&done, setting);
        assert_eq!(done.text(), "");
    }
}

fn state<'done>(done: &'done Done, axis: &str) -> &'done str {
    done.report["enforcement"][axis]["state"]
        .as_str()
        .unwrap_or("not there")
}

/// A run in which strace changes the result of the first call of one name, with `path` if stated,
/// as `inject` says; `None`: strace cannot trace here.
fn answered(path: Option<&str>, inject: &str, flags: &[&str]) -> Option<Done> {
    let tried = Command::new("strace")
        .args(["-o/dev/null", "true"])
        .output();
    if !tried.is_ok_and(|output| output.status.success()) {
        skip("strace is not installed, or cannot trace here");
        return None;
    }
    let ground = Ground::new();
    let words = [&["run"], flags, &["--", "/bin/echo", "ran"]].concat();
    let mut case = ground.command(&words);
    let inject = format!("inject={inject}:when=1");
    let of_path = path.map_or(vec![], |path| vec!["-P", path]);
    case.behind(&[&["strace", "-o", "/dev/null", "-e", &inject], &of_path[..]].concat());
    Some(case.done())
}

/// Asserts that a run reports the missing line of defence, and that `--strict` refuses it.
#[track_caller]
fn assert_told(inject: &str, told: (&str, &str), code: &str) {
    assert_told_of(None, inject, told, code);
}

#[track_caller]
fn assert_told_of(path: Option<&str>, inject: &str, (axis, expected): (&str, &str), code: &str) {
    let Some(done) = answered(path, inject, &[]) else {
        return;
    };
    done.assert_exited(0);
    assert_eq!(state(&done, axis), expected, "{done:#?}");
    let Some(done) = answered(path, inject, &["--strict"]) else {
        return;
    };
    done.assert_error("refused", code);
    assert_eq!(done.text(), "");
}

/// E-11, E-15: a Landlock with an older ABI. The first call returns its version.
#[test]
fn an_older_landlock_is_weaker_and_strictly_refused() {
    let inject = "landlock_create_ruleset:retval=1";
    assert_told(inject, ("landlock", "weaker"), "landlock_weaker");
}

/// A kernel without CONFIG_TIME_NS has no such link.
#[test]
fn without_a_time_namespace_it_is_absent_and_strictly_refused() {
    let told = ("time_namespace", "absent");
    let missing = "?lstat,?newfstatat:error=ENOENT";
    assert_told_of(
        Some("/proc/self/ns/time"),
        missing,
        told,
        "time_namespace_absent",
    );
}

/// Runs a case in its own namespaces, where `script` may mount. `p` adds a pid namespace.
fn elsewhere(case: &mut Case<'_>, namespaces: &str, script: &str) {
    let own = if is_root() { "-" } else { "-Ur" };
    let script = format!("set -e; {script}; exec \"$@\"");
    let words = [
        "unshare",
        &format!("{own}{namespaces}"),
        "/bin/sh",
        "-c",
        &script,
        "sh",
    ];
    case.behind(&words);
}

const SAY: [&str; 2] = ["/bin/echo", "ran"];

/// E-13: there is no hierarchy, and no group that a flag names.
#[test]
fn a_host_without_cgroups_says_which_limits_are_weaker_and_is_refused_where_they_must_hold() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let run = |flags: &[&str], parent: Option<&str>| {
        let mut case = runtime.case(&ground, flags, &SAY);
        elsewhere(&mut case, "m", "mount -t tmpfs none /sys/fs/cgroup");
        match parent {
            Some(parent) => case.command.env("RUNNER_OPT_CGROUP_PARENT", parent),
            None => case.command.env_remove("RUNNER_OPT_CGROUP_PARENT"),
        };
        case.done()
    };
    let done = run(&[], None);
    done.assert_exited(0);
    assert_eq!(done.report["cgroup_backend"], "none");
    for axis in ["memory", "processes"] {
        assert_eq!(state(&done, axis), "weaker", "{axis}: {done:#?}");
    }
    for (flags, parent) in [
        (&["--limits=require"][..], None),
        (&["--limits=require"], Some("/nowhere-at-all")),
        (&[], Some("/nowhere-at-all")),
    ] {
        let done = run(flags, parent);
        assert_eq!((done.outcome(), done.code), ("refused", 125), "{done:#?}");
        assert_eq!(done.text(), "", "{flags:?} {parent:?}");
        assert!(done.stderr.starts_with("runner: "), "{}", done.stderr);
    }
}

/// E-13: one controller of cgroup version 1 is missing.
#[test]
fn a_host_without_the_controller_of_memory_says_that_this_limit_alone_is_weaker() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let plain = runtime.case(&ground, &[], &SAY).done();
    let hierarchy = "/sys/fs/cgroup/memory";
    if plain.report["cgroup_backend"] != "v1" || !std::path::Path::new(hierarchy).is_dir() {
        println!("only version 1 has a hierarchy of its own for each controller");
        return;
    }
    if !is_root() {
        needs_root("mounts of the host are locked in a mount namespace of an ordinary user");
        return;
    }
    let mut case = runtime.case(&ground, &[], &SAY);
    elsewhere(&mut case, "m", &format!("umount {hierarchy}"));
    let done = case.done();
    done.assert_exited(0);
    assert_eq!(state(&plain, "memory"), "enforced", "{plain:#?}");
    assert_eq!(state(&done, "memory"), "weaker", "{done:#?}");
    assert_eq!(state(&done, "processes"), "enforced", "{done:#?}");
}

/// E-16: a host proc with hidepid does not matter: the body has its own proc.
#[test]
fn a_proc_that_hides_processes_changes_nothing() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    for option in ["hidepid=invisible", "hidepid=ptraceable"] {
        let mut case = runtime.case(&ground, &[], &["/bin/ls", "/proc"]);
        elsewhere(
            &mut case,
            "mpf",
            &format!("mount -t proc -o {option} proc /proc"),
        );
        let done = case.done();
        done.assert_exited(0);
        let text = done.text();
        let pids: Vec<&str> = text
            .lines()
            .filter(|name| name.parse::<u32>().is_ok())
            .collect();
        assert_eq!(pids, ["1", "2"], "{option}");
    }
}

/// E-16: the kernel forbids a new proc that would show more than the existing one.
#[test]
fn a_masked_or_missing_proc_is_reported_and_nothing_runs() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let masked = "proc cannot be mounted while parts of /proc are masked (in a container)";
    for (script, told) in [
        (
            "mount -t proc proc /proc; mount -t tmpfs none /proc/sys",
            masked,
        ),
        (
            "mount -t proc proc /proc; mount --bind /dev/null /proc/uptime",
            masked,
        ),
        (
            "mount -t proc proc /proc; mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys",
            masked,
        ),
        ("mount -t tmpfs none /proc", "mount -t proc proc /proc"),
    ] {
        let mut case = runtime.case(&ground, &[], &SAY);
        elsewhere(&mut case, "mpf", script);
        // With `--cgroup-parent`, the first error is that no group can be found without /proc.
        case.command.env_remove("RUNNER_OPT_CGROUP_PARENT");
        let done = case.done();
        assert_clear(&done, told);
        assert_eq!(done.text(), "", "{script}");
    }
}
