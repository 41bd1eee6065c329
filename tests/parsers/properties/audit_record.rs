//! What the kernel records of Landlock: lines of a type and a text.

use sandbox::audit_record::{AuditRecord, Refusal, parse};
use sandbox::audit_trail::{DomainMaker, DomainRefusals};
use sys::audit::{LANDLOCK_ACCESS, LANDLOCK_DOMAIN};

/// That of the corpus.
const MAKER: DomainMaker = DomainMaker {
    uid: 100_007,
    process: 286,
    init: 285,
};

/// A record says what its fields say, as the kernel would write them, and a refusal is attributed only if a record
/// names the process that made the domain.
pub(crate) fn check(bytes: &[u8]) {
    let mut refusals = DomainRefusals::of(MAKER);
    let mut is_named = false;
    for line in bytes.split(|byte| *byte == b'\n') {
        let (kind, text) = match line.split_first_chunk::<5>() {
            Some((b"1423 ", text)) => (LANDLOCK_ACCESS, text),
            Some((b"1424 ", text)) => (LANDLOCK_DOMAIN, text),
            _ => continue,
        };
        if let Some(record) = parse(kind, text) {
            let text = std::str::from_utf8(text).expect("it was read");
            check_record(&record, text);
            is_named |= text.contains("pid=") && text.contains("uid=");
        }
        refusals.add(kind, text, 7);
    }
    let attributed = refusals.refusals().distinct().count();
    assert!(is_named || attributed == 0);
}

fn check_record(record: &AuditRecord, text: &str) {
    let number = |name: &str, digits: &str| {
        // The kernel writes no leading zeros; what it does not write has no other form.
        let mut fields = text.split(' ').filter_map(|field| field.split_once('='));
        let found = fields.find(|(key, _)| *key == name).expect("the field");
        let plain = found.1.trim_start_matches('0').to_lowercase();
        assert_eq!(plain, digits.trim_start_matches('0'), "{name}");
    };
    match record {
        AuditRecord::Access { domain, refusals } => {
            number("domain", &format!("{domain:x}"));
            for refusal in refusals {
                match refusal {
                    Refusal::Path { path, .. } => assert!(
                        text.split(' ')
                            .any(|field| forms(path).iter().any(|form| form == field)),
                        "{path:?}"
                    ),
                    Refusal::Signal { process } => number("opid", &process.to_string()),
                }
            }
        }
        AuditRecord::Allocated {
            domain,
            process,
            uid,
        } => {
            number("domain", &format!("{domain:x}"));
            number("pid", &process.to_string());
            number("uid", &uid.to_string());
        }
        AuditRecord::Deallocated { domain, denials } => {
            number("domain", &format!("{domain:x}"));
            number("denials", &denials.to_string());
        }
    }
}

/// The field with a path: quoted, or each byte in hexadecimal digits.
fn forms(path: &[u8]) -> Vec<String> {
    let digits: String = path.iter().map(|byte| format!("{byte:02X}")).collect();
    let quoted = std::str::from_utf8(path).map(|path| format!("path=\"{path}\""));
    quoted
        .into_iter()
        .chain([format!("path={digits}")])
        .collect()
}
