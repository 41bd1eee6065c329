//! Hand-made uses, and the policies that they become.

use super::*;
use spec::path_use::PathOperation::{Connect, Create, Execute, Inspect, Read as Open, Write};
use spec::path_use::PathOutcome::{Absent, Found, ReadOnly};

/// A host whose directories are those above its files.
#[derive(Default)]
struct Files {
    files: BTreeSet<Vec<u8>>,
    credentials: BTreeSet<Vec<u8>>,
    too_large: Vec<Vec<u8>>,
}

impl HostFiles for Files {
    fn is_directory(&self, path: &[u8]) -> Option<bool> {
        if self.files.contains(path) || self.credentials.contains(path) {
            return Some(false);
        }
        let mut all = self.files.iter().chain(&self.credentials);
        all.any(|file| is_in(file, path)).then_some(true)
    }

    fn is_credential(&self, path: &[u8]) -> bool {
        self.credentials.contains(path)
    }

    fn credential_in(&self, directory: &[u8]) -> Credential {
        if self.too_large.iter().any(|large| is_in(large, directory)) {
            return Credential::Unknown;
        }
        let found = self.credentials.iter().find(|path| is_in(path, directory));
        found.map_or(Credential::None, |path| Credential::At(path.clone()))
    }
}

fn bytes(paths: &[&str]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| path.as_bytes().to_vec()).collect()
}

/// A project in a home, with /opt shown.
fn shown() -> Shown {
    Shown {
        home: Some(b"/home/u".to_vec()),
        working_directory: b"/home/u/p".to_vec(),
        of_host: bytes(&["/home/u", "/opt"]),
        is_image: false,
        read_only: bytes(&["/home/u", "/opt"]),
        writable: bytes(&["/home/u/p"]),
        named: Vec::new(),
        elsewhere: Vec::new(),
        hidden: bytes(&["/home/u/.ssh"]),
    }
}

fn uses(list: &[(PathOperation, &str, PathOutcome)]) -> PathUses {
    let mut uses = PathUses::default();
    for (operation, path, outcome) in list {
        let path_use = PathUse {
            operation: *operation,
            path: path.as_bytes().to_vec(),
            outcome: *outcome,
        };
        uses.add(path_use, 0);
    }
    uses
}

fn texts(entries: &[Entry]) -> Vec<String> {
    let paths = entries.iter().map(|entry| entry.path.clone());
    paths
        .map(|path| String::from_utf8(path).expect("text"))
        .collect()
}

fn omitted(learned: &LearnedPaths) -> Vec<String> {
    let rows = learned.omitted.iter();
    rows.map(|row| format!("{} {:?}", spec::path::escape(&row.path), row.reason))
        .collect()
}

fn learned(
    list: &[(PathOperation, &str, PathOutcome)],
    shown: &Shown,
    files: &Files,
) -> LearnedPaths {
    learn(
        &uses(list),
        &BTreeSet::new(),
        &BTreeMap::new(),
        shown,
        files,
    )
}

fn host(files: &[&str], credentials: &[&str]) -> Files {
    Files {
        files: bytes(files).into_iter().collect(),
        credentials: bytes(credentials).into_iter().collect(),
        too_large: Vec::new(),
    }
}

#[test]
fn what_every_run_sees_is_left_out_and_the_rest_is_listed() {
    let files = host(&["/opt/t/bin/t", "/home/u/p/a", "/home/u/x/y"], &[]);
    let found = learned(
        &[
            (Execute, "/usr/bin/sh", Found),
            (Open, "/opt/t/bin/t", Found),
            (Inspect, "/opt/t", Found),
            (Open, "/opt/t/none", Absent),
            (Open, "/home/u/p/a", Found),
            (Open, "/tmp/x", Found),
            (Create, "/tmp/x", Found),
        ],
        &shown(),
        &files,
    );
    assert_eq!(texts(&found.read_only), ["/home/u/p/a", "/opt/t/bin/t"]);
    assert!(found.writable.is_empty() && found.omitted.is_empty());
}

#[test]
fn a_write_needs_the_directory_that_exists() {
    let files = host(&["/home/u/p/t/a", "/home/u/p/src/b"], &[]);
    let found = learned(
        &[
            (Create, "/home/u/p/t/new/deep/file", Found),
            (Open, "/home/u/p/t/a", Found),
            (Open, "/home/u/p/src/b", Found),
            (Write, "/home/u/other/x", ReadOnly),
        ],
        &shown(),
        &files,
    );
    assert_eq!(texts(&found.writable), ["/home/u/p/t"]);
    assert_eq!(texts(&found.read_only), ["/home/u/p/src/b"]);
    assert_eq!(omitted(&found), ["/home/u/other/x Refused"]);
    let changes = |example: &str| Changes {
        created: 2,
        example: example.as_bytes().to_vec(),
        ..Changes::default()
    };
    let all = [
        (b"/home/u/p/t".to_vec(), changes("n")),
        (b"/home/u/p".to_vec(), changes("m")),
    ];
    let (uses, links) = (PathUses::default(), BTreeSet::new());
    let found = learn(&uses, &links, &all.into(), &shown(), &files);
    let expected = Entry {
        path: b"/home/u/p".to_vec(),
        uses: 4,
        example: Some(b"/home/u/p/m".to_vec()),
        danger: None,
    };
    assert_eq!(found.writable, [expected]);
}

#[test]
fn the_home_and_a_directory_with_a_credential_are_never_granted() {
    let files = host(
        &[
            "/home/u/a",
            "/home/u/b",
            "/home/u/c",
            "/home/u/p/x",
            "/opt/d/e",
        ],
        &["/home/u/p/.env", "/opt/d/id_rsa"],
    );
    let found = learned(
        &[
            (Open, "/home/u/a", Found),
            (Open, "/home/u/b", Found),
            (Open, "/home/u/c", Found),
            (Open, "/home/u", Found),
            (Open, "/opt", Found),
            (Open, "/opt/d", Found),
            (Open, "/opt/d/e", Found),
            (Open, "/opt/d/id_rsa", Found),
            (Open, "/home/u/p/x", Found),
            (Create, "/home/u/p/new", Found),
            // Not on the host: the body made it.
            (Open, "/home/u/p/new", Found),
            (Open, "/home/u/.ssh/id_rsa", Absent),
            (Inspect, "/home/u/.ssh", Found),
        ],
        &shown(),
        &files,
    );
    let listed = [
        "/home/u/a",
        "/home/u/b",
        "/home/u/c",
        "/home/u/p/x",
        "/opt/d/e",
    ];
    assert_eq!(texts(&found.read_only), listed);
    assert!(found.writable.is_empty());
    let expected = [
        "/home/u Shared",
        "/home/u/.ssh/id_rsa Credential",
        "/home/u/p CredentialInside",
        "/opt Shared",
        "/opt/d CredentialInside",
        "/opt/d/id_rsa Credential",
    ];
    assert_eq!(omitted(&found), expected);
}

#[test]
fn a_path_of_a_flag_is_taken_as_it_is_if_it_was_used_and_marked_if_it_is_a_risk() {
    let files = host(
        &["/home/u/p/x", "/opt/t/x"],
        &["/home/u/p/.env", "/home/u/.ssh/id_rsa"],
    );
    let named = ["/home/u/p", "/home/u/.ssh/id_rsa", "/opt/unused", "/opt/t"];
    let shown = Shown {
        named: bytes(&named),
        // The rest of a directory may stay hidden.
        hidden: bytes(&["/home/u/.ssh"]),
        ..shown()
    };
    let found = learned(
        &[
            (Open, "/home/u/.ssh/id_rsa", Found),
            (Open, "/home/u/.ssh/other", Absent),
            (Open, "/home/u/p/.env", Found),
            (Create, "/home/u/p/new", Found),
            (Open, "/opt/t/x", Found),
        ],
        &shown,
        &files,
    );
    assert_eq!(texts(&found.read_only), ["/home/u/.ssh/id_rsa", "/opt/t"]);
    assert_eq!(texts(&found.writable), ["/home/u/p"]);
    assert_eq!(omitted(&found), ["/home/u/.ssh/other Credential"]);
    let all = found.read_only.iter().chain(&found.writable);
    let dangers: Vec<_> = all.map(|entry| entry.danger.clone()).collect();
    let inside = Some(b"/home/u/p/.env".to_vec());
    let expected = [
        Some((Reason::Credential, None)),
        None,
        Some((Reason::CredentialInside, inside)),
    ];
    assert_eq!(dangers, expected);
}

#[test]
fn a_socket_of_the_host_is_a_comment_unless_a_flag_names_it() {
    let files = host(&["/run/a.sock", "/opt/b.sock", "/opt/named.sock"], &[]);
    let mut shown = shown();
    shown.named = bytes(&["/opt/named.sock"]);
    let found = learned(
        &[
            (Connect, "/run/a.sock", Absent),
            (Connect, "/opt/b.sock", Found),
            (Connect, "/opt/named.sock", Found),
            // Made by the command, or by nobody.
            (Connect, "/home/u/p/own.sock", Found),
            (Connect, "/run/none.sock", Absent),
        ],
        &shown,
        &files,
    );
    assert_eq!(
        omitted(&found),
        ["/opt/b.sock Socket", "/run/a.sock Socket"]
    );
    assert!(found.read_only.is_empty() && found.writable.is_empty());
}

#[test]
fn what_exists_and_is_not_shown_is_a_comment() {
    let files = host(&["/etc/gitconfig"], &["/etc/k.key"]);
    let found = learned(
        &[
            (Open, "/etc/gitconfig", Absent),
            (Open, "/etc/k.key", Absent),
            (Open, "/etc/none", Absent),
            (Open, "/proc/1/environ", Absent),
        ],
        &shown(),
        &files,
    );
    let expected = ["/etc/gitconfig NotShown", "/etc/k.key Credential"];
    assert_eq!(omitted(&found), expected);
}

#[test]
fn a_directory_that_is_too_large_to_search_is_not_granted() {
    let mut files = host(&["/opt/d/a", "/opt/d/b", "/opt/d/c"], &[]);
    files.too_large = bytes(&["/opt/d"]);
    let found = learned(
        &[
            (Open, "/opt/d", Found),
            (Open, "/opt/d/a", Found),
            (Open, "/opt/d/b", Found),
            (Open, "/opt/d/c", Found),
        ],
        &shown(),
        &files,
    );
    assert_eq!(
        texts(&found.read_only),
        ["/opt/d/a", "/opt/d/b", "/opt/d/c"]
    );
    assert_eq!(omitted(&found), ["/opt/d TooLarge"]);
}

#[test]
fn names_that_a_policy_cannot_have_are_left_out_and_the_lists_are_bounded() {
    let names: Vec<String> = (0..30_000).map(|at| format!("/opt/{at}/f")).collect();
    let mut files = host(&["/opt/x/line\nbreak", "/opt/y/a: [b"], &[]);
    files
        .files
        .extend(names.iter().map(|name| name.clone().into_bytes()));
    let mut list = vec![
        (Open, "/opt/x/line\nbreak", Found),
        (Open, "/opt/y/a: [b", Found),
    ];
    list.extend(names.iter().map(|name| (Open, name.as_str(), Found)));
    let found = learned(&list, &shown(), &files);
    assert_eq!(found.read_only.len(), ENTRIES_MAX);
    assert!(omitted(&found).contains(&"/opt/x/line\\x0abreak Name".to_owned()));
    assert!(found.unlisted > 10_000);
    let absent: Vec<String> = (0..3_000).map(|at| format!("/nothing/{at}")).collect();
    let list: Vec<_> = absent
        .iter()
        .map(|name| (Open, name.as_str(), Absent))
        .collect();
    assert_eq!(learned(&list, &shown(), &files), LearnedPaths::default());
}

#[test]
fn a_link_is_there_with_its_directory_or_as_a_mount() {
    let files = host(
        &[
            "/opt/tool/x",
            "/home/u/bin/t",
            "/home/u/d/t",
            "/home/u/p/made",
        ],
        &["/home/u/d/.env"],
    );
    let links = [
        "/opt/tool",
        "/home/u/bin/t",
        "/home/u/d/t",
        "/home/u/p/new",
        "/usr/bin/sh",
        "/home/u/.ssh/x",
    ];
    let links = bytes(&links).into_iter().collect();
    let found = learn(
        &PathUses::default(),
        &links,
        &BTreeMap::new(),
        &shown(),
        &files,
    );
    assert_eq!(
        texts(&found.read_only),
        ["/home/u/bin", "/home/u/d/t", "/opt/tool"]
    );
    assert!(found.omitted.is_empty());
}

#[test]
fn of_an_image_only_what_the_host_has_of_its_own_is_asked_for() {
    let files = host(&["/home/u/p/a", "/home/u/n", "/opt/t", "/etc/c"], &[]);
    let mut shown = shown();
    shown.hidden.push(b"/home/u/p/.env".to_vec());
    shown.show_image();
    assert_eq!(shown.read_only, bytes(&[]));
    assert_eq!(shown.hidden, bytes(&["/home/u/p/.env"]));
    let found = learned(
        &[
            (Open, "/home/u/p/a", Found),
            (Open, "/opt/t", Found),
            (Open, "/home/u/n", Absent),
            (Open, "/etc/c", Absent),
        ],
        &shown,
        &files,
    );
    assert_eq!(texts(&found.read_only), ["/home/u/p/a"]);
    assert_eq!(omitted(&found), ["/home/u/n NotShown"]);
}
