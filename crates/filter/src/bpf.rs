//! Classic BPF for seccomp(2): instructions, operations and return values.

/// An instruction, in the layout of `struct sock_filter` of `<linux/filter.h>`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

impl Instruction {
    /// Creates an instruction from its four fields.
    #[must_use]
    pub const fn new(code: u16, jt: u8, jf: u8, k: u32) -> Self {
        Self { code, jt, jf, k }
    }
}

/// A = the 32-bit word at byte `k` of `struct seccomp_data` (`BPF_LD | BPF_W | BPF_ABS`).
pub const LOAD: u16 = 0x20;
/// A = A & k (`BPF_ALU | BPF_AND | BPF_K`).
pub const AND: u16 = 0x54;
/// Skip `k` instructions (`BPF_JMP | BPF_JA`).
pub const JUMP: u16 = 0x05;
/// A == k? (`BPF_JMP | BPF_JEQ | BPF_K`).
pub const JUMP_EQUAL: u16 = 0x15;
/// A >= k, unsigned? (`BPF_JMP | BPF_JGE | BPF_K`).
pub const JUMP_AT_LEAST: u16 = 0x35;
/// Return `k` (`BPF_RET | BPF_K`).
pub const RETURN: u16 = 0x06;

/// `SECCOMP_RET_KILL_PROCESS` (Linux 4.14).
pub const KILL_PROCESS: u32 = 0x8000_0000;
/// `SECCOMP_RET_ERRNO`; the errno is in the lower 16 bits.
pub const ERRNO: u32 = 0x0005_0000;
/// `SECCOMP_RET_USER_NOTIF` (Linux 5.0): the listener answers. Any other refusal goes before it.
pub const USER_NOTIFICATION: u32 = 0x7fc0_0000;
/// `SECCOMP_RET_ALLOW`.
pub const ALLOW: u32 = 0x7fff_0000;

pub(crate) const NUMBER_OFFSET: u32 = 0;
pub(crate) const ARCH_OFFSET: u32 = 4;

/// Offset of the lower 32 bits of argument `index` (0 to 5) in `struct seccomp_data`. Both
/// architectures are little-endian.
#[must_use]
pub(crate) const fn argument_offset(index: u8) -> u32 {
    16 + 8 * index as u32
}
