//! The kernel's audit records about Landlock: what one says.
//!
//! The kernel writes a text that others have chosen as `"…"` if it has only visible ASCII and no quote, else in
//! upper-case hexadecimal digits. So spaces separate fields and are nowhere else.

use spec::path::PATH_BYTES_MAX;
use spec::path_use::PathOperation;
use sys::audit::{LANDLOCK_ACCESS, LANDLOCK_DOMAIN};

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditRecord {
    /// A domain refused an access, which is of no use if there is no refusal.
    Access { domain: u64, refusals: Vec<Refusal> },
    /// Which process made a domain. Comes right after the first access that a domain refuses.
    Allocated { domain: u64, process: u32, uid: u32 },
    /// A domain has no process any more. It refused `denials` accesses.
    Deallocated { domain: u64, denials: u64 },
}

/// What was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Of an entry that is made or removed, the record names the directory. Absolute, as the caller sees it.
    Path {
        operation: PathOperation,
        path: Vec<u8>,
    },
    /// A signal to this process.
    Signal { process: u32 },
}

/// Reads the text of a record; `None`: it is none of these, or not as the kernel writes it.
#[must_use]
pub fn parse(kind: u16, text: &[u8]) -> Option<AuditRecord> {
    let text = std::str::from_utf8(text).ok()?;
    let (stamp, fields) = text.strip_prefix("audit(")?.split_once("): ")?;
    let is_of_stamp = |byte: u8| byte.is_ascii_digit() || byte == b'.' || byte == b':';
    if !stamp.bytes().all(is_of_stamp) {
        return None;
    }
    let fields: Option<Vec<_>> = fields
        .split(' ')
        .map(|field| field.split_once('='))
        .collect();
    match (kind, &fields?[..]) {
        (LANDLOCK_ACCESS, [("domain", domain), ("blockers", blockers), object @ ..]) => {
            Some(AuditRecord::Access {
                domain: number(domain, 16)?,
                refusals: refusals(blockers, object)?,
            })
        }
        (
            LANDLOCK_DOMAIN,
            [
                ("domain", domain),
                ("status", "allocated"),
                ("mode", "enforcing"),
                ("pid", process),
                ("uid", uid),
                ("exe", _),
                ("comm", _),
                ..,
            ],
        ) => Some(AuditRecord::Allocated {
            domain: number(domain, 16)?,
            process: number(process, 10)?.try_into().ok()?,
            uid: number(uid, 10)?.try_into().ok()?,
        }),
        (
            LANDLOCK_DOMAIN,
            [
                ("domain", domain),
                ("status", "deallocated"),
                ("denials", denials),
                ..,
            ],
        ) => Some(AuditRecord::Deallocated {
            domain: number(domain, 16)?,
            denials: number(denials, 10)?,
        }),
        _ => None,
    }
}

/// A blocker that is not of a right which the body's ruleset handles gives none, nor `fs.refer`, which names one
/// of two directories.
fn refusals(blockers: &str, object: &[(&str, &str)]) -> Option<Vec<Refusal>> {
    // A field twice would leave open which one is meant.
    let field = |name: &str| {
        let mut found = object.iter().filter(|(key, _)| *key == name);
        match (found.next(), found.next()) {
            (found, None) => Some(found.map(|(_, value)| *value)),
            (_, Some(_)) => None,
        }
    };
    let path = field("path")?.map(decoded);
    let process = field("opid")?.map(|text| number(text, 10));
    let mut refusals = Vec::new();
    for blocker in blockers.split(',') {
        let refusal = match (blocker, operation(blocker)) {
            ("scope.signal", _) => Refusal::Signal {
                process: process??.try_into().ok()?,
            },
            (_, Some(operation)) => Refusal::Path {
                operation,
                path: path.clone()??,
            },
            (_, None) => continue,
        };
        if !refusals.contains(&refusal) {
            refusals.push(refusal);
        }
    }
    Some(refusals)
}

fn operation(blocker: &str) -> Option<PathOperation> {
    Some(match blocker {
        "fs.execute" => PathOperation::Execute,
        "fs.write_file" => PathOperation::Write,
        "fs.remove_dir" | "fs.remove_file" => PathOperation::Remove,
        "fs.resolve_unix" => PathOperation::Connect,
        _ if blocker.starts_with("fs.make_") => PathOperation::Create,
        _ => return None,
    })
}

fn number(text: &str, radix: u32) -> Option<u64> {
    // Without a sign, which the standard library would accept.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| u64::from_str_radix(text, radix).ok())?
}

/// An absolute path. The kernel has another word for one that it cannot name.
fn decoded(value: &str) -> Option<Vec<u8>> {
    let path = match value.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?.as_bytes().to_vec(),
        None => {
            let (pairs, []) = value.as_bytes().as_chunks::<2>() else {
                return None;
            };
            let digit = |byte: u8| match byte {
                b'0'..=b'9' => Some(byte - b'0'),
                b'A'..=b'F' => Some(byte - b'A' + 10),
                _ => None,
            };
            let bytes = pairs
                .iter()
                .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
            bytes.collect::<Option<Vec<u8>>>()?
        }
    };
    let is_path = path.first() == Some(&b'/') && path.len() <= PATH_BYTES_MAX && !path.contains(&0);
    is_path.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: &str = "audit(1729738800.268:30): ";

    fn access(fields: &str) -> Option<AuditRecord> {
        parse(LANDLOCK_ACCESS, format!("{STAMP}{fields}").as_bytes())
    }

    fn refusals(fields: &str) -> Vec<Refusal> {
        match access(&format!("domain=1a6fdc66f {fields}")) {
            Some(AuditRecord::Access { domain, refusals }) => {
                assert_eq!(domain, 0x1_a6fd_c66f);
                refusals
            }
            other => panic!("{fields}: {other:?}"),
        }
    }

    fn of_path(operation: PathOperation, path: &str) -> Refusal {
        Refusal::Path {
            operation,
            path: path.into(),
        }
    }

    #[test]
    fn a_blocker_is_what_was_tried() {
        use PathOperation::{Connect, Create, Execute, Remove, Write};
        for (blockers, expected) in [
            ("fs.execute", &[Execute][..]),
            ("fs.write_file", &[Write]),
            ("fs.write_file,fs.truncate", &[Write]),
            ("fs.make_reg,fs.refer", &[Create]),
            ("fs.make_sock", &[Create]),
            ("fs.remove_dir,fs.refer", &[Remove]),
            ("fs.remove_file,fs.make_reg,fs.refer", &[Remove, Create]),
            ("fs.resolve_unix", &[Connect]),
            ("fs.refer", &[]),
            ("fs.ioctl_dev", &[]),
            ("fs.executed", &[]),
            ("unknown", &[]),
        ] {
            let fields = format!("blockers={blockers} path=\"/usr/local\" dev=\"vda2\" ino=365");
            let expected: Vec<Refusal> = expected
                .iter()
                .map(|operation| of_path(*operation, "/usr/local"))
                .collect();
            assert_eq!(refusals(&fields), expected, "{blockers}");
        }
        for (object, expected) in [
            ("blockers=ptrace opid=1 ocomm=\"init\"", vec![]),
            ("blockers=net.connect_tcp daddr=::1 dest=443", vec![]),
            ("blockers=scope.abstract_unix_socket path=0061", vec![]),
            ("blockers=fs.change_topology name=\"mnt\"", vec![]),
            (
                "blockers=scope.signal opid=285 ocomm=\"runner\"",
                vec![Refusal::Signal { process: 285 }],
            ),
        ] {
            assert_eq!(refusals(object), expected, "{object}");
        }
    }

    /// B-76.
    #[test]
    fn a_text_of_others_is_read_whole_and_as_nothing_else() {
        let long = format!("/{}", "x".repeat(PATH_BYTES_MAX - 1));
        for (written, expected) in [
            ("\"/etc/domain=1/opid=1\"", "/etc/domain=1/opid=1"),
            (
                "2F6120222F6F7069643D31206F636F6D6D3D0A",
                "/a \"/opid=1 ocomm=\n",
            ),
            (&format!("\"{long}\""), &long),
        ] {
            let found = refusals(&format!(
                "blockers=fs.execute path={written} dev=\"vda\" ino=1"
            ));
            assert_eq!(found, [of_path(PathOperation::Execute, expected)]);
        }
    }

    #[test]
    fn what_the_kernel_does_not_write_is_no_record() {
        let too_long = format!("path=\"/{}\"", "x".repeat(PATH_BYTES_MAX));
        for object in [
            "",
            "path=\"/a",
            "path=/a",
            "path=\"a\"",
            "path=\"<too_long>\"",
            "path=2F6",
            "path=2f61",
            "path=2F00",
            "path=",
            "path=\"/a\" path=\"/b\"",
            "path=\"/a b\"",
            &too_long,
        ] {
            let fields = format!("domain=1 blockers=fs.execute {object}");
            assert_eq!(access(&fields), None, "{fields}");
        }
        for fields in [
            "",
            "domain=1",
            "blockers=scope.signal domain=1 opid=1",
            "domain=+1 blockers=scope.signal opid=1",
            "domain= blockers=scope.signal opid=1",
            "domain=10000000000000000 blockers=scope.signal opid=1",
            "domain=1 blockers=scope.signal",
            "domain=1 blockers=scope.signal opid=-1",
            "domain=1 blockers=scope.signal opid=4294967296",
            "domain=1 blockers=scope.signal opid=1 opid=2",
            "domain=1 blockers=scope.signal opid",
        ] {
            assert_eq!(access(fields), None, "{fields}");
        }
        let text = "domain=1 blockers=scope.signal opid=1";
        assert!(access(text).is_some());
        for stamp in ["", "audit(1.2:3):", "audit(1.2:3) : ", "audit(a): "] {
            let text = format!("{stamp}{text}");
            assert_eq!(parse(LANDLOCK_ACCESS, text.as_bytes()), None, "{text}");
        }
        let text = format!("{STAMP}{text}");
        assert_eq!(parse(LANDLOCK_DOMAIN, text.as_bytes()), None);
        assert_eq!(parse(1300, text.as_bytes()), None);
        assert_eq!(parse(LANDLOCK_ACCESS, b"audit(1.2:3): domain=1\xff"), None);
    }

    #[test]
    fn a_domain_is_made_and_ends() {
        let domain = |text: &str| parse(LANDLOCK_DOMAIN, format!("{STAMP}{text}").as_bytes());
        let rest = "exe=\"/uid=0\" comm=\"a\"";
        let made = format!("domain=a1 status=allocated mode=enforcing pid=286 uid=7 {rest}");
        let expected = AuditRecord::Allocated {
            domain: 0xa1,
            process: 286,
            uid: 7,
        };
        assert_eq!(domain(&made), Some(expected));
        assert_eq!(domain(&made.replace("enforcing", "other")), None);
        assert_eq!(domain(&made.replace("pid=286 ", "")), None);
        assert_eq!(domain(&made.replace("uid=7", "uid=-7")), None);
        assert_eq!(domain(&made[..made.len() - rest.len()]), None);
        let expected = AuditRecord::Deallocated {
            domain: 0xa1,
            denials: 3,
        };
        let ended = "domain=a1 status=deallocated denials=3";
        assert_eq!(domain(ended), Some(expected));
        assert_eq!(domain("domain=a1 status=deallocated"), None);
    }
}
