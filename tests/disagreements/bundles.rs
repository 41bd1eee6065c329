//! Rows that `runner bundle` decides.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use support::runner;

/// One member of an archive and its header.
#[derive(Debug, PartialEq, Eq)]
struct Member {
    name: String,
    kind: u8,
    mode: u64,
    /// uid, gid, mtime.
    ids_and_time: [u64; 3],
    link: String,
    content: Vec<u8>,
}

/// The result of `runner bundle`.
struct Bundled {
    code: Option<i32>,
    stderr: String,
    members: Vec<Member>,
}

impl Bundled {
    /// The names of all members except the runner's own.
    fn names(&self) -> Vec<&str> {
        let names = self.members.iter().map(|member| member.name.as_str());
        names.filter(|name| !name.starts_with(".runner/")).collect()
    }

    fn member(&self, name: &str) -> &Member {
        let found = self.members.iter().find(|member| member.name == name);
        found.unwrap_or_else(|| panic!("no {name}: {:?} {}", self.names(), self.stderr))
    }

    #[track_caller]
    fn assert_refused(&self, code: &str) {
        assert_eq!(self.code, Some(125), "{}", self.stderr);
        assert!(
            self.stderr.contains(&format!("({code})")),
            "{}",
            self.stderr
        );
        assert!(self.members.is_empty(), "{:?}", self.names());
    }
}

/// A workspace with these files; a text that ends in `/` creates a directory.
fn workspace(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        if name.ends_with('/') {
            std::fs::create_dir_all(&path).expect("made");
        } else {
            std::fs::write(&path, text).expect("written");
        }
    }
    directory
}

fn bundle_with(
    workspace: &Path,
    sources: &str,
    flags: &[&str],
    variables: &[(&str, &str)],
) -> Bundled {
    let manifest = workspace.join("manifest.yaml");
    let text = format!("run: [cat, x]\ncode: {{sources: [{sources}]}}\n");
    std::fs::write(manifest, text).expect("written");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let archive = elsewhere.path().join("out.tar.gz");
    let output = Command::new(runner())
        .args(["bundle", ".", "-o"])
        .arg(&archive)
        .args(flags)
        .current_dir(workspace)
        .env_clear()
        .env("HOME", elsewhere.path())
        .envs(variables.iter().copied())
        .output()
        .expect("the runner starts");
    Bundled {
        code: output.status.code(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        members: std::fs::read(archive).map_or(Vec::new(), |bytes| members(&bytes)),
    }
}

fn bundle(workspace: &Path, sources: &str) -> Bundled {
    bundle_with(workspace, sources, &[], &[])
}

/// The members of a `.tar.gz` with ustar headers.
fn members(archive: &[u8]) -> Vec<Member> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(archive)
        .read_to_end(&mut bytes)
        .expect("gzip");
    let mut members = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + 512).filter(|header| header[0] != 0) {
        let text = |range: std::ops::Range<usize>| {
            let field = &header[range];
            let end = field
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(field.len());
            String::from_utf8_lossy(&field[..end]).into_owned()
        };
        let octal = |range| u64::from_str_radix(text(range).trim(), 8).expect("octal digits");
        assert_eq!(text(257..263), "ustar");
        let size = usize::try_from(octal(124..136)).expect("a size");
        members.push(Member {
            name: text(0..100),
            kind: header[156],
            mode: octal(100..108),
            ids_and_time: [octal(108..116), octal(116..124), octal(136..148)],
            link: text(157..257),
            content: bytes[at + 512..at + 512 + size].to_vec(),
        });
        at += 512 + size.next_multiple_of(512);
    }
    members
}

/// Row 14.
#[test]
fn a_directory_comes_under_its_own_path_unless_as_strips_it() {
    let workspace = workspace(&[("a/b/f", "1")]);
    let names = |sources: &str| {
        let bundled = bundle(workspace.path(), sources);
        let names: Vec<String> = bundled.names().into_iter().map(str::to_owned).collect();
        names.join(" ")
    };
    assert_eq!(names("{local: a/b}"), "a/ a/b/ a/b/f");
    assert_eq!(names("{local: {path: a/b, as: .}}"), "f");
    assert_eq!(names("{local: {path: a/b, as: v/}}"), "v/ v/f");
}

/// Row 15.
#[test]
fn a_path_is_a_pattern_only_with_a_sign_and_a_glob_sees_dotfiles() {
    let workspace = workspace(&[
        ("d/a.ts", ""),
        ("d/.h.ts", ""),
        ("d/s/b.ts", ""),
        ("d/c.py", ""),
    ]);
    let files = |sources: &str| -> BTreeSet<String> {
        let bundled = bundle(workspace.path(), sources);
        assert_eq!(bundled.code, Some(0), "{sources}: {}", bundled.stderr);
        let names = bundled.names().into_iter();
        names
            .filter(|name| !name.ends_with('/'))
            .map(str::to_owned)
            .collect()
    };
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(
        files("{local: d}"),
        set(&["d/a.ts", "d/.h.ts", "d/s/b.ts", "d/c.py"])
    );
    assert_eq!(
        files("{local: {path: d, glob: '*.ts'}}"),
        set(&["d/a.ts", "d/.h.ts"])
    );
    assert_eq!(
        files("{local: {path: d, glob: '**/*.ts'}}"),
        set(&["d/a.ts", "d/.h.ts", "d/s/b.ts"])
    );
    assert_eq!(files("{local: 'd/*.py'}"), set(&["d/c.py"]));
    bundle(workspace.path(), "{local: d.ts}").assert_refused("source_missing");
}

/// Row 16.
#[test]
fn a_cycle_is_refused_before_sources_are_read_and_a_diamond_is_accepted() {
    let refers = |to: &str| format!("kind: code-workspace\nname: x\ncode: {{sources: [{to}]}}\n");
    let leaf =
        "kind: code-workspace\nname: x\ncode: {sources: [{inline: {path: leaf, content: a}}]}\n";
    let (a_b, b_a) = (refers("{local: gone}, {ref: b}"), refers("{ref: a}"));
    let cyclic = workspace(&[("a/manifest.yaml", &a_b), ("b/manifest.yaml", &b_a)]);
    // `gone` does not exist: a different error would show that sources are read first.
    bundle(cyclic.path(), "{ref: a}").assert_refused("code_cycle");
    let to_d = refers("{ref: d}");
    let diamond = workspace(&[
        ("b/manifest.yaml", &to_d),
        ("c/manifest.yaml", &to_d),
        ("d/manifest.yaml", leaf),
    ]);
    let bundled = bundle(diamond.path(), "{ref: b}, {ref: c}");
    assert_eq!(
        (bundled.code, bundled.names()),
        (Some(0), vec!["leaf"]),
        "{}",
        bundled.stderr
    );
    let chain: Vec<(String, String)> = (0..9)
        .map(|level| {
            let next = if level == 8 {
                leaf.to_owned()
            } else {
                refers(&format!("{{ref: l{}}}", level + 1))
            };
            (format!("l{level}/manifest.yaml"), next)
        })
        .collect();
    let chain: Vec<(&str, &str)> = chain
        .iter()
        .map(|(name, text)| (&**name, &**text))
        .collect();
    bundle(workspace(&chain).path(), "{ref: l0}").assert_refused("code_depth");
    let bundled = bundle(workspace(&chain).path(), "{ref: l1}");
    assert_eq!(bundled.code, Some(0), "{}", bundled.stderr);
}

/// Rows 17 and 18: nothing is asked of the network before the refusal.
#[test]
fn required_pins_reject_abbreviated_commits() {
    let workspace = workspace(&[]);
    let source = "{github: {repo: o/n, ref: 4f3a2b1c}}";
    for (flag, variable) in [
        (Some("--require-pin"), None),
        (None, Some(("WORKSPACE_TOOLS_REQUIRE_PIN", "true"))),
        (None, Some(("AIP26_REQUIRE_PIN", "1"))),
    ] {
        let flags: Vec<&str> = flag.into_iter().collect();
        let variables: Vec<(&str, &str)> = variable.into_iter().collect();
        let bundled = bundle_with(workspace.path(), source, &flags, &variables);
        bundled.assert_refused("pin_required");
        assert!(bundled.stderr.contains("abbreviated"), "{}", bundled.stderr);
    }
}

/// Row 19.
#[test]
fn a_file_where_another_source_has_a_directory_is_refused_with_both() {
    let workspace = workspace(&[("d/f", "1")]);
    for sources in [
        "{local: d}, {inline: {path: d/f/x, content: a}}",
        "{inline: {path: d/f/x, content: a}}, {local: d}",
    ] {
        let bundled = bundle(workspace.path(), sources);
        bundled.assert_refused("bundle_path_conflict");
        for source in ["/code/sources/0", "/code/sources/1"] {
            assert!(bundled.stderr.contains(source), "{}", bundled.stderr);
        }
    }
    let bundled = bundle(
        workspace.path(),
        "{local: d}, {inline: {path: d/f, content: new}}",
    );
    assert_eq!(bundled.member("d/f").content, b"new");
}

/// Row 20: the decision keeps links that stay inside.
#[test]
fn only_the_owners_right_to_execute_is_kept_and_a_link_that_stays_inside() {
    let workspace = workspace(&[("d/plain", "p"), ("d/tool", "t"), ("outside", "o")]);
    let set = |name: &str, mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(workspace.path().join(name), permissions).expect("set");
    };
    set("d/plain", 0o600);
    set("d/tool", 0o4777);
    symlink("plain", workspace.path().join("d/inside")).expect("linked");
    let bundled = bundle(workspace.path(), "{local: d}");
    assert_eq!(bundled.member("d/plain").mode, 0o644);
    assert_eq!(bundled.member("d/tool").mode, 0o755);
    let link = bundled.member("d/inside");
    assert_eq!((link.kind, link.link.as_str()), (b'2', "plain"));
    symlink("../outside", workspace.path().join("d/outside")).expect("linked");
    let bundled = bundle(workspace.path(), "{local: {path: d, as: .}}");
    bundled.assert_refused("symlink_escapes");
    let flags = ["--symlinks", "follow"];
    let bundled = bundle_with(workspace.path(), "{local: {path: d, as: .}}", &flags, &[]);
    let copy = bundled.member("outside");
    assert_eq!((copy.kind, copy.content.as_slice()), (b'0', &b"o"[..]));
}

/// Row 21.
#[test]
fn members_are_sorted_by_bytes_directories_first_without_owner_and_time() {
    let files = [("d/b", "1"), ("d/a/z", "2"), ("d/B", "3"), ("d/empty/", "")];
    let workspace = workspace(&files);
    let bundled = bundle(workspace.path(), "{local: d}");
    assert_eq!(
        bundled.names(),
        ["d/", "d/B", "d/a/", "d/a/z", "d/b", "d/empty/"]
    );
    for member in &bundled.members {
        assert_eq!(member.ids_and_time, [0; 3], "{member:?}");
        let mode = if member.kind == b'5' { 0o755 } else { 0o644 };
        assert_eq!(member.mode, mode, "{member:?}");
    }
    let reversed: Vec<(&str, &str)> = files.iter().rev().copied().collect();
    let again = self::workspace(&reversed);
    assert_eq!(bundle(again.path(), "{local: d}").members, bundled.members);
}
