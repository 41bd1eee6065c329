//! Arguments that test a rule, derived from the rule itself.

use std::collections::{BTreeMap, BTreeSet};

use filter::{Arguments, Condition, Rule};

/// Every combination of the values at which the conditions of `rule` change.
pub(crate) fn vectors(rule: &Rule) -> Vec<Arguments> {
    let mut vectors = vec![[0; 6]];
    for (argument, values) in turning_points(rule) {
        vectors = vectors
            .iter()
            .flat_map(|vector| values.iter().map(|value| with(*vector, argument, *value)))
            .collect();
    }
    vectors
}

/// `count` of those combinations, picked by `seed`.
pub(crate) fn some_vectors(rule: &Rule, seed: u64, count: usize) -> Vec<Arguments> {
    let turning_points = turning_points(rule);
    let mut state = seed | 1;
    let mut pick = |values: &BTreeSet<u64>| {
        // Xorshift: it only needs a different value each time.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let index = state % u64::try_from(values.len()).expect("fits");
        let index = usize::try_from(index).expect("fits");
        *values.iter().nth(index).expect("within")
    };
    (0..count)
        .map(|_| {
            turning_points
                .iter()
                .fold([0; 6], |vector, (argument, values)| {
                    with(vector, *argument, pick(values))
                })
        })
        .collect()
}

fn turning_points(rule: &Rule) -> BTreeMap<u8, BTreeSet<u64>> {
    let mut values: BTreeMap<u8, BTreeSet<u64>> = BTreeMap::new();
    for condition in conditions(rule) {
        let values = values.entry(condition.argument).or_default();
        values.extend([0, u64::from(u32::MAX), u64::from(condition.mask)]);
        for value in condition.one_of.iter().copied() {
            let around = [
                value,
                value.wrapping_add(1),
                value.wrapping_sub(1),
                // Bits outside the mask have no effect.
                value | !condition.mask,
            ];
            let shift = if condition.upper { 32 } else { 0 };
            values.extend(around.map(|half| u64::from(half) << shift));
        }
        // Each bit of a mask on its own.
        if condition.mask != u32::MAX {
            let bits = (0..32)
                .map(|bit| 1_u32 << bit)
                .filter(|bit| bit & condition.mask != 0);
            values.extend(bits.map(u64::from));
        }
    }
    values
}

/// `vector` with bits in the upper half of one argument that `rule` checks, of all of them, and of
/// all those that it does not check.
pub(crate) fn with_high_bits(rule: &Rule, vector: &Arguments) -> Vec<Arguments> {
    let looked_at = arguments_by_lower_half(rule);
    let mut variants = Vec::new();
    for high in [1 << 32, 0x8000_0000_0000_0000, 0xffff_ffff_0000_0000] {
        let mut all = *vector;
        let mut others = *vector;
        for argument in 0..6 {
            let value = vector[usize::from(argument)] | high;
            if looked_at.contains(&argument) {
                variants.push(with(*vector, argument, value));
                all = with(all, argument, value);
            } else if conditions(rule).all(|condition| condition.argument != argument) {
                others = with(others, argument, u64::MAX);
            }
        }
        variants.extend([all, others]);
    }
    variants
}

/// `vector` with one more bit in the upper half of one argument that `rule` checks.
pub(crate) fn with_each_high_bit(rule: &Rule, vector: &Arguments) -> Vec<Arguments> {
    let looked_at = arguments_by_lower_half(rule);
    let of_argument = |argument: u8| {
        let value = vector[usize::from(argument)];
        (32..64).map(move |bit| with(*vector, argument, value | 1 << bit))
    };
    looked_at.into_iter().flat_map(of_argument).collect()
}

/// The arguments of which `rule` ignores the upper half.
fn arguments_by_lower_half(rule: &Rule) -> BTreeSet<u8> {
    let is_upper = |argument: u8| {
        let mut all = conditions(rule);
        all.any(|condition| condition.upper && condition.argument == argument)
    };
    conditions(rule)
        .map(|condition| condition.argument)
        .filter(|argument| !is_upper(*argument))
        .collect()
}

fn conditions(rule: &Rule) -> impl Iterator<Item = &Condition> {
    rule.cases.iter().flat_map(|case| case.when.iter())
}

/// `vector` with `value` as its argument number `argument`.
pub(crate) fn with(mut vector: Arguments, argument: u8, value: u64) -> Arguments {
    vector[usize::from(argument)] = value;
    vector
}
