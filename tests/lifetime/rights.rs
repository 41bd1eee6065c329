//! Which rights each process of a run has in each phase, as the kernel shows them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use support::{Ground, Running, is_root, runner};

const NAMESPACES: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];
/// CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_KILL, CAP_SETGID, CAP_SETUID.
const FOR_CLEAN_UP: u64 = 0b1110_1011;

/// What proc_pid_status(5) and /proc/PID/ns show of a process.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    uid: u32,
    permitted: u64,
    effective: u64,
    bounding: u64,
    no_new_privs: bool,
    /// Filters beyond those of this test.
    filters: u32,
    /// Namespaces other than those of this test. `None`: not to be seen, since the process is not
    /// dumpable.
    namespaces: Option<BTreeSet<&'static str>>,
}

fn field(pid: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next().map(str::to_owned)
}

fn number(pid: &str, key: &str, radix: u32) -> u64 {
    let text = field(pid, key).expect("the process is there");
    u64::from_str_radix(&text, radix).expect("a number")
}

fn filters(pid: &str) -> u64 {
    number(pid, "Seccomp_filters", 10)
}

fn namespaces(pid: &str) -> Option<BTreeSet<&'static str>> {
    let link = |pid: &str, name: &str| fs::read_link(format!("/proc/{pid}/ns/{name}"));
    let mut other = BTreeSet::new();
    for name in NAMESPACES {
        // The kernel has no namespace of this kind.
        let Ok(own) = link("self", name) else {
            continue;
        };
        if link(pid, name).ok()? != own {
            other.insert(name);
        }
    }
    Some(other)
}

fn rights(pid: i32) -> Rights {
    let pid = pid.to_string();
    let beyond = filters(&pid).checked_sub(filters("self"));
    Rights {
        uid: number(&pid, "Uid", 10).try_into().expect("a uid"),
        permitted: number(&pid, "CapPrm", 16),
        effective: number(&pid, "CapEff", 16),
        bounding: number(&pid, "CapBnd", 16),
        no_new_privs: number(&pid, "NoNewPrivs", 10) == 1,
        filters: beyond.expect("inherited").try_into().expect("few"),
        namespaces: namespaces(&pid),
    }
}

fn children(pid: i32) -> Vec<i32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.unwrap_or_default();
    let pids = listed.split_whitespace().map(str::parse);
    pids.map(|pid| pid.expect("a pid")).collect()
}

fn init_of(pid: i32) -> Option<i32> {
    let comm = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let is_init = |pid: &i32| comm(*pid).is_some_and(|comm| comm == "init\n");
    children(pid).into_iter().find(is_init)
}

/// A supervisor before the body's start.
fn of_caller() -> Rights {
    rights(rustix::process::getpid().as_raw_nonzero().get())
}

/// A supervisor from the body's start on.
fn of_supervisor() -> Rights {
    let caller = of_caller();
    Rights {
        permitted: caller.permitted & FOR_CLEAN_UP,
        effective: caller.effective & FOR_CLEAN_UP,
        no_new_privs: true,
        filters: 1,
        ..caller
    }
}

/// Without a capability, and without a way to one.
fn of_body(uid: u32, namespaces: Option<BTreeSet<&'static str>>) -> Rights {
    Rights {
        uid,
        permitted: 0,
        effective: 0,
        bounding: 0,
        no_new_privs: true,
        filters: 1,
        namespaces,
    }
}

/// Init of a run, with a filter of its own above the body's.
fn of_init(uid: u32) -> Rights {
    Rights {
        filters: 2,
        ..of_body(uid, is_root().then(kinds_of_init))
    }
}

fn assert_uid_of_body(uid: u32) {
    if is_root() {
        assert!((0x7000_0000..=0x7000_ffff).contains(&uid), "{uid}");
    } else {
        assert_eq!(uid, rustix::process::geteuid().as_raw());
    }
}

/// The kinds of namespaces that this kernel has. Every body has its own of each.
fn kinds() -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::from(NAMESPACES);
    kinds.retain(|name| fs::exists(format!("/proc/self/ns/{name}")).expect("looked"));
    kinds
}

/// Init keeps the cgroup namespace of the host: the body's begins at the group that only the body joins.
fn kinds_of_init() -> BTreeSet<&'static str> {
    let mut kinds = kinds();
    kinds.remove("cgroup");
    kinds
}

fn confined(running: &mut Running<'_>) -> i32 {
    let pid = running.pid();
    running.until("the supervisor gives up its rights", || {
        filters(&pid.to_string()) > filters("self")
    });
    pid
}

/// B-69: while a bundle is unpacked.
#[test]
fn each_process_has_the_rights_of_its_phase() {
    let ground = Ground::new();
    let bundle = ground.bundle(&[
        ("manifest.yaml", "run: body.sh\n"),
        ("body.sh", "exec cat\n"),
    ]);
    let archive = fs::read(bundle).expect("read");
    let (end, mut pipe) = std::io::pipe().expect("a pipe");
    let mut case = ground.command(&["exec", "-"]);
    case.command.stdin(end);
    let mut running = case.start();
    pipe.write_all(&archive[..archive.len() / 2])
        .expect("written");
    let pid = running.pid();
    let reader_of = |pid| {
        let has_filter = |pid: &i32| field(&pid.to_string(), "Seccomp").as_deref() == Some("2");
        children(pid)
            .into_iter()
            .find(|child| has_filter(child) && init_of(pid) != Some(*child))
    };
    running.until("the reader gives up its rights", || {
        reader_of(pid).is_some_and(|reader| filters(&reader.to_string()) > filters("self"))
    });
    assert_eq!(rights(pid), of_caller());
    let reader = rights(reader_of(pid).expect("it waits for the rest"));
    let init = rights(init_of(pid).expect("it waits for its plan"));
    assert_uid_of_body(init.uid);
    assert_eq!((init.bounding, init.filters), (0, 0));
    assert_eq!(init.namespaces, Some(kinds_of_init()));
    let expected = Rights {
        bounding: reader.bounding,
        ..of_body(init.uid, is_root().then(BTreeSet::new))
    };
    assert_eq!(reader, expected);
    pipe.write_all(&archive[archive.len() / 2..])
        .expect("written");
    drop(pipe);
    running.done().assert_exited(0);
}

/// B-69: while the body runs.
#[test]
fn while_the_body_runs_no_process_has_more_than_it_needs() {
    for policy in ["default", "strict"] {
        let ground = Ground::new();
        let words = ["run", "-i", "--syscalls", policy, "--", "/bin/cat"];
        let mut case = ground.command(&words);
        case.command.stdin(Stdio::piped());
        let mut running = case.start();
        running.until_body_is("cat");
        let pid = confined(&mut running);
        assert_eq!(rights(pid), of_supervisor());
        let init = init_of(pid).expect("the body runs");
        let [body] = children(init)[..] else {
            panic!("one body");
        };
        assert_eq!(children(pid), [init]);
        running.until("init gives up its rights", || {
            filters(&init.to_string()) > filters("self") + 1
        });
        let found = rights(init);
        assert_uid_of_body(found.uid);
        assert_eq!(found, of_init(found.uid));
        assert_eq!(rights(body), of_body(found.uid, Some(kinds())));
        drop(running.child.stdin.take());
        running.done().assert_exited(0);
    }
}

/// B-69: while the body's output waits for its reader, and nobody but the supervisor is left.
#[test]
fn a_supervisor_that_drains_the_streams_has_no_right_back() {
    let ground = Ground::new();
    // More than one pipe holds and less than two.
    let script = "head -c 100000 /dev/zero";
    let words = ["run", "--grace=120s", "--", "/bin/sh", "-c", script];
    let mut running = ground.command(&words).start();
    let pid = confined(&mut running);
    running.until_printed(1);
    running.until("the body ends", || children(pid).is_empty());
    assert_eq!(rights(pid), of_supervisor());
    let done = running.done();
    done.assert_exited(0);
    assert_eq!(done.stdout.len(), 100_000);
}

/// B-69: after the clean-up, while the report waits for its reader.
#[test]
fn a_supervisor_that_reports_has_no_right_back() {
    let script = "head -c 500000 /dev/zero";
    let mut command = Command::new(runner());
    command.args(["run", "--json=-", "--", "/bin/sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
    let pid = i32::try_from(child.id()).expect("a pid");
    let mut stdout = child.stdout.take().expect("a pipe");
    while rustix::io::ioctl_fionread(stdout.as_fd()).expect("a pipe") == 0 {
        assert!(child.try_wait().expect("waited").is_none(), "no report");
        std::thread::yield_now();
    }
    assert!(children(pid).is_empty());
    assert_eq!(rights(pid), of_supervisor());
    let mut report = String::new();
    stdout.read_to_string(&mut report).expect("read");
    assert!(child.wait().expect("waited").success());
    assert!(report.contains("\"outcome\":\"exited\""), "{report:.200}");
}
