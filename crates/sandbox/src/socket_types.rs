//! The types of a body's unix sockets, for `--trace`: only datagram sockets send to a path.

use std::io::Read as _;
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Of `/proc/PID/net/unix`: about a thousand sockets.
const TABLE_BYTES_MAX: usize = 64 << 10;
/// Columns of the table.
const TYPE: usize = 4;
const INODE: usize = 6;
/// SOCK_DGRAM.
const DATAGRAM: &[u8] = b"0002";

/// Whether the socket `inode` in the network of `thread` is a unix datagram socket.
///
/// # Errors
/// EOVERFLOW if the network has too many sockets; those of openat(2) and read(2).
pub(crate) fn is_datagram(proc: BorrowedFd<'_>, thread: u32, inode: &[u8]) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(proc, format!("{thread}/net/unix"), flags, Mode::empty())?;
    let mut table = Vec::new();
    let limit = u64::try_from(TABLE_BYTES_MAX).unwrap_or(u64::MAX);
    std::fs::File::from(opened)
        .take(limit)
        .read_to_end(&mut table)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    match has_datagram(&table, inode) {
        None if table.len() == TABLE_BYTES_MAX => Err(Errno::OVERFLOW),
        found => Ok(found.unwrap_or(false)),
    }
}

/// Whether the table has `inode` as a datagram socket; `None`: it does not have it.
fn has_datagram(table: &[u8], inode: &[u8]) -> Option<bool> {
    let mut lines = table.split(|byte| *byte == b'\n').skip(1);
    lines.find_map(|line| {
        let mut columns = line
            .split(|byte| *byte == b' ')
            .filter(|text| !text.is_empty());
        let kind = columns.nth(TYPE)?;
        (columns.nth(INODE - TYPE - 1)? == inode).then(|| kind == DATAGRAM)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::os::fd::{AsFd as _, AsRawFd as _};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    #[test]
    fn only_datagram_sockets_send_to_a_path() {
        let proc = rustix::fs::openat(CWD, "/proc", OFlags::PATH, Mode::empty()).expect("opened");
        let (stream, _other) = UnixStream::pair().expect("made");
        let datagram = UnixDatagram::unbound().expect("made");
        let internet = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        for (socket, expected) in [
            (stream.as_raw_fd(), false),
            (datagram.as_raw_fd(), true),
            (internet.as_raw_fd(), false),
        ] {
            let link = std::fs::read_link(format!("/proc/self/fd/{socket}")).expect("a link");
            let link = link.to_str().expect("text").to_owned();
            let inode = link.trim_start_matches("socket:[").trim_end_matches(']');
            let found = is_datagram(proc.as_fd(), std::process::id(), inode.as_bytes());
            // This machine may have more sockets than are looked at.
            assert!(found == Ok(expected) || found == Err(Errno::OVERFLOW));
        }
    }

    #[test]
    fn a_line_is_found_by_its_inode() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
                      0000000000000000: 00000002 00000000 00000000 0002 01    24 /run/x 0001 01 25\n\
                      0000000000000000: 00000003 00000000 00010000 0001 03    25\n\
                      0000000000000000: 0000";
        assert_eq!(has_datagram(table, b"24"), Some(true));
        assert_eq!(has_datagram(table, b"25"), Some(false));
        assert_eq!(has_datagram(table, b"2"), None);
        assert_eq!(has_datagram(b"", b"24"), None);
    }
}
