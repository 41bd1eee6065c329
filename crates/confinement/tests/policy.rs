//! The system call policies of confined processes and of the supervisor.
#![allow(clippy::expect_used, reason = "test code: a failure is a panic")]

use filter::{
    Arch, ReaderFiles, SyscallPolicy, default_policy, fetcher_policy, init_policy, reader_policy,
    relay_policy, supervisor_policy,
};

/// Calls that no confined process may make.
const NEVER: [&str; 27] = [
    "bind",
    "listen",
    "socketpair",
    "execve",
    "execveat",
    "fork",
    "vfork",
    "kill",
    "tkill",
    "tgkill",
    "pidfd_open",
    "pidfd_getfd",
    "ptrace",
    "prlimit64",
    "setpriority",
    "mount",
    "unshare",
    "setns",
    "link",
    "mknodat",
    "setxattr",
    "fsetxattr",
    "fchown",
    "chroot",
    "prctl",
    "bpf",
    "io_uring_setup",
];
/// Those of which the relay or the resolver may make some.
const SOCKETS: [&str; 6] = ["socket", "connect", "accept4", "sendto", "sendmsg", "ioctl"];

/// Names of the calls that `policy` can allow.
fn allowed(policy: &SyscallPolicy) -> Vec<&str> {
    let calls = policy.calls.iter();
    let allowed = calls.filter(|call| policy.rules[call.rule].allows());
    allowed.map(|call| call.name.as_str()).collect()
}

#[test]
fn it_can_make_few_calls_and_none_that_a_body_cannot() {
    for arch in Arch::ALL {
        let of_bodies = default_policy(arch).expect("a policy");
        let of_bodies = allowed(&of_bodies);
        for (files, most) in [
            (ReaderFiles::Layer, 53),
            (ReaderFiles::Tree, 51),
            (ReaderFiles::None, 38),
        ] {
            let policy = reader_policy(arch, files).expect("a policy");
            let calls = allowed(&policy);
            assert!(calls.len() <= most, "{}: {calls:?}", calls.len());
            for call in &calls {
                // The body must not use it, because a filter cannot see the mode.
                assert!(of_bodies.contains(call) || *call == "openat2", "{call}");
            }
            for call in NEVER.iter().chain(&SOCKETS) {
                assert!(!calls.contains(call), "{call}");
            }
            assert_eq!(calls.contains(&"openat"), files != ReaderFiles::None);
            assert_eq!(calls.contains(&"linkat"), files == ReaderFiles::Layer);
        }
    }
}

#[test]
fn the_supervisor_starts_no_program_and_can_do_what_its_reader_needs() {
    for arch in Arch::ALL {
        let policy = supervisor_policy(arch, false).expect("a policy");
        let calls = allowed(&policy);
        let tracer = supervisor_policy(arch, true).expect("a policy");
        let mut more = allowed(&tracer);
        more.retain(|call| !calls.contains(call));
        assert_eq!(more, ["process_vm_readv"]);
        for call in [
            "execve",
            "execveat",
            "fork",
            "vfork",
            "unshare",
            "setns",
            "mount",
            "umount2",
            "pivot_root",
            "chroot",
            "open_tree",
            "move_mount",
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "pidfd_getfd",
            "tkill",
            "tgkill",
            "setuid",
            "bpf",
            "perf_event_open",
            "userfaultfd",
            "io_uring_setup",
            "init_module",
            "mknodat",
            "open_by_handle_at",
            "setxattr",
            "listen",
        ] {
            assert!(!calls.contains(&call), "{call}");
        }
        // A filter of the reader is loaded above this one.
        let of_reader = reader_policy(arch, ReaderFiles::None).expect("a policy");
        for call in allowed(&of_reader) {
            assert!(calls.contains(&call), "{call}");
        }
    }
}

#[test]
fn the_relay_makes_no_socket_and_the_resolver_accepts_none() {
    for arch in Arch::ALL {
        let of_bodies = default_policy(arch).expect("a policy");
        let of_bodies = allowed(&of_bodies);
        for (sockets, own) in [
            (false, &["accept4", "getsockname", "shutdown", "ioctl"][..]),
            (true, &["socket", "connect"]),
        ] {
            let policy = relay_policy(arch, sockets).expect("a policy");
            let calls = allowed(&policy);
            assert!(calls.len() <= 45, "{}: {calls:?}", calls.len());
            for call in &calls {
                assert!(of_bodies.contains(call), "{call}");
            }
            for call in NEVER
                .iter()
                .chain(&["open", "openat", "openat2", "clone", "clone3"])
            {
                assert!(!calls.contains(call), "{call}");
            }
            for call in [
                "accept4",
                "getsockname",
                "shutdown",
                "ioctl",
                "socket",
                "connect",
            ] {
                assert_eq!(calls.contains(&call), own.contains(&call), "{call}");
            }
        }
    }
}

#[test]
fn a_fetcher_can_connect_and_do_little_else() {
    for arch in Arch::ALL {
        let of_bodies = default_policy(arch).expect("a policy");
        let of_bodies = allowed(&of_bodies);
        let policy = fetcher_policy(arch).expect("a policy");
        let calls = allowed(&policy);
        assert!(calls.len() <= 38, "{}: {calls:?}", calls.len());
        for call in &calls {
            assert!(of_bodies.contains(call), "{call}");
        }
        assert!(calls.contains(&"connect"));
        let others = [
            "accept", "accept4", "sendmsg", "recvmsg", "open", "openat", "openat2", "clone",
            "clone3", "ioctl",
        ];
        for call in NEVER.iter().chain(&others) {
            assert!(!calls.contains(call), "{call}");
        }
    }
}

#[test]
fn init_waits_signals_and_connects_and_does_nothing_else() {
    for arch in Arch::ALL {
        let policy = init_policy(arch, false).expect("a policy");
        let mut calls = allowed(&policy);
        calls.sort_unstable();
        let mut expected = vec![
            "close",
            "connect",
            "exit",
            "exit_group",
            "kill",
            "ppoll",
            "read",
            "recvmsg",
            "restart_syscall",
            "sendmsg",
            "socket",
            "wait4",
        ];
        if arch == Arch::X86_64 {
            expected.push("poll");
            expected.sort_unstable();
        }
        assert_eq!(calls, expected);
    }
}
