//! The diagnosis of a host, from facts that `run::doctor` collected.

mod images;
mod limits;
mod network;
mod summary;
mod surroundings;
pub mod user_namespaces;

use crate::plan::doctor::images::{OPENAT2, images, overlayfs};
pub use crate::plan::doctor::limits::{CgroupFacts, CgroupTree};
pub use crate::plan::doctor::network::NetworkFacts;
pub(crate) use crate::plan::doctor::surroundings::has_masked_proc;
pub use crate::plan::doctor::surroundings::{Control, Surroundings};
use crate::plan::doctor::user_namespaces::UserNamespaceSettings;
use spec::diagnosis::{Diagnosis, Item, Need, SCHEMA_VERSION, Verdict};
use spec::report::{EnforcementState, ErrorReport};

/// First Landlock ABI with everything that a run uses.
pub(crate) const LANDLOCK_FULL: u32 = 6;

/// The error of a run whose namespaces were made, but not what is in them.
const STEP_FAILED: &str = "sandbox_step_failed";

/// Facts about a host. The error of a `Result` says why not; a `String` there is the errno.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The program of the test runs.
    pub test_program: String,
    /// One real run of it.
    pub sandbox: Result<(), ErrorReport>,
    /// Each kind of namespace, after an attempt to make it.
    pub namespaces: Vec<(NamespaceKind, Result<(), String>)>,
    pub user_namespaces: UserNamespaceSettings,
    pub surroundings: Surroundings,
    /// System calls: name, Linux version that added it, and the errno if it is missing or a filter
    /// refuses it.
    pub calls: Vec<(&'static str, &'static str, Result<(), String>)>,
    pub seccomp_filter: bool,
    pub no_new_privs: bool,
    /// The Landlock ABI; 0: the kernel has no Landlock.
    pub landlock_abi: Result<u32, String>,
    pub cgroup: CgroupFacts,
    /// Effective uid of the caller.
    pub uid: u32,
    /// Root only: whether mounts of the caller's working directory can be idmapped.
    pub idmapped_mounts: Option<Result<(), String>>,
    /// Root only: the ids of runs that are not mapped here (`uids` or `gids`), and their range.
    pub uid_range: Option<(Option<&'static str>, String)>,
    /// The directory of run records.
    pub runtime_directory: Result<String, ErrorReport>,
    pub bundle_cache: Result<CacheFacts, ErrorReport>,
    /// An overlayfs with a writable upper layer.
    pub overlayfs: Result<(), String>,
    /// An overlayfs without an upper layer.
    pub read_only_overlayfs: Result<(), String>,
    pub network: NetworkFacts,
    /// Programs that bundles often use, with their paths.
    pub programs: Vec<(&'static str, Option<String>)>,
    /// What `runner-server` says of itself; `None`: it is not installed.
    pub server: Option<Result<String, String>>,
}

/// The cache of unpacked bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheFacts {
    pub directory: String,
    /// The directory is on a tmpfs.
    pub in_memory: bool,
    pub used_bytes: u64,
    /// The maximum of `used_bytes`.
    pub size_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceKind {
    User,
    Mount,
    Pid,
    Network,
    Ipc,
    Uts,
    Cgroup,
    Time,
}

impl NamespaceKind {
    /// In the order of the diagnosis.
    pub const ALL: [Self; 8] = [
        Self::User,
        Self::Mount,
        Self::Pid,
        Self::Network,
        Self::Ipc,
        Self::Uts,
        Self::Cgroup,
        Self::Time,
    ];

    /// The id of the item, and its effect.
    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::User => (
                "user_namespace",
                "a body's user and capabilities have no rights on the host",
            ),
            Self::Mount => ("mount_namespace", "a body has its own file tree"),
            Self::Pid => (
                "pid_namespace",
                "a body sees and signals only its own processes",
            ),
            Self::Network => (
                "network_namespace",
                "a body has its own loopback and no other network",
            ),
            Self::Ipc => (
                "ipc_namespace",
                "a body has its own shared memory and message queues",
            ),
            Self::Uts => ("uts_namespace", "a body does not see the host's name"),
            Self::Cgroup => ("cgroup_namespace", "a body does not see the host's cgroups"),
            Self::Time => (
                "time_namespace",
                "a body's monotonic and boot clocks start with the run",
            ),
        }
    }
}

/// The diagnosis of a host with these facts.
#[must_use]
pub(crate) fn diagnose(facts: &Facts) -> Diagnosis {
    let items: Vec<Item> = [
        vec![sandbox(facts)],
        namespaces(facts),
        calls(facts),
        vec![seccomp(facts), no_new_privs(facts), landlock(facts)],
        limits::items(facts),
        root_only(facts),
        vec![
            runtime_directory(facts),
            bundle_cache(facts),
            overlayfs(facts),
            images(facts),
        ],
        network::items(&facts.network),
        programs(facts),
        server(facts),
    ]
    .concat();
    let is_unmet = |need| {
        items
            .iter()
            .any(|item| item.needed_for == need && item.state != EnforcementState::Enforced)
    };
    let verdict = if is_unmet(Need::Running) {
        Verdict::CannotRun
    } else if is_unmet(Need::Strength) {
        Verdict::Degraded
    } else {
        Verdict::Full
    };
    Diagnosis {
        schema_version: SCHEMA_VERSION,
        verdict,
        summary: summary::sentence(verdict, &items),
        items,
    }
}

/// `mend` is left out if the item is enforced or the text is empty.
fn item(id: &str, needed_for: Need, state: EnforcementState, effect: String, mend: &str) -> Item {
    let is_mendable = state != EnforcementState::Enforced && !mend.is_empty();
    Item {
        id: id.to_owned(),
        state,
        needed_for,
        effect,
        blocked_by: None,
        mend: is_mendable.then(|| mend.to_owned()),
    }
}

/// Adds the control of the host that causes the state, unless the item is enforced.
fn blocked_by(item: Item, why: Option<String>) -> Item {
    let is_blocked = item.state != EnforcementState::Enforced;
    Item {
        blocked_by: why.filter(|_| is_blocked),
        ..item
    }
}

/// An item that is enforced (with its effect) or absent (with what is lost).
fn check(id: &str, needed_for: Need, found: Result<String, String>, mend: &str) -> Item {
    let (state, effect) = match found {
        Ok(effect) => (EnforcementState::Enforced, effect),
        Err(loss) => (EnforcementState::Absent, loss),
    };
    item(id, needed_for, state, effect, mend)
}

/// The same effect with and without.
fn has(holds: bool, effect: &str) -> Result<String, String> {
    let effect = effect.to_owned();
    if holds { Ok(effect) } else { Err(effect) }
}

fn hint<T>(found: &Result<T, ErrorReport>) -> &str {
    let error = found.as_ref().err();
    error
        .and_then(|error| error.hint.as_deref())
        .unwrap_or_default()
}

fn sandbox(facts: &Facts) -> Item {
    let program = &facts.test_program;
    let found = match &facts.sandbox {
        Ok(()) => Ok(format!("a test run of {program} succeeded")),
        Err(error) => Err(format!(
            "a test run of {program} failed: {} ({})",
            error.message, error.code
        )),
    };
    let has_failed_in_proc = |error: &ErrorReport| error.code == STEP_FAILED;
    let is_masked = facts.sandbox.as_ref().is_err_and(has_failed_in_proc);
    match facts.surroundings.masked_proc().filter(|_| is_masked) {
        Some(Control { why, mend }) => {
            blocked_by(check("sandbox", Need::Running, found, &mend), Some(why))
        }
        None => check("sandbox", Need::Running, found, hint(&facts.sandbox)),
    }
}

fn namespaces(facts: &Facts) -> Vec<Item> {
    // Each of the others is tried in a new user namespace.
    let is_user = |(kind, _): &&(NamespaceKind, _)| *kind == NamespaceKind::User;
    let user = facts.namespaces.iter().find(is_user);
    let user = user.map(|(_, made)| user_namespaces::item(facts, made));
    let of_kind = |(kind, made): &(NamespaceKind, Result<(), String>)| {
        let (id, effect) = kind.row();
        let (needed_for, kernel, loss) = match kind {
            NamespaceKind::User => return user_namespaces::item(facts, made),
            NamespaceKind::Time => (
                Need::Strength,
                "Linux 5.6 or later with CONFIG_TIME_NS=y",
                "a body sees the uptime of the host",
            ),
            _ => (
                Need::Running,
                "a kernel built with CONFIG_NAMESPACES=y",
                "no run starts",
            ),
        };
        let name = match kind {
            NamespaceKind::Mount => "mnt",
            NamespaceKind::Network => "net",
            _ => id.trim_end_matches("_namespace"),
        };
        let sudo = facts.user_namespaces.sudo();
        let own_mend =
            format!("{sudo}sysctl -w user.max_{name}_namespaces=10000 # or install {kernel}");
        let mend = user.as_ref().and_then(|user| user.mend.as_ref());
        let found = match made {
            Ok(()) => Ok(effect.to_owned()),
            Err(errno) => Err(format!("cannot be created ({errno}): {loss}")),
        };
        let item = check(id, needed_for, found, mend.unwrap_or(&own_mend));
        blocked_by(item, user.as_ref().and_then(|user| user.blocked_by.clone()))
    };
    facts.namespaces.iter().map(of_kind).collect()
}

fn calls(facts: &Facts) -> Vec<Item> {
    let of_call = |(name, since, found): &(&'static str, &'static str, Result<(), String>)| {
        let (needed_for, loss) = match *name {
            OPENAT2 => (Need::Convenience, "no run with an image starts"),
            _ => (Need::Running, "no run starts"),
        };
        let blocking = call_control(&facts.surroundings, name, since);
        let found = match found {
            Ok(()) => Ok(format!("{name}(2) is available")),
            Err(errno) => Err(format!("{name}(2) is not available ({errno}): {loss}")),
        };
        let item = check(name, needed_for, found, &blocking.mend);
        blocked_by(item, Some(blocking.why))
    };
    facts.calls.iter().map(of_call).collect()
}

/// What makes a system call unavailable: an old kernel, or a filter.
fn call_control(surroundings: &Surroundings, name: &str, since: &str) -> Control {
    if let Some(wsl) = surroundings.wsl_1() {
        wsl
    } else if surroundings.has_version(since) {
        surroundings.filter(&format!("{name}(2)"))
    } else {
        Control {
            why: format!("Linux {} does not have {name}(2)", surroundings.release),
            mend: format!("install Linux {since} or later"),
        }
    }
}

fn seccomp(facts: &Facts) -> Item {
    let effect = "a filter denies system calls that a body does not need";
    let mend = "install a kernel built with CONFIG_SECCOMP_FILTER=y";
    let found = has(facts.seccomp_filter, effect);
    check("seccomp", Need::Running, found, mend)
}

fn no_new_privs(facts: &Facts) -> Item {
    let effect = "set-user-ID programs give a body no rights";
    let found = has(facts.no_new_privs, effect);
    check(
        "no_new_privs",
        Need::Running,
        found,
        "install Linux 3.5 or later",
    )
}

fn landlock(facts: &Facts) -> Item {
    use EnforcementState::{Absent, Enforced, Weaker};
    let (needed_for, state, effect, mend) = match &facts.landlock_abi {
        // A run asks for the version too, and does not start without an answer.
        Err(errno) => (
            Need::Running,
            Absent,
            format!("no run starts: the kernel does not report the ABI ({errno})"),
            "allow landlock_create_ruleset(2) in the filter around this program",
        ),
        Ok(0) => (
            Need::Strength,
            Absent,
            "no second check of files, signals and abstract sockets".to_owned(),
            "boot with lsm=landlock,$(cat /sys/kernel/security/lsm) on Linux 6.12 or later",
        ),
        Ok(abi @ 1..LANDLOCK_FULL) => {
            let renames = match abi {
                1 => " without renames between directories",
                _ => "",
            };
            (
                Need::Strength,
                Weaker,
                format!(
                    "ABI {abi}: a second check of files{renames}, none of signals and abstract sockets"
                ),
                "install Linux 6.12 or later (Landlock ABI 6)",
            )
        }
        Ok(abi) => (
            Need::Strength,
            Enforced,
            format!("ABI {abi}: a second check of files, signals and abstract sockets"),
            "",
        ),
    };
    item("landlock", needed_for, state, effect, mend)
}

/// The clause of an axis's reason that says what holds instead.
#[must_use]
pub(crate) fn last_clause(reason: &str) -> &str {
    reason.rsplit("; ").next().unwrap_or(reason)
}

fn root_only(facts: &Facts) -> Vec<Item> {
    let range = facts.uid_range.as_ref().map(|(unmapped, range)| {
        let found = match unmapped {
            None => Ok(format!("each run has its own uid, from {range}")),
            Some(ids) => Err(format!(
                "the {ids} {range} are not mapped in this user namespace: no run of root starts"
            )),
        };
        let mend = "set uid_range in /etc/runner/config.yaml to ids of /proc/self/uid_map and \
                    /proc/self/gid_map";
        check("uid_range", Need::Running, found, mend)
    });
    let mounts = facts.idmapped_mounts.as_ref().map(|mappable| {
        let found = match mappable {
            Ok(()) => Ok("with --rw a body owns the files that it sees".to_owned()),
            Err(errno) => Err(format!(
                "--rw is refused for the working directory ({errno})"
            )),
        };
        let mend = "keep workspaces on ext4, xfs, btrfs or tmpfs, on Linux 5.12 or later";
        check("idmapped_mounts", Need::Strength, found, mend)
    });
    range.into_iter().chain(mounts).collect()
}

fn runtime_directory(facts: &Facts) -> Item {
    let found = match &facts.runtime_directory {
        Ok(path) => Ok(format!("run records are in {path}")),
        Err(error) => Err(error.message.clone()),
    };
    let mend = match hint(&facts.runtime_directory) {
        "" => "export RUNNER_OPT_RUNTIME_DIRECTORY=$(mktemp -d)",
        hint => hint,
    };
    check("runtime_directory", Need::Running, found, mend)
}

fn bundle_cache(facts: &Facts) -> Item {
    let found = match &facts.bundle_cache {
        Ok(cache) => {
            let medium = if cache.in_memory { "memory" } else { "disk" };
            let (used, size) = (cache.used_bytes >> 20, cache.size_bytes >> 20);
            Ok(format!(
                "unpacked bundles are cached in {} ({medium}): {used} of {size} MiB used",
                cache.directory
            ))
        }
        Err(error) => Err(format!(
            "no cache, each run unpacks its bundle: {}",
            error.message
        )),
    };
    let mend = hint(&facts.bundle_cache);
    check("bundle_cache", Need::Convenience, found, mend)
}

fn programs(facts: &Facts) -> Vec<Item> {
    let of_program = |(name, path): &(&'static str, Option<String>)| {
        let package = match *name {
            "node" => "nodejs",
            other => other,
        };
        let found = path
            .clone()
            .ok_or_else(|| format!("not installed: bundles that need {name} do not run"));
        let mend = format!("apt-get install {package}");
        check(name, Need::Convenience, found, &mend)
    };
    facts.programs.iter().map(of_program).collect()
}

fn server(facts: &Facts) -> Vec<Item> {
    let mend = "install `runner-server` of the same version beside `runner`";
    let found = facts.server.iter().cloned();
    found
        .map(|found| check("server", Need::Convenience, found, mend))
        .collect()
}

#[cfg(test)]
mod tests {
    mod hosts;

    use super::*;
    use spec::limits::Coverage;

    pub(super) fn full() -> Facts {
        let covered = |axis| Coverage {
            axis,
            state: EnforcementState::Enforced,
            enforced_by: "cgroup-v2",
            reason: None,
        };
        Facts {
            test_program: "/bin/true".to_owned(),
            sandbox: Ok(()),
            namespaces: NamespaceKind::ALL.map(|kind| (kind, Ok(()))).into(),
            user_namespaces: UserNamespaceSettings::default(),
            surroundings: surroundings::tests::bare(),
            calls: vec![("fsopen", "5.2", Ok(())), (OPENAT2, "5.6", Ok(()))],
            seccomp_filter: true,
            no_new_privs: true,
            landlock_abi: Ok(7),
            cgroup: CgroupFacts {
                backend: "v2".to_owned(),
                reason: None,
                coverage: ["memory", "processes", "cpu_share", "cpu_time"]
                    .map(covered)
                    .into(),
                tree: CgroupTree::V2,
                is_read_only: false,
                named_parent: None,
                has_systemd: false,
                has_user_manager: false,
            },
            uid: 0,
            idmapped_mounts: Some(Ok(())),
            uid_range: Some((None, "7-9".to_owned())),
            runtime_directory: Ok("/run/runner".to_owned()),
            bundle_cache: Ok(CacheFacts {
                directory: "/run/runner/bundles".to_owned(),
                in_memory: true,
                used_bytes: 0,
                size_bytes: 1 << 30,
            }),
            overlayfs: Ok(()),
            read_only_overlayfs: Ok(()),
            network: network::tests::full(),
            programs: vec![("node", None)],
            server: None,
        }
    }

    fn error() -> ErrorReport {
        ErrorReport::new("x_failed", "cannot x").with_hint("do y")
    }

    /// Breaks each fact, and expects the verdict and the one item that is unmet.
    #[test]
    fn each_missing_fact_is_an_item_with_the_right_verdict_and_a_command() {
        type Breakage = fn(&mut Facts);
        let cases: [(&str, Verdict, Breakage); 16] = [
            ("sandbox", Verdict::CannotRun, |f| f.sandbox = Err(error())),
            ("user_namespace", Verdict::CannotRun, |f| {
                f.namespaces[0].1 = Err("EPERM".to_owned());
            }),
            ("network_namespace", Verdict::CannotRun, |f| {
                f.namespaces[3].1 = Err("EINVAL".to_owned());
            }),
            ("time_namespace", Verdict::Degraded, |f| {
                f.namespaces[7].1 = Err("EINVAL".to_owned());
            }),
            ("fsopen", Verdict::CannotRun, |f| {
                f.calls[0].2 = Err("ENOSYS".to_owned());
            }),
            ("seccomp", Verdict::CannotRun, |f| f.seccomp_filter = false),
            ("no_new_privs", Verdict::CannotRun, |f| {
                f.no_new_privs = false
            }),
            ("landlock", Verdict::Degraded, |f| f.landlock_abi = Ok(0)),
            ("landlock", Verdict::Degraded, |f| f.landlock_abi = Ok(5)),
            ("landlock", Verdict::CannotRun, |f| {
                f.landlock_abi = Err("ENOMEM".to_owned());
            }),
            ("cgroup", Verdict::Degraded, |f| {
                f.cgroup.backend = "none".to_owned()
            }),
            ("limit_memory", Verdict::Degraded, |f| {
                f.cgroup.coverage[0].state = EnforcementState::Weaker;
            }),
            ("limit_cpu_share", Verdict::Degraded, |f| {
                f.cgroup.coverage[2].state = EnforcementState::Absent;
            }),
            ("idmapped_mounts", Verdict::Degraded, |f| {
                f.idmapped_mounts = Some(Err("EINVAL".to_owned()));
            }),
            ("uid_range", Verdict::CannotRun, |f| {
                f.uid_range = Some((Some("gids"), "7-9".to_owned()));
            }),
            ("runtime_directory", Verdict::CannotRun, |f| {
                f.runtime_directory = Err(error());
            }),
        ];
        assert_eq!(diagnose(&full()).verdict, Verdict::Full);
        for (id, verdict, breakage) in cases {
            let mut facts = full();
            breakage(&mut facts);
            let diagnosis = diagnose(&facts);
            assert_eq!(diagnosis.verdict, verdict, "{id}");
            let unmet: Vec<&Item> = diagnosis
                .items
                .iter()
                .filter(|item| item.state != EnforcementState::Enforced)
                .filter(|item| item.needed_for != Need::Convenience)
                .collect();
            assert_eq!(unmet.len(), 1, "{id}: {unmet:?}");
            assert_eq!(unmet[0].id, id);
            assert!(unmet[0].mend.is_some(), "{id} has no command");
        }
    }

    #[test]
    fn a_namespace_that_cannot_be_made_has_the_fix_of_the_user_namespace_or_its_own() {
        let mends = |failed: &[usize]| -> Vec<Option<String>> {
            let mut facts = full();
            facts.user_namespaces.count_max = failed.contains(&0).then_some(0);
            for index in failed {
                facts.namespaces[*index].1 = Err("ENOSPC".to_owned());
            }
            let items = namespaces(&facts);
            failed.iter().map(|at| items[*at].mend.clone()).collect()
        };
        let of_user = Some("sudo sysctl -w user.max_user_namespaces=10000".to_owned());
        assert_eq!(
            mends(&[0, 1, 7]),
            [of_user.clone(), of_user.clone(), of_user]
        );
        let names = ["mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];
        for (mend, name) in mends(&[1, 2, 3, 4, 5, 6, 7]).into_iter().zip(names) {
            let command = format!("sudo sysctl -w user.max_{name}_namespaces=10000 # or install ");
            assert!(
                mend.is_some_and(|mend| mend.starts_with(&command)),
                "{name}"
            );
        }
    }

    #[test]
    fn a_user_namespace_in_which_nothing_may_be_done_is_none() {
        let restricted = UserNamespaceSettings {
            apparmor_restricts: Some(true),
            ..UserNamespaceSettings::default()
        };
        let forbidden = ErrorReport {
            hint: user_namespaces::mend(&user_namespaces::forbidding(&restricted)),
            ..error()
        };
        // If runs succeed, or fail for another reason, the setting does not matter.
        for (sandbox, expected) in [
            (Ok(()), EnforcementState::Enforced),
            (Err(error()), EnforcementState::Enforced),
            (Err(forbidden), EnforcementState::Absent),
        ] {
            let facts = Facts {
                sandbox,
                user_namespaces: restricted.clone(),
                ..full()
            };
            let items = diagnose(&facts).items;
            let item = items.iter().find(|item| item.id == "user_namespace");
            let item = item.expect("the item");
            assert_eq!(item.state, expected, "{item:?}");
            let names = |text: &str| text.contains("apparmor_restrict_unprivileged_userns");
            let is_named = item.blocked_by.as_deref().is_some_and(names);
            assert_eq!(is_named, expected == EnforcementState::Absent);
            let profile = item.mend.as_ref().is_some_and(|m| m.contains("parser -r"));
            assert_eq!(profile, expected == EnforcementState::Absent);
        }
    }

    #[test]
    fn a_program_that_is_missing_degrades_nothing() {
        let diagnosis = diagnose(&full());
        let node = diagnosis.items.iter().find(|item| item.id == "node");
        assert_eq!(node.map(|node| node.state), Some(EnforcementState::Absent));
        assert_eq!(diagnosis.verdict, Verdict::Full);
    }

    /// Without openat2(2) paths are walked component by component, except to mount into the root of an
    /// image.
    #[test]
    fn a_hidden_openat2_costs_images_and_degrades_nothing() {
        let mut facts = full();
        facts.calls[1].2 = Err("ENOSYS".to_owned());
        let diagnosis = diagnose(&facts);
        assert_eq!(diagnosis.verdict, Verdict::Full);
        for id in [OPENAT2, "images"] {
            let item = diagnosis.items.iter().find(|item| item.id == id);
            let item = item.expect("the item");
            assert_eq!(item.state, EnforcementState::Absent, "{item:?}");
            assert!(item.effect.contains("no run with an image"), "{item:?}");
            let mend = item.mend.as_deref().unwrap_or_default();
            assert!(mend.contains("SystemCallFilter="), "{item:?}");
        }
    }

    #[test]
    fn an_ordinary_user_is_not_asked_for_what_only_root_has() {
        let facts = Facts {
            uid: 1000,
            idmapped_mounts: None,
            uid_range: None,
            ..full()
        };
        let diagnosis = diagnose(&facts);
        assert_eq!(diagnosis.verdict, Verdict::Full);
        assert!(!diagnosis.items.iter().any(|item| item.id == "uid_range"));
    }
}
