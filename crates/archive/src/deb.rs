//! Debian packages (deb(5)): unpacks the files of many packages into one layer. Package scripts are not
//! run.
//!
//! A package is an ar archive of `debian-binary`, `control.tar` and `data.tar`, the latter two optionally
//! compressed. Files follow directory links of the image: `/lib/x` goes to `/usr/lib/x` if `/lib` is a
//! link to it.

use std::io::Read;
use std::os::fd::BorrowedFd;

use crate::compressed::Compression;
use crate::entries::Member;
use crate::entry_rules::MemberKind;
use crate::error::{Refusal, UnpackError, shown};
use crate::layer::{AnyEntries, PackageVisitor, UnpackedLayer, Visit, read_compressed};
use crate::layer_view::LayerView;
use crate::layer_writer::LayerWriter;
use crate::unpack::UnpackLimits;
use spec::digest::Digest;
use spec::parse_permit::ParsePermit;

const MAGIC: &[u8] = b"!<arch>\n";
const HEADER_BYTES: usize = 60;
/// The only supported format; minor versions do not change the relevant parts (deb(5)).
const FORMAT: &[u8] = b"2.";
const FORMAT_BYTES_MAX: u64 = 64;
/// Maximum number of members of an archive; three are required.
const MEMBERS_MAX: u64 = 16;
/// Limits of `control.tar`. Its largest parts are the lists of checksums.
const CONTROL_LIMITS: UnpackLimits = UnpackLimits {
    compressed_bytes: 16 << 20,
    unpacked_bytes: 64 << 20,
    entries: 1_000,
};
const CONTROL_BYTES_MAX: u64 = 1 << 20;
/// Files that dpkg would run: deb-preinst(5) and similar, and the debconf configuration.
const SCRIPTS: [&[u8]; 5] = [b"preinst", b"postinst", b"prerm", b"postrm", b"config"];

/// Why a package is refused or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DebError {
    /// Not a package, or a malformed one.
    #[error(transparent)]
    Refused(Refusal),
    /// `control.tar` or `data.tar` is refused, or its files cannot be written.
    #[error("the {member} of the package cannot be unpacked")]
    Unpack {
        member: &'static str,
        #[source]
        source: Box<UnpackError>,
    },
    #[error("the package cannot be read")]
    Read(#[source] std::io::Error),
}

impl DebError {
    /// Stable identifier of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Unpack { source, .. } => source.code(),
            Self::Read(_) => "archive_unreadable",
        }
    }
}

/// Metadata of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// `Package`.
    pub name: String,
    /// `Version`.
    pub version: String,
    /// `Architecture`.
    pub architecture: String,
    /// Names of the scripts that dpkg would have run; they were not run.
    pub scripts: Vec<String>,
}

/// A layer under construction from the files of packages.
#[expect(
    missing_debug_implementations,
    reason = "a directory that is being filled"
)]
pub struct PackageLayer<'a> {
    writer: LayerWriter<'a>,
    limits: UnpackLimits,
    bytes: u64,
}

impl<'a> PackageLayer<'a> {
    /// Creates a layer in the empty directory `into`. `view` describes the layers below. `limits` apply to the
    /// compressed bytes of each package, and to the files of all packages together.
    ///
    /// To dpkg, a directory that exists stays as it is. Whoever sees the layers below restores those that are
    /// there too.
    #[must_use]
    pub fn new(into: BorrowedFd<'a>, view: LayerView, limits: UnpackLimits) -> Self {
        Self {
            writer: LayerWriter::new(into, view, limits.tree_limits()),
            limits,
            bytes: 0,
        }
    }

    /// Adds the files of one package.
    ///
    /// # Errors
    /// [`DebError`]: discard the layer.
    pub fn add(
        &mut self,
        permit: &ParsePermit,
        package: impl Read + Send,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Package, DebError> {
        let mut members = Members::begin(package)?;
        members.check_format()?;
        let compression = members.find_tar(b"control.tar")?;
        let mut control = Control::default();
        let read = read_compressed(
            permit,
            &mut members,
            compression,
            &CONTROL_LIMITS,
            is_cancelled,
            &mut control,
        );
        read.map_err(unpack_error("control.tar"))?;
        members.end_member("control.tar")?;
        let compression = members.find_tar(b"data.tar")?;
        let limits = UnpackLimits {
            unpacked_bytes: self.limits.unpacked_bytes.saturating_sub(self.bytes),
            ..self.limits
        };
        let files = &mut PackageVisitor(&mut self.writer);
        let read = read_compressed(
            permit,
            &mut members,
            compression,
            &limits,
            is_cancelled,
            files,
        )
        .map_err(unpack_error("data.tar"))?;
        self.bytes += read.bytes;
        members.end_member("data.tar")?;
        members.check_end()?;
        control.into_package()
    }

    /// Finishes the layer. It hides nothing, and has no tar, so its `diff_id` is the digest of empty input.
    ///
    /// # Errors
    /// As [`crate::unpack_layer`].
    pub fn finish(self) -> Result<UnpackedLayer, UnpackError> {
        self.writer.finish(Digest::of(b""), self.bytes)
    }
}

fn unpack_error(member: &'static str) -> impl Fn(UnpackError) -> DebError {
    move |source| DebError::Unpack {
        member,
        source: Box::new(source),
    }
}

/// The contents of `control.tar`.
#[derive(Default)]
struct Control {
    text: Option<Vec<u8>>,
    scripts: Vec<String>,
}

impl Visit for Control {
    fn visit(&mut self, entries: &mut AnyEntries<'_>, member: Member) -> Result<(), UnpackError> {
        let (Some(path), MemberKind::File { bytes }) = (&member.path, &member.kind) else {
            return Ok(());
        };
        let name = path.as_bytes();
        if SCRIPTS.contains(&name) {
            self.scripts.push(shown(name));
        }
        if name == b"control" && *bytes <= CONTROL_BYTES_MAX {
            let mut text = Vec::new();
            entries.read_data(&mut |data| {
                text.extend_from_slice(data);
                Ok(())
            })?;
            self.text = Some(text);
        }
        Ok(())
    }
}

impl Control {
    fn into_package(mut self) -> Result<Package, DebError> {
        self.scripts.sort();
        let text = self.text.unwrap_or_default();
        let field = |field: &'static str| {
            field_value(&text, field.as_bytes())
                .filter(|value| is_word(value))
                .map(|value| String::from_utf8_lossy(value).into_owned())
                .ok_or_else(|| {
                    refused(
                        "deb_control",
                        format!("the control file of the package has no valid field {field}"),
                    )
                })
        };
        Ok(Package {
            name: field("Package")?,
            version: field("Version")?,
            architecture: field("Architecture")?,
            scripts: self.scripts,
        })
    }
}

/// The value of a single-line field in the first paragraph; field names are case-insensitive.
fn field_value<'text>(text: &'text [u8], field: &[u8]) -> Option<&'text [u8]> {
    let lines = text.split(|byte| *byte == b'\n');
    let mut paragraph = lines.take_while(|line| !line.trim_ascii().is_empty());
    paragraph.find_map(|line| {
        let cut = line.iter().position(|byte| *byte == b':')?;
        let is_field = line[..cut].eq_ignore_ascii_case(field);
        is_field.then(|| line[cut + 1..].trim_ascii())
    })
}

/// Whether the value has only characters of package names and versions (deb-version(7)).
fn is_word(value: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.:~_".contains(byte);
    !value.is_empty() && value.len() <= 255 && value.iter().all(is_plain)
}

/// Reads the members of an ar archive in sequence.
struct Members<R> {
    source: R,
    index: u64,
    /// Remaining bytes of the current member.
    left_bytes: u64,
    is_odd: bool,
}

/// Reads the current member.
impl<R: Read> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.left_bytes).unwrap_or(usize::MAX);
        let bytes_max = buffer.len().min(left);
        let count = self.source.read(&mut buffer[..bytes_max])?;
        self.left_bytes -= count as u64;
        Ok(count)
    }
}

impl<R: Read> Members<R> {
    fn begin(mut source: R) -> Result<Self, DebError> {
        let start = read_up_to(&mut source, MAGIC.len())?;
        if start != MAGIC {
            let found = crate::gzip::guess_format(&start).unwrap_or("something else");
            return Err(refused(
                "not_deb",
                format!("this is {found}; expected a Debian package"),
            ));
        }
        Ok(Self {
            source,
            index: 0,
            left_bytes: 0,
            is_odd: false,
        })
    }

    /// The name of the next member; `None` at the end.
    fn next(&mut self) -> Result<Option<Vec<u8>>, DebError> {
        self.index += 1;
        let index = self.index;
        let header = read_up_to(&mut self.source, HEADER_BYTES)?;
        if header.is_empty() {
            return Ok(None);
        }
        let malformed = |problem: &str| {
            refused(
                "deb_header",
                format!("the header of member {index} of the package is malformed: {problem}"),
            )
        };
        if header.len() < HEADER_BYTES {
            return Err(truncated("the header of a member"));
        }
        if index > MEMBERS_MAX {
            return Err(malformed(&format!("more than {MEMBERS_MAX} members")));
        }
        if &header[58..60] != b"`\n" {
            return Err(malformed("it does not end in a backquote and a newline"));
        }
        let digits = header[48..58].trim_ascii_end();
        let size = std::str::from_utf8(digits)
            .ok()
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse::<u64>().ok());
        let Some(size) = size else {
            return Err(malformed(&format!("its size is `{}`", shown(digits))));
        };
        (self.left_bytes, self.is_odd) = (size, size % 2 == 1);
        let name = header[..16].trim_ascii_end();
        // GNU ar ends names with a slash.
        Ok(Some(name.strip_suffix(b"/").unwrap_or(name).to_vec()))
    }

    /// Checks `debian-binary`, which must be the first member.
    fn check_format(&mut self) -> Result<(), DebError> {
        let expected = "debian-binary with version 2";
        match self.next()? {
            Some(name) if name == b"debian-binary" && self.left_bytes <= FORMAT_BYTES_MAX => (),
            other => return Err(self.unexpected(other, expected)),
        }
        let mut version = Vec::new();
        self.read_to_end(&mut version).map_err(DebError::Read)?;
        if !version.starts_with(FORMAT) {
            return Err(self.unexpected(Some(version), expected));
        }
        self.end_member("debian-binary")
    }

    /// Finds the next member, skipping optional ones, whose names begin with `_`; it must be `stem`.
    fn find_tar(&mut self, stem: &[u8]) -> Result<Compression, DebError> {
        let expected = match stem {
            b"control.tar" => "control.tar, .gz, .xz or .zst",
            _ => "data.tar, .gz, .xz or .zst",
        };
        loop {
            let found = self.next()?;
            let name = found.as_deref().unwrap_or_default();
            if name.starts_with(b"_") {
                self.skip()?;
                continue;
            }
            return match name.strip_prefix(stem) {
                Some(b"") => Ok(Compression::Plain),
                Some(b".gz") => Ok(Compression::Gzip),
                Some(b".xz") => Ok(Compression::Xz),
                Some(b".zst") => Ok(Compression::Zstd),
                _ => Err(self.unexpected(found, expected)),
            };
        }
    }

    fn skip(&mut self) -> Result<(), DebError> {
        std::io::copy(self, &mut std::io::sink()).map_err(DebError::Read)?;
        self.end_member("a member")
    }

    /// Skips the padding byte after a member of odd size.
    fn end_member(&mut self, what: &'static str) -> Result<(), DebError> {
        if self.left_bytes > 0 {
            return Err(truncated(what));
        }
        if self.is_odd {
            // Some archivers omit the last padding byte of the file.
            read_up_to(&mut self.source, 1)?;
        }
        Ok(())
    }

    /// Skips optional members (names with `_`) after `data.tar`; any other member is an error.
    fn check_end(&mut self) -> Result<(), DebError> {
        while let Some(name) = self.next()? {
            if !name.starts_with(b"_") {
                return Err(self.unexpected(Some(name), "the end"));
            }
            self.skip()?;
        }
        Ok(())
    }

    fn unexpected(&self, found: Option<Vec<u8>>, expected: &'static str) -> DebError {
        let found = found.map_or_else(
            || "missing".to_owned(),
            |name| format!("`{}`", shown(name.trim_ascii_end())),
        );
        refused(
            "deb_member",
            format!(
                "member {} of the package is {found}; expected {expected}",
                self.index
            ),
        )
    }
}

/// Reads `bytes` bytes, or fewer at the end.
fn read_up_to(source: &mut impl Read, bytes: usize) -> Result<Vec<u8>, DebError> {
    let mut read = Vec::new();
    let mut source = source.take(bytes as u64);
    source.read_to_end(&mut read).map_err(DebError::Read)?;
    Ok(read)
}

fn refused(code: &'static str, message: String) -> DebError {
    DebError::Refused(Refusal::new(code, message))
}

fn truncated(what: &str) -> DebError {
    refused(
        "deb_truncated",
        format!("the package ends in the middle of {what}"),
    )
}
