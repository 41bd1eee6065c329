//! The Debian package that `scripts/package-deb` makes: what is in it, and that the same programs become the same
//! bytes. `tests/guest/deb` installs and purges it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::bodies::write_program;

use super::{said, text, tree, write_pages};

const EPOCH: &str = "1700000000";

/// Programs to pack: each executes the built one, which would take a minute to compress.
struct Build(tempfile::TempDir);

impl Build {
    fn new() -> Self {
        let build = Self(tempfile::tempdir().expect("a directory"));
        let built = PathBuf::from(support::runner());
        for name in ["runner", "runner-server", "runner-worker"] {
            let program = built.with_file_name(name);
            let starts = format!("#!/bin/sh\nexec '{}' \"$@\"\n", program.display());
            write_program(&build.path(name), &starts);
        }
        write_pages(build.0.path());
        build
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Calls the script with these words after `--man`, under another umask and from another directory.
    fn call(&self, umask: &str, words: &[&str]) -> Output {
        Command::new("sh")
            .args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"])
            .arg(tree("scripts/package-deb"))
            .args(["--man", "pages"])
            .args(words)
            .current_dir(self.0.path())
            .env("SOURCE_DATE_EPOCH", EPOCH)
            .output()
            .expect("sh starts")
    }

    /// A package in a new directory of this name.
    fn package(&self, directory: &str, umask: &str) -> PathBuf {
        fs::create_dir(self.path(directory)).expect("made");
        let output = self.call(umask, &["--output", directory, "runner"]);
        assert!(output.status.success(), "{}", said(&output));
        let printed = String::from_utf8(output.stdout).expect("a plain path");
        PathBuf::from(printed.trim_end())
    }
}

fn dpkg_deb(words: &[&str], package: &Path) -> String {
    let output = Command::new("dpkg-deb")
        .arg(words[0])
        .arg(package)
        .args(&words[1..])
        .env("TZ", "UTC")
        .output()
        .expect("dpkg-deb starts: it is on every Debian");
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_package_has_each_file_where_debian_has_it_and_all_belong_to_root() {
    let build = Build::new();
    let package = build.package("out", "077");
    let listed = dpkg_deb(&["--contents"], &package);
    let mut found = Vec::new();
    for line in listed.lines() {
        let mut words = line.split_whitespace();
        let mode = words.next().expect("a mode");
        let expected = if mode.starts_with('d') {
            "drwxr-xr-x"
        } else if line.contains("/bin/") || line.ends_with("-instance") {
            "-rwxr-xr-x"
        } else {
            "-rw-r--r--"
        };
        assert_eq!(mode, expected, "{line}");
        assert_eq!(words.next(), Some("root/root"), "{line}");
        assert!(line.contains(" 2023-11-14 22:13 "), "{line}");
        let path = words.next_back().expect("a path");
        let path = path.trim_start_matches("./");
        let is_page = path.starts_with("usr/share/man/man1/runner-");
        if !path.is_empty() && !path.ends_with('/') && !is_page {
            found.push(path.to_owned());
        }
    }
    assert_eq!(
        found,
        [
            "usr/bin/runner",
            "usr/bin/runner-server",
            "usr/bin/runner-worker",
            "usr/lib/runner/runner-instance",
            "usr/lib/systemd/system/runner-api.service",
            "usr/lib/systemd/system/runner-api.socket",
            "usr/lib/systemd/system/runner-worker.service",
            "usr/lib/systemd/system/runner.slice",
            "usr/lib/systemd/system/runner@.service",
            "usr/share/bash-completion/completions/runner",
            "usr/share/doc/runner/changelog.gz",
            "usr/share/doc/runner/copyright",
            "usr/share/doc/runner/ordinary-user.conf",
            "usr/share/doc/runner/serve.md",
            "usr/share/doc/runner/systemd.md",
            "usr/share/doc/runner/third-party.gz",
            "usr/share/doc/runner/workers.md",
            "usr/share/fish/vendor_completions.d/runner.fish",
            "usr/share/man/man1/runner.1.gz",
            "usr/share/runner/apparmor",
            "usr/share/zsh/vendor-completions/_runner",
        ]
    );
    assert!(listed.contains("/man1/runner-exec.1.gz"), "{listed}");
}

#[test]
fn the_package_says_what_it_is_and_needs_no_other() {
    let build = Build::new();
    let package = build.package("out", "022");
    let field = |name: &str| dpkg_deb(&["--field", name], &package).trim_end().to_owned();
    assert_eq!(field("Package"), "runner");
    assert_eq!(field("Version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(field("Depends"), "");
    let name = package.file_name().expect("a name").to_string_lossy();
    let expected = format!(
        "runner_{}_{}.deb",
        env!("CARGO_PKG_VERSION"),
        field("Architecture")
    );
    assert_eq!(name, expected);

    let unpacked = build.path("unpacked");
    dpkg_deb(&["--raw-extract", &unpacked.to_string_lossy()], &package);
    let sums = Command::new("md5sum")
        .args(["--check", "--quiet", "DEBIAN/md5sums"])
        .current_dir(&unpacked)
        .output()
        .expect("md5sum starts");
    assert!(sums.status.success(), "{}", said(&sums));
    let copyright = fs::read_to_string(unpacked.join("usr/share/doc/runner/copyright"));
    let copyright = copyright.expect("a file");
    let licence = text("LICENSE-MIT");
    let line = licence.lines().find(|line| line.starts_with("Copyright"));
    let holder = line
        .and_then(|line| line.split_once("(c) "))
        .expect("one")
        .1;
    assert!(
        copyright.contains(&format!("Copyright: {holder}\n")),
        "{copyright}"
    );
    let first = licence.lines().nth(4).expect("the first line of the text");
    assert!(
        copyright.contains(&format!("License: Expat\n {first}\n")),
        "{copyright}"
    );
}

#[test]
fn the_same_programs_become_the_same_bytes() {
    let build = Build::new();
    let one = fs::read(build.package("one", "022")).expect("a package");
    let other = fs::read(build.package("another-name", "077")).expect("a package");
    assert!(one == other, "two packages of the same programs differ");
}

#[test]
fn a_package_that_would_be_wrong_is_not_made() {
    let build = Build::new();
    write_program(
        &build.path("other/runner"),
        "#!/bin/sh\necho something else\n",
    );
    write_program(
        &build.path("alone/runner"),
        "#!/bin/sh\necho runner 0.1.0\n",
    );
    for (words, code, told) in [
        (
            &["--outptu", ".", "runner"][..],
            2,
            "scripts/package-deb [--output DIRECTORY]",
        ),
        (&[][..], 2, "scripts/package-deb [--output DIRECTORY]"),
        (&["rnner"], 1, "rnner: No such file"),
        (
            &["--output", "missing", "runner"],
            1,
            "missing: No such file",
        ),
        (
            &["other/runner"],
            1,
            "other/runner --version: expected `runner X.Y.Z`",
        ),
        (&["alone/runner"], 1, "alone/runner-server is missing"),
    ] {
        let output = build.call("022", words);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            said(&output)
        );
        assert!(said(&output).contains(told), "{words:?}: {}", said(&output));
    }
    let left = fs::read_dir(build.0.path()).expect("a directory");
    let made = left
        .flatten()
        .any(|entry| entry.path().extension().is_some_and(|it| it == "deb"));
    assert!(!made, "a package was made");
}
