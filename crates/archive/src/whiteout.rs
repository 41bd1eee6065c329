//! Whiteouts: names with which a layer removes entries of the layers below (OCI image-spec, layer.md,
//! "Whiteouts").

use crate::entry_rules::MemberKind;
use crate::error::Refusal;
use spec::path::RelPath;

pub(crate) const PREFIX: &[u8] = b".wh.";
/// Prefix of the internal names of AUFS, except the opaque marker.
const AUFS: &[u8] = b".wh..wh.";
pub(crate) const OPAQUE: &[u8] = b".wh..wh..opq";

/// What an entry of a layer does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LayerEntry {
    Ordinary,
    /// Internal data of AUFS, not part of the image.
    Aufs,
    /// Removes `name` in `directory` of the layers below; `None` is the root.
    Whiteout {
        directory: Option<RelPath>,
        name: Vec<u8>,
    },
    /// Hides the contents of this directory in the layers below; `None` is the root.
    Opaque {
        directory: Option<RelPath>,
    },
}

/// Classifies an entry. Refuses whiteouts that image readers do not support.
pub(crate) fn classify(path: &RelPath, kind: &MemberKind) -> Result<LayerEntry, Refusal> {
    let mut parents: Vec<&[u8]> = path.segments().collect();
    let name = parents.pop().unwrap_or_default();
    if parents.iter().any(|segment| segment.starts_with(AUFS)) {
        return Ok(LayerEntry::Aufs);
    }
    if parents.iter().any(|segment| segment.starts_with(PREFIX)) {
        return Err(Refusal::new(
            "whiteout_name",
            "it is beneath a whiteout; expected a whiteout to be a file",
        ));
    }
    let Some(hidden) = name.strip_prefix(PREFIX) else {
        return Ok(LayerEntry::Ordinary);
    };
    if name.starts_with(AUFS) && name != OPAQUE {
        return Ok(LayerEntry::Aufs);
    }
    match kind {
        MemberKind::File { bytes: 0 } => (),
        // AUFS stores all whiteouts as hard links to one file.
        MemberKind::HardLink { .. } => (),
        MemberKind::File { bytes } => {
            return Err(Refusal::new(
                "whiteout_data",
                format!("it is a whiteout with {bytes} bytes of data; expected an empty file"),
            ));
        }
        MemberKind::Directory => return Err(whiteout_not_a_file("a directory")),
        MemberKind::Symlink { .. } => return Err(whiteout_not_a_file("a symlink")),
        MemberKind::Special { what } => return Err(whiteout_not_a_file(what)),
    }
    let directory = path.parent();
    match hidden {
        _ if name == OPAQUE => Ok(LayerEntry::Opaque { directory }),
        b"" => Err(Refusal::new(
            "whiteout_name",
            "it is a whiteout without a name",
        )),
        b"." | b".." => Err(Refusal::new(
            "whiteout_name",
            "it is a whiteout of `.` or `..`; expected a name",
        )),
        hidden => Ok(LayerEntry::Whiteout {
            directory,
            name: hidden.to_vec(),
        }),
    }
}

fn whiteout_not_a_file(what: &str) -> Refusal {
    Refusal::new(
        "whiteout_not_a_file",
        format!("it is a whiteout and {what}; expected an empty file"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(path: &str, kind: &MemberKind) -> String {
        let path = RelPath::parse(path.as_bytes()).expect("a path");
        let shown =
            |directory: Option<RelPath>| directory.map_or("/".to_owned(), |d| d.to_string());
        match classify(&path, kind) {
            Ok(LayerEntry::Ordinary) => "ordinary".to_owned(),
            Ok(LayerEntry::Aufs) => "aufs".to_owned(),
            Ok(LayerEntry::Whiteout { directory, name }) => {
                format!("{} without {}", shown(directory), name.escape_ascii())
            }
            Ok(LayerEntry::Opaque { directory }) => format!("{} alone", shown(directory)),
            Err(error) => error.code().to_owned(),
        }
    }

    #[test]
    fn names_are_classified() {
        let file = MemberKind::File { bytes: 0 };
        for (path, expected) in [
            ("a/wh.x", "ordinary"),
            ("a/.whx", "ordinary"),
            (".wh.x", "/ without x"),
            ("a/b/.wh.x y", "a/b without x y"),
            (".wh..x", "/ without .x"),
            (".wh....", "/ without ..."),
            (".wh..wh..opq", "/ alone"),
            ("a/.wh..wh..opq", "a alone"),
            ("a/.wh..wh..opqx", "aufs"),
            (".wh..wh.aufs", "aufs"),
            (".wh..wh.plnk/12.3", "aufs"),
            ("a/.wh..wh.orph/.wh.x", "aufs"),
            (".wh.", "whiteout_name"),
            ("a/.wh.", "whiteout_name"),
            (".wh..", "whiteout_name"),
            ("a/.wh...", "whiteout_name"),
            (".wh.x/y", "whiteout_name"),
            ("a/.wh.x/.wh.y", "whiteout_name"),
        ] {
            assert_eq!(classified(path, &file), expected, "{path}");
        }
    }

    #[test]
    fn a_whiteout_is_an_empty_file() {
        let target = RelPath::parse(b"x").expect("a path");
        for (kind, expected) in [
            (MemberKind::File { bytes: 1 }, "whiteout_data"),
            (MemberKind::Directory, "whiteout_not_a_file"),
            (
                MemberKind::Symlink { target: vec![b'x'] },
                "whiteout_not_a_file",
            ),
            (
                MemberKind::Special { what: "a fifo" },
                "whiteout_not_a_file",
            ),
            (MemberKind::HardLink { target }, "/ without x"),
        ] {
            assert_eq!(classified(".wh.x", &kind), expected, "{kind:?}");
        }
    }
}
