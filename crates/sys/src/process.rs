//! Processes: clone3(2), the vfork-style clone(2), wait4(2), pidfd_send_signal(2), execve(2).

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

use super::arena::StringArray;
use super::cgroup::CLONE_INTO_CGROUP;
use super::file::errno_of;
use super::mount::c_string;

/// Result of [`fork_into`]: parent or child.
#[derive(Debug)]
pub enum Forked {
    Parent {
        pid: i32,
        /// Readable once the child has ended.
        pidfd: OwnedFd,
    },
    Child,
}

/// Forks with clone3(2) and without shared memory. The child has default signal handlers.
///
/// `namespaces` holds CLONE_NEW… flags; `into_cgroup` is an open directory of a version 2 cgroup.
///
/// # Safety
/// The calling process must have one thread: a lock that another thread holds stays locked in the
/// child.
///
/// # Errors
/// The errno of clone3(2): EPERM or ENOSPC without user namespaces, EAGAIN at a process limit,
/// EINVAL for an unknown flag.
pub unsafe fn fork_into(
    namespaces: u64,
    into_cgroup: Option<BorrowedFd<'_>>,
) -> Result<Forked, Errno> {
    const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
    const CLONE_PIDFD: u64 = 0x1000;
    let mut pidfd: RawFd = -1;
    // SAFETY: clone_args is plain integers; all zero is valid.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = namespaces | CLONE_PIDFD | CLONE_CLEAR_SIGHAND;
    arguments.pidfd = (&raw mut pidfd) as u64;
    arguments.exit_signal = libc::SIGCHLD.cast_unsigned().into();
    if let Some(group) = into_cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::from(group.as_raw_fd().cast_unsigned());
    }
    // SAFETY: the structure lives across the call, its size is passed, and without CLONE_VM the
    // child has a copy of this stack; the caller guarantees the single thread.
    let pid = check(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw mut arguments,
            size_of_val(&arguments),
        )
    })?;
    if pid == 0 {
        return Ok(Forked::Child);
    }
    // SAFETY: the kernel just made this descriptor; it has no other owner.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Forked::Parent {
        pid: i32::try_from(pid).map_err(|_range| Errno::RANGE)?,
        pidfd,
    })
}

/// Forks with fork(2). Returns the pid of the child, and `None` in the child. Fails with EAGAIN at a
/// process limit, ENOMEM.
///
/// # Safety
/// The calling process must have one thread, as for [`fork_into`].
pub unsafe fn fork() -> Result<Option<i32>, Errno> {
    // SAFETY: takes no argument; the caller guarantees the single thread.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        pid if 0 < pid => Ok(Some(pid)),
        _ => Err(last_errno()),
    }
}

/// Starts a child with clone(2), CLONE_VM and CLONE_VFORK. `child` runs on `stack` in the caller's
/// memory while the caller is suspended, until it calls execve or exits. Returns the pid.
///
/// # Safety
/// `child` may change only memory that the caller expects to change, and `stack` must be large
/// enough.
pub unsafe fn vfork_onto<T>(
    stack: &mut [u8],
    child: fn(&T) -> !,
    argument: &T,
) -> Result<i32, Errno> {
    struct Call<'a, T> {
        child: fn(&T) -> !,
        argument: &'a T,
    }
    // A panic ends the process here: it cannot unwind out of `extern "C"`.
    extern "C" fn enter<T>(call: *mut c_void) -> c_int {
        // SAFETY: the argument below is a `Call`, which lives until this process has left its
        // memory.
        let call = unsafe { &*call.cast_const().cast::<Call<'_, T>>() };
        (call.child)(call.argument)
    }
    let call = Call { child, argument };
    let top = stack.as_mut_ptr_range().end;
    let aligned = top.wrapping_sub(top.addr() % 16);
    // SAFETY: the stack is exclusively borrowed and its aligned top is passed, because stacks grow
    // downwards; the caller guarantees the function.
    let pid = unsafe {
        libc::clone(
            enter::<T>,
            aligned.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw const call).cast_mut().cast(),
        )
    };
    if pid < 0 { Err(last_errno()) } else { Ok(pid) }
}

/// Executes a program with execve(2). Returns only on failure.
pub fn execve(program: &CStr, argv: StringArray<'_>, environment: StringArray<'_>) -> Errno {
    // SAFETY: the program is a C string, and the type holds null-terminated arrays of such.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
    last_errno()
}

/// Ends the process at once, without handlers, destructors or flushing.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// Status and usage of an ended child, from wait4(2).
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub pid: i32,
    pub raw_status: i32,
    /// User CPU time of the child and of the children that it waited for, microseconds.
    pub user_time_us: u64,
    /// System CPU time, likewise.
    pub system_time_us: u64,
}

/// Waits for `pid` (-1: any child) with wait4(2). Returns `None` if `block` is false and no child
/// has ended. Fails with ECHILD if the child does not exist.
pub fn wait(pid: i32, block: bool) -> Result<Option<Ended>, Errno> {
    let mut raw_status = 0;
    // SAFETY: rusage is plain integers; all zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let flags = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: both out-parameters live across the call.
        let ended = unsafe { libc::wait4(pid, &raw mut raw_status, flags, &raw mut usage) };
        match ended {
            0 => return Ok(None),
            ended if 0 < ended => {
                return Ok(Some(Ended {
                    pid: ended,
                    raw_status,
                    user_time_us: microseconds(usage.ru_utime),
                    system_time_us: microseconds(usage.ru_stime),
                }));
            }
            _ => match last_errno() {
                Errno::INTR => (),
                errno => return Err(errno),
            },
        }
    }
}

fn microseconds(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
}

/// Sends a signal with kill(2). A negative `pid` means a process group. Fails with ESRCH if the
/// process does not exist.
pub fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: integers only.
    if unsafe { libc::kill(pid, signal) } < 0 {
        Err(last_errno())
    } else {
        Ok(())
    }
}

/// The session of a process (getsid(2)); 0: it began outside of this pid namespace.
pub fn session_of(pid: i32) -> Result<i32, Errno> {
    // SAFETY: integers only.
    let session = unsafe { libc::getsid(pid) };
    if session < 0 {
        Err(last_errno())
    } else {
        Ok(session)
    }
}

/// Closes every descriptor except those in `keep`, which must be sorted (close_range(2)). Allocates
/// nothing.
pub fn close_all_but(keep: &[RawFd]) -> Result<(), Errno> {
    let mut first: u32 = 0;
    for fd in keep {
        let fd = fd.cast_unsigned();
        if first < fd {
            close_range(first, fd - 1, 0)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX, 0)
}

/// Marks every descriptor from `first` on close-on-exec, so that descriptors leaked by the caller
/// do not reach the child (close_range(2)).
pub fn close_on_exec_from(first: u32) -> Result<(), Errno> {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    close_range(first, u32::MAX, CLOSE_RANGE_CLOEXEC)
}

fn close_range(first: u32, last: u32, flags: u32) -> Result<(), Errno> {
    // SAFETY: integers only. The caller asks for the descriptors to be closed.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).map(|_zero| ())
}

/// First version of `struct sched_attr` (48 bytes), which every kernel accepts.
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// The kernel's minimum time slice.
const SLICE_NS: u64 = 100_000;

/// Requests a short time slice, so that this thread runs soon after it is woken (sched_setattr(2),
/// Linux 6.12; older kernels ignore it). Its share of the CPU stays the same, and children do not
/// inherit the slice. Ignores errors.
///
/// A body that starts many sessions creates as many scheduler groups (sched(7), autogroups), and the
/// supervisor would wait for its turn among them.
pub fn request_short_slice() {
    const SIZE: u32 = 48;
    const RESET_ON_FORK: u64 = 1;
    const { assert!(size_of::<SchedulingAttributes>() == SIZE as usize) };
    let mut attributes = SchedulingAttributes::default();
    let pointer = &raw mut attributes;
    // SAFETY: the kernel writes at most SIZE bytes, the size of the structure.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, pointer, SIZE, 0) };
    // Keep a policy that the caller chose.
    if result != 0 || attributes.policy != libc::SCHED_OTHER.unsigned_abs() {
        return;
    }
    attributes.size = SIZE;
    attributes.flags |= RESET_ON_FORK;
    attributes.runtime_ns = SLICE_NS;
    // SAFETY: the structure lives across the call and holds its own size.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// A raised OOM score adjustment of this process (proc_pid_oom_score_adj(5)), which a clone inherits.
///
/// If this process has CAP_SYS_RESOURCE, the raised value is also the least that the clone can set.
#[derive(Debug)]
pub struct RaisedOomScore {
    file: OwnedFd,
    before: i32,
}

impl RaisedOomScore {
    /// Raises it to `by` above the present one or 0, at most to 1000. Needs no privilege.
    ///
    /// # Errors
    /// The errno of open(2), read(2) or write(2); EPROTO for a malformed file.
    pub fn raise(by: i32) -> Result<Self, Errno> {
        let path = c"/proc/self/oom_score_adj";
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty())?;
        let mut text = [0; 16];
        let count = rustix::io::read(&file, &mut text)?;
        let before = str::from_utf8(&text[..count]).map_err(|_not_text| Errno::PROTO)?;
        let before = before.trim().parse().map_err(|_malformed| Errno::PROTO)?;
        let raised = Self { file, before };
        raised.set(raised_oom_score(before, by))?;
        Ok(raised)
    }

    /// Restores the former value.
    ///
    /// # Errors
    /// The errno of write(2).
    pub fn restore(self) -> Result<(), Errno> {
        self.set(self.before)
    }

    fn set(&self, value: i32) -> Result<(), Errno> {
        let mut text = [0; 16];
        let text = c_string(&mut text, format_args!("{value}"))?;
        rustix::io::write(&self.file, text.to_bytes()).map(|_written| ())
    }
}

fn raised_oom_score(present: i32, by: i32) -> i32 {
    present.max(0).saturating_add(by).min(1000)
}

pub(super) fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result < 0 {
        Err(last_errno())
    } else {
        Ok(result)
    }
}

pub(super) fn last_errno() -> Errno {
    errno_of(&std::io::Error::last_os_error())
}

/// Fills `bytes` from getrandom(2). Fails with EIO for fewer bytes than requested.
pub fn random(bytes: &mut [u8]) -> Result<(), Errno> {
    let filled = rustix::rand::getrandom(&mut *bytes, GetRandomFlags::empty())?;
    if filled == bytes.len() {
        Ok(())
    } else {
        Err(Errno::IO)
    }
}

/// Sixteen unpredictable hexadecimal digits, for a name that nobody can guess.
pub fn random_digits() -> Result<String, Errno> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Uptime of the host by the monotonic and by the boot clock, seconds rounded down.
#[must_use]
pub fn uptimes_s() -> [u64; 2] {
    use rustix::time::{ClockId, clock_gettime};
    [ClockId::Monotonic, ClockId::Boottime]
        .map(|clock| u64::try_from(clock_gettime(clock).tv_sec).unwrap_or(0))
}

/// The monotonic clock of this process's time namespace, nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Memory area of this process's arguments and environment.
///
/// Every process of the pid namespace can read the arguments in /proc/PID/cmdline, even of a process
/// that is not dumpable, so secrets of the caller must be erased. Root and processes of the same uid
/// can read the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentArea {
    arguments: (usize, usize),
    environment: (usize, usize),
}

impl ArgumentArea {
    /// Reads `arg_start`, `arg_end`, `env_start` and `env_end` of /proc/self/stat
    /// (proc_pid_stat(5), Linux 3.5), once: a process keeps its area, and a forked one has the same.
    ///
    /// # Errors
    /// The errno of open(2) or read(2); EINVAL if the fields are missing.
    pub fn of_this_process() -> Result<Self, Errno> {
        static AREA: OnceLock<ArgumentArea> = OnceLock::new();
        match AREA.get() {
            Some(area) => Ok(*area),
            None => Self::read().map(|area| *AREA.get_or_init(|| area)),
        }
    }

    fn read() -> Result<Self, Errno> {
        let text = std::fs::read("/proc/self/stat").map_err(|error| errno_of(&error))?;
        let text = String::from_utf8_lossy(&text);
        // The second field is a name in parentheses, which may itself contain parentheses and
        // spaces.
        let (_, after_name) = text.rsplit_once(')').ok_or(Errno::INVAL)?;
        let mut fields = after_name.split_ascii_whitespace().skip(48 - 3);
        let mut address = || {
            fields
                .next()
                .and_then(|field| field.parse::<usize>().ok())
                .ok_or(Errno::INVAL)
        };
        let mut area = || {
            let (start, end) = (address()?, address()?);
            let bytes = end.checked_sub(start).ok_or(Errno::INVAL)?;
            Ok((start, bytes))
        };
        Ok(Self {
            arguments: area()?,
            environment: area()?,
        })
    }

    /// Replaces the arguments by `name` and clears the environment in this process's memory.
    pub fn overwrite(self, name: &[u8]) {
        for ((start, bytes), text) in [(self.arguments, name), (self.environment, b"")] {
            let area = std::ptr::with_exposed_provenance_mut::<u8>(start);
            for offset in 0..bytes {
                let byte = text.get(offset).copied().unwrap_or(0);
                // SAFETY: the kernel reported the bounds of both areas. The standard library copies
                // arguments; it keeps pointers to the environment, which now point to empty
                // strings.
                unsafe { area.wrapping_add(offset).write_volatile(byte) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oom_score_is_never_lowered() {
        let scores = [-1000, -500, 0, 200, 937, 1000].map(|present| raised_oom_score(present, 300));
        assert_eq!(scores, [300, 300, 300, 500, 1000, 1000]);
    }
}
