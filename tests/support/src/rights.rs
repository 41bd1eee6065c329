//! Which rights a process has, as the kernel shows them, and which each process of a run is to have.

use std::collections::BTreeSet;
use std::fs;

use crate::is_root;

const NAMESPACES: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];
/// CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_KILL, CAP_SETGID, CAP_SETUID.
const FOR_CLEAN_UP: u64 = 0b1110_1011;

/// What proc_pid_status(5) and /proc/PID/ns show of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The real one.
    pub uid: u32,
    /// Capabilities.
    pub permitted: u64,
    /// Capabilities.
    pub effective: u64,
    /// Capabilities.
    pub bounding: u64,
    /// Whether a program gives it none.
    pub no_new_privs: bool,
    /// Filters beyond those of this test.
    pub filters: u32,
    /// Namespaces other than those of this test. `None`: not to be seen, since the process is not
    /// dumpable.
    pub namespaces: Option<BTreeSet<&'static str>>,
}

/// A word of proc_pid_status(5).
pub fn field(pid: &str, key: &str) -> Option<String> {
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

/// The number of filters of a process, or of this test (`self`).
pub fn filters(pid: &str) -> u64 {
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

/// The rights of a process.
pub fn rights(pid: i32) -> Rights {
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

/// The children of a process with one thread.
pub fn children(pid: i32) -> Vec<i32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.unwrap_or_default();
    let pids = listed.split_whitespace().map(str::parse);
    pids.map(|pid| pid.expect("a pid")).collect()
}

/// The first process of a body, as a child of its supervisor.
pub fn init_of(pid: i32) -> Option<i32> {
    let comm = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let is_init = |pid: &i32| comm(*pid).is_some_and(|comm| comm == "init\n");
    children(pid).into_iter().find(is_init)
}

/// A supervisor before the body's start.
pub fn of_caller() -> Rights {
    rights(rustix::process::getpid().as_raw_nonzero().get())
}

/// A supervisor from the body's start on.
pub fn of_supervisor() -> Rights {
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
pub fn of_body(uid: u32, namespaces: Option<BTreeSet<&'static str>>) -> Rights {
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
pub fn of_init(uid: u32) -> Rights {
    Rights {
        filters: 2,
        ..of_body(uid, is_root().then(kinds_of_init))
    }
}

/// Asserts that the uid is one for a body.
pub fn assert_uid_of_body(uid: u32) {
    if is_root() {
        assert!((0x7000_0000..=0x7000_ffff).contains(&uid), "{uid}");
    } else {
        assert_eq!(uid, rustix::process::geteuid().as_raw());
    }
}

/// The kinds of namespaces that this kernel has. Every body has its own of each.
pub fn kinds() -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::from(NAMESPACES);
    kinds.retain(|name| fs::exists(format!("/proc/self/ns/{name}")).expect("looked"));
    kinds
}

/// Init keeps the cgroup namespace of the host: the body's begins at the group that only the body joins.
pub fn kinds_of_init() -> BTreeSet<&'static str> {
    let mut kinds = kinds();
    kinds.remove("cgroup");
    kinds
}

/// A process that gave up its rights and fills no directory.
pub fn of_confined(bounding: u64) -> Rights {
    let uid = match is_root() {
        // `nobody`.
        true => 65534,
        false => rustix::process::geteuid().as_raw(),
    };
    Rights {
        bounding,
        ..of_body(uid, is_root().then(BTreeSet::new))
    }
}

/// The children of a supervisor under a filter, without init.
pub fn confined_rights(supervisor: i32) -> Vec<Rights> {
    let init = init_of(supervisor);
    let children = children(supervisor).into_iter();
    let children = children.filter(|pid| Some(*pid) != init);
    children.map(rights).collect()
}
