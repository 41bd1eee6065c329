//! Whether a body may read, write or execute what is at a path of its view. A table, without effects.

use spec::why_report::{Operation, State, Verdict};

/// What a path leads to, links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub place: Place,
    pub node: NodeKind,
    /// The rights that the mode gives the body; of a missing file, those of its directory.
    pub rights: Rights,
    pub on_host: OnHost,
}

/// The part of the view that a path is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// No part.
    Nowhere,
    /// A mount of the host or a source.
    Mount {
        writable: bool,
        programs: bool,
    },
    /// The root of an image.
    Image {
        writable: bool,
    },
    /// A private directory.
    Private,
    /// The run's own copy of a bundle whose files are known.
    Bundle,
    /// Files and directories that the runner makes; their mount is read-only.
    Fixed,
    Device,
    Proc,
    /// Covered by an empty file or directory.
    Mask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    File,
    Directory,
    /// Its directory exists.
    Missing,
    /// Its directory is missing too.
    MissingDirectory,
    /// Behind a directory that the body may not search.
    Inaccessible,
    /// Known only during a run.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights {
    pub read: bool,
    pub write: bool,
    pub execute: bool,
}

impl Rights {
    pub(crate) const ALL: Self = Self::of_bits(7);

    /// Of three bits of a mode.
    pub(crate) const fn of_bits(bits: u32) -> Self {
        Self {
            read: bits & 4 != 0,
            write: bits & 2 != 0,
            execute: bits & 1 != 0,
        }
    }
}

/// Whether the caller sees the path on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnHost {
    Present,
    Absent,
    /// Behind a directory that the caller may not search.
    Unknown,
}

/// The rule that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Visible,
    NotInView,
    NotOnHost,
    EmptyAtStart,
    NotInBundle,
    ReadOnly,
    Mode,
    Search,
    NoPrograms,
    Directory,
    Mask,
    OnlyRun,
}

impl Rule {
    /// The name in denials.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Visible => "visible",
            Self::NotInView => "not-in-view",
            Self::NotOnHost => "not-on-host",
            Self::EmptyAtStart => "private-directory",
            Self::NotInBundle => "not-in-bundle",
            Self::ReadOnly => "read-only",
            Self::Mode => "mode",
            Self::Search => "search",
            Self::NoPrograms => "no-programs",
            Self::Directory => "directory",
            Self::Mask => "mask",
            Self::OnlyRun => "only-run",
        }
    }

    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Visible => "mount and file mode permit it",
            Self::NotInView => "only listed paths of the host are in the view",
            Self::NotOnHost => "there is no such file",
            Self::NotInBundle => "the bundle has no such file",
            Self::EmptyAtStart => "a private directory has only what the body writes there",
            Self::ReadOnly => "the mount is read-only",
            Self::Mode => "the file's owner and mode do not permit it",
            Self::Search => "the mode of a directory on the way does not permit to enter it",
            Self::NoPrograms => "no program can be executed from this mount",
            Self::Directory => "a directory is not a program",
            Self::Mask => "it is covered, because it shows or changes the host",
            Self::OnlyRun => "the kernel decides in the run",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class {
    pub state: State,
    pub verdict: Verdict,
    pub rule: Rule,
    pub errno: Option<&'static str>,
}

/// Classifies one operation on what is at a path.
pub(crate) fn classify(seen: Seen, operation: Operation) -> Class {
    let (rule, errno) = decide(seen, operation);
    let state = match (seen.place, rule) {
        (_, Rule::NoPrograms) => State::NoExec,
        (Place::Mask, _) => State::Masked,
        (Place::Private | Place::Bundle, _) => State::Private,
        (Place::Device, _) => State::Device,
        (Place::Proc, _) => State::Proc,
        (_, Rule::NotInView) => State::Hidden,
        (_, Rule::NotOnHost) | (Place::Nowhere, _) => State::Absent,
        (Place::Mount { writable: true, .. } | Place::Image { writable: true }, _) => {
            State::ReadWrite
        }
        (Place::Mount { .. } | Place::Image { .. } | Place::Fixed, _) => State::ReadOnly,
    };
    let verdict = match rule {
        Rule::Visible => Verdict::Allowed,
        Rule::OnlyRun => Verdict::Depends,
        _ => Verdict::Denied,
    };
    Class {
        state,
        verdict,
        rule,
        errno,
    }
}

fn decide(seen: Seen, operation: Operation) -> (Rule, Option<&'static str>) {
    let Seen {
        place,
        node,
        rights,
        on_host,
    } = seen;
    let (writable, programs) = match place {
        Place::Nowhere | Place::Fixed => (false, false),
        Place::Mount { writable, programs } => (writable, programs),
        Place::Image { writable } => (writable, true),
        Place::Private | Place::Bundle => (true, true),
        Place::Device | Place::Proc => (true, false),
        Place::Mask => return (Rule::Mask, None),
    };
    let missing = match (place, on_host) {
        (Place::Private, _) => Rule::EmptyAtStart,
        (Place::Bundle, _) => Rule::NotInBundle,
        (Place::Nowhere, OnHost::Present) => Rule::NotInView,
        _ => Rule::NotOnHost,
    };
    match (node, operation) {
        (NodeKind::Inaccessible, _) => (Rule::Search, Some("EACCES")),
        (NodeKind::Missing, Operation::Write) if place == (Place::Image { writable: true }) => {
            (Rule::OnlyRun, None)
        }
        (NodeKind::Missing, Operation::Write) if place != Place::Nowhere => write(writable, rights),
        (NodeKind::Missing | NodeKind::MissingDirectory, _) => (missing, Some("ENOENT")),
        (NodeKind::Directory, Operation::Execute) => (Rule::Directory, Some("EACCES")),
        (_, Operation::Execute) if !programs => (Rule::NoPrograms, Some("EACCES")),
        (NodeKind::Unknown, Operation::Write) if !writable => write(writable, rights),
        (NodeKind::Unknown, _) => (Rule::OnlyRun, None),
        (_, Operation::Read) => permitted(rights.read),
        (_, Operation::Execute) => permitted(rights.execute),
        (_, Operation::Write) => write(writable, rights),
    }
}

fn write(writable: bool, rights: Rights) -> (Rule, Option<&'static str>) {
    if writable {
        permitted(rights.write)
    } else {
        (Rule::ReadOnly, Some("EROFS"))
    }
}

fn permitted(right: bool) -> (Rule, Option<&'static str>) {
    if right {
        (Rule::Visible, None)
    } else {
        (Rule::Mode, Some("EACCES"))
    }
}

/// The directory of an absolute path.
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        None | Some(0) => b"/",
        Some(end) => &path[..end],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeKind::{Directory, File, Inaccessible, Missing, MissingDirectory, Unknown};

    const MOUNTED: Place = Place::Mount {
        writable: false,
        programs: true,
    };
    const WRITABLE: Place = Place::Mount {
        writable: true,
        programs: true,
    };
    const NOEXEC: Place = Place::Mount {
        writable: true,
        programs: false,
    };

    const IMAGE: Place = Place::Image { writable: true };

    /// Place, node, mode, and what [`outcomes`] gives.
    const TABLE: [(Place, NodeKind, u32, &str); 21] = [
        (
            MOUNTED,
            File,
            7,
            "ReadOnly Allowed, ReadOnly EROFS, ReadOnly Allowed",
        ),
        (
            MOUNTED,
            Missing,
            7,
            "Absent ENOENT, ReadOnly EROFS, Absent ENOENT",
        ),
        (
            MOUNTED,
            Unknown,
            7,
            "ReadOnly Depends, ReadOnly EROFS, ReadOnly Depends",
        ),
        (
            WRITABLE,
            File,
            6,
            "ReadWrite Allowed, ReadWrite Allowed, ReadWrite EACCES",
        ),
        (
            WRITABLE,
            File,
            0,
            "ReadWrite EACCES, ReadWrite EACCES, ReadWrite EACCES",
        ),
        (
            WRITABLE,
            Directory,
            7,
            "ReadWrite Allowed, ReadWrite Allowed, ReadWrite EACCES",
        ),
        (
            WRITABLE,
            Missing,
            7,
            "Absent ENOENT, ReadWrite Allowed, Absent ENOENT",
        ),
        (
            WRITABLE,
            Missing,
            5,
            "Absent ENOENT, ReadWrite EACCES, Absent ENOENT",
        ),
        (
            WRITABLE,
            MissingDirectory,
            7,
            "Absent ENOENT, Absent ENOENT, Absent ENOENT",
        ),
        (
            WRITABLE,
            Inaccessible,
            7,
            "ReadWrite EACCES, ReadWrite EACCES, ReadWrite EACCES",
        ),
        (
            NOEXEC,
            File,
            7,
            "ReadWrite Allowed, ReadWrite Allowed, NoExec EACCES",
        ),
        (
            IMAGE,
            Missing,
            7,
            "Absent ENOENT, ReadWrite Depends, Absent ENOENT",
        ),
        (
            IMAGE,
            Unknown,
            7,
            "ReadWrite Depends, ReadWrite Depends, ReadWrite Depends",
        ),
        (
            Place::Private,
            Missing,
            7,
            "Private ENOENT, Private Allowed, Private ENOENT",
        ),
        (
            Place::Private,
            MissingDirectory,
            7,
            "Private ENOENT, Private ENOENT, Private ENOENT",
        ),
        (
            Place::Bundle,
            File,
            6,
            "Private Allowed, Private Allowed, Private EACCES",
        ),
        (
            Place::Fixed,
            File,
            6,
            "ReadOnly Allowed, ReadOnly EROFS, NoExec EACCES",
        ),
        (
            Place::Device,
            File,
            6,
            "Device Allowed, Device Allowed, NoExec EACCES",
        ),
        (
            Place::Proc,
            Unknown,
            0,
            "Proc Depends, Proc Depends, NoExec EACCES",
        ),
        (
            Place::Proc,
            File,
            0,
            "Proc EACCES, Proc EACCES, NoExec EACCES",
        ),
        (
            Place::Mask,
            File,
            7,
            "Masked Denied, Masked Denied, Masked Denied",
        ),
    ];

    /// State and errno or verdict of reading, writing and executing.
    fn outcomes(place: Place, node: NodeKind, bits: u32, on_host: OnHost) -> String {
        let seen = Seen {
            place,
            node,
            rights: Rights::of_bits(bits),
            on_host,
        };
        let outcomes = Operation::ALL.map(|operation| {
            let Class {
                state,
                verdict,
                errno,
                ..
            } = classify(seen, operation);
            assert!(verdict == Verdict::Denied || errno.is_none(), "{seen:?}");
            match errno {
                Some(errno) => format!("{state:?} {errno}"),
                None => format!("{state:?} {verdict:?}"),
            }
        });
        outcomes.join(", ")
    }

    #[test]
    fn each_place_permits_what_its_mount_and_the_mode_permit() {
        for (place, node, bits, expected) in TABLE {
            let found = outcomes(place, node, bits, OnHost::Absent);
            assert_eq!(found, expected, "{place:?} {node:?} {bits}");
        }
        for (on_host, state) in [
            (OnHost::Present, "Hidden"),
            (OnHost::Absent, "Absent"),
            (OnHost::Unknown, "Absent"),
        ] {
            let expected = vec![format!("{state} ENOENT"); 3].join(", ");
            for node in [NodeKind::Missing, NodeKind::MissingDirectory] {
                assert_eq!(outcomes(Place::Nowhere, node, 0, on_host), expected);
            }
        }
    }
}
