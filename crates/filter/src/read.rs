//! Reads a policy: YAML rules by name, with the numbers of one architecture.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::policy::{Call, Case, Decision, FOREIGN_ARCHITECTURE, Reporting, Rule, SyscallPolicy};
use crate::{Arch, UNLISTED};

/// Error of a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("cannot read the system call policy: {source}")]
    Shape {
        /// With line and column.
        source: Box<serde_saphyr::Error>,
    },
    #[error(
        "system call numbers, line {line}: found `{found}`, expected a number of at most 65535, \
         greater than that of the line before, and a name"
    )]
    NumberLine {
        /// Counted from 1.
        line: usize,
        found: String,
    },
    #[error(
        "rule `{rule}`: unknown system call `{call}`: correct the name, or add it to a number table"
    )]
    UnknownCall { rule: String, call: String },
    #[error("rules `{first}` and `{second}` both contain `{call}`: remove it from one of them")]
    TwoRules {
        call: String,
        first: String,
        second: String,
    },
    #[error("duplicate rule id `{id}`: denials refer to ids, so rename one")]
    TwoIds { id: String },
    #[error(
        "rule `{rule}`: `report` (yes or probe) is required if the rule refuses something, and not \
         allowed otherwise"
    )]
    Report { rule: String },
    #[error(
        "rule `{rule}`, case {case}: expected at least one condition, arguments from 0 to 5, and \
         at least one value in `one_of`, each within `mask`"
    )]
    Case {
        rule: String,
        /// Counted from 1.
        case: usize,
    },
    #[error("rule `{rule}` allows its calls, but a tightening can only refuse: use an errno")]
    Loosens { rule: String },
    #[error("rule `{rule}` refuses `{call}`, which rule `{base}` already refuses: remove it")]
    RefusedAlready {
        rule: String,
        call: String,
        base: String,
    },
    #[error(
        "rule `{rule}` has conditions, so all its calls must belong to one rule of the base policy, \
         which decides if they do not hold"
    )]
    SeveralBaseRules { rule: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyText {
    unknown: FallbackText,
    x32: FallbackText,
    unlisted: FallbackText,
    rules: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FallbackText {
    id: String,
    action: Decision,
    reason: String,
    report: Option<Reporting>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    id: String,
    calls: Vec<String>,
    #[serde(default)]
    cases: Vec<Case>,
    action: Decision,
    reason: String,
    report: Option<Reporting>,
}

impl From<FallbackText> for RuleText {
    fn from(text: FallbackText) -> Self {
        Self {
            id: text.id,
            calls: Vec::new(),
            cases: Vec::new(),
            action: text.action,
            reason: text.reason,
            report: text.report,
        }
    }
}

impl SyscallPolicy {
    /// Reads the YAML `rules` for `arch` with its number table `numbers`.
    ///
    /// `other_numbers` is the table of the other architecture. Names that only it has are skipped;
    /// unknown names are errors.
    ///
    /// # Errors
    /// `PolicyError` for malformed or contradictory text.
    pub fn read(
        rules: &str,
        arch: Arch,
        numbers: &str,
        other_numbers: &str,
    ) -> Result<Self, PolicyError> {
        let text: PolicyText =
            serde_saphyr::from_str(rules).map_err(|error| PolicyError::Shape {
                source: Box::new(error),
            })?;
        let native = read_numbers(numbers)?;
        let mut known: BTreeSet<&str> = native.iter().map(|(_, name)| *name).collect();
        known.extend(names_of(other_numbers)?);

        // In the order of `UNLISTED`, `UNKNOWN`, `X32`.
        let fallbacks = [text.unlisted, text.unknown, text.x32].map(RuleText::from);
        let rules: Vec<RuleText> = fallbacks.into_iter().chain(text.rules).collect();
        check_ids(rules.iter().map(|rule| rule.id.as_str()))?;
        let rule_indexes = rule_indexes(&rules, &known)?;
        let calls = native.iter().map(|(number, name)| Call {
            number: *number,
            name: (*name).to_owned(),
            rule: rule_indexes.get(name).copied().unwrap_or(UNLISTED),
        });
        Ok(Self {
            arch,
            calls: calls.collect(),
            rules: rules
                .into_iter()
                .map(|text| checked(text.into()))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// "number name" on each line, `#` begins a comment.
fn read_numbers(text: &str) -> Result<Vec<(u16, &str)>, PolicyError> {
    let mut calls: Vec<(u16, &str)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let call = line
            .split_once(' ')
            .and_then(|(number, name)| Some((number.parse::<u16>().ok()?, name)))
            .filter(|(number, name)| {
                !name.contains(' ') && calls.last().is_none_or(|(before, _)| before < number)
            });
        calls.push(call.ok_or_else(|| PolicyError::NumberLine {
            line: index + 1,
            found: line.escape_debug().to_string(),
        })?);
    }
    Ok(calls)
}

pub(super) fn names_of(table: &str) -> Result<BTreeSet<&str>, PolicyError> {
    let calls = read_numbers(table)?;
    Ok(calls.into_iter().map(|(_, name)| name).collect())
}

pub(super) fn check_ids<'rule>(rules: impl Iterator<Item = &'rule str>) -> Result<(), PolicyError> {
    let mut ids = BTreeSet::from([FOREIGN_ARCHITECTURE]);
    for id in rules {
        if !ids.insert(id) {
            return Err(PolicyError::TwoIds { id: id.to_owned() });
        }
    }
    Ok(())
}

fn rule_indexes<'r>(
    rules: &'r [RuleText],
    known: &BTreeSet<&str>,
) -> Result<BTreeMap<&'r str, usize>, PolicyError> {
    let mut rule_indexes = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        for call in &rule.calls {
            if !known.contains(call.as_str()) {
                return Err(PolicyError::UnknownCall {
                    rule: rule.id.clone(),
                    call: call.clone(),
                });
            }
            if let Some(first) = rule_indexes.insert(call.as_str(), index) {
                return Err(PolicyError::TwoRules {
                    call: call.clone(),
                    first: rules[first].id.clone(),
                    second: rule.id.clone(),
                });
            }
        }
    }
    Ok(rule_indexes)
}

impl From<RuleText> for Rule {
    fn from(text: RuleText) -> Self {
        Self {
            id: text.id,
            reason: text.reason,
            report: text.report,
            cases: text.cases,
            action: text.action,
        }
    }
}

/// Refuses a rule with a contradictory `report` or a case that can never match.
pub(super) fn checked(rule: Rule) -> Result<Rule, PolicyError> {
    if rule.refuses() != rule.report.is_some() {
        return Err(PolicyError::Report { rule: rule.id });
    }
    let can_match = |case: &Case| {
        !case.when.is_empty()
            && case.when.iter().all(|condition| {
                condition.argument <= 5
                    && !condition.one_of.is_empty()
                    && condition
                        .one_of
                        .iter()
                        .all(|value| value & !condition.mask == 0)
            })
    };
    match rule.cases.iter().position(|case| !can_match(case)) {
        Some(index) => Err(PolicyError::Case {
            rule: rule.id,
            case: index + 1,
        }),
        None => Ok(rule),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::X32;

    const FALLBACKS: &str = "\
unknown: {id: unknown-number, action: ENOSYS, reason: newer, report: probe}
x32: {id: x32, action: ENOSYS, reason: rare, report: probe}
unlisted: {id: unlisted, action: EPERM, reason: not looked at, report: yes}
rules:
";
    const NUMBERS: &str = "# a comment\n\n0 read\n1 write\n7 mount\n";

    fn read(rules: &str) -> Result<SyscallPolicy, PolicyError> {
        let text = format!("{FALLBACKS}{rules}");
        SyscallPolicy::read(&text, Arch::X86_64, NUMBERS, "3 renameat\n")
    }

    fn refusal(rules: &str) -> String {
        read(rules).expect_err("must be refused").to_string()
    }

    #[test]
    fn a_small_policy_decides_by_call_number() {
        let policy = read(
            "
  - {id: files, calls: [read, renameat], action: allow, reason: harmless}
  - id: mounts
    calls: [mount]
    cases:
      - when: [{argument: 3, mask: 0xf0, one_of: [0x10, 32]}]
        then: allow
    action: EINVAL
    reason: fixed
    report: yes
",
        )
        .expect("sound");
        let decide = |number, argument| {
            let ruling = policy.ruling(number, &[0, 0, 0, argument, 0, 0]);
            (ruling.rule.id.as_str(), ruling.decision)
        };
        assert_eq!(decide(0, 0), ("files", Decision::Allow));
        assert_eq!(decide(1, 0), ("unlisted", Decision::NotPermitted));
        assert_eq!(decide(3, 0), ("unknown-number", Decision::NotImplemented));
        assert_eq!(decide(7, 0x1f), ("mounts", Decision::Allow));
        assert_eq!(decide(7, 0x3f), ("mounts", Decision::InvalidArgument));
        assert_eq!(decide(0x4000_0000, 0), ("x32", Decision::NotImplemented));
        assert_eq!(policy.rules[X32].id, "x32");
        assert_eq!(policy.name_of(7), Some("mount"));
        assert_eq!(policy.number_of("renameat"), None);
    }

    #[test]
    fn an_unknown_call_is_refused_with_its_name() {
        let message = refusal("  - {id: files, calls: [raed], action: allow, reason: typing}");
        assert!(
            message.contains("`raed`") && message.contains("`files`"),
            "{message}"
        );
    }

    #[test]
    fn a_call_in_two_rules_is_refused_with_both() {
        let message = refusal(
            "  - {id: one, calls: [read], action: allow, reason: a}\n  \
             - {id: two, calls: [read], action: allow, reason: b}",
        );
        assert!(message.contains("`one` and `two`"), "{message}");
        let message = refusal("  - {id: one, calls: [read, read], action: allow, reason: a}");
        assert!(message.contains("`read`"), "{message}");
    }

    #[test]
    fn an_id_that_two_rules_have_is_refused() {
        for id in ["unlisted", "x32", "foreign-architecture"] {
            let message = refusal(&format!(
                "  - {{id: {id}, calls: [read], action: allow, reason: a}}"
            ));
            assert!(message.contains(&format!("`{id}`")), "{message}");
        }
    }

    #[test]
    fn a_refusal_says_whether_it_is_reported_and_only_a_refusal_does() {
        for rule in [
            "{id: one, calls: [read], action: EPERM, reason: a}",
            "{id: one, calls: [read], action: allow, reason: a, report: yes}",
        ] {
            let message = refusal(&format!("  - {rule}"));
            assert!(message.contains("`one`: `report`"), "{message}");
        }
    }

    #[test]
    fn a_case_that_can_never_match_is_refused() {
        for when in [
            "[]",
            "[{argument: 6, one_of: [1]}]",
            "[{argument: 0, one_of: []}]",
            "[{argument: 0, mask: 0xf0, one_of: [0x10, 0x11]}]",
        ] {
            let message = refusal(&format!(
                "  - {{id: one, calls: [read], cases: [{{when: {when}, then: allow}}], \
                 action: EPERM, reason: a, report: yes}}"
            ));
            assert!(message.contains("rule `one`, case 1"), "{when}: {message}");
        }
    }

    #[test]
    fn an_unknown_key_or_errno_is_refused_with_its_line() {
        for rule in [
            "{id: one, calls: [read], action: allow, reason: a, learn: yes}",
            "{id: one, calls: [read], action: EMAGIC, reason: a, report: yes}",
            "{id: one, calls: [read], action: allow}",
            "{id: one, calls: [read], cases: [{when: [{argument: 0, one_of: [0x1_0000_0000]}], \
             then: allow}], action: EPERM, reason: a, report: yes}",
        ] {
            let error = read(&format!("  - {rule}")).expect_err("must be refused");
            assert!(matches!(error, PolicyError::Shape { .. }), "{error}");
            assert!(error.to_string().contains("line 5"), "{error}");
        }
    }

    #[test]
    fn a_number_table_out_of_order_is_refused_with_its_line() {
        for (line, numbers) in [
            (1, "zero read"),
            (1, "65536 read"),
            (1, "0"),
            (2, "1 read\n1 write"),
            (3, "1 read\n#\n0 write"),
            (2, "1 read\n2 write \u{1b}[2J"),
        ] {
            let text = format!("{FALLBACKS}  []");
            let error = SyscallPolicy::read(&text, Arch::Aarch64, numbers, "");
            let message = error.expect_err("must be refused").to_string();
            assert!(
                message.contains(&format!("line {line}:")),
                "{numbers}: {message}"
            );
            assert!(!message.contains('\u{1b}'), "{message}");
        }
    }
}
