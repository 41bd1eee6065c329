//! The paths in the memory of a thread whose call waits.

use rustix::io::Errno;
use spec::path::PATH_BYTES_MAX;
use sys::memory::read_of_thread;

/// Bytes that are read first: most paths are shorter.
const SHORT_BYTES: usize = 256;
/// `struct sockaddr_un`: the family, and a path that need not end with NUL.
const ADDRESS_BYTES_MAX: usize = FAMILY_BYTES + 108;
const FAMILY_BYTES: usize = 2;
/// The start of a `struct msghdr`: the address of the name, and its length.
const MESSAGE_BYTES: usize = 12;

/// The path at an address; `None`: the call fails with EFAULT or ENAMETOOLONG. Other errors: it cannot be read.
pub(crate) fn read_path(thread: u32, address: u64) -> Result<Option<Vec<u8>>, Errno> {
    match read_text(thread, address, SHORT_BYTES)? {
        Some(path) => Ok(Some(path)),
        None => read_text(thread, address, PATH_BYTES_MAX + 1),
    }
}

/// The path in the address of a unix socket; `None`: the address is of another family, or has no path, or the
/// call fails with EFAULT or EINVAL.
pub(crate) fn read_socket_path(
    thread: u32,
    address: u64,
    length: u32,
) -> Result<Option<Vec<u8>>, Errno> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if !(FAMILY_BYTES + 1..=ADDRESS_BYTES_MAX).contains(&length) {
        return Ok(None);
    }
    let mut read = [0; ADDRESS_BYTES_MAX];
    match read_of_thread(thread, address, &mut read[..length]) {
        Ok(count) if count == length => Ok(path_of(&read[..length])),
        Ok(_) | Err(Errno::FAULT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// As [`read_socket_path`], for the address in a `struct msghdr`.
pub(crate) fn read_message_path(thread: u32, message: u64) -> Result<Option<Vec<u8>>, Errno> {
    let mut start = [0; MESSAGE_BYTES];
    match read_of_thread(thread, message, &mut start) {
        Ok(MESSAGE_BYTES) => (),
        Ok(_) | Err(Errno::FAULT) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    let [a, b, c, d, e, f, g, h, length @ ..] = start;
    let address = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
    if address == 0 {
        return Ok(None);
    }
    read_socket_path(thread, address, u32::from_ne_bytes(length))
}

fn path_of(address: &[u8]) -> Option<Vec<u8>> {
    let (family, path) = address.split_first_chunk()?;
    let path = path.split(|byte| *byte == 0).next()?;
    // A name that begins with NUL is an abstract one.
    let is_path = u16::from_ne_bytes(*family) == rustix::net::AddressFamily::UNIX.as_raw();
    (is_path && !path.is_empty()).then(|| path.to_vec())
}

/// The text at an address; `None`: it does not end within `bytes_max` or within the memory.
fn read_text(thread: u32, address: u64, bytes_max: usize) -> Result<Option<Vec<u8>>, Errno> {
    let mut text = vec![0; bytes_max];
    let length = match read_of_thread(thread, address, &mut text) {
        Ok(length) => length,
        Err(Errno::FAULT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    text.truncate(length);
    let end = text.iter().position(|byte| *byte == 0);
    text.truncate(end.unwrap_or(0));
    Ok(end.map(|_| text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_address_ends_with_nul_or_with_the_address() {
        let own = std::process::id();
        let read = |address: &[u8], length: u32| {
            let at = u64::try_from(address.as_ptr().addr()).expect("an address");
            read_socket_path(own, at, length).expect("readable")
        };
        let of_unix = |path: &[u8]| [&1_u16.to_ne_bytes()[..], path].concat();
        let longest = of_unix(&[b'x'; 108]);
        assert_eq!(read(&longest, 110), Some(vec![b'x'; 108]));
        assert_eq!(read(&longest, 111), None);
        assert_eq!(read(&longest, 2), None);
        assert_eq!(read(&longest, 3), Some(b"x".to_vec()));
        assert_eq!(read(&of_unix(b"/run/x\0yz"), 11), Some(b"/run/x".to_vec()));
        assert_eq!(read(&of_unix(b"\0abstract"), 11), None);
        let of_inet = [&2_u16.to_ne_bytes()[..], b"/run/x"].concat();
        assert_eq!(read(&of_inet, 8), None);
        assert_eq!(read_socket_path(own, 0, 8), Ok(None));

        let message = |name: u64, length: u32| {
            let message = [&name.to_ne_bytes()[..], &length.to_ne_bytes()].concat();
            let at = u64::try_from(message.as_ptr().addr()).expect("an address");
            read_message_path(own, at).expect("readable")
        };
        let name = of_unix(b"/run/x");
        let at = u64::try_from(name.as_ptr().addr()).expect("an address");
        assert_eq!(message(at, 8), Some(b"/run/x".to_vec()));
        assert_eq!(message(at, 2), None);
        assert_eq!(message(at, u32::MAX), None);
        assert_eq!(message(0, 8), None);
        assert_eq!(message(1, 8), None);
        assert_eq!(read_message_path(own, 0), Ok(None));
    }
}
