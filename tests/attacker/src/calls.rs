//! System calls without a library between them and the kernel.

use std::ffi::{CStr, c_long};

/// A call that changes nothing if it succeeds, by name: its number and arguments.
type Call = (&'static str, c_long, [c_long; 4]);

const NOTHING: c_long = -1;

/// Calls that a process without rights has no use for. `supervisor` is the parent.
pub(crate) fn harmless(supervisor: c_long) -> Vec<Call> {
    [on_processes(supervisor), on_the_host()].concat()
}

/// No directory has this name.
const PATH: &CStr = c"/planted-bug/none";

fn on_processes(supervisor: c_long) -> Vec<Call> {
    let path = PATH.as_ptr() as c_long;
    vec![
        // Other processes.
        ("kill", libc::SYS_kill, [supervisor, 0, 0, 0]),
        ("tgkill", libc::SYS_tgkill, [supervisor, supervisor, 0, 0]),
        ("pidfd_open", libc::SYS_pidfd_open, [supervisor, 0, 0, 0]),
        (
            "pidfd_send_signal",
            libc::SYS_pidfd_send_signal,
            [NOTHING, 0, 0, 0],
        ),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, [NOTHING, 0, 0, 0]),
        // PTRACE_SEIZE: the supervisor is not stopped.
        ("ptrace", libc::SYS_ptrace, [0x4206, supervisor, 0, 0]),
        (
            "process_vm_readv",
            libc::SYS_process_vm_readv,
            [supervisor, 0, 0, 0],
        ),
        (
            "process_vm_writev",
            libc::SYS_process_vm_writev,
            [supervisor, 0, 0, 0],
        ),
        (
            "process_madvise",
            libc::SYS_process_madvise,
            [NOTHING, 0, 0, 0],
        ),
        ("kcmp", libc::SYS_kcmp, [supervisor, supervisor, 0, 0]),
        ("prlimit64", libc::SYS_prlimit64, [supervisor, 0, 0, 0]),
        (
            "sched_setaffinity",
            libc::SYS_sched_setaffinity,
            [supervisor, 0, 0, 0],
        ),
        ("setpriority", libc::SYS_setpriority, [0, supervisor, 19, 0]),
        ("fcntl F_SETOWN", libc::SYS_fcntl, [0, 8, supervisor, 0]),
        // Programs and processes.
        ("execve", libc::SYS_execve, [path, 0, 0, 0]),
        ("execveat", libc::SYS_execveat, [NOTHING, path, 0, 0]),
        ("clone3", libc::SYS_clone3, [0, 0, 0, 0]),
        ("setsid", libc::SYS_setsid, [0, 0, 0, 0]),
        // PR_SET_PDEATHSIG.
        ("prctl", libc::SYS_prctl, [1, 0, 0, 0]),
    ]
}

fn on_the_host() -> Vec<Call> {
    let path = PATH.as_ptr() as c_long;
    let parent = c"..".as_ptr() as c_long;
    vec![
        // Rights.
        ("setns", libc::SYS_setns, [NOTHING, 0, 0, 0]),
        ("chroot", libc::SYS_chroot, [parent, 0, 0, 0]),
        ("pivot_root", libc::SYS_pivot_root, [path, path, 0, 0]),
        (
            "mount",
            libc::SYS_mount,
            [0, path, 0, libc::MS_BIND.cast_signed()],
        ),
        ("umount2", libc::SYS_umount2, [path, 0, 0, 0]),
        ("fsopen", libc::SYS_fsopen, [path, 0, 0, 0]),
        ("open_tree", libc::SYS_open_tree, [NOTHING, path, 0, 0]),
        ("setuid", libc::SYS_setuid, [0, 0, 0, 0]),
        ("setgroups", libc::SYS_setgroups, [0, 0, 0, 0]),
        (
            "open_by_handle_at",
            libc::SYS_open_by_handle_at,
            [NOTHING, 0, 0, 0],
        ),
        // Sockets and other channels.
        (
            "socket inet",
            libc::SYS_socket,
            [libc::AF_INET as c_long, libc::SOCK_STREAM as c_long, 0, 0],
        ),
        (
            "socket unix",
            libc::SYS_socket,
            [libc::AF_UNIX as c_long, libc::SOCK_STREAM as c_long, 0, 0],
        ),
        (
            "socket netlink",
            libc::SYS_socket,
            [libc::AF_NETLINK as c_long, libc::SOCK_RAW as c_long, 0, 0],
        ),
        ("sendmsg", libc::SYS_sendmsg, [NOTHING, 0, 0, 0]),
        ("recvmsg", libc::SYS_recvmsg, [NOTHING, 0, 0, 0]),
        ("ioctl", libc::SYS_ioctl, [NOTHING, 0, 0, 0]),
        ("shmget", libc::SYS_shmget, [NOTHING, 0, 0, 0]),
        ("msgget", libc::SYS_msgget, [NOTHING, 0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, [NOTHING, 0, 0, 0]),
        ("memfd_create", libc::SYS_memfd_create, [0, 0, 0, 0]),
        // Parts of the kernel.
        ("bpf", libc::SYS_bpf, [NOTHING, 0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [0, 0, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [0, 0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [NOTHING, 0, 0, 0]),
        ("inotify_init1", libc::SYS_inotify_init1, [NOTHING, 0, 0, 0]),
        // Files beyond those that an archive has.
        (
            "mknodat",
            libc::SYS_mknodat,
            [NOTHING, path, libc::S_IFIFO as c_long, 0],
        ),
        ("linkat", libc::SYS_linkat, [NOTHING, path, NOTHING, path]),
        (
            "renameat2",
            libc::SYS_renameat2,
            [NOTHING, path, NOTHING, path],
        ),
        ("fchownat", libc::SYS_fchownat, [NOTHING, path, 0, 0]),
        ("setxattr", libc::SYS_setxattr, [path, path, 0, 0]),
        // Last: it takes rights away.
        (
            "unshare",
            libc::SYS_unshare,
            [libc::CLONE_NEWUSER as c_long, 0, 0, 0],
        ),
    ]
}

/// Whether the kernel carried out the call, or looked at its arguments. Refused calls fail with EPERM,
/// EACCES or ENOSYS, before anything else.
pub(crate) fn reaches_the_kernel((_, number, [a, b, c, d]): Call) -> bool {
    // SAFETY: no call of the table writes to memory of this process.
    let result = unsafe { libc::syscall(number, a, b, c, d, 0_i64) };
    let refused = [libc::EPERM, libc::EACCES, libc::ENOSYS];
    result >= 0 || !refused.contains(&errno())
}

fn errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or_default()
}

/// Whether a second process was made, which outlives this one for a time.
pub(crate) fn fork() -> bool {
    // SAFETY: the child only makes system calls.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if pid == 0 {
        // SAFETY: no pointers.
        unsafe { libc::sleep(5) };
        exit();
    }
    pid > 0
}

/// The type of a descriptor that is not a socket, where fstat(2) is refused.
pub(crate) const UNKNOWN: u32 = 0;

/// The open descriptors and their types (S_IFMT).
pub(crate) fn descriptors() -> Vec<(i32, u32)> {
    let kind = |descriptor: i32| {
        // SAFETY: all zeros are a `stat`.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // Not that of the C library, which makes another call.
        // SAFETY: a `stat` to write to, which is the kernel's on 64 bits.
        let result = unsafe { libc::syscall(libc::SYS_fstat, descriptor, &raw mut status) };
        match (result, errno()) {
            (0, _) => Some((descriptor, status.st_mode & libc::S_IFMT)),
            (_, libc::EBADF) => None,
            _ => kind_otherwise(descriptor).map(|kind| (descriptor, kind)),
        }
    };
    (0..1024).filter_map(kind).collect()
}

/// The type of an open descriptor, without fstat(2).
fn kind_otherwise(descriptor: i32) -> Option<u32> {
    let mut error: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of_val(&error)).unwrap_or_default();
    // SAFETY: a number to write to, and its length.
    let asked = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &raw mut length,
        )
    };
    match (asked, errno()) {
        (0, _) => Some(libc::S_IFSOCK),
        (_, libc::ENOTSOCK) => Some(UNKNOWN),
        _ => None,
    }
}

/// Whether `path` can be opened beneath the descriptor.
pub(crate) fn opens_beneath(descriptor: i32, path: &std::ffi::CStr) -> bool {
    // SAFETY: a path with its end.
    let opened =
        unsafe { libc::openat(descriptor, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if opened >= 0 {
        // SAFETY: opened above.
        unsafe { libc::close(opened) };
    }
    opened >= 0
}

/// Writes to each pipe and socket that can be written. Returns whether one took all bytes.
///
/// The supervisor, which may end this process for it, is the last to get it.
pub(crate) fn answer(bytes: &[u8]) -> bool {
    let mut is_taken = false;
    let mut open = descriptors();
    open.sort_by_key(|(descriptor, _)| !leads_to_a_host(*descriptor));
    for (descriptor, kind) in open {
        // SAFETY: no pointers.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        let is_written = flags & libc::O_ACCMODE != libc::O_RDONLY;
        // The standard streams are devices.
        let is_channel = match kind {
            libc::S_IFIFO | libc::S_IFSOCK => true,
            kind => kind == UNKNOWN && descriptor > 2,
        };
        if !is_channel || !is_written {
            continue;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(count) = write(descriptor, rest) else {
                break;
            };
            rest = &rest[count..];
        }
        is_taken |= rest.is_empty();
    }
    is_taken
}

/// One of both calls is allowed.
fn write(descriptor: i32, bytes: &[u8]) -> Option<usize> {
    // SAFETY: bytes of this length.
    let count = unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) };
    if let Ok(count) = usize::try_from(count) {
        return Some(count);
    }
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeros are a message without an address and without parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    // SAFETY: a message with one part, which the kernel reads.
    let count = unsafe { libc::sendmsg(descriptor, &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(count).ok()
}

/// Reads each pipe that can be read to its end.
pub(crate) fn read_all() {
    let mut buffer = [0_u8; 4096];
    for (descriptor, kind) in descriptors() {
        // SAFETY: no pointers.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        if kind != libc::S_IFIFO || flags & libc::O_ACCMODE != libc::O_RDONLY {
            continue;
        }
        // SAFETY: bytes of this length.
        while unsafe { libc::read(descriptor, buffer.as_mut_ptr().cast(), buffer.len()) } > 0 {}
    }
}

/// Whether it is a socket of the internet.
fn leads_to_a_host(descriptor: i32) -> bool {
    // One of both calls is allowed.
    let is_internet = |number| {
        // SAFETY: all zeros are an address.
        let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or_default();
        // SAFETY: an address to write to, and its length.
        let result =
            unsafe { libc::syscall(number, descriptor, &raw mut address, &raw mut length) };
        let family = i32::from(address.ss_family);
        result == 0 && [libc::AF_INET, libc::AF_INET6].contains(&family)
    };
    is_internet(libc::SYS_getpeername) || is_internet(libc::SYS_getsockname)
}

/// Does nothing, for ever.
pub(crate) fn stay() -> ! {
    loop {
        // SAFETY: no descriptors.
        unsafe { libc::poll(std::ptr::null_mut(), 0, 1000) };
    }
}

pub(crate) fn exit() -> ! {
    // SAFETY: ends the process; nothing of it is needed any more.
    unsafe { libc::_exit(0) }
}
