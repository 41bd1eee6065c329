//! The text of a learned policy: a configuration file with the key `flags`, and a comment for each entry
//! and for each use that is left out. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::cli::policy_text::{self, List, NotAdded, Row, left_out_block, list};
use crate::plan::learning::{Entry, LearnedPaths, Omission, Reason};
use spec::credential::looks_issued;
use spec::egress::{EgressHost, EgressRule};
use spec::host_config::{HostPath, WrittenFlags};
use spec::path::{escape, quoted};
use spec::units::count;

/// Bytes of a path in a comment.
const SHOWN_BYTES_MAX: usize = 300;

const MAY_LACK: &str = "the policy may lack what it needs";
const ASKED: &str = "asked for by the bundle";
const WILDCARD: &str = "it stands for all names below it";

/// What a policy is made of.
pub(super) struct LearnedPolicy<'run> {
    /// `run` or `exec`.
    pub verb: &'static str,
    /// The command, or the bundle and its arguments.
    pub command: &'run [Vec<u8>],
    /// Its exit code was not 0.
    pub has_failed: bool,
    pub paths: &'run LearnedPaths,
    pub hosts: &'run [LearnedHost],
    /// Hosts that the manifest of the bundle asks for.
    pub asked: &'run [EgressRule],
    /// Hosts may be in the policy.
    pub learns_hosts: bool,
    /// Hosts that flags allow.
    pub allowed: &'run [EgressRule],
    /// Connections that were denied or had no answer, in words.
    pub denied: &'run [String],
    /// Uses that were not seen.
    pub unseen: u64,
    /// Paths below it are written relative to it.
    pub working_directory: Option<&'run [u8]>,
    /// What the file had before, for `--merge`.
    pub merged: Option<&'run Merged>,
    /// The file, for the line that uses it.
    pub file: &'run [u8],
}

/// A policy that others are added to.
#[derive(Debug)]
pub(super) struct Merged {
    pub text: String,
    pub flags: WrittenFlags,
}

/// A host that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LearnedHost {
    pub rule: EgressRule,
    pub connections: u64,
}

/// The new entries, as rows of text and as flags.
#[derive(Default)]
struct Entries {
    ro: Vec<Row>,
    rw: Vec<Row>,
    allow_net: Vec<(EgressRule, String)>,
}

impl LearnedPolicy<'_> {
    /// The text.
    ///
    /// # Errors
    /// [`NotAdded`]: nothing can be added to the text of the file.
    pub(super) fn render(&self) -> Result<String, NotAdded> {
        let entries = self.entries();
        let paths = |rows: &[Row]| {
            rows.iter()
                .map(|(path, _)| HostPath(path.clone()))
                .collect()
        };
        let added = WrittenFlags {
            ro: paths(&entries.ro),
            rw: paths(&entries.rw),
            allow_net: entries
                .allow_net
                .iter()
                .map(|(rule, _)| rule.clone())
                .collect(),
        };
        let hosts = entries.allow_net.iter();
        let hosts = hosts.map(|(rule, why)| (rule.to_string(), why.clone()));
        let lists: [List; 3] = [
            ("ro", entries.ro),
            ("rw", entries.rw),
            ("allow_net", hosts.collect()),
        ];
        let mut left_out = self.left_out();
        if let Some(merged) = self.merged {
            let failed = self
                .has_failed
                .then(|| format!("the command failed: {MAY_LACK}"));
            left_out.extend(failed);
            left_out.extend(self.unseen_uses());
            return policy_text::add(&merged.text, &lists, &added, &left_out);
        }
        let mut text = String::new();
        self.render_head(&mut text);
        text.push_str("flags:\n");
        for (key, rows) in &lists {
            for line in list(key, rows, 2) {
                let _written = writeln!(text, "{line}");
            }
        }
        if !left_out.is_empty() {
            text.push('\n');
            for line in left_out_block(&left_out) {
                let _written = writeln!(text, "{line}");
            }
        }
        Ok(text)
    }

    /// What is not in the file yet.
    fn entries(&self) -> Entries {
        let none = WrittenFlags::default();
        let before = self.merged.map_or(&none, |merged| &merged.flags);
        let rw = self.rows(&self.paths.writable, &before.rw, "written");
        let mut ro = self.rows(&self.paths.read_only, &before.ro, "read");
        // A read-only mount in a writable one would take rights away.
        let covers = |above: &str, path: &str| match above {
            "." => !path.starts_with(['/', '.']) || path == ".",
            above => Path::new(path).starts_with(above),
        };
        let writable = rw.iter().map(|(path, _)| path.as_str());
        let writable = writable.chain(before.rw.iter().map(|path| path.0.as_str()));
        let writable: Vec<&str> = writable.collect();
        ro.retain(|(path, _)| !writable.iter().any(|above| covers(above, path)));
        Entries {
            ro,
            allow_net: self.host_rows(&before.allow_net),
            rw,
        }
    }

    fn render_head(&self, text: &mut String) {
        let words = self.command.iter().map(|word| {
            let word = escape(word);
            let mut parts = word.split(|letter: char| {
                !letter.is_ascii_alphanumeric() && !matches!(letter, '-' | '_')
            });
            match parts.any(looks_issued) {
                true => "…".to_owned(),
                false => quoted(&word),
            }
        });
        let command = shortened(words.collect::<Vec<_>>().join(" "));
        let file = quoted(&escape(self.file));
        let (what, how) = match self.working_directory {
            Some(_) => ("command", "in a directory with the same files, and with"),
            None => ("bundle", "with"),
        };
        let used = "used, besides what every run sees.";
        comment(
            text,
            &format!("Written by `runner learn`: what this {what} {used}"),
        );
        comment(text, &format!("Use it {how} the same other flags:"));
        let dashes = if self.verb == "run" { "-- " } else { "" };
        comment(
            text,
            &format!("  runner {} --policy {file} {dashes}{command}", self.verb),
        );
        if self.has_failed {
            comment(
                text,
                &format!("The command failed while it was learned from: {MAY_LACK}."),
            );
        }
        if let Some(unseen) = self.unseen_uses() {
            comment(text, &format!("{unseen}."));
        }
    }

    fn unseen_uses(&self) -> Option<String> {
        let unseen = count(self.unseen, "use");
        (self.unseen > 0).then(|| format!("{unseen} of paths could not be seen: {MAY_LACK}"))
    }

    fn rows(&self, entries: &[Entry], before: &[HostPath], how: &str) -> Vec<Row> {
        let mut rows: Vec<Row> = entries
            .iter()
            .map(|entry| {
                let example = entry.example.as_ref().unwrap_or(&entry.path);
                let example = escape(relative(example, self.working_directory));
                let why = match entry.uses {
                    0 | 1 => format!("{how}: {example}"),
                    uses => format!("{how}: {}, such as {example}", count(uses, "path")),
                };
                let danger = entry.danger.as_ref();
                let danger = danger.map(|(reason, inside)| {
                    format!("{}{}", reason.words(), self.inside(inside.as_deref()))
                });
                let why = [Some(shortened(why)), danger].into_iter().flatten();
                let why = why.collect::<Vec<_>>().join("; ");
                let path = String::from_utf8_lossy(relative(&entry.path, self.working_directory));
                (path.into_owned(), why)
            })
            .collect();
        let known: BTreeSet<&str> = before.iter().map(|path| path.0.as_str()).collect();
        rows.retain(|(value, _)| !known.contains(value.as_str()));
        rows.sort();
        rows.dedup_by(|row, other| row.0 == other.0);
        rows
    }

    fn host_rows(&self, before: &[EgressRule]) -> Vec<(EgressRule, String)> {
        let asked = self.asked.iter().filter(|rule| self.may_have(rule));
        let asked = asked.map(|rule| {
            let why = match rule.host {
                EgressHost::Below(_) => format!("{ASKED}; {WILDCARD}"),
                _ => ASKED.to_owned(),
            };
            (rule.clone(), why)
        });
        let used = self.hosts.iter();
        let used = used.map(|host| (host.rule.clone(), count(host.connections, "connection")));
        let mut rows: Vec<(EgressRule, String)> = Vec::new();
        for (rule, why) in asked.chain(used) {
            let mut others = rows.iter().map(|(other, _)| other).chain(before);
            if !others.any(|other| other.covers(&rule)) {
                rows.push((rule, why));
            }
        }
        rows.sort_by_key(|(rule, _)| rule.to_string());
        rows
    }

    /// Whether the policy may have a host that the bundle asks for: a wildcard and an address only if a flag
    /// allows it.
    fn may_have(&self, asked: &EgressRule) -> bool {
        let is_name = matches!(asked.host, EgressHost::Name(_));
        let mut allowed = self.allowed.iter();
        self.learns_hosts && (is_name || allowed.any(|rule| rule.covers(asked)))
    }

    /// What was used and is not in the policy.
    fn left_out(&self) -> Vec<String> {
        let mut rows: Vec<String> = Vec::new();
        rows.extend(
            self.paths
                .omitted
                .iter()
                .map(|omission| self.describe(omission)),
        );
        rows.extend(self.denied.iter().map(|denied| shortened(denied.clone())));
        let before = self
            .merged
            .map_or(&[][..], |merged| &merged.flags.allow_net);
        for rule in self.asked {
            if self.may_have(rule) || before.iter().any(|other| other.covers(rule)) {
                continue;
            }
            let flag = match rule.host {
                EgressHost::Name(_) => "--learn-net".to_owned(),
                _ => format!("--learn-net --allow-net {}", quoted(&rule.to_string())),
            };
            rows.push(format!(
                "connect {rule}: {ASKED}; to allow it: runner learn {flag}"
            ));
        }
        if self.paths.unlisted > 0 {
            let more = count(self.paths.unlisted as u64, "path");
            rows.push(format!("{more} more"));
        }
        rows
    }

    fn describe(&self, omission: &Omission) -> String {
        let path = escape(relative(&omission.path, self.working_directory));
        let (how, flag) = match (omission.reason, omission.writes) {
            (Reason::Socket, _) => ("connect", "--socket"),
            (_, true) => ("write", "--rw"),
            (_, false) => ("read", "--ro"),
        };
        let change = match omission.reason {
            Reason::Name => String::new(),
            _ if path.len() > SHOWN_BYTES_MAX => String::new(),
            _ => format!("; to allow it: runner learn {flag} {}", quoted(&path)),
        };
        format!(
            "{how} {}: {}{}{change}",
            shortened(path),
            omission.reason.words(),
            self.inside(omission.inside.as_deref()),
        )
    }

    /// What is in a path, in brackets.
    fn inside(&self, inside: Option<&[u8]>) -> String {
        let Some(inside) = inside else {
            return String::new();
        };
        let inside = escape(relative(inside, self.working_directory));
        format!(" ({})", shortened(inside))
    }
}

/// The text must have no line break: escape what a body has written.
fn comment(text: &mut String, line: &str) {
    let _written = writeln!(text, "# {line}");
}

fn shortened(mut text: String) -> String {
    if text.len() > SHOWN_BYTES_MAX {
        let ends = text.char_indices().map(|(end, _)| end);
        let end = ends.take_while(|end| *end <= SHOWN_BYTES_MAX).last();
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

/// `path` as seen from `directory`: `.` for the directory itself.
fn relative<'path>(path: &'path [u8], directory: Option<&[u8]>) -> &'path [u8] {
    match directory.and_then(|directory| path.strip_prefix(directory)) {
        Some([]) => b".",
        Some([b'/', rest @ ..]) => rest,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, uses: u64, example: &str) -> Entry {
        Entry {
            path: path.as_bytes().to_vec(),
            uses,
            example: Some(example.as_bytes().to_vec()),
            danger: None,
        }
    }

    fn rule(text: &str) -> EgressRule {
        EgressRule::parse(text).expect(text)
    }

    /// What a policy is made of, without uses.
    fn policy(paths: &LearnedPaths) -> LearnedPolicy<'_> {
        LearnedPolicy {
            verb: "run",
            command: &[],
            has_failed: false,
            paths,
            hosts: &[],
            asked: &[],
            learns_hosts: false,
            allowed: &[],
            denied: &[],
            unseen: 0,
            working_directory: Some(b"/w/p"),
            merged: None,
            file: b"policy.yaml",
        }
    }

    fn rendered(policy: &LearnedPolicy<'_>) -> String {
        let text = policy.render().expect("a text");
        let parsed = spec::host_config::parse("p", text.as_bytes());
        assert!(parsed.is_ok(), "{text}: {parsed:?}");
        text
    }

    #[test]
    fn each_entry_says_what_used_it() {
        let paths = LearnedPaths {
            read_only: vec![
                entry("/opt/n", 3, "/opt/n/a"),
                entry("/w/p/src", 1, "/w/p/src"),
            ],
            writable: vec![Entry {
                danger: Some((Reason::CredentialInside, Some(b"/w/p/.env".to_vec()))),
                ..entry("/w/p", 2, "/w/p/out")
            }],
            omitted: vec![
                Omission {
                    path: b"/root/.ssh/id\nrsa".to_vec(),
                    reason: Reason::Credential,
                    writes: false,
                    inside: None,
                },
                Omission {
                    path: b"/run/docker.sock".to_vec(),
                    reason: Reason::Socket,
                    writes: false,
                    inside: None,
                },
            ],
            unlisted: 4,
        };
        let words = [&b"npm"[..], b"a b", b"x\ny", b"token=ghp_0123456789abcdef"];
        let text = rendered(&LearnedPolicy {
            command: &words.map(<[u8]>::to_vec),
            has_failed: true,
            hosts: &[LearnedHost {
                rule: rule("a.com:443"),
                connections: 2,
            }],
            denied: &["connect b.com:80".to_owned()],
            ..policy(&paths)
        });
        let expected = r#"# Written by `runner learn`: what this command used, besides what every run sees.
# Use it in a directory with the same files, and with the same other flags:
#   runner run --policy policy.yaml -- npm 'a b' 'x\x0ay' …
# The command failed while it was learned from: the policy may lack what it needs.
flags:
  ro:
    # read: 3 paths, such as /opt/n/a
    - "/opt/n"
  rw:
    # written: 2 paths, such as out; a file in it may hold credentials (.env)
    - "."
  allow_net:
    # 2 connections
    - "a.com:443"

# Left out:
#   read /root/.ssh/id\x0arsa: may hold credentials; to allow it: runner learn --ro '/root/.ssh/id\x0arsa'
#   connect /run/docker.sock: the service behind it acts outside of the sandbox; to allow it: runner learn --socket /run/docker.sock
#   connect b.com:80
#   4 paths more
"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn a_long_path_is_cut_in_a_comment_and_whole_in_an_entry() {
        let long = format!("/opt/{}", "é".repeat(2_000));
        let paths = LearnedPaths {
            read_only: vec![Entry {
                danger: Some((Reason::CredentialInside, Some(long.clone().into_bytes()))),
                ..entry(&long, 1, &long)
            }],
            ..LearnedPaths::default()
        };
        let text = rendered(&policy(&paths));
        assert!(text.contains(&format!("- \"{long}\"\n")));
        let longest = text
            .lines()
            .filter(|line| line.contains('#'))
            .map(str::len)
            .max();
        assert!(longest.is_some_and(|bytes| bytes < 700), "{longest:?}");
    }

    #[test]
    fn what_a_bundle_asks_for_is_in_the_policy_if_hosts_are_learned() {
        let paths = LearnedPaths::default();
        let words = [&b"b.tar.gz"[..], b"--", b"-v"].map(<[u8]>::to_vec);
        let asked = ["a.com", "*.b.com", "*.c.com", "9.9.9.9:53"].map(rule);
        let hosts = ["a.com:443", "x.c.com:80"].map(|text| LearnedHost {
            rule: rule(text),
            connections: 1,
        });
        let closed = LearnedPolicy {
            verb: "exec",
            command: &words,
            asked: &asked,
            working_directory: None,
            ..policy(&paths)
        };
        let text = rendered(&closed);
        assert!(
            text.contains("#   runner exec --policy policy.yaml b.tar.gz -- -v\n"),
            "{text}"
        );
        assert!(
            text.starts_with("# Written by `runner learn`: what this bundle used, "),
            "{text}"
        );
        assert!(text.contains("  allow_net: []\n"), "{text}");
        let left_out =
            "#   connect a.com: asked for by the bundle; to allow it: runner learn --learn-net\n";
        assert!(text.contains(left_out), "{text}");
        let text = rendered(&LearnedPolicy {
            learns_hosts: true,
            hosts: &hosts,
            allowed: &[rule("*.c.com")],
            ..closed
        });
        let expected = r#"  allow_net:
    # asked for by the bundle; it stands for all names below it
    - "*.c.com"
    # asked for by the bundle
    - "a.com"

# Left out:
#   connect *.b.com: asked for by the bundle; to allow it: runner learn --learn-net --allow-net '*.b.com'
#   connect 9.9.9.9:53: asked for by the bundle; to allow it: runner learn --learn-net --allow-net 9.9.9.9:53
"#;
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn a_merged_policy_gets_only_what_it_lacks() {
        let before = "# mine\nflags:\n  ro: [] # none yet\n  rw:\n  - out # of make\n\
            \x20 allow_net:\n    - '*.a.com'\n";
        let flags = spec::host_config::parse("p", before.as_bytes());
        let merged = Merged {
            text: before.to_owned(),
            flags: flags.expect("valid").flags,
        };
        let paths = LearnedPaths {
            read_only: vec![
                entry("/w/p/src", 1, "/w/p/src"),
                entry("/w/p/out/a", 1, "/w/p/out/a"),
            ],
            writable: vec![entry("/w/p/out", 1, "/w/p/out/b")],
            ..LearnedPaths::default()
        };
        let hosts = ["x.a.com:443", "b.com:1"].map(|text| LearnedHost {
            rule: rule(text),
            connections: 1,
        });
        let text = rendered(&LearnedPolicy {
            has_failed: true,
            hosts: &hosts,
            merged: Some(&merged),
            ..policy(&paths)
        });
        let expected = r#"# mine
flags:
  ro: # none yet
    # read: src
    - "src"
  rw:
  - out # of make
  allow_net:
    - '*.a.com'
    # 1 connection
    - "b.com:1"

# Left out:
#   the command failed: the policy may lack what it needs
"#;
        assert_eq!(text, expected);
    }
}
