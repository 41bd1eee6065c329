//! The files of `packaging`: units that systemd-analyze accepts and rates as little exposed, a
//! starter that refuses ambiguous requests, an AppArmor profile, what `install` puts where, and what a release consists of. A
//! guest with systemd tests that they work (`tests/guest/units`, `tests/guest/deb`).

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot read the tree has nothing to say; what is left out is printed"
)]

#[path = "packaging/deb.rs"]
mod deb;
#[path = "../examples/man/pages.rs"]
mod pages;
#[path = "packaging/release.rs"]
mod release;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::bodies::write_program;
use support::skip;

const STARTER: &str = "/usr/lib/runner/runner-instance";
const PROGRAM: &str = "/usr/bin/runner";

fn tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(tree(path)).expect("a file of the tree")
}

/// The installed units, with the starter of the tree.
fn units(as_user: bool) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let starter = tree("packaging/systemd/runner-instance");
    let starter = starter.to_str().expect("a plain path");
    let service = text("packaging/systemd/runner@.service");
    assert!(service.contains(STARTER), "the service starts {STARTER}");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    };
    write("runner@.service", &service.replace(STARTER, starter));
    write("runner.slice", &text("packaging/systemd/runner.slice"));
    if as_user {
        let user = text("packaging/systemd/ordinary-user.conf");
        write("runner@.service.d/ordinary-user.conf", &user);
    }
    directory
}

/// `systemd-analyze` for those units; `None`, with a printed skip, if this host has none.
fn analyze(words: &[&str], directory: &Path) -> Option<Output> {
    let output = Command::new("systemd-analyze")
        .args(words)
        .current_dir(directory)
        .env("SYSTEMD_PAGER", "")
        .output();
    if output.is_err() {
        skip("there is no systemd-analyze (package systemd)");
    }
    output.ok()
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    for as_user in [false, true] {
        let units = units(as_user);
        let words = ["verify", "--man=no", "./runner@.service", "./runner.slice"];
        let Some(output) = analyze(&words, units.path()) else {
            return;
        };
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(said(&output), "", "as a user: {as_user}");
    }
}

/// The programs are there only where they were installed: any program replaces them.
#[test]
fn systemd_finds_nothing_wrong_with_the_units_of_the_api_and_of_workers() {
    let directory = tempfile::tempdir().expect("a directory");
    let worker = text("packaging/systemd/runner-worker.service");
    let start = format!("ExecStart={PROGRAM} worker $WORKER_FLAGS\n");
    assert!(worker.contains(&start), "the service starts {PROGRAM}");
    let service = text("packaging/systemd/runner-api.service");
    let start = format!("ExecStart={PROGRAM} serve\n");
    assert!(service.contains(&start), "the service starts {PROGRAM}");
    let service = service.replace(PROGRAM, "/bin/true");
    for (name, text) in [
        ("runner-api.service", service),
        (
            "runner-worker.service",
            worker.replace(PROGRAM, "/bin/true"),
        ),
        (
            "runner-api.socket",
            text("packaging/systemd/runner-api.socket"),
        ),
        ("runner.slice", text("packaging/systemd/runner.slice")),
    ] {
        fs::write(directory.path().join(name), text).expect("written");
    }
    let words = [
        "verify",
        "--man=no",
        "./runner-api.service",
        "./runner-api.socket",
        "./runner-worker.service",
    ];
    let Some(output) = analyze(&words, directory.path()) else {
        return;
    };
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output), "");
}

#[test]
fn the_service_is_called_exposed_by_4_9_at_most() {
    for as_user in [false, true] {
        let units = units(as_user);
        let words = [
            "security",
            "--offline=true",
            "--threshold=49",
            "./runner@.service",
        ];
        let Some(output) = analyze(&words, units.path()) else {
            return;
        };
        assert!(output.status.success(), "{}", said(&output));
        let said = said(&output);
        let level = said
            .lines()
            .find(|line| line.contains("Overall exposure level"));
        let whose = if as_user { "the user's" } else { "root's" };
        println!("{whose}: {}", level.expect("a level"));
    }
}

/// Each of these was seen to stop runs.
#[test]
fn the_service_has_no_hardening_that_a_sandbox_cannot_be_made_under() {
    let forbidden = [
        "RestrictNamespaces",
        "ProtectControlGroups",
        "ProtectKernelTunables",
        "ProtectKernelLogs",
        "ProtectHostname",
        "ProcSubset",
        "MemoryDenyWriteExecute",
        "RestrictSUIDSGID",
        "DynamicUser",
    ];
    for unit in [
        "runner@.service",
        "ordinary-user.conf",
        "runner-api.service",
        "runner-worker.service",
    ] {
        let text = text(&format!("packaging/systemd/{unit}"));
        let set: BTreeSet<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once('=').map(|(name, _value)| name))
            .collect();
        assert!(set.contains("CapabilityBoundingSet"), "{unit}: {set:?}");
        for name in forbidden {
            assert!(!set.contains(name), "{unit} has {name}");
        }
    }
}

/// A separate host for the starter: its directories, and a program that prints its arguments.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().expect("a directory"));
        fs::create_dir_all(host.path("etc/one")).expect("made");
        fs::create_dir_all(host.path("state")).expect("made");
        let shows = "#!/bin/sh\nprintf '<%s>' \"$@\"\n\
                     echo \" ${RUNNER_OPT_MANIFEST-no manifest} ${RUNNER_OPT_INPUTS-no inputs}\"\n";
        write_program(&host.path("runner"), shows);
        let starter = text("packaging/systemd/runner-instance")
            .replace("/etc/runner/", &format!("{}/", host.shown("etc")))
            .replace(PROGRAM, &host.shown("runner"));
        write_program(&host.path("starter"), &starter);
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path("etc/one").join(name), text).expect("written");
    }

    /// Exit code, and output with this host's directory as `@`.
    fn start(&self) -> (Option<i32>, String) {
        let output = Command::new(self.path("starter"))
            .arg("one")
            .env("STATE_DIRECTORY", self.path("state"))
            .output()
            .expect("sh starts");
        let said = said(&output).replace(&self.0.path().display().to_string(), "@");
        (output.status.code(), said)
    }
}

#[test]
fn the_starter_hands_over_what_lies_in_the_directory_and_nothing_else() {
    let host = Host::new();
    host.write("bundle.tar.gz", "");
    let (code, said) = host.start();
    let plain = "<exec><--json=@/state/report.json><@/etc/one/bundle.tar.gz><-->";
    assert_eq!(
        (code, said),
        (Some(0), format!("{plain} no manifest no inputs\n"))
    );

    host.write("manifest.yaml", "run: x\n");
    host.write("inputs.json", "{}");
    host.write("arguments", "two words\n$(id) *\n--json=/etc/passwd");
    let (code, said) = host.start();
    let all = format!(
        "{plain}<two words><$(id) *><--json=/etc/passwd> @/etc/one/manifest.yaml @@/etc/one/inputs.json\n"
    );
    assert_eq!((code, said), (Some(0), all));
}

#[test]
fn the_starter_refuses_an_instance_without_a_bundle_and_one_with_two() {
    let host = Host::new();
    let none = "@/etc/one: there is neither bundle.tar.gz nor bundle/\n";
    assert_eq!(host.start(), (Some(125), none.to_owned()));
    fs::create_dir(host.path("etc/one/bundle")).expect("made");
    assert_eq!(host.start().0, Some(0));
    host.write("bundle.tar.gz", "");
    let two = "@/etc/one: there are both bundle/ and bundle.tar.gz\n";
    assert_eq!(host.start(), (Some(125), two.to_owned()));
}

#[test]
fn the_starter_takes_a_link_that_points_nowhere_for_the_word_of_the_host() {
    let dangling = |host: &Host, name: &str| {
        symlink("/nonexistent", host.path("etc/one").join(name)).expect("linked");
    };
    let plain = "<exec><--json=@/state/report.json><@/etc/one/bundle.tar.gz><-->";
    // The passed path does not exist, and runner refuses it.
    for (name, handed) in [
        ("manifest.yaml", " @/etc/one/manifest.yaml no inputs\n"),
        ("inputs.json", " no manifest @@/etc/one/inputs.json\n"),
    ] {
        let host = Host::new();
        host.write("bundle.tar.gz", "");
        dangling(&host, name);
        assert_eq!(host.start(), (Some(0), format!("{plain}{handed}")));
    }
    for (name, told) in [
        ("bundle", "there are both bundle/ and bundle.tar.gz"),
        ("arguments", "arguments cannot be read"),
    ] {
        let host = Host::new();
        host.write("bundle.tar.gz", "");
        dangling(&host, name);
        let told = format!("@/etc/one: {told}\n");
        assert_eq!(host.start(), (Some(125), told), "{name}");
    }
}

#[test]
fn the_starter_refuses_arguments_that_cannot_be_read() {
    let host = Host::new();
    host.write("bundle.tar.gz", "");
    fs::create_dir(host.path("etc/one/arguments")).expect("made");
    let told = "@/etc/one: arguments cannot be read\n";
    assert_eq!(host.start(), (Some(125), told.to_owned()));
    fs::remove_dir(host.path("etc/one/arguments")).expect("removed");
    if rustix::process::geteuid().is_root() {
        println!("root reads a file that nobody may read");
        return;
    }
    host.write("arguments", "word");
    let closed = fs::Permissions::from_mode(0o000);
    fs::set_permissions(host.path("etc/one/arguments"), closed).expect("set");
    assert_eq!(host.start(), (Some(125), told.to_owned()));
}

#[test]
fn the_starter_keeps_the_report_of_the_run_before() {
    let host = Host::new();
    host.write("bundle.tar.gz", "");
    fs::write(host.path("state/report.json"), "last").expect("written");
    assert_eq!(host.start().0, Some(0));
    let kept = fs::read_to_string(host.path("state/report.previous.json")).expect("kept");
    assert_eq!(kept, "last");
    assert!(!host.path("state/report.json").exists());
}

/// Parsers of old AppArmor versions do not know the rule, and their kernels restrict nothing. This
/// is not a skip: Debian 12 has AppArmor 3.0, and no package there would parse it.
#[test]
fn the_profile_for_apparmor_gives_user_namespaces_to_this_program_alone() {
    let profile = text("packaging/apparmor/runner");
    let rules: Vec<&str> = profile
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert_eq!(
        rules,
        [
            "abi <abi/4.0>,",
            "include <tunables/global>",
            "profile runner /usr/{,local/}bin/runner flags=(unconfined) {",
            "userns,",
            "include if exists <local/runner>",
            "}",
        ]
    );
    if !Path::new("/etc/apparmor.d/abi/4.0").exists() {
        println!("this host has no AppArmor 4.0 to parse it");
        return;
    }
    let output = Command::new("apparmor_parser")
        .args(["--skip-kernel-load", "--skip-cache"])
        .arg(tree("packaging/apparmor/runner"))
        .output()
        .expect("apparmor_parser starts");
    assert!(output.status.success(), "{}", said(&output));
}

/// The manual pages, in a directory of their own.
fn write_pages(directory: &Path) -> PathBuf {
    let pages_directory = directory.join("pages");
    fs::create_dir(&pages_directory).expect("made");
    for (name, page) in pages::render(runner::cli::args::command()).expect("rendered") {
        fs::write(pages_directory.join(name), page).expect("written");
    }
    pages_directory
}

/// The programs and what belongs to them below a directory, as a package has them.
fn installed(prefix: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let pages_directory = write_pages(directory.path());
    let output = Command::new(tree("packaging/install"))
        .arg("--destdir")
        .arg(directory.path().join("root"))
        .args(["--prefix", prefix, "--man"])
        .arg(&pages_directory)
        .arg(support::runner())
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    directory
}

#[test]
fn what_is_installed_is_where_shells_and_man_look() {
    let directory = installed("/usr");
    let below = directory.path().join("root/usr");
    for (file, mode) in [
        ("bin/runner", 0o755),
        ("bin/runner-server", 0o755),
        ("bin/runner-worker", 0o755),
        ("share/bash-completion/completions/runner", 0o644),
        ("share/zsh/site-functions/_runner", 0o644),
        ("share/fish/vendor_completions.d/runner.fish", 0o644),
        ("share/man/man1/runner.1", 0o644),
        ("share/man/man1/runner-exec.1", 0o644),
        ("lib/systemd/system/runner-api.socket", 0o644),
        ("lib/systemd/system/runner-api.service", 0o644),
        ("lib/systemd/system/runner-worker.service", 0o644),
        ("lib/systemd/system/runner.slice", 0o644),
        ("lib/systemd/system/runner@.service", 0o644),
        ("lib/runner/runner-instance", 0o755),
        ("share/runner/apparmor", 0o644),
        ("share/doc/runner/ordinary-user.conf", 0o644),
        ("share/doc/runner/serve.md", 0o644),
        ("share/doc/runner/systemd.md", 0o644),
        ("share/doc/runner/workers.md", 0o644),
    ] {
        let found = fs::metadata(below.join(file)).expect(file);
        assert_eq!(found.permissions().mode() & 0o7777, mode, "{file}");
    }
    for words in [
        ["--prefx", "/usr"],
        ["--prefix", "usr"],
        ["--prefix", "/a b"],
    ] {
        let refused = Command::new(tree("packaging/install"))
            .args(words)
            .arg(support::runner())
            .output()
            .expect("it starts");
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    }
}

#[test]
fn the_installed_program_finds_its_server_and_its_units_find_it() {
    let directory = installed("/usr/local");
    let below = directory.path().join("root/usr/local");
    for verb in ["serve", "mcp", "worker", "submit", "result"] {
        let output = Command::new(below.join("bin/runner"))
            .args([verb, "--help"])
            .output()
            .expect("it starts");
        let usage = format!("Usage: runner {verb}");
        assert!(said(&output).contains(&usage), "{}", said(&output));
        assert!(output.status.success(), "{verb}");
    }
    let read = |name: &str| fs::read_to_string(below.join(name)).expect("installed");
    let service = read("lib/systemd/system/runner-api.service");
    let start = "ExecStart=/usr/local/bin/runner serve\n";
    assert!(service.contains(start), "{service}");
    let instance = read("lib/systemd/system/runner@.service");
    let start = "ExecStart=/usr/local/lib/runner/runner-instance %i\n";
    assert!(instance.contains(start), "{instance}");
    let starter = read("lib/runner/runner-instance");
    assert!(
        starter.contains("exec /usr/local/bin/runner exec"),
        "{starter}"
    );
    for unit in [service, read("lib/systemd/system/runner-api.socket")] {
        let page = "Documentation=file:///usr/local/share/doc/runner/serve.md\n";
        assert!(unit.contains(page), "{unit}");
    }
}

#[test]
fn a_program_without_its_server_is_not_installed() {
    let directory = tempfile::tempdir().expect("a directory");
    let alone = directory.path().join("runner");
    symlink(support::runner(), &alone).expect("linked");
    let root = directory.path().join("root");
    let refused = Command::new(tree("packaging/install"))
        .arg("--destdir")
        .arg(&root)
        .arg(&alone)
        .output()
        .expect("it starts");
    let said = said(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let missing = format!("{}-server is missing", alone.display());
    assert!(said.contains(&missing), "{said}");
    assert!(said.contains("-p runner-server"), "{said}");
    assert!(!root.exists(), "a part of it was installed");
}

#[test]
fn each_shell_completes_verbs_and_flags_on_tab() {
    const BASH_COMPLETION: &str = "/usr/share/bash-completion/bash_completion";
    let directory = installed("/usr");
    let below = directory.path().join("root/usr");
    let press_tab = tree("tests/bodies/completions/press_tab.py");
    let home = directory.path().join("home");
    fs::create_dir(&home).expect("made");
    let of_zsh = format!(
        "fpath=({}/share/zsh/site-functions $fpath); autoload -U compinit; compinit -u -D",
        below.display()
    );
    let of_bash = format!("source {BASH_COMPLETION}");
    for (shell, setup, is_there) in [
        (
            &["bash", "--norc", "--noprofile", "-i"][..],
            &*of_bash,
            Path::new(BASH_COMPLETION).exists(),
        ),
        (&["zsh", "-f", "-i"], &of_zsh, is_installed("zsh")),
        (&["fish", "-i"], "true", is_installed("fish")),
    ] {
        if !is_there {
            skip(&format!(
                "no completions of {}: scripts/test installs it",
                shell[0]
            ));
            continue;
        }
        for (typed, expected) in [
            ("runner e", "runner exec"),
            ("runner exec --time", "runner exec --timeout"),
            ("runner source pul", "runner source pull"),
        ] {
            let output = Command::new("python3")
                .arg(&press_tab)
                .args([setup, typed])
                .args(shell)
                .env("PATH", format!("{}/bin:/usr/bin:/bin", below.display()))
                .env(
                    "XDG_DATA_DIRS",
                    format!("{}/share:/usr/share", below.display()),
                )
                .env("HOME", &home)
                .env("TERM", "dumb")
                .current_dir(&home)
                .output()
                .expect("python3 starts");
            let completed = String::from_utf8_lossy(&output.stdout);
            assert_eq!(completed.trim(), expected, "{shell:?}: {}", said(&output));
        }
    }
}

fn is_installed(program: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok()
}
