//! Gives up the rights of this process: of a reader, before it handles what a stranger wrote, and of
//! the supervisor, once the body runs.

use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};

use filter::bpf::Instruction;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, RestrictSelfAttr as _,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
    make_bitflags,
};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::CapabilitySet;

use spec::parse_permit::ParsePermit;
use sys::credentials::{HostIds, OVERFLOW_UID};
use sys::namespace::kind;
use sys::{landlock as kernel_landlock, mount, namespace, privileges, process, seccomp};

/// Where a parser has a bug, for tests.
#[cfg(feature = "planted-bugs")]
pub use attacker as planted;

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// Ids of root's process that fills no directory: `nobody`.
const NOBODY: HostIds = HostIds {
    uid: OVERFLOW_UID,
    gid: OVERFLOW_UID,
};

/// The port of name servers.
const DNS_PORT: u16 = 53;

/// Rights in the directory that the process fills.
const FILL: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | RemoveFile | RemoveDir | MakeDir | MakeReg | MakeSym
});

/// What root's supervisor needs to clean up and to deliver outputs: a caller's files whatever their
/// owner and modes are, the ids of the body's files, the ids of the reader, and SIGKILL for it.
const CLEAN_UP: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID);

/// Gives up what a supervisor does not need from the body's start to its own end. Final: afterwards
/// this process starts no other run and executes no program.
///
/// With `traces` it may read the memory of the body's processes.
///
/// The process must have one thread. After an error it must end.
///
/// # Errors
/// The errno of capset(2), prctl(2) or seccomp(2).
pub fn confine_supervisor(traces: bool) -> Result<(), Errno> {
    privileges::keep_capabilities(CLEAN_UP)?;
    rustix::thread::set_no_new_privs(true)?;
    seccomp::load(if traces { TRACER } else { SUPERVISOR })
}

/// The permission to parse for a command of a sandbox that runs code of this program: the sandbox has
/// confined it, with less than a reader has.
///
/// # Errors
/// EPERM if the process has capabilities or may gain some; the errno of capget(2).
pub fn permit_of_command() -> Result<ParsePermit, Errno> {
    let has = rustix::thread::capabilities(None)?;
    let is_confined =
        has.effective.is_empty() && has.permitted.is_empty() && rustix::thread::no_new_privs()?;
    match is_confined {
        true => Ok(ParsePermit::after_giving_up_rights()),
        false => Err(Errno::PERM),
    }
}

/// What the process does, which decides what it keeps.
#[derive(Debug, Clone, Copy)]
pub enum Role<'run> {
    /// Reads what it is sent. Opens no file.
    Reader,
    /// Fills `directory`, which becomes its root.
    Unpacker {
        directory: BorrowedFd<'run>,
        /// Ids that root's process takes. `None`: those of the caller.
        ids: Option<HostIds>,
    },
    /// Fills the directory with a layer of an image, which has hard links; it becomes its root. The
    /// files are the caller's.
    LayerUnpacker(BorrowedFd<'run>),
    /// Connects to servers. Opens no file.
    Fetcher,
    /// Accepts connections at sockets that it has, and gets others passed. Makes none.
    Relay,
    /// Queries name servers. Opens no file.
    Resolver,
}

impl Role<'_> {
    /// Gives up everything else, for the permission to parse. `keep` are the descriptors to leave open,
    /// ascending.
    ///
    /// The process must have one thread. After an error it must end.
    ///
    /// # Errors
    /// The errno of the failed call.
    pub fn enter(&self, keep: &[RawFd]) -> Result<ParsePermit, Errno> {
        #[cfg(feature = "planted-bugs")]
        planted::remember_supervisor();
        match self {
            Self::Unpacker { directory, ids } => self.fill(*directory, *ids)?,
            Self::LayerUnpacker(directory) => self.fill(*directory, None)?,
            Self::Fetcher => {
                // Before it is nobody, who may make no namespace of root's.
                enter_empty_root()?;
                become_nobody()?;
            }
            Self::Reader | Self::Relay | Self::Resolver => become_nobody()?,
        }
        privileges::give_up_capabilities()?;
        rustix::thread::set_no_new_privs(true)?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        // After the change of ids, which clears it.
        privileges::die_with_parent()?;
        self.restrict_files()?;
        let mut keep = keep.to_vec();
        keep.extend(self.directory().map(|(directory, _)| directory.as_raw_fd()));
        keep.sort_unstable();
        process::close_all_but(&keep)?;
        seccomp::load(self.program())?;
        Ok(ParsePermit::after_giving_up_rights())
    }

    /// Makes `directory` the root and takes `ids`. Without CAP_SYS_CHROOT this needs a user namespace, which
    /// maps no ids; where that is refused too, Landlock must keep the process in the directory.
    fn fill(&self, directory: BorrowedFd<'_>, ids: Option<HostIds>) -> Result<(), Errno> {
        rustix::process::fchdir(directory)?;
        // Modes are those that it states.
        rustix::process::umask(Mode::empty());
        match rustix::process::chroot(c".") {
            Err(Errno::PERM) => {
                become_ids(ids)?;
                let entered = namespace::unshare(kind::USER);
                match entered.and_then(|()| rustix::process::chroot(c".")) {
                    Err(_refused) if self.has_landlock()? => Ok(()),
                    entered => entered,
                }
            }
            Ok(()) => become_ids(ids),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the kernel has the Landlock that this process needs.
    fn has_landlock(&self) -> Result<bool, Errno> {
        let abi_min = match self {
            // The first version refuses hard links between directories, whatever a rule grants.
            Self::LayerUnpacker(_) => 2,
            Self::Unpacker { .. } | Self::Reader | Self::Fetcher | Self::Relay | Self::Resolver => {
                1
            }
        };
        Ok(abi_min <= kernel_landlock::abi()?)
    }

    /// The directory that it fills, and its rights there.
    fn directory(&self) -> Option<(BorrowedFd<'_>, BitFlags<AccessFs>)> {
        match self {
            Self::Unpacker { directory, .. } => Some((*directory, FILL)),
            Self::LayerUnpacker(directory) => Some((*directory, FILL | AccessFs::Refer)),
            Self::Reader | Self::Fetcher | Self::Relay | Self::Resolver => None,
        }
    }

    fn program(&self) -> &'static [Instruction] {
        match self {
            Self::Unpacker { .. } => UNPACKER,
            Self::LayerUnpacker(_) => LAYER_UNPACKER,
            Self::Reader => READER,
            Self::Fetcher => FETCHER,
            Self::Relay => RELAY,
            Self::Resolver => RESOLVER,
        }
    }

    /// Nothing outside of the directory, no port but those of servers for the roles that connect, no
    /// signal and no abstract socket of others, as far as the kernel has Landlock; the root directory and
    /// the filter hold without it.
    fn restrict_files(&self) -> Result<(), Errno> {
        if !self.has_landlock()? {
            return Ok(());
        }
        let abi = ABI::V6;
        let ports = match self {
            Self::Fetcher => AccessNet::BindTcp.into(),
            _ => AccessNet::from_all(abi),
        };
        let restrict = || {
            let mut ruleset = Ruleset::default()
                .handle_access(AccessFs::from_all(abi))?
                .handle_access(ports)?
                .scope(Scope::from_all(abi))?
                .create()?;
            if let Some((directory, rights)) = self.directory() {
                ruleset = ruleset.add_rule(PathBeneath::new(directory, rights))?;
            }
            if let Self::Resolver = self {
                ruleset = ruleset.add_rule(NetPort::new(DNS_PORT, AccessNet::ConnectTcp))?;
            }
            // What a captured process is refused in a loop would fill the audit log of the host. Older kernels have no
            // such records, and no flags for them.
            ruleset
                .log_same_exec(false)?
                .log_subdomains(false)?
                .restrict_self()
        };
        let status = restrict().map_err(|error: RulesetError| kernel_landlock::errno_in(&error))?;
        match status.ruleset {
            RulesetStatus::NotEnforced => Err(Errno::OPNOTSUPP),
            RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
        }
    }
}

/// What a host answers that has no such namespace or file system, or allows none (unshare(2), fsopen(2)).
const REFUSED: [Errno; 7] = [
    Errno::PERM,
    Errno::ACCESS,
    Errno::NOSYS,
    Errno::INVAL,
    Errno::NODEV,
    Errno::NOSPC,
    Errno::USERS,
];

/// Makes an empty file system that is mounted nowhere the root. Without CAP_SYS_ADMIN this needs user and
/// mount namespaces. Where the host refuses it, the root stays what it is: the filter opens no file.
fn enter_empty_root() -> Result<(), Errno> {
    let empty = || mount::new_tmpfs(c"4k", c"1");
    let made = match empty() {
        Err(Errno::PERM) => namespace::unshare(kind::USER | kind::MOUNT).and_then(|()| empty()),
        made => made,
    };
    match made {
        Ok(root) => {
            rustix::process::fchdir(&root)?;
            rustix::process::chroot(c".")
        }
        Err(errno) if REFUSED.contains(&errno) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn become_nobody() -> Result<(), Errno> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    match become_ids(Some(NOBODY)) {
        // The root of a user namespace that maps no other id is an ordinary user.
        Err(Errno::INVAL | Errno::PERM) => Ok(()),
        other => other,
    }
}

fn become_ids(ids: Option<HostIds>) -> Result<(), Errno> {
    ids.map_or(Ok(()), |ids| privileges::become_ids(ids.uid, ids.gid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use attacker::{Surroundings, attempts};
    use sys::worker::{Sent, Work, WorkerError, WorkerLimits, run_in_child};

    /// What a process in `role` may still do, as lines of text.
    fn taken_over(role: Role<'_>, attempt: &dyn Fn() -> Vec<String>) -> Vec<String> {
        taken_over_with(role, &[], attempt)
    }

    /// Likewise, with descriptors that the process keeps.
    fn taken_over_with(
        role: Role<'_>,
        kept: &[RawFd],
        attempt: &dyn Fn() -> Vec<String>,
    ) -> Vec<String> {
        let confine = |keep: &[RawFd]| {
            let mut keep = [keep, kept].concat();
            keep.sort_unstable();
            role.enter(&keep)
        };
        in_child(&confine, attempt)
    }

    fn in_child(
        confine: &dyn Fn(&[RawFd]) -> Result<ParsePermit, Errno>,
        attempt: &dyn Fn() -> Vec<String>,
    ) -> Vec<String> {
        try_in_child(confine, attempt).expect("an answer")
    }

    fn try_in_child(
        confine: &dyn Fn(&[RawFd]) -> Result<ParsePermit, Errno>,
        attempt: &dyn Fn() -> Vec<String>,
    ) -> Result<Vec<String>, WorkerError> {
        let limits = WorkerLimits {
            time: None,
            memory_bytes: 64 << 20,
            file_bytes: 1 << 20,
            answer_bytes: 1 << 20,
        };
        let work = Work {
            confine: &|keep| {
                attacker::remember_supervisor();
                confine(keep)
            },
            run: &|_permit, _source, _answer| attempt().join("\n").into_bytes(),
        };
        let sent = Sent {
            source: &mut io::empty(),
            descriptor: None,
        };
        let answer = run_in_child(limits, None, sent, &work)?;
        let text = String::from_utf8(answer).expect("text");
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// A file and a directory of the caller, and a listener, which `attempt` knows.
    struct Outside {
        directory: tempfile::TempDir,
        listener: TcpListener,
    }

    impl Outside {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            fs::write(directory.path().join("canary"), "x").expect("written");
            fs::create_dir(directory.path().join("tree")).expect("made");
            let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
            Self {
                directory,
                listener,
            }
        }

        fn surroundings(&self) -> Surroundings {
            Surroundings {
                files: vec![self.directory.path().join("canary")],
                directories: vec![self.directory.path().join("tree")],
                address: Some(self.listener.local_addr().expect("bound")),
            }
        }
    }

    ///
    #[test]
    fn a_process_that_is_taken_over_reaches_nothing_but_its_directory() {
        let inside = tempfile::tempdir().expect("a directory");
        let outside = Outside::new();
        let directory = fs::File::open(inside.path()).expect("opened");
        // A descriptor that is not close-on-exec, as a caller may leak it.
        let leaked = fs::File::open(outside.directory.path()).expect("opened");
        let _leaked = rustix::io::dup(leaked).expect("copied");
        let unpacker = Role::Unpacker {
            directory: directory.as_fd(),
            ids: None,
        };
        let surroundings = outside.surroundings();
        let attempt = || attempts(&surroundings);
        assert_eq!(
            taken_over(unpacker, &attempt),
            [
                "has 3 devices and 2 pipes and 1 directories",
                "create in its directory"
            ]
        );
        assert_eq!(
            taken_over(Role::LayerUnpacker(directory.as_fd()), &attempt),
            [
                "has 3 devices and 2 pipes and 1 directories",
                "linkat",
                "create in its directory"
            ]
        );
        assert_eq!(
            taken_over(Role::Reader, &attempt),
            ["has 3 devices and 2 pipes"]
        );
        assert!(outside.directory.path().join("canary").exists());
    }

    /// Sockets that no host on the internet is reached by.
    fn try_sockets(confine: &dyn Fn(&[RawFd]) -> Result<ParsePermit, Errno>) -> Vec<String> {
        use rustix::net::{AddressFamily, SocketType, socket};
        let attempt = || {
            let sockets = [
                ("unix", AddressFamily::UNIX, SocketType::STREAM),
                ("netlink", AddressFamily::NETLINK, SocketType::RAW),
                ("packet", AddressFamily::PACKET, SocketType::DGRAM),
                ("raw", AddressFamily::INET, SocketType::RAW),
                ("vsock", AddressFamily::VSOCK, SocketType::STREAM),
            ];
            let made = sockets.iter().filter(|(_, family, kind)| {
                // The filter answers, not the kernel: it has no other error for these.
                !matches!(socket(*family, *kind, None), Err(Errno::AFNOSUPPORT))
            });
            let made = made.map(|(name, ..)| *name);
            ["made:"]
                .into_iter()
                .chain(made)
                .map(str::to_owned)
                .collect()
        };
        in_child(confine, &attempt)
    }

    /// B-69.
    #[test]
    fn a_supervisor_that_is_taken_over_has_the_files_and_connections_of_its_caller() {
        let outside = Outside::new();
        let surroundings = outside.surroundings();
        for traces in [false, true] {
            let confine = |_keep: &[RawFd]| {
                confine_supervisor(traces)?;
                Ok(ParsePermit::for_trusted_text())
            };
            let reached = in_child(&confine, &|| attempts(&surroundings));
            let has = |what: &str| reached.iter().any(|reached| reached == what);
            // What its clean-up, its outputs and its dialler need.
            for what in ["write canary", "remove canary", "connect", "socket inet"] {
                assert!(has(what), "{what}: {reached:#?}");
            }
            // Whose memory it may read is up to the kernel.
            assert_eq!(has("process_vm_readv"), traces, "{reached:#?}");
            for what in BEYOND_A_SUPERVISOR {
                assert!(!has(what), "{what}: {reached:#?}");
            }
            assert_eq!(try_sockets(&confine), ["made:"]);
            fs::write(outside.directory.path().join("canary"), "x").expect("written");
        }
    }

    /// What it has no use for once the body runs. Files in /proc of the caller's processes are the caller's files.
    const BEYOND_A_SUPERVISOR: [&str; 24] = [
        "start a program",
        "listen",
        "ptrace",
        "process_vm_writev",
        "prlimit64",
        "sched_setaffinity",
        "execve",
        "execveat",
        "setns",
        "unshare",
        "chroot",
        "pivot_root",
        "mount",
        "fsopen",
        "open_tree",
        "setuid",
        "open_by_handle_at",
        "keyctl",
        "bpf",
        "io_uring_setup",
        "perf_event_open",
        "userfaultfd",
        "mknodat",
        "setxattr",
    ];

    /// The attempts are possible where nothing prevents them.
    #[test]
    fn a_process_with_rights_reaches_what_it_is_to_lose() {
        let outside = Outside::new();
        let leaked = fs::File::open(outside.directory.path()).expect("opened");
        let _leaked = rustix::io::dup(leaked).expect("copied");
        let surroundings = outside.surroundings();
        let reached = in_child(&|_keep| Ok(ParsePermit::for_trusted_text()), &|| {
            attempts(&surroundings)
        });
        for what in [
            "read /etc/passwd",
            "open own environ",
            "read canary",
            "open canary by a descriptor",
            "remove canary",
            "create in tree",
            "connect",
            "start a program",
            "fork",
            "kill",
            "pidfd_open",
            "execve",
            "clone3",
            "prctl",
            "mount",
            "socket unix",
            "ioctl",
            "linkat",
        ] {
            assert!(reached.iter().any(|one| one == what), "{what}: {reached:?}");
        }
        assert!(!outside.directory.path().join("canary").exists());
    }

    /// A passed socket whose peer has reset it, which TCP Fast Open would connect again, and a listener.
    fn passed_sockets() -> (TcpStream, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let passed = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (peer, _) = listener.accept().expect("accepted");
        rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).expect("set");
        drop(peer);
        let end = io::Read::read(&mut &passed, &mut [0]).expect_err("reset");
        assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
        (passed, listener)
    }

    /// What `attempts` does not try: other ways to connect, to change what is there, or to be another.
    fn more_attempts(passed: &TcpStream, to: std::net::SocketAddr) -> Vec<String> {
        use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, sockopt};
        let mut done = Vec::new();
        let mut note = |what: &str, succeeded: bool| {
            if succeeded {
                done.push(what.to_owned());
            }
        };
        for (what, family, kind) in [
            ("a stream", AddressFamily::INET, SocketType::STREAM),
            ("a datagram", AddressFamily::INET6, SocketType::DGRAM),
            ("a raw socket", AddressFamily::INET, SocketType::RAW),
            ("netlink", AddressFamily::NETLINK, SocketType::RAW),
            ("a packet socket", AddressFamily::PACKET, SocketType::DGRAM),
            ("vsock", AddressFamily::VSOCK, SocketType::STREAM),
        ] {
            note(what, rustix::net::socket(family, kind, None).is_ok());
        }
        let pair = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            rustix::net::SocketFlags::empty(),
            None,
        );
        note("a pair", pair.is_ok());
        note("connect again", rustix::net::connect(passed, &to).is_ok());
        const MSG_FASTOPEN: u32 = 0x2000_0000;
        let fast_open = SendFlags::from_bits_retain(MSG_FASTOPEN) | SendFlags::NOSIGNAL;
        // The filter answers: Landlock of older kernels does not see it.
        let sent = rustix::net::sendto(passed, b"x", fast_open, &to);
        note("fast open", sent != Err(Errno::PERM));
        note("listen again", rustix::net::listen(passed, 1).is_ok());
        note(
            "keep alive",
            sockopt::set_socket_keepalive(passed, true).is_ok(),
        );
        note("a pipe", rustix::pipe::pipe().is_ok());
        let memory = rustix::fs::memfd_create(c"x", rustix::fs::MemfdFlags::empty());
        note("a file in memory", memory.is_ok());
        note("a copy", rustix::io::dup(passed).is_ok());
        let limit = sys::rlimit::set(sys::rlimit::resource::CORE, 0);
        note("a limit", limit.is_ok());
        let behavior = DumpableBehavior::Dumpable;
        note("dumpable", set_dumpable_behavior(behavior).is_ok());
        let mut byte = [0];
        let read = rustix::net::recv(passed, &mut byte, RecvFlags::DONTWAIT);
        note("read it", read.is_ok());
        done
    }

    ///
    #[test]
    fn a_relay_that_is_taken_over_has_its_sockets_and_makes_none() {
        let outside = Outside::new();
        let surroundings = outside.surroundings();
        let (passed, listener) = passed_sockets();
        let to = listener.local_addr().expect("bound");
        let waiting = TcpStream::connect(to);
        let kept = [passed.as_raw_fd(), listener.as_raw_fd()];
        let attempt = || {
            let mut done = attempts(&surroundings);
            done.extend(more_attempts(&passed, to));
            let flags = rustix::net::SocketFlags::empty();
            if rustix::net::accept_with(&listener, flags).is_ok() {
                done.push("accept".to_owned());
            }
            done
        };
        let done = taken_over_with(Role::Relay, &kept, &attempt);
        // The socket was reset: reading it is the end of its stream. The others are the standard streams and
        // the two pipes of this test.
        let has = "has 2 sockets and 5 others";
        assert_eq!(done, [has, "sendmsg", "recvmsg", "read it", "accept"]);
        assert!(outside.directory.path().join("canary").exists());
        drop(waiting);
    }

    ///
    #[test]
    fn a_resolver_that_is_taken_over_sends_to_name_servers() {
        let outside = Outside::new();
        let surroundings = outside.surroundings();
        let (passed, listener) = passed_sockets();
        let server = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        let to = listener.local_addr().expect("bound");
        // Landlock of older kernels knows no ports.
        let has_ports = kernel_landlock::abi().expect("asked") >= 4;
        let to_server = server.local_addr().expect("bound");
        let attempt = || {
            let mut done = attempts(&surroundings);
            done.extend(more_attempts(&passed, to));
            if has_ports && TcpStream::connect(to).is_ok() {
                done.push("another port".to_owned());
            }
            let family = rustix::net::AddressFamily::INET;
            let socket = rustix::net::socket(family, rustix::net::SocketType::DGRAM, None);
            let sent = socket.and_then(|socket| {
                rustix::net::connect(&socket, &to_server)?;
                rustix::net::send(&socket, b"x", rustix::net::SendFlags::empty())
            });
            done.push(format!("sent: {sent:?}"));
            done
        };
        let done = taken_over_with(Role::Resolver, &[], &attempt);
        assert_eq!(
            done,
            [
                "has 5 others",
                "socket inet",
                "sendmsg",
                "recvmsg",
                "a stream",
                "a datagram",
                "sent: Ok(1)"
            ]
        );
        assert!(outside.directory.path().join("canary").exists());
    }

    ///
    #[test]
    fn a_fetcher_that_is_taken_over_connects_and_reaches_nothing_else() {
        use rustix::net::{AddressFamily, SocketType, socket};
        let outside = Outside::new();
        let surroundings = outside.surroundings();
        let attempt = || {
            let mut done = attempts(&surroundings);
            for (family, kind) in [
                (AddressFamily::UNIX, SocketType::STREAM),
                (AddressFamily::NETLINK, SocketType::RAW),
                (AddressFamily::PACKET, SocketType::RAW),
                (AddressFamily::INET, SocketType::RAW),
                (AddressFamily::VSOCK, SocketType::STREAM),
            ] {
                if socket(family, kind, None).is_ok() {
                    done.push(format!("a socket of {family:?} {kind:?}"));
                }
            }
            if std::thread::Builder::new().spawn(|| ()).is_ok() {
                done.push("a thread".to_owned());
            }
            done
        };
        assert_eq!(
            taken_over(Role::Fetcher, &attempt),
            ["has 5 others", "connect", "socket inet"]
        );
        assert!(outside.directory.path().join("canary").exists());
    }

    /// Where no namespace can be made it keeps the root, in which the filter lets it open nothing.
    #[test]
    fn the_root_of_a_fetcher_is_empty() {
        let look = || {
            let names = fs::read_dir("/").map(Iterator::count).ok();
            let made = fs::write("/new", "x").is_ok();
            vec![
                format!("{names:?} {made}"),
                format!("{:?}", fs::exists("/etc/passwd").ok()),
            ]
        };
        let enter = |_keep: &[RawFd]| {
            enter_empty_root()?;
            privileges::give_up_capabilities()?;
            Ok(ParsePermit::for_trusted_text())
        };
        assert_eq!(in_child(&enter, &look), ["Some(0) false", "Some(false)"]);
        let keep_root = |keep: &[RawFd]| refuse(&[UNSHARE, FSOPEN]).and_then(|()| enter(keep));
        assert_eq!(in_child(&keep_root, &look)[1], "Some(true)");
    }

    /// Where Landlock is missing too, it does not begin.
    #[test]
    fn without_a_root_of_its_own_it_opens_nothing_outside_either() {
        let abi = kernel_landlock::abi().expect("known");
        let inside = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        let canary = outside.path().join("canary");
        fs::write(&canary, "x").expect("written");
        let directory = fs::File::open(inside.path()).expect("opened");
        let attempt = || {
            let written = fs::write("own", "mine").map_err(|error| error.kind());
            let opened = [
                fs::read(&canary).is_ok(),
                fs::read("../../../etc/passwd").is_ok(),
                fs::write(outside.path().join("new"), "x").is_ok(),
                fs::remove_file(&canary).is_ok(),
                fs::rename("own", outside.path().join("own")).is_ok(),
            ];
            vec![format!("{written:?} {opened:?}")]
        };
        let unpacker = Role::Unpacker {
            directory: directory.as_fd(),
            ids: None,
        };
        for (role, abi_min) in [(Role::LayerUnpacker(directory.as_fd()), 2), (unpacker, 1)] {
            let found_without = |calls: &[u32]| {
                let confine = |keep: &[RawFd]| refuse(calls).and_then(|()| role.enter(keep));
                try_in_child(&confine, &attempt)
            };
            let in_directory = "Ok(()) [false, false, false, false, false]".to_owned();
            let expected = if abi >= abi_min {
                Ok(vec![in_directory])
            } else {
                Err(WorkerError::Exited)
            };
            assert_eq!(found_without(&[UNSHARE]), expected);
            let refused = found_without(&[UNSHARE, LANDLOCK_CREATE_RULESET]);
            assert_eq!(refused, Err(WorkerError::Exited));
        }
        assert!(canary.exists());
    }

    const UNSHARE: u32 = if cfg!(target_arch = "x86_64") {
        272
    } else {
        97
    };
    const FSOPEN: u32 = 430;
    const LANDLOCK_CREATE_RULESET: u32 = 444;

    /// No capability, and these calls fail.
    fn refuse(calls: &[u32]) -> Result<(), Errno> {
        use filter::bpf::{ALLOW, ERRNO, JUMP_EQUAL, LOAD, RETURN};
        privileges::give_up_capabilities()?;
        rustix::thread::set_no_new_privs(true)?;
        let mut program = vec![Instruction::new(LOAD, 0, 0, 0)];
        for call in calls {
            program.push(Instruction::new(JUMP_EQUAL, 0, 1, *call));
            program.push(Instruction::new(RETURN, 0, 0, ERRNO | 1));
        }
        program.push(Instruction::new(RETURN, 0, 0, ALLOW));
        seccomp::load(&program)
    }

    #[test]
    fn the_directory_that_it_fills_is_its_root_and_nobody_else_has_files() {
        let inside = tempfile::tempdir().expect("a directory");
        let directory = fs::File::open(inside.path()).expect("opened");
        let unpacker = Role::Unpacker {
            directory: directory.as_fd(),
            ids: None,
        };
        let attempt = || {
            let mode = rustix::fs::Mode::RWXU;
            rustix::fs::mkdirat(rustix::fs::CWD, "/etc", mode).expect("made");
            let written = fs::write("/etc/passwd", "mine");
            vec![format!("{written:?}")]
        };
        assert_eq!(taken_over(unpacker, &attempt), ["Ok(())"]);
        let written = fs::read_to_string(inside.path().join("etc/passwd"));
        assert_eq!(written.expect("read"), "mine");
        let refused = taken_over(Role::Reader, &|| {
            vec![format!(
                "{:?}",
                fs::write("x", "y").map_err(|error| error.kind())
            )]
        });
        assert_eq!(refused, ["Err(PermissionDenied)"]);
    }
}
