//! A host that lacks resources or features: one clear message, and no leftovers.

use crate::runtime::Runtime;
use support::bodies::c_body;
use support::{Case, Done, Ground, is_root, runner};

/// Asserts that the runner printed the error in lines of its own.
#[track_caller]
pub fn assert_clear(done: &Done, part: &str) {
    assert_eq!(done.code, 125, "{done:#?}");
    assert!(["failed", "refused"].contains(&done.outcome()), "{done:#?}");
    assert!(
        done.stderr.lines().all(|line| line.starts_with("runner: ")),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains(part), "{}", done.stderr);
    assert!(done.stderr.lines().count() <= 4, "{}", done.stderr);
}

/// E-10
#[test]
fn a_caller_at_its_descriptor_limit_gets_an_error() {
    let ground = Ground::new();
    let mut clear = 0;
    for limit in [4, 5, 6, 8, 10, 12, 16] {
        let runtime = Runtime::new();
        let mut case = runtime.case(&ground, &[], &["/bin/true"]).without("I8");
        case.behind(&["prlimit", &format!("--nofile={limit}")]);
        let done = case.done();
        if done.code == 0 {
            assert_eq!(done.outcome(), "exited", "{done:#?}");
        } else {
            assert_eq!(done.code, 125, "{done:#?}");
            assert!(
                done.stderr.starts_with("runner: "),
                "{limit}: {}",
                done.stderr
            );
            assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
            clear += 1;
        }
        runtime.assert_nothing_left(&[]);
    }
    assert!(0 < clear);
}

/// E-10
#[test]
fn a_caller_at_its_process_limit_gets_an_error() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    if is_root() {
        // The limit does not count for uid 0.
        println!("only an ordinary user has a limit of processes");
        return;
    }
    let mut case = runtime.case(&ground, &[], &["/bin/true"]);
    case.behind(&["prlimit", "--nproc=1"]);
    let done = case.done();
    assert_clear(&done, "rocess");
    runtime.assert_nothing_left(&[]);
}

/// Runs in its own mount namespace, where `script` may mount.
fn elsewhere(runtime: &Runtime, ground: &Ground, script: &str) -> Done {
    let mut case = runtime.case(ground, &[], &["/bin/true"]);
    let script = format!("set -e; {script}; exec \"$@\"");
    let flags = if is_root() { "-m" } else { "-Urm" };
    case.behind(&["unshare", flags, "/bin/sh", "-c", &script, "sh"]);
    case.done()
}

/// E-10
#[test]
fn a_full_or_read_only_runtime_directory_is_reported() {
    let ground = Ground::new();
    for options in [
        "nr_inodes=1",
        "nr_inodes=2",
        "nr_inodes=3",
        "nr_inodes=4",
        "ro",
    ] {
        let runtime = Runtime::new();
        std::fs::create_dir(&runtime.path).expect("made");
        let at = runtime.path.display();
        let script = format!("mount -t tmpfs -o mode=711,{options} none {at}");
        let done = elsewhere(&runtime, &ground, &script);
        if options == "nr_inodes=4" && done.code == 0 {
            continue;
        }
        assert_clear(&done, "runtime directory");
    }
}

/// E-10: the record is written before anything is created.
#[test]
fn a_runtime_directory_without_free_space_is_reported() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    std::fs::create_dir(&runtime.path).expect("made");
    let at = runtime.path.display();
    let script =
        format!("mount -t tmpfs -o mode=711,size=4096 none {at}; printf %4096s x >{at}/full");
    let done = elsewhere(&runtime, &ground, &script);
    if done.report["cgroup_backend"] == "none" && done.code == 0 {
        // Without cgroups there was nothing to record.
        return;
    }
    assert_clear(&done, "runtime directory");
}

/// E-10, E-22: a run creates no files on the host, so /tmp may be read-only.
#[test]
fn a_read_only_temporary_directory_does_not_matter() {
    let ground = Ground::new();
    let runtime = Runtime::new();
    std::fs::create_dir(&runtime.path).expect("made");
    let at = runtime.path.display();
    let temporary = std::env::temp_dir();
    // Two directories below it are writable: the ground, for the report, and the runtime directory,
    // which is its own file system.
    let script = format!(
        "for d in /tmp {temporary}; do mount --bind $d $d; done; \
         mount --bind {ground} {ground}; mount -t tmpfs -o mode=711 none {at}; \
         for d in /tmp {temporary}; do mount -o remount,bind,ro $d; \
         if touch $d/written 2>/dev/null; then exit 97; fi; done",
        temporary = temporary.display(),
        ground = ground.path("").display(),
    );
    elsewhere(&runtime, &ground, &script).assert_exited(0);
}

/// E-12
#[test]
fn a_host_without_user_namespaces_gets_the_setting_by_name() {
    let ground = Ground::new();
    let mut case = ground.command(&["run", "--", "/bin/true"]);
    let script = "echo 0 >/proc/sys/user/max_user_namespaces; exec \"$@\"";
    case.behind(&["unshare", "-Ur", "/bin/sh", "-c", script, "sh"]);
    let runtime = Runtime::new();
    case.command
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", &runtime.path);
    let done = case.done();
    assert_clear(&done, "user.max_user_namespaces");
    runtime.assert_nothing_left(&[]);
}

/// A program that makes one system call fail with an errno, and then executes its arguments.
const WITHOUT: &str = include_str!("../bodies/lifetime/host_without.c");

/// A run that would print `ran`, in which `call` fails with `errno`.
pub fn without(call: libc::c_long, errno: i32, flags: &[&str]) -> Done {
    // A separate runtime directory: this run cannot clean up leftovers of other cases.
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let words: Vec<&str> = [&["run"], flags, &["--", "/bin/echo", "ran"]].concat();
    let mut case = runtime.command(&ground, &words);
    behind_filter(&mut case, call, errno);
    case.done()
}

/// Makes `call` fail with `errno`, in the case and all its processes.
pub fn behind_filter(case: &mut Case<'_>, call: libc::c_long, errno: i32) {
    let program = c_body("without", WITHOUT);
    let (call, errno) = (call.to_string(), errno.to_string());
    case.behind(&[program.to_str().expect("plain"), &call, &errno]);
}

/// E-11
#[test]
fn without_landlock_the_second_line_is_absent_and_strictly_refused() {
    for errno in [libc::ENOSYS, libc::EOPNOTSUPP] {
        let done = without(libc::SYS_landlock_create_ruleset, errno, &[]);
        done.assert_exited(0);
        let landlock = &done.report["enforcement"]["landlock"];
        assert_eq!(landlock["state"], "absent");
        let done = without(libc::SYS_landlock_create_ruleset, errno, &["--strict"]);
        done.assert_error("refused", "landlock_weaker");
    }
}

/// E-14, E-15: namespaces and seccomp are never optional.
#[test]
fn without_the_first_line_of_defence_nothing_runs() {
    for call in [
        libc::SYS_seccomp,
        libc::SYS_landlock_restrict_self,
        libc::SYS_capset,
        libc::SYS_pivot_root,
        libc::SYS_sethostname,
        libc::SYS_setsid,
    ] {
        let done = without(call, libc::EPERM, &[]);
        // The wrapper itself needs seccomp: its own filter is already loaded then.
        assert_eq!(
            (done.outcome(), done.code),
            ("failed", 125),
            "{call}: {done:#?}"
        );
        assert_eq!(done.text(), "", "{call}: the body ran");
        assert!(
            done.stderr.starts_with("runner: failed: "),
            "{}",
            done.stderr
        );
    }
}

/// A service manager's filter may forbid the call, and a host without a NIS domain does not need it.
#[test]
fn a_filter_without_setdomainname_is_no_obstacle() {
    let done = without(libc::SYS_setdomainname, libc::EPERM, &[]);
    assert_eq!((done.outcome(), done.code), ("exited", 0), "{done:#?}");
}

/// E-17: the runner cannot run inside a run, and says so.
#[test]
fn a_runner_inside_a_run_fails_clearly() {
    let ground = Ground::new();
    let program = runner();
    let program = program.to_str().expect("plain");
    let done = ground.run(
        &[&format!("--ro={program}")],
        &[program, "run", "--", "/bin/true"],
    );
    done.assert_exited(125);
    assert!(done.stderr.starts_with("runner: "), "{}", done.stderr);
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
}
