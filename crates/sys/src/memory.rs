//! The memory of other processes (process_vm_readv(2)).

use rustix::io::Errno;

use super::process::check;

/// A read does not fail for bytes beyond the end of a page that is not mapped.
const PAGE: usize = 4_096;

/// Reads what `thread` has at `address` until `into` is full or memory ends. Returns the number of bytes.
///
/// # Errors
/// EPERM without the right to trace the process, EFAULT if nothing is mapped there, ESRCH.
pub fn read_of_thread(thread: u32, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let thread = i32::try_from(thread).map_err(|_range| Errno::SRCH)?;
    let start = usize::try_from(address).map_err(|_range| Errno::FAULT)?;
    let first = into.len().min(PAGE - start % PAGE);
    let second = start.checked_add(first).ok_or(Errno::FAULT)?;
    let part = |at: usize, length: usize| libc::iovec {
        iov_base: std::ptr::without_provenance_mut(at),
        iov_len: length,
    };
    let theirs = [part(start, first), part(second, into.len() - first)];
    let own = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: the kernel writes at most the length of `into`, and checks the addresses of the other process.
    let read = unsafe { libc::process_vm_readv(thread, &raw const own, 1, theirs.as_ptr(), 2, 0) };
    usize::try_from(check(i64::try_from(read).unwrap_or(-1))?).map_err(|_range| Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_far_as_it_is_mapped() {
        let own = std::process::id();
        let text = b"some bytes".to_vec();
        let mut read = [0; 10];
        let address = u64::try_from(text.as_ptr().addr()).expect("an address");
        assert_eq!(read_of_thread(own, address, &mut read), Ok(10));
        assert_eq!(read, *b"some bytes");
        for unmapped in [0, 1, u64::MAX, u64::MAX - 4_095] {
            assert!(read_of_thread(own, unmapped, &mut read).is_err());
        }
    }
}
