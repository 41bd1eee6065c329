//! The system call filter: its data, its compiler, and its effect in the running kernel.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot read its data has nothing to say"
)]

mod kernel;
mod policies;
mod render;
mod vectors;

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

use filter::bpf::{
    ALLOW, AND, ERRNO, Instruction, JUMP, JUMP_AT_LEAST, JUMP_EQUAL, KILL_PROCESS, LOAD, RETURN,
};
use filter::{
    Arch, Arguments, Branch, Call, Case, Condition, Decision, Reporting, Rule, SeccompData,
    SyscallPolicy, compile, interpret, interpret_observed,
};
use proptest::prelude::*;
use spec::syscall_policy::SyscallPolicyName;
use spec::syscall_policy::SyscallPolicyName::{Default, Strict};

use policies::built_in_policy;
use support::source_path;
use vectors::{some_vectors, vectors, with_each_high_bit, with_high_bits};

/// Each policy for each architecture.
fn built_in() -> impl Iterator<Item = (SyscallPolicyName, Arch)> {
    let names = SyscallPolicyName::ALL.into_iter();
    names.flat_map(|name| Arch::ALL.map(|arch| (name, arch)))
}

/// The compiled policy `name` for `arch`.
fn program(name: SyscallPolicyName, arch: Arch) -> &'static [Instruction] {
    static PROGRAMS: LazyLock<Vec<(SyscallPolicyName, Arch, Vec<Instruction>)>> =
        LazyLock::new(|| {
            let all = built_in();
            all.map(|(name, arch)| (name, arch, compile(built_in_policy(name, arch))))
                .collect()
        });
    let mut programs = PROGRAMS.iter();
    let found = programs.find(|(of, on, _)| (*of, *on) == (name, arch));
    &found.expect("each is compiled").2
}

fn data(arch: Arch, number: u32, arguments: &Arguments) -> SeccompData {
    SeccompData {
        number,
        arch: arch.audit_value(),
        instruction_pointer: 0x7fff_0000_1000,
        arguments: *arguments,
    }
}

/// The expected verdict, from a direct reading of the rules.
fn expected(policy: &SyscallPolicy, number: u32, arguments: &Arguments) -> u32 {
    match policy.ruling(number, arguments).decision.errno() {
        None => ALLOW,
        Some(errno) => ERRNO | u32::from(errno),
    }
}

// The compiled programs ---------------------------------------------------------------------------

pub(crate) fn say(line: &str) {
    let mut stderr = std::io::stderr();
    std::io::Write::write_all(&mut stderr, format!("{line}\n").as_bytes()).expect("written");
}

fn assert_file(path: &str, wanted: &str) {
    support::golden::assert_golden(&source_path(path), wanted);
}

#[test]
fn the_built_in_filters_equal_freshly_compiled_ones() {
    for name in SyscallPolicyName::ALL {
        assert_eq!(
            runner_sandbox::seccomp::programs(name).silent,
            program(name, Arch::NATIVE)
        );
    }
}

#[test]
fn every_number_up_to_1023_is_answered_as_the_golden_table_says() {
    for arch in Arch::ALL {
        let of_default = render::verdicts(built_in_policy(Default, arch));
        let of_strict = render::verdicts(built_in_policy(Strict, arch));
        let arch = arch.name();
        assert_file(
            &format!("tests/golden/filter/verdicts-{arch}.txt"),
            &render::default_verdicts(arch, &of_default),
        );
        assert_file(
            &format!("tests/golden/filter/verdicts-strict-{arch}.txt"),
            &render::strict_verdicts(arch, &of_default, &of_strict),
        );
    }
}

// The policy -------------------------------------------------------------------------------------

/// Calls that are allowed for some arguments, with and without a condition.
fn reachable(policy: &SyscallPolicy) -> (usize, usize) {
    let mut plain = 0;
    let mut by_argument = 0;
    for call in &policy.calls {
        let rule = &policy.rules[call.rule];
        let cases_allow = rule.cases.iter().any(|case| case.then == Decision::Allow);
        match (rule.cases.is_empty(), rule.action, cases_allow) {
            (true, Decision::Allow, _) => plain += 1,
            (false, Decision::Allow, _) | (_, _, true) => by_argument += 1,
            _ => (),
        }
    }
    (plain, by_argument)
}

#[test]
fn as_many_calls_can_be_reached_as_the_design_counted() {
    let x86_64 = built_in_policy(Default, Arch::X86_64);
    assert_eq!(x86_64.calls.len(), 381);
    // By argument: ioctl, socketpair, mknod, mknodat; sendto, sendmsg, sendmmsg; clone, socket,
    // personality; chmod, fchmod, fchmodat, fchmodat2, creat, open, openat (set-id modes);
    // prlimit64, sched_setaffinity, sched_setattr, sched_setparam, sched_setscheduler,
    // setpriority, ioprio_set (init); setrlimit, setsockopt, fcntl, mmap, memfd_create, shmget;
    // unshare (the cgroup namespace).
    assert_eq!(reachable(x86_64), (257, 31));
    let aarch64 = built_in_policy(Default, Arch::Aarch64);
    assert_eq!(aarch64.calls.len(), 325);
    assert_eq!(
        reachable(aarch64),
        (221, 27),
        "no mknod, chmod, creat and open there"
    );
    // 50 and 43 fewer, and fcntl by argument.
    assert_eq!(reachable(built_in_policy(Strict, Arch::X86_64)), (212, 26));
    assert_eq!(reachable(built_in_policy(Strict, Arch::Aarch64)), (183, 22));
}

#[test]
fn the_strict_policy_allows_nothing_that_the_default_refuses() {
    for arch in Arch::ALL {
        let (default, strict) = (
            built_in_policy(Default, arch),
            built_in_policy(Strict, arch),
        );
        let edges = [0xffff, 0x3fff_ffff, 0x4000_0000, 0x4000_0200, u32::MAX];
        let (mut whole, mut partly) = (BTreeSet::new(), BTreeSet::new());
        for number in (0..2048).chain(edges) {
            let rules = [default, strict].map(|policy| policy.ruling(number, &[0; 6]).rule);
            for vector in rules.into_iter().flat_map(vectors) {
                let programs = |name| program(name, arch);
                let answer = |name| interpret(programs(name), &data(arch, number, &vector));
                let (loose, tight) = (answer(Default), answer(Strict));
                if tight == loose {
                    continue;
                }
                assert_ne!(tight, ALLOW, "{number}{vector:x?}");
                let rule = strict.ruling(number, &vector).rule;
                // What is refused whole has one errno, whatever the arguments.
                let is_new = loose == ALLOW || !rule.allows();
                assert!(is_new, "{number}{vector:x?} was refused already");
                assert!(rule.id.starts_with("strict-"), "{}", rule.id);
                match rule.allows() {
                    true => partly.insert(strict.name_of(number).expect("known")),
                    false => whole.insert(number),
                };
            }
        }
        let sum = |(plain, by_argument)| plain + by_argument;
        let fewer = sum(reachable(default)) - sum(reachable(strict));
        assert_eq!(whole.len(), fewer, "{arch:?}");
        assert!(partly.into_iter().eq(["fcntl", "socket"]), "{arch:?}");
    }
}

#[test]
fn every_known_call_has_a_rule() {
    for (name, arch) in built_in() {
        let policy = built_in_policy(name, arch);
        for call in &policy.calls {
            let number = u32::from(call.number);
            assert_ne!(
                policy.ruling(number, &[0; 6]).rule.id,
                "unlisted",
                "{:?}",
                policy.name_of(number)
            );
        }
    }
}

#[test]
fn the_numbers_are_those_of_the_libc_crate() {
    let policy = built_in_policy(Default, Arch::NATIVE);
    for (name, number) in [
        ("read", libc::SYS_read),
        ("clone", libc::SYS_clone),
        ("clone3", libc::SYS_clone3),
        ("ioctl", libc::SYS_ioctl),
        ("socket", libc::SYS_socket),
        ("ptrace", libc::SYS_ptrace),
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("bpf", libc::SYS_bpf),
        ("execveat", libc::SYS_execveat),
        ("mseal", libc::SYS_mseal),
        ("set_mempolicy_home_node", libc::SYS_set_mempolicy_home_node),
    ] {
        let number = u32::try_from(number).expect("a number");
        assert_eq!(policy.number_of(name), Some(number), "{name}");
        assert_eq!(policy.name_of(number), Some(name));
    }
    assert_eq!(policy.number_of("no_such_call"), None);
}

#[test]
fn what_the_child_does_after_the_filter_is_loaded_is_allowed() {
    for (policy, arch) in built_in() {
        let policy = built_in_policy(policy, arch);
        for name in [
            "sendmsg",
            "close",
            "execve",
            "execveat",
            "exit_group",
            "write",
            "prctl",
        ] {
            let number = policy.number_of(name).expect("known");
            let answer = interpret(
                &compile(policy),
                &data(arch, number, &[3, 0x7fff_0000, 0x4000, 0, 0, 0]),
            );
            assert_eq!(answer, ALLOW, "{name}");
        }
    }
}

#[test]
fn what_libraries_only_test_for_looks_absent() {
    for (name, arch) in built_in() {
        let policy = built_in_policy(name, arch);
        let clone3 = policy.number_of("clone3").expect("known");
        for number in [clone3, 470, 1023, 0x4000_0000, u32::MAX] {
            let answer = interpret(&compile(policy), &data(arch, number, &[0; 6]));
            assert_eq!(answer, ERRNO | 38, "{number}");
        }
    }
}

// What single calls get, and under which rule -----------------------------------------------------

/// The verdict and the explanation for a call.
fn asked(name: &str, arguments: &[u64]) -> (String, String) {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let mut said = BTreeSet::new();
    for arch in Arch::ALL {
        let policy = built_in_policy(Default, arch);
        let Some(number) = policy.number_of(name) else {
            continue;
        };
        let answer = interpret(program(Default, arch), &data(arch, number, &all));
        let ruling = policy.ruling(number, &all);
        assert_eq!(answer, expected(policy, number, &all));
        said.insert((
            ruling.decision.name().to_owned(),
            ruling.rule.id.to_string(),
        ));
    }
    assert_eq!(
        said.len(),
        1,
        "{name}{arguments:?} differs between architectures"
    );
    said.into_iter().next().expect("a known call")
}

fn assert_says(name: &str, arguments: &[u64], decision: &str, rule: &str) {
    let shown: Vec<String> = arguments
        .iter()
        .map(|value| format!("{value:#x}"))
        .collect();
    assert_eq!(
        asked(name, arguments),
        (decision.to_owned(), rule.to_owned()),
        "{name}({})",
        shown.join(", ")
    );
}

/// B-11, B-34, B-35.
#[test]
fn a_clone_gets_no_namespace_of_its_own() {
    let rule = "clone-namespaces";
    let thread = 0x003d_0f00;
    for allowed in [17, thread, 0x0100_4011, 0x0120_0011] {
        assert_says("clone", &[allowed], "allow", rule);
        assert_says("clone", &[allowed | 0xffff_ffff_0000_0000], "allow", rule);
    }
    for namespace in [
        0x0002_0000,
        0x0200_0000,
        0x0400_0000,
        0x0800_0000,
        0x1000_0000,
        0x2000_0000,
        0x4000_0000,
        0x0000_0080,
    ] {
        for flags in [17, thread] {
            assert_says("clone", &[flags | namespace], "EPERM", rule);
            assert_says("clone", &[flags | namespace | 1 << 32], "EPERM", rule);
        }
    }
    assert_says("clone3", &[0x7fff_0000, 88], "ENOSYS", "clone3");
    assert_says("unshare", &[0x1000_0000], "EPERM", "unshare");
    assert_says("unshare", &[0x1200_0000], "EPERM", "unshare");
    assert_says("unshare", &[0x0200_0000], "allow", "unshare");
    assert_says("setns", &[3, 0], "EPERM", "namespaces");
}

/// B-20, B-21, B-22; CVE-2019-10063.
#[test]
fn the_callers_terminal_gets_no_input_whatever_stands_in_the_upper_half() {
    for command in [0x5412, 0x541c] {
        for high in [0, 1 << 32, 0x8000_0000_0000_0000, 0xffff_ffff_0000_0000] {
            assert_says("ioctl", &[0, command | high, 0], "EPERM", "ioctl-terminal");
        }
    }
    for command in [0x5401, 0x5411, 0x5413, 0x541b, 0x541d, 0x5413_5412] {
        assert_says("ioctl", &[0, command, 0], "allow", "ioctl-terminal");
    }
}

/// B-38, H-14.
#[test]
fn four_socket_families_are_open_with_the_protocols_that_runtimes_use() {
    const CLOEXEC_NONBLOCK: u64 = 0x80800;
    let families = [1, 2, 10, 16];
    for family in (0..64).filter(|family| !families.contains(family)) {
        assert_says("socket", &[family, 1, 0], "EAFNOSUPPORT", "socket");
        assert_says(
            "socket",
            &[family | 1 << 32, 3, 0],
            "EAFNOSUPPORT",
            "socket",
        );
    }
    let open = |family: u64, kind: u64, protocol: u64| match (family, kind) {
        (1, 1 | 2 | 5) | (16, 2 | 3) => protocol == 0,
        (2 | 10, 1) => [0, 6].contains(&protocol),
        (2 | 10, 2) => [0, 17].contains(&protocol),
        _ => false,
    };
    for family in families {
        for kind in 0..16 {
            for protocol in [0, 1, 6, 15, 17, 58, 132, 136, 255, 262] {
                let wanted = if open(family, kind, protocol) {
                    "allow"
                } else {
                    "EPROTONOSUPPORT"
                };
                assert_says("socket", &[family, kind, protocol], wanted, "socket");
                let decorated = [family, kind | CLOEXEC_NONBLOCK, protocol | 1 << 40];
                assert_says("socket", &decorated, wanted, "socket");
            }
        }
    }
    assert_says("socketpair", &[1, 1, 0], "allow", "socketpair");
    assert_says("socketpair", &[2, 1, 0], "EAFNOSUPPORT", "socketpair");
    assert_says("socketpair", &[1 | 1 << 32, 1, 0], "allow", "socketpair");
}

/// B-54, H-15.
#[test]
fn nothing_is_sent_by_fast_open_or_out_of_band() {
    for (name, rule, flags_at) in [
        ("sendto", "send-flags", 3),
        ("sendmmsg", "send-flags", 3),
        ("sendmsg", "sendmsg-flags", 2),
    ] {
        let call = |flags: u64| {
            let mut arguments = [u64::MAX; 6];
            arguments[flags_at] = flags;
            arguments
        };
        for flags in [0, 0x40, 0x4000, 0x4040, 0xdfff_fffe] {
            assert_says(name, &call(flags), "allow", rule);
        }
        for flags in [1, 0x2000_0000, 0x2000_4000, 0x1_2000_0000, 0x1_0000_0001] {
            assert_says(name, &call(flags), "EOPNOTSUPP", rule);
        }
    }
}

/// B-61.
#[test]
fn the_limits_and_priorities_of_init_are_not_the_bodys() {
    for name in [
        "sched_setaffinity",
        "sched_setattr",
        "sched_setparam",
        "sched_setscheduler",
    ] {
        for (pid, decision) in [(0, "allow"), (2, "allow"), (77, "allow"), (1, "EPERM")] {
            assert_says(name, &[pid, 5], decision, "init-limits");
            assert_says(name, &[pid | 1 << 32, 5], decision, "init-limits");
        }
    }
    for (name, rule, [process, group, user]) in [
        ("setpriority", "init-priority", [0, 1, 2]),
        ("ioprio_set", "init-io-priority", [1, 2, 3]),
    ] {
        for which in [process, group] {
            assert_says(name, &[which, 0, 5], "allow", rule);
            assert_says(name, &[which, 2, 5], "allow", rule);
            assert_says(name, &[which, 1, 5], "EPERM", rule);
        }
        for who in [0, 1, 1000] {
            assert_says(name, &[user, who, 5], "EPERM", rule);
        }
    }
}

/// RLIMIT_CORE stays 1. Reading it is allowed: the pointer to the new limit is null, in both halves.
#[test]
fn the_core_limit_is_read_and_never_set() {
    const CORE: u64 = 4;
    assert_says("prlimit64", &[1, 5, 7], "EPERM", "process-limits");
    for pid in [0, 2, 77, 1 << 32] {
        assert_says("prlimit64", &[pid, 5, 7], "allow", "process-limits");
        assert_says("prlimit64", &[pid, CORE, 0, 7], "allow", "process-limits");
        for new in [7, 1 << 32, u64::MAX] {
            assert_says("prlimit64", &[pid, CORE, new], "ignore", "process-limits");
            let wide = CORE | 1 << 32;
            assert_says("prlimit64", &[pid, wide, new], "ignore", "process-limits");
        }
    }
    assert_says("setrlimit", &[CORE, 7], "ignore", "core-limit");
    assert_says("setrlimit", &[5, 7], "allow", "core-limit");
}

/// What would have effects on the host, outside of the limits.
#[test]
fn modules_leases_huge_pages_and_socket_filters_are_refused() {
    for request in [
        0x5423, 0x8940, 0x8941, 0x89a0, 0x89a1, 0x89a2, 0x89a3, 0x8982, 0x8983,
    ] {
        assert_says("ioctl", &[3, request], "EPERM", "ioctl-terminal");
    }
    for option in [26, 50, 51, 52] {
        assert_says("setsockopt", &[3, 1, option], "EPERM", "socket-filters");
        assert_says("setsockopt", &[3, 6, option], "allow", "socket-filters");
    }
    for (level, protocol) in [(6, 31), (17, 100)] {
        assert_says(
            "setsockopt",
            &[3, level, protocol],
            "EPERM",
            "socket-filters",
        );
        assert_says("setsockopt", &[3, level, 1], "allow", "socket-filters");
    }
    for command in [1024, 1026] {
        assert_says("fcntl", &[3, command], "EINVAL", "leases");
    }
    assert_says("fcntl", &[3, 3], "allow", "leases");
    assert_says("mmap", &[0, 4096, 3, 0x40022], "ENOMEM", "huge-pages");
    assert_says("mmap", &[0, 4096, 3, 0x22], "allow", "huge-pages");
    assert_says("memfd_create", &[7, 4], "ENOMEM", "huge-page-files");
    assert_says("memfd_create", &[7, 1], "allow", "huge-page-files");
    assert_says("shmget", &[7, 4096, 0xb80], "ENOMEM", "huge-page-segments");
}

/// A snapshot has what is beside and below the mounted directories; clones of files stay possible.
#[test]
fn snapshots_of_subvolumes_are_refused() {
    for request in [0x5000_9401, 0x5000_9417, 0x5000_943f, 0x4020_bc10] {
        assert_says("ioctl", &[3, request], "EPERM", "ioctl-terminal");
        let wide = request | 1 << 32;
        assert_says("ioctl", &[3, wide], "EPERM", "ioctl-terminal");
    }
    for request in [0x4004_9409, 0x4020_940d, 0xc018_9436, 0x4008_6602] {
        assert_says("ioctl", &[3, request], "allow", "ioctl-terminal");
    }
}

/// B-36.
#[test]
fn a_personality_that_weakens_the_address_space_is_refused() {
    for persona in [0, 8, 0x20000, 0x20008, 0xffff_ffff, u64::MAX, 1 << 32] {
        assert_says("personality", &[persona], "allow", "personality");
    }
    for persona in [
        0x0004_0000,
        0x0040_0000,
        0x0010_0000,
        0x1_0004_0000,
        0xffff_fffe,
    ] {
        assert_says("personality", &[persona], "EPERM", "personality");
    }
}

/// B-27.
#[test]
fn a_node_that_is_made_is_a_file_a_fifo_or_a_socket() {
    for (name, rule, mode_at) in [("mknod", "mknod", 1), ("mknodat", "mknodat", 2)] {
        let call = |mode: u64| {
            let mut arguments = [7; 6];
            arguments[mode_at] = mode;
            arguments
        };
        for kind in [0, 0o100_000, 0o010_000, 0o140_000] {
            assert_says(name, &call(kind | 0o644), "allow", rule);
            assert_says(name, &call(kind | 0o644 | 1 << 32), "allow", rule);
        }
        for kind in [0o020_000, 0o060_000, 0o040_000, 0o120_000, 0o170_000] {
            assert_says(name, &call(kind | 0o644), "EPERM", rule);
            // The kernel uses 16 bits of the mode.
            assert_says(name, &call(kind | 0o644 | 0x7_0000), "EPERM", rule);
        }
    }
}

/// B-24, B-29, B-30, B-32, B-33.
#[test]
fn the_rest_of_the_refusals_carry_their_errno_and_their_rule() {
    for (name, errno, rule) in [
        ("ptrace", "EPERM", "other-processes"),
        ("io_uring_setup", "EPERM", "io-uring"),
        ("bpf", "EPERM", "kernel-programs"),
        ("kexec_load", "EPERM", "kernel-replacement"),
        ("keyctl", "EPERM", "keyrings"),
        ("open_by_handle_at", "EPERM", "handles"),
        ("mount", "EPERM", "mounts"),
        ("chroot", "EPERM", "mounts"),
        ("fsopen", "ENOSYS", "mounts-by-descriptor"),
        ("open_tree_attr", "ENOSYS", "mounts-by-descriptor"),
        ("listmount", "EPERM", "mount-table"),
        ("vmsplice", "EINVAL", "vmsplice"),
        ("mbind", "EPERM", "memory-placement"),
        ("nfsservctl", "EPERM", "withdrawn"),
        ("memfd_secret", "EPERM", "memfd-secret"),
        ("io_setup", "ENOSYS", "asynchronous-io"),
        ("landlock_restrict_self", "allow", "self-confinement"),
    ] {
        assert_says(name, &[], errno, rule);
        assert_says(name, &[u64::MAX; 6], errno, rule);
    }
    let x86_64 = built_in_policy(Default, Arch::X86_64);
    assert_eq!(x86_64.ruling(0x4000_0000, &[0; 6]).rule.id, "x32");
    assert_eq!(
        x86_64.ruling(0x3fff_ffff, &[0; 6]).rule.id,
        "unknown-number"
    );
    let aarch64 = built_in_policy(Default, Arch::Aarch64);
    assert_eq!(
        aarch64.ruling(0x4000_0000, &[0; 6]).rule.id,
        "unknown-number"
    );
}

/// B-31.
#[test]
fn a_foreign_architecture_is_killed_whatever_it_calls() {
    for (name, arch) in built_in() {
        for foreign in [
            0x4000_0003,
            0x4000_0028,
            0xc000_003e,
            0xc000_00b7,
            0,
            u32::MAX,
        ] {
            let mut call = data(arch, 39, &[0; 6]);
            call.arch = foreign;
            let answer = interpret(program(name, arch), &call);
            assert_eq!(
                answer == KILL_PROCESS,
                foreign != arch.audit_value(),
                "{foreign:#x}"
            );
        }
    }
}

// The compiler -----------------------------------------------------------------------------------

#[test]
fn each_argument_rule_has_an_allowed_and_a_refused_vector_and_the_filter_knows_them() {
    for (name, arch) in built_in() {
        let policy = built_in_policy(name, arch);
        for call in &policy.calls {
            let rule = &policy.rules[call.rule];
            let number = u32::from(call.number);
            let vectors = vectors(rule);
            if !rule.cases.is_empty() {
                assert_vectors_of_each_case(rule, &vectors);
            }
            for vector in &vectors {
                let program = program(name, arch);
                let wanted = expected(policy, number, vector);
                let answer = interpret(program, &data(arch, number, vector));
                assert_eq!(answer, wanted, "{}{vector:x?}", rule.id);
                for high in with_high_bits(rule, vector) {
                    let answer = interpret(program, &data(arch, number, &high));
                    assert_eq!(answer, wanted, "{}{high:x?}", rule.id);
                }
            }
        }
    }
}

/// Asserts that `vectors` contain an allowed and a refused one, one for each case, and one for none.
fn assert_vectors_of_each_case(rule: &Rule, vectors: &[Arguments]) {
    let matched = |vector: &Arguments| {
        let holds = |case: &Case| case.when.iter().all(|condition| condition.holds(vector));
        rule.cases.iter().position(holds)
    };
    let decided: HashSet<Option<usize>> = vectors.iter().map(matched).collect();
    let cases = (0..rule.cases.len()).map(Some).chain([None]);
    for case in cases {
        assert!(
            decided.contains(&case),
            "{}: no vector for {case:?}",
            rule.id
        );
    }
    let allowed = |vector: &Arguments| rule.decide(vector) == Decision::Allow;
    assert!(vectors.iter().any(allowed), "{}: nothing allowed", rule.id);
    assert!(!vectors.iter().all(allowed), "{}: nothing refused", rule.id);
}

/// CVE-2019-10063: each bit above the lower 32, alone, in each argument that a rule checks.
#[test]
fn no_bit_of_the_upper_half_of_an_argument_changes_an_answer() {
    for (name, arch) in built_in() {
        let policy = built_in_policy(name, arch);
        let program = program(name, arch);
        for call in &policy.calls {
            let number = u32::from(call.number);
            let rule = &policy.rules[call.rule];
            for vector in some_vectors(rule, 7 + u64::from(number), 60) {
                let wanted = interpret(program, &data(arch, number, &vector));
                for high in with_each_high_bit(rule, &vector) {
                    let answer = interpret(program, &data(arch, number, &high));
                    assert_eq!(answer, wanted, "{}{high:x?}", rule.id);
                }
            }
        }
    }
}

#[test]
fn the_filter_and_the_explanation_agree_on_every_number() {
    for (name, arch) in built_in() {
        let policy = built_in_policy(name, arch);
        let edges = [
            0xffff,
            0x1_0000,
            0x3fff_ffff,
            0x4000_0000,
            0x4000_0001,
            0x4000_0200,
            u32::MAX,
        ];
        for number in (0..2048).chain(edges) {
            for arguments in [[0; 6], [u64::MAX; 6]] {
                assert_eq!(
                    interpret(program(name, arch), &data(arch, number, &arguments)),
                    expected(policy, number, &arguments),
                    "{number}"
                );
            }
        }
    }
}

#[test]
fn every_instruction_and_every_branch_is_reached_by_some_call() {
    for (name, arch) in built_in() {
        let policy = built_in_policy(name, arch);
        let program = program(name, arch);
        let mut seen = HashSet::new();
        let mut run = |call: &SeccompData| {
            interpret_observed(program, call, |place, branch| {
                seen.insert((place, branch));
            });
        };
        let mut foreign = data(arch, 0, &[0; 6]);
        foreign.arch = 0;
        run(&foreign);
        for number in (0..1024).chain([0x4000_0000]) {
            for vector in vectors(policy.ruling(number, &[0; 6]).rule) {
                run(&data(arch, number, &vector));
            }
        }
        for (place, instruction) in program.iter().enumerate() {
            let branches: &[Branch] = match instruction.code {
                JUMP_EQUAL | JUMP_AT_LEAST => &[Branch::Taken, Branch::NotTaken],
                _ => &[Branch::Straight],
            };
            for branch in branches {
                assert!(
                    seen.contains(&(place, *branch)),
                    "{name:?} {arch:?}: {place} {instruction:?} {branch:?}"
                );
            }
        }
    }
}

#[test]
fn the_built_in_filters_are_shallow_trees() {
    for (name, arch) in built_in() {
        let program = program(name, arch);
        for number in 0..1024 {
            let mut steps = 0;
            interpret_observed(program, &data(arch, number, &[0; 6]), |_, _| steps += 1);
            assert!(steps <= 30, "{number}: {steps}");
        }
    }
}

/// The checks of the kernel before it accepts a program, and that it has no dead code.
fn assert_sound(program: &[Instruction]) {
    assert!((1..=4096).contains(&program.len()), "{}", program.len());
    let mut reachable = vec![false; program.len()];
    reachable[0] = true;
    for (place, instruction) in program.iter().enumerate() {
        assert!(
            reachable[place],
            "nothing leads to {place}: {instruction:?}"
        );
        let next = place + 1;
        let skip = |count: u32| next + usize::try_from(count).expect("fits");
        let targets = match instruction.code {
            LOAD => {
                assert!(instruction.k.is_multiple_of(4) && instruction.k < 64);
                vec![next]
            }
            AND => vec![next],
            JUMP => vec![skip(instruction.k)],
            JUMP_EQUAL | JUMP_AT_LEAST => {
                vec![skip(instruction.jt.into()), skip(instruction.jf.into())]
            }
            RETURN => vec![],
            other => panic!("{place}: operation {other:#x}"),
        };
        for target in targets {
            assert!(target < program.len(), "{place} leads out of the program");
            reachable[target] = true;
        }
    }
}

#[test]
fn the_built_in_programs_are_sound() {
    for (name, arch) in built_in() {
        assert_sound(program(name, arch));
    }
}

fn condition() -> impl Strategy<Value = Condition> {
    let mask = prop_oneof![Just(u32::MAX), Just(0xf), Just(0xf000), any::<u32>()];
    let values = prop::collection::vec(prop_oneof![0_u32..20, any::<u32>()], 1..4);
    (0_u8..6, any::<bool>(), mask, values).prop_map(|(argument, upper, mask, values)| Condition {
        argument,
        upper,
        mask,
        one_of: values.into_iter().map(|value| value & mask).collect(),
    })
}

fn decision() -> impl Strategy<Value = Decision> {
    prop::sample::select(Decision::ALL.to_vec())
}

fn rule() -> impl Strategy<Value = Rule> {
    let case = (prop::collection::vec(condition(), 1..4), decision())
        .prop_map(|(when, then)| Case { when, then });
    let cases = prop_oneof![
        2 => Just(Vec::new()),
        1 => prop::collection::vec(case, 1..4),
    ];
    let report = prop::sample::select(vec![Some(Reporting::Yes), Some(Reporting::Probe)]);
    (cases, decision(), report).prop_map(|(cases, action, report)| Rule {
        id: "any".into(),
        reason: "any".into(),
        report,
        cases,
        action,
    })
}

/// Policies of any size, the largest beyond the reach of one conditional jump.
fn policy() -> impl Strategy<Value = SyscallPolicy> {
    let arch = prop::sample::select(Arch::ALL.to_vec());
    let rules = prop::collection::vec(rule(), 3..40);
    let calls = prop::collection::vec((1_u16..4, any::<prop::sample::Index>()), 0..500);
    (arch, rules, calls).prop_map(|(arch, rules, calls)| {
        let mut number = 0;
        let calls: Vec<Call> = calls
            .into_iter()
            .map(|(gap, rule)| {
                number += gap;
                Call {
                    number: number - 1,
                    name: "any".to_owned(),
                    rule: rule.index(rules.len()),
                }
            })
            .collect();
        SyscallPolicy { arch, rules, calls }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_tree_decides_as_the_naive_reading_of_any_policy(
        policy in policy(),
        stray in prop::collection::vec(any::<u64>(), 6),
    ) {
        let numbers: BTreeSet<u32> = policy
            .calls
            .iter()
            .flat_map(|call| [call.number.saturating_sub(1), call.number, call.number + 1])
            .map(u32::from)
            .chain([0, 5000, 0x3fff_ffff, 0x4000_0000, u32::MAX])
            .collect();
        let stray: Arguments = stray.try_into().expect("six");
        let program = compile(&policy);
        assert_sound(&program);
        for number in &numbers {
            let rule = policy.ruling(*number, &stray).rule;
            for arguments in some_vectors(rule, stray[0], 8).into_iter().chain([stray]) {
                prop_assert_eq!(
                    interpret(&program, &data(policy.arch, *number, &arguments)),
                    expected(&policy, *number, &arguments)
                );
            }
        }
    }
}

#[test]
fn a_program_longer_than_a_jump_reaches_is_still_right() {
    let mut policy = built_in_policy(Default, Arch::X86_64).clone();
    // Each call has its own argument rule, so that verdicts are far from the top of the tree.
    let rules = &mut policy.rules;
    rules.truncate(3);
    for value in 0..250 {
        rules.push(Rule {
            id: format!("rule-{value}"),
            reason: "far away".into(),
            report: Some(Reporting::Yes),
            cases: vec![Case {
                when: vec![Condition {
                    argument: 2,
                    upper: false,
                    mask: 0xffff,
                    one_of: vec![value, value + 1000],
                }],
                then: Decision::Allow,
            }],
            action: Decision::NotPermitted,
        });
    }
    for (call, rule) in policy.calls.iter_mut().zip((3..253).cycle()) {
        call.rule = rule;
    }
    let program = compile(&policy);
    assert_sound(&program);
    assert!(program.iter().any(|instruction| instruction.code == JUMP));
    for call in &policy.calls {
        let number = u32::from(call.number);
        for value in [0, 1, 5, 249, 1000, 1249] {
            let arguments = [0, 0, value, 0, 0, 0];
            assert_eq!(
                interpret(&program, &data(policy.arch, number, &arguments)),
                expected(&policy, number, &arguments)
            );
        }
    }
}

#[test]
fn a_program_that_the_kernel_would_refuse_allows_nothing() {
    let allow = Instruction::new(RETURN, 0, 0, ALLOW);
    for broken in [
        vec![],
        vec![Instruction::new(LOAD, 0, 0, 64), allow],
        vec![Instruction::new(LOAD, 0, 0, 2), allow],
        vec![Instruction::new(LOAD, 0, 0, u32::MAX), allow],
        vec![Instruction::new(JUMP, 0, 0, 1), allow],
        vec![Instruction::new(JUMP, 0, 0, u32::MAX), allow],
        vec![Instruction::new(0xffff, 0, 0, 0), allow],
        vec![Instruction::new(JUMP_EQUAL, 1, 1, 0), allow],
    ] {
        assert_eq!(
            interpret(&broken, &data(Arch::X86_64, 0, &[0; 6])),
            KILL_PROCESS,
            "{broken:?}"
        );
    }
}
