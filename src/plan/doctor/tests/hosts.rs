//! The diagnosis of hosts as they are met: their facts as they were recorded or as their kernels state them.

use crate::plan::doctor::limits::CgroupTree;
use crate::plan::doctor::tests::full;
use crate::plan::doctor::{Facts, diagnose};
use spec::diagnosis::{Diagnosis, Item, Verdict};
use spec::limits::Coverage;
use spec::report::{EnforcementState, ErrorReport};

fn without_namespaces(facts: &mut Facts, errno: &str) {
    for (_, made) in &mut facts.namespaces {
        *made = Err(errno.to_owned());
    }
    facts.sandbox = Err(ErrorReport::new(
        "user_namespace_unavailable",
        format!("cannot make a user namespace: {errno}"),
    ));
}

fn without_groups(facts: &mut Facts, reason: &str) {
    facts.cgroup.backend = "none".to_owned();
    facts.cgroup.reason = Some(reason.to_owned());
    let weaker = |axis, state| Coverage {
        axis,
        state,
        enforced_by: "poll",
        reason: Some(format!("{reason}; usage is sampled")),
    };
    facts.cgroup.coverage = vec![
        weaker("memory", EnforcementState::Weaker),
        weaker("cpu_share", EnforcementState::Absent),
    ];
}

fn user(facts: &mut Facts) {
    facts.uid = 1000;
    (facts.idmapped_mounts, facts.uid_range) = (None, None);
    facts.user_namespaces.program = "/usr/bin/runner".to_owned();
}

struct Host {
    name: &'static str,
    change: fn(&mut Facts),
    verdict: Verdict,
    /// The item that says it, the control and the command.
    item: &'static str,
    blocked_by: &'static str,
    mend: &'static str,
    summary: &'static str,
}

const EPERM: &str = "Operation not permitted (os error 1)";
const ENOSYS: &str = "Function not implemented (os error 38)";
const ENOSPC: &str = "No space left on device (os error 28)";
const WEAK_LIMITS: &str = "isolation is complete, enforcement of limits is weaker (no cgroup, weaker memory limit, no CPU share)";

const HOSTS: &[Host] = &[
    Host {
        name: "Debian 10: users may not create user namespaces",
        change: |facts| {
            user(facts);
            facts.user_namespaces.unprivileged_clone = Some(false);
            without_namespaces(facts, EPERM);
        },
        verdict: Verdict::CannotRun,
        item: "user_namespace",
        blocked_by: "kernel.unprivileged_userns_clone is 0",
        mend: "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        summary: "cannot run here: kernel.unprivileged_userns_clone is 0",
    },
    Host {
        name: "a hardened host: nobody may create user namespaces",
        change: |facts| {
            facts.user_namespaces.is_root = true;
            facts.user_namespaces.privileged = true;
            facts.user_namespaces.count_max = Some(0);
            without_namespaces(facts, ENOSPC);
        },
        verdict: Verdict::CannotRun,
        item: "mount_namespace",
        blocked_by: "user.max_user_namespaces is 0",
        mend: "sysctl -w user.max_user_namespaces=10000",
        summary: "cannot run here: user.max_user_namespaces is 0",
    },
    Host {
        name: "Ubuntu 24.04: only programs with a profile",
        change: |facts| {
            user(facts);
            facts.user_namespaces.apparmor_restricts = Some(true);
            facts.user_namespaces.apparmor_label = Some("unconfined".to_owned());
            without_namespaces(facts, EPERM);
        },
        verdict: Verdict::CannotRun,
        item: "user_namespace",
        blocked_by: "kernel.apparmor_restrict_unprivileged_userns is 1, and no profile covers \
                         /usr/bin/runner",
        mend: "sudo apparmor_parser -r /etc/apparmor.d/runner",
        summary: "cannot run here: kernel.apparmor_restrict_unprivileged_userns is 1",
    },
    Host {
        name: "Docker with its default filter",
        change: |facts| {
            facts.user_namespaces.is_root = true;
            facts.user_namespaces.apparmor_label = Some("docker-default (enforce)".to_owned());
            facts.surroundings.container = Some("docker".to_owned());
            facts.surroundings.seccomp_filters = Some(1);
            facts.surroundings.user_namespace_call = Err(EPERM.to_owned());
            facts.calls.push(("clone3", "5.3", Err(ENOSYS.to_owned())));
            without_namespaces(facts, ENOSYS);
            without_groups(
                facts,
                "no cgroup can be created: /sys/fs/cgroup is read-only",
            );
        },
        verdict: Verdict::CannotRun,
        item: "user_namespace",
        blocked_by: "a seccomp filter of the docker container refuses clone3(2) and unshare(2)",
        mend: "docker run --security-opt seccomp=packaging/kubernetes/seccomp.json … # allows clone3(2) and \
               unshare(2); seccomp=unconfined allows every call",
        summary: "cannot run here: a seccomp filter of the docker container",
    },
    Host {
        name: "Docker without a filter: AppArmor denies",
        change: |facts| {
            facts.user_namespaces.apparmor_label = Some("docker-default (enforce)".to_owned());
            facts.surroundings.container = Some("docker".to_owned());
            without_namespaces(facts, EPERM);
        },
        verdict: Verdict::CannotRun,
        item: "user_namespace",
        blocked_by: "the AppArmor profile `docker-default` confines this process",
        mend: "docker run --security-opt apparmor=unconfined …",
        summary: "cannot run here: the AppArmor profile `docker-default`",
    },
    Host {
        name: "Kubernetes with RuntimeDefault",
        change: |facts| {
            facts.surroundings.container = Some("kubernetes".to_owned());
            facts.surroundings.seccomp_filters = Some(1);
            facts.surroundings.user_namespace_call = Err(EPERM.to_owned());
            without_namespaces(facts, EPERM);
        },
        verdict: Verdict::CannotRun,
        item: "user_namespace",
        blocked_by: "a seccomp filter of the kubernetes container",
        mend: "set securityContext.seccompProfile.type",
        summary: "cannot run here: a seccomp filter of the kubernetes container",
    },
    Host {
        name: "Kubernetes with RuntimeDefault, and a masked /proc",
        change: |facts| {
            facts.surroundings.container = Some("kubernetes".to_owned());
            facts.surroundings.seccomp_filters = Some(1);
            facts.surroundings.user_namespace_call = Err(EPERM.to_owned());
            facts.surroundings.has_masked_proc = true;
            without_namespaces(facts, EPERM);
        },
        verdict: Verdict::CannotRun,
        item: "user_namespace",
        blocked_by: "a seccomp filter of the kubernetes container",
        mend: "or to Unconfined; set hostUsers of the pod to false and securityContext.procMount",
        summary: "cannot run here: a seccomp filter of the kubernetes container",
    },
    Host {
        name: "Kubernetes with a profile that allows runs, and a masked /proc",
        change: |facts| {
            facts.surroundings.container = Some("kubernetes".to_owned());
            facts.surroundings.has_masked_proc = true;
            facts.sandbox = Err(ErrorReport::new("sandbox_step_failed", "EROFS"));
        },
        verdict: Verdict::CannotRun,
        item: "sandbox",
        blocked_by: "parts of /proc of the kubernetes container are masked",
        mend: "set hostUsers of the pod to false and securityContext.procMount of the container to",
        summary: "cannot run here: parts of /proc of the kubernetes container are masked",
    },
    Host {
        name: "Docker with a profile that allows runs, and a masked /proc",
        change: |facts| {
            facts.surroundings.container = Some("docker".to_owned());
            facts.surroundings.has_masked_proc = true;
            facts.sandbox = Err(ErrorReport::new("sandbox_step_failed", "EROFS"));
        },
        verdict: Verdict::CannotRun,
        item: "sandbox",
        blocked_by: "parts of /proc of the docker container are masked",
        mend: "docker run --security-opt systempaths=unconfined …",
        summary: "cannot run here: parts of /proc of the docker container are masked",
    },
    Host {
        name: "a systemd unit with RestrictNamespaces=yes",
        change: |facts| {
            user(facts);
            facts.surroundings.seccomp_filters = Some(3);
            facts.surroundings.user_namespace_call = Err(EPERM.to_owned());
            without_namespaces(facts, EPERM);
        },
        verdict: Verdict::CannotRun,
        item: "user_namespace",
        blocked_by: "one of 3 seccomp filters refuses",
        mend: "RestrictNamespaces=",
        summary: "cannot run here: one of 3 seccomp filters",
    },
    Host {
        name: "RHEL 8: an old kernel",
        change: |facts| {
            facts.surroundings.release = "4.18.0-553.el8.x86_64".to_owned();
            facts.surroundings.seccomp_filters = None;
            facts.calls[0].2 = Err(ENOSYS.to_owned());
        },
        verdict: Verdict::CannotRun,
        item: "fsopen",
        blocked_by: "Linux 4.18.0-553.el8.x86_64 does not have fsopen(2)",
        mend: "install Linux 5.2 or later",
        summary: "cannot run here: Linux 4.18.0-553.el8.x86_64 does not have fsopen(2)",
    },
    Host {
        name: "WSL 1",
        change: |facts| {
            user(facts);
            facts.surroundings.release = "4.4.0-19041-Microsoft".to_owned();
            facts.surroundings.user_namespace_call = Err(ENOSYS.to_owned());
            facts.calls[0].2 = Err(ENOSYS.to_owned());
            without_namespaces(facts, "Invalid argument (os error 22)");
        },
        verdict: Verdict::CannotRun,
        item: "user_namespace",
        blocked_by: "WSL 1 has no Linux kernel",
        mend: "wsl.exe --set-version",
        summary: "cannot run here: WSL 1 has no Linux kernel",
    },
    Host {
        name: "WSL 2 without systemd",
        change: |facts| {
            user(facts);
            facts.surroundings.release = "6.6.87.2-microsoft-standard-WSL2".to_owned();
            without_groups(
                facts,
                "no cgroup can be created: /sys/fs/cgroup is not writable",
            );
        },
        verdict: Verdict::Degraded,
        item: "cgroup",
        blocked_by: "/sys/fs/cgroup is not writable",
        mend: "systemd=true",
        summary: WEAK_LIMITS,
    },
    Host {
        name: "a user in a session without a delegated cgroup",
        change: |facts| {
            user(facts);
            facts.cgroup.has_systemd = true;
            without_groups(
                facts,
                "no cgroup can be created: session-1.scope is not writable",
            );
        },
        verdict: Verdict::Degraded,
        item: "cgroup",
        blocked_by: "session-1.scope is not writable",
        mend: "sudo loginctl enable-linger",
        summary: WEAK_LIMITS,
    },
    Host {
        name: "cgroups of version 1 that root has",
        change: |facts| {
            user(facts);
            facts.cgroup.tree = CgroupTree::V1;
            without_groups(facts, "no cgroup can be created: memory is not writable");
        },
        verdict: Verdict::Degraded,
        item: "cgroup",
        blocked_by: "memory is not writable",
        mend: "export RUNNER_OPT_CGROUP_PARENT=/runner",
        summary: WEAK_LIMITS,
    },
    Host {
        name: "Debian 12: no Landlock for signals",
        change: |facts| {
            user(facts);
            facts.landlock_abi = Ok(2);
        },
        verdict: Verdict::Degraded,
        item: "landlock",
        blocked_by: "",
        mend: "install Linux 6.12 or later",
        summary: "isolation is weaker (weaker Landlock), enforcement of limits is complete",
    },
    Host {
        name: "a filter that hides openat2, as of DynamicUser=",
        change: |facts| {
            user(facts);
            facts.surroundings.seccomp_filters = Some(2);
            facts.calls[1].2 = Err(EPERM.to_owned());
        },
        verdict: Verdict::Full,
        item: "images",
        blocked_by: "one of 2 seccomp filters refuses openat2(2)",
        mend: "SystemCallFilter=",
        summary: "runner can run here: isolation is complete, enforcement of limits is complete",
    },
];

#[test]
fn each_host_is_told_which_control_blocks_what_and_the_command_for_it() {
    for host in HOSTS {
        let mut facts = full();
        (host.change)(&mut facts);
        let Diagnosis {
            verdict,
            summary,
            items,
            ..
        } = diagnose(&facts);
        let name = host.name;
        assert_eq!(verdict, host.verdict, "{name}");
        assert!(summary.contains(host.summary), "{name}: {summary}");
        let item = items.iter().find(|item| item.id == host.item);
        let item: &Item = item.expect("the item");
        let blocked_by = item.blocked_by.as_deref().unwrap_or_default();
        assert!(blocked_by.contains(host.blocked_by), "{name}: {item:?}");
        let mend = item.mend.as_deref().unwrap_or_default();
        assert!(mend.contains(host.mend), "{name}: {item:?}");
        // Nothing that works is blamed on a control.
        let is_blamed = |item: &&Item| {
            item.state == EnforcementState::Enforced
                && (item.blocked_by.is_some() || item.mend.is_some())
        };
        assert_eq!(items.iter().find(is_blamed), None, "{name}");
    }
}

/// A command for root is not preceded by `sudo`, which containers do not have.
#[test]
fn a_command_for_root_has_no_sudo() {
    for host in HOSTS {
        let mut facts = full();
        (host.change)(&mut facts);
        if facts.uid != 0 {
            continue;
        }
        facts.user_namespaces.is_root = true;
        for item in diagnose(&facts).items {
            let mend = item.mend.unwrap_or_default();
            assert!(!mend.contains("sudo"), "{}: {mend}", host.name);
        }
    }
}
