//! The cgroup back end, and how each limit is enforced with it.

use crate::plan::doctor::{Facts, blocked_by, check, item};
use spec::diagnosis::{Item, Need};
use spec::limits::Coverage;
use spec::report::EnforcementState;

/// The parent of the groups of runs that the commands create.
const PARENT: &str = "/runner";

/// Facts about the cgroups of a host.
#[derive(Debug, Clone)]
pub struct CgroupFacts {
    /// `v2`, `v2-scope`, `v1`, `none`.
    pub backend: String,
    /// Why the back end is `none`.
    pub reason: Option<String>,
    pub coverage: Vec<Coverage>,
    pub tree: CgroupTree,
    pub is_read_only: bool,
    /// The path that the caller named as parent.
    pub named_parent: Option<String>,
    /// A systemd of the host is running.
    pub has_systemd: bool,
    /// A systemd of this user is running.
    pub has_user_manager: bool,
}

/// What is mounted at /sys/fs/cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupTree {
    Missing,
    V1,
    V2,
}

pub(super) fn items(facts: &Facts) -> Vec<Item> {
    let cgroup = &facts.cgroup;
    let of_axis = |covered: &Coverage| {
        let what = match covered.axis {
            "memory" => "memory of all processes of a run",
            "processes" => "number of processes and threads of a run",
            "cpu_share" => "share of the processors (--cpus)",
            "cpu_time" => "CPU time of all processes of a run (--cpu-time)",
            other => other,
        };
        let how = match (covered.state, &covered.reason) {
            (EnforcementState::Enforced, _) | (_, None) => {
                format!("by {}", covered.enforced_by)
            }
            (_, Some(reason)) => without_reason(reason, cgroup.reason.as_deref()).to_owned(),
        };
        item(
            &format!("limit_{}", covered.axis),
            Need::Strength,
            covered.state,
            format!("{what}: {how}"),
            &axis_mend(facts, covered.axis),
        )
    };
    let backend = &cgroup.backend;
    let found = if backend == "none" {
        Err("no cgroup: limits apply to each process, or usage is sampled".to_owned())
    } else {
        Ok(format!(
            "back end {backend}: limits apply to all processes of a run together"
        ))
    };
    let group = check("cgroup", Need::Strength, found, &mend(facts));
    let group = blocked_by(group, cgroup.reason.clone());
    std::iter::once(group)
        .chain(cgroup.coverage.iter().map(of_axis))
        .collect()
}

/// What an axis has instead of a group. Why there is no group is in the item `cgroup`.
fn without_reason<'text>(text: &'text str, reason: Option<&str>) -> &'text str {
    let rest = reason.and_then(|reason| text.strip_prefix(reason)?.strip_prefix("; "));
    rest.unwrap_or(text)
}

/// The command that makes groups possible, or better.
fn mend(facts: &Facts) -> String {
    let cgroup = &facts.cgroup;
    if cgroup.backend != "none" {
        return "boot with swapaccount=1 cgroup_enable=memory".to_owned();
    }
    if facts.surroundings.container.as_deref() == Some("kubernetes") {
        return "set resources.limits of the container, which hold for all of its runs together; a run \
                has a group of its own only where this user may write to /sys/fs/cgroup, which \
                Kubernetes does not offer"
            .to_owned();
    }
    if cgroup.is_read_only && facts.surroundings.container.is_some() {
        return "start the container with a writable /sys/fs/cgroup".to_owned();
    }
    let sudo = if facts.uid == 0 { "" } else { "sudo " };
    match (cgroup.tree, cgroup.has_systemd, cgroup.has_user_manager) {
        (CgroupTree::Missing, ..) => {
            format!("{sudo}mount -t cgroup2 cgroup2 /sys/fs/cgroup")
        }
        _ if cgroup.is_read_only => format!("{sudo}mount -o remount,rw /sys/fs/cgroup"),
        (CgroupTree::V2, true, _) if facts.uid == 0 => {
            "systemd-run --scope -p Delegate=yes runner …".to_owned()
        }
        (CgroupTree::V2, true, true) => {
            "systemd-run --user --scope -p Delegate=yes runner …".to_owned()
        }
        // Starts the manager, with which runner makes its scope.
        (CgroupTree::V2, true, false) => "sudo loginctl enable-linger \"$(id -un)\"".to_owned(),
        (tree, ..) => by_hand(facts, tree),
    }
}

/// Creates a group for this user, without any manager.
fn by_hand(facts: &Facts, tree: CgroupTree) -> String {
    let uid = facts.uid;
    let parent = facts.cgroup.named_parent.as_deref().unwrap_or(PARENT);
    let parent = format!("/{}", parent.trim_matches('/'));
    let script = if tree == CgroupTree::V2 {
        // A process moves only below a group whose cgroup.procs it may write, so the shell has to be in it.
        format!(
            "cd /sys/fs/cgroup && mkdir -p .{parent}/shell && echo +cpu +memory +pids \
             >cgroup.subtree_control && chown -R {uid} .{parent} && echo '$$' \
             >.{parent}/shell/cgroup.procs"
        )
    } else {
        format!(
            "for h in /sys/fs/cgroup/*/; do mkdir -p $h{parent} && chown -R {uid} $h{parent}; done"
        )
    };
    let sudo = if uid == 0 { "" } else { "sudo " };
    let wsl = if facts.surroundings.is_wsl_2() {
        " # or set systemd=true below [boot] in /etc/wsl.conf, and wsl.exe --shutdown"
    } else {
        ""
    };
    format!("{sudo}sh -c '{script}'; export RUNNER_OPT_CGROUP_PARENT={parent}{wsl}")
}

/// The command for a limit: without groups that for groups, else that for the missing controller.
fn axis_mend(facts: &Facts, axis: &str) -> String {
    let controller = match axis {
        "processes" => "pids",
        "cpu_share" => "cpu",
        "cpu_time" => "cpuacct",
        _ => return mend(facts),
    };
    let cgroup = &facts.cgroup;
    match (cgroup.backend.as_str(), cgroup.has_systemd, facts.uid) {
        ("none", ..) => mend(facts),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::doctor::tests::full;

    fn host(change: impl FnOnce(&mut Facts)) -> Facts {
        let mut facts = full();
        facts.cgroup.backend = "none".to_owned();
        change(&mut facts);
        facts
    }

    #[test]
    fn the_command_for_a_limit_names_its_controller() {
        for (backend, has_systemd, uid, axis, expected) in [
            ("v2", false, 0, "memory", "swapaccount=1"),
            ("v2", false, 0, "processes", "echo +pids >"),
            ("v2", true, 0, "cpu_share", "echo +cpu >"),
            ("v2", true, 7, "cpu_share", "edit user@.service"),
            ("v1", false, 0, "cpu_time", "-o cpuacct"),
            ("none", true, 7, "cpu_share", "systemd-run --user"),
        ] {
            let facts = host(|facts| {
                facts.cgroup.backend = backend.to_owned();
                facts.cgroup.has_systemd = has_systemd;
                facts.cgroup.has_user_manager = has_systemd;
                facts.uid = uid;
            });
            let mend = axis_mend(&facts, axis);
            assert!(mend.contains(expected), "{backend} {axis}: {mend}");
        }
    }

    #[test]
    fn the_command_for_a_group_is_the_one_of_this_host() {
        type Change = fn(&mut Facts);
        let cases: [(&str, Change); 12] = [
            ("set resources.limits of the container", |f| {
                f.surroundings.container = Some("kubernetes".to_owned());
            }),
            ("systemd-run --scope -p Delegate=yes", |f| {
                f.cgroup.has_systemd = true;
            }),
            ("systemd-run --user --scope", |f| {
                (f.cgroup.has_systemd, f.cgroup.has_user_manager) = (true, true);
                f.uid = 7;
            }),
            ("sudo loginctl enable-linger", |f| {
                f.cgroup.has_systemd = true;
                f.uid = 7;
            }),
            (
                "sudo sh -c 'cd /sys/fs/cgroup && mkdir -p ./runner/shell",
                |f| {
                    f.uid = 7;
                },
            ),
            ("chown -R 7 ./runner", |f| f.uid = 7),
            ("sh -c 'cd /sys/fs/cgroup", |_| ()),
            ("sudo sh -c 'for h in", |f| {
                (f.cgroup.tree, f.uid) = (CgroupTree::V1, 7);
                // On version 1 runs are not moved into a scope.
                f.cgroup.has_systemd = true;
            }),
            ("export RUNNER_OPT_CGROUP_PARENT=/own/a", |f| {
                f.cgroup.named_parent = Some("own/a/".to_owned());
            }),
            ("mount -t cgroup2 cgroup2 /sys/fs/cgroup", |f| {
                f.cgroup.tree = CgroupTree::Missing;
            }),
            ("mount -o remount,rw /sys/fs/cgroup", |f| {
                f.cgroup.is_read_only = true;
            }),
            ("start the container with a writable", |f| {
                f.surroundings.container = Some("docker".to_owned());
                f.cgroup.is_read_only = true;
            }),
        ];
        for (expected, change) in cases {
            let mend = mend(&host(change));
            assert!(mend.contains(expected), "{expected}: {mend}");
        }
        let wsl = mend(&host(|facts| {
            facts.surroundings.release = "6.6.87.2-microsoft-standard-WSL2".to_owned();
        }));
        assert!(wsl.contains("systemd=true"), "{wsl}");
    }

    #[test]
    fn a_limit_says_what_holds_instead_and_the_group_why() {
        let facts = host(|facts| {
            facts.cgroup.reason = Some("/x is read-only; really".to_owned());
            facts.cgroup.coverage = vec![Coverage {
                axis: "memory",
                state: EnforcementState::Weaker,
                enforced_by: "poll",
                reason: Some("/x is read-only; really; usage is sampled; not all".to_owned()),
            }];
        });
        let found = items(&facts);
        assert_eq!(
            found[0].blocked_by.as_deref(),
            Some("/x is read-only; really")
        );
        assert!(
            found[1].effect.ends_with("run: usage is sampled; not all"),
            "{found:?}"
        );
    }
}
