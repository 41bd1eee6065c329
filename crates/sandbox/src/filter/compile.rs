//! From a policy to a BPF program: a balanced tree of comparisons over ranges of call numbers.
//!
//! A tree, because the kernel runs every new filter once for each call number to learn which are
//! always allowed: with a list that takes four times as long to load.
//!
//! The program is written from its end to its beginning. Jumps only go forward, so the place that
//! a jump leads to is always written before the jump.

use std::collections::HashMap;

use crate::filter::policy::{Case, Condition, Decision, Reporting, Rule, X32_NUMBER_MIN};
use crate::filter::{Arch, SyscallPolicy, UNKNOWN, Variant, X32};
use spec::bpf::{
    ALLOW, AND, ARCH_OFFSET, ERRNO, Instruction, JUMP, JUMP_AT_LEAST, JUMP_EQUAL, KILL_PROCESS,
    LOAD, NOTIFY, NUMBER_OFFSET, RETURN, argument_offset,
};

/// Compiles `policy` for its architecture.
///
/// Refusals that are reported answer NOTIFY in the listener's variant and their errno in the plain
/// one; the rest is the same in both.
#[must_use]
pub fn compile(policy: &SyscallPolicy, variant: Variant) -> Vec<Instruction> {
    let mut writer = Writer::default();
    let mut targets: Vec<(u32, Target)> = ranges(policy)
        .iter()
        .map(|range| (range.first, writer.rule(range.rule, variant)))
        .collect();
    // Different rules may come to the same answer; then they are one range.
    targets.dedup_by_key(|(_, target)| *target);
    let tree = writer.tree(&targets);
    writer.enter(tree, policy.arch)
}

/// Numbers from `first` up to the next range's `first`, decided by one rule.
struct Range<'p> {
    first: u32,
    rule: &'p Rule,
}

fn ranges(policy: &SyscallPolicy) -> Vec<Range<'_>> {
    let rule = |place: u8| &policy.rules[usize::from(place)];
    let mut ranges = Vec::new();
    let mut next = 0;
    for call in policy.calls.iter() {
        let number = u32::from(call.number);
        if next < number {
            ranges.push(Range {
                first: next,
                rule: rule(UNKNOWN),
            });
        }
        ranges.push(Range {
            first: number,
            rule: rule(call.rule),
        });
        next = number + 1;
    }
    ranges.push(Range {
        first: next,
        rule: rule(UNKNOWN),
    });
    if policy.arch == Arch::X86_64 {
        ranges.push(Range {
            first: X32_NUMBER_MIN,
            rule: rule(X32),
        });
    }
    ranges
}

/// A place in the program, counted from its end: the instructions from there to the end.
type Place = usize;

/// Where a jump leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Target {
    /// A place that was written.
    At(Place),
    /// An answer; it is written where it is needed, as often as it lies out of reach.
    Answer(u32),
}

/// The program, last instruction first.
#[derive(Default)]
struct Writer {
    reversed: Vec<Instruction>,
    /// Tests of an argument that were written before: condition, where it holds, where not.
    tests: HashMap<(Condition, Target, Target), Place>,
    /// The nearest place that does what the target asks for.
    nearest: HashMap<Target, Place>,
}

impl Writer {
    /// Writes one instruction before all others.
    fn write(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> Place {
        self.reversed.push(Instruction::new(code, jt, jf, k));
        self.reversed.len()
    }

    /// All cases of `rule`; the target is where its decision begins.
    fn rule(&mut self, rule: &Rule, variant: Variant) -> Target {
        let heard = variant == Variant::Listener && rule.report == Some(Reporting::Yes);
        let answer = |decision: Decision| {
            Target::Answer(match decision.errno() {
                None => ALLOW,
                Some(_) if heard => NOTIFY,
                Some(errno) => ERRNO | u32::from(errno),
            })
        };
        let mut otherwise = answer(rule.action);
        for Case { when, then } in rule.cases.iter().rev() {
            let mut holds = answer(*then);
            for condition in when.iter().rev() {
                holds = self.condition(condition, holds, otherwise);
            }
            otherwise = holds;
        }
        otherwise
    }

    /// Goes on at `holds` or at `fails`.
    fn condition(&mut self, condition: &Condition, holds: Target, fails: Target) -> Target {
        let test = (condition.clone(), holds, fails);
        if let Some(place) = self.tests.get(&test) {
            return Target::At(*place);
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
        // Loading the lower half only is what makes bits above it powerless.
        let place = self.write(LOAD, 0, 0, argument_offset(condition.argument));
        self.tests.insert(test, place);
        Target::At(place)
    }

    /// A comparison that leads to `yes` or `no`.
    fn jump(&mut self, code: u16, k: u32, yes: Target, no: Target) -> Target {
        // What has to be written for `no` will stand between the jump and `yes`.
        let yes = self.near(yes, 1);
        let no = self.near(no, 0);
        let distance = |to: Place| u8::try_from(self.reversed.len() - to);
        Target::At(match (distance(yes), distance(no)) {
            (Ok(jt), Ok(jf)) => self.write(code, jt, jf, k),
            // `near` has just brought both into reach; if it ever fails to, nothing may pass.
            _ => self.write(RETURN, 0, 0, KILL_PROCESS),
        })
    }

    /// A place that does what `target` asks for and that a conditional jump can reach from
    /// `spare` instructions before here.
    ///
    /// Such a jump skips at most 255 instructions. For what lies farther away a stepping stone is
    /// written, which later jumps use too.
    fn near(&mut self, target: Target, spare: usize) -> Place {
        let known = match target {
            Target::At(place) => Some(*self.nearest.get(&target).unwrap_or(&place)),
            Target::Answer(_) => self.nearest.get(&target).copied(),
        };
        let known = known.map(|place| (place, self.reversed.len() - place));
        if let Some((place, distance)) = known
            && distance + spare <= usize::from(u8::MAX)
        {
            return place;
        }
        let stone = match (target, known) {
            (Target::Answer(answer), _) => self.write(RETURN, 0, 0, answer),
            (Target::At(_), Some((_, distance))) => self.skip(distance),
            (Target::At(place), None) => place,
        };
        self.nearest.insert(target, stone);
        stone
    }

    /// An unconditional jump over the next `count` instructions.
    fn skip(&mut self, count: usize) -> Place {
        match u32::try_from(count) {
            Ok(count) => self.write(JUMP, 0, 0, count),
            // No program is that long; if one were, nothing may pass.
            Err(_) => self.write(RETURN, 0, 0, KILL_PROCESS),
        }
    }

    /// The tree over `ranges`: the number is compared with the first of the upper half.
    fn tree(&mut self, ranges: &[(u32, Target)]) -> Target {
        let (lower, upper) = ranges.split_at(ranges.len() / 2);
        match (lower, upper) {
            (_, []) => Target::Answer(KILL_PROCESS),
            ([], [(_, target), ..]) => *target,
            (_, [(first, _), ..]) => {
                let below = self.tree(lower);
                let from_first = self.tree(upper);
                self.jump(JUMP_AT_LEAST, *first, from_first, below)
            }
        }
    }

    /// The beginning: the architecture, then the number, then `tree`.
    fn enter(mut self, tree: Target, arch: Arch) -> Vec<Instruction> {
        // The tree's top is what was written last, but where one answer serves all numbers.
        if tree != Target::At(self.reversed.len()) {
            let place = self.near(tree, 0);
            if place != self.reversed.len() {
                self.skip(self.reversed.len() - place);
            }
        }
        let number = Target::At(self.write(LOAD, 0, 0, NUMBER_OFFSET));
        let kill = Target::Answer(KILL_PROCESS);
        self.jump(JUMP_EQUAL, arch.audit_value(), number, kill);
        self.write(LOAD, 0, 0, ARCH_OFFSET);
        self.reversed.reverse();
        self.reversed
    }
}
