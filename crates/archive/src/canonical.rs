//! The canonical tar of a tree: equal contents give equal bytes on every host.
//!
//! The format is ustar. Members are sorted by the bytes of their names; the names of directories end in
//! `/`, and every parent is a member. Modes are 0644, 0755 and, for links, 0777; owner, group and times are
//! 0, and owner names are empty. A member has a pax header (records in the order linkpath, path, size) only
//! if ustar cannot hold a value. Two zero blocks end the tar, without further padding.

use std::io::Write;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};

use crate::error::{UnpackError, shown};
use crate::tar_header::{self as header, BLOCK_BYTES, OCTAL_SIZE_MAX, checksum};
use crate::target::{Target, failed, file_bits};
use crate::threaded_hash::ThreadedHash;
use crate::tree::{Entry, Tree, archive_order};
use spec::digest::Digest;
use spec::path::RelPath;

/// Size of one read, in bytes.
const READ_BYTES: usize = 256 * 1024;
/// Hashing fewer bytes takes no longer than starting a thread.
const THREADED_FROM_BYTES: u64 = 512 * 1024;
const NAME_BYTES: usize = 100;
const PREFIX_BYTES: usize = 155;
/// Name of the pax header itself; readers with pax support never show it.
const PAX_NAME: &[u8] = b"PaxHeader";

/// Writes the canonical tar of `tree`, with its files beneath `directory`.
///
/// # Errors
/// [`UnpackError::Source`] if a file cannot be read, [`UnpackError::SourceChanged`] if its size differs
/// from the tree, [`UnpackError::Canonical`] if `out` fails.
pub fn write_canonical(
    tree: &Tree,
    directory: BorrowedFd<'_>,
    mut out: impl Write,
) -> Result<(), UnpackError> {
    let mut target = Target::new(directory, None);
    let mut buffer = vec![0; READ_BYTES];
    write_members(
        tree,
        &mut out,
        &|_path, error| UnpackError::Canonical(error),
        &mut |path, bytes, out| {
            write_file(&mut target, path, bytes, &mut buffer, out).map_err(|error| match error {
                // The directory is only read here.
                UnpackError::Target { name, source } => UnpackError::Source { name, source },
                error => error,
            })
        },
    )
}

/// Writes the canonical tar of `tree` to `out`, independent of where its files are: `data` is called for
/// each file in order, and must write exactly the number of bytes in the tree. `unwritten` receives the
/// member at which `out` failed, `None` at the end.
///
/// # Errors
/// The errors of `data` or `unwritten`.
pub fn write_members<Out: Write, Error>(
    tree: &Tree,
    out: &mut Out,
    unwritten: &dyn Fn(Option<&RelPath>, std::io::Error) -> Error,
    data: &mut dyn FnMut(&RelPath, u64, &mut Out) -> Result<(), Error>,
) -> Result<(), Error> {
    for (path, entry) in tree.in_archive_order() {
        out.write_all(&member_header(path, entry))
            .map_err(|error| unwritten(Some(path), error))?;
        if let Entry::File { bytes, .. } = entry {
            data(path, *bytes, out)?;
            out.write_all(padding(*bytes))
                .map_err(|error| unwritten(Some(path), error))?;
        }
    }
    out.write_all(&[0; 2 * BLOCK_BYTES])
        .map_err(|error| unwritten(None, error))
}

fn write_file(
    target: &mut Target<'_>,
    path: &RelPath,
    bytes: u64,
    buffer: &mut [u8],
    out: &mut impl Write,
) -> Result<(), UnpackError> {
    let changed = || UnpackError::SourceChanged {
        name: shown(path.as_bytes()),
        expected_bytes: bytes,
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = target.open(path, flags, Mode::empty())?;
    let mut total = 0;
    loop {
        let count = match rustix::io::read(&file, &mut *buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(failed("read", path, errno)),
        };
        total += count as u64;
        if total > bytes {
            return Err(changed());
        }
        out.write_all(&buffer[..count])
            .map_err(UnpackError::Canonical)?;
    }
    if total == bytes {
        Ok(())
    } else {
        Err(changed())
    }
}

/// The header or headers of one member.
fn member_header(path: &RelPath, entry: &Entry) -> Vec<u8> {
    let mut name = path.as_bytes().to_vec();
    if *entry == Entry::Directory {
        name.push(b'/');
    }
    let (type_flag, mode, size, link): (u8, u32, u64, &[u8]) = match entry {
        Entry::File { executable, bytes } => (b'0', file_bits(*executable), *bytes, b""),
        Entry::Directory => (b'5', 0o755, 0, b""),
        Entry::Symlink { target } => (b'2', 0o777, 0, target),
    };
    let fields = Fields {
        type_flag,
        mode,
        size,
        modified_s: 0,
    };
    header_blocks(&name, fields, link)
}

/// The fields of a header beside its names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields {
    pub(crate) type_flag: u8,
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) modified_s: u64,
}

/// The header of a member, after a pax header if ustar cannot hold a value. The name of a directory ends
/// in `/`.
pub(crate) fn header_blocks(name: &[u8], fields: Fields, link: &[u8]) -> Vec<u8> {
    let size = fields.size;
    let split = split_name(name);
    let mut records = Vec::new();
    if link.len() > NAME_BYTES {
        records.extend(pax_record(b"linkpath", link));
    }
    if split.is_none() {
        records.extend(pax_record(b"path", name));
    }
    if size > OCTAL_SIZE_MAX {
        records.extend(pax_record(b"size", size.to_string().as_bytes()));
    }
    let mut blocks = Vec::with_capacity(BLOCK_BYTES);
    if !records.is_empty() {
        let length = records.len() as u64;
        let fields = Fields {
            type_flag: b'x',
            mode: 0o644,
            size: length,
            modified_s: 0,
        };
        blocks.extend_from_slice(&block(b"", PAX_NAME, fields, b""));
        blocks.extend_from_slice(&records);
        blocks.extend_from_slice(padding(length));
    }
    let truncate = |bytes: &'_ [u8]| bytes[..bytes.len().min(NAME_BYTES)].to_vec();
    let (prefix, last) = split.unwrap_or((b"", name));
    let fields = Fields {
        size: if size > OCTAL_SIZE_MAX { 0 } else { size },
        ..fields
    };
    blocks.extend_from_slice(&block(prefix, &truncate(last), fields, &truncate(link)));
    blocks
}

/// Splits a name into the ustar prefix, the longest that fits or none if the name fits, and the rest.
fn split_name(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= NAME_BYTES {
        return Some((b"", name));
    }
    // The trailing slash of a directory is not a split point.
    let inner = &name[..name.len() - 1];
    let reach = &inner[..inner.len().min(PREFIX_BYTES + 1)];
    let cut = reach.iter().rposition(|byte| *byte == b'/')?;
    let (prefix, last) = (&name[..cut], &name[cut + 1..]);
    (last.len() <= NAME_BYTES).then_some((prefix, last))
}

/// `length key=value\n`; the length includes its own digits.
fn pax_record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    let digits = length.to_string();
    [digits.as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

fn block(prefix: &[u8], name: &[u8], fields: Fields, link: &[u8]) -> [u8; BLOCK_BYTES] {
    let Fields {
        type_flag,
        mode,
        size,
        modified_s,
    } = fields;
    let mut block = [0; BLOCK_BYTES];
    let mut put =
        |field: Range<usize>, bytes: &[u8]| block[field][..bytes.len()].copy_from_slice(bytes);
    put(header::NAME, name);
    put(header::MODE, format!("{mode:07o}").as_bytes());
    put(header::OWNER, b"0000000");
    put(header::GROUP, b"0000000");
    put(header::SIZE, format!("{size:011o}").as_bytes());
    let modified_s = modified_s.min(OCTAL_SIZE_MAX);
    put(header::MODIFIED, format!("{modified_s:011o}").as_bytes());
    put(header::LINK_NAME, link);
    put(header::MAGIC, b"ustar\0");
    put(header::VERSION, b"00");
    put(header::DEVICE_MAJOR, b"0000000");
    put(header::DEVICE_MINOR, b"0000000");
    put(header::PREFIX, prefix);
    block[header::TYPE_FLAG] = type_flag;
    let sum = format!("{:06o}\0 ", checksum(&block));
    block[header::CHECKSUM].copy_from_slice(sum.as_bytes());
    block
}

pub(crate) fn padding(bytes: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    let over = usize::try_from(bytes % BLOCK_BYTES as u64).unwrap_or(0);
    &ZEROS[..(BLOCK_BYTES - over) % BLOCK_BYTES]
}

/// SHA-256 of the canonical tar, computed while entries arrive in canonical order, so that an archive by
/// `runner` needs no second pass. `tar --sort=name` writes another order if a name continues the name of a
/// directory with a byte below `/`: `lib/` and `lib.rs`.
#[derive(Debug, Default)]
pub(crate) struct StreamDigest {
    hasher: Option<Sha256>,
    last: Option<(RelPath, bool)>,
    bytes: u64,
}

impl StreamDigest {
    pub(crate) fn new() -> Self {
        Self {
            hasher: Some(Sha256::new()),
            ..Self::default()
        }
    }

    /// Adds the next entry. An entry out of order aborts the computation; so does a duplicate, since its
    /// name does not sort after the earlier one.
    pub(crate) fn add_entry(&mut self, path: &RelPath, entry: &Entry) {
        let Some(hasher) = &mut self.hasher else {
            return;
        };
        let is_directory = *entry == Entry::Directory;
        let is_next = self.last.as_ref().is_none_or(|(last, last_is_directory)| {
            archive_order(
                (last.as_bytes(), *last_is_directory),
                (path.as_bytes(), is_directory),
            )
            .is_lt()
        });
        if !is_next {
            self.hasher = None;
            return;
        }
        hasher.update(member_header(path, entry));
        self.last = Some((path.clone(), is_directory));
        self.bytes = 0;
    }

    /// Adds data of the last entry.
    pub(crate) fn add_data(&mut self, data: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(data);
            self.bytes += data.len() as u64;
        }
    }

    /// Aborts the computation: some data will not be provided.
    pub(crate) fn abort(&mut self) {
        self.hasher = None;
    }

    /// Ends the data of the last entry.
    pub(crate) fn end_file(&mut self) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(padding(self.bytes));
        }
    }

    /// The digest, if all entries came in order.
    pub(crate) fn finish(self) -> Option<Digest> {
        self.hasher.map(|mut hasher| {
            hasher.update([0; 2 * BLOCK_BYTES]);
            Digest::from_hasher(hasher)
        })
    }
}

/// SHA-256 of the canonical tar of `tree`, with its files read beneath `directory`. For large trees a
/// second thread computes the hash; it has ended when this returns.
///
/// # Errors
/// As [`write_canonical`].
pub fn content_digest(tree: &Tree, directory: BorrowedFd<'_>) -> Result<Digest, UnpackError> {
    if tree.file_bytes() >= THREADED_FROM_BYTES {
        return std::thread::scope(|scope| {
            let mut hash = ThreadedHash::new(scope);
            let written = write_canonical(tree, directory, &mut hash);
            let digest = hash.finish().map_err(UnpackError::Canonical);
            written.and(digest)
        });
    }
    let mut hash = HashWriter(Sha256::new());
    write_canonical(tree, directory, &mut hash)?;
    Ok(Digest::from_hasher(hash.0))
}

struct HashWriter(Sha256);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pax::PaxRecords;
    use crate::tar_header::Header;
    use proptest::prelude::*;
    use std::os::fd::AsFd as _;

    fn first_header(blocks: &[u8]) -> Header {
        let block: [u8; BLOCK_BYTES] = blocks[..BLOCK_BYTES].try_into().expect("a block");
        Header::parse(&block).expect("a header").expect("not zeros")
    }

    /// The name and link target as a pax reader sees them, and whether pax was needed.
    fn read_back(path: &str, entry: &Entry) -> (Vec<u8>, Vec<u8>, bool) {
        let path = RelPath::parse(path.as_bytes()).expect("a path");
        let blocks = member_header(&path, entry);
        assert_eq!(blocks.len() % BLOCK_BYTES, 0);
        let first = first_header(&blocks);
        if first.type_flag != b'x' {
            return (first.name, first.link_name, false);
        }
        let length = usize::try_from(first.size_bytes).expect("small");
        let records = PaxRecords::parse(&blocks[BLOCK_BYTES..BLOCK_BYTES + length]).expect("pax");
        let last = first_header(&blocks[blocks.len() - BLOCK_BYTES..]);
        let name = records.path.unwrap_or(last.name);
        let link = records.link_path.unwrap_or(last.link_name);
        (name, link, true)
    }

    #[test]
    fn pax_is_used_only_where_ustar_cannot_hold_a_name() {
        let file = Entry::File {
            executable: false,
            bytes: 0,
        };
        let long = |lengths: &[usize]| {
            let parts: Vec<String> = lengths.iter().map(|length| "n".repeat(*length)).collect();
            parts.join("/")
        };
        for (lengths, entry, needs_pax) in [
            (&[100][..], &file, false),
            (&[101], &file, true),
            (&[155, 100], &file, false),
            (&[156, 100], &file, true),
            (&[100, 101], &file, true),
            (&[77, 77, 100], &file, false),
            (&[99], &Entry::Directory, false),
            (&[100], &Entry::Directory, true),
            (&[155, 99], &Entry::Directory, false),
            (&[155, 100], &Entry::Directory, true),
        ] {
            let path = long(lengths);
            let (name, _, used_pax) = read_back(&path, entry);
            let slash = if *entry == Entry::Directory { "/" } else { "" };
            assert_eq!(name, format!("{path}{slash}").as_bytes());
            assert_eq!(used_pax, needs_pax, "{lengths:?} {entry:?}");
        }
        for (length, needs_pax) in [(100, false), (101, true)] {
            let target = vec![b't'; length];
            let link = Entry::Symlink {
                target: target.clone(),
            };
            assert_eq!(read_back("l", &link), (b"l".to_vec(), target, needs_pax));
        }
    }

    #[test]
    fn a_missing_file_cannot_be_read() {
        let path = RelPath::parse(b"no/such/file").expect("a path");
        let root = std::fs::File::open("/").expect("opened");
        let error = content_digest(&Tree::with_program(path), root.as_fd()).expect_err("missing");
        assert_eq!(error.code(), "source_unreadable", "{error}");
    }

    #[test]
    fn a_record_counts_its_own_digits() {
        assert_eq!(pax_record(b"path", b"a"), b"9 path=a\n");
        assert_eq!(pax_record(b"path", b"ab"), b"11 path=ab\n");
        assert_eq!(&pax_record(b"path", &[b'a'; 90])[..4], b"99 p");
        assert_eq!(&pax_record(b"path", &[b'a'; 91])[..4], b"101 ");
    }

    #[test]
    fn a_file_of_eight_gibibytes_keeps_its_size() {
        let path = RelPath::parse(b"big").expect("a path");
        let entry = Entry::File {
            executable: true,
            bytes: OCTAL_SIZE_MAX + 1,
        };
        let blocks = member_header(&path, &entry);
        let records = PaxRecords::parse(&blocks[512..512 + 19]).expect("pax");
        assert_eq!(records.size_bytes, Some(OCTAL_SIZE_MAX + 1));
        assert_eq!(first_header(&blocks[1024..]).size_bytes, 0);
    }

    proptest! {
        #[test]
        fn every_name_is_read_back(name in "[a-c/]{1,400}", is_directory: bool) {
            let name: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
            prop_assume!(!name.is_empty() && name.iter().all(|part| part.len() < 256));
            let name = name.join("/");
            let entry = if is_directory {
                Entry::Directory
            } else {
                Entry::File { executable: true, bytes: 0 }
            };
            let slash = if is_directory { "/" } else { "" };
            prop_assert_eq!(read_back(&name, &entry).0, format!("{name}{slash}").into_bytes());
        }
    }
}
