//! Writes the checked-in forms of the built-in policies: Rust tables, and verdicts for people.

use std::collections::HashSet;
use std::fmt::Write as _;

use sandbox::filter::{
    Arch, Arguments, Decision, Reporting, Rule, SeccompData, SyscallPolicy, Variant, compile,
    interpret,
};
use spec::bpf::{ALLOW, ERRNO, Instruction, KILL_PROCESS, NOTIFY};
use spec::syscall_policy::SyscallPolicyName;

use crate::vectors::{vectors, with};

const GENERATED: &str =
    "Generated from policies/ by tests/filter.rs; to renew it see policies/README.md.";

/// `crates/sandbox/src/filter/built_in_rules.rs`: the rules of `strict`, the first of which are `default`'s.
pub(crate) fn rules_file(default: &SyscallPolicy, strict: &SyscallPolicy) -> String {
    assert!(strict.rules.starts_with(&default.rules));
    let mut file = format!(
        "//! The rules of both policies. {GENERATED}\n\n\
         use std::borrow::Cow;\n\n\
         use crate::filter::{{Case, Condition, Decision, Reporting, Rule}};\n\n\
         /// How many of them are the default policy's; the others are the strict one's alone.\n\
         pub(super) const DEFAULT_RULES: usize = {};\n\n\
         #[rustfmt::skip]\n\
         pub(super) static RULES: &[Rule] = &[\n",
        default.rules.len()
    );
    for rule in strict.rules.iter() {
        let report = match rule.report {
            None => "None",
            Some(Reporting::Yes) => "Some(Reporting::Yes)",
            Some(Reporting::Probe) => "Some(Reporting::Probe)",
        };
        let _infallible = write!(
            file,
            "    Rule {{\n        id: Cow::Borrowed({:?}),\n        reason: Cow::Borrowed({:?}),\n\
             \x20       report: {report}, cases: Cow::Borrowed(&[",
            rule.id, rule.reason
        );
        for case in rule.cases.iter() {
            file.push_str("\n            Case { when: Cow::Borrowed(&[");
            for condition in case.when.iter() {
                let values: Vec<String> = condition
                    .one_of
                    .iter()
                    .map(|value| format!("{value:#x}"))
                    .collect();
                let _infallible = write!(
                    file,
                    "\n                Condition {{ argument: {}, mask: {:#x}, \
                     one_of: Cow::Borrowed(&[{}]) }},",
                    condition.argument,
                    condition.mask,
                    values.join(", ")
                );
            }
            let _infallible = write!(
                file,
                "\n            ]), then: Decision::{:?} }},",
                case.then
            );
        }
        if !rule.cases.is_empty() {
            file.push_str("\n        ");
        }
        let _infallible = write!(file, "]), action: Decision::{:?},\n    }},\n", rule.action);
    }
    file.push_str("];\n");
    file
}

/// `crates/sandbox/src/filter/<policy>_<architecture>.rs`. The names of the calls stand in the default's.
pub(crate) fn program_file(name: SyscallPolicyName, policy: &SyscallPolicy) -> String {
    let arch = arch_name(policy.arch);
    let (rules, imports) = match name {
        SyscallPolicyName::Default => (
            "RULES.split_at(DEFAULT_RULES).0",
            "use crate::filter::built_in_rules::{DEFAULT_RULES, RULES};\n".to_owned(),
        ),
        SyscallPolicyName::Strict => (
            "RULES",
            format!(
                "use crate::filter::built_in_rules::RULES;\n\
                 use crate::filter::default_{arch}::NAMES;\n"
            ),
        ),
    };
    let mut file = format!(
        "//! The {} policy for {arch}: calls and programs. {GENERATED}\n\n\
         use std::borrow::Cow;\n\n\
         {imports}\
         use crate::filter::{{Arch, Call, SyscallPolicy}};\n\
         use spec::bpf::Instruction;\n\n\
         const fn c(number: u16, rule: u8) -> Call {{\n    Call::new(number, rule)\n}}\n\n\
         const fn i(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {{\n    \
         Instruction::new(code, jt, jf, k)\n}}\n\n\
         pub(super) static POLICY: SyscallPolicy = SyscallPolicy {{\n    \
         arch: Arch::{:?},\n    rules: Cow::Borrowed({rules}),\n    \
         calls: Cow::Borrowed(&CALLS),\n    names: Cow::Borrowed(NAMES),\n}};\n\n",
        name.name(),
        policy.arch
    );
    if name == SyscallPolicyName::Default {
        file.push_str(&names(policy));
    }
    let calls: Vec<String> = policy
        .calls
        .iter()
        .map(|call| format!("c({}, {}), ", call.number, call.rule))
        .collect();
    let _infallible = write!(
        file,
        "#[rustfmt::skip]\nstatic CALLS: [Call; {}] = [\n{}];\n",
        calls.len(),
        filled(&calls, "    ", "")
    );
    for (name, variant) in [("PLAIN", Variant::Plain), ("LISTENER", Variant::Listener)] {
        let program = compile(policy, variant);
        let steps: Vec<String> = program
            .iter()
            .map(|step| {
                format!(
                    "i({:#04x}, {}, {}, {:#x}), ",
                    step.code, step.jt, step.jf, step.k
                )
            })
            .collect();
        let _infallible = write!(
            file,
            "\n#[rustfmt::skip]\npub(super) static {name}: [Instruction; {}] = [\n{}];\n",
            steps.len(),
            filled(&steps, "    ", "")
        );
    }
    file
}

fn names(policy: &SyscallPolicy) -> String {
    let names = policy.names.split(' ');
    let names: Vec<String> = names.map(|name| format!("{name} ")).collect();
    // A `\` at the end of a line eats the line's end and the indent; the last name has no space.
    let lines = filled(&names, "    ", "\\");
    let lines = lines.trim_end_matches(['\n', '\\', ' ']);
    format!("pub(super) static NAMES: &str = \"\\\n{lines}\";\n\n")
}

/// `words` in lines of at most 100 columns, each begun with `indent` and ended with `end`.
fn filled(words: &[String], indent: &str, end: &str) -> String {
    let mut text = String::new();
    let mut line = String::new();
    let flush = |line: &mut String, text: &mut String| {
        let kept = if end.is_empty() {
            line.trim_end()
        } else {
            line.as_str()
        };
        let _infallible = writeln!(text, "{indent}{kept}{end}");
        line.clear();
    };
    for word in words {
        if indent.len() + line.len() + word.trim_end().len() + end.len() > 98 {
            flush(&mut line, &mut text);
        }
        line.push_str(word);
    }
    flush(&mut line, &mut text);
    text
}

/// `tests/golden/filter/verdicts-<architecture>.txt`.
pub(crate) fn default_verdicts(arch: &str, verdicts: &str) -> String {
    format!(
        "# What the default filter answers on {arch}: number, call, plain variant, listener \
         variant, rule.\n# Argument rules: one line per case. To renew it see \
         policies/README.md.\n{verdicts}"
    )
}

/// `tests/golden/filter/verdicts-strict-<architecture>.txt`.
pub(crate) fn strict_verdicts(arch: &str, default: &str, strict: &str) -> String {
    let same: HashSet<&str> = default.lines().collect();
    let mut file = format!(
        "# Where the strict filter answers otherwise than the default one on {arch}: number, call, \
         plain variant, listener variant, rule.\n# To renew it see policies/README.md.\n"
    );
    for line in strict.lines().filter(|line| !same.contains(line)) {
        let _infallible = writeln!(file, "{line}");
    }
    file
}

/// What the two programs of `policy` answer for 0 to 1023.
pub(crate) fn verdicts(policy: &SyscallPolicy) -> String {
    let plain = compile(policy, Variant::Plain);
    let listener = compile(policy, Variant::Listener);
    let mut file = String::new();
    let mut number = 0;
    while number < 1024 {
        let rule = policy.ruling(number, &[0; 6]).rule;
        let Some(name) = policy.name_of(number) else {
            let first = number;
            while number < 1024 && policy.name_of(number).is_none() {
                number += 1;
            }
            let numbers = format!("{first}-{}", number - 1);
            // One answer for the whole gap.
            let line = answers(policy.arch, [&plain, &listener], first, &[0; 6]);
            for inside in first..number {
                let other = answers(policy.arch, [&plain, &listener], inside, &[0; 6]);
                assert_eq!(line, other, "{inside}");
            }
            let _infallible = writeln!(file, "{numbers} - {line} {}", rule.id);
            continue;
        };
        for vector in telling(rule) {
            let arguments = if rule.cases.is_empty() {
                String::new()
            } else {
                let shown: Vec<String> = vector[..4]
                    .iter()
                    .map(|value| format!("{value:#x}"))
                    .collect();
                format!("({})", shown.join(","))
            };
            let line = answers(policy.arch, [&plain, &listener], number, &vector);
            let _infallible = writeln!(file, "{number} {name}{arguments} {line} {}", rule.id);
        }
        number += 1;
    }
    file
}

/// One vector for each case of `rule`, and one that no case matches.
fn telling(rule: &Rule) -> Vec<Arguments> {
    if rule.cases.is_empty() {
        return vec![[0; 6]];
    }
    let of_case = |wanted: Option<usize>| {
        // Plain values first: they read better than those with stray bits.
        let written = rule.cases.iter().map(|case| {
            case.when.iter().fold([0; 6], |vector, condition| {
                with(vector, condition.argument, u64::from(condition.one_of[0]))
            })
        });
        written.chain(vectors(rule)).find(|vector| {
            let case = rule
                .cases
                .iter()
                .position(|case| case.when.iter().all(|condition| condition.holds(vector)));
            case == wanted
        })
    };
    (0..rule.cases.len())
        .map(Some)
        .chain([None])
        .map(|case| of_case(case).expect("each case can be reached"))
        .collect()
}

fn answers(
    arch: Arch,
    programs: [&[Instruction]; 2],
    number: u32,
    arguments: &Arguments,
) -> String {
    programs
        .map(|program| {
            let data = SeccompData {
                number,
                arch: arch.audit_value(),
                instruction_pointer: 0,
                arguments: *arguments,
            };
            answer_name(interpret(program, &data))
        })
        .join(" ")
}

fn answer_name(answer: u32) -> &'static str {
    let refusals = [
        Decision::NotPermitted,
        Decision::InvalidArgument,
        Decision::NoLocks,
        Decision::NotImplemented,
        Decision::ProtocolNotSupported,
        Decision::OperationNotSupported,
        Decision::FamilyNotSupported,
    ];
    match answer {
        ALLOW => "allow",
        NOTIFY => "notify",
        KILL_PROCESS => "kill",
        _ => refusals
            .into_iter()
            .find(|decision| decision.errno().map(|errno| ERRNO | u32::from(errno)) == Some(answer))
            .expect("an answer that a decision gives")
            .name(),
    }
}

/// As in the names of files.
pub(crate) fn arch_name(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "x86_64",
        Arch::Aarch64 => "aarch64",
    }
}
