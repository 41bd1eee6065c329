//! seccomp(2): loads a compiled filter, and answers the calls that it reports to a listener
//! (seccomp_unotify(2)).

use std::mem::{align_of, offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use filter::bpf::{ALLOW, Instruction};
use filter::{SeccompData, interpret};
use rustix::io::Errno;

use super::process::check;

// `Instruction` must have the layout of `struct sock_filter`.
const _: () = {
    assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());
    assert!(align_of::<Instruction>() == align_of::<libc::sock_filter>());
    assert!(offset_of!(Instruction, code) == offset_of!(libc::sock_filter, code));
    assert!(offset_of!(Instruction, jt) == offset_of!(libc::sock_filter, jt));
    assert!(offset_of!(Instruction, jf) == offset_of!(libc::sock_filter, jf));
    assert!(offset_of!(Instruction, k) == offset_of!(libc::sock_filter, k));
};

/// Applies `program` to this thread and its children, irrevocably. Needs no_new_privs.
///
/// Allocates nothing and takes no lock, so it may be called between clone and exec.
///
/// # Errors
/// The errno of seccomp(2): EINVAL for an invalid program, none or more than 4096 instructions,
/// EACCES without no_new_privs or CAP_SYS_ADMIN, ENOSYS without kernel support.
pub fn load(program: &[Instruction]) -> Result<(), Errno> {
    load_with(program, 0).map(|_zero| ())
}

/// As [`load`], with a listener for the calls for which `program` returns
/// [`filter::bpf::USER_NOTIFICATION`]. They wait for an answer, and fail with ENOSYS once no process has
/// the listener open.
///
/// # Errors
/// As [`load`]; EBUSY if a filter of this thread already has a listener, EINVAL before Linux 5.19. Then
/// nothing was applied.
pub fn load_with_listener(program: &[Instruction]) -> Result<OwnedFd, Errno> {
    // Without WAIT_KILLABLE_RECV, a body that gets signals more often than it is answered makes no
    // progress.
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let listener = load_with(program, flags)?;
    let listener = i32::try_from(listener).map_err(|_range| Errno::BADF)?;
    // SAFETY: the kernel has just opened it, and nothing else has the number.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

fn load_with(program: &[Instruction], flags: libc::c_ulong) -> Result<i64, Errno> {
    let program = as_sock_fprog(program)?;
    // SAFETY: `program` points to instructions that live across the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    })
}

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE` of `<linux/seccomp.h>`.
const CONTINUE: u32 = 1;

/// The listener of a filter.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// A call that waits for an answer. Number and arguments are copies of the registers: the caller cannot
/// change them.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    id: u64,
    /// The calling thread, in this pid namespace.
    pub thread: u32,
    pub call: SeccompData,
}

impl Listener {
    /// Takes the result of [`load_with_listener`]. A caller that is answered continues on this CPU, which
    /// takes a tenth of the time (Linux 6.6; without effect before).
    #[must_use]
    pub fn new(listener: OwnedFd) -> Self {
        const SYNC_WAKE_UP: libc::c_ulong = 1;
        // SAFETY: the argument of this request is a number. EINVAL before Linux 6.6: it is only faster.
        unsafe {
            libc::ioctl(
                listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
                SYNC_WAKE_UP,
            )
        };
        Self(listener)
    }

    /// Takes one waiting call; blocks if none waits. `None`: its process was killed, or a signal interrupted.
    pub fn receive(&self) -> Result<Option<Waiting>, Errno> {
        // SAFETY: all fields are numbers. The kernel refuses a structure that is not zero.
        let mut received: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        let pointer = &raw mut received;
        // SAFETY: the kernel writes one `struct seccomp_notif`, whose size is part of the request.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, pointer) };
        match check(result.into()) {
            Ok(_) => Ok(Some(Waiting {
                id: received.id,
                thread: received.pid,
                call: SeccompData {
                    number: received.data.nr.cast_unsigned(),
                    arch: received.data.arch,
                    instruction_pointer: received.data.instruction_pointer,
                    arguments: received.data.args,
                },
            })),
            Err(Errno::NOENT | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the call still waits. If not, its thread may have ended, and another one may have its id.
    pub fn is_waiting(&self, waiting: &Waiting) -> bool {
        let pointer = &raw const waiting.id;
        // SAFETY: the kernel reads one `u64`, whose size is part of the request.
        let result = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                pointer,
            )
        };
        result == 0
    }

    /// Lets the call fail with `errno`. Does nothing if its process was killed meanwhile.
    pub fn refuse(&self, waiting: &Waiting, errno: Errno) -> Result<(), Errno> {
        self.send(waiting, -errno.raw_os_error(), 0)
    }

    /// Lets the kernel make the call (Linux 5.5), if `program` allows it; else it fails with ENOSYS. The
    /// decision is about the same copies of the registers that the kernel uses; what they point to may
    /// change until then.
    pub fn pass(&self, waiting: &Waiting, program: &[Instruction]) -> Result<(), Errno> {
        match interpret(program, &waiting.call) {
            ALLOW => self.send(waiting, 0, CONTINUE),
            _ => self.refuse(waiting, Errno::NOSYS),
        }
    }

    fn send(&self, waiting: &Waiting, error: i32, flags: u32) -> Result<(), Errno> {
        let answer = libc::seccomp_notif_resp {
            id: waiting.id,
            val: 0,
            error,
            flags,
        };
        let pointer = &raw const answer;
        // SAFETY: the kernel reads one `struct seccomp_notif_resp`, whose size is part of the request.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, pointer) };
        match check(result.into()) {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Readable while a call waits; hung up after the last process under the filter has ended.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Converts to the C structure, which points to `program`. The kernel only reads through it.
pub(super) fn as_sock_fprog(program: &[Instruction]) -> Result<libc::sock_fprog, Errno> {
    Ok(libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_too_long| Errno::INVAL)?,
        filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    })
}
