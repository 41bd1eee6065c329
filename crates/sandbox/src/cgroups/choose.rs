//! Choice of the back end and the parent cgroup: pure, from observed facts.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{self, Controller, Hierarchy, Layout};
use super::{Backend, Hybrid, SUPERVISOR_LEAF, Unified, V1Parent, group_name};

/// Properties of one cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupFacts {
    /// Why no cgroup can be created in it; `None`: writable.
    pub unwritable: Option<String>,
    /// `cgroup.procs` is writable, which moving a process across this cgroup requires.
    pub may_move_processes: bool,
    /// Version 2: `cgroup.controllers`.
    pub controllers: String,
    /// Version 2: `cgroup.subtree_control`.
    pub enabled: String,
    pub other_processes: usize,
    /// The root cgroup, which may have both processes and controllers.
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

/// The cgroups whose [`GroupFacts`] are needed: parents and, in version 2, their ancestors.
///
/// `parent_named` is a path such as `/runner` below the top of each hierarchy.
#[must_use]
pub(crate) fn groups_to_probe(
    parent_named: Option<&str>,
    own: &str,
    mounts: &str,
) -> BTreeSet<String> {
    let layout = layout::read(own, mounts);
    let mut wanted: BTreeSet<String> = layout
        .v1
        .values()
        .chain(&layout.freezer)
        .filter_map(|hierarchy| hierarchy.parent(parent_named).ok())
        .collect();
    if let Some(unified) = &layout.unified {
        wanted.extend(unified.parent(parent_named));
        if let Ok(own) = &unified.own {
            wanted.extend(upwards(own, &unified.mount_point).map(str::to_owned));
        }
    }
    wanted
}

/// Chooses the back end, beneath `parent_named` or our own cgroup.
#[must_use]
pub fn choose(parent_named: Option<&str>, host: &HostCgroups) -> Backend {
    let layout = layout::read(&host.own, &host.mounts);
    if tree_has_memory(&layout, host) {
        return match choose_v2(parent_named, &layout, host) {
            Ok(unified) => Backend::V2(unified),
            Err(reason) => Backend::None { reason },
        };
    }
    choose_v1(parent_named, &layout, host)
}

/// The first reason in full; the hierarchies of one host mostly have the same.
fn in_short(reasons: &[String]) -> String {
    match reasons {
        [] => "no controller is there".to_owned(),
        [only] => only.clone(),
        [first, others @ ..] => format!("{first}; {} more like it", others.len()),
    }
}

/// Whether to re-execute in a systemd scope, and which manager to ask: true if systemd manages the
/// version 2 tree and has not delegated our part.
#[must_use]
pub fn should_reexec(parent_named: Option<&str>, host: &HostCgroups) -> Option<ScopeOwner> {
    if host.in_delegated_scope || parent_named.is_some() {
        return None;
    }
    let layout = layout::read(&host.own, &host.mounts);
    if !tree_has_memory(&layout, host) || choose_v2(None, &layout, host).is_ok() {
        return None;
    }
    let owner = match host.is_root {
        true => ScopeOwner::System,
        false => ScopeOwner::User,
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

/// Whether version 2 limits memory: no version 1 hierarchy has the controller, and the visible top
/// of the tree or our own cgroup has it.
fn tree_has_memory(layout: &Layout, host: &HostCgroups) -> bool {
    let Some(unified) = &layout.unified else {
        return false;
    };
    if layout.v1.contains_key(&Controller::Memory) {
        return false;
    }
    let mut seen = vec![unified.mount_point.as_str()];
    seen.extend(unified.own.iter().map(String::as_str));
    // Without version 1 the tree is used in any case.
    layout.v1.is_empty()
        || seen.iter().any(|path| {
            host.groups
                .get(*path)
                .is_some_and(|facts| has(&facts.controllers, Controller::Memory))
        })
}

fn choose_v2(
    parent_named: Option<&str>,
    layout: &Layout,
    host: &HostCgroups,
) -> Result<Unified, String> {
    let Some(unified) = &layout.unified else {
        return Err("no cgroup file system is mounted".to_owned());
    };
    if parent_named.is_some() {
        let parent = unified.parent(parent_named)?;
        may_enter(&parent, unified, host)?;
        return usable_v2(&parent, unified, host);
    }
    let own = outside_of_leaf(unified.own.clone()?, host);
    let own_facts = facts(&own, host)?;
    let lacks_all = Controller::OF_V2
        .iter()
        .all(|controller| !has(&own_facts.controllers, *controller));
    if own_facts.unwritable.is_none() && !lacks_all {
        return delegated(&own, host).and_then(|()| usable_v2(&own, unified, host));
    }
    // Our own cgroup is not writable or cannot be limited. Use an ancestor if it is delegated as a
    // whole (DelegateSubgroup=) or if no manager owns the tree.
    let ours_to_use = |path: &&str| {
        host.groups.get(*path).is_some_and(|facts| {
            facts.unwritable.is_none()
                && facts.may_move_processes
                && (facts.marked_delegated || !systemd_manages(host))
        })
    };
    match upwards(&own, &unified.mount_point)
        .skip(1)
        .find(ours_to_use)
    {
        Some(parent) => usable_v2(parent, unified, host),
        None => Err(match &own_facts.unwritable {
            Some(why) => format!("{own} was not handed over to us: {why}"),
            None => format!("{own} has none of the controllers memory, pids and cpu"),
        }),
    }
}

/// The leaf of an earlier run in this process is not a parent: use the cgroup above.
fn outside_of_leaf(own: String, host: &HostCgroups) -> String {
    let above = own
        .strip_suffix(&group_name(SUPERVISOR_LEAF))
        .and_then(|path| path.strip_suffix('/'));
    let is_ours = |above: &str| {
        host.groups.get(above).is_some_and(|facts| {
            facts.unwritable.is_none()
                && facts.may_move_processes
                && !facts.enabled.trim().is_empty()
                && delegated(above, host).is_ok()
        })
    };
    match above {
        Some(above) if is_ours(above) => above.to_owned(),
        _ => own,
    }
}

/// Root can write everywhere, so check systemd's delegation mark instead.
fn delegated(own: &str, host: &HostCgroups) -> Result<(), String> {
    let facts = facts(own, host)?;
    let taken_on_trust = !host.is_root || !systemd_manages(host) || host.in_delegated_scope;
    match taken_on_trust || facts.marked_delegated {
        true => Ok(()),
        false => Err(format!(
            "{own} is managed by systemd and was not handed over (Delegate=yes)"
        )),
    }
}

fn systemd_manages(host: &HostCgroups) -> bool {
    host.managers.contains(&ScopeOwner::System)
}

fn usable_v2(parent: &str, unified: &Hierarchy, host: &HostCgroups) -> Result<Unified, String> {
    let facts = facts(parent, host)?;
    if let Some(why) = &facts.unwritable {
        return Err(format!("no group can be made: {why}"));
    }
    let (present, absent): (Vec<Controller>, Vec<Controller>) = Controller::OF_V2
        .into_iter()
        .partition(|controller| has(&facts.controllers, *controller));
    if present.is_empty() {
        return Err(format!(
            "{parent} has none of the controllers memory, pids and cpu"
        ));
    }
    let to_enable: Vec<Controller> = present
        .iter()
        .copied()
        .filter(|controller| !has(&facts.enabled, *controller))
        .collect();
    // A cgroup below the top has either processes or enabled controllers (EBUSY).
    let must_be_empty = !to_enable.is_empty() && !facts.top_of_tree;
    if must_be_empty && 0 < facts.other_processes {
        return Err(format!(
            "{parent} holds {} other processes, so that it cannot hand out controllers; \
             start the runner in a group of its own, or name an empty one as cgroup parent",
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
            .map(|controller| (controller, not_available(controller, parent)))
            .collect(),
        in_delegated_scope: host.in_delegated_scope,
    })
}

fn choose_v1(parent_named: Option<&str>, layout: &Layout, host: &HostCgroups) -> Backend {
    let mut parents: Vec<V1Parent> = Vec::new();
    let mut missing = Vec::new();
    for controller in Controller::ALL {
        let place = match layout.v1.get(&controller) {
            Some(hierarchy) => usable_v1(hierarchy, parent_named, host),
            None => Err(format!("no {} hierarchy is mounted", controller.name())),
        };
        match place {
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
            reason: in_short(&reasons),
        };
    }
    let unified = layout.unified.as_ref().and_then(|unified| {
        let parent = usable_v1(unified, parent_named, host).ok()?;
        may_enter(&parent, unified, host).ok()?;
        Some(parent)
    });
    if unified.is_some() {
        // cpu.stat of version 2 counts CPU time in every cgroup, without a controller.
        missing.retain(|(controller, _)| *controller != Controller::Cpuacct);
    }
    let freezer = match (&unified, &layout.freezer) {
        // cgroup.kill replaces the freezer.
        (Some(_), _) | (None, None) => None,
        (None, Some(freezer)) => usable_v1(freezer, parent_named, host).ok(),
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
    parent_named: Option<&str>,
    host: &HostCgroups,
) -> Result<String, String> {
    let parent = hierarchy.parent(parent_named)?;
    match &facts(&parent, host)?.unwritable {
        Some(why) => Err(format!("no group can be made: {why}")),
        None => Ok(parent),
    }
}

/// Version 2 requires write access to `cgroup.procs` of the nearest common ancestor of the old and
/// the new cgroup, also for CLONE_INTO_CGROUP.
fn may_enter(parent: &str, unified: &Hierarchy, host: &HostCgroups) -> Result<(), String> {
    if host.is_root {
        return Ok(());
    }
    let own = unified.own.clone()?;
    let above_both = upwards(&own, &unified.mount_point)
        .find(|path| *path == parent || parent.starts_with(&format!("{path}/")))
        .unwrap_or(&unified.mount_point);
    match facts(above_both, host)?.may_move_processes {
        true => Ok(()),
        false => Err(format!(
            "a process started in {own} may not enter {parent}: {above_both}/cgroup.procs is not writable"
        )),
    }
}

fn upwards<'path>(path: &'path str, mount_point: &'path str) -> impl Iterator<Item = &'path str> {
    std::iter::successors(Some(path), move |here| {
        let above = here.rsplit_once('/').map(|(above, _)| above)?;
        (*here != mount_point && mount_point.len() <= above.len()).then_some(above)
    })
}

fn facts<'host>(path: &str, host: &'host HostCgroups) -> Result<&'host GroupFacts, String> {
    host.groups
        .get(path)
        .ok_or_else(|| format!("{path} was not looked at"))
}

fn has(list: &str, controller: Controller) -> bool {
    list.split_ascii_whitespace()
        .any(|name| name == controller.name())
}

fn not_available(controller: Controller, parent: &str) -> String {
    format!(
        "{parent} does not have the {} controller",
        controller.name()
    )
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

    /// Root on a hybrid host: all is writable; the version 2 tree has only an unused controller.
    fn hybrid() -> HostCgroups {
        let mut host = HostCgroups {
            own: HYBRID_OWN.to_owned(),
            mounts: HYBRID_MOUNTS.to_owned(),
            is_root: true,
            ..HostCgroups::default()
        };
        look(&mut host, None, &writable(""));
        host
    }

    /// Version 2: this process is alone in `own`, which is writable and has all controllers.
    fn v2(own: &str) -> HostCgroups {
        let mut host = HostCgroups {
            own: format!("0::{own}\n"),
            mounts: V2_MOUNT.to_owned(),
            ..HostCgroups::default()
        };
        look(&mut host, None, &closed());
        host.groups.insert(place(own), writable(ALL));
        host
    }

    fn look(host: &mut HostCgroups, parent_named: Option<&str>, facts: &GroupFacts) {
        for path in groups_to_probe(parent_named, &host.own, &host.mounts) {
            host.groups.entry(path).or_insert_with(|| facts.clone());
        }
    }

    fn at<'host>(host: &'host mut HostCgroups, group: &str) -> &'host mut GroupFacts {
        host.groups.get_mut(&place(group)).expect("probed")
    }

    fn place(group: &str) -> String {
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

    fn closed() -> GroupFacts {
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
            other => panic!("there are groups: {other:?}"),
        }
    }

    #[test]
    fn a_hybrid_host_has_a_group_beneath_our_own_in_each_hierarchy_and_one_that_kills() {
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
    fn a_named_parent_is_taken_in_every_hierarchy_or_its_absence_is_said() {
        let mut host = hybrid();
        look(&mut host, Some("/runner-tests"), &writable(""));
        *at(&mut host, "/pids/runner-tests") = closed();
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
    fn without_a_version_2_tree_the_freezer_helps_to_kill() {
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
    fn an_ordinary_user_of_a_hybrid_host_uses_the_cgroups_that_he_owns() {
        let mut host = hybrid();
        host.is_root = false;
        look(&mut host, Some("/for-him"), &writable(""));
        // The user may write the cgroup, but the process was started outside of it.
        *at(&mut host, "/unified") = closed();
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
            *facts = closed();
        }
        let reason = reason_of(choose(None, &host));
        assert!(
            reason.starts_with("no group can be made: EACCES; "),
            "{reason}"
        );
        assert_eq!(
            should_reexec(None, &host),
            None,
            "systemd cannot help in version 1"
        );
    }

    #[test]
    fn in_a_delegated_scope_we_go_into_a_leaf_and_enable_the_controllers() {
        let mut host = v2(SCOPE);
        host.managers = vec![ScopeOwner::System];
        host.in_delegated_scope = true;
        let backend = choose(None, &host);
        assert_eq!(backend.name(), "v2-scope");
        let unified = v2_of(backend);
        assert_eq!(unified.parent, place(SCOPE));
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
        assert_eq!(unified.parent, place(SCOPE));
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
    fn a_login_session_of_root_belongs_to_systemd_and_asks_for_a_scope() {
        let own = "/user.slice/user-0.slice/session-1.scope";
        let mut host = v2(own);
        look(&mut host, None, &writable(ALL));
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
    fn a_service_of_root_s_that_was_handed_over_is_used_without_a_scope() {
        let mut host = v2("/system.slice/runner.service");
        host.is_root = true;
        host.managers = vec![ScopeOwner::System];
        at(&mut host, "/system.slice/runner.service").marked_delegated = true;
        assert_eq!(choose(None, &host).name(), "v2");
        assert_eq!(should_reexec(None, &host), None);
    }

    #[test]
    fn the_subgroup_that_systemd_started_us_in_is_not_the_parent_but_the_unit_above_is() {
        let unit = "/system.slice/runner.service";
        let mut host = v2(&format!("{unit}/supervisor"));
        host.managers = vec![ScopeOwner::System];
        at(&mut host, &format!("{unit}/supervisor")).controllers = "\n".to_owned();
        *at(&mut host, unit) = GroupFacts {
            marked_delegated: true,
            ..writable(ALL)
        };
        let unified = v2_of(choose(None, &host));
        assert_eq!(unified.parent, place(unit));
        assert!(!unified.move_to_leaf, "we are not in it");
    }

    #[test]
    fn a_slice_of_the_manager_s_own_is_never_taken_although_it_may_be_written() {
        let mut host = v2(SCOPE);
        host.managers = vec![ScopeOwner::System, ScopeOwner::User];
        at(&mut host, SCOPE).controllers = "\n".to_owned();
        let slice = "/user.slice/user-1000.slice/user@1000.service/app.slice";
        *at(&mut host, slice) = writable(ALL);
        reason_of(choose(None, &host));
        assert_eq!(should_reexec(None, &host), Some(ScopeOwner::User));
    }

    #[test]
    fn a_terminal_shares_its_scope_with_a_shell_and_asks_for_one_of_its_own() {
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
    fn a_read_only_tree_gives_no_groups_and_no_manager() {
        let mut host = v2("/");
        host.is_root = true;
        at(&mut host, "").unwritable = Some("EROFS".to_owned());
        let reason = reason_of(choose(None, &host));
        assert!(reason.contains("EROFS"), "{reason}");
        assert_eq!(should_reexec(None, &host), None);
    }

    #[test]
    fn the_top_of_the_tree_may_hold_processes_and_hand_out_controllers() {
        let mut host = v2("/");
        host.is_root = true;
        at(&mut host, "").top_of_tree = true;
        at(&mut host, "").other_processes = 90;
        let unified = v2_of(choose(None, &host));
        assert_eq!(unified.parent, "/sys/fs/cgroup");
        assert!(!unified.move_to_leaf);
    }

    #[test]
    fn a_user_outside_of_the_named_parent_could_not_clone_into_it() {
        let mut host = v2("/elsewhere");
        look(&mut host, Some("/runner"), &writable(ALL));
        let reason = reason_of(choose(Some("/runner"), &host));
        assert!(reason.contains("/sys/fs/cgroup/cgroup.procs"), "{reason}");
        host.is_root = true;
        assert_eq!(
            v2_of(choose(Some("/runner"), &host)).parent,
            place("/runner")
        );
    }

    #[test]
    fn a_host_without_any_cgroup_file_system_is_said_to_have_none() {
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
