//! The Landlock ruleset: the second line behind the mounts.
//!
//! It handles writing, executing, making and removing. Not reading and not truncating: either
//! makes each open half as expensive again, and what can be read is decided by the mounts.
//! No network rights: they are per port and would refuse the body's own loopback.

use crate::plan::view::{Access, ViewStep, WRITABLE};

/// The rights, with the values of `linux/landlock.h`.
mod right {
    pub(super) const EXECUTE: u64 = 1 << 0;
    pub(super) const WRITE_FILE: u64 = 1 << 1;
    pub(super) const REMOVE: u64 = (1 << 4) | (1 << 5);
    pub(super) const MAKE_DEVICES: u64 = (1 << 6) | (1 << 11);
    pub(super) const MAKE: u64 = (1 << 7) | (1 << 8) | (1 << 9) | (1 << 10) | (1 << 12);
    pub(super) const REFER: u64 = 1 << 13;
}

const WRITE_ALL: u64 = right::WRITE_FILE | right::REMOVE | right::MAKE | right::EXECUTE;
/// What a rule for a file may hold: EINVAL for more (landlock_add_rule(2)).
const FOR_FILES: u64 = right::WRITE_FILE | right::EXECUTE;

/// One rule: rights at a path inside and beneath it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Inside, absolute.
    pub path: Vec<u8>,
    /// Rights that are allowed there.
    pub allowed: u64,
}

/// What is laid upon the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    /// Rights that are refused where no rule allows them.
    pub handled: u64,
    /// Scopes: abstract sockets and signals.
    pub scoped: u64,
    /// The rules.
    pub rules: Vec<Rule>,
}

/// The ruleset for a kernel with Landlock version `abi`, given all steps of the view.
///
/// `None` where the kernel has none.
#[must_use]
pub fn ruleset(abi: u32, steps: &[ViewStep]) -> Option<Ruleset> {
    if abi == 0 {
        return None;
    }
    // ABI 1 has no REFER: there moving between directories is always refused.
    let refer = if 2 <= abi { right::REFER } else { 0 };
    let scoped = if 6 <= abi { 0b11 } else { 0 };
    let handled = WRITE_ALL | right::MAKE_DEVICES | refer;
    let mut rules = Vec::new();
    for path in WRITABLE {
        rules.push(Rule {
            path: path.into(),
            allowed: WRITE_ALL | refer,
        });
    }
    rules.push(Rule {
        path: b"/proc".to_vec(),
        allowed: right::WRITE_FILE,
    });
    rules.push(Rule {
        path: b"/dev/pts".to_vec(),
        allowed: right::WRITE_FILE,
    });
    for step in steps {
        let (path, allowed) = match step {
            ViewStep::Bind { target, access: Access::ReadOnly, .. } => (target, right::EXECUTE),
            ViewStep::Bind { target, access: Access::Device, .. } => (target, right::WRITE_FILE),
            ViewStep::Bind { target, access: Access::Writable, .. }
            | ViewStep::Tmpfs { target, .. }
            // Whether a cloned tree is writable is decided by its mount.
            | ViewStep::Attach { target, .. } => (target, WRITE_ALL | refer),
            ViewStep::OwnMount { path } if !WRITABLE.iter().any(|own| own.as_bytes() == path) => {
                (path, WRITE_ALL | refer)
            }
            _ => continue,
        };
        if path.starts_with(b"/etc/") {
            continue;
        }
        let allowed = if is_file(steps, path) {
            allowed & FOR_FILES
        } else {
            allowed
        };
        rules.push(Rule {
            path: path.clone(),
            allowed,
        });
    }
    Some(Ruleset {
        handled,
        scoped,
        rules,
    })
}

/// Whether the place of a mount was made as a file.
fn is_file(steps: &[ViewStep], target: &[u8]) -> bool {
    steps
        .iter()
        .any(|step| matches!(step, ViewStep::File { path, .. } if path == target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::view;
    use crate::spec::host::{HostEntry, HostSupport};

    #[test]
    fn only_what_is_writable_by_mount_is_writable_by_rule() {
        let host = HostSupport {
            entries: vec![
                ("/usr", HostEntry::Directory),
                ("/etc/ssl", HostEntry::Directory),
            ],
            ..HostSupport::default()
        };
        let ruleset = ruleset(7, &view::base(&host)).expect("landlock");
        let allowed = |path: &str| {
            ruleset
                .rules
                .iter()
                .find(|rule| rule.path == path.as_bytes())
                .map(|rule| rule.allowed)
        };
        assert_eq!(allowed("/usr"), Some(right::EXECUTE));
        assert_eq!(allowed("/dev/null"), Some(right::WRITE_FILE));
        assert_eq!(allowed("/etc/ssl"), None);
        assert_eq!(allowed("/bundle"), Some(WRITE_ALL | right::REFER));
        assert_eq!(ruleset.scoped, 3);
    }

    #[test]
    fn a_rule_for_a_file_holds_no_right_that_only_directories_have() {
        let file = |path: &str| ViewStep::File {
            path: path.into(),
            contents: Vec::new(),
        };
        let attach = |path: &str| ViewStep::Attach {
            tree: 0,
            target: path.into(),
        };
        let steps = [file("/tool"), attach("/tool"), attach("/directory")];
        let rules = ruleset(7, &steps).expect("landlock").rules;
        let last = |back: usize| rules[rules.len() - back].allowed;
        assert_eq!(last(2), FOR_FILES);
        assert_eq!(last(1), WRITE_ALL | right::REFER);
    }

    #[test]
    fn an_older_kernel_is_never_asked_for_rights_that_it_does_not_know() {
        assert_eq!(ruleset(0, &[]), None);
        let first = ruleset(1, &[]).expect("landlock");
        assert_eq!((first.handled & right::REFER, first.scoped), (0, 0));
        for rule in &first.rules {
            assert_eq!(rule.allowed & !first.handled, 0);
        }
    }
}
