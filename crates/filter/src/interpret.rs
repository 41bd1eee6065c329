//! Interpreter for filter programs, with the semantics of the kernel.

use crate::Arguments;
use crate::bpf::{
    AND, Instruction, JUMP, JUMP_AT_LEAST, JUMP_EQUAL, KILL_PROCESS, LOAD, RETURN, argument_offset,
};

/// Input of a filter: `struct seccomp_data` of `<linux/seccomp.h>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeccompData {
    pub number: u32,
    pub arch: u32,
    pub instruction_pointer: u64,
    pub arguments: Arguments,
}

impl SeccompData {
    /// The little-endian word at byte `offset`; `None` if the kernel rejects the load.
    fn word(&self, offset: u32) -> Option<u32> {
        if !offset.is_multiple_of(4) {
            return None;
        }
        let wide = |value: u64, upper: bool| {
            let bytes = value.to_le_bytes();
            let (low, high) = bytes.split_at(4);
            let half = if upper { high } else { low };
            half.try_into().map(u32::from_le_bytes).ok()
        };
        let upper = offset % 8 == 4;
        match offset {
            0 => Some(self.number),
            4 => Some(self.arch),
            8 | 12 => wide(self.instruction_pointer, upper),
            _ => {
                let index = usize::try_from((offset - 16) / 8).ok()?;
                wide(*self.arguments.get(index)?, upper)
            }
        }
    }
}

/// Result of an executed instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Branch {
    /// No comparison.
    Straight,
    Taken,
    NotTaken,
}

/// Returns the value of `program` for `data`; KILL_PROCESS at an instruction that the kernel would
/// reject.
#[must_use]
pub fn interpret(program: &[Instruction], data: &SeccompData) -> u32 {
    interpret_observed(program, data, |_, _| ())
}

/// A call without what a program did not look at: equal ones were decided for the same reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Examined {
    pub number: u32,
    /// The bits of the arguments that were compared; the others are 0.
    pub arguments: Arguments,
    /// Which bits were compared.
    pub compared: Arguments,
}

/// Returns the value of `program` for `data`, and what decided.
#[must_use]
pub fn examine(program: &[Instruction], data: &SeccompData) -> (u32, Examined) {
    let mut compared = [0_u64; 6];
    let mut loaded = None;
    let value = interpret_observed(program, data, |position, _| {
        let Instruction { code, k, .. } = program[position];
        match (code, &mut loaded) {
            (LOAD, _) => loaded = argument_half(k).map(|(index, shift)| (index, shift, u32::MAX)),
            (AND, Some((_, _, mask))) => *mask &= k,
            (JUMP_EQUAL | JUMP_AT_LEAST, Some((index, shift, mask))) => {
                compared[*index] |= u64::from(*mask) << *shift;
            }
            _ => (),
        }
    });
    let mut arguments = data.arguments;
    for (argument, bits) in arguments.iter_mut().zip(compared) {
        *argument &= bits;
    }
    let examined = Examined {
        number: data.number,
        arguments,
        compared,
    };
    (value, examined)
}

/// The argument at byte `offset` of `struct seccomp_data`, and the position of the half in it.
fn argument_half(offset: u32) -> Option<(usize, u32)> {
    let index = usize::try_from(offset.checked_sub(argument_offset(0))? / 8).ok()?;
    (index < 6).then_some((index, if offset % 8 == 4 { 32 } else { 0 }))
}

/// As [`interpret`]; calls `observe` with the index of each executed instruction and its result.
pub fn interpret_observed(
    program: &[Instruction],
    data: &SeccompData,
    mut observe: impl FnMut(usize, Branch),
) -> u32 {
    let mut accumulator = 0;
    let mut position = 0_usize;
    // The loop ends, because jumps only go forward.
    while let Some(instruction) = program.get(position) {
        let mut branch = Branch::Straight;
        let mut skip = 0;
        let mut compare = |holds: bool| {
            (branch, skip) = if holds {
                (Branch::Taken, u32::from(instruction.jt))
            } else {
                (Branch::NotTaken, u32::from(instruction.jf))
            };
        };
        match instruction.code {
            LOAD => match data.word(instruction.k) {
                Some(word) => accumulator = word,
                None => return KILL_PROCESS,
            },
            AND => accumulator &= instruction.k,
            JUMP => skip = instruction.k,
            JUMP_EQUAL => compare(accumulator == instruction.k),
            JUMP_AT_LEAST => compare(accumulator >= instruction.k),
            RETURN => {
                observe(position, branch);
                return instruction.k;
            }
            _ => return KILL_PROCESS,
        }
        observe(position, branch);
        let Ok(skip) = usize::try_from(skip) else {
            return KILL_PROCESS;
        };
        position = position.saturating_add(skip).saturating_add(1);
    }
    KILL_PROCESS
}
