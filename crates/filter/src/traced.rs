//! The calls that name a path or signal a process, and where their arguments are: what a traced run asks its
//! listener about.

use crate::policy::{Case, Condition, Decision};

/// A call whose paths or signal are looked at before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedCall {
    pub name: &'static str,
    pub paths: &'static [PathArgument],
    /// The call signals one process. It is looked at only if that is process 1.
    pub signal: Option<SignalArguments>,
    /// With this flag, the call is not looked at.
    unseen_with: Option<Flag>,
    /// Whether the first path may be NULL: the call is about a descriptor, or a socket that is connected.
    may_be_null: bool,
}

/// A flag among the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flag {
    argument: u8,
    bit: u32,
}

/// The arguments of a call that signals one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalArguments {
    pub target: SignalTarget,
    pub number: u8,
    /// The address of a siginfo_t.
    pub info: Option<u8>,
}

/// The process that a call signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalTarget {
    /// Each argument has the id of the process, or of its first thread, which is equal.
    Ids(&'static [u8]),
    /// A pidfd, and the flags that say what of its process is signalled.
    Pidfd { descriptor: u8, flags: u8 },
}

/// A path among the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathArgument {
    /// The argument with the directory at which a relative path starts; `None`: the working directory.
    pub directory: Option<u8>,
    pub path: u8,
    /// The path is in an address of a unix socket. The first argument is the socket.
    pub address: Option<SocketAddress>,
    pub access: PathAccess,
    pub last_link: LastLink,
}

/// Where the address of a socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketAddress {
    /// At the address in the argument of the path; this argument has its length.
    WithLength(u8),
    /// In the `struct msghdr` at the address in the argument of the path.
    OfMessage,
}

/// What a call does with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathAccess {
    Inspect,
    Read,
    Write,
    /// Fails if it exists.
    Create,
    /// Creates it, or replaces what exists.
    Replace,
    Remove,
    Execute,
    /// connect(2).
    Connect,
    /// Sends to the socket there, if the first argument is a datagram socket. Others ignore or refuse the path.
    Send,
    /// The argument with the flags of open(2).
    Open(u8),
    /// creat(2).
    Overwrite,
}

/// Whether a link at the end of the path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    Follow,
    Keep,
    /// Followed without AT_SYMLINK_NOFOLLOW in this argument.
    FollowWithout(u8),
    /// Followed with AT_SYMLINK_FOLLOW in this argument.
    FollowWith(u8),
}

/// `<linux/fcntl.h>`: the call is about a descriptor.
const AT_EMPTY_PATH: u32 = 0x1000;
/// MSG_EOR. Messages with it are not looked at: init sends the listener under the filter, while nobody can answer.
/// It means nothing for datagrams.
pub const UNSEEN_MESSAGE: u32 = 0x80;

use LastLink::{Follow, FollowWith, FollowWithout, Keep};
use PathAccess::{
    Connect, Create, Execute, Inspect, Open, Overwrite, Read, Remove, Replace, Send, Write,
};
use SignalTarget::{Ids, Pidfd};
use SocketAddress::{OfMessage, WithLength};

const fn path(path: u8, access: PathAccess, last_link: LastLink) -> PathArgument {
    PathArgument {
        directory: None,
        path,
        address: None,
        access,
        last_link,
    }
}

const fn address(path_argument: PathArgument, address: SocketAddress) -> PathArgument {
    PathArgument {
        address: Some(address),
        ..path_argument
    }
}

const fn at(directory: u8, access: PathAccess, last_link: LastLink) -> PathArgument {
    PathArgument {
        directory: Some(directory),
        ..path(directory + 1, access, last_link)
    }
}

const fn call(name: &'static str, paths: &'static [PathArgument]) -> TracedCall {
    TracedCall {
        name,
        paths,
        signal: None,
        unseen_with: None,
        may_be_null: false,
    }
}

const fn signal(name: &'static str, target: SignalTarget, number: u8) -> TracedCall {
    TracedCall {
        signal: Some(SignalArguments {
            target,
            number,
            info: None,
        }),
        ..call(name, &[])
    }
}

/// As [`signal`], with a siginfo_t in the argument after the number.
const fn signal_with(name: &'static str, target: SignalTarget, number: u8) -> TracedCall {
    TracedCall {
        signal: Some(SignalArguments {
            target,
            number,
            info: Some(number + 1),
        }),
        ..call(name, &[])
    }
}

const fn unseen_with(call: TracedCall, argument: u8, bit: u32) -> TracedCall {
    TracedCall {
        unseen_with: Some(Flag { argument, bit }),
        ..call
    }
}

const fn with_flags(call: TracedCall, argument: u8) -> TracedCall {
    unseen_with(call, argument, AT_EMPTY_PATH)
}

/// The traced calls. openat2(2) is not among them: no body may use it. sendmmsg(2) is not: it has many addresses,
/// and the kernel stops at the first one that fails.
pub const TRACED_CALLS: &[TracedCall] = &[
    call("open", &[path(0, Open(1), Follow)]),
    call("openat", &[at(0, Open(2), Follow)]),
    call("creat", &[path(0, Overwrite, Follow)]),
    call("stat", &[path(0, Inspect, Follow)]),
    call("lstat", &[path(0, Inspect, Keep)]),
    with_flags(call("newfstatat", &[at(0, Inspect, FollowWithout(3))]), 3),
    with_flags(call("statx", &[at(0, Inspect, FollowWithout(2))]), 2),
    call("statfs", &[path(0, Inspect, Follow)]),
    call("access", &[path(0, Inspect, Follow)]),
    call("faccessat", &[at(0, Inspect, Follow)]),
    with_flags(call("faccessat2", &[at(0, Inspect, FollowWithout(3))]), 3),
    call("readlink", &[path(0, Inspect, Keep)]),
    call("readlinkat", &[at(0, Inspect, Keep)]),
    call("chdir", &[path(0, Inspect, Follow)]),
    call("inotify_add_watch", &[path(1, Inspect, Follow)]),
    call("execve", &[path(0, Execute, Follow)]),
    with_flags(call("execveat", &[at(0, Execute, FollowWithout(4))]), 4),
    call("mkdir", &[path(0, Create, Keep)]),
    call("mkdirat", &[at(0, Create, Keep)]),
    call("mknod", &[path(0, Create, Keep)]),
    call("mknodat", &[at(0, Create, Keep)]),
    call("symlink", &[path(1, Create, Keep)]),
    call("symlinkat", &[at(1, Create, Keep)]),
    call("link", &[path(0, Read, Keep), path(1, Create, Keep)]),
    call("linkat", &[at(0, Read, FollowWith(4)), at(2, Create, Keep)]),
    call("rename", &[path(0, Remove, Keep), path(1, Replace, Keep)]),
    call("renameat", &[at(0, Remove, Keep), at(2, Replace, Keep)]),
    call("renameat2", &[at(0, Remove, Keep), at(2, Replace, Keep)]),
    call("unlink", &[path(0, Remove, Keep)]),
    call("unlinkat", &[at(0, Remove, Keep)]),
    call("rmdir", &[path(0, Remove, Keep)]),
    call("truncate", &[path(0, Write, Follow)]),
    call("chmod", &[path(0, Write, Follow)]),
    call("fchmodat", &[at(0, Write, Follow)]),
    with_flags(call("fchmodat2", &[at(0, Write, FollowWithout(3))]), 3),
    call("chown", &[path(0, Write, Follow)]),
    call("lchown", &[path(0, Write, Keep)]),
    with_flags(call("fchownat", &[at(0, Write, FollowWithout(4))]), 4),
    call("utime", &[path(0, Write, Follow)]),
    call("utimes", &[path(0, Write, Follow)]),
    TracedCall {
        may_be_null: true,
        ..call("futimesat", &[at(0, Write, Follow)])
    },
    TracedCall {
        may_be_null: true,
        ..with_flags(call("utimensat", &[at(0, Write, FollowWithout(3))]), 3)
    },
    call("getxattr", &[path(0, Inspect, Follow)]),
    call("lgetxattr", &[path(0, Inspect, Keep)]),
    with_flags(call("getxattrat", &[at(0, Inspect, FollowWithout(2))]), 2),
    call("listxattr", &[path(0, Inspect, Follow)]),
    call("llistxattr", &[path(0, Inspect, Keep)]),
    with_flags(call("listxattrat", &[at(0, Inspect, FollowWithout(2))]), 2),
    call("setxattr", &[path(0, Write, Follow)]),
    call("lsetxattr", &[path(0, Write, Keep)]),
    with_flags(call("setxattrat", &[at(0, Write, FollowWithout(2))]), 2),
    call("removexattr", &[path(0, Write, Follow)]),
    call("lremovexattr", &[path(0, Write, Keep)]),
    with_flags(call("removexattrat", &[at(0, Write, FollowWithout(2))]), 2),
    call(
        "connect",
        &[address(path(1, Connect, Follow), WithLength(2))],
    ),
    call("bind", &[address(path(1, Create, Keep), WithLength(2))]),
    TracedCall {
        may_be_null: true,
        ..call("sendto", &[address(path(4, Send, Follow), WithLength(5))])
    },
    unseen_with(
        call("sendmsg", &[address(path(1, Send, Follow), OfMessage)]),
        2,
        UNSEEN_MESSAGE,
    ),
    signal("kill", Ids(&[0]), 1),
    signal("tkill", Ids(&[0]), 1),
    signal("tgkill", Ids(&[0, 1]), 2),
    signal_with("rt_sigqueueinfo", Ids(&[0]), 1),
    signal_with("rt_tgsigqueueinfo", Ids(&[0, 1]), 2),
    signal_with("pidfd_send_signal", OF_PIDFD, 1),
];

const OF_PIDFD: SignalTarget = Pidfd {
    descriptor: 0,
    flags: 3,
};

impl TracedCall {
    /// The traced call of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TRACED_CALLS.iter().find(|call| call.name == name)
    }

    /// The only calls of this name about which the listener is asked; `None`: about all but
    /// [`TracedCall::unseen`].
    pub(crate) fn seen(&self) -> Option<Case> {
        let is_first = |argument: &u8| Condition {
            argument: *argument,
            upper: false,
            mask: u32::MAX,
            one_of: vec![1],
        };
        match self.signal?.target {
            Ids(ids) => Some(Case {
                when: ids.iter().map(is_first).collect(),
                then: Decision::Allow,
            }),
            Pidfd { .. } => None,
        }
    }

    /// The calls of this name about which the listener is not asked: most have no path.
    pub(crate) fn unseen(&self) -> Vec<Case> {
        let case = |when| Case {
            when,
            then: Decision::Allow,
        };
        let with_flag = self.unseen_with.map(|Flag { argument, bit }| {
            case(vec![Condition {
                argument,
                upper: false,
                mask: bit,
                one_of: vec![bit],
            }])
        });
        let null = self.paths.first().filter(|_| self.may_be_null).map(|path| {
            let half = |upper| Condition {
                argument: path.path,
                upper,
                mask: u32::MAX,
                one_of: vec![0],
            };
            case(vec![half(false), half(true)])
        });
        with_flag.into_iter().chain(null).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arch, default_policy};

    #[test]
    fn each_traced_call_is_known_once() {
        let policies = Arch::ALL.map(|arch| default_policy(arch).expect("a policy"));
        for (index, call) in TRACED_CALLS.iter().enumerate() {
            let is_known = policies
                .iter()
                .any(|policy| policy.number_of(call.name).is_some());
            assert!(is_known, "{}", call.name);
            let later = &TRACED_CALLS[index + 1..];
            assert!(later.iter().all(|other| other.name != call.name));
        }
    }
}
