//! Compiles a policy to a BPF program: a balanced tree of comparisons over ranges of call numbers.
//!
//! The kernel runs every new filter once per call number to find calls that are always allowed. So a
//! list takes four times as long to load as a tree.
//!
//! The program is written from end to start: jumps only go forward, so each target exists before its
//! jumps.

use std::collections::HashMap;

use crate::bpf::{
    ALLOW, AND, ARCH_OFFSET, Instruction, JUMP, JUMP_AT_LEAST, JUMP_EQUAL, KILL_PROCESS, LOAD,
    NUMBER_OFFSET, RETURN, USER_NOTIFICATION, argument_offset,
};
use crate::policy::{Case, Condition, Decision, Reporting, Rule, X32_NUMBER_MIN};
use crate::{Arch, SyscallPolicy, TracedCall, UNKNOWN, X32};

/// Compiles `policy` for its architecture.
#[must_use]
pub fn compile(policy: &SyscallPolicy) -> Vec<Instruction> {
    compile_with(policy, Asked::Nothing)
}

/// As [`compile`], but a listener gets each refusal that is worth a report: it must answer as the program
/// of [`compile`].
#[must_use]
pub fn compile_observed(policy: &SyscallPolicy) -> Vec<Instruction> {
    compile_with(policy, Asked::Refusals)
}

/// As [`compile_observed`]; the listener gets also the [`TRACED_CALLS`](crate::TRACED_CALLS) that the
/// policy allows. It must let pass those that the program of [`compile`] allows, and no others.
#[must_use]
pub fn compile_traced(policy: &SyscallPolicy) -> Vec<Instruction> {
    compile_with(policy, Asked::RefusalsAndTraced)
}

/// What a listener is asked about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    Nothing,
    Refusals,
    RefusalsAndTraced,
}

fn compile_with(policy: &SyscallPolicy, asked: Asked) -> Vec<Instruction> {
    let mut writer = Writer {
        asked,
        ..Writer::default()
    };
    let mut targets: Vec<(u32, Target)> = ranges(policy)
        .iter()
        .map(|range| (range.first, writer.range(range)))
        .collect();
    // Merge ranges with the same result.
    targets.dedup_by_key(|(_, target)| *target);
    let tree = writer.tree(&targets);
    writer.enter(tree, policy.arch)
}

/// Numbers from `first` up to the next range's `first`, decided by one rule.
struct Range<'p> {
    first: u32,
    rule: &'p Rule,
    /// `None`: no listener is asked about the calls that the rule allows.
    traced: Option<&'static TracedCall>,
}

fn ranges(policy: &SyscallPolicy) -> Vec<Range<'_>> {
    let rule = |position: usize| &policy.rules[position];
    let mut ranges = Vec::new();
    let mut next = 0;
    for call in &policy.calls {
        let number = u32::from(call.number);
        if next < number {
            ranges.push(Range {
                first: next,
                rule: rule(UNKNOWN),
                traced: None,
            });
        }
        ranges.push(Range {
            first: number,
            rule: rule(call.rule),
            traced: TracedCall::named(&call.name),
        });
        next = number + 1;
    }
    ranges.push(Range {
        first: next,
        rule: rule(UNKNOWN),
        traced: None,
    });
    if policy.arch == Arch::X86_64 {
        ranges.push(Range {
            first: X32_NUMBER_MIN,
            rule: rule(X32),
            traced: None,
        });
    }
    ranges
}

/// Position in the program, counted from its end.
type Position = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Target {
    At(Position),
    /// A return value. Its instruction is repeated if no earlier one is in reach.
    Return(u32),
}

/// The program, last instruction first.
#[derive(Default)]
struct Writer {
    asked: Asked,
    reversed: Vec<Instruction>,
    /// Written tests: condition, target if it holds, target if not.
    tests: HashMap<(Condition, Target, Target), Position>,
    nearest: HashMap<Target, Position>,
}

impl Writer {
    fn write(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> Position {
        self.reversed.push(Instruction::new(code, jt, jf, k));
        self.reversed.len()
    }

    fn range(&mut self, range: &Range<'_>) -> Target {
        let rule = range.rule;
        let allowed = match range.traced {
            Some(call) if self.asked == Asked::RefusalsAndTraced => {
                let ask = Target::Return(USER_NOTIFICATION);
                let pass = Target::Return(ALLOW);
                match call.seen() {
                    Some(case) => self.cases(&[case], pass, |_allow| ask),
                    None => self.cases(&call.unseen(), ask, |_allow| pass),
                }
            }
            _ => Target::Return(ALLOW),
        };
        let is_observed = self.asked != Asked::Nothing;
        let target = |decision: Decision| match (rule.report, decision) {
            (_, Decision::Allow) => allowed,
            (Some(Reporting::Yes), refusal) if is_observed && refusal.is_refusal() => {
                Target::Return(USER_NOTIFICATION)
            }
            _ => Target::Return(decision.return_value()),
        };
        self.cases(&rule.cases, target(rule.action), target)
    }

    fn cases(
        &mut self,
        cases: &[Case],
        mut otherwise: Target,
        target: impl Fn(Decision) -> Target,
    ) -> Target {
        for Case { when, then } in cases.iter().rev() {
            let mut holds = target(*then);
            for condition in when.iter().rev() {
                holds = self.condition(condition, holds, otherwise);
            }
            otherwise = holds;
        }
        otherwise
    }

    fn condition(&mut self, condition: &Condition, holds: Target, fails: Target) -> Target {
        let test = (condition.clone(), holds, fails);
        if let Some(position) = self.tests.get(&test) {
            return Target::At(*position);
        }
        if condition.one_of.is_empty() {
            return fails;
        }
        let mut next = fails;
        for value in condition.one_of.iter().rev() {
            next = self.jump(JUMP_EQUAL, *value, holds, next);
        }
        if condition.mask != u32::MAX {
            self.write(AND, 0, 0, condition.mask);
        }
        // The kernel ignores the upper half of most arguments: only pointers have a condition on it.
        let half = if condition.upper { 4 } else { 0 };
        let position = self.write(LOAD, 0, 0, argument_offset(condition.argument) + half);
        self.tests.insert(test, position);
        Target::At(position)
    }

    fn jump(&mut self, code: u16, k: u32, yes: Target, no: Target) -> Target {
        // Instructions for `no` are written between the jump and `yes`.
        let yes = self.near(yes, 1);
        let no = self.near(no, 0);
        let distance = |to: Position| u8::try_from(self.reversed.len() - to);
        Target::At(match (distance(yes), distance(no)) {
            (Ok(jt), Ok(jf)) => self.write(code, jt, jf, k),
            // Unreachable after `near`; fail closed.
            _ => self.write(RETURN, 0, 0, KILL_PROCESS),
        })
    }

    /// Returns a position for `target` that a conditional jump can reach after `spare` more
    /// instructions are written.
    ///
    /// A conditional jump skips at most 255 instructions. A farther target gets an intermediate
    /// jump, which later jumps reuse.
    fn near(&mut self, target: Target, spare: usize) -> Position {
        let known = match target {
            Target::At(position) => Some(*self.nearest.get(&target).unwrap_or(&position)),
            Target::Return(_) => self.nearest.get(&target).copied(),
        };
        let known = known.map(|position| (position, self.reversed.len() - position));
        if let Some((position, distance)) = known
            && distance + spare <= usize::from(u8::MAX)
        {
            return position;
        }
        let near = match (target, known) {
            (Target::Return(answer), _) => self.write(RETURN, 0, 0, answer),
            (Target::At(_), Some((_, distance))) => self.skip(distance),
            (Target::At(position), None) => position,
        };
        self.nearest.insert(target, near);
        near
    }

    fn skip(&mut self, count: usize) -> Position {
        match u32::try_from(count) {
            Ok(count) => self.write(JUMP, 0, 0, count),
            // Too long for a program; fail closed.
            Err(_) => self.write(RETURN, 0, 0, KILL_PROCESS),
        }
    }

    fn tree(&mut self, ranges: &[(u32, Target)]) -> Target {
        let (lower, upper) = ranges.split_at(ranges.len() / 2);
        match (lower, upper) {
            (_, []) => Target::Return(KILL_PROCESS),
            ([], [(_, target), ..]) => *target,
            (_, [(first, _), ..]) => {
                let below = self.tree(lower);
                let from_first = self.tree(upper);
                self.jump(JUMP_AT_LEAST, *first, from_first, below)
            }
        }
    }

    /// Writes the start of the program: check the architecture, load the number, continue with
    /// `tree`.
    fn enter(mut self, tree: Target, arch: Arch) -> Vec<Instruction> {
        // The tree was written last, unless one return value covers all numbers.
        if tree != Target::At(self.reversed.len()) {
            let position = self.near(tree, 0);
            if position != self.reversed.len() {
                self.skip(self.reversed.len() - position);
            }
        }
        let number = Target::At(self.write(LOAD, 0, 0, NUMBER_OFFSET));
        let kill = Target::Return(KILL_PROCESS);
        self.jump(JUMP_EQUAL, arch.audit_value(), number, kill);
        self.write(LOAD, 0, 0, ARCH_OFFSET);
        self.reversed.reverse();
        self.reversed
    }
}
