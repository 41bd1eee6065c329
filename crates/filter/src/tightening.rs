//! A stricter policy: a base policy with additional refusals.
//!
//! A tightening cannot allow anything. Its rules replace the base rule of whole calls or, with
//! conditions, precede it. So the result allows a subset of the base policy.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::policy::{Case, Condition, Decision, Reporting, Rule, SyscallPolicy};
use crate::read::{PolicyError, check_ids, checked, names_of};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TighteningText {
    refused: Vec<RefusalText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusalText {
    id: String,
    calls: Vec<String>,
    #[serde(default)]
    when: Vec<Condition>,
    action: Decision,
    reason: String,
    report: Reporting,
}

impl SyscallPolicy {
    /// Applies the YAML `tightening`. Its rules come after this policy's.
    ///
    /// `other_numbers` is the number table of the other architecture, as for [`SyscallPolicy::read`].
    ///
    /// # Errors
    /// `PolicyError` if the text is malformed, contradictory, or refuses what this policy refuses.
    pub(crate) fn tightened(
        &self,
        tightening: &str,
        other_numbers: &str,
    ) -> Result<Self, PolicyError> {
        let text: TighteningText =
            serde_saphyr::from_str(tightening).map_err(|error| PolicyError::Shape {
                source: Box::new(error),
            })?;
        let ids = self.rules.iter().map(|rule| rule.id.as_str());
        check_ids(ids.chain(text.refused.iter().map(|rule| rule.id.as_str())))?;
        let rule_indexes = self.rule_indexes(&text, &names_of(other_numbers)?)?;
        let mut stricter = self.clone();
        for call in &mut stricter.calls {
            if let Some(index) = rule_indexes.get(call.name.as_str()) {
                call.rule = *index;
            }
        }
        for rule in text.refused {
            let (cases, action) = if rule.when.is_empty() {
                (Vec::new(), rule.action)
            } else {
                self.precede_base_rule(&rule)?
            };
            stricter.rules.push(checked(Rule {
                id: rule.id,
                reason: rule.reason,
                report: Some(rule.report),
                cases,
                action,
            })?);
        }
        Ok(stricter)
    }

    /// Cases and action of the base rule for the calls of `rule`, with its own case first.
    fn precede_base_rule(&self, rule: &RefusalText) -> Result<(Vec<Case>, Decision), PolicyError> {
        let mut base = rule.calls.iter().map(|call| self.rule_of(call));
        let first = base.next().flatten();
        let Some(first) = first.filter(|first| base.all(|other| other == Some(*first))) else {
            return Err(PolicyError::SeveralBaseRules {
                rule: rule.id.clone(),
            });
        };
        let own = Case {
            when: rule.when.clone(),
            then: rule.action,
        };
        // Leave out cases with the same conditions, which would be unreachable.
        let others = first.cases.iter().filter(|case| case.when != own.when);
        let others: Vec<Case> = others.cloned().collect();
        let cases = std::iter::once(own).chain(others);
        Ok((cases.collect(), first.action))
    }

    fn rule_indexes<'text>(
        &self,
        text: &'text TighteningText,
        other_numbers: &BTreeSet<&str>,
    ) -> Result<BTreeMap<&'text str, usize>, PolicyError> {
        let mut rule_indexes = BTreeMap::new();
        let base_rules = self.rules.len();
        for (index, rule) in text.refused.iter().enumerate() {
            if rule.action == Decision::Allow {
                return Err(PolicyError::Loosens {
                    rule: rule.id.clone(),
                });
            }
            for call in &rule.calls {
                self.check_refusable(rule, call, other_numbers)?;
                if let Some(first) = rule_indexes.insert(call.as_str(), base_rules + index) {
                    return Err(PolicyError::TwoRules {
                        call: call.clone(),
                        first: text.refused[first - base_rules].id.clone(),
                        second: rule.id.clone(),
                    });
                }
            }
        }
        Ok(rule_indexes)
    }

    /// Checks that the call exists and that the base policy allows it at least in some cases.
    fn check_refusable(
        &self,
        rule: &RefusalText,
        call: &str,
        other_numbers: &BTreeSet<&str>,
    ) -> Result<(), PolicyError> {
        match self.rule_of(call) {
            Some(base) if base.allows() => Ok(()),
            Some(base) => Err(PolicyError::RefusedAlready {
                rule: rule.id.clone(),
                call: call.to_owned(),
                base: base.id.clone(),
            }),
            None if other_numbers.contains(call) => Ok(()),
            None => Err(PolicyError::UnknownCall {
                rule: rule.id.clone(),
                call: call.to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arch;

    const BASE: &str = "\
unknown: {id: unknown-number, action: ENOSYS, reason: newer, report: probe}
x32: {id: x32, action: ENOSYS, reason: rare, report: probe}
unlisted: {id: unlisted, action: EPERM, reason: not looked at, report: yes}
rules:
  - {id: files, calls: [read, write], action: allow, reason: harmless}
  - {id: mounts, calls: [mount], action: EPERM, reason: fixed, report: yes}
  - id: modes
    calls: [chmod]
    cases: [{when: [{argument: 1, one_of: [7]}], then: allow}]
    action: EPERM
    reason: some
    report: yes
";
    const NUMBERS: &str = "0 read\n1 write\n7 mount\n8 chmod\n";

    fn tightened(refused: &str) -> Result<SyscallPolicy, PolicyError> {
        let other_numbers = "3 renameat\n";
        SyscallPolicy::read(BASE, Arch::Aarch64, NUMBERS, other_numbers)
            .expect("sound")
            .tightened(&format!("refused:\n{refused}"), other_numbers)
    }

    fn refusal(refused: &str) -> String {
        tightened(refused).expect_err("must be refused").to_string()
    }

    #[test]
    fn a_tightening_refuses_whole_calls_and_leaves_the_rest() {
        let policy = tightened(
            "  - {id: a, calls: [write, renameat], action: ENOSYS, reason: few, report: probe}\n  \
             - {id: b, calls: [chmod], action: EINVAL, reason: none, report: yes}",
        )
        .expect("sound");
        let decide = |number, argument| {
            let ruling = policy.ruling(number, &[0, argument, 0, 0, 0, 0]);
            (ruling.rule.id.as_str(), ruling.decision)
        };
        assert_eq!(decide(0, 0), ("files", Decision::Allow));
        assert_eq!(decide(1, 0), ("a", Decision::NotImplemented));
        assert_eq!(decide(7, 0), ("mounts", Decision::NotPermitted));
        assert_eq!(decide(8, 7), ("b", Decision::InvalidArgument));
        assert_eq!(decide(9, 0), ("unknown-number", Decision::NotImplemented));
    }

    #[test]
    fn a_rule_with_conditions_leaves_the_rest_to_the_base_rule() {
        let policy = tightened(
            "  - {id: a, calls: [write], when: [{argument: 1, one_of: [6, 7]}], action: ENOLCK, \
               reason: few, report: yes}\n  \
             - {id: b, calls: [chmod], when: [{argument: 0, one_of: [1]}], action: EINVAL, \
               reason: few, report: yes}",
        )
        .expect("sound");
        let decide = |number, first, second| {
            let ruling = policy.ruling(number, &[first, second, 0, 0, 0, 0]);
            (ruling.rule.id.as_str(), ruling.decision)
        };
        assert_eq!(decide(1, 0, 6), ("a", Decision::NoLocks));
        assert_eq!(decide(1, 0, 5), ("a", Decision::Allow));
        assert_eq!(decide(0, 0, 6), ("files", Decision::Allow));
        assert_eq!(decide(8, 0, 7), ("b", Decision::Allow));
        assert_eq!(decide(8, 1, 7), ("b", Decision::InvalidArgument));
        assert_eq!(decide(8, 0, 6), ("b", Decision::NotPermitted));
        let when = "when: [{argument: 0, one_of: [1]}], action: EINVAL, report: yes";
        for (rule, part) in [
            (format!("calls: [read, chmod], {when}"), "one rule"),
            (format!("calls: [renameat], {when}"), "one rule"),
            (
                when.replace("one_of: [1]", "one_of: []") + ", calls: [read]",
                "case 1",
            ),
            (format!("calls: [mount], {when}"), "`mounts`"),
        ] {
            let message = refusal(&format!("  - {{id: a, reason: b, {rule}}}"));
            assert!(message.contains(part), "{rule}: {message}");
        }
    }

    #[test]
    fn a_tightening_that_allows_or_refuses_nothing_is_refused() {
        for (rule, part) in [
            ("calls: [read], action: allow, report: yes", "allows"),
            ("calls: [mount], action: EPERM, report: yes", "`mounts`"),
            ("calls: [raed], action: EPERM, report: yes", "`raed`"),
            ("calls: [read, read], action: EPERM, report: yes", "`read`"),
            (
                "calls: [read], action: EPERM, report: yes, cases: []",
                "cases",
            ),
            ("calls: [read], action: EPERM", "report"),
        ] {
            let message = refusal(&format!("  - {{id: a, reason: b, {rule}}}"));
            assert!(message.contains(part), "{rule}: {message}");
        }
        let message =
            refusal("  - {id: files, calls: [read], action: EPERM, reason: a, report: yes}");
        assert!(message.contains("`files`"), "{message}");
    }
}
