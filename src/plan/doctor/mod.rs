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

    /// The id of the item, and what the namespace does.
    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::User => (
                "user_namespace",
                "the body's ids and capabilities mean nothing on the host",
            ),
            Self::Mount => ("mount_namespace", "the body sees a file tree of its own"),
            Self::Pid => (
                "pid_namespace",
                "the body sees and signals only its own processes",
            ),
            Self::Network => (
                "network_namespace",
                "the body has a loopback of its own and no other network",
            ),
            Self::Ipc => (
                "ipc_namespace",
                "shared memory and message queues are the body's own",
            ),
            Self::Uts => ("uts_namespace", "the host's name is hidden"),
            Self::Cgroup => ("cgroup_namespace", "the host's groups are hidden"),
            Self::Time => (
                "time_namespace",
                "the body's monotonic and boot clocks begin with the run",
            ),
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

/// What was found: its effect, or what is lost without it.
type Found = Result<String, String>;

fn check(id: &str, needed_for: Need, found: Found, mend: impl Into<Option<String>>) -> Item {
    let (state, effect, mend) = match found {
        Ok(effect) => (EnforcementState::Enforced, effect, None),
        Err(effect) => (EnforcementState::Absent, effect, mend.into()),
    };
    Item {
        id: id.to_owned(),
        state,
        needed_for,
        effect,
        mend,
    }
}

/// One effect with and without.
fn has(holds: bool, effect: &str) -> Found {
    let effect = effect.to_owned();
    if holds { Ok(effect) } else { Err(effect) }
}

fn or_else(found: &Result<(), String>, effect: &str, lost: impl Fn(&str) -> String) -> Found {
    match found {
        Ok(()) => Ok(effect.to_owned()),
        Err(why) => Err(lost(why)),
    }
}

fn sandbox(facts: &Facts) -> Item {
    let (found, mend) = match &facts.sandbox {
        Ok(()) => (
            Ok("one whole run of a program that does nothing succeeded".to_owned()),
            None,
        ),
        Err(error) => (
            Err(format!(
                "no body can be run: {} ({})",
                error.message, error.code
            )),
            error.hint.clone(),
        ),
    };
    check("sandbox", Need::Running, found, mend)
}

fn namespaces(facts: &Facts) -> Vec<Item> {
    let of_kind = |(kind, made): &(NamespaceKind, Result<(), String>)| {
        let (id, effect) = kind.row();
        let (needed_for, mend) = match kind {
            NamespaceKind::User => return user_namespaces::judge(facts, made),
            NamespaceKind::Time => (
                Need::Strength,
                "install Linux 5.6 or later with CONFIG_TIME_NS=y",
            ),
            _ => (
                Need::Running,
                "sysctl -w user.max_user_namespaces=10000, or a kernel built with CONFIG_NAMESPACES=y",
            ),
        };
        let found = or_else(made, effect, |why| {
            format!("cannot be made ({why}): no longer true that {effect}")
        });
        check(id, needed_for, found, mend.to_owned())
    };
    facts.namespaces.iter().map(of_kind).collect()
}

fn calls(facts: &Facts) -> Vec<Item> {
    let of_call = |(name, since, is_there): &(&'static str, &'static str, bool)| {
        let (needed_for, lost) = match *name {
            OPENAT2 => (Need::Convenience, "no run with an image is started"),
            _ => (Need::Running, "no body can be run"),
        };
        let found = match is_there {
            true => Ok(format!("{name}(2) is there")),
            false => Err(format!("{name}(2) is missing or hidden: {lost}")),
        };
        check(name, needed_for, found, call_mend(name, since))
    };
    facts.calls.iter().map(of_call).collect()
}

fn call_mend(name: &str, since: &str) -> String {
    format!("install Linux {since} or later, or lift the filter that hides {name}(2)")
}

fn seccomp(facts: &Facts) -> Item {
    let effect = "system calls that no body needs are denied";
    let mend = "install a kernel built with CONFIG_SECCOMP_FILTER=y";
    let found = has(facts.seccomp_filter, effect);
    check("seccomp", Need::Running, found, mend.to_owned())
}

fn no_new_privs(facts: &Facts) -> Item {
    let effect = "set-user-id programs give the body nothing";
    let found = has(facts.no_new_privs, effect);
    let mend = "install Linux 3.5 or later".to_owned();
    check("no_new_privs", Need::Running, found, mend)
}

fn landlock(facts: &Facts) -> Item {
    let of_version = |found, mend: &str| check("landlock", Need::Strength, found, mend.to_owned());
    match facts.landlock_abi {
        // Every run asks too, and none goes on without an answer.
        Err(ref answer) => check(
            "landlock",
            Need::Running,
            Err(format!(
                "no run starts: the kernel does not say its version: {answer}"
            )),
            "see what refuses landlock_create_ruleset(2): a filter around this program, or the kernel's log"
                .to_owned(),
        ),
        Ok(0) => of_version(
            Err("no second line behind the file tree and the namespaces".to_owned()),
            "boot with lsm=landlock,… on Linux 6.12 or later (CONFIG_SECURITY_LANDLOCK=y)",
        ),
        Ok(abi @ 1..LANDLOCK_FULL) => {
            let renames = match abi {
                1 => " without renames between directories",
                _ => "",
            };
            let weaker = of_version(
                Err(format!(
                    "ABI {abi}: a second line for files{renames}, none for signals and abstract sockets"
                )),
                "install Linux 6.12 or later (Landlock ABI 6)",
            );
            Item {
                state: EnforcementState::Weaker,
                ..weaker
            }
        }
        Ok(abi) => of_version(
            Ok(format!(
                "ABI {abi}: a second line for files, signals and abstract sockets"
            )),
            "",
        ),
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
            id: format!("limit_{}", covered.axis),
            state: covered.state,
            needed_for: Need::Strength,
            effect,
            mend: (covered.state != EnforcementState::Enforced).then(|| cgroup_mend(facts)),
        }
    };
    let backend = &facts.cgroup_backend;
    let found = match &facts.cgroup_reason {
        _ if backend != "none" => Ok(format!(
            "back end {backend}: limits hold for the whole tree"
        )),
        Some(reason) => Err(format!(
            "limits hold for each process, or are polled, since {}",
            first_clause(reason)
        )),
        None => Err("limits hold for each process, or are polled".to_owned()),
    };
    let group = check("cgroup", Need::Strength, found, cgroup_mend(facts));
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
    let range = facts.uid_range.as_ref().map(|(is_mapped, range)| {
        let found = match is_mapped {
            true => Ok(format!("each run has a uid of its own out of {range}")),
            false => Err(format!(
                "the uids {range} are not mapped here: root's runs cannot be started"
            )),
        };
        let mend = "set uid_range in /etc/runner/config.yaml to uids of /proc/self/uid_map";
        check("uid_range", Need::Running, found, mend.to_owned())
    });
    let mounts = facts.idmapped_mounts.as_ref().map(|mappable| {
        let effect = "--rw shows the caller's files as the body's own";
        let found = or_else(mappable, effect, |why| {
            format!("--rw is refused for the working directory here ({why})")
        });
        let mend = "keep workspaces on ext4, xfs, btrfs or tmpfs, on Linux 5.12 or later";
        check("idmapped_mounts", Need::Strength, found, mend.to_owned())
    });
    range.into_iter().chain(mounts).collect()
}

fn runtime_directory(facts: &Facts) -> Item {
    let found = &facts.runtime_directory;
    let hint = found.as_ref().err().and_then(|error| error.hint.clone());
    let found = match found {
        Ok(path) => Ok(format!("records of runs lie in {path}")),
        Err(error) => Err(error.message.clone()),
    };
    let mend = "export RUNNER_OPT_RUNTIME_DIRECTORY=$(mktemp -d)";
    let mend = hint.unwrap_or_else(|| mend.to_owned());
    check("runtime_directory", Need::Running, found, mend)
}

fn bundle_cache(facts: &Facts) -> Item {
    let (found, mend) = match &facts.bundle_cache {
        Ok(cache) => {
            let place = if cache.in_memory { "memory" } else { "disk" };
            let (used, size) = (cache.used_bytes >> 20, cache.size_bytes >> 20);
            let effect = format!(
                "unpacked bundles are kept in {} ({place}), {used} of {size} MiB are used",
                cache.directory
            );
            (Ok(effect), None)
        }
        Err(error) => (
            Err(format!("each run unpacks its bundle: {}", error.message)),
            error.hint.clone(),
        ),
    };
    check("bundle_cache", Need::Convenience, found, mend)
}

fn programs(facts: &Facts) -> Vec<Item> {
    let of_program = |(name, path): &(&'static str, Option<String>)| {
        let missing = || format!("bundles that want {name} cannot be run");
        let package = match *name {
            "node" => "nodejs",
            other => other,
        };
        let mend = format!("apt-get install {package}");
        let found = path.clone().ok_or_else(missing);
        check(name, Need::Convenience, found, mend)
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
