//! Why a call is refused, and what to change so that it is not.

use std::fmt;

use crate::plan::filter::{Arch, Arguments, Rule, built_in_policy};
use crate::spec::syscall_policy::SyscallPolicyName;

/// A call that a built-in policy refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The call's name; `None` where no table knows the number.
    pub call: Option<&'static str>,
    /// Its number.
    pub number: u32,
    /// The errno that the body gets, by its name.
    pub errno: &'static str,
    /// Which policy refuses it.
    pub policy: SyscallPolicyName,
    /// The rule that decides.
    pub rule: &'static Rule,
    /// A looser policy that allows the same call.
    pub allowed_by: Option<SyscallPolicyName>,
}

/// Why `policy` refuses call `number` with `arguments`; `None` where it allows it.
#[must_use]
pub fn explain_refusal(
    policy: SyscallPolicyName,
    arch: Arch,
    number: u32,
    arguments: &Arguments,
) -> Option<Refusal> {
    let rules = built_in_policy(policy, arch);
    let ruling = rules.ruling(number, arguments);
    ruling.decision.errno()?;
    let looser = SyscallPolicyName::ALL
        .into_iter()
        .take_while(|looser| *looser < policy);
    let mut allowing = looser.filter(|looser| {
        let ruling = built_in_policy(*looser, arch).ruling(number, arguments);
        ruling.decision.errno().is_none()
    });
    Some(Refusal {
        call: rules.name_of(number),
        number,
        errno: ruling.decision.name(),
        policy,
        rule: ruling.rule,
        allowed_by: allowing.next(),
    })
}

impl Refusal {
    /// What to change so that the call is allowed; `None` where nothing does that.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.allowed_by
            .map(|looser| format!("the {0} policy allows it: --syscalls {0}", looser.name()))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.call {
            Some(call) => write!(out, "`{call}`")?,
            None => write!(out, "system call {}", self.number)?,
        }
        let (policy, rule) = (self.policy.name(), self.rule);
        write!(
            out,
            " is refused by the {policy} policy with {}, rule `{}`: {}",
            self.errno, rule.id, rule.reason
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(
        policy: SyscallPolicyName,
        name: &str,
        first: u64,
    ) -> Option<(String, Option<String>)> {
        let number = built_in_policy(policy, Arch::X86_64).number_of(name);
        let arguments = [first, 0, 0, 0, 0, 0];
        let refusal = explain_refusal(policy, Arch::X86_64, number.expect("known"), &arguments)?;
        Some((refusal.to_string(), refusal.hint()))
    }

    #[test]
    fn a_refusal_says_which_policy_refuses_why_and_what_to_change() {
        use SyscallPolicyName::{Default, Strict};
        let (why, hint) = explained(Strict, "splice", 0).expect("refused");
        assert!(
            why.starts_with(
                "`splice` is refused by the strict policy with EINVAL, rule `strict-splice`: "
            ),
            "{why}"
        );
        let way_out = "the default policy allows it: --syscalls default";
        assert_eq!(hint.as_deref(), Some(way_out));
        assert_eq!(explained(Default, "splice", 0), None);

        // What the default refuses too has no way out, under either.
        for policy in SyscallPolicyName::ALL {
            let (why, hint) = explained(policy, "mount", 0).expect("refused");
            let start = format!(
                "`mount` is refused by the {} policy with EPERM",
                policy.name()
            );
            assert!(why.starts_with(&start), "{why}");
            assert_eq!(hint, None);
            assert_eq!(explained(policy, "socket", 40).expect("refused").1, None);
            assert_eq!(explained(policy, "read", 0), None);
        }
        let unknown = explain_refusal(Strict, Arch::X86_64, 1000, &[0; 6]).expect("refused");
        assert!(
            unknown
                .to_string()
                .starts_with("system call 1000 is refused")
        );
    }
}
