//! What a host can enforce: from facts to a diagnosis.
#![forbid(unsafe_code)]

mod images;
mod network;
pub mod user_namespaces;

use crate::plan::doctor::images::{OPENAT2, images, overlayfs};
pub use crate::plan::doctor::network::NetworkFacts;
use crate::plan::doctor::user_namespaces::UserNamespaceSettings;
use spec::diagnosis::{Diagnosis, Item, Need, SCHEMA_VERSION, Verdict};
use spec::limits::Coverage;
use spec::report::{EnforcementState, ErrorReport};

/// Landlock's version from which everything that a run asks of it is there.
pub(crate) const LANDLOCK_FULL: u32 = 6;

/// What was found out about a host.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Whether one real run of a program that does nothing succeeded, else why not.
    pub sandbox: Result<(), ErrorReport>,
    /// Each kind of namespace that was really made, else the kernel's answer.
    pub namespaces: Vec<(NamespaceKind, Result<(), String>)>,
    /// What the host says about user namespaces.
    pub user_namespaces: UserNamespaceSettings,
    /// Each call of the kernel, with the Linux version that brought it, and whether it is there.
    pub calls: Vec<(&'static str, &'static str, bool)>,
    /// Filters of system calls.
    pub seccomp_filter: bool,
    /// No execve gains anything.
    pub no_new_privs: bool,
    /// Version of Landlock, 0 where there is none; else the kernel's answer.
    pub landlock_abi: Result<u32, String>,
    /// `v2`, `v2-scope`, `v1`, `none`.
    pub cgroup_backend: String,
    /// Why the back end is `none`.
    pub cgroup_reason: Option<String>,
    /// How strongly each limit holds.
    pub coverage: Vec<Coverage>,
    /// A systemd that could hand over a group.
    pub systemd: bool,
    /// Effective uid of the caller.
    pub uid: u32,
    /// Root only: whether mounts of the caller's working directory can show other owners.
    pub idmapped_mounts: Option<Result<(), String>>,
    /// Root only: whether the uids that runs get are mapped here, and which.
    pub uid_range: Option<(bool, String)>,
    /// Where records of runs lie, else why they cannot.
    pub runtime_directory: Result<String, ErrorReport>,
    /// Where unpacked bundles are kept, how much of how many bytes is used, and whether in memory;
    /// else why none are.
    pub bundle_cache: Result<CacheFacts, ErrorReport>,
    /// Whether an overlayfs can be laid over a kept bundle, else the kernel's answer.
    pub overlayfs: Result<(), String>,
    /// Whether one can that takes no changes, else the kernel's answer.
    pub read_only_overlayfs: Result<(), String>,
    /// The network beyond the sandbox.
    pub network: NetworkFacts,
    /// Programs that bundles ask for, and where they lie.
    pub programs: Vec<(&'static str, Option<String>)>,
}

/// The cache of bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheFacts {
    pub directory: String,
    /// Whether it lies in memory.
    pub in_memory: bool,
    /// What the trees take.
    pub used_bytes: u64,
    /// What they may take.
    pub size_bytes: u64,
}

/// A kind of namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceKind {
    User,
    Mount,
    Pid,
    Network,
    /// System V IPC and message queues.
    Ipc,
    Uts,
    Cgroup,
    Time,
}

impl NamespaceKind {
    /// All, in the order in which they are shown.
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

    fn id(self) -> &'static str {
        match self {
            Self::User => "user_namespace",
            Self::Mount => "mount_namespace",
            Self::Pid => "pid_namespace",
            Self::Network => "network_namespace",
            Self::Ipc => "ipc_namespace",
            Self::Uts => "uts_namespace",
            Self::Cgroup => "cgroup_namespace",
            Self::Time => "time_namespace",
        }
    }

    fn effect(self) -> &'static str {
        match self {
            Self::User => "the body's ids and capabilities mean nothing on the host",
            Self::Mount => "the body sees a file tree of its own",
            Self::Pid => "the body sees and signals only its own processes",
            Self::Network => "the body has a loopback of its own and no other network",
            Self::Ipc => "shared memory and message queues are the body's own",
            Self::Uts => "the host's name is hidden",
            Self::Cgroup => "the host's groups are hidden",
            Self::Time => "the body's monotonic and boot clocks begin with the run",
        }
    }
}

/// What the facts mean.
#[must_use]
pub(crate) fn diagnose(facts: &Facts) -> Diagnosis {
    let items: Vec<Item> = [
        vec![sandbox(facts)],
        namespaces(facts),
        calls(facts),
        vec![seccomp(facts), no_new_privs(facts), landlock(facts)],
        limits(facts),
        of_root(facts),
        vec![
            runtime_directory(facts),
            bundle_cache(facts),
            overlayfs(facts),
            images(facts),
        ],
        network::items(&facts.network),
        programs(facts),
    ]
    .concat();
    let worst = |need| {
        let unmet =
            |item: &Item| item.needed_for == need && item.state != EnforcementState::Enforced;
        items.iter().any(unmet)
    };
    let verdict = if worst(Need::Running) {
        Verdict::CannotRun
    } else if worst(Need::Strength) {
        Verdict::Degraded
    } else {
        Verdict::Full
    };
    Diagnosis {
        schema_version: SCHEMA_VERSION,
        verdict,
        items,
    }
}

fn item(id: &str, holds: bool, needed_for: Need, effect: impl Into<String>) -> Item {
    Item {
        id: id.to_owned(),
        state: match holds {
            true => EnforcementState::Enforced,
            false => EnforcementState::Absent,
        },
        needed_for,
        effect: effect.into(),
        mend: None,
    }
}

fn with_mend(mut item: Item, mend: &str) -> Item {
    if item.state != EnforcementState::Enforced {
        item.mend = Some(mend.to_owned());
    }
    item
}

fn sandbox(facts: &Facts) -> Item {
    match &facts.sandbox {
        Ok(()) => item(
            "sandbox",
            true,
            Need::Running,
            "one whole run of a program that does nothing succeeded",
        ),
        Err(error) => Item {
            mend: error.hint.clone(),
            ..item(
                "sandbox",
                false,
                Need::Running,
                format!("no body can be run: {} ({})", error.message, error.code),
            )
        },
    }
}

fn namespaces(facts: &Facts) -> Vec<Item> {
    let of_kind = |(kind, made): &(NamespaceKind, Result<(), String>)| {
        if *kind == NamespaceKind::User {
            return user_namespaces::judge(facts, made);
        }
        let needed_for = match kind {
            NamespaceKind::Time => Need::Strength,
            _ => Need::Running,
        };
        let effect = match made {
            Ok(()) => kind.effect().to_owned(),
            Err(why) => format!(
                "cannot be made ({why}): no longer true that {}",
                kind.effect()
            ),
        };
        with_mend(
            item(kind.id(), made.is_ok(), needed_for, effect),
            match kind {
                NamespaceKind::Time => "install Linux 5.6 or later with CONFIG_TIME_NS=y",
                _ => {
                    "sysctl -w user.max_user_namespaces=10000, or a kernel built with CONFIG_NAMESPACES=y"
                }
            },
        )
    };
    facts.namespaces.iter().map(of_kind).collect()
}

fn calls(facts: &Facts) -> Vec<Item> {
    let of_call = |(name, since, there): &(&'static str, &'static str, bool)| {
        let (needed_for, lost) = match *name {
            OPENAT2 => (Need::Convenience, "no run with an image is started"),
            _ => (Need::Running, "no body can be run"),
        };
        let effect = match there {
            true => format!("{name}(2) is there"),
            false => format!("{name}(2) is missing or hidden: {lost}"),
        };
        with_mend(
            item(name, *there, needed_for, effect),
            &call_mend(name, since),
        )
    };
    facts.calls.iter().map(of_call).collect()
}

fn call_mend(name: &str, since: &str) -> String {
    format!("install Linux {since} or later, or lift the filter that hides {name}(2)")
}

fn seccomp(facts: &Facts) -> Item {
    with_mend(
        item(
            "seccomp",
            facts.seccomp_filter,
            Need::Running,
            "system calls that no body needs are denied",
        ),
        "install a kernel built with CONFIG_SECCOMP_FILTER=y",
    )
}

fn no_new_privs(facts: &Facts) -> Item {
    with_mend(
        item(
            "no_new_privs",
            facts.no_new_privs,
            Need::Running,
            "set-user-id programs give the body nothing",
        ),
        "install Linux 3.5 or later",
    )
}

fn landlock(facts: &Facts) -> Item {
    let (state, effect, mend) = match facts.landlock_abi {
        // Every run asks too, and none goes on without an answer.
        Err(ref answer) => {
            let effect = format!("no run starts: the kernel does not say its version: {answer}");
            return with_mend(
                item("landlock", false, Need::Running, effect),
                "see what refuses landlock_create_ruleset(2): a filter around this program, or the kernel's log",
            );
        }
        Ok(0) => (
            EnforcementState::Absent,
            "no second line behind the file tree and the namespaces".to_owned(),
            Some("boot with lsm=landlock,… on Linux 6.12 or later (CONFIG_SECURITY_LANDLOCK=y)"),
        ),
        Ok(abi @ 1..LANDLOCK_FULL) => (
            EnforcementState::Weaker,
            format!(
                "ABI {abi}: a second line for files{}, none for signals and abstract sockets",
                if abi < 2 {
                    " without renames between directories"
                } else {
                    ""
                }
            ),
            Some("install Linux 6.12 or later (Landlock ABI 6)"),
        ),
        Ok(abi) => (
            EnforcementState::Enforced,
            format!("ABI {abi}: a second line for files, signals and abstract sockets"),
            None,
        ),
    };
    Item {
        state,
        mend: mend.map(str::to_owned),
        ..item("landlock", true, Need::Strength, effect)
    }
}

/// What each limit means, and how it holds under the chosen back end.
fn limits(facts: &Facts) -> Vec<Item> {
    let of_axis = |covered: &Coverage| {
        let what = match covered.axis {
            "memory" => "memory of the whole tree",
            "processes" => "processes and threads of the whole tree",
            "cpu_share" => "share of the processors (--cpus)",
            "cpu_time" => "CPU time of the whole tree (--cpu-time)",
            other => other,
        };
        let effect = match (covered.state, &covered.reason) {
            (EnforcementState::Enforced, _) | (_, None) => {
                format!("{what}: through {}", covered.enforced_by)
            }
            // Why there is no group is said once, by the item of that name.
            (_, Some(reason)) if facts.cgroup_backend == "none" => {
                format!("{what}: {}", stand_in(reason))
            }
            (_, Some(reason)) => format!("{what}: {reason}"),
        };
        Item {
            state: covered.state,
            mend: (covered.state != EnforcementState::Enforced).then(|| cgroup_mend(facts)),
            ..item(
                &format!("limit_{}", covered.axis),
                true,
                Need::Strength,
                effect,
            )
        }
    };
    let has_group = facts.cgroup_backend != "none";
    let effect = match &facts.cgroup_reason {
        _ if has_group => format!(
            "back end {}: limits hold for the whole tree",
            facts.cgroup_backend
        ),
        Some(reason) => format!(
            "limits hold for each process, or are polled, since {}",
            first_clause(reason)
        ),
        None => "limits hold for each process, or are polled".to_owned(),
    };
    let group = with_mend(
        item("cgroup", has_group, Need::Strength, effect),
        &cgroup_mend(facts),
    );
    std::iter::once(group)
        .chain(facts.coverage.iter().map(of_axis))
        .collect()
}

/// The last clause of an axis's reason: what holds instead.
#[must_use]
pub(crate) fn stand_in(reason: &str) -> &str {
    reason.rsplit("; ").next().unwrap_or(reason)
}

fn first_clause(reason: &str) -> &str {
    reason.split("; ").next().unwrap_or(reason)
}

fn cgroup_mend(facts: &Facts) -> String {
    match (facts.cgroup_backend.as_str(), facts.systemd, facts.uid) {
        ("none", true, 0) => "systemd-run --scope -p Delegate=yes runner …".to_owned(),
        ("none", true, _) => "systemd-run --user --scope -p Delegate=yes runner …".to_owned(),
        ("none", false, 0) => "mount -o remount,rw /sys/fs/cgroup".to_owned(),
        ("none", false, uid) => format!(
            "sudo sh -c 'for h in /sys/fs/cgroup/*/; do mkdir -p $h/runner; chown -R {uid} \
             $h/runner; done'; export RUNNER_OPT_CGROUP_PARENT=/runner"
        ),
        _ => "boot with swapaccount=1 cgroup_enable=memory".to_owned(),
    }
}

fn of_root(facts: &Facts) -> Vec<Item> {
    let range = facts.uid_range.as_ref().map(|(mapped, range)| {
        let effect = match mapped {
            true => format!("each run has a uid of its own out of {range}"),
            false => format!("the uids {range} are not mapped here: root's runs cannot be started"),
        };
        with_mend(
            item("uid_range", *mapped, Need::Running, effect),
            "set uid_range in /etc/runner/config.yaml to uids of /proc/self/uid_map",
        )
    });
    let mounts = facts.idmapped_mounts.as_ref().map(|mappable| {
        let effect = match mappable {
            Ok(()) => "--rw shows the caller's files as the body's own".to_owned(),
            Err(why) => format!("--rw is refused for the working directory here ({why})"),
        };
        with_mend(
            item("idmapped_mounts", mappable.is_ok(), Need::Strength, effect),
            "keep workspaces on ext4, xfs, btrfs or tmpfs, on Linux 5.12 or later",
        )
    });
    range.into_iter().chain(mounts).collect()
}

fn runtime_directory(facts: &Facts) -> Item {
    match &facts.runtime_directory {
        Ok(path) => item(
            "runtime_directory",
            true,
            Need::Running,
            format!("records of runs lie in {path}"),
        ),
        Err(error) => Item {
            mend: error
                .hint
                .clone()
                .or_else(|| Some("export RUNNER_OPT_RUNTIME_DIRECTORY=$(mktemp -d)".to_owned())),
            ..item(
                "runtime_directory",
                false,
                Need::Running,
                error.message.clone(),
            )
        },
    }
}

fn bundle_cache(facts: &Facts) -> Item {
    match &facts.bundle_cache {
        Ok(CacheFacts {
            directory,
            in_memory,
            used_bytes,
            size_bytes,
        }) => {
            let place = if *in_memory { "memory" } else { "disk" };
            let (used, size) = (used_bytes >> 20, size_bytes >> 20);
            let effect = format!(
                "unpacked bundles are kept in {directory} ({place}), {used} of {size} MiB are used"
            );
            item("bundle_cache", true, Need::Convenience, effect)
        }
        Err(error) => Item {
            mend: error.hint.clone(),
            ..item(
                "bundle_cache",
                false,
                Need::Convenience,
                format!("each run unpacks its bundle: {}", error.message),
            )
        },
    }
}

fn programs(facts: &Facts) -> Vec<Item> {
    let of_program = |(name, found): &(&'static str, Option<String>)| {
        let effect = match found {
            Some(path) => path.clone(),
            None => format!("bundles that want {name} cannot be run"),
        };
        let package = match *name {
            "node" => "nodejs",
            other => other,
        };
        with_mend(
            item(name, found.is_some(), Need::Convenience, effect),
            &format!("apt-get install {package}"),
        )
    };
    facts.programs.iter().map(of_program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Facts {
        let covered = |axis| Coverage {
            axis,
            state: EnforcementState::Enforced,
            enforced_by: "cgroup-v2",
            reason: None,
        };
        Facts {
            sandbox: Ok(()),
            namespaces: NamespaceKind::ALL.map(|kind| (kind, Ok(()))).into(),
            user_namespaces: UserNamespaceSettings::default(),
            calls: vec![("fsopen", "5.2", true), (OPENAT2, "5.6", true)],
            seccomp_filter: true,
            no_new_privs: true,
            landlock_abi: Ok(7),
            cgroup_backend: "v2".to_owned(),
            cgroup_reason: None,
            coverage: ["memory", "processes", "cpu_share", "cpu_time"]
                .map(covered)
                .into(),
            systemd: false,
            uid: 0,
            idmapped_mounts: Some(Ok(())),
            uid_range: Some((true, "7-9".to_owned())),
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
        }
    }

    fn error() -> ErrorReport {
        ErrorReport {
            code: "x_failed".to_owned(),
            message: "cannot x".to_owned(),
            hint: Some("do y".to_owned()),
        }
    }

    /// Each fact that can fail, what it makes of the verdict, and the item that says so.
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
            ("fsopen", Verdict::CannotRun, |f| f.calls[0].2 = false),
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
                f.cgroup_backend = "none".to_owned()
            }),
            ("limit_memory", Verdict::Degraded, |f| {
                f.coverage[0].state = EnforcementState::Weaker;
            }),
            ("limit_cpu_share", Verdict::Degraded, |f| {
                f.coverage[2].state = EnforcementState::Absent;
            }),
            ("idmapped_mounts", Verdict::Degraded, |f| {
                f.idmapped_mounts = Some(Err("EINVAL".to_owned()));
            }),
            ("uid_range", Verdict::CannotRun, |f| {
                f.uid_range = Some((false, "7-9".to_owned()));
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
    fn a_user_namespace_in_which_nothing_may_be_done_is_none() {
        let restricted = UserNamespaceSettings {
            apparmor_restricts: Some(true),
            ..UserNamespaceSettings::default()
        };
        let forbidden = ErrorReport {
            hint: user_namespaces::mend(&user_namespaces::forbidding(&restricted)),
            ..error()
        };
        // Where runs succeed all the same, or fail for another reason, the setting is nobody's matter.
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
            assert_eq!(names(&item.effect), expected == EnforcementState::Absent);
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

    /// Without openat2(2) bodies run as ever, since paths are then walked name by name; only what is
    /// mounted into the root of an image is not.
    #[test]
    fn a_hidden_openat2_costs_images_and_degrades_nothing() {
        let mut facts = full();
        facts.calls[1].2 = false;
        let diagnosis = diagnose(&facts);
        assert_eq!(diagnosis.verdict, Verdict::Full);
        for id in [OPENAT2, "images"] {
            let item = diagnosis.items.iter().find(|item| item.id == id);
            let item = item.expect("the item");
            assert_eq!(item.state, EnforcementState::Absent, "{item:?}");
            assert!(item.effect.contains("no run with an image"), "{item:?}");
            let mend = item.mend.as_deref().unwrap_or_default();
            assert!(mend.contains("lift the filter"), "{item:?}");
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

    #[test]
    fn the_command_for_a_group_is_the_one_of_this_host() {
        for (systemd, uid, expected) in [
            (true, 0, "systemd-run --scope"),
            (true, 7, "systemd-run --user"),
            (false, 7, "chown -R 7"),
        ] {
            let facts = Facts {
                cgroup_backend: "none".to_owned(),
                systemd,
                uid,
                ..full()
            };
            let diagnosis = diagnose(&facts);
            let group = diagnosis.items.iter().find(|item| item.id == "cgroup");
            let mend = group
                .and_then(|group| group.mend.clone())
                .unwrap_or_default();
            assert!(mend.contains(expected), "{mend}");
        }
    }
}
