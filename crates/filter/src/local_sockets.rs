//! A second filter that denies unix sockets, for runs with bind mounts of host directories.
//!
//! A body can connect to a socket in any mounted directory, even a read-only one or one of another
//! owner. The server is a program of the host: an agent, a terminal multiplexer, a bus. From ABI 9
//! on Landlock restricts this, and this filter is not loaded. Before, only socket(2) can be denied.
//! Of socket pairs only SOCK_STREAM and SOCK_SEQPACKET are allowed, because a datagram pair can be
//! connected again. SOCK_RAW also makes a datagram pair (unix_create of the kernel).

use crate::Arch;
use crate::bpf::{
    ALLOW, AND, ARCH_OFFSET, ERRNO, Instruction, JUMP_EQUAL, LOAD, NUMBER_OFFSET, RETURN,
    argument_offset,
};

const AF_UNIX: u32 = 1;
const SOCK_STREAM: u32 = 1;
const SOCK_SEQPACKET: u32 = 5;
/// The higher bits are the flags CLOEXEC and NONBLOCK.
const TYPE_MASK: u32 = 0xf;
/// The errno of a kernel without unix sockets.
const EAFNOSUPPORT: u32 = 97;

const fn numbers(arch: Arch) -> (u32, u32) {
    match arch {
        Arch::X86_64 => (41, 53),
        Arch::Aarch64 => (198, 199),
    }
}

/// The filter for `arch`. The first filter handles other architectures.
#[must_use]
pub const fn without_unix_sockets(arch: Arch) -> [Instruction; 13] {
    let (socket, socketpair) = numbers(arch);
    [
        Instruction::new(LOAD, 0, 0, ARCH_OFFSET),
        Instruction::new(JUMP_EQUAL, 0, 10, arch.audit_value()),
        Instruction::new(LOAD, 0, 0, NUMBER_OFFSET),
        Instruction::new(JUMP_EQUAL, 5, 0, socket),
        Instruction::new(JUMP_EQUAL, 0, 7, socketpair),
        Instruction::new(LOAD, 0, 0, argument_offset(1)),
        Instruction::new(AND, 0, 0, TYPE_MASK),
        Instruction::new(JUMP_EQUAL, 4, 0, SOCK_STREAM),
        Instruction::new(JUMP_EQUAL, 3, 0, SOCK_SEQPACKET),
        Instruction::new(LOAD, 0, 0, argument_offset(0)),
        Instruction::new(JUMP_EQUAL, 0, 1, AF_UNIX),
        Instruction::new(RETURN, 0, 0, ERRNO | EAFNOSUPPORT),
        Instruction::new(RETURN, 0, 0, ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SeccompData, interpret};

    #[test]
    fn only_sockets_that_can_connect_to_a_path_are_refused() {
        for arch in Arch::ALL {
            let (socket, socketpair) = numbers(arch);
            let audit = arch.audit_value();
            let program = without_unix_sockets(arch);
            let is_allowed = |number, audit, family: u64, kind: u64| {
                let data = SeccompData {
                    number,
                    arch: audit,
                    instruction_pointer: 0,
                    arguments: [family, kind, 0, 0, 0, 0],
                };
                interpret(&program, &data) == ALLOW
            };
            let (cloexec, above) = (0o2_000_000, 1 << 32);
            for (number, family, kind, allowed) in [
                (socket, 1, 1, false),
                (socket, 1, 2 | cloexec, false),
                (socket, 1 | above, 5, false),
                (socket, 2, 1, true),
                (socket, 16, 3, true),
                (socketpair, 1, 1, true),
                (socketpair, 1, 5 | cloexec, true),
                (socketpair, 1, 2, false),
                (socketpair, 1, 3, false),
                (socketpair, 1, 3 | cloexec, false),
                (socketpair, 1 | above, 2 | cloexec | above, false),
                (socketpair, 2, 2, true),
                (0, 1, 2, true),
            ] {
                let found = is_allowed(number, audit, family, kind);
                assert_eq!(found, allowed, "{arch:?} {number} {family} {kind}");
            }
            assert!(is_allowed(socket, audit ^ 1, 1, 1), "another architecture");
        }
    }
}
