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
    /// The argument with AT_EMPTY_PATH. With it, the call is about a descriptor and not looked at.
    flags: Option<u8>,
    /// Whether the first path may be NULL, for a descriptor.
    may_be_null: bool,
}

/// The arguments of a call that signals one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalArguments {
    /// Each has the id of the process, or of its first thread, which is equal.
    ids: &'static [u8],
    pub number: u8,
}

/// A path among the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathArgument {
    /// The argument with the directory at which a relative path starts; `None`: the working directory.
    pub directory: Option<u8>,
    pub path: u8,
    /// The path is in an address of a unix socket, whose length this argument has. The first argument is the
    /// socket.
    pub address_length: Option<u8>,
    pub access: PathAccess,
    pub last_link: LastLink,
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

/// Numbers of `<linux/fcntl.h>`.
const AT_EMPTY_PATH: u32 = 0x1000;

use LastLink::{Follow, FollowWith, FollowWithout, Keep};
use PathAccess::{
    Connect, Create, Execute, Inspect, Open, Overwrite, Read, Remove, Replace, Write,
};

const fn path(path: u8, access: PathAccess, last_link: LastLink) -> PathArgument {
    PathArgument {
        directory: None,
        path,
        address_length: None,
        access,
        last_link,
    }
}

const fn address(access: PathAccess, last_link: LastLink) -> PathArgument {
    PathArgument {
        address_length: Some(2),
        ..path(1, access, last_link)
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
        flags: None,
        may_be_null: false,
    }
}

const fn signal(name: &'static str, ids: &'static [u8], number: u8) -> TracedCall {
    TracedCall {
        signal: Some(SignalArguments { ids, number }),
        ..call(name, &[])
    }
}

const fn with_flags(call: TracedCall, flags: u8) -> TracedCall {
    TracedCall {
        flags: Some(flags),
        ..call
    }
}

/// The traced calls. openat2(2) is not among them: no body may use it. Of the calls that signal a process, only
/// those whose registers decide.
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
    call("connect", &[address(Connect, Follow)]),
    call("bind", &[address(Create, Keep)]),
    signal("kill", &[0], 1),
    signal("tkill", &[0], 1),
    signal("tgkill", &[0, 1], 2),
];

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
        self.signal.map(|signal| Case {
            when: signal.ids.iter().map(is_first).collect(),
            then: Decision::Allow,
        })
    }

    /// The calls of this name that are about a descriptor: the listener is not asked.
    pub(crate) fn unseen(&self) -> Vec<Case> {
        let case = |when| Case {
            when,
            then: Decision::Allow,
        };
        let of_descriptor = self.flags.map(|argument| {
            case(vec![Condition {
                argument,
                upper: false,
                mask: AT_EMPTY_PATH,
                one_of: vec![AT_EMPTY_PATH],
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
        of_descriptor.into_iter().chain(null).collect()
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
