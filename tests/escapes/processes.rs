//! Other processes: the runner, init, other runs and the host's, through /proc, ptrace and signals.

use super::attempts::{assert_all_refused, assert_lines, attempt_with, program, shell};
use support::{Ground, is_root};

/// B-24 (CVE-2019-13272, CVE-2016-8659).
#[test]
fn no_other_process_can_be_traced_read_or_robbed() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/no_other_process_can_be_traced_read_or_robbed.c");
    let host_pid = std::process::id().to_string();
    let done = attempt_with(&ground, &[], "trace", text, &[&host_pid]);
    assert_all_refused(&done, 25, &["EPERM"]);
}

/// B-05, B-06, B-25 (CVE-2016-9962): from the body's first instruction on, repeatedly.
#[test]
fn init_is_closed_from_the_body_s_first_instruction_on() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/init_is_closed_from_the_body_s_first_instruction_on.c");
    let done = attempt_with(&ground, &[], "race-init", text, &[]);
    let text = done.text();
    assert!(text.lines().all(|line| line == "tried"), "{text}");
    assert!(!text.is_empty());
}

/// B-05: the links of the body's own processes lead to its own root, by every path.
#[test]
fn the_links_of_proc_to_roots_and_directories_stay_inside() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/the_links_of_proc_to_roots_and_directories_stay_inside.c");
    assert_lines(
        &attempt_with(&ground, &[], "links-of-proc", text, &[]),
        "enough 1",
    );
}

/// B-06, F-08.
#[test]
fn no_process_of_the_host_is_in_proc() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/no_process_of_the_host_is_in_proc.c");
    let environ = format!("/proc/{}/environ", std::process::id());
    let done = attempt_with(&ground, &[], "list-pids", text, &[&environ]);
    assert_lines(&done, "1\n0\nenviron ENOENT");
}

/// B-26.
#[test]
fn signals_reach_the_body_s_own_processes_only() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/signals_reach_the_body_s_own_processes_only.c");
    let host_pid = std::process::id().to_string();
    let done = attempt_with(&ground, &[], "signals", text, &[&host_pid]);
    let text = done.text();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.pop(), Some("alive"));
    // Init survives, whether the kernel accepts the signal or Landlock refuses it.
    let init = lines.pop().expect("a line");
    assert!(matches!(init, "init ok" | "init EPERM"), "{init}");
    assert_eq!(
        lines,
        [
            "kill ESRCH",
            "tgkill ESRCH",
            "tkill ESRCH",
            "queue ESRCH",
            "pidfd ESRCH",
            "owner ESRCH",
            "group ESRCH",
            "priority ESRCH",
            "limits ESRCH",
            "affinity ESRCH",
            "before 1",
            "after 9",
        ]
    );
}

/// B-61: init has the body's uid; a body that ends init is reported like a fault of the host.
#[test]
fn the_limits_the_processors_and_the_priority_of_init_are_not_the_body_s() {
    let ground = Ground::new();
    let text = include_str!(
        "../bodies/escapes/the_limits_the_processors_and_the_priority_of_init_are_not_the_body_s.c"
    );
    let done = attempt_with(&ground, &[], "limits-of-init", text, &[]);
    assert_lines(
        &done,
        "cpu EPERM
         memory EPERM
         files EPERM
         affinity EPERM
         scheduler EPERM
         param EPERM
         attr EPERM
         nice EPERM
         nice-group EPERM
         nice-user EPERM
         nice-uid EPERM
         io EPERM
         io-group EPERM
         io-user EPERM
         own-files ok
         pid-files ok
         own-affinity ok
         thread-affinity ok
         own-nice ok
         own-io ok",
    );
}

/// B-68: before Landlock ABI 6, and in the domain of init, the kernel takes the signals, but init blocks
/// them.
#[test]
fn init_does_not_hear_the_body() {
    let text = include_str!("../bodies/escapes/init_does_not_hear_the_body.c");
    let signals = if super::SHARES_DOMAIN_OF_INIT || sys::landlock::abi().expect("known") < 6 {
        "blocked"
    } else {
        "refused"
    };
    for policy in ["default", "strict"] {
        let ground = Ground::new();
        let flags = ["--syscalls", policy];
        let done = attempt_with(&ground, &flags, "init-hears", text, &[signals]);
        assert_lines(&done, "robust-list EPERM\nreaped");
    }
}

/// B-42: System V objects and message queues belong to the run, and are removed with it (invariant I6).
#[test]
fn objects_of_system_v_ipc_are_the_run_s_own() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/objects_of_system_v_ipc_are_the_run_s_own.c");
    for _run in 0..2 {
        let done = attempt_with(&ground, &[], "ipc", text, &[]);
        let text = done.text();
        // Landlock allows no new files in the file system of the queue.
        let text = text.replace("queue EACCES", "queue ok");
        let expected = "before 0 0 0\nshm ok\nsem ok\nmsg ok\nqueue ok\nafter 1 1 1\n";
        assert_eq!(text, expected);
    }
}

/// B-57, B-39, B-43, F-09: two concurrent runs of the same caller.
#[test]
fn a_second_run_sees_nothing_of_the_first() {
    let first = Ground::new();
    let talk = first.path("talk");
    std::fs::create_dir(&talk).expect("made");
    let shared = talk.to_str().expect("a plain path");
    let hold = include_str!("../bodies/escapes/a_second_run_sees_nothing_of_the_first.c");
    let look = include_str!("../bodies/escapes/a_second_run_sees_nothing_of_the_first_2.c");
    let holder = program("hold", hold);
    let holding = super::attempts::case(
        &first,
        &["--rw", shared, "-e", "SECRET=of-the-first"],
        &holder,
        &[shared],
    );
    let mut running = holding.start();
    running.until("the first is there", || talk.join("started").exists());
    let second = Ground::new();
    let done = super::attempts::case(&second, &[], &program("look", look), &[]).done();
    std::fs::write(talk.join("end"), "").expect("written");
    running.done().assert_exited(0);
    done.assert_exited(0);
    let text = done.text();
    let (connect, rest) = text.split_once('\n').expect("lines");
    assert!(
        matches!(connect, "connect ECONNREFUSED" | "connect EPERM"),
        "{text}"
    );
    assert_eq!(
        rest,
        "bind ok\nshm ENOENT\nfile ENOENT\ntemporary ENOENT\nport ECONNREFUSED\nsame port ok\n\
         runner EPERM\nothers 0\n"
    );
}

/// B-14: no body has the host's uid 0; as root each run has its own id of the range.
#[test]
fn the_body_s_uid_on_the_host_is_never_0() {
    let ground = Ground::new();
    let mut running = ground.command(&["run", "--", "/bin/sleep", "60"]).start();
    let marker = ground.marker().to_owned();
    running.until("the body runs", || {
        !support::invariants::living(&marker).is_empty()
    });
    let uids_of = |pid: i32| -> Vec<u32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("readable");
        let ids = status
            .lines()
            .filter_map(|line| line.strip_prefix("Uid:").or(line.strip_prefix("Gid:")));
        ids.flat_map(str::split_whitespace)
            .map(|id| id.parse().expect("a number"))
            .collect()
    };
    let found: Vec<Vec<u32>> = support::invariants::living(&marker)
        .into_iter()
        .map(uids_of)
        .collect();
    running.signal(rustix::process::Signal::TERM);
    running.done().assert_outcome("cancelled", 143);
    assert!(!found.is_empty());
    for ids in found {
        assert_eq!(ids.len(), 8);
        for id in ids {
            if is_root() {
                assert!((0x7000_0000..=0x7000_ffff).contains(&id), "{id}");
            } else {
                let own = rustix::process::geteuid().as_raw();
                let group = rustix::process::getegid().as_raw();
                assert!(id == own || id == group, "{id}");
            }
        }
    }
}

/// B-14: a file that is created in a directory of the caller belongs to the directory's owner, or
/// to the caller.
#[test]
fn a_file_made_in_a_lent_directory_belongs_to_its_owner() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let ground = Ground::new();
    let lent = ground.path("lent");
    std::fs::create_dir(&lent).expect("made");
    if is_root() {
        rustix::fs::chown(
            &lent,
            Some(rustix::fs::Uid::from_raw(40_199)),
            Some(rustix::fs::Gid::from_raw(40_199)),
        )
        .expect("given away");
    }
    let path = lent.to_str().expect("a plain path");
    let text = format!("echo made >{path}/file; chmod 755 {path}/file");
    shell(&ground, &["--rw", path], &text);
    let made = std::fs::metadata(lent.join("file")).expect("made");
    let owner = std::fs::metadata(&lent).expect("there");
    assert_eq!((made.uid(), made.gid()), (owner.uid(), owner.gid()));
    assert_eq!(made.permissions().mode() & 0o7777, 0o755);
}
