//! How each limit is enforced by the chosen back end.

use spec::limits::Coverage;
use spec::report::EnforcementState;

use super::{Backend, Controller};

impl Backend {
    /// The planned coverage. [`super::RunCgroup::coverage`] has the actual one.
    #[must_use]
    pub fn coverage(&self) -> Vec<Coverage> {
        let (mechanism, missing) = self.mechanism();
        of(mechanism, &missing, None)
    }
}

pub(super) fn of(
    mechanism: &'static str,
    missing: &[(Controller, String)],
    swap_unlimited: Option<&str>,
) -> Vec<Coverage> {
    let axes = [
        ("memory", Controller::Memory),
        ("processes", Controller::Pids),
        ("cpu_share", Controller::Cpu),
        ("cpu_time", Controller::Cpuacct),
    ];
    let mut coverage: Vec<Coverage> = axes
        .into_iter()
        .map(
            |(axis, controller)| match missing.iter().find(|(absent, _)| *absent == controller) {
                Some((_, reason)) => fallback(axis, controller, reason),
                None => Coverage {
                    axis,
                    state: EnforcementState::Enforced,
                    enforced_by: mechanism,
                    reason: None,
                },
            },
        )
        .collect();
    if let (Some(why), Some(memory)) = (swap_unlimited, coverage.first_mut())
        && memory.state == EnforcementState::Enforced
    {
        memory.state = EnforcementState::Weaker;
        memory.reason = Some(why.to_owned());
    }
    coverage
}

fn fallback(axis: &'static str, controller: Controller, reason: &str) -> Coverage {
    let (state, enforced_by, instead) = match controller {
        Controller::Memory => (
            EnforcementState::Weaker,
            "poll",
            "the supervisor samples the memory of all processes every 50 ms, and RLIMIT_DATA limits \
             each process; files in memory that no process has mapped and kernel objects are not \
             counted",
        ),
        Controller::Pids => (
            EnforcementState::Weaker,
            "rlimit",
            "RLIMIT_NPROC counts per user, inside the user namespace",
        ),
        Controller::Cpu => (
            EnforcementState::Absent,
            "none",
            "no other mechanism limits the share of CPUs",
        ),
        Controller::Cpuacct => (
            EnforcementState::Weaker,
            "poll",
            "the supervisor samples the CPU time of all processes, and RLIMIT_CPU limits each process; a \
             process that ends is no longer counted if its parent ignores SIGCHLD",
        ),
    };
    Coverage {
        axis,
        state,
        enforced_by,
        reason: Some(format!("{reason}; {instead}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_groups_three_limits_are_weaker_and_the_cpu_share_is_absent() {
        let backend = Backend::None {
            reason: "read-only".to_owned(),
        };
        let states: Vec<(&str, EnforcementState, &str)> = backend
            .coverage()
            .into_iter()
            .map(|c| (c.axis, c.state, c.enforced_by))
            .collect();
        assert_eq!(
            states,
            [
                ("memory", EnforcementState::Weaker, "poll"),
                ("processes", EnforcementState::Weaker, "rlimit"),
                ("cpu_share", EnforcementState::Absent, "none"),
                ("cpu_time", EnforcementState::Weaker, "poll"),
            ]
        );
        assert!(backend.coverage().iter().all(|c| c.reason.is_some()));
    }

    #[test]
    fn uncounted_swap_weakens_memory_alone() {
        let coverage = of("cgroup-v1", &[], Some("swap is not counted"));
        let weaker: Vec<&str> = coverage
            .iter()
            .filter(|c| c.state == EnforcementState::Weaker)
            .map(|c| c.axis)
            .collect();
        assert_eq!(weaker, ["memory"]);
    }
}
