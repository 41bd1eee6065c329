//! The errors of a manifest: bounded, in the order of the text, without errors that follow from
//! another one.

use crate::document::Place;
use crate::manifest::problem::did_you_mean;
use crate::manifest::{ManifestError, Problem};

/// Largest number of listed errors.
pub const ERRORS_MAX: usize = 100;

/// The position of an error in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// In the manifest.
    pub(super) place: Option<Place>,
    pub(super) is_in_other_document: bool,
    pub(super) place_in_other_document: Option<Place>,
}

#[derive(Debug, Default)]
pub(super) struct Findings {
    errors: Vec<ManifestError>,
    more: usize,
}

impl Findings {
    pub(super) const fn is_full(&self) -> bool {
        self.errors.len() >= ERRORS_MAX
    }

    pub(super) fn add(&mut self, error: ManifestError) {
        if self.errors.contains(&error) {
            return;
        }
        if self.is_full() {
            self.more = self.more.saturating_add(1);
        } else {
            self.errors.push(error);
        }
    }

    /// The errors in the order of the text, and one more that counts the rest.
    pub(super) fn sorted(
        self,
        file: &str,
        position_of: impl Fn(&ManifestError) -> Position,
    ) -> Vec<ManifestError> {
        let Self { errors, more } = self;
        let mut sorted: Vec<ManifestError> = errors
            .iter()
            .filter(|error| !errors.iter().any(|other| follows_from(error, other)))
            .cloned()
            .collect();
        sorted.sort_by_cached_key(|error| {
            let position = position_of(error);
            // Errors without a place are last.
            (position.place.is_none(), position)
        });
        if more > 0 {
            sorted.push(ManifestError {
                file: file.to_owned(),
                place: None,
                pointer: None,
                problem: Box::new(Problem::More { more }),
            });
        }
        sorted
    }
}

/// Whether `error` follows from `other`: the unknown key `other` is the missing key, misspelt; or
/// `other` is a credential in the value of the unknown key.
fn follows_from(error: &ManifestError, other: &ManifestError) -> bool {
    if error.file != other.file {
        return false;
    }
    match (&*error.problem, &*other.problem) {
        (Problem::MissingKey { key }, Problem::UnknownKey { hint, .. }) => {
            let pointer = other.pointer.as_deref();
            let map = pointer.and_then(|pointer| Some(pointer.rsplit_once('/')?.0));
            map == error.pointer.as_deref() && *hint == Some(did_you_mean(key))
        }
        (Problem::UnknownKey { .. }, Problem::PlaintextCredential { .. }) => {
            error.pointer == other.pointer
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{self, Format};
    use crate::manifest::{BlockDocuments, Parsed, parse, parse_with};
    use crate::parse_permit::PERMIT;

    fn parsed(text: &str) -> Parsed {
        let root = document::parse(&PERMIT, text.as_bytes(), Format::Yaml).expect("a document");
        parse_with(&root, "m.yaml", &BlockDocuments::default())
    }

    /// Place and code of each error.
    fn codes(text: &str) -> Vec<String> {
        let Parsed {
            manifest, errors, ..
        } = parsed(text);
        assert_eq!(manifest.is_none(), !errors.is_empty(), "{text}");
        let first = parse(&PERMIT, text.as_bytes(), Format::Yaml, "m.yaml").err();
        assert_eq!(first.as_ref(), errors.first(), "{text}");
        errors
            .iter()
            .map(|error| match error.place {
                Some(place) => format!("{place} {}", error.code()),
                None => error.code().to_owned(),
            })
            .collect()
    }

    #[test]
    fn all_errors_of_all_blocks_are_in_the_order_of_the_text() {
        let text = "\
kind: tol
nme: x
run: ''
timeout_ms: 0
runner:
  engine: vm
  image: docker://x
  needs: {language: perl, native: [-x, ok, 1], npm: 2, gem: [a]}
  limits: {memory_mb: 0, timeout_ms: x, pids: 3}
network: {egress: ['http://a', ok.example, '*'], ingress: []}
secrets: {1A: {vault: a}, B: x, C: {}, D: {vault: a, value: b}, E: {oauth: 1}}
sandbox:
  provider: local
  config: {}
  limits: {cpu_ms: -1}
  env: {passthrough: [a-b, OK, 2], auth: {state: {env: [x y]}}, other: 1}
  network: {egress: [10.0.0.0/8]}
  mounts:
    - {source: workspace, at: relative, mode: rw}
    - {at: /w}
    - {source: workspace, at: /v}
    - {source: workspace, at: /v}
  lifecycle: {pause_after_idle: 1, pauses: x}
  read_only: 1
  surplus: 1
code:
  sources:
    - inline: {path: /etc/x, content: 1}
    - local: {path: ../x, as: /y, glob: ''}
    - github: {repo: a, ref: -x, path: /p}
    - {inline: {path: a, content: b}, local: c}
    - locl: x
    - ref: /abs
inputs: 1
inputsFiles:
  a/b: {path: x}
  c: {path: ../y, mode: rwx, required: 1}
  d: {}
  e: {path: '<nope>'}
outputsFiles: {f: {path: o}, g: {path: o}}
workspaceSources:
  - {id: '', ref: 1, mountPath: x}
  - {id: a, ref: b, mountPath: /m}
  - {id: a, ref: b, mountPath: /m}
approval: maybe
";
        let expected = "\
1:7 unknown_value, 2:1 unknown_key, 3:6 run_invalid, 4:13 out_of_range, 6:11 unknown_value, \
7:10 wrong_type, 8:21 unknown_value, 8:36 wrong_type, 8:44 wrong_type, 8:53 wrong_type, \
8:56 unknown_key, 9:23 out_of_range, 9:38 wrong_type, 9:41 unknown_key, 10:20 egress_invalid, \
10:44 egress_invalid, 10:50 unknown_key, 11:11 wrong_type, 11:30 plaintext_credential, \
11:36 missing_key, 11:61 conflicting_keys, 11:76 wrong_type, 15:20 out_of_range, \
16:23 wrong_type, 16:32 wrong_type, 16:57 wrong_type, 16:65 unknown_key, \
17:22 egress_invalid, 19:31 mount_refused, 19:47 unknown_value, 20:7 missing_key, \
22:31 duplicate_claim, 23:33 wrong_type, 23:36 unknown_key, 24:14 wrong_type, \
25:3 unknown_key, 28:22 path_refused, 28:39 wrong_type, 29:21 path_refused, \
29:31 path_refused, 29:41 wrong_type, 30:22 wrong_type, 30:30 wrong_type, \
30:40 path_refused, 31:7 wrong_type, 32:7 unknown_key, 33:12 path_refused, 34:9 wrong_type, \
36:3 file_key_refused, 37:13 path_refused, 37:25 unknown_value, 37:40 wrong_type, \
38:6 missing_key, 39:13 token_unknown, 40:40 duplicate_claim, 42:10 wrong_type, \
42:19 wrong_type, 42:33 mount_refused, 44:10 duplicate_claim, 44:32 duplicate_claim, \
45:11 unknown_value";
        assert_eq!(codes(text).join(", "), expected);
    }

    #[test]
    fn one_mistake_is_one_error() {
        for (text, expected) in [
            ("run: x\nsandbox: {providr: local}\n", "2:11 unknown_key"),
            ("code: {sorces: []}\n", "1:8 unknown_key"),
            ("inputsFiles: {a: {pth: x}}\n", "1:19 unknown_key"),
            (
                "id: [x]\nname: a/b\noutputsFiles: {a: {path: '<toolId>'}}\n",
                "1:5 wrong_type",
            ),
            (
                "runner: {needs: {language: rust}}\nrun: a.py\n",
                "1:28 unknown_value",
            ),
            (
                "sandbox: {provider: unknown, config: {a: 1}}\n",
                "1:21 unknown_value",
            ),
            (
                "sandbox: {fs: {}, exec: {}, env: {set: {}}}\n",
                "1:15 sandbox_is_cli_block",
            ),
            (
                "sandbox: {provider: local, config: {apiKey: x}}\n",
                "1:45 plaintext_credential",
            ),
            (
                "sandbox: {provider: local, metadata: {apiKey: x, y: [ghp_0123456789]}}\n",
                "1:47 plaintext_credential, 1:54 plaintext_credential",
            ),
            ("[]\n", "1:1 wrong_type"),
        ] {
            assert_eq!(codes(text).join(", "), expected, "{text}");
        }
        assert_eq!(codes("run: x\n"), [""; 0]);
    }

    #[test]
    fn errors_over_the_limit_are_only_counted() {
        let wrong: Vec<String> = (0..15_000).map(|index| format!("'{index}/'")).collect();
        let text = format!("network: {{egress: [{}]}}\n", wrong.join(","));
        let errors = parsed(&text).errors;
        assert_eq!(errors.len(), ERRORS_MAX + 1);
        let last = errors.last().expect("an error");
        assert_eq!(last.to_string(), "m.yaml: 14900 more errors not listed");
        assert_eq!(last.code(), "more_errors");
        let keys: Vec<String> = (0..15_000)
            .map(|index| format!("nework{index}: 1\n"))
            .collect();
        assert_eq!(parsed(&keys.concat()).errors.len(), ERRORS_MAX + 1);
    }
}
