//! Chooses the back end and the parent cgroup from observed facts. Has no effects.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{self, Controller, Hierarchy, Layout};
use super::{Backend, Hybrid, SUPERVISOR_LEAF, Unified, V1Parent, group_name};

/// Properties of one cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupFacts {
    /// Why no cgroup can be created in it; `None`: writable.
    pub unwritable: Option<String>,
    /// `cgroup.procs` is writable. The kernel requires that of the common ancestor to move a process.
    pub may_move_processes: bool,
    /// Version 2: `cgroup.controllers`.
    pub controllers: String,
    /// Version 2: `cgroup.subtree_control`.
    pub enabled: String,
    pub other_processes: usize,
    /// The root cgroup, which may have both processes and enabled controllers.
    pub top_of_tree: bool,
    /// Delegated by systemd (`trusted.delegate` or `user.delegate` is 1).
    pub marked_delegated: bool,
}

/// All inputs of the choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostCgroups {
    /// /proc/self/cgroup.
    pub own: String,
    /// /proc/self/mountinfo.
    pub mounts: String,
    /// The cgroups of `groups_to_probe`, by path.
    pub groups: BTreeMap<String, GroupFacts>,
    pub is_root: bool,
    pub managers: Vec<ScopeOwner>,
    /// This process was re-executed in a delegated systemd scope.
    pub in_delegated_scope: bool,
}

/// The cgroups whose [`GroupFacts`] the choice needs: possible parents and, in version 2, our own
/// cgroup and its ancestors.
///
/// `named_parent` is a path such as `/runner`, relative to the top of each hierarchy.
#[must_use]
pub(crate) fn groups_to_probe(
    named_parent: Option<&str>,
    own: &str,
    mounts: &str,
) -> BTreeSet<String> {
    let layout = layout::parse(own, mounts);
    let mut paths: BTreeSet<String> = layout
        .v1
        .values()
        .chain(&layout.freezer)
        .filter_map(|hierarchy| hierarchy.parent(named_parent).ok())
        .collect();
    if let Some(unified) = &layout.unified {
        paths.extend(unified.parent(named_parent));
        if let Ok(own) = &unified.own {
            paths.extend(ancestors(own, &unified.mount_point).map(str::to_owned));
        }
    }
    paths
}

/// Chooses the back end. The parent of runs is `named_parent`, else our own cgroup.
#[must_use]
pub fn choose(named_parent: Option<&str>, host: &HostCgroups) -> Backend {
    let layout = layout::parse(&host.own, &host.mounts);
    if uses_v2(&layout, host) {
        return match choose_v2(named_parent, &layout, host) {
            Ok(unified) => Backend::V2(unified),
            Err(reason) => Backend::None { reason },
        };
    }
    choose_v1(named_parent, &layout, host)
}

/// The first reason, because those of all hierarchies of one host are mostly the same.
fn summarize(reasons: &[String]) -> String {
    match reasons {
        [] => "no controllers exist".to_owned(),
        [only] => only.clone(),
        [first, others @ ..] => format!("{first} (and {} similar reasons)", others.len()),
    }
}

/// The manager whose scope this process should re-execute in, if systemd manages the version 2 tree
/// and has not delegated our part of it.
#[must_use]
pub fn should_reexec(named_parent: Option<&str>, host: &HostCgroups) -> Option<ScopeOwner> {
    if host.in_delegated_scope || named_parent.is_some() {
        return None;
    }
    let layout = layout::parse(&host.own, &host.mounts);
    if !uses_v2(&layout, host) || choose_v2(None, &layout, host).is_ok() {
        return None;
    }
    let owner = if host.is_root {
        ScopeOwner::System
    } else {
        ScopeOwner::User
    };
    host.managers.contains(&owner).then_some(owner)
}

/// The systemd manager that creates the scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeOwner {
    System,
    /// `--user`.
    User,
}

/// Whether runs use version 2: no version 1 hierarchy has the memory controller, and the visible
/// top of the tree or our own cgroup has it. Without version 1 the tree is used in any case.
fn uses_v2(layout: &Layout, host: &HostCgroups) -> bool {
    let Some(unified) = &layout.unified else {
        return false;
    };
    if layout.v1.contains_key(&Controller::Memory) {
        return false;
    }
    let mut paths = unified.own.iter().chain([&unified.mount_point]);
    layout.v1.is_empty()
        || paths.any(|path| {
            host.groups
                .get(path)
                .is_some_and(|facts| has(&facts.controllers, Controller::Memory))
        })
}

fn choose_v2(
    named_parent: Option<&str>,
    layout: &Layout,
    host: &HostCgroups,
) -> Result<Unified, String> {
    let Some(unified) = &layout.unified else {
        return Err("no cgroup file system is mounted".to_owned());
    };
    if named_parent.is_some() {
        let parent = unified.parent(named_parent)?;
        check_may_enter(&parent, unified, host)?;
        return usable_v2(&parent, unified, host);
    }
    let own = skip_supervisor_leaf(unified.own.clone()?, host);
    let own_facts = facts(&own, host)?;
    let lacks_all = Controller::OF_V2
        .iter()
        .all(|controller| !has(&own_facts.controllers, *controller));
    if own_facts.unwritable.is_none() && !lacks_all {
        return check_delegated(&own, host).and_then(|()| usable_v2(&own, unified, host));
    }
    // Our own cgroup is not writable or has no controllers. Use an ancestor that is delegated
    // (DelegateSubgroup=), or any writable one if no manager owns the tree.
    let is_usable = |path: &&str| {
        host.groups.get(*path).is_some_and(|facts| {
            facts.unwritable.is_none()
                && facts.may_move_processes
                && (facts.marked_delegated || !systemd_manages(host))
        })
    };
    match ancestors(&own, &unified.mount_point)
        .skip(1)
        .find(is_usable)
    {
        Some(parent) => usable_v2(parent, unified, host),
        None => Err(match &own_facts.unwritable {
            Some(why) => not_writable(why),
            None => no_controllers(&own),
        }),
    }
}

/// Returns the parent of `own` if an earlier run in this process moved the supervisor into its leaf
/// cgroup, else `own`.
fn skip_supervisor_leaf(own: String, host: &HostCgroups) -> String {
    let parent = own
        .strip_suffix(&group_name(SUPERVISOR_LEAF))
        .and_then(|path| path.strip_suffix('/'));
    let is_usable = |parent: &str| {
        host.groups.get(parent).is_some_and(|facts| {
            facts.unwritable.is_none()
                && facts.may_move_processes
                && !facts.enabled.trim().is_empty()
                && check_delegated(parent, host).is_ok()
        })
    };
    match parent {
        Some(parent) if is_usable(parent) => parent.to_owned(),
        _ => own,
    }
}

/// Root can write everywhere, so for root this checks systemd's delegation mark.
fn check_delegated(own: &str, host: &HostCgroups) -> Result<(), String> {
    let facts = facts(own, host)?;
    let needs_mark = host.is_root && systemd_manages(host) && !host.in_delegated_scope;
    if needs_mark && !facts.marked_delegated {
        return Err(format!(
            "{own} is managed by systemd and not delegated (Delegate=yes)"
        ));
    }
    Ok(())
}

fn systemd_manages(host: &HostCgroups) -> bool {
    host.managers.contains(&ScopeOwner::System)
}

fn not_writable(why: &str) -> String {
    format!("no cgroup can be created: {why}")
}

fn no_controllers(path: &str) -> String {
    format!("{path} has none of the controllers memory, pids and cpu")
}

fn usable_v2(parent: &str, unified: &Hierarchy, host: &HostCgroups) -> Result<Unified, String> {
    let facts = facts(parent, host)?;
    if let Some(why) = &facts.unwritable {
        return Err(not_writable(why));
    }
    let (present, absent): (Vec<Controller>, Vec<Controller>) = Controller::OF_V2
        .into_iter()
        .partition(|controller| has(&facts.controllers, *controller));
    if present.is_empty() {
        return Err(no_controllers(parent));
    }
    let to_enable: Vec<Controller> = present
        .iter()
        .copied()
        .filter(|controller| !has(&facts.enabled, *controller))
        .collect();
    // A cgroup below the top has either processes or enabled controllers (EBUSY).
    let must_be_empty = !to_enable.is_empty() && !facts.top_of_tree;
    if must_be_empty && facts.other_processes > 0 {
        return Err(format!(
            "{parent} contains {} other processes, so its controllers cannot be enabled; start the \
             runner in a separate cgroup, or name an empty one as cgroup parent",
            facts.other_processes
        ));
    }
    Ok(Unified {
        parent: parent.to_owned(),
        move_to_leaf: must_be_empty && unified.own.as_deref() == Ok(parent),
        to_enable,
        controllers: present,
        missing: absent
            .into_iter()
            .map(|controller| {
                let name = controller.name();
                (
                    controller,
                    format!("{parent} does not have the {name} controller"),
                )
            })
            .collect(),
        in_delegated_scope: host.in_delegated_scope,
    })
}

fn choose_v1(named_parent: Option<&str>, layout: &Layout, host: &HostCgroups) -> Backend {
    let mut parents: Vec<V1Parent> = Vec::new();
    let mut missing = Vec::new();
    for controller in Controller::ALL {
        let parent = match layout.v1.get(&controller) {
            Some(hierarchy) => usable_v1(hierarchy, named_parent, host),
            None => Err(format!("no {} hierarchy is mounted", controller.name())),
        };
        match parent {
            Ok(path) => match parents.iter_mut().find(|parent| parent.path == path) {
                Some(shared) => shared.controllers.push(controller),
                None => parents.push(V1Parent {
                    path,
                    controllers: vec![controller],
                }),
            },
            Err(reason) => missing.push((controller, reason)),
        }
    }
    if parents.is_empty() {
        let reasons: Vec<String> = missing.into_iter().map(|(_, reason)| reason).collect();
        return Backend::None {
            reason: summarize(&reasons),
        };
    }
    let unified = layout.unified.as_ref().and_then(|unified| {
        let parent = usable_v1(unified, named_parent, host).ok()?;
        check_may_enter(&parent, unified, host).ok()?;
        Some(parent)
    });
    if unified.is_some() {
        // Version 2 counts CPU time in every cgroup (cpu.stat), without a controller.
        missing.retain(|(controller, _)| *controller != Controller::Cpuacct);
    }
    let freezer = match (&unified, &layout.freezer) {
        // cgroup.kill replaces the freezer.
        (Some(_), _) | (None, None) => None,
        (None, Some(freezer)) => usable_v1(freezer, named_parent, host).ok(),
    };
    Backend::V1(Hybrid {
        parents,
        unified,
        freezer,
        missing,
    })
}

fn usable_v1(
    hierarchy: &Hierarchy,
    named_parent: Option<&str>,
    host: &HostCgroups,
) -> Result<String, String> {
    let parent = hierarchy.parent(named_parent)?;
    match &facts(&parent, host)?.unwritable {
        Some(why) => Err(not_writable(why)),
        None => Ok(parent),
    }
}

/// Checks that a process may move from our cgroup to `parent`. Version 2 requires write access to
/// `cgroup.procs` of the nearest common ancestor, also for CLONE_INTO_CGROUP.
fn check_may_enter(parent: &str, unified: &Hierarchy, host: &HostCgroups) -> Result<(), String> {
    if host.is_root {
        return Ok(());
    }
    let own = unified.own.clone()?;
    let common = ancestors(&own, &unified.mount_point)
        .find(|path| *path == parent || parent.starts_with(&format!("{path}/")))
        .unwrap_or(&unified.mount_point);
    if facts(common, host)?.may_move_processes {
        return Ok(());
    }
    Err(format!(
        "a process in {own} may not move to {parent}: {common}/cgroup.procs is not writable"
    ))
}

/// `path` and the cgroups above it, up to the mount point.
fn ancestors<'path>(path: &'path str, mount_point: &'path str) -> impl Iterator<Item = &'path str> {
    std::iter::successors(Some(path), move |path| {
        let (parent, _) = path.rsplit_once('/')?;
        (*path != mount_point && parent.len() >= mount_point.len()).then_some(parent)
    })
}

fn facts<'host>(path: &str, host: &'host HostCgroups) -> Result<&'host GroupFacts, String> {
    host.groups
        .get(path)
        .ok_or_else(|| format!("{path} was not probed"))
}

fn has(list: &str, controller: Controller) -> bool {
    list.split_ascii_whitespace()
        .any(|name| name == controller.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "cpuset cpu io memory hugetlb pids\n";
    const SCOPE: &str = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope";
    const V2_MOUNT: &str =
        "24 23 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID_MOUNTS: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
        39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const HYBRID_OWN: &str = "9:name=systemd:/\n8:pids:/\n6:freezer:/\n4:memory:/api/x\n\
        2:cpu,cpuacct:/\n0::/\n";

    /// Root on a hybrid host: everything is writable; the version 2 tree has no controllers.
    fn hybrid() -> HostCgroups {
        let mut host = HostCgroups {
            own: HYBRID_OWN.to_owned(),
            mounts: HYBRID_MOUNTS.to_owned(),
            is_root: true,
            ..HostCgroups::default()
        };
        probe_all(&mut host, None, &writable(""));
        host
    }

    /// Version 2: this process is alone in `own`, which is writable and has all controllers.
    fn v2(own: &str) -> HostCgroups {
        let mut host = HostCgroups {
            own: format!("0::{own}\n"),
            mounts: V2_MOUNT.to_owned(),
            ..HostCgroups::default()
        };
        probe_all(&mut host, None, &unwritable());
        host.groups.insert(full_path(own), writable(ALL));
        host
    }

    fn probe_all(host: &mut HostCgroups, named_parent: Option<&str>, facts: &GroupFacts) {
        for path in groups_to_probe(named_parent, &host.own, &host.mounts) {
            host.groups.entry(path).or_insert_with(|| facts.clone());
        }
    }

    fn at<'host>(host: &'host mut HostCgroups, group: &str) -> &'host mut GroupFacts {
        host.groups.get_mut(&full_path(group)).expect("probed")
    }

    fn full_path(group: &str) -> String {
        format!("/sys/fs/cgroup{group}")
            .trim_end_matches('/')
            .to_owned()
    }

    fn writable(controllers: &str) -> GroupFacts {
        GroupFacts {
            may_move_processes: true,
            controllers: controllers.to_owned(),
            ..GroupFacts::default()
        }
    }

    fn unwritable() -> GroupFacts {
        GroupFacts {
            unwritable: Some("EACCES".to_owned()),
            controllers: ALL.to_owned(),
            ..GroupFacts::default()
        }
    }

    fn v2_of(backend: Backend) -> Unified {
        match backend {
            Backend::V2(unified) => unified,
            other => panic!("not version 2: {other:?}"),
        }
    }

    fn v1_of(backend: Backend) -> Hybrid {
        match backend {
            Backend::V1(hybrid) => hybrid,
            other => panic!("not version 1: {other:?}"),
        }
    }

    fn reason_of(backend: Backend) -> String {
        match backend {
            Backend::None { reason } => reason,
            other => panic!("a back end exists: {other:?}"),
        }
    }

    #[test]
    fn a_hybrid_host_has_a_group_beneath_our_own_in_each_hierarchy_and_in_version_2() {
        let hybrid = v1_of(choose(None, &hybrid()));
        let parents: Vec<(&str, &[Controller])> = hybrid
            .parents
            .iter()
            .map(|parent| (parent.path.as_str(), parent.controllers.as_slice()))
            .collect();
        assert_eq!(
            parents,
            [
                ("/sys/fs/cgroup/memory/api/x", &[Controller::Memory][..]),
                ("/sys/fs/cgroup/pids", &[Controller::Pids]),
                (
                    "/sys/fs/cgroup/cpu,cpuacct",
                    &[Controller::Cpu, Controller::Cpuacct]
                ),
            ]
        );
        assert_eq!(hybrid.unified.as_deref(), Some("/sys/fs/cgroup/unified"));
        assert_eq!(hybrid.freezer, None);
        assert!(hybrid.missing.is_empty());
    }

    #[test]
    fn a_named_parent_is_used_in_every_hierarchy_where_it_is_writable() {
        let mut host = hybrid();
        probe_all(&mut host, Some("/runner-tests"), &writable(""));
        *at(&mut host, "/pids/runner-tests") = unwritable();
        let backend = choose(Some("/runner-tests"), &host);
        assert_eq!(
            backend.planned_paths("7"),
            [
                "/sys/fs/cgroup/unified/runner-tests/runner-7",
                "/sys/fs/cgroup/memory/runner-tests/runner-7",
                "/sys/fs/cgroup/cpu,cpuacct/runner-tests/runner-7",
            ]
        );
        let missing: Vec<Controller> = v1_of(backend).missing.iter().map(|(c, _)| *c).collect();
        assert_eq!(missing, [Controller::Pids]);
    }

    #[test]
    fn without_a_version_2_tree_the_freezer_is_used() {
        let mut host = hybrid();
        host.own = host.own.replace("0::/\n", "");
        let hybrid = v1_of(choose(None, &host));
        assert_eq!(hybrid.unified, None);
        assert_eq!(hybrid.freezer.as_deref(), Some("/sys/fs/cgroup/freezer"));
    }

    #[test]
    fn cpu_time_is_counted_by_the_version_2_tree_where_its_own_hierarchy_is_missing() {
        let mut host = hybrid();
        host.own = host.own.replace("2:cpu,cpuacct:/\n", "");
        let missing: Vec<Controller> = v1_of(choose(None, &host))
            .missing
            .iter()
            .map(|(controller, _)| *controller)
            .collect();
        assert_eq!(missing, [Controller::Cpu]);
    }

    #[test]
    fn an_ordinary_user_of_a_hybrid_host_uses_the_writable_cgroups() {
        let mut host = hybrid();
        host.is_root = false;
        probe_all(&mut host, Some("/for-him"), &writable(""));
        // The user may write the cgroup, but the process was started outside of it.
        *at(&mut host, "/unified") = unwritable();
        let hybrid = v1_of(choose(Some("/for-him"), &host));
        assert_eq!(hybrid.parents.len(), 3);
        assert_eq!(hybrid.unified, None, "clone would fail with EACCES");
        assert_eq!(
            hybrid.freezer.as_deref(),
            Some("/sys/fs/cgroup/freezer/for-him")
        );
        // Started inside of it, the process may enter.
        host.own = host.own.replace("0::/\n", "0::/for-him\n");
        let hybrid = v1_of(choose(Some("/for-him"), &host));
        assert_eq!(
            hybrid.unified.as_deref(),
            Some("/sys/fs/cgroup/unified/for-him")
        );
    }

    #[test]
    fn an_ordinary_user_without_delegation_gets_the_reason() {
        let mut host = hybrid();
        host.is_root = false;
        for facts in host.groups.values_mut() {
            *facts = unwritable();
        }
        let reason = reason_of(choose(None, &host));
        assert!(
            reason.starts_with("no cgroup can be created: EACCES (and "),
            "{reason}"
        );
        assert_eq!(
            should_reexec(None, &host),
            None,
            "systemd cannot help in version 1"
        );
    }

    #[test]
    fn in_a_delegated_scope_the_supervisor_moves_to_a_leaf_and_controllers_are_enabled() {
        let mut host = v2(SCOPE);
        host.managers = vec![ScopeOwner::System];
        host.in_delegated_scope = true;
        let backend = choose(None, &host);
        assert_eq!(backend.name(), "v2-scope");
        let unified = v2_of(backend);
        assert_eq!(unified.parent, full_path(SCOPE));
        assert!(unified.move_to_leaf);
        assert_eq!(unified.to_enable, Controller::OF_V2);
        assert!(unified.missing.is_empty());
    }

    #[test]
    fn the_second_run_of_one_process_has_the_same_parent_as_the_first() {
        let mut host = v2(&format!("{SCOPE}/runner-supervisor"));
        host.managers = vec![ScopeOwner::System];
        host.in_delegated_scope = true;
        *at(&mut host, &format!("{SCOPE}/runner-supervisor")) = writable(ALL);
        *at(&mut host, SCOPE) = GroupFacts {
            enabled: ALL.to_owned(),
            ..writable(ALL)
        };
        let unified = v2_of(choose(None, &host));
        assert_eq!(unified.parent, full_path(SCOPE));
        assert!(!unified.move_to_leaf && unified.to_enable.is_empty());
    }

    #[test]
    fn enabled_controllers_are_not_enabled_again() {
        let mut host = v2("/runner.service");
        *at(&mut host, "/runner.service") = GroupFacts {
            enabled: "memory pids\n".to_owned(),
            ..writable("memory pids\n")
        };
        let unified = v2_of(choose(None, &host));
        assert!(unified.to_enable.is_empty() && !unified.move_to_leaf);
        let missing: Vec<Controller> = unified.missing.iter().map(|(c, _)| *c).collect();
        assert_eq!(missing, [Controller::Cpu]);
        let backend = Backend::V2(unified);
        assert_eq!(backend.name(), "v2");
        assert_eq!(backend.coverage()[2].enforced_by, "none");
    }

    #[test]
    fn a_login_session_of_root_belongs_to_systemd_and_needs_a_scope() {
        let own = "/user.slice/user-0.slice/session-1.scope";
        let mut host = v2(own);
        probe_all(&mut host, None, &writable(ALL));
        host.is_root = true;
        host.managers = vec![ScopeOwner::System];
        at(&mut host, own).other_processes = 2;
        let reason = reason_of(choose(None, &host));
        assert!(reason.contains("Delegate=yes"), "{reason}");
        assert_eq!(should_reexec(None, &host), Some(ScopeOwner::System));
        host.in_delegated_scope = true;
        assert_eq!(should_reexec(None, &host), None, "never twice");
    }

    #[test]
    fn a_delegated_service_of_root_is_used_without_a_scope() {
        let mut host = v2("/system.slice/runner.service");
        host.is_root = true;
        host.managers = vec![ScopeOwner::System];
        at(&mut host, "/system.slice/runner.service").marked_delegated = true;
        assert_eq!(choose(None, &host).name(), "v2");
        assert_eq!(should_reexec(None, &host), None);
    }

    #[test]
    fn with_delegate_subgroup_the_unit_is_the_parent() {
        let unit = "/system.slice/runner.service";
        let mut host = v2(&format!("{unit}/supervisor"));
        host.managers = vec![ScopeOwner::System];
        at(&mut host, &format!("{unit}/supervisor")).controllers = "\n".to_owned();
        *at(&mut host, unit) = GroupFacts {
            marked_delegated: true,
            ..writable(ALL)
        };
        let unified = v2_of(choose(None, &host));
        assert_eq!(unified.parent, full_path(unit));
        assert!(!unified.move_to_leaf, "we are not in it");
    }

    #[test]
    fn a_slice_of_the_manager_is_never_used_although_it_is_writable() {
        let mut host = v2(SCOPE);
        host.managers = vec![ScopeOwner::System, ScopeOwner::User];
        at(&mut host, SCOPE).controllers = "\n".to_owned();
        let slice = "/user.slice/user-1000.slice/user@1000.service/app.slice";
        *at(&mut host, slice) = writable(ALL);
        reason_of(choose(None, &host));
        assert_eq!(should_reexec(None, &host), Some(ScopeOwner::User));
    }

    #[test]
    fn a_terminal_shares_its_scope_with_a_shell_and_needs_another_scope() {
        let mut host = v2(SCOPE);
        host.managers = vec![ScopeOwner::System, ScopeOwner::User];
        at(&mut host, SCOPE).other_processes = 1;
        let reason = reason_of(choose(None, &host));
        assert!(reason.contains("1 other processes"), "{reason}");
        assert_eq!(should_reexec(None, &host), Some(ScopeOwner::User));
        host.managers = vec![ScopeOwner::System];
        assert_eq!(should_reexec(None, &host), None, "no manager");
    }

    #[test]
    fn a_read_only_tree_has_neither_groups_nor_a_manager() {
        let mut host = v2("/");
        host.is_root = true;
        at(&mut host, "").unwritable = Some("EROFS".to_owned());
        let reason = reason_of(choose(None, &host));
        assert!(reason.contains("EROFS"), "{reason}");
        assert_eq!(should_reexec(None, &host), None);
    }

    #[test]
    fn the_top_of_the_tree_may_have_processes_and_enabled_controllers() {
        let mut host = v2("/");
        host.is_root = true;
        at(&mut host, "").top_of_tree = true;
        at(&mut host, "").other_processes = 90;
        let unified = v2_of(choose(None, &host));
        assert_eq!(unified.parent, "/sys/fs/cgroup");
        assert!(!unified.move_to_leaf);
    }

    #[test]
    fn a_user_outside_of_the_named_parent_cannot_clone_into_it() {
        let mut host = v2("/elsewhere");
        probe_all(&mut host, Some("/runner"), &writable(ALL));
        let reason = reason_of(choose(Some("/runner"), &host));
        assert!(reason.contains("/sys/fs/cgroup/cgroup.procs"), "{reason}");
        host.is_root = true;
        assert_eq!(
            v2_of(choose(Some("/runner"), &host)).parent,
            full_path("/runner")
        );
    }

    #[test]
    fn a_host_without_any_cgroup_file_system_has_no_back_end_and_a_reason() {
        for (own, mounts) in [("", ""), ("0::/\n", ""), (HYBRID_OWN, "")] {
            let host = HostCgroups {
                own: own.to_owned(),
                mounts: mounts.to_owned(),
                is_root: true,
                ..HostCgroups::default()
            };
            let backend = choose(None, &host);
            assert_eq!(backend.name(), "none", "{own}");
            assert!(!reason_of(backend).is_empty());
        }
    }
}
