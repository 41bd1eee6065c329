//! The rules of both policies. Generated from policies/ by tests/filter.rs; to renew it see policies/README.md.

use std::borrow::Cow;

use crate::filter::{Case, Condition, Decision, Reporting, Rule};

/// How many of them are the default policy's; the others are the strict one's alone.
pub(super) const DEFAULT_RULES: usize = 53;

#[rustfmt::skip]
pub(super) static RULES: &[Rule] = &[
    Rule {
        id: Cow::Borrowed("unlisted"),
        reason: Cow::Borrowed("only what was looked at is allowed"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("unknown-number"),
        reason: Cow::Borrowed("a call newer than this policy must look as if the kernel did not have it"),
        report: Some(Reporting::Probe), cases: Cow::Borrowed(&[]), action: Decision::NotImplemented,
    },
    Rule {
        id: Cow::Borrowed("x32"),
        reason: Cow::Borrowed("the x32 ABI is a second, rarely tested way into the same calls"),
        report: Some(Reporting::Probe), cases: Cow::Borrowed(&[]), action: Decision::NotImplemented,
    },
    Rule {
        id: Cow::Borrowed("files"),
        reason: Cow::Borrowed("what can be reached is decided by the mounts and by Landlock, not here"),
        report: None, cases: Cow::Borrowed(&[]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("waiting"),
        reason: Cow::Borrowed("event loops of every runtime"),
        report: None, cases: Cow::Borrowed(&[]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("memory"),
        reason: Cow::Borrowed("the body's own memory; how much is the cgroup's matter"),
        report: None, cases: Cow::Borrowed(&[]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("processes"),
        reason: Cow::Borrowed("the pid namespace bounds whom they reach, the cgroup how many there are"),
        report: None, cases: Cow::Borrowed(&[]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("signals"),
        reason: Cow::Borrowed("the pid namespace bounds whom they reach"),
        report: None, cases: Cow::Borrowed(&[]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("time"),
        reason: Cow::Borrowed("reading clocks and waiting; setting them is refused below"),
        report: None, cases: Cow::Borrowed(&[]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("identity"),
        reason: Cow::Borrowed("the body has one id and no capability, so these can only give away what it has not"),
        report: None, cases: Cow::Borrowed(&[]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("host-facts"),
        reason: Cow::Borrowed("harmless facts that libc and every runtime read at start"),
        report: None, cases: Cow::Borrowed(&[]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("sockets-in-use"),
        reason: Cow::Borrowed("which sockets exist is decided by the rule `socket`, where they reach by the network namespace"),
        report: None, cases: Cow::Borrowed(&[]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("ipc"),
        reason: Cow::Borrowed("the ipc namespace is the body's own"),
        report: None, cases: Cow::Borrowed(&[]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("self-confinement"),
        reason: Cow::Borrowed("they can only tighten; programs such as Chromium confine their own parts"),
        report: None, cases: Cow::Borrowed(&[]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("clone-namespaces"),
        reason: Cow::Borrowed("threads and processes yes, namespaces no; a new user namespace opens privileged kernel code"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0x7e020080, one_of: Cow::Borrowed(&[0x0]) },
            ]), then: Decision::Allow },
        ]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("socket"),
        reason: Cow::Borrowed("the four families that runtimes need; packet, VSOCK, AF_ALG and the rest are kernel code for nobody here"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x1]) },
                Condition { argument: 1, mask: 0xf, one_of: Cow::Borrowed(&[0x1, 0x2, 0x5]) },
                Condition { argument: 2, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x0]) },
            ]), then: Decision::Allow },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x2, 0xa]) },
                Condition { argument: 1, mask: 0xf, one_of: Cow::Borrowed(&[0x1]) },
                Condition { argument: 2, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x0, 0x6]) },
            ]), then: Decision::Allow },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x2, 0xa]) },
                Condition { argument: 1, mask: 0xf, one_of: Cow::Borrowed(&[0x2]) },
                Condition { argument: 2, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x0, 0x11]) },
            ]), then: Decision::Allow },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x10]) },
                Condition { argument: 1, mask: 0xf, one_of: Cow::Borrowed(&[0x2, 0x3]) },
                Condition { argument: 2, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x0]) },
            ]), then: Decision::Allow },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x1, 0x2, 0xa, 0x10]) },
            ]), then: Decision::ProtocolNotSupported },
        ]), action: Decision::FamilyNotSupported,
    },
    Rule {
        id: Cow::Borrowed("socketpair"),
        reason: Cow::Borrowed("only AF_UNIX has pairs that runtimes use"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x1]) },
            ]), then: Decision::Allow },
        ]), action: Decision::FamilyNotSupported,
    },
    Rule {
        id: Cow::Borrowed("send-flags"),
        reason: Cow::Borrowed("TCP Fast Open connects without connect(2), past Landlock; out-of-band data on AF_UNIX was CVE-2025-38236"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 3, mask: 0x20000001, one_of: Cow::Borrowed(&[0x0]) },
            ]), then: Decision::Allow },
        ]), action: Decision::OperationNotSupported,
    },
    Rule {
        id: Cow::Borrowed("sendmsg-flags"),
        reason: Cow::Borrowed("as send-flags, with the flags in another argument"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 2, mask: 0x20000001, one_of: Cow::Borrowed(&[0x0]) },
            ]), then: Decision::Allow },
        ]), action: Decision::OperationNotSupported,
    },
    Rule {
        id: Cow::Borrowed("ioctl-terminal"),
        reason: Cow::Borrowed("both push input into the caller's terminal, to be run by the caller's shell (CVE-2017-5226)"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 1, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x5412, 0x541c]) },
            ]), then: Decision::NotPermitted },
        ]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("personality"),
        reason: Cow::Borrowed("no switching off of address randomisation, no READ_IMPLIES_EXEC"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x0, 0x8, 0x20000, 0x20008, 0xffffffff]) },
            ]), then: Decision::Allow },
        ]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("mknod"),
        reason: Cow::Borrowed("no device nodes, no set-id files; mkfifo needs the call"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 1, mask: 0xfc00, one_of: Cow::Borrowed(&[0x0, 0x8000, 0x1000, 0xc000]) },
            ]), then: Decision::Allow },
        ]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("mknodat"),
        reason: Cow::Borrowed("as mknod, with the mode in another argument"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 2, mask: 0xfc00, one_of: Cow::Borrowed(&[0x0, 0x8000, 0x1000, 0xc000]) },
            ]), then: Decision::Allow },
        ]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("set-id-mode"),
        reason: Cow::Borrowed("a set-id file in a lent directory would run on the host as its owner"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 1, mask: 0xc00, one_of: Cow::Borrowed(&[0x400, 0x800, 0xc00]) },
            ]), then: Decision::NotPermitted },
        ]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("set-id-mode-at"),
        reason: Cow::Borrowed("as set-id-mode, with the mode in another argument"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 2, mask: 0xc00, one_of: Cow::Borrowed(&[0x400, 0x800, 0xc00]) },
            ]), then: Decision::NotPermitted },
        ]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("set-id-creat"),
        reason: Cow::Borrowed("as set-id-mode, at creation"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 1, mask: 0xc00, one_of: Cow::Borrowed(&[0x400, 0x800, 0xc00]) },
            ]), then: Decision::NotPermitted },
        ]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("set-id-open"),
        reason: Cow::Borrowed("as set-id-mode, at creation (O_CREAT, O_TMPFILE); without these the argument means nothing"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 1, mask: 0x40, one_of: Cow::Borrowed(&[0x40]) },
                Condition { argument: 2, mask: 0xc00, one_of: Cow::Borrowed(&[0x400, 0x800, 0xc00]) },
            ]), then: Decision::NotPermitted },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 1, mask: 0x400000, one_of: Cow::Borrowed(&[0x400000]) },
                Condition { argument: 2, mask: 0xc00, one_of: Cow::Borrowed(&[0x400, 0x800, 0xc00]) },
            ]), then: Decision::NotPermitted },
        ]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("set-id-openat"),
        reason: Cow::Borrowed("as set-id-open, with the mode in another argument"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 2, mask: 0x40, one_of: Cow::Borrowed(&[0x40]) },
                Condition { argument: 3, mask: 0xc00, one_of: Cow::Borrowed(&[0x400, 0x800, 0xc00]) },
            ]), then: Decision::NotPermitted },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 2, mask: 0x400000, one_of: Cow::Borrowed(&[0x400000]) },
                Condition { argument: 3, mask: 0xc00, one_of: Cow::Borrowed(&[0x400, 0x800, 0xc00]) },
            ]), then: Decision::NotPermitted },
        ]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("init-limits"),
        reason: Cow::Borrowed("the limits, processors and scheduling of the sandbox's init are not the body's to change"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x1]) },
            ]), then: Decision::NotPermitted },
        ]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("init-priority"),
        reason: Cow::Borrowed("as init-limits; by user id the call reaches init too"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x0, 0x1]) },
                Condition { argument: 1, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x1]) },
            ]), then: Decision::NotPermitted },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x2]) },
            ]), then: Decision::NotPermitted },
        ]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("init-io-priority"),
        reason: Cow::Borrowed("as init-priority"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x1, 0x2]) },
                Condition { argument: 1, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x1]) },
            ]), then: Decision::NotPermitted },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x3]) },
            ]), then: Decision::NotPermitted },
        ]), action: Decision::Allow,
    },
    Rule {
        id: Cow::Borrowed("clone3"),
        reason: Cow::Borrowed("its flags lie behind a pointer that a filter cannot read; libc falls back to clone on ENOSYS only"),
        report: Some(Reporting::Probe), cases: Cow::Borrowed(&[]), action: Decision::NotImplemented,
    },
    Rule {
        id: Cow::Borrowed("openat2"),
        reason: Cow::Borrowed("its mode lies behind a pointer that a filter cannot read; programs fall back to openat on ENOSYS only"),
        report: Some(Reporting::Probe), cases: Cow::Borrowed(&[]), action: Decision::NotImplemented,
    },
    Rule {
        id: Cow::Borrowed("namespaces"),
        reason: Cow::Borrowed("a new user namespace opens privileged kernel code; the namespaces are what confines the body"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("mounts"),
        reason: Cow::Borrowed("what the body can see is fixed"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("mounts-by-descriptor"),
        reason: Cow::Borrowed("as mounts; with ENOSYS util-linux falls back to mount(2) and prints its clear refusal"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotImplemented,
    },
    Rule {
        id: Cow::Borrowed("mount-table"),
        reason: Cow::Borrowed("young calls that show how the host is mounted; /proc/self/mountinfo is there"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("other-processes"),
        reason: Cow::Borrowed("reaching into other processes is for debuggers; strace, gdb and LeakSanitizer need a policy that says so"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("io-uring"),
        reason: Cow::Borrowed("its operations never pass this filter; EPERM is what libuv and others fall back on, a kill ends them"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("kernel-programs"),
        reason: Cow::Borrowed("large kernel surface, each with a history of escalations"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("kernel-replacement"),
        reason: Cow::Borrowed("the host's kernel is not the body's"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("keyrings"),
        reason: Cow::Borrowed("keyrings are not bound to a namespace (CVE-2016-0728)"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("handles"),
        reason: Cow::Borrowed("a file handle opens files past every mount (\"shocker\")"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("fanotify"),
        reason: Cow::Borrowed("watches whole mounts, the caller's files among them"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("clock-setting"),
        reason: Cow::Borrowed("the clock is the host's"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("host-administration"),
        reason: Cow::Borrowed("the host's administration"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("hardware"),
        reason: Cow::Borrowed("raw hardware and segment tables; no runtime in use needs them"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("memory-placement"),
        reason: Cow::Borrowed("placement on memory nodes shows and burdens the host; the JVM, torch and numactl run without"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("vmsplice"),
        reason: Cow::Borrowed("puts pages of the body into pipes; part of most page-cache attacks, needed by no runtime"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::InvalidArgument,
    },
    Rule {
        id: Cow::Borrowed("memfd-secret"),
        reason: Cow::Borrowed("memory that the supervisor could not see and the kernel cannot move"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("security-modules"),
        reason: Cow::Borrowed("the host's security modules are not the body's matter"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("file-attributes"),
        reason: Cow::Borrowed("inode flags such as immutable; too young to have been looked at"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("withdrawn"),
        reason: Cow::Borrowed("removed from Linux or never part of it, and two relics (sysfs, ustat) that nothing uses"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("strict-sysv-ipc"),
        reason: Cow::Borrowed("System V IPC is much old kernel code for few (PostgreSQL, fakeroot); ENOSYS is what a kernel without it says"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotImplemented,
    },
    Rule {
        id: Cow::Borrowed("strict-message-queues"),
        reason: Cow::Borrowed("POSIX message queues are used by hardly anybody; pipes and sockets are there"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotImplemented,
    },
    Rule {
        id: Cow::Borrowed("strict-asynchronous-io"),
        reason: Cow::Borrowed("the old asynchronous I/O is for databases; with ENOSYS they use threads"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotImplemented,
    },
    Rule {
        id: Cow::Borrowed("strict-splice"),
        reason: Cow::Borrowed("pages of files in pipes were part of most page-cache attacks since 2022; read and write do the same"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::InvalidArgument,
    },
    Rule {
        id: Cow::Borrowed("strict-scheduling"),
        reason: Cow::Borrowed("how the host shares its processors and disks is its matter; asking for them (but not for the length of a turn), nice and affinity remain"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("strict-sync-of-the-host"),
        reason: Cow::Borrowed("makes the host write out what all others have written; fsync of own files remains"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("strict-page-cache"),
        reason: Cow::Borrowed("tells which parts of files that all bodies see somebody has read"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotImplemented,
    },
    Rule {
        id: Cow::Borrowed("strict-memory-locking"),
        reason: Cow::Borrowed("locks all memory that there is and will be; mlock of single ranges remains, within its limit"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("strict-file-identity"),
        reason: Cow::Borrowed("for file servers that act as their clients; the body has one id"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("strict-robust-list"),
        reason: Cow::Borrowed("tells addresses of other processes; only programs that freeze others ask"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotPermitted,
    },
    Rule {
        id: Cow::Borrowed("strict-superseded"),
        reason: Cow::Borrowed("older forms of calls that are there; every libc in use makes the younger ones"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[]), action: Decision::NotImplemented,
    },
    Rule {
        id: Cow::Borrowed("strict-young"),
        reason: Cow::Borrowed("young kernel code that no libc in use needs; whoever tests for it takes the older way"),
        report: Some(Reporting::Probe), cases: Cow::Borrowed(&[]), action: Decision::NotImplemented,
    },
    Rule {
        id: Cow::Borrowed("strict-socket"),
        reason: Cow::Borrowed("as socket, without netlink, whose answers wait in memory that counts against nobody; looking up names does without"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x10]) },
                Condition { argument: 1, mask: 0xf, one_of: Cow::Borrowed(&[0x2, 0x3]) },
                Condition { argument: 2, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x0]) },
            ]), then: Decision::FamilyNotSupported },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x1]) },
                Condition { argument: 1, mask: 0xf, one_of: Cow::Borrowed(&[0x1, 0x2, 0x5]) },
                Condition { argument: 2, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x0]) },
            ]), then: Decision::Allow },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x2, 0xa]) },
                Condition { argument: 1, mask: 0xf, one_of: Cow::Borrowed(&[0x1]) },
                Condition { argument: 2, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x0, 0x6]) },
            ]), then: Decision::Allow },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x2, 0xa]) },
                Condition { argument: 1, mask: 0xf, one_of: Cow::Borrowed(&[0x2]) },
                Condition { argument: 2, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x0, 0x11]) },
            ]), then: Decision::Allow },
            Case { when: Cow::Borrowed(&[
                Condition { argument: 0, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x1, 0x2, 0xa, 0x10]) },
            ]), then: Decision::ProtocolNotSupported },
        ]), action: Decision::FamilyNotSupported,
    },
    Rule {
        id: Cow::Borrowed("strict-record-locks"),
        reason: Cow::Borrowed("locks on parts of files are without number, in memory that counts against nobody; flock remains"),
        report: Some(Reporting::Yes), cases: Cow::Borrowed(&[
            Case { when: Cow::Borrowed(&[
                Condition { argument: 1, mask: 0xffffffff, one_of: Cow::Borrowed(&[0x6, 0x7, 0x25, 0x26]) },
            ]), then: Decision::NoLocks },
        ]), action: Decision::Allow,
    },
];
