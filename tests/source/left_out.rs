//! Files that a snapshot never contains: reported, or refused under --strict.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::artifacts::Source;
use support::{is_root, needs_root};

const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nx\n";

fn make_special(path: &Path, kind: FileType) {
    mknodat(
        CWD,
        path,
        kind,
        Mode::from_raw_mode(0o644),
        rustix::fs::makedev(1, 3),
    )
    .expect("made");
}

#[test]
fn databases_of_version_control_are_left_out_without_a_warning() {
    let source = Source::with(&[
        ("x", "x"),
        (".hg/store", "x"),
        ("deep/.svn/entries", "x"),
        ("deep/y", "y"),
        (".stax/cache", "x"),
        ("sub/.git", "gitdir: /nowhere\n"),
        ("sub/z", "z"),
        (".github/w.yaml", "x"),
        (".gitignore", "x"),
        (".runner/manifest.json", "{}"),
    ]);
    source.file(".git", "x");
    let artifact = source.build(&["--no-git", "--strict"]);
    assert_eq!(
        artifact.files.entries.keys().collect::<Vec<_>>(),
        [
            ".github",
            ".github/w.yaml",
            ".gitignore",
            ".runner",
            ".runner/manifest.json",
            "deep",
            "deep/y",
            "sub",
            "sub/z",
            "x"
        ]
    );
    assert_eq!(artifact.report["left_out_count"], 0);
    assert_eq!(
        artifact.report["warnings"].as_array().map(Vec::len),
        Some(0)
    );
}

#[test]
fn links_fifos_sockets_and_credentials_are_reported_in_one_warning_and_refused_under_strict() {
    let source = Source::with(&[
        ("x", "x"),
        (".env", "A=1"),
        ("d/id_rsa", KEY),
        ("k.pem", KEY),
    ]);
    let directory = source.directory();
    symlink("x", directory.join("link")).expect("linked");
    symlink("/etc/passwd", directory.join("d/out")).expect("linked");
    symlink("nowhere", directory.join("dangling")).expect("linked");
    symlink("d", directory.join("to-directory")).expect("linked");
    make_special(&directory.join("fifo"), FileType::Fifo);
    let socket = UnixListener::bind(directory.join("socket")).expect("bound");
    let artifact = source.build(&[]);
    drop(socket);
    assert_eq!(artifact.files.names(), ["d/", "x"]);
    assert_eq!(artifact.report["left_out_count"], 9);
    let warning = artifact.warning("source_left_out");
    for part in [
        "9 entries",
        "`link`, a symlink",
        "`d/out`, a symlink",
        "`dangling`, a symlink",
        "`to-directory`, a symlink",
        "`fifo`, a fifo",
        "`socket`, a socket",
        "`.env`, credentials (dotenv)",
        "`d/id_rsa`, credentials (ssh-key)",
        "`k.pem`, credentials (private-key)",
    ] {
        assert!(warning.contains(part), "no {part}: {warning}");
    }
    assert_eq!(
        artifact.report["warnings"].as_array().map(Vec::len),
        Some(1)
    );
    let before = source.stored();
    assert_eq!(before, 3);
    let strict = source.try_build(&["--strict"]);
    strict.assert_refused(
        "source_left_out",
        &["9 entries", "`link`, a symlink", ".staxignore"],
    );
    assert_eq!(source.stored(), before);
    source.file(
        ".staxignore",
        ".env\n/d/\nk.pem\nlink\ndangling\nto-directory\nfifo\nsocket\n",
    );
    let quiet = source.build(&["--strict"]);
    assert_eq!(quiet.files.names(), [".staxignore", "x"]);
}

#[test]
fn devices_are_left_out() {
    if !is_root() {
        return needs_root("only root can make devices");
    }
    let source = Source::with(&[("x", "x")]);
    make_special(&source.directory().join("null"), FileType::CharacterDevice);
    make_special(&source.directory().join("disk"), FileType::BlockDevice);
    let artifact = source.build(&[]);
    assert_eq!(artifact.files.names(), ["x"]);
    let warning = artifact.warning("source_left_out");
    assert!(warning.contains("`disk`, a block device"), "{warning}");
    assert!(warning.contains("`null`, a character device"), "{warning}");
}

#[test]
fn a_long_list_is_cut_and_counted() {
    let source = Source::with(&[("x", "x")]);
    for number in 0..150 {
        symlink("x", source.directory().join(format!("l{number:03}"))).expect("linked");
    }
    let artifact = source.build(&[]);
    assert_eq!(artifact.report["left_out_count"], 150);
    assert_eq!(
        artifact.report["left_out"].as_array().map(Vec::len),
        Some(100)
    );
    let warning = artifact.warning("source_left_out");
    assert!(warning.ends_with("; and 130 more"), "{warning}");
}

#[test]
fn a_file_with_several_links_is_an_ordinary_file() {
    let source = Source::with(&[("a", "same"), ("k/b", "x")]);
    let directory = source.directory();
    std::fs::hard_link(directory.join("a"), directory.join("k/c")).expect("linked");
    let artifact = source.build(&["--strict"]);
    assert_eq!(artifact.files.names(), ["a", "k/", "k/b", "k/c"]);
    assert_eq!(artifact.files.text("k/c"), "same");
}

#[test]
fn files_that_only_resemble_credentials_are_included() {
    let files = [
        (".env.example", "A="),
        ("cert.pem", CERTIFICATE),
        ("id_rsa.pub", "ssh-rsa x"),
        (".npmrc", "//r.example.org/:_authToken=${TOKEN}\n"),
        ("config.json", "{}"),
        ("kube/config", "x"),
        ("notes.key", "a music file"),
    ];
    let artifact = Source::with(&files).build(&["--strict"]);
    assert_eq!(
        artifact.report["config"]["snapshot"]["fileCount"],
        files.len()
    );
}

#[test]
fn every_rule_of_the_list_leaves_something_out() {
    for (name, text, rule) in [
        (".env.production", "A=1", "dotenv"),
        ("a/.netrc", "machine x", "netrc"),
        (".git-credentials", "https://a:b@x", "netrc"),
        ("id_ed25519", "x", "ssh-key"),
        ("tls/server.key", KEY, "private-key"),
        (".ssh/mine", KEY, "private-key"),
        ("a.p12", "x", "key-store"),
        (".gnupg/x", "x", "key-ring"),
        ("a/.local/share/keyrings/x", "x", "key-ring"),
        (".bash_history", "x", "shell-history"),
        (".mozilla/x", "x", "browser"),
        ("a/.config/chromium/x", "x", "browser"),
        (".npmrc", "//r.example.org/:_authToken=npm_x\n", "npm"),
        (".pypirc", "x", "python-index"),
        ("home/.cargo/credentials.toml", "x", "cargo"),
        (".gem/credentials", "x", "gem"),
        (".composer/auth.json", "{}", "composer"),
        (".m2/settings-security.xml", "x", "maven"),
        ("home/.aws/credentials", "x", "aws"),
        (".config/gcloud/x", "x", "google-cloud"),
        (".azure/accessTokens.json", "x", "azure"),
        (".docker/config.json", "{}", "docker"),
        (".kube/config", "x", "kubernetes"),
        ("prod.tfstate", "{}", "terraform"),
        (".vault-token", "x", "vault"),
        (".config/gh/hosts.yml", "x", "github"),
        (".pgpass", "x", "database"),
        (".htpasswd", "x", "web-server"),
    ] {
        let source = Source::with(&[("x", "x"), (name, text)]);
        let artifact = source.build(&[]);
        let warning = artifact.warning("source_left_out");
        assert!(
            warning.contains(&format!("credentials ({rule})")),
            "{name}: {warning}"
        );
        assert!(!artifact.files.entries.contains_key(name), "{name}");
    }
}

#[test]
fn include_takes_what_it_names_and_nothing_else() {
    let source = Source::with(&[
        ("x", "x"),
        ("t/a.pem", KEY),
        ("t/b.pem", KEY),
        ("u.pem", KEY),
    ]);
    let artifact = source.build(&["--include", "./t/a.pem"]);
    assert_eq!(artifact.files.names(), ["t/", "t/a.pem", "x"]);
    let artifact = source.build(&["--include", "t/", "--include", "u.pem", "--strict"]);
    assert_eq!(
        artifact.files.names(),
        ["t/", "t/a.pem", "t/b.pem", "u.pem", "x"]
    );
    let ended = source.try_build(&["--include", "t/c.pem"]);
    ended.assert_refused("source_missing", &["--include names `t/c.pem`"]);
    for path in ["../x", "/etc/passwd", "."] {
        source
            .try_build(&["--include", path])
            .assert_refused("usage", &["--include"]);
    }
}

#[test]
fn a_large_file_is_reported() {
    let source = Source::with(&[("x", "x")]);
    let file = std::fs::File::create(source.file("big", "")).expect("made");
    file.set_len((10 << 20) + 1).expect("grown");
    let file = std::fs::File::create(source.file("just", "")).expect("made");
    file.set_len(10 << 20).expect("grown");
    let artifact = source.build(&["--strict"]);
    let warning = artifact.warning("source_large_file");
    assert!(warning.ends_with(": `big` (10 MiB)"), "{warning}");
}

#[test]
fn names_and_modes_are_kept_as_bundles_keep_them() {
    use std::os::unix::ffi::OsStrExt as _;
    let source = Source::with(&[("run", "x")]);
    let name = std::ffi::OsStr::from_bytes(b"a\nb\xff\x1b[31m");
    std::fs::write(source.directory().join(name), "odd").expect("written");
    let mode = std::fs::Permissions::from_mode(0o4711);
    std::fs::set_permissions(source.directory().join("run"), mode).expect("set");
    let artifact = source.build(&[]);
    let listed = std::process::Command::new("tar")
        .args(["-tzv", "--numeric-owner", "--full-time", "-f", "-"])
        .stdin(std::process::Stdio::from({
            let at = source.ground.write("layer", &artifact.layer);
            std::fs::File::open(at).expect("opened")
        }))
        .env("TZ", "UTC")
        .env("LC_ALL", "C")
        .output()
        .expect("tar runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 2, "{listed}");
    assert!(lines[0].starts_with("-rw-r--r-- 0/0"), "{listed}");
    assert!(
        lines[0].ends_with("1970-01-01 00:00:00 a\\nb\\377\\033[31m"),
        "{listed}"
    );
    assert!(lines[1].starts_with("-rwxr-xr-x 0/0"), "{listed}");
}
