//! Determines the kind of an entry from its type flag and names, with rules for each kind of archive.

use crate::error::{Refusal, shown};
use crate::links::{self, check_target};
use crate::path_mapping::PathMapping;
use crate::tar_header::{Format, OCTAL_SIZE_MAX};
use crate::tree_writer::is_in_version_control;
use spec::path::{PATH_BYTES_MAX, PathError, RelPath};

/// Maximum number of path segments; the deepest npm trees have about fifty.
pub const SEGMENTS_MAX: usize = 128;

/// The kind of the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// A bundle: links stay inside the bundle and do not pass through other links.
    Bundle,
    /// The snapshot of a source: only files and directories.
    Snapshot,
    /// A layer of an image: names are paths from the image root, links are resolved by the body.
    Layer,
    /// Files that are copied: as those of a layer, but the archive must have its end.
    Files,
}

/// The kind of a [`Member`](crate::entries::Member).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File {
        bytes: u64,
    },
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    HardLink {
        target: RelPath,
    },
    /// A device or a fifo, which is allowed only in a layer.
    Special {
        what: &'static str,
    },
}

/// The fields of a header except the names.
#[derive(Clone, Copy)]
pub(crate) struct HeaderFields {
    pub format: Format,
    pub type_flag: u8,
    pub header_bytes: u64,
    pub pax_bytes: Option<u64>,
}

/// Determines the destination and the kind of an entry. The error is a rule that the entry breaks.
pub(crate) fn classify(
    name: &[u8],
    link: Vec<u8>,
    header: HeaderFields,
    rules: Rules,
    mapping: &mut PathMapping,
) -> Result<(Option<RelPath>, MemberKind), Refusal> {
    let is_v7_directory = header.format == Format::V7 && name.ends_with(b"/");
    let is_directory = match header.type_flag {
        0 => is_v7_directory,
        flag => flag == b'5',
    };
    let kind = match (header.type_flag, rules) {
        _ if is_directory => "a directory",
        (0 | b'0', _) => "a file",
        (b'1', Rules::Bundle | Rules::Layer | Rules::Files) => "a hard link",
        (b'2', Rules::Bundle | Rules::Layer | Rules::Files) => "a symlink",
        (special @ (b'3' | b'4' | b'6'), Rules::Layer | Rules::Files) => type_name(special),
        (other, _) => return Err(unsupported(other, rules)),
    };
    let bytes = data_bytes(header)?;
    let is_file = kind == "a file";
    if !is_file && bytes > 0 {
        return Err(Refusal::new(
            "data_without_file",
            format!("it is {kind} with {bytes} bytes of data; expected none"),
        ));
    }
    let path = match rules {
        Rules::Layer | Rules::Files => image_path(name, kind, is_directory)?,
        Rules::Bundle | Rules::Snapshot => bundle_path(name, kind, is_directory)?,
    };
    let path = match path {
        None if !is_directory => {
            return Err(Refusal::new(
                "path_root",
                format!("it is {kind} named like the top directory itself"),
            ));
        }
        path => mapping.map_entry(path, kind)?,
    };
    let kind = match (kind, &path) {
        ("a file", _) => MemberKind::File { bytes },
        ("a hard link", Some(_)) => MemberKind::HardLink {
            target: match rules {
                Rules::Layer | Rules::Files => image_link_target(&link)?,
                Rules::Bundle | Rules::Snapshot => {
                    mapping.map_link_target(bundle_link_target(&link)?)?
                }
            },
        },
        ("a symlink", Some(path)) => {
            match rules {
                Rules::Layer | Rules::Files => check_link_length(&link)?,
                // Excluded entries are never created, so their targets are not checked.
                _ if is_in_version_control(path) => (),
                _ => check_target(path, &link).map_err(|error| error.about("it"))?,
            }
            MemberKind::Symlink { target: link }
        }
        // A link without a destination is skipped, so its target is not checked.
        ("a directory" | "a hard link" | "a symlink", _) => MemberKind::Directory,
        (what, _) => MemberKind::Special { what },
    };
    Ok((path, kind))
}

/// The size that all readers use. A different pax size is accepted only if the header cannot hold it;
/// otherwise two readers could disagree about where the data ends.
fn data_bytes(header: HeaderFields) -> Result<u64, Refusal> {
    let header_bytes = header.header_bytes;
    match header.pax_bytes {
        Some(pax_bytes) if pax_bytes != header_bytes && pax_bytes <= OCTAL_SIZE_MAX => {
            Err(Refusal::new(
                "two_sizes",
                format!(
                    "its size is {header_bytes} in the header and {pax_bytes} in the pax header"
                ),
            ))
        }
        Some(pax_bytes) => Ok(pax_bytes),
        None => Ok(header_bytes),
    }
}

/// The path of a member name; `None` for the bundle's root directory. One leading `./` is allowed, as
/// `tar -C DIR .` writes it; one trailing `/` marks a directory.
fn bundle_path(
    name: &[u8],
    kind: &'static str,
    is_directory: bool,
) -> Result<Option<RelPath>, Refusal> {
    if matches!(name, b"." | b"./") {
        return Ok(None);
    }
    let inner = name.strip_prefix(b"./").unwrap_or(name);
    if inner.starts_with(b"/") {
        return Err(Refusal::path(PathError::Absolute));
    }
    let inner = match inner.strip_suffix(b"/") {
        Some(directory) if is_directory => directory,
        Some(_) => return Err(slash_after_name(kind)),
        None => inner,
    };
    let path = RelPath::parse(inner).map_err(Refusal::path)?;
    check_depth(path).map(Some)
}

/// The path of a member name from the image root: a leading `/`, `.` and empty segments are ignored, as
/// by other image readers; `..` is refused.
fn image_path(
    name: &[u8],
    kind: &'static str,
    is_directory: bool,
) -> Result<Option<RelPath>, Refusal> {
    if name.is_empty() {
        return Err(Refusal::path(PathError::Empty));
    }
    if name.ends_with(b"/") && !is_directory {
        return Err(slash_after_name(kind));
    }
    match normalize(name).map_err(Refusal::path)? {
        None => Ok(None),
        Some(path) => check_depth(path).map(Some),
    }
}

/// Removes empty and `.` segments; `None` if nothing remains.
fn normalize(name: &[u8]) -> Result<Option<RelPath>, PathError> {
    let segments: Vec<&[u8]> = name
        .split(|byte| *byte == b'/')
        .filter(|segment| !matches!(*segment, b"" | b"."))
        .collect();
    if segments.is_empty() {
        return Ok(None);
    }
    RelPath::parse(&segments.join(&b'/')).map(Some)
}

fn check_depth(path: RelPath) -> Result<RelPath, Refusal> {
    let segments = path.segments().count();
    if segments > SEGMENTS_MAX {
        return Err(Refusal::too_deep(segments, SEGMENTS_MAX));
    }
    Ok(path)
}

fn slash_after_name(kind: &'static str) -> Refusal {
    Refusal::new(
        "path_slash_after_name",
        format!("it is {kind} whose name ends in `/`"),
    )
}

fn check_link_length(target: &[u8]) -> Result<(), Refusal> {
    match target {
        b"" => Err(links::empty().about("it")),
        _ if target.len() > PATH_BYTES_MAX => Err(links::too_long().about("it")),
        _ => Ok(()),
    }
}

fn bundle_link_target(link: &[u8]) -> Result<RelPath, Refusal> {
    let inner = link.strip_prefix(b"./").unwrap_or(link);
    RelPath::parse(inner).map_err(|error| invalid_link_target(link, error))
}

fn image_link_target(link: &[u8]) -> Result<RelPath, Refusal> {
    normalize(link)
        .and_then(|path| path.ok_or(PathError::Empty))
        .map_err(|error| invalid_link_target(link, error))
}

fn invalid_link_target(link: &[u8], error: PathError) -> Refusal {
    let target = shown(link);
    Refusal::new(
        "hard_link_path",
        format!("it is a hard link to `{target}`, which {error}"),
    )
}

fn unsupported(type_flag: u8, rules: Rules) -> Refusal {
    let what = type_name(type_flag);
    match rules {
        Rules::Snapshot => Refusal::not_in_snapshot(what),
        Rules::Bundle | Rules::Layer | Rules::Files => Refusal::new(
            "entry_type",
            format!(
                "it is {what} (type `{}`); expected a file, a directory or a link",
                [type_flag].escape_ascii()
            ),
        )
        .with_hint("leave it out, e.g. with `tar --exclude`"),
    }
}

fn type_name(type_flag: u8) -> &'static str {
    match type_flag {
        b'1' => "a hard link",
        b'2' => "a symlink",
        b'3' => "a character device",
        b'4' => "a block device",
        b'6' => "a fifo",
        b'7' => "a contiguous file",
        b'S' => "a sparse file",
        b'D' => "a GNU directory listing",
        b'M' => "the rest of a file from another volume",
        b'N' => "an old GNU long name",
        b'V' => "a volume label",
        b'X' => "a Solaris extended header",
        b's' => "a socket",
        _ => "of an unknown type",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, is_directory: bool) -> Result<Option<String>, &'static str> {
        let kind = if is_directory {
            "a directory"
        } else {
            "a file"
        };
        bundle_path(name.as_bytes(), kind, is_directory)
            .map(|path| path.map(|path| path.to_string()))
            .map_err(|refusal| refusal.code())
    }

    #[test]
    fn one_leading_dot_and_one_trailing_slash_are_stripped() {
        for (name, expected) in [
            (".", Ok(None)),
            ("./", Ok(None)),
            ("./a/b/", Ok(Some("a/b".to_owned()))),
            ("a", Ok(Some("a".to_owned()))),
            ("", Err("path_empty")),
            ("/", Err("path_absolute")),
            ("./.", Err("path_empty_segment")),
            ("././", Err("path_empty_segment")),
            ("././a", Err("path_empty_segment")),
            ("a/./b", Err("path_empty_segment")),
            ("a//", Err("path_empty_segment")),
            (".//a", Err("path_absolute")),
            ("//a", Err("path_absolute")),
            ("/./a", Err("path_absolute")),
            ("..", Err("path_parent")),
            ("../", Err("path_parent")),
            ("./../a", Err("path_parent")),
            ("a/b/../../c", Err("path_parent")),
        ] {
            assert_eq!(parsed(name, true), expected, "{name}");
        }
        assert_eq!(parsed("./a", false), Ok(Some("a".to_owned())));
        assert_eq!(parsed("a/", false), Err("path_slash_after_name"));
        let deep = |count: usize| vec!["a"; count].join("/");
        assert_eq!(
            parsed(&deep(SEGMENTS_MAX), false),
            Ok(Some(deep(SEGMENTS_MAX)))
        );
        assert_eq!(parsed(&deep(SEGMENTS_MAX + 1), false), Err("path_too_deep"));
    }

    #[test]
    fn a_size_that_two_readers_would_read_differently_is_refused() {
        let size = |header_bytes, pax_bytes| {
            data_bytes(HeaderFields {
                format: Format::Ustar,
                type_flag: b'0',
                header_bytes,
                pax_bytes,
            })
            .map_err(|refusal| refusal.code())
        };
        assert_eq!(size(7, None), Ok(7));
        assert_eq!(size(7, Some(7)), Ok(7));
        assert_eq!(size(0, Some(7)), Err("two_sizes"));
        assert_eq!(size(7, Some(0)), Err("two_sizes"));
        assert_eq!(size(0, Some(OCTAL_SIZE_MAX + 1)), Ok(OCTAL_SIZE_MAX + 1));
    }
}
