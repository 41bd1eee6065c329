//! The attacks, and how their results are judged. The bodies are in hostile.c, by the same names.

/// One attack.
#[derive(Clone, Copy)]
pub struct Case {
    /// The argument of hostile.c.
    pub name: &'static str,
    /// Rows of docs/threats.md for this attack; a dash if there is none.
    pub rows: &'static str,
    /// The description of the attack.
    pub what: &'static str,
    /// Whether only root succeeds without a sandbox.
    pub root_only: bool,
    /// What the host or its kernel must have for the attack to succeed; without it, the case shows nothing.
    pub wants: Option<&'static str>,
    pub judge: Judge,
    pub limit: Option<Limit>,
    /// Whether it uses the CPUs for too long for the default tier.
    pub is_long: bool,
}

/// How success is detected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// The line that the body prints.
    Line,
    /// The line that the body prints, with a terminal of the caller as standard input.
    LineOnTerminal,
    /// The line that the body prints, with an open directory descriptor of the caller.
    LineWithDescriptor,
    /// A file of the host that must not change.
    Canary,
    /// A process of the host that must survive.
    Victim,
    /// The amount of output that arrived, at least this many MiB.
    OutputMib(u64),
    /// A process of the body that survives the tool.
    Leftover,
    /// A process of the body that survives a killed tool.
    KilledParent,
}

/// A limit, set with the tool's own option.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Processes,
    Memory,
    Disk,
    Output,
    Time,
    Processor,
    Descriptors,
}

const fn case(name: &'static str, rows: &'static str, what: &'static str) -> Case {
    Case {
        name,
        rows,
        what,
        root_only: false,
        wants: None,
        judge: Judge::Line,
        limit: None,
        is_long: false,
    }
}

impl Case {
    const fn for_root(mut self) -> Self {
        self.root_only = true;
        self
    }

    const fn where_the_host_has(mut self, what: &'static str) -> Self {
        self.wants = Some(what);
        self
    }

    const fn judged(mut self, judge: Judge) -> Self {
        self.judge = judge;
        self
    }

    const fn in_the_long_tier(mut self) -> Self {
        self.is_long = true;
        self
    }

    const fn limited(mut self, limit: Limit) -> Self {
        self.limit = Some(limit);
        self
    }
}

pub const CASES: &[Case] = &[
    // Faults first: the next start of the runner removes the leftovers of a killed one.
    case("outlive", "E-01", "live on when the tool is killed").judged(Judge::KilledParent),
    case("daemon", "C-19", "leave a process behind").judged(Judge::Leftover),
    // Files.
    case("read-canary", "F-08", "read a file of the caller's"),
    case("write-canary", "F-08", "change a file of the caller's").judged(Judge::Canary),
    case("list-home", "F-08", "look into the caller's home"),
    case("list-tmp", "B-43", "read a file of the host's /tmp"),
    case("list-dev-shm", "B-43", "read a file of the host's /dev/shm"),
    case("list-run", "B-41", "look into the host's /run"),
    case("list-var", "F-08", "look into the host's /var/lib"),
    case("read-shadow", "F-08", "open /etc/shadow").for_root(),
    case("write-usr", "B-49", "write to /usr").for_root(),
    case(
        "write-passwd",
        "B-49",
        "open the host's /etc/passwd to write",
    )
    .for_root(),
    case("machine-id", "F-11", "read /etc/machine-id").where_the_host_has("a machine-id"),
    case("set-id-file", "D-13", "make a set-uid file"),
    case("file-handle", "B-19", "open a file by its handle").for_root(),
    case(
        "inherited",
        "B-03",
        "use a directory that the caller left open",
    )
    .judged(Judge::LineWithDescriptor),
    case("environment", "F-01", "read a variable of the caller's"),
    case("read-programs", "F-08", "read the host's programs in /usr"),
    case(
        "from-memory",
        "B-37",
        "execute a program that was never a file",
    ),
    // Processes, and the contents of proc and sysfs.
    case("see-processes", "B-05", "see processes of the host"),
    case(
        "read-environ",
        "B-06",
        "read the environment of a process of the host",
    ),
    case(
        "proc-root",
        "B-05",
        "reach the host's files by /proc/PID/root",
    ),
    case(
        "proc-mem",
        "B-06",
        "open the memory of a process of the host",
    ),
    case("kill-victim", "B-26", "kill a process of the host").judged(Judge::Victim),
    case("trace-victim", "B-24", "trace a process of the host"),
    case(
        "take-descriptor",
        "B-24",
        "take a descriptor of a process of the host",
    ),
    case("kcore", "B-60", "open /proc/kcore")
        .for_root()
        .where_the_host_has("/proc/kcore"),
    case("kallsyms", "B-60", "read /proc/kallsyms"),
    case("proc-keys", "B-60", "read /proc/keys"),
    case("timer-list", "B-60", "read /proc/timer_list").for_root(),
    case("sysrq", "B-16", "open /proc/sysrq-trigger to write")
        .for_root()
        .where_the_host_has("/proc/sysrq-trigger"),
    case(
        "kernel-parameter",
        "B-16",
        "open a kernel parameter to write",
    )
    .for_root(),
    case("boot-words", "F-11", "read the kernel's command line"),
    case("sysfs", "B-60", "look into /sys/kernel"),
    case(
        "groups",
        "B-18",
        "open the root cgroup's process list to write",
    )
    .for_root(),
    case("host-name", "F-11", "learn the host's name"),
    // Ownership and identity.
    case("host-root", "B-14", "be uid 0 of the host").for_root(),
    case("capabilities", "B-45", "have capabilities").for_root(),
    case("bounding-set", "B-45", "be able to get capabilities back"),
    case("new-privileges", "B-44", "gain by set-uid programs"),
    case("no-filter", "B-47", "reach every system call"),
    // Namespaces and mounts.
    case("new-user", "B-11", "make a user namespace"),
    case("new-user-clone3", "B-34", "make a user namespace by clone3"),
    case("new-mounts", "B-35", "make a mount namespace").for_root(),
    case("mount", "B-07", "mount a tmpfs").for_root(),
    case("mount-anew", "B-07", "open a file system by fsopen").for_root(),
    case("unmount", "B-09", "unmount /proc").for_root(),
    case("chroot", "B-10", "chroot").for_root(),
    case(
        "ipc-space",
        "B-42",
        "share System V and POSIX objects with the host",
    ),
    // Devices.
    case("device-node", "B-27", "make a device node").for_root(),
    case("kernel-log", "B-28", "open /dev/kmsg").for_root(),
    case("disk", "B-28", "open the host's disk")
        .for_root()
        .where_the_host_has("a disk that its root may open"),
    case("other-devices", "B-28", "open any of sixteen other devices")
        .where_the_host_has("one of them that this user may open"),
    case("terminal", "B-20", "type into the caller's terminal")
        .judged(Judge::LineOnTerminal)
        .where_the_host_has("a kernel that still lets terminals be typed into"),
    // The system call surface.
    case("bpf", "B-29", "make a BPF map").for_root(),
    case("perf", "B-29", "open a performance counter").where_the_host_has("counters for users"),
    case("userfaultfd", "B-29", "make a userfaultfd").where_the_host_has("userfaultfd"),
    case("io-uring", "B-30", "set up an io_uring").where_the_host_has("io_uring"),
    case(
        "asynchronous-io",
        "–",
        "set up asynchronous input and output by io_setup",
    )
    .where_the_host_has("asynchronous input and output"),
    case("fanotify", "B-59", "watch files with fanotify").where_the_host_has("fanotify for users"),
    case("add-key", "B-15", "make a key"),
    case("host-key", "B-15", "read a key of the caller's"),
    case("module", "B-29", "load a kernel module")
        .for_root()
        .where_the_host_has("modules"),
    case("message-buffer", "B-29", "ask for the kernel's messages").for_root(),
    case("32-bits", "B-31", "make a 32-bit system call").where_the_host_has("32-bit system calls"),
    case("x32", "B-32", "make an x32 system call").where_the_host_has("x32 system calls"),
    case("personality", "B-36", "switch address randomisation off"),
    case(
        "out-of-band",
        "B-54",
        "send out of band over a local socket",
    )
    .where_the_host_has("MSG_OOB for local sockets"),
    case("real-time", "B-56", "run before everybody else").for_root(),
    case("spare-me", "B-56", "be spared when memory runs out")
        .for_root()
        .where_the_host_has("root with CAP_SYS_RESOURCE"),
    // Sockets.
    case("raw", "H-10", "open a raw socket").for_root(),
    case("packets", "B-38", "open a packet socket").for_root(),
    case("crypto-socket", "B-38", "open an AF_ALG socket").where_the_host_has("AF_ALG"),
    case("vm-socket", "B-38", "open an AF_VSOCK socket").where_the_host_has("AF_VSOCK"),
    case("firewall", "B-38", "open a netfilter socket").where_the_host_has("nf_tables"),
    case(
        "other-families",
        "B-38",
        "open a socket of any other family",
    )
    .where_the_host_has("another family"),
    // Network.
    case("net-space", "H-02", "be in the host's network"),
    case("devices", "H-02", "see the host's network devices")
        .where_the_host_has("a device besides the loopback"),
    case("dial-tcp", "H-13", "dial a TCP port of the host's loopback"),
    case("dial-fast", "H-15", "the same with MSG_FASTOPEN"),
    case("dial-mptcp", "H-14", "the same with MPTCP").where_the_host_has("MPTCP"),
    case("dial-udp", "H-10", "dial a UDP port of the host's loopback"),
    case(
        "dial-abstract",
        "B-39",
        "dial an abstract socket of the host",
    ),
    case("dial-path", "B-41", "dial a socket of the host by its path"),
    // Exhaustion, with the limit that the tool offers for it.
    case("processes", "C-01", "200 processes where 64 are allowed").limited(Limit::Processes),
    case("memory", "C-03", "160 MiB of memory where 64 are allowed").limited(Limit::Memory),
    case("disk-space", "C-11", "96 MiB in files where 32 are allowed").limited(Limit::Disk),
    case("sparse", "C-13", "a sparse file of 1 TiB, the same limit").limited(Limit::Disk),
    case("output", "C-15", "4 MiB of output where 1 is allowed")
        .judged(Judge::OutputMib(4))
        .limited(Limit::Output),
    case(
        "time",
        "C-24",
        "2 seconds where 0.5 (others: 1) are allowed, deaf to signals",
    )
    .limited(Limit::Time),
    case(
        "processor",
        "C-23",
        "1.3 seconds of CPU time where 0.5 (others: 1) are allowed",
    )
    .limited(Limit::Processor)
    .in_the_long_tier(),
    case("descriptors", "C-18", "17,000 descriptors")
        .limited(Limit::Descriptors)
        .where_the_host_has("a hard limit above that"),
];
