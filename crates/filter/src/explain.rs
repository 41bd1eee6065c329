//! What a policy decides about a call, by its name.

use std::fmt;

use crate::policy::{Case, Condition, Decision, Rule};
use crate::{SyscallPolicy, UNKNOWN};

/// The decisions about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation<'policy> {
    pub rule: &'policy Rule,
    pub answer: CallAnswer<'policy>,
}

/// When a call is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallAnswer<'policy> {
    /// The same decision for all arguments.
    Always(Decision),
    /// The first case whose conditions hold decides; else the last one.
    ByArguments(&'policy [Case], Decision),
}

impl SyscallPolicy {
    /// Explains the call `name` of this architecture. A name that it does not have is explained by the
    /// rule for unknown numbers.
    #[must_use]
    pub fn explain(&self, name: &str) -> Explanation<'_> {
        let rule = self.rule_of(name).unwrap_or(&self.rules[UNKNOWN]);
        let is_constant = rule.cases.iter().all(|case| case.then == rule.action);
        Explanation {
            rule,
            answer: if is_constant {
                CallAnswer::Always(rule.action)
            } else {
                CallAnswer::ByArguments(&rule.cases, rule.action)
            },
        }
    }
}

/// As text: `argument 0 & 0xf is 0x1 or 0x2`.
impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = if self.upper { "upper half of " } else { "" };
        write!(formatter, "{half}argument {}", self.argument)?;
        if self.mask != u32::MAX {
            write!(formatter, " & {:#x}", self.mask)?;
        }
        for (index, value) in self.one_of.iter().enumerate() {
            let word = if index == 0 { "is" } else { "or" };
            write!(formatter, " {word} {value:#x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arch, Arguments, SeccompData, compile, default_policy, interpret, strict_policy};

    /// Arguments for which `case` holds, made of the first value of each condition.
    fn arguments_for(case: &Case) -> Arguments {
        let mut arguments = [0_u64; 6];
        for condition in &case.when {
            let value = u64::from(condition.one_of[0]);
            let shift = if condition.upper { 32 } else { 0 };
            arguments[usize::from(condition.argument)] |= value << shift;
        }
        arguments
    }

    #[test]
    fn the_explanation_of_each_call_is_what_its_program_answers() {
        for arch in Arch::ALL {
            for policy in [default_policy(arch), strict_policy(arch)] {
                let policy = policy.expect("a policy");
                let program = compile(&policy);
                let verdict = |number: u16, arguments| {
                    let data = SeccompData {
                        number: number.into(),
                        arch: arch.audit_value(),
                        instruction_pointer: 0,
                        arguments,
                    };
                    interpret(&program, &data)
                };
                for call in &policy.calls {
                    let name = call.name.as_str();
                    match policy.explain(name).answer {
                        CallAnswer::Always(decision) => {
                            for arguments in [[0; 6], [u64::MAX; 6], [1, 2, 3, 4, 5, 6]] {
                                let found = verdict(call.number, arguments);
                                assert_eq!(found, decision.return_value(), "{name}");
                            }
                        }
                        CallAnswer::ByArguments(cases, otherwise) => {
                            let mut found = Vec::new();
                            for case in cases {
                                let arguments = arguments_for(case);
                                let mut holding = cases.iter().filter(|case| {
                                    case.when.iter().all(|one| one.holds(&arguments))
                                });
                                let first = holding.next().expect("at least this one");
                                let value = verdict(call.number, arguments);
                                assert_eq!(value, first.then.return_value(), "{name} {case:?}");
                                found.push(value);
                            }
                            let mut others = [[0; 6], [u64::MAX; 6], [7; 6]].into_iter();
                            let other = others.find(|arguments| {
                                let holds =
                                    |case: &Case| case.when.iter().all(|one| one.holds(arguments));
                                !cases.iter().any(holds)
                            });
                            let other = other.expect("arguments that no case names");
                            let value = verdict(call.number, other);
                            assert_eq!(value, otherwise.return_value(), "{name}");
                            found.push(value);
                            found.dedup();
                            assert!(found.len() > 1, "{name} depends on no argument");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_call_is_explained_by_its_rule() {
        let (default, strict) = (default_policy(Arch::X86_64), strict_policy(Arch::X86_64));
        let (default, strict) = (default.expect("a policy"), strict.expect("a policy"));
        let (allow, refuse) = (Decision::Allow, Decision::NotPermitted);
        for (policy, name, rule, answer) in [
            (&default, "read", "files", Some(allow)),
            (&default, "splice", "files", Some(allow)),
            (
                &strict,
                "splice",
                "strict-splice",
                Some(Decision::InvalidArgument),
            ),
            (&default, "clone", "clone-namespaces", None),
            (
                &default,
                "no_such_call",
                "unknown-number",
                Some(Decision::NotImplemented),
            ),
            (&default, "setns", "namespaces", Some(refuse)),
            (&default, "unshare", "unshare", None),
        ] {
            let found = policy.explain(name);
            assert_eq!(found.rule.id, rule, "{name}");
            let constant = match found.answer {
                CallAnswer::Always(decision) => Some(decision),
                CallAnswer::ByArguments(..) => None,
            };
            assert_eq!(constant, answer, "{name}");
        }
        let clone = default.explain("clone").rule;
        let shown = clone.cases[0].when[0].to_string();
        assert_eq!(shown, "argument 0 & 0x7e020080 is 0x0");
    }
}
