//! The cgroups of one run.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;

use runner_sandbox::cgroups::{
    Backend, CgroupLimits, Controller, RunCgroup, Unified, choose, observe, remove_leftovers,
};
use spec::report::EnforcementState;
use sys::cgroup::CLONE_INTO_CGROUP;

use crate::host::{
    ORDINARY_UID, Parent, argument, chown_group, helper, is_helper, shell, skip, start, until, v1,
};

const MIB: u64 = 1 << 20;
/// A self-sustaining tree: each process starts others for ever.
const BOMB: &str = "exec perl -e 'fork while 1'";

fn limits() -> CgroupLimits {
    CgroupLimits {
        memory_bytes: Some(64 * MIB),
        processes: Some(24),
        cpu_millis: Some(1500),
        kills_one: false,
    }
}

fn absent(controller: Controller) -> (Controller, String) {
    (controller, "not in this tree".to_owned())
}

fn count(value: Result<Option<u64>, runner_sandbox::cgroups::CgroupError>) -> u64 {
    value.expect("read").expect("counted here")
}

fn is_empty(run: &RunCgroup) -> bool {
    run.paths().iter().all(|path| {
        let inside = std::fs::read_to_string(format!("{path}/cgroup.procs"));
        inside.expect("read").is_empty()
    })
}

fn end(run: RunCgroup, mut child: std::process::Child) {
    run.kill().expect("killed");
    child.wait().expect("waited for");
    until("the cgroups are empty", || is_empty(&run));
    run.close().expect("removed");
}

#[test]
fn each_limit_stands_in_the_group_that_the_body_is_in() {
    let Some(parent) = Parent::make() else { return };
    let Some(backend) = v1(&parent) else { return };
    let mut run = backend.create("limits").expect("made");
    let tasks = run.apply(&limits()).expect("limited");
    let child = start(&run, &tasks, "exec sleep 1000");
    let read = |file: &str| {
        let path = run.paths().into_iter().find_map(|path| {
            let text = std::fs::read_to_string(format!("{path}/{file}")).ok()?;
            Some(text.trim().to_owned())
        });
        path.unwrap_or_else(|| panic!("no {file}"))
    };
    assert_eq!(read("memory.limit_in_bytes"), (64 * MIB).to_string());
    assert_eq!(read("pids.max"), "24");
    assert_eq!(read("cpu.cfs_quota_us"), "150000");
    for path in run.paths() {
        until(&format!("the body joins {path}"), || {
            let inside = std::fs::read_to_string(format!("{path}/cgroup.procs")).unwrap();
            inside.lines().any(|pid| pid == child.id().to_string())
        });
    }
    assert!(
        run.coverage()
            .iter()
            .all(|axis| axis.state == EnforcementState::Enforced)
    );
    assert_eq!(run.paths(), backend.planned_paths("limits"));
    end(run, child);
    parent.assert_empty();
}

#[test]
fn a_body_that_outgrows_its_memory_is_killed_and_counted() {
    let Some(parent) = Parent::make() else { return };
    let Some(backend) = v1(&parent) else { return };
    let mut run = backend.create("oom").expect("made");
    let limits = CgroupLimits {
        memory_bytes: Some(16 * MIB),
        ..CgroupLimits::default()
    };
    let tasks = run.apply(&limits).expect("limited");
    let mut child = start(
        &run,
        &tasks,
        "x=$(head -c 200000000 /dev/zero | tr '\\0' x)",
    );
    let status = child.wait().expect("waited for");
    assert!(!status.success());
    assert!(0 < count(run.oom_kills()));
    let peak = count(run.memory_peak_bytes());
    assert!((8 * MIB..=16 * MIB).contains(&peak), "peak {peak}");
    run.close().expect("removed");
    parent.assert_empty();
}

#[test]
fn files_in_memory_are_distinguished_from_memory_of_processes() {
    let Some(parent) = Parent::make() else { return };
    let Some(backend) = v1(&parent) else { return };
    let directory = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let file = directory.path().join("file");
    let mut run = backend.create("files").expect("made");
    let tasks = run.apply(&limits()).expect("limited");
    assert_eq!(count(run.memory_file_bytes()), 0);
    let script = format!("head -c 8388608 /dev/zero > {}", file.display());
    let mut child = start(&run, &tasks, &script);
    assert!(child.wait().expect("waited for").success());
    assert!(8 * MIB <= count(run.memory_file_bytes()));
    run.close().expect("removed");
    parent.assert_empty();
}

#[test]
fn a_fork_bomb_stays_below_its_limit_and_is_gone_after_the_kill() {
    let Some(parent) = Parent::make() else { return };
    let Some(backend) = v1(&parent) else { return };
    let mut run = backend.create("bomb").expect("made");
    let tasks = run.apply(&limits()).expect("limited");
    let child = start(&run, &tasks, BOMB);
    until("the bomb meets its limit", || {
        0 < count(run.process_limit_hits())
    });
    assert!((2..=24).contains(&count(run.processes_peak())));
    assert!(!is_empty(&run), "it lives");
    end(run, child);
    parent.assert_empty();
}

#[test]
fn a_fork_bomb_is_gone_after_the_kill_also_without_a_version_2_tree() {
    let Some(parent) = Parent::make() else { return };
    let Some(Backend::V1(mut hybrid)) = v1(&parent) else {
        return;
    };
    let place = |controller: &str| {
        let mut places = parent.places().into_iter();
        let found = places.find(|path| path.starts_with(format!("/sys/fs/cgroup/{controller}")));
        found.map(|path| path.to_str().expect("text").to_owned())
    };
    hybrid.unified = None;
    for freezer in [place("freezer"), None] {
        hybrid.freezer = freezer;
        let mut run = Backend::V1(hybrid.clone()).create("bomb").expect("made");
        assert!(run.clone_into().is_none());
        let tasks = run.apply(&limits()).expect("limited");
        let child = start(&run, &tasks, BOMB);
        until("the bomb meets its limit", || {
            0 < count(run.process_limit_hits())
        });
        end(run, child);
        parent.assert_empty();
    }
}

#[test]
fn cpu_time_of_the_whole_tree_is_counted_and_split() {
    let Some(parent) = Parent::make() else { return };
    let Some(backend) = v1(&parent) else { return };
    let mut run = backend.create("cpu").expect("made");
    let tasks = run.apply(&limits()).expect("limited");
    let burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let mut child = start(&run, &tasks, &format!("({burn}) & ({burn}) & wait"));
    assert!(child.wait().expect("waited for").success());
    let time = run.cpu_time().expect("read").expect("counted here");
    let (user, system) = (time.user_us.unwrap(), time.system_us.unwrap());
    assert!(10_000 < time.total_us, "{time:?}");
    assert!(
        system < user && user + system <= time.total_us + 1,
        "{time:?}"
    );
    run.close().expect("removed");
    parent.assert_empty();
}

#[test]
fn a_share_above_that_of_a_group_further_up_is_no_error() {
    let Some(parent) = Parent::make() else { return };
    let Some(backend) = v1(&parent) else { return };
    let quota = parent
        .places()
        .into_iter()
        .map(|place| place.join("cpu.cfs_quota_us"))
        .find(|path| path.exists())
        .expect("the cpu hierarchy");
    std::fs::write(quota, "50000").expect("limited");
    let mut run = backend.create("share").expect("made");
    run.apply(&limits()).expect("the tighter one holds");
    run.close().expect("removed");
    parent.assert_empty();
}

#[test]
fn a_limit_that_the_kernel_refuses_is_an_error_and_leaves_no_group() {
    let Some(parent) = Parent::make() else { return };
    let Some(backend) = v1(&parent) else { return };
    let mut run = backend.create("refused").expect("made");
    let limits = CgroupLimits {
        cpu_millis: Some(u64::MAX),
        ..CgroupLimits::default()
    };
    let error = run.apply(&limits).expect_err("no such share");
    assert!(error.to_string().contains("cpu.cfs_quota_us"), "{error}");
    drop(run);
    parent.assert_empty();
}

#[test]
fn a_dropped_guard_kills_and_removes() {
    let Some(parent) = Parent::make() else { return };
    let Some(backend) = v1(&parent) else { return };
    let mut run = backend.create("dropped").expect("made");
    let tasks = run.apply(&limits()).expect("limited");
    let mut child = start(&run, &tasks, BOMB);
    until("the bomb meets its limit", || {
        0 < count(run.process_limit_hits())
    });
    // An unreaped process stays in the group.
    let waiter = std::thread::spawn(move || child.wait());
    drop(run);
    waiter.join().expect("joined").expect("waited for");
    parent.assert_empty();
}

#[test]
fn only_leftovers_of_a_dead_run_are_killed_and_removed() {
    let Some(parent) = Parent::make() else { return };
    let Some(Backend::V1(hybrid)) = v1(&parent) else {
        return;
    };
    let mut without_tree = hybrid.clone();
    without_tree.unified = None;
    for backend in [hybrid, without_tree].map(Backend::V1) {
        let mut run = backend.create("left").expect("made");
        let tasks = run.apply(&limits()).expect("limited");
        let mut child = start(&run, &tasks, BOMB);
        until("the bomb meets its limit", || {
            0 < count(run.process_limit_hits())
        });
        let paths = run.paths();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        // Like a killed supervisor: no guard runs.
        std::mem::forget(run);
        let answers = remove_leftovers("other", &paths);
        assert!(answers.iter().all(Result::is_err), "not that run's");
        assert!(child.try_wait().expect("asked").is_none(), "left alone");
        let waiter = std::thread::spawn(move || child.wait());
        // Removing a missing group is not an error.
        for _ in 0..2 {
            for answer in remove_leftovers("left", &paths) {
                answer.expect("removed");
            }
        }
        waiter.join().expect("joined").expect("waited for");
        parent.assert_empty();
    }
}

#[test]
fn a_second_run_of_the_same_id_is_refused_and_does_not_touch_the_first() {
    let Some(parent) = Parent::make() else { return };
    let Some(backend) = v1(&parent) else { return };
    let mut first = backend.create("same").expect("made");
    first.apply(&limits()).expect("limited");
    if first.clone_into().is_some() {
        backend.create("same").expect_err("there is one");
    }
    for path in first.paths() {
        assert!(std::path::Path::new(&path).exists(), "{path}");
    }
    first.close().expect("removed");
    parent.assert_empty();
}

/// The version 2 hierarchy of this host, without controllers: everything except the limits can be tested.
fn unified(parent: &Parent) -> Option<Unified> {
    let place = parent
        .places()
        .into_iter()
        .find(|place| place.join("cgroup.kill").exists());
    let Some(place) = place else {
        skip("no version 2 tree with cgroup.kill (Linux 5.14)");
        return None;
    };
    Some(Unified {
        parent: place.to_str().expect("text").to_owned(),
        controllers: Vec::new(),
        to_enable: Vec::new(),
        move_to_leaf: false,
        missing: Controller::OF_V2.into_iter().map(absent).collect(),
        in_delegated_scope: false,
    })
}

#[test]
fn a_process_cloned_into_the_version_2_group_is_in_it_from_its_first_instruction() {
    let Some(parent) = Parent::make() else { return };
    let Some(unified) = unified(&parent) else {
        return;
    };
    let mut run = Backend::V2(unified).create("cloned").expect("made");
    assert!(run.apply(&limits()).expect("nothing to limit").is_empty());
    assert!(is_empty(&run), "empty at first");
    let child = clone_into(run.clone_into().expect("a version 2 group"));
    let inside = std::fs::read_to_string(format!("{}/cgroup.procs", run.paths()[0])).unwrap();
    assert_eq!(inside.trim(), child.as_raw_nonzero().to_string());
    run.kill().expect("killed");
    until("the cgroups are empty", || is_empty(&run));
    let ended = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
    let (_, status) = ended.expect("waited for").expect("ended");
    assert_eq!(status.terminating_signal(), Some(9));
    assert!(
        run.cpu_time().expect("read").is_some(),
        "cpu.stat needs no controller"
    );
    assert_eq!(run.oom_kills().expect("read"), None);
    run.close().expect("removed");
    parent.assert_empty();
}

/// Clones a child that only waits.
#[expect(unsafe_code, reason = "no library function clones into a group")]
fn clone_into(group: BorrowedFd<'_>) -> rustix::process::Pid {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = u64::try_from(libc::SIGCHLD).expect("positive");
    arguments.cgroup = u64::try_from(group.as_raw_fd()).expect("positive");
    let (pointer, size) = (
        std::ptr::from_ref(&arguments),
        size_of::<libc::clone_args>(),
    );
    // SAFETY: like fork(2); the child makes plain system calls only.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, pointer, size) };
    if pid == 0 {
        loop {
            // SAFETY: waits for a signal, touches no memory.
            unsafe { libc::pause() };
        }
    }
    let pid = i32::try_from(pid).expect("a process id");
    rustix::process::Pid::from_raw(pid).expect("cloned")
}

#[test]
fn a_delegated_supervisor_goes_into_a_leaf_and_a_refused_controller_is_a_gap() {
    let name = "groups::a_delegated_supervisor_goes_into_a_leaf_and_a_refused_controller_is_a_gap";
    if is_helper(name) {
        return move_to_leaf(argument("PARENT"));
    }
    let Some(parent) = Parent::make() else { return };
    let Some(unified) = unified(&parent) else {
        return;
    };
    if std::fs::read_to_string(format!("{}/cgroup.controllers", unified.parent))
        .is_ok_and(|text| text.contains("memory"))
    {
        return skip("the controllers of this tree would not be refused");
    }
    let output = helper(name, &[("PARENT", unified.parent.as_str())])
        .output()
        .expect("ran");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let leaf = format!("{}/runner-supervisor", unified.parent);
    std::fs::remove_dir(leaf).expect("the leaf was made");
    parent.assert_empty();
}

fn move_to_leaf(parent: String) {
    std::fs::write(format!("{parent}/cgroup.procs"), "0").expect("as systemd starts us");
    let backend = Backend::V2(Unified {
        parent: parent.clone(),
        controllers: vec![Controller::Memory],
        to_enable: vec![Controller::Memory],
        move_to_leaf: true,
        missing: vec![absent(Controller::Pids), absent(Controller::Cpu)],
        in_delegated_scope: true,
    });
    let mut run = backend.create("leaf").expect("made");
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("read");
    assert!(
        own.lines()
            .any(|line| line.starts_with("0::") && line.ends_with("/runner-supervisor"))
    );
    let inside = std::fs::read_to_string(format!("{parent}/cgroup.procs")).expect("read");
    assert_eq!(inside, "", "the parent can hand out controllers");
    let memory = &run.coverage()[0];
    assert_eq!(memory.state, EnforcementState::Weaker);
    assert!(
        memory
            .reason
            .as_ref()
            .unwrap()
            .contains("cgroup.subtree_control")
    );
    run.apply(&limits()).expect("a gap is no error here");
    run.close().expect("removed");
}

#[test]
fn an_ordinary_user_is_limited_in_groups_that_were_chowned_to_him() {
    let name = "groups::an_ordinary_user_is_limited_in_groups_that_were_chowned_to_him";
    if is_helper(name) {
        return limited_as_user(argument("PARENT"));
    }
    let Some(parent) = Parent::make() else { return };
    if v1(&parent).is_none() {
        return;
    }
    parent.places().iter().for_each(|place| chown_group(place));
    let run = helper(name, &[("PARENT", parent.name.as_str())])
        .uid(ORDINARY_UID)
        .gid(ORDINARY_UID)
        .output();
    let output = match run {
        Ok(output) => output,
        Err(error) => return skip(&format!("another user cannot run this program: {error}")),
    };
    assert!(output.status.success(), "{output:?}");
    // A name that does not match runs no test, and does not fail.
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}");
    parent.assert_empty();
}

fn limited_as_user(parent: String) {
    assert!(!rustix::process::geteuid().is_root());
    let host = observe(Some(&parent), false).expect("observed");
    let backend = choose(Some(&parent), &host);
    assert_eq!(backend.name(), "v1", "{backend:?}");
    let mut run = backend.create("user").expect("made");
    let tasks = run.apply(&limits()).expect("limited");
    let child = start(&run, &tasks, BOMB);
    until("the bomb meets its limit", || {
        0 < count(run.process_limit_hits())
    });
    end(run, child);
    let own = choose(None, &observe(None, false).expect("observed"));
    assert_eq!(own.name(), "none", "nothing else was given to him: {own:?}");
}

#[test]
fn a_run_without_groups_has_nothing_to_join_count_or_remove() {
    let backend = Backend::None {
        reason: "not mounted".to_owned(),
    };
    let mut run = backend.create("none").expect("nothing to make");
    assert!(run.apply(&limits()).expect("nothing to limit").is_empty());
    assert!(run.clone_into().is_none() && run.paths().is_empty());
    assert_eq!(run.cpu_time().expect("nothing to read"), None);
    assert!(
        run.coverage()
            .iter()
            .all(|axis| axis.state != EnforcementState::Enforced)
    );
    let mut bystander = shell("exec sleep 1000");
    run.kill().expect("nothing to kill");
    run.close().expect("nothing to remove");
    assert!(bystander.try_wait().expect("asked").is_none());
    bystander.kill().expect("killed");
    bystander.wait().expect("waited for");
}
