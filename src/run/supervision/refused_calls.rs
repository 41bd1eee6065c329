//! Refused system calls in the report.

use crate::plan::syscall_policy;
use crate::run::supervision::DenialsReport;
use filter::{Arguments, Examined, PolicyError, SyscallPolicy};
use rustix::io::Errno;
use sandbox::launch::Launched;
use spec::merged::Occurrences;
use spec::observation::KindObservation;
use spec::report::Denial;
use spec::syscall_policy::SyscallPolicyName;

const SOCKETS_UNSEEN: &str = "what refuses unix sockets beside mounted directories (EAFNOSUPPORT) \
                              counts nothing; --unix-sockets allows them";

/// Builds the report of the refused calls under the policy `name`. Parses the policy only if there is a denial.
pub(in crate::run) fn report(launched: &Launched, name: SyscallPolicyName) -> DenialsReport {
    let calls = match launched.refused_calls.calls() {
        Ok(calls) => calls,
        Err(errno) => return DenialsReport::unobserved(not_observed(errno)),
    };
    let observation = match launched.refuses_sockets {
        true => KindObservation::partial(SOCKETS_UNSEEN, calls.unlisted()),
        false => KindObservation::complete(calls.unlisted()),
    };
    if calls.distinct().next().is_none() {
        return DenialsReport {
            denials: Vec::new(),
            observation,
        };
    }
    match Policies::read(name) {
        Ok(policies) => DenialsReport {
            denials: calls
                .distinct()
                .map(|(call, equal)| policies.denial(call, *equal))
                .collect(),
            observation,
        },
        Err(error) => DenialsReport::unobserved(error.to_string()),
    }
}

fn not_observed(errno: Errno) -> String {
    match errno {
        Errno::BUSY => {
            "the runner is in a sandbox that observes its system calls itself".to_owned()
        }
        Errno::INVAL => "Linux 5.19 or newer is needed".to_owned(),
        errno => format!("the filter has no listener: {errno}"),
    }
}

pub(super) struct Policies {
    of_run: SyscallPolicy,
    /// What `--syscalls default` would allow; `None`: the run has it.
    default: Option<SyscallPolicy>,
}

impl Policies {
    pub(super) fn read(name: SyscallPolicyName) -> Result<Self, PolicyError> {
        let of_run = syscall_policy::read(name)?;
        let default = match name {
            SyscallPolicyName::Default => None,
            SyscallPolicyName::Strict => Some(syscall_policy::read(SyscallPolicyName::Default)?),
        };
        Ok(Self { of_run, default })
    }

    pub(super) fn denial(&self, call: &Examined, equal: Occurrences) -> Denial {
        // The arguments that were not compared have no influence.
        let ruling = self.of_run.ruling(call.number, &call.arguments);
        let allows = |policy: &SyscallPolicy| {
            policy
                .ruling(call.number, &call.arguments)
                .decision
                .errno()
                .is_none()
        };
        let hint = if self.default.as_ref().is_some_and(allows) {
            "--syscalls default allows it".to_owned()
        } else {
            format!("no flag allows it: {}", ruling.rule.reason)
        };
        Denial {
            kind: "syscall".to_owned(),
            object: object(self.of_run.name_of(call.number), call),
            operation: None,
            rule: ruling.rule.id.clone(),
            errno: Some(ruling.decision.name().to_owned()),
            reason: None,
            protocol: None,
            host: None,
            ip: None,
            port: None,
            hint: Some(hint),
            certainty: None,
            count: equal.count,
            first_ms: Some(equal.first_ms),
        }
    }
}

/// `socket(17, 3, _)`: the name, and the arguments that decided. Bits that were not compared are 0.
fn object(name: Option<&str>, call: &Examined) -> String {
    let name = name.map_or_else(|| format!("call {}", call.number), str::to_owned);
    let decided = |arguments: &Arguments| arguments.iter().rposition(|bits| *bits != 0);
    let Some(last) = decided(&call.compared) else {
        return name;
    };
    let shown = call.arguments.iter().zip(call.compared).take(last + 1);
    let shown: Vec<String> = shown
        .map(|(argument, compared)| match (compared, argument) {
            (0, _) => "_".to_owned(),
            (_, small @ 0..=9_999) => small.to_string(),
            (_, flags) => format!("{flags:#x}"),
        })
        .collect();
    format!("{name}({})", shown.join(", "))
}
