//! The view of overlayfs, mounted in a separate namespace, compared with the view of the program.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use runner_sources::oci::layers::Merged;
use spec::digest::Digest;
use spec::path::RelPath;

use crate::stack::{Stack, walk};
use support::tar::Tar;

/// Type, target of a link, and digest of a file at each path.
pub(crate) type Listing = BTreeMap<String, (char, String, String)>;

/// The view of overlayfs for `layers`, lowest first.
pub(crate) fn mounted(layers: &[PathBuf]) -> Listing {
    let ground = tempfile::tempdir().expect("a directory");
    for name in ["empty", "at"] {
        std::fs::create_dir(ground.path().join(name)).expect("made");
    }
    // Short names: the mount option is limited to one page.
    let mut below: Vec<String> = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        let name = format!("l{index}");
        std::os::unix::fs::symlink(layer, ground.path().join(&name)).expect("linked");
        below.insert(0, name);
    }
    below.push("empty".to_owned());
    let script = include_str!("../../../../tests/bodies/layers/mounted.sh");
    let output = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .arg(ground.path())
        .arg(below.join(":"))
        .output()
        .expect("unshare of util-linux");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "overlayfs: {error}");
    parse(&output.stdout)
}

fn parse(output: &[u8]) -> Listing {
    let text = String::from_utf8_lossy(output);
    let mut fields = text.split('\0');
    let mut listing = Listing::new();
    loop {
        let mut field = || fields.next().expect("a field").to_owned();
        let (path, kind, target) = (field(), field(), field());
        if path.is_empty() {
            break;
        }
        let kind = kind.chars().next().expect("a type");
        listing.insert(path, (kind, target, String::new()));
    }
    for line in fields.filter(|line| !line.is_empty()) {
        let (digest, path) = line.split_once("  ./").expect("a digest and a path");
        let entry = listing.get_mut(path).expect("listed");
        entry.2 = format!("sha256:{digest}");
    }
    listing
}

/// For every path of every layer, the program sees what overlayfs shows.
pub(crate) fn check(layers: &[PathBuf], merged: &Merged<'_>) -> Listing {
    let shown = mounted(layers);
    for layer in layers {
        for path in walk(layer) {
            let path = path.strip_prefix(layer).expect("beneath").to_path_buf();
            let name = path.to_str().expect("UTF-8");
            let known = RelPath::parse(name.as_bytes()).expect("a path");
            let has = merged.has(&known).expect("looked at");
            assert_eq!(has, shown.contains_key(name), "{name}");
        }
    }
    for (path, (kind, _, digest)) in &shown {
        let known = RelPath::parse(path.as_bytes()).expect("a path");
        assert!(merged.has(&known).expect("looked at"), "{path}");
        if *kind == 'f' {
            let bytes = merged.read_file(path.as_bytes(), 1 << 30).expect("read");
            let found = Digest::of(&bytes.expect("a file")).to_string();
            assert_eq!(&found, digest, "{path}");
        }
    }
    shown
}

pub(crate) fn check_stack(stack: &Stack) -> Listing {
    let layers: Vec<PathBuf> = (0..stack.roots.len()).map(|n| stack.path(n)).collect();
    check(&layers, &stack.merged())
}

#[test]
fn overlayfs_shows_what_the_program_sees() {
    let base = Tar::new()
        .file("keep", b"1")
        .file("gone", b"1")
        .file("d/keep", b"1")
        .file("d/gone", b"1")
        .file("opaque/old", b"1")
        .file("again/old", b"1")
        .file("file-then-directory", b"1")
        .file("directory-then-file/x", b"1")
        .symlink("lib", "usr/lib")
        .file("usr/lib/a", b"1")
        .end();
    let second = Tar::new()
        .file(".wh.gone", b"")
        .file("d/.wh.gone", b"")
        .file("d/new", b"2")
        .file("opaque/.wh..wh..opq", b"")
        .file("opaque/new", b"2")
        .file(".wh.again", b"")
        .file("again/new", b"2")
        .file("file-then-directory/x", b"2")
        .file("directory-then-file", b"2")
        .file("lib/b", b"2")
        .end();
    let third = Tar::new()
        .file("gone/back", b"3")
        .file("opaque/.wh.new", b"")
        .file("lib/.wh.a", b"")
        .end();
    let stack = Stack::of([base, second, third]);
    let shown = check_stack(&stack);
    let names: Vec<&str> = shown.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "again",
            "again/new",
            "d",
            "d/keep",
            "d/new",
            "directory-then-file",
            "file-then-directory",
            "file-then-directory/x",
            "gone",
            "gone/back",
            "keep",
            "lib",
            "opaque",
            "usr",
            "usr/lib",
            "usr/lib/b",
        ]
    );
}

#[test]
fn hostile_lower_trees_neither_escape_nor_hang() {
    let ground = tempfile::tempdir().expect("a directory");
    let secret = ground.path().join("secret");
    std::fs::write(&secret, b"secret").expect("written");
    let layer = ground.path().join("layer");
    std::fs::create_dir_all(layer.join("d")).expect("made");
    let link = |name: &str, target: &Path| {
        std::os::unix::fs::symlink(target, layer.join(name)).expect("linked");
    };
    link("absolute", &secret);
    link("up", Path::new("../secret"));
    link("d/up", Path::new("../../secret"));
    link("circle", Path::new("circle"));
    link("wide", Path::new(&"d/../".repeat(800)));
    link("again", Path::new(&"wide/".repeat(800)));
    let fifo = layer.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("made");
    std::fs::write(layer.join("large"), vec![0; 5_000]).expect("written");
    let root = std::fs::File::open(&layer).expect("opened");
    let merged = Merged::of_roots([root.as_fd()]);
    for path in [
        "absolute",
        "up",
        "d/up",
        "circle",
        "again",
        "fifo",
        "../secret",
        "d/../../secret",
    ] {
        let found = merged.read_file(path.as_bytes(), 100).expect("looked at");
        assert_eq!(found, None, "{path}");
    }
    let long = [b'x'; 5_000];
    assert_eq!(merged.kind_of(&long).expect("looked at"), None);
    let error = merged.read_file(b"large", 4_999).expect_err("too large");
    assert!(error.to_string().contains("4999"), "{error}");
    assert_eq!(
        merged
            .read_file(b"/d/..//large", 5_000)
            .expect("read")
            .map(|b| b.len()),
        Some(5_000)
    );
}
