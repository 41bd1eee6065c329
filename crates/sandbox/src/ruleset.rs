//! The Landlock ruleset: a second line of defense after the mounts.
//!
//! Handled: writing, executing, creating, moving and removing. They cost nothing when a file is
//! opened for reading.
//!
//! Not handled: reading and truncating. With either, the kernel checks the path of every opened file
//! up to a rule (since Linux 6.2 the open decides about a later truncate), and opening takes half as
//! long again. The mounts restrict both: wherever the ruleset would refuse truncating, the mount is
//! read-only.
//!
//! Connecting to named unix sockets is handled if host directories are bind-mounted and the kernel
//! supports it. Sockets of the body and those granted by name are allowed.
//!
//! Not handled: network rights, which are per port and would block the body's loopback, and device
//! ioctls, because all mounts except the single devices in /dev are nodev.

use landlock::{AccessFs, BitFlags, Scope, make_bitflags};

use crate::image_root::{is_from_image, without_host_programs};
use crate::view::{Access, BASE_CANDIDATES, ViewStep, WRITABLE, is_beneath};

type Rights = BitFlags<AccessFs>;

const WRITE_ALL: Rights = make_bitflags!(AccessFs::{
    Execute | WriteFile | RemoveDir | RemoveFile | MakeDir | MakeReg | MakeSock | MakeFifo | MakeSym
});
const MAKE_DEVICES: Rights = make_bitflags!(AccessFs::{MakeChar | MakeBlock});
/// Rights that a rule for a file may have, else EINVAL (landlock_add_rule(2)).
const FOR_FILES: Rights = make_bitflags!(AccessFs::{Execute | WriteFile});
const SCOPES: BitFlags<Scope> = make_bitflags!(Scope::{AbstractUnixSocket | Signal});

/// First ABI that restricts named unix sockets (Linux 7.1).
pub(crate) const RESOLVE_UNIX_SINCE: u32 = 9;

/// Rights at a path inside and beneath it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub path: Vec<u8>,
    pub allowed: Rights,
}

/// The ruleset of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    /// Rights that need a rule.
    pub handled: Rights,
    pub scoped: BitFlags<Scope>,
    pub rules: Vec<Rule>,
}

impl Ruleset {
    /// Whether it lets the body execute the program at a path of the view without links.
    #[must_use]
    pub(crate) fn permits_program(&self, path: &[u8]) -> bool {
        let mut rules = self.rules.iter();
        !self.handled.contains(AccessFs::Execute)
            || rules.any(|rule| {
                rule.allowed.contains(AccessFs::Execute)
                    && (rule.path == b"/" || rule.path == path || is_beneath(path, &rule.path))
            })
    }

    /// Restricts unix sockets to the body's own, which the kernel always allows, and those at the
    /// inside paths `named`. Needs ABI [`RESOLVE_UNIX_SINCE`].
    #[must_use]
    pub(crate) fn with_own_sockets_and(mut self, named: impl Iterator<Item = Vec<u8>>) -> Self {
        self.handled |= AccessFs::ResolveUnix;
        self.rules.extend(named.map(|path| Rule {
            path,
            allowed: AccessFs::ResolveUnix.into(),
        }));
        self
    }
}

fn rights_for(access: Access, refer: Rights) -> Rights {
    match access {
        Access::ReadOnly => AccessFs::Execute.into(),
        Access::Device => AccessFs::WriteFile.into(),
        Access::Writable => WRITE_ALL | refer,
    }
}

/// Builds the ruleset for Landlock version `abi` and all steps of the view; `None` without
/// Landlock.
#[must_use]
pub fn ruleset(abi: u32, steps: &[ViewStep]) -> Option<Ruleset> {
    if abi == 0 {
        return None;
    }
    // Without REFER (ABI 1) the kernel always refuses moving between directories.
    let refer = if abi >= 2 {
        AccessFs::Refer.into()
    } else {
        Rights::EMPTY
    };
    let scoped = if abi >= 6 { SCOPES } else { BitFlags::EMPTY };
    let handled = WRITE_ALL | MAKE_DEVICES | refer;
    let mut rules = Vec::new();
    for path in WRITABLE {
        rules.push(Rule {
            path: path.into(),
            allowed: WRITE_ALL | refer,
        });
    }
    for path in ["/proc", "/dev/pts"] {
        rules.push(Rule {
            path: path.into(),
            allowed: AccessFs::WriteFile.into(),
        });
    }
    for step in steps {
        let (path, allowed) = match step {
            ViewStep::Bind { target, access, .. }
            | ViewStep::BindFromSpace { target, access, .. }
            | ViewStep::Attach { target, access, .. }
            | ViewStep::AttachOverlay { target, access, .. } => {
                (target, rights_for(*access, refer))
            }
            ViewStep::Tmpfs { target, .. } => (target, WRITE_ALL | refer),
            ViewStep::SelfBind { path } if !WRITABLE.iter().any(|own| own.as_bytes() == path) => {
                (path, WRITE_ALL | refer)
            }
            _ => continue,
        };
        // Those of the base view in /etc contain no programs; a requested mount there may.
        if path.starts_with(b"/etc/") && BASE_CANDIDATES.iter().any(|base| base.as_bytes() == path)
        {
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

/// Builds the ruleset for an image as root. `top` are the directories in its root, without links;
/// `mounts` are the steps of the requested mounts.
///
/// All files of the image can be executed. If the root is `writable`, the content of the directories
/// in `top` can be written; nothing can be created in the root itself.
#[must_use]
pub fn of_image(
    abi: u32,
    base: &[ViewStep],
    mounts: &[ViewStep],
    top: &[Vec<u8>],
    writable: bool,
) -> Option<Ruleset> {
    let mut steps = without_host_programs(base);
    steps.extend_from_slice(mounts);
    let mut ruleset = ruleset(abi, &steps)?;
    ruleset.rules.push(Rule {
        path: b"/".to_vec(),
        allowed: AccessFs::Execute.into(),
    });
    let refer = ruleset.handled & AccessFs::Refer;
    for name in top.iter().filter(|name| writable && is_from_image(name)) {
        ruleset.rules.push(Rule {
            path: [b"/", name.as_slice()].concat(),
            allowed: WRITE_ALL | refer,
        });
    }
    Some(ruleset)
}

fn is_file(steps: &[ViewStep], target: &[u8]) -> bool {
    steps
        .iter()
        .any(|step| matches!(step, ViewStep::File { path, .. } if path == target))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::view;
    use spec::host::{HostEntry, HostSupport};

    #[test]
    fn of_the_sockets_of_others_only_a_named_one_can_be_reached() {
        let plain = ruleset(9, &[]).expect("it has rules");
        let named = vec![b"/run/agent".to_vec()];
        let confined = plain.clone().with_own_sockets_and(named.into_iter());
        assert!(!plain.handled.contains(AccessFs::ResolveUnix));
        assert_eq!(confined.handled, plain.handled | AccessFs::ResolveUnix);
        let (last, rest) = confined.rules.split_last().expect("rules");
        assert_eq!(rest, plain.rules);
        assert_eq!(
            (&last.path[..], last.allowed),
            (&b"/run/agent"[..], AccessFs::ResolveUnix.into())
        );
        // A right on the parent directory would cover every socket in it.
        let of_sockets = confined
            .rules
            .iter()
            .filter(|rule| rule.allowed.contains(AccessFs::ResolveUnix));
        assert_eq!(of_sockets.count(), 1);
    }

    #[test]
    fn only_writable_mounts_are_writable_by_rule() {
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
        assert_eq!(allowed("/usr"), Some(AccessFs::Execute.into()));
        assert_eq!(allowed("/dev/null"), Some(AccessFs::WriteFile.into()));
        assert_eq!(allowed("/etc/ssl"), None);
        for (path, expected) in [
            ("/usr/bin/sh", true),
            ("/usr", true),
            ("/usrx/sh", false),
            ("/tmp/program", true),
            ("/etc/ssl/misc/program", false),
            ("/program", false),
        ] {
            let permits = ruleset.permits_program(path.as_bytes());
            assert_eq!(permits, expected, "{path}");
        }
        assert_eq!(allowed("/bundle"), Some(WRITE_ALL | AccessFs::Refer));
        assert_eq!(ruleset.scoped.bits(), 3);
    }

    /// The target of a writable mount. No wildcard: each new kind of step needs a decision.
    fn writable(step: &ViewStep) -> Option<&[u8]> {
        match step {
            ViewStep::Bind { target, access, .. }
            | ViewStep::BindFromSpace { target, access, .. }
            | ViewStep::Attach { target, access, .. }
            | ViewStep::AttachOverlay { target, access, .. } => {
                (*access != Access::ReadOnly).then_some(target)
            }
            ViewStep::SelfBind { path } => Some(path),
            ViewStep::Tmpfs { target, .. } => Some(target),
            ViewStep::Proc => Some(b"/proc"),
            ViewStep::Devpts => Some(b"/dev/pts"),
            // On the root mount, which becomes read-only; a mask is the null device.
            ViewStep::Directory { .. }
            | ViewStep::File { .. }
            | ViewStep::Symlink { .. }
            | ViewStep::Mask { .. }
            | ViewStep::MaskDirectory { .. } => None,
        }
    }

    #[test]
    fn the_rules_allow_writing_exactly_where_the_mounts_do() {
        let host = HostSupport {
            entries: BASE_CANDIDATES
                .iter()
                .map(|path| (*path, HostEntry::Directory))
                .collect(),
            ..HostSupport::default()
        };
        let mut steps = view::base(&host);
        let bytes = |path: &str| path.as_bytes().to_vec();
        let accesses = [Access::ReadOnly, Access::Writable];
        for (number, access) in accesses.into_iter().enumerate() {
            steps.push(ViewStep::Bind {
                source: bytes("/host"),
                target: bytes(&format!("/bound/{number}")),
                access,
            });
            steps.push(ViewStep::Attach {
                tree: number,
                target: bytes(&format!("/etc/attached/{number}")),
                access,
            });
            steps.push(ViewStep::BindFromSpace {
                source: bytes("/runner/overlays/0"),
                target: bytes(&format!("/copied/{number}")),
                access,
            });
            steps.push(ViewStep::AttachOverlay {
                overlay: number,
                target: bytes(&format!("/laid/{number}")),
                access,
            });
        }
        steps.push(ViewStep::Tmpfs {
            target: bytes("/limited"),
            size_bytes: 1,
        });
        steps.push(ViewStep::SelfBind {
            path: bytes("/own"),
        });
        let by_mount: BTreeSet<&[u8]> = steps.iter().filter_map(writable).collect();
        for abi in [1, 2, 3, 5, 6, 7, 99] {
            let ruleset = ruleset(abi, &steps).expect("landlock");
            let by_rule: BTreeSet<&[u8]> = ruleset
                .rules
                .iter()
                .filter(|rule| rule.allowed.contains(AccessFs::WriteFile))
                .map(|rule| rule.path.as_slice())
                .collect();
            assert_eq!(by_rule, by_mount, "{abi}");
            let mut rules = ruleset.rules.iter();
            let in_etc = rules.find(|rule| rule.path == b"/etc/attached/0");
            let expected = Rights::from(AccessFs::Execute);
            assert_eq!(in_etc.map(|rule| rule.allowed), Some(expected), "{abi}");
        }
    }

    /// READ_FILE, READ_DIR (ABI 1) and TRUNCATE (ABI 3) make opening for reading slow.
    #[test]
    fn no_right_is_handled_that_the_kernel_checks_when_a_file_is_opened_for_reading() {
        for abi in [1, 2, 3, 5, 6, 7, 99] {
            let handled = ruleset(abi, &[]).expect("landlock").handled;
            assert_eq!(
                handled.bits() & ((1 << 2) | (1 << 3) | (1 << 14)),
                0,
                "{abi}"
            );
            let refer = if abi == 1 {
                Rights::EMPTY
            } else {
                AccessFs::Refer.into()
            };
            assert_eq!(handled, WRITE_ALL | MAKE_DEVICES | refer, "{abi}");
        }
    }

    #[test]
    fn a_rule_for_a_file_has_no_right_that_only_directories_have() {
        let file = |path: &str| ViewStep::File {
            path: path.into(),
            contents: Vec::new(),
        };
        let attach = |path: &str, access| ViewStep::Attach {
            tree: 0,
            access,
            target: path.into(),
        };
        let steps = [
            attach("/read-only", Access::ReadOnly),
            file("/tool"),
            attach("/tool", Access::Writable),
            attach("/directory", Access::Writable),
        ];
        let rules = ruleset(7, &steps).expect("landlock").rules;
        let allowed: Vec<Rights> = rules.iter().rev().map(|rule| rule.allowed).collect();
        let expected = [
            WRITE_ALL | AccessFs::Refer,
            FOR_FILES,
            AccessFs::Execute.into(),
        ];
        assert_eq!(allowed[..3], expected);
    }

    #[test]
    fn an_image_can_be_executed_and_written_only_below_its_own_directories() {
        let host = HostSupport {
            entries: vec![("/usr", HostEntry::Directory)],
            ..HostSupport::default()
        };
        let base = view::base(&host);
        let mounts = [ViewStep::Bind {
            source: b"/host".to_vec(),
            target: b"/srv/mounted".to_vec(),
            access: Access::ReadOnly,
        }];
        let top = ["usr", "proc", "dev", "srv", "runner"].map(|name| name.as_bytes().to_vec());
        let write = WRITE_ALL | AccessFs::Refer;
        for (writable, below) in [(true, Some(write)), (false, None)] {
            let ruleset = of_image(7, &base, &mounts, &top, writable).expect("landlock");
            let allowed = |path: &str| {
                let found = ruleset
                    .rules
                    .iter()
                    .find(|rule| rule.path == path.as_bytes());
                found.map(|rule| rule.allowed)
            };
            assert_eq!(allowed("/"), Some(AccessFs::Execute.into()));
            assert!(ruleset.permits_program(b"/opt/program"));
            assert_eq!(
                allowed("/usr"),
                below,
                "never the rule of the host's own /usr"
            );
            assert_eq!(allowed("/srv"), below);
            assert_eq!(allowed("/srv/mounted"), Some(AccessFs::Execute.into()));
            assert_eq!(allowed("/dev/null"), Some(AccessFs::WriteFile.into()));
            assert_eq!(allowed("/dev"), None);
            assert_eq!(allowed("/runner"), None);
            assert_eq!(allowed("/proc"), Some(AccessFs::WriteFile.into()));
            assert_eq!(allowed("/bundle"), Some(write));
            assert!(ruleset.handled.contains(MAKE_DEVICES));
            for rule in &ruleset.rules {
                assert!(!rule.allowed.intersects(MAKE_DEVICES));
            }
        }
        assert_eq!(of_image(0, &base, &mounts, &top, true), None);
    }

    #[test]
    fn an_older_kernel_gets_only_rights_that_it_supports() {
        assert_eq!(ruleset(0, &[]), None);
        let first = ruleset(1, &[]).expect("landlock");
        assert!(!first.handled.contains(AccessFs::Refer));
        assert!(first.scoped.is_empty());
        for rule in &first.rules {
            assert!(first.handled.contains(rule.allowed));
        }
    }
}
