//! System calls: the rule of the policy, and the second filter for unix sockets.

use crate::plan::syscall_policy;
use crate::run::dry_run::why::Planned;
use crate::run::planning::limits::unix_sockets_of;
use filter::{Arch, CallAnswer, Case, Decision, PolicyError};
use spec::plan_report::{DEFAULT, HOST_POLICY};
use spec::syscall_policy::SyscallPolicyName;
use spec::why_report::{Answer, State, Verdict};

/// The calls that the second filter restricts.
const OF_SOCKETS: [&str; 2] = ["socket", "socketpair"];

impl Planned<'_> {
    pub(super) fn syscall(&self, name: &str) -> Result<Answer, PolicyError> {
        let arch = Arch::NATIVE;
        let policy_name = self.resolved.syscalls;
        let policy = syscall_policy::read(policy_name)?;
        let by = self.document.syscall_policy_by.unwrap_or(DEFAULT);
        let explained = policy.explain(name);
        let (verdict, state, errno, mut found) = describe(&explained.answer);
        if policy.number_of(name).is_none() {
            found = format!("{} has no such call", arch.name());
        }
        let sockets = unix_sockets_of(self.request, self.resolved, &self.facts.host);
        let mut change = None;
        if OF_SOCKETS.contains(&name) && !sockets.filter().is_empty() {
            found.push_str("; unix sockets: EAFNOSUPPORT, because directories are mounted");
            change = Some("--unix-sockets allows unix sockets".to_owned());
        }
        if policy_name == SyscallPolicyName::Strict && verdict != Verdict::Allowed {
            let differs =
                syscall_policy::read(SyscallPolicyName::Default)?.explain(name) != explained;
            change = change.or(differs.then(|| match by {
                HOST_POLICY => "`syscalls: default` in the host policy".to_owned(),
                _ => "--syscalls default".to_owned(),
            }));
        }
        Ok(Answer {
            asked: format!("call {name}"),
            verdict,
            errno: errno.map(str::to_owned),
            state,
            found,
            rule: format!("{}: {}", explained.rule.id, explained.rule.reason),
            decided_by: format!("{} policy, {by}", policy_name.name()),
            change,
        })
    }
}

fn describe(answer: &CallAnswer<'_>) -> (Verdict, State, Option<&'static str>, String) {
    match answer {
        CallAnswer::Always(Decision::Allow) => (
            Verdict::Allowed,
            State::Callable,
            None,
            "the filter passes it to the kernel, whose own checks remain".to_owned(),
        ),
        CallAnswer::Always(Decision::Ignore) => (
            Verdict::Denied,
            State::Ignored,
            None,
            "it does nothing and returns 0".to_owned(),
        ),
        CallAnswer::Always(refusal) => (
            Verdict::Denied,
            State::Refused,
            Some(refusal.name()),
            format!("the filter returns {}", refusal.name()),
        ),
        CallAnswer::ByArguments(cases, otherwise) => {
            let case = |case: &Case| {
                let conditions: Vec<String> = case.when.iter().map(ToString::to_string).collect();
                format!("{} if {}", case.then.name(), conditions.join(" and "))
            };
            let mut parts: Vec<String> = cases.iter().map(case).collect();
            parts.push(format!("else {}", otherwise.name()));
            (Verdict::Depends, State::ByArguments, None, parts.join("; "))
        }
    }
}
