//! Reads the entries of a tar in sequence and checks each before it is used.

use crate::entry_rules::{HeaderFields, MemberKind, Rules, classify};
use crate::error::{Refusal, UnpackError, shown};
use crate::gzip::guess_format;
use crate::inflated::Inflated;
use crate::path_mapping::PathMapping;
use crate::pax::PaxRecords;
use crate::tar_header::{BLOCK_BYTES, Header, is_zero};
use spec::path::{PATH_BYTES_MAX, RelPath};
use spec::units::limit;

/// Maximum size of a pax header, in bytes; extended attributes, which are ignored, may be long.
const PAX_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum length of a GNU long name, in bytes, with its NUL terminator.
const LONG_NAME_BYTES_MAX: u64 = PATH_BYTES_MAX as u64 + 1;
/// Maximum number of zero bytes after the end of the tar: the largest common record size of tar(1).
const PADDING_BYTES_MAX: u64 = 1024 * 1024;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Limits of an archive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryLimits {
    /// Number of entries, including those that are not kept.
    pub entries: u64,
    /// Bytes of all files, including those that a later entry replaces.
    pub file_bytes: u64,
    /// Bytes of all headers.
    pub header_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Position among the headers of the archive, from 1.
    pub index: u64,
    /// The name as written.
    pub name: Vec<u8>,
    /// The destination; `None` is the root directory of the bundle.
    pub path: Option<RelPath>,
    pub kind: MemberKind,
    /// Permission bits, including set-id and sticky bits.
    pub mode: u32,
    /// Seconds since 1970; `None` without a valid value.
    pub modified_s: Option<u64>,
}

impl Member {
    /// Whether the owner may execute it.
    pub(crate) fn executable(&self) -> bool {
        self.mode & 0o100 != 0
    }
}

/// Extended headers that apply to the next entry.
#[derive(Default)]
struct Extensions {
    pax: Option<PaxRecords>,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    last: Option<&'static str>,
}

pub(crate) struct Entries<'source, Source: ?Sized> {
    source: &'source mut Source,
    limits: EntryLimits,
    index: u64,
    /// Name in the current header, for messages.
    name: Vec<u8>,
    members: u64,
    header_bytes: u64,
    file_bytes: u64,
    data_left: u64,
    padding_left: u64,
    rules: Rules,
    mapping: PathMapping,
    comment: Option<Vec<u8>>,
}

impl<'source, Source: Inflated + ?Sized> Entries<'source, Source> {
    pub(crate) fn new(
        source: &'source mut Source,
        limits: EntryLimits,
        rules: Rules,
        mapping: PathMapping,
    ) -> Self {
        Self {
            source,
            limits,
            rules,
            mapping,
            comment: None,
            index: 0,
            name: Vec::new(),
            members: 0,
            header_bytes: 0,
            file_bytes: 0,
            data_left: 0,
            padding_left: 0,
        }
    }

    /// The next entry; skips unread data of the last one. `None` after the whole archive is read and
    /// valid. The error is the first rule that the archive breaks.
    pub(crate) fn next_member(&mut self) -> Result<Option<Member>, UnpackError> {
        self.read_data(&mut |_| Ok(()))?;
        let mut extensions = Extensions::default();
        loop {
            self.index += 1;
            let Some(header) = self.read_header()? else {
                if let Some(what) = extensions.last {
                    return Err(self.refused(Refusal::new(
                        "extension_without_entry",
                        format!("no entry follows its {what}"),
                    )));
                }
                self.check_end()?;
                return Ok(None);
            };
            self.name.clone_from(&header.name);
            match header.type_flag {
                b'x' | b'g' | b'L' | b'K' => self.read_extension(&header, &mut extensions)?,
                _ => return self.begin_member(header, extensions).map(Some),
            }
        }
    }

    /// Passes the data of the last entry to `sink` in pieces.
    pub(crate) fn read_data(
        &mut self,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), UnpackError>,
    ) -> Result<(), UnpackError> {
        while self.data_left + self.padding_left > 0 {
            let chunk = self.source.chunk()?;
            if chunk.is_empty() {
                if self.data_left == 0 && self.rules == Rules::Layer {
                    // As at the end: umoci also omits the padding of the last file.
                    self.padding_left = 0;
                    return Ok(());
                }
                return Err(UnpackError::Damaged(
                    Refusal::new(
                        "tar_truncated",
                        format!(
                            "entry {}, `{}`: the tar ends in the middle of it",
                            self.index,
                            shown(&self.name)
                        ),
                    )
                    .with_hint("the archive is incomplete: make or fetch it again"),
                ));
            }
            let data = prefix(chunk, self.data_left);
            let padding = prefix(&chunk[data.len()..], self.padding_left);
            if !data.is_empty() {
                sink(data)?;
            }
            let (data, padding) = (data.len(), padding.len());
            self.data_left -= data as u64;
            self.padding_left -= padding as u64;
            self.source.consume(data + padding);
        }
        Ok(())
    }

    /// Bytes of all files so far, including the last one.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(crate) fn mapping(&self) -> &PathMapping {
        &self.mapping
    }

    /// The comment of the last global pax header: the commit in archives of `git archive`.
    pub(crate) fn comment(&self) -> Option<&[u8]> {
        self.comment.as_deref()
    }

    fn refused(&self, refusal: Refusal) -> UnpackError {
        UnpackError::entry(self.index, &self.name, refusal)
    }

    fn end_missing(&self) -> UnpackError {
        let entries = self.members;
        UnpackError::Damaged(
            Refusal::new(
                "tar_end_missing",
                format!(
                    "the tar ends after {entries} entries without the two zero blocks that end it"
                ),
            )
            .with_hint(Refusal::MAKE_AGAIN),
        )
    }

    /// The next header; `None` at the first zero block.
    fn read_header(&mut self) -> Result<Option<Header>, UnpackError> {
        self.name.clear();
        self.count_header_bytes(BLOCK)?;
        let mut block = [0; BLOCK_BYTES];
        let count = self.read_block(&mut block)?;
        let is_first = self.index == 1;
        let is_tar = block.get(257..262) == Some(b"ustar");
        match Header::parse(&block) {
            // The digest of a layer verifies its completeness, and some tools omit the end blocks.
            _ if count == 0 && !is_first && self.rules == Rules::Layer => Ok(None),
            _ if is_first && count < BLOCK_BYTES => Err(not_tar(&block[..count])),
            _ if count < BLOCK_BYTES => Err(self.end_missing()),
            Err(_) if is_first && !is_tar => Err(not_tar(&block)),
            Err(error) => {
                let name = block[..100].split(|byte| *byte == 0).next();
                self.name = name.unwrap_or_default().to_vec();
                Err(self.refused(error))
            }
            Ok(header) => Ok(header),
        }
    }

    /// Reads a block, or a part of it at the end of the input; returns the number of bytes.
    fn read_block(&mut self, block: &mut [u8; BLOCK_BYTES]) -> Result<usize, UnpackError> {
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            let chunk = self.source.chunk()?;
            let piece = prefix(chunk, (BLOCK_BYTES - filled) as u64);
            if piece.is_empty() {
                break;
            }
            block[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
            let count = piece.len();
            self.source.consume(count);
        }
        Ok(filled)
    }

    fn count_header_bytes(&mut self, bytes: u64) -> Result<(), UnpackError> {
        self.header_bytes = self.header_bytes.saturating_add(bytes);
        if self.header_bytes > self.limits.header_bytes {
            return Err(UnpackError::Refused(
                Refusal::new(
                    "header_bytes_limit",
                    format!(
                        "entry {}: more than {} of headers",
                        self.index,
                        limit(&self.limits.header_bytes)
                    ),
                )
                .with_hint(Refusal::LEAVE_OUT),
            ));
        }
        Ok(())
    }

    /// Reads the data of an extended header. Its size comes from its own header, never from another
    /// extended header: those apply to the entry.
    fn read_extension(
        &mut self,
        header: &Header,
        extensions: &mut Extensions,
    ) -> Result<(), UnpackError> {
        let (what, limit_bytes) = match header.type_flag {
            b'x' => ("pax header", PAX_BYTES_MAX),
            b'g' => ("global pax header", PAX_BYTES_MAX),
            b'L' => ("GNU long name", LONG_NAME_BYTES_MAX),
            _ => ("GNU long link name", LONG_NAME_BYTES_MAX),
        };
        let bytes = header.size_bytes;
        if bytes > limit_bytes {
            return Err(self.refused(Refusal::new(
                "extension_too_long",
                format!(
                    "its {what} is {bytes} bytes long; expected at most {}",
                    limit(&limit_bytes)
                ),
            )));
        }
        // A long name and a long link name may be combined; any other two extended headers may conflict.
        let pair = (extensions.last, header.type_flag);
        if let (Some(first), b'x' | b'L' | b'K') = pair
            && !matches!(
                pair,
                (Some("GNU long name"), b'K') | (Some("GNU long link name"), b'L')
            )
        {
            return Err(self.refused(two_extensions(first, what)));
        }
        let data = self.read_extension_data(bytes)?;
        match header.type_flag {
            b'g' => {
                let records = self.parse_pax(&data)?;
                let keys = [
                    ("path", records.path.is_some()),
                    ("linkpath", records.link_path.is_some()),
                    ("size", records.size_bytes.is_some()),
                ];
                if let Some((key, _)) = keys.into_iter().find(|(_, is_set)| *is_set) {
                    return Err(self.refused(Refusal::new(
                        "global_override",
                        format!(
                            "it is a global pax header with `{key}`, which would apply to every \
                             entry after it"
                        ),
                    )));
                }
                self.comment = records.comment.or(self.comment.take());
                // Does not affect the next entry, so `last` is unchanged.
                return Ok(());
            }
            b'x' => extensions.pax = Some(self.parse_pax(&data)?),
            flag => {
                let name = data.strip_suffix(b"\0").unwrap_or(&data);
                if name.contains(&0) {
                    return Err(self.refused(Refusal::new(
                        "long_name_nul",
                        format!("its {what} contains a NUL byte"),
                    )));
                }
                let slot = match flag {
                    b'L' => &mut extensions.long_name,
                    _ => &mut extensions.long_link,
                };
                if slot.replace(name.to_vec()).is_some() {
                    return Err(self.refused(two_extensions(what, what)));
                }
            }
        }
        extensions.last = Some(what);
        Ok(())
    }

    fn read_extension_data(&mut self, bytes: u64) -> Result<Vec<u8>, UnpackError> {
        self.count_header_bytes(bytes.next_multiple_of(BLOCK))?;
        (self.data_left, self.padding_left) = (bytes, bytes.next_multiple_of(BLOCK) - bytes);
        let mut data = Vec::new();
        self.read_data(&mut |piece| {
            data.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(data)
    }

    fn parse_pax(&self, data: &[u8]) -> Result<PaxRecords, UnpackError> {
        PaxRecords::parse(data).map_err(|error| self.refused(error))
    }

    fn begin_member(
        &mut self,
        header: Header,
        extensions: Extensions,
    ) -> Result<Member, UnpackError> {
        let pax = extensions.pax.unwrap_or_default();
        let name = pax.path.or(extensions.long_name).unwrap_or(header.name);
        let link = pax.link_path.or(extensions.long_link);
        let link = link.unwrap_or(header.link_name);
        self.name.clone_from(&name);
        self.members += 1;
        if self.members > self.limits.entries {
            return Err(self.refused(Refusal::too_many_entries(self.limits.entries)));
        }
        let (path, kind) = classify(
            &name,
            link,
            HeaderFields {
                format: header.format,
                type_flag: header.type_flag,
                header_bytes: header.size_bytes,
                pax_bytes: pax.size_bytes,
            },
            self.rules,
            &mut self.mapping,
        )
        .map_err(|refusal| self.refused(refusal))?;
        if let MemberKind::File { bytes } = kind {
            let file_bytes = self.file_bytes.checked_add(bytes);
            self.file_bytes = file_bytes
                .filter(|sum| *sum <= self.limits.file_bytes)
                .ok_or_else(|| UnpackError::TooManyBytes {
                    index: self.index,
                    name: shown(&name),
                    limit_bytes: self.limits.file_bytes,
                })?;
            self.data_left = bytes;
            self.padding_left = (BLOCK - bytes % BLOCK) % BLOCK;
        }
        Ok(Member {
            index: self.index,
            name,
            path,
            kind,
            mode: header.mode,
            modified_s: pax.modified_s.or(header.modified_s),
        })
    }

    /// After the first zero block: requires a second one, then only zeros, then the end of the archive.
    fn check_end(&mut self) -> Result<(), UnpackError> {
        let mut block = [0; BLOCK_BYTES];
        match self.read_block(&mut block)? {
            BLOCK_BYTES => (),
            0 if self.rules == Rules::Layer => return Ok(()),
            _ => return Err(self.end_missing()),
        }
        let mut is_padding = is_zero(&block);
        let mut padding_bytes = 0;
        loop {
            if !is_padding || padding_bytes > PADDING_BYTES_MAX {
                let entries = self.members;
                return Err(UnpackError::Refused(
                    Refusal::new(
                        "tar_data_after_end",
                        format!(
                            "more data follows the end of the tar, after {entries} entries; \
                             expected at most 1 MiB of zeros"
                        ),
                    )
                    .with_hint(Refusal::NOT_JOINED),
                ));
            }
            let chunk = self.source.chunk()?;
            if chunk.is_empty() {
                return Ok(());
            }
            is_padding = is_zero(chunk);
            let count = chunk.len();
            padding_bytes += count as u64;
            self.source.consume(count);
        }
    }
}

fn two_extensions(first: &str, second: &str) -> Refusal {
    Refusal::new(
        "two_extensions",
        format!("it has both a {first} and a {second}; expected one"),
    )
}

fn not_tar(start: &[u8]) -> UnpackError {
    let found = match guess_format(start) {
        Some("an empty file") => "nothing",
        Some(known) => known,
        None => "something else",
    };
    UnpackError::Refused(
        Refusal::new(
            "not_tar",
            format!("the archive holds {found}; expected a tar archive"),
        )
        .with_hint(Refusal::MAKE_AN_ARCHIVE),
    )
}

/// The first `count` bytes, or all if there are fewer.
fn prefix(bytes: &[u8], count: u64) -> &[u8] {
    let end = usize::try_from(count).map_or(bytes.len(), |count| count.min(bytes.len()));
    &bytes[..end]
}
