//! Which back end, beneath which group: a pure decision over what was observed.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{self, Controller, Hierarchy, Layout};
use super::{Backend, Hybrid, Unified, V1Parent};

/// What one group looks like from here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupFacts {
    /// Why no group can be made in it; `None`: one can.
    pub unwritable: Option<String>,
    /// `cgroup.procs` may be written, which moving a process across this group asks for.
    pub may_move_processes: bool,
    /// Version 2: `cgroup.controllers`.
    pub controllers: String,
    /// Version 2: `cgroup.subtree_control`.
    pub enabled: String,
    /// This process is in the group itself, not below it.
    pub holds_this_process: bool,
    /// How many other processes are in the group itself.
    pub other_processes: usize,
    /// The top of the whole tree, where processes and controllers may stand together.
    pub top_of_tree: bool,
    /// systemd marked it as handed over (`trusted.delegate` or `user.delegate` is 1).
    pub marked_delegated: bool,
}

/// Everything that the choice depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostCgroups {
    /// /proc/self/cgroup.
    pub own: String,
    /// /proc/self/mountinfo.
    pub mounts: String,
    /// The groups that [`groups_to_probe`] names, by path.
    pub groups: BTreeMap<String, GroupFacts>,
    /// The effective uid is 0.
    pub is_root: bool,
    /// systemd is the system's manager and answers.
    pub system_manager: bool,
    /// The user has a systemd manager of his own and it answers.
    pub user_manager: bool,
    /// This process was re-executed into a scope that systemd delegated.
    pub in_delegated_scope: bool,
}

/// The groups whose [`GroupFacts`] the choice will want: parents and, in version 2, their ancestors.
///
/// `parent_named`: a path such as `/runner` that is taken below the top of each hierarchy.
#[must_use]
pub fn groups_to_probe(parent_named: Option<&str>, own: &str, mounts: &str) -> BTreeSet<String> {
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

/// Chooses the back end; beneath the group that we were started in unless `parent_named` names one.
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

/// Whether a run of ours would be better off in a scope of its own: `Some` says whose manager to ask.
///
/// True for a version 2 tree that systemd manages and whose part around us was not handed over.
#[must_use]
pub fn should_reexec(parent_named: Option<&str>, host: &HostCgroups) -> Option<ScopeOwner> {
    if host.in_delegated_scope || parent_named.is_some() {
        return None;
    }
    let layout = layout::read(&host.own, &host.mounts);
    if !tree_has_memory(&layout, host) || choose_v2(None, &layout, host).is_ok() {
        return None;
    }
    match host.is_root {
        true => host.system_manager.then_some(ScopeOwner::System),
        false => host.user_manager.then_some(ScopeOwner::User),
    }
}

/// Whose systemd manager makes the scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeOwner {
    /// The system's.
    System,
    /// The user's own: `--user`.
    User,
}

/// Version 2 is what limits memory here: no version 1 hierarchy has the controller, and the top
/// of the tree that we see, or our own group, has.
fn tree_has_memory(layout: &Layout, host: &HostCgroups) -> bool {
    let Some(unified) = &layout.unified else {
        return false;
    };
    if layout.v1.contains_key(&Controller::Memory) {
        return false;
    }
    let mut seen = vec![unified.mount_point.as_str()];
    seen.extend(unified.own.iter().map(String::as_str));
    // A tree without any version 1 hierarchy is version 2's, whatever it hands out.
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
        return usable_v2(&parent, host);
    }
    let own = unified.own.clone()?;
    let own_facts = facts(&own, host)?;
    let lacks_all = Controller::OF_V2
        .iter()
        .all(|controller| !has(&own_facts.controllers, *controller));
    if own_facts.unwritable.is_none() && !lacks_all {
        return delegated(&own, host).and_then(|()| usable_v2(&own, host));
    }
    // Our own group cannot be limited or not be written. An ancestor will do where it was handed
    // over as a whole (DelegateSubgroup=) or where nobody manages the tree.
    let ours_to_use = |path: &&str| {
        host.groups.get(*path).is_some_and(|facts| {
            facts.unwritable.is_none()
                && facts.may_move_processes
                && (facts.marked_delegated || !host.system_manager)
        })
    };
    match upwards(&own, &unified.mount_point)
        .skip(1)
        .find(ours_to_use)
    {
        Some(parent) => usable_v2(parent, host),
        None => Err(match &own_facts.unwritable {
            Some(why) => format!("{own} was not handed over to us: {why}"),
            None => format!("{own} has none of the controllers memory, pids and cpu"),
        }),
    }
}

/// Root may write everywhere, so that access says nothing: what systemd manages wants its mark.
fn delegated(own: &str, host: &HostCgroups) -> Result<(), String> {
    let facts = facts(own, host)?;
    let taken_on_trust = !host.is_root || !host.system_manager || host.in_delegated_scope;
    match taken_on_trust || facts.marked_delegated {
        true => Ok(()),
        false => Err(format!(
            "{own} is managed by systemd and was not handed over (Delegate=yes)"
        )),
    }
}

fn usable_v2(parent: &str, host: &HostCgroups) -> Result<Unified, String> {
    let facts = facts(parent, host)?;
    if let Some(why) = &facts.unwritable {
        return Err(format!("no group can be made in {parent}: {why}"));
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
    // A group below the top holds processes or hands out controllers, not both (EBUSY).
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
        move_to_leaf: must_be_empty && facts.holds_this_process,
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
            reason: reasons.join("; "),
        };
    }
    let unified = layout.unified.as_ref().and_then(|unified| {
        let parent = usable_v1(unified, parent_named, host).ok()?;
        may_enter(&parent, unified, host).ok()?;
        Some(parent)
    });
    if unified.is_some() {
        // cpu.stat of version 2 counts CPU time in every group, without a controller.
        missing.retain(|(controller, _)| *controller != Controller::Cpuacct);
    }
    let freezer = match (&unified, &layout.freezer) {
        // cgroup.kill does it better.
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
        Some(why) => Err(format!("no group can be made in {parent}: {why}")),
        None => Ok(parent),
    }
}

/// Version 2 asks for the right to write `cgroup.procs` of the nearest group above both the group
/// that a process leaves and the one it enters, and CLONE_INTO_CGROUP counts as a move.
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
            "a process started in {own} may not enter {parent}: {above_both}/cgroup.procs is not ours to write"
        )),
    }
}

/// `path` and the groups above it, up to the mount point.
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
