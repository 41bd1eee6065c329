//! The diagnosis of a host, from facts that `run::doctor` collected.
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

/// First Landlock ABI with everything that a run uses.
pub(crate) const LANDLOCK_FULL: u32 = 6;

/// Facts about a host. The error of a `Result` says why not; a `String` there is the errno.
#[derive(Debug, Clone)]
pub struct Facts {
    /// One real run of a program that does nothing.
    pub sandbox: Result<(), ErrorReport>,
    /// Each kind of namespace, after an attempt to make it.
    pub namespaces: Vec<(NamespaceKind, Result<(), String>)>,
    pub user_namespaces: UserNamespaceSettings,
    /// System calls: name, Linux version that added it, whether it is available.
    pub calls: Vec<(&'static str, &'static str, bool)>,
    pub seccomp_filter: bool,
    pub no_new_privs: bool,
    /// The Landlock ABI; 0: the kernel has no Landlock.
    pub landlock_abi: Result<u32, String>,
    /// `v2`, `v2-scope`, `v1`, `none`.
    pub cgroup_backend: String,
    /// Why the back end is `none`.
    pub cgroup_reason: Option<String>,
    pub coverage: Vec<Coverage>,
    /// A systemd that can delegate a cgroup is running.
    pub systemd: bool,
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

/// The diagnosis of a host with these facts.
#[must_use]
pub(crate) fn diagnose(facts: &Facts) -> Diagnosis {
    let items: Vec<Item> = [
        vec![sandbox(facts)],
        namespaces(facts),
        calls(facts),
        vec![seccomp(facts), no_new_privs(facts), landlock(facts)],
        limits(facts),
        root_only(facts),
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
        mend: is_mendable.then(|| mend.to_owned()),
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
    let found = match &facts.sandbox {
        Ok(()) => Ok("one whole run of a program that does nothing succeeded".to_owned()),
        Err(error) => Err(format!(
            "no body can be run: {} ({})",
            error.message, error.code
        )),
    };
    check("sandbox", Need::Running, found, hint(&facts.sandbox))
}

fn namespaces(facts: &Facts) -> Vec<Item> {
    // Each of the others is tried in a new user namespace.
    let is_user = |(kind, _): &&(NamespaceKind, _)| *kind == NamespaceKind::User;
    let user = facts.namespaces.iter().find(is_user);
    let user_mend = user.and_then(|(_, made)| user_namespaces::item(facts, made).mend);
    let of_kind = |(kind, made): &(NamespaceKind, Result<(), String>)| {
        let (id, effect) = kind.row();
        let (needed_for, kernel) = match kind {
            NamespaceKind::User => return user_namespaces::item(facts, made),
            NamespaceKind::Time => (Need::Strength, "Linux 5.6 or later with CONFIG_TIME_NS=y"),
            _ => (Need::Running, "a kernel built with CONFIG_NAMESPACES=y"),
        };
        let name = match kind {
            NamespaceKind::Mount => "mnt",
            NamespaceKind::Network => "net",
            _ => id.trim_end_matches("_namespace"),
        };
        let own_mend = format!("sysctl -w user.max_{name}_namespaces=10000 # or install {kernel}");
        let mend = user_mend.as_ref().unwrap_or(&own_mend);
        let found = match made {
            Ok(()) => Ok(effect.to_owned()),
            Err(errno) => Err(format!("cannot be made ({errno}); with it, {effect}")),
        };
        check(id, needed_for, found, mend)
    };
    facts.namespaces.iter().map(of_kind).collect()
}

fn calls(facts: &Facts) -> Vec<Item> {
    let of_call = |(name, since, is_available): &(&'static str, &'static str, bool)| {
        let (needed_for, loss) = match *name {
            OPENAT2 => (Need::Convenience, "no run with an image is started"),
            _ => (Need::Running, "no body can be run"),
        };
        let found = if *is_available {
            Ok(format!("{name}(2) is available"))
        } else {
            Err(format!("{name}(2) is missing or filtered: {loss}"))
        };
        check(name, needed_for, found, &call_mend(name, since))
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
    check("seccomp", Need::Running, found, mend)
}

fn no_new_privs(facts: &Facts) -> Item {
    let effect = "set-user-id programs give the body nothing";
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
            format!("no run starts: the kernel does not report its version: {errno}"),
            "see what refuses landlock_create_ruleset(2): a filter around this program, or the kernel's log",
        ),
        Ok(0) => (
            Need::Strength,
            Absent,
            "no second layer behind the file tree and the namespaces".to_owned(),
            "boot with lsm=landlock,… on Linux 6.12 or later (CONFIG_SECURITY_LANDLOCK=y)",
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
                    "ABI {abi}: a second layer for files{renames}, none for signals and abstract sockets"
                ),
                "install Linux 6.12 or later (Landlock ABI 6)",
            )
        }
        Ok(abi) => (
            Need::Strength,
            Enforced,
            format!("ABI {abi}: a second layer for files, signals and abstract sockets"),
            "",
        ),
    };
    item("landlock", needed_for, state, effect, mend)
}

/// The cgroup back end, and how each limit is enforced with it.
fn limits(facts: &Facts) -> Vec<Item> {
    let of_axis = |covered: &Coverage| {
        let what = match covered.axis {
            "memory" => "memory of the whole tree",
            "processes" => "processes and threads of the whole tree",
            "cpu_share" => "share of the processors (--cpus)",
            "cpu_time" => "CPU time of the whole tree (--cpu-time)",
            other => other,
        };
        let how = match (covered.state, &covered.reason) {
            (EnforcementState::Enforced, _) | (_, None) => {
                format!("through {}", covered.enforced_by)
            }
            // The item `cgroup` says why there is no group.
            (_, Some(reason)) if facts.cgroup_backend == "none" => last_clause(reason).to_owned(),
            (_, Some(reason)) => reason.clone(),
        };
        item(
            &format!("limit_{}", covered.axis),
            Need::Strength,
            covered.state,
            format!("{what}: {how}"),
            &axis_mend(facts, covered.axis),
        )
    };
    let backend = &facts.cgroup_backend;
    let found = match &facts.cgroup_reason {
        _ if backend != "none" => Ok(format!(
            "back end {backend}: limits hold for the whole tree"
        )),
        Some(reason) => Err(format!(
            "limits hold for each process, or are polled, because {}",
            first_clause(reason)
        )),
        None => Err("limits hold for each process, or are polled".to_owned()),
    };
    let group = check("cgroup", Need::Strength, found, &cgroup_mend(facts));
    std::iter::once(group)
        .chain(facts.coverage.iter().map(of_axis))
        .collect()
}

/// The clause of an axis's reason that says what holds instead.
#[must_use]
pub(crate) fn last_clause(reason: &str) -> &str {
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

/// The command for a limit: without groups that for groups, else that for the missing controller.
fn axis_mend(facts: &Facts, axis: &str) -> String {
    let controller = match axis {
        "processes" => "pids",
        "cpu_share" => "cpu",
        "cpu_time" => "cpuacct",
        _ => return cgroup_mend(facts),
    };
    match (facts.cgroup_backend.as_str(), facts.systemd, facts.uid) {
        ("none", ..) => cgroup_mend(facts),
        ("v1", ..) => {
            let directory = format!("/sys/fs/cgroup/{controller}");
            format!("mkdir {directory} && mount -t cgroup -o {controller} {controller} {directory}")
        }
        (_, true, 1..) => {
            "sudo systemctl edit user@.service # [Service] Delegate=cpu memory pids, then \
                           log in again"
                .to_owned()
        }
        _ => format!(
            "echo +{controller} >/sys/fs/cgroup/cgroup.subtree_control # and in each group above \
             that of the runner"
        ),
    }
}

fn root_only(facts: &Facts) -> Vec<Item> {
    let range = facts.uid_range.as_ref().map(|(unmapped, range)| {
        let found = match unmapped {
            None => Ok(format!("each run has a uid of its own from {range}")),
            Some(ids) => Err(format!(
                "the {ids} {range} are not mapped here: root's runs cannot be started"
            )),
        };
        let mend = "set uid_range in /etc/runner/config.yaml to ids of /proc/self/uid_map and \
                    /proc/self/gid_map";
        check("uid_range", Need::Running, found, mend)
    });
    let mounts = facts.idmapped_mounts.as_ref().map(|mappable| {
        let found = match mappable {
            Ok(()) => Ok("--rw shows the caller's files as the body's own".to_owned()),
            Err(errno) => Err(format!(
                "--rw is refused for the working directory here ({errno})"
            )),
        };
        let mend = "keep workspaces on ext4, xfs, btrfs or tmpfs, on Linux 5.12 or later";
        check("idmapped_mounts", Need::Strength, found, mend)
    });
    range.into_iter().chain(mounts).collect()
}

fn runtime_directory(facts: &Facts) -> Item {
    let found = match &facts.runtime_directory {
        Ok(path) => Ok(format!("records of runs are in {path}")),
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
                "unpacked bundles are kept in {} ({medium}), {used} of {size} MiB are used",
                cache.directory
            ))
        }
        Err(error) => Err(format!("each run unpacks its bundle: {}", error.message)),
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
            .ok_or_else(|| format!("bundles that need {name} cannot be run"));
        let mend = format!("apt-get install {package}");
        check(name, Need::Convenience, found, &mend)
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
        }
    }

    fn error() -> ErrorReport {
        ErrorReport {
            code: "x_failed".to_owned(),
            message: "cannot x".to_owned(),
            hint: Some("do y".to_owned()),
        }
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
        let of_user = Some("sysctl -w user.max_user_namespaces=10000".to_owned());
        assert_eq!(
            mends(&[0, 1, 7]),
            [of_user.clone(), of_user.clone(), of_user]
        );
        let names = ["mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];
        for (mend, name) in mends(&[1, 2, 3, 4, 5, 6, 7]).into_iter().zip(names) {
            let command = format!("sysctl -w user.max_{name}_namespaces=10000 # or install ");
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

    /// Without openat2(2) paths are walked component by component, except to mount into the root of an
    /// image.
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
    fn the_command_for_a_limit_names_its_controller() {
        for (backend, systemd, uid, axis, expected) in [
            ("v2", false, 0, "memory", "swapaccount=1"),
            ("v2", false, 0, "processes", "echo +pids >"),
            ("v2", true, 0, "cpu_share", "echo +cpu >"),
            ("v2", true, 7, "cpu_share", "edit user@.service"),
            ("v1", false, 0, "cpu_time", "-o cpuacct"),
            ("none", true, 7, "cpu_share", "systemd-run --user"),
        ] {
            let facts = Facts {
                cgroup_backend: backend.to_owned(),
                systemd,
                uid,
                ..full()
            };
            let mend = axis_mend(&facts, axis);
            assert!(mend.contains(expected), "{backend} {axis}: {mend}");
        }
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
