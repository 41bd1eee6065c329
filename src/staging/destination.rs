//! Checks the names of declared keys and destinations.

use crate::staging::error::{Refusal, ScratchError};
use crate::staging::sync::OutputFile;
use crate::staging::temporary;
use spec::path::{PathError, RelPath, escape};

/// Maximum number of outputs of one run.
pub const OUTPUTS_MAX: usize = 10_000;

/// Directories whose content other programs execute or obey, and the runner itself: `.secrets`
/// restricts secrets, `.code` and `.code-workspaces` hold bundles. `git~1` is the short name of `.git`
/// on file systems with 8.3 names.
const OBEYED_DIRECTORIES: &[&str] = &[
    ".cargo",
    ".circleci",
    ".claude",
    ".code",
    ".code-workspaces",
    ".devcontainer",
    ".docker",
    ".emacs.d",
    ".git",
    ".github",
    ".gnupg",
    ".hg",
    ".husky",
    ".idea",
    ".runner",
    ".secrets",
    ".ssh",
    ".svn",
    ".venv",
    ".vim",
    ".vscode",
    "git~1",
];

/// Directories that are obeyed directly below the first name.
const OBEYED_BELOW: &[(&str, &str)] = &[
    (".config", "autostart"),
    (".config", "environment.d"),
    (".config", "fish"),
    (".config", "git"),
    (".config", "nvim"),
    (".config", "runner"),
    (".config", "systemd"),
    (".local", "bin"),
];

/// Files that programs other than shells execute or obey.
const OBEYED_FILES: &[&str] = &[
    ".emacs",
    ".gdbinit",
    ".gitconfig",
    ".gitlab-ci.yml",
    ".inputrc",
    ".npmrc",
    ".pre-commit-config.yaml",
    ".tmux.conf",
    ".vimrc",
    "pyvenv.cfg",
];

/// Files that shells execute when they start or end, and the files that those read.
const SHELL_FILES: &[&str] = &[
    ".bash_aliases",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".cshrc",
    ".envrc",
    ".kshrc",
    ".login",
    ".logout",
    ".mkshrc",
    ".pam_environment",
    ".profile",
    ".shrc",
    ".tcshrc",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "config.fish",
];

/// Refuses a destination that is executed or obeyed later, outside the sandbox.
///
/// Compares every segment, ignoring ASCII case and dots and spaces at its end: on a file system that
/// ignores those, `.GIT ` is `.git`.
///
/// # Errors
/// [`ScratchError::DestinationRefused`], naming the rule.
pub fn check_destination(path: &RelPath) -> Result<(), ScratchError> {
    check_not_temporary(path)?;
    let mut above = Vec::new();
    for segment in path.segments() {
        let folded = fold(segment);
        let is_in = |list: &[&str]| list.iter().any(|name| name.as_bytes() == folded);
        let is_obeyed_below = OBEYED_BELOW
            .iter()
            .any(|(first, name)| first.as_bytes() == above && name.as_bytes() == folded);
        let reason = if is_in(OBEYED_DIRECTORIES) || is_obeyed_below {
            Refusal::ObeyedDirectory
        } else if is_in(OBEYED_FILES) {
            Refusal::ObeyedFile
        } else if is_in(SHELL_FILES) {
            Refusal::ShellFile
        } else {
            above = folded;
            continue;
        };
        return Err(refused(path, reason));
    }
    Ok(())
}

/// Refuses, even if granted, names of temporary files, which a later start removes.
pub(super) fn check_not_temporary(path: &RelPath) -> Result<(), ScratchError> {
    if path
        .segments()
        .any(|segment| temporary::is_temporary_name(&fold(segment)))
    {
        return Err(refused(path, Refusal::OwnTemporary));
    }
    Ok(())
}

/// Refuses keys that are not a plain file name.
///
/// # Errors
/// [`ScratchError::KeyRefused`].
pub fn check_key(key: &str) -> Result<(), ScratchError> {
    let reason = match RelPath::parse(key.as_bytes()) {
        Err(PathError::Empty) => "is empty",
        Err(PathError::Nul) => "contains a NUL byte",
        Err(PathError::Absolute) => "begins with `/`",
        Err(PathError::Parent) => "contains `..`",
        Err(PathError::EmptySegment) => "is `.` or contains an empty segment",
        Err(PathError::TooLong | PathError::SegmentTooLong) => "is longer than 255 bytes",
        Ok(path) if path.parent().is_some() => "contains `/`",
        Ok(_) if key.starts_with('-') => "begins with `-`",
        Ok(_) if key.chars().any(char::is_control) => "contains a control character",
        Ok(_) => return Ok(()),
    };
    Err(ScratchError::KeyRefused {
        key: escape(key.as_bytes()),
        reason,
    })
}

/// Refuses, before launch, a set of outputs that cannot be synced as declared.
///
/// Paths that differ only in ASCII case count as the same: on a case-insensitive file system one
/// output would replace the other.
///
/// # Errors
/// The first of: more than [`OUTPUTS_MAX`] outputs, a key that is no file name or is declared twice, a
/// destination that is refused and not granted, two destinations that are the same or of which one is
/// a parent directory of the other.
pub fn check_outputs(outputs: &[OutputFile]) -> Result<(), ScratchError> {
    if outputs.len() > OUTPUTS_MAX {
        return Err(ScratchError::TooManyFiles {
            found: outputs.len(),
            limit: OUTPUTS_MAX,
        });
    }
    check_keys(outputs.iter().map(|output| output.key.as_str()))?;
    for output in outputs {
        if output.granted {
            check_not_temporary(&output.path)?;
        } else {
            check_destination(&output.path)?;
        }
    }
    // With the separator as the lowest byte, a path sorts directly before all paths below it: only
    // neighbours need comparing.
    let mut sorted: Vec<(Vec<u8>, &OutputFile)> = outputs
        .iter()
        .map(|output| (sort_key(&output.path), output))
        .collect();
    sorted.sort_by(|one, other| one.0.cmp(&other.0));
    for pair in sorted.windows(2) {
        let [(upper, first), (lower, second)] = pair else {
            continue;
        };
        let overlaps = lower
            .strip_prefix(upper.as_slice())
            .is_some_and(|rest| rest.is_empty() || rest[0] == 0);
        if overlaps {
            return Err(ScratchError::OutputsOverlap {
                first: escape(first.key.as_bytes()),
                second: escape(second.key.as_bytes()),
                path: first.path.to_string(),
            });
        }
    }
    Ok(())
}

/// Checks each key, and that no key occurs twice.
pub(super) fn check_keys<'key>(keys: impl Iterator<Item = &'key str>) -> Result<(), ScratchError> {
    let mut seen = std::collections::BTreeSet::new();
    for key in keys {
        check_key(key)?;
        if !seen.insert(key) {
            return Err(ScratchError::KeyTwice {
                key: escape(key.as_bytes()),
            });
        }
    }
    Ok(())
}

fn sort_key(path: &RelPath) -> Vec<u8> {
    path.as_bytes()
        .iter()
        .map(|byte| match byte {
            b'/' => 0,
            other => other.to_ascii_lowercase(),
        })
        .collect()
}

fn fold(segment: &[u8]) -> Vec<u8> {
    let end = segment
        .iter()
        .rposition(|byte| !matches!(byte, b'.' | b' '))
        .map_or(0, |last| last + 1);
    segment[..end].to_ascii_lowercase()
}

fn refused(path: &RelPath, reason: Refusal) -> ScratchError {
    ScratchError::DestinationRefused {
        path: path.to_string(),
        reason,
    }
}
