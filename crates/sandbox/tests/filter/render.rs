//! Writes the verdicts of the filters as a table.

use std::collections::HashSet;
use std::fmt::Write as _;

use filter::bpf::{Instruction, KILL_PROCESS};
use filter::{Arch, Arguments, Decision, Rule, SeccompData, SyscallPolicy, compile, interpret};

use crate::vectors::{vectors, with};

/// `tests/golden/filter/verdicts-<architecture>.txt`.
pub(crate) fn default_verdicts(arch: &str, verdicts: &str) -> String {
    format!(
        "# What the default filter answers on {arch}: number, call, answer, rule.\n\
         # Argument rules: one line per case. To renew it see policies/README.md.\n{verdicts}"
    )
}

/// `tests/golden/filter/verdicts-strict-<architecture>.txt`.
pub(crate) fn strict_verdicts(arch: &str, default: &str, strict: &str) -> String {
    let same: HashSet<&str> = default.lines().collect();
    let mut file = format!(
        "# Where the strict filter answers otherwise than the default one on {arch}: number, call, \
         answer, rule.\n# To renew it see policies/README.md.\n"
    );
    for line in strict.lines().filter(|line| !same.contains(line)) {
        let _infallible = writeln!(file, "{line}");
    }
    file
}

/// The verdicts of the program of `policy` for 0 to 1023.
pub(crate) fn verdicts(policy: &SyscallPolicy) -> String {
    let program = compile(policy);
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
            // One line for the whole gap.
            let line = answer(policy.arch, &program, first, &[0; 6]);
            for inside in first..number {
                let other = answer(policy.arch, &program, inside, &[0; 6]);
                assert_eq!(line, other, "{inside}");
            }
            let _infallible = writeln!(file, "{numbers} - {line} {}", rule.id);
            continue;
        };
        for vector in a_vector_of_each_case(rule) {
            let arguments = if rule.cases.is_empty() {
                String::new()
            } else {
                let shown: Vec<String> = vector[..4]
                    .iter()
                    .map(|value| format!("{value:#x}"))
                    .collect();
                format!("({})", shown.join(","))
            };
            let line = answer(policy.arch, &program, number, &vector);
            let _infallible = writeln!(file, "{number} {name}{arguments} {line} {}", rule.id);
        }
        number += 1;
    }
    file
}

/// One vector for each case of `rule`, and one that no case matches.
fn a_vector_of_each_case(rule: &Rule) -> Vec<Arguments> {
    if rule.cases.is_empty() {
        return vec![[0; 6]];
    }
    let of_case = |wanted: Option<usize>| {
        // Plain values first: they are more readable than those with stray bits.
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

fn answer(arch: Arch, program: &[Instruction], number: u32, arguments: &Arguments) -> &'static str {
    let data = SeccompData {
        number,
        arch: arch.audit_value(),
        instruction_pointer: 0,
        arguments: *arguments,
    };
    answer_name(interpret(program, &data))
}

fn answer_name(answer: u32) -> &'static str {
    if answer == KILL_PROCESS {
        return "kill";
    }
    let decision = Decision::ALL
        .into_iter()
        .find(|decision| decision.return_value() == answer);
    decision.expect("an answer of a decision").name()
}
