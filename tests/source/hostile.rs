//! Hostile repositories: nothing of them is executed, and no other repository is read.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::artifacts::{Artifact, Source};
use support::git::git;
use support::{is_root, needs_root};

/// A source whose repository names a program wherever git would start one.
struct Trap {
    source: Source,
    program: PathBuf,
    sprung: PathBuf,
}

impl Trap {
    fn new() -> Self {
        let source = Source::checkout(&[
            ("a", "a"),
            ("b.txt", "b"),
            (".gitattributes", "* filter=evil diff=evil merge=evil\n"),
        ]);
        let sprung = source.ground.path("sprung");
        let program = source.ground.program(
            "trap",
            format!("#!/bin/sh\necho \"$0 $*\" >>'{}'\ncat\n", sprung.display()),
        );
        Self {
            source,
            program,
            sprung,
        }
    }

    fn set(&self, name: &str, value: &str) {
        self.source.git(&["config", name, value]);
    }

    fn program(&self) -> &str {
        self.program.to_str().expect("plain")
    }

    #[track_caller]
    fn assert_not_sprung(&self) {
        let said = std::fs::read_to_string(&self.sprung).unwrap_or_default();
        assert_eq!(said, "", "something was executed");
    }

    /// Git must compare the bytes of each file, not only its times.
    fn touch_all(&self) {
        for name in ["a", "b.txt"] {
            let text = std::fs::read(self.source.directory().join(name)).expect("read");
            self.source.file(name, text);
        }
    }
}

const PLACES: [&str; 22] = [
    "core.fsmonitor",
    "core.sshCommand",
    "core.pager",
    "core.editor",
    "core.askPass",
    "core.alternateRefsCommand",
    "core.gitProxy",
    "pager.status",
    "pager.config",
    "credential.helper",
    "diff.external",
    "diff.evil.command",
    "diff.evil.textconv",
    "filter.evil.clean",
    "filter.evil.smudge",
    "filter.evil.process",
    "gpg.program",
    "interactive.diffFilter",
    "sequence.editor",
    "uploadpack.packObjectsHook",
    "remote.origin.uploadpack",
    "remote.origin.vcs",
];

#[test]
fn no_program_of_a_configuration_is_started() {
    let trap = Trap::new();
    for place in PLACES {
        trap.set(place, trap.program());
    }
    for verb in [
        "rev-parse",
        "config",
        "cat-file",
        "ls-files",
        "status",
        "symbolic-ref",
    ] {
        trap.set(&format!("alias.{verb}"), &format!("!{}", trap.program()));
    }
    trap.set("log.showSignature", "true");
    trap.set("filter.evil.required", "true");
    trap.set("remote.origin.url", &format!("ext::{} %S", trap.program()));
    trap.set(
        "core.hooksPath",
        trap.source.ground.path("hooks").to_str().expect("plain"),
    );
    for hook in [
        "post-index-change",
        "fsmonitor-watchman",
        "reference-transaction",
    ] {
        for place in ["hooks", "work/.git/hooks"] {
            let hook = trap.source.ground.write(&format!("{place}/{hook}"), "");
            std::fs::remove_file(&hook).expect("removed");
            symlink(&trap.program, hook).expect("linked");
        }
    }
    trap.touch_all();
    // The control: git itself executes the program.
    let open = std::process::Command::new("git")
        .arg("status")
        .current_dir(trap.source.directory())
        .output();
    assert!(
        open.is_ok() && trap.sprung.exists(),
        "git does not start what the trap names"
    );
    std::fs::remove_file(&trap.sprung).expect("removed");
    trap.touch_all();
    let artifact = trap.source.build(&["no-version"]);
    trap.assert_not_sprung();
    let config = artifact.config();
    assert_eq!(config["origin"].get("url"), None, "{config}");
    assert_eq!(artifact.find_warning("source_dirty"), None);
}

#[test]
fn configuration_that_is_included_is_not_read() {
    let trap = Trap::new();
    let included = trap.source.ground.write(
        "included",
        format!(
            "[core]\n\tfsmonitor = {0}\n[filter \"evil\"]\n\tclean = {0}\n[remote \"origin\"]\n\
             \turl = https://git.example.org/canary/included\n",
            trap.program()
        ),
    );
    let path = included.to_str().expect("plain");
    trap.set("include.path", path);
    trap.set("includeIf.gitdir:/.path", path);
    trap.set("includeIf.onbranch:main.path", path);
    trap.touch_all();
    let artifact = trap.source.build(&[]);
    trap.assert_not_sprung();
    let text = String::from_utf8_lossy(&artifact.config).into_owned();
    assert!(!text.contains("canary"), "{text}");
}

#[test]
fn missing_git_objects_are_not_fetched() {
    let trap = Trap::new();
    trap.set("core.repositoryformatversion", "1");
    trap.set("extensions.partialClone", "origin");
    trap.set("remote.origin.promisor", "true");
    trap.set("remote.origin.url", &format!("ext::{} %S", trap.program()));
    trap.set("protocol.allow", "always");
    std::fs::remove_dir_all(trap.source.directory().join(".git/objects")).expect("removed");
    std::fs::create_dir(trap.source.directory().join(".git/objects")).expect("made");
    let ended = trap.source.try_build(&[]);
    trap.assert_not_sprung();
    assert!(ended.code == 125 || ended.code == 0, "{ended:#?}");
}

#[test]
fn variables_of_the_caller_do_not_lead_git_elsewhere() {
    let trap = Trap::new();
    let other = Source::checkout(&[("other", "canary")]);
    let mut command = trap
        .source
        .command(&trap.source.directory(), &["--name", "it"]);
    command
        .env("GIT_DIR", other.directory().join(".git"))
        .env("GIT_WORK_TREE", other.directory())
        .env("GIT_INDEX_FILE", other.directory().join(".git/index"))
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.fsmonitor")
        .env("GIT_CONFIG_VALUE_0", trap.program())
        .env("GIT_EXEC_PATH", trap.source.ground.path("."))
        .env("GIT_EXTERNAL_DIFF", trap.program())
        .env("GIT_TRACE", trap.source.ground.path("trace"))
        .env("GIT_PAGER", trap.program())
        .env("LD_PRELOAD", trap.program());
    let artifact = trap.source.artifact(command);
    trap.assert_not_sprung();
    let commit = trap.source.git(&["rev-parse", "HEAD"]);
    assert_eq!(artifact.config()["origin"]["commit"], commit);
    assert!(!trap.source.ground.path("trace").exists());
    assert_eq!(artifact.report["warnings"], json!([]));
}

fn built(source: &Source) -> Artifact {
    source.build(&[])
}

#[test]
fn a_git_file_pointing_to_a_foreign_repository_is_ignored() {
    let other = Source::checkout(&[("secret", "canary")]);
    other.git(&[
        "remote",
        "add",
        "origin",
        "https://git.example.org/canary/private",
    ]);
    let source = Source::with(&[("a", "a")]);
    let theirs = other.directory().join(".git");
    source.file(".git", format!("gitdir: {}\n", theirs.display()));
    let artifact = built(&source);
    let warning = artifact.warning("source_not_believed");
    assert!(
        warning.contains("names no repository that knows this directory"),
        "{warning}"
    );
    assert_eq!(artifact.config()["sourceType"], "directory");
    assert!(!String::from_utf8_lossy(&artifact.config).contains("canary"));
    // A `.git` that is a link to the other repository.
    std::fs::remove_file(source.directory().join(".git")).expect("removed");
    symlink(&theirs, source.directory().join(".git")).expect("linked");
    let artifact = built(&source);
    let warning = artifact.warning("source_not_believed");
    assert!(
        warning.contains("is neither a directory nor a file"),
        "{warning}"
    );
    assert!(!String::from_utf8_lossy(&artifact.config).contains("canary"));
}

#[test]
fn a_repository_of_another_user_above_the_directory_is_not_believed() {
    if !is_root() {
        return needs_root("only root can give files away");
    }
    let source = Source::checkout(&[("mine/a", "a")]);
    let folder = source.directory().join("mine");
    let give = |path: &Path, uid| std::os::unix::fs::chown(path, Some(uid), None).expect("given");
    give(&source.directory().join(".git"), 40_151);
    let words = ["--name", "it", "--version", "1"];
    let artifact = source.artifact(source.command(&folder, &words));
    let warning = artifact.warning("source_not_believed");
    assert!(warning.contains("belongs to another user"), "{warning}");
    // The owner of the directory is the same user.
    give(&folder, 40_151);
    let artifact = source.artifact(source.command(&folder, &words));
    assert_eq!(artifact.config()["sourceType"], "git");
}

#[test]
fn special_files_in_a_repository_do_not_block() {
    let source = Source::checkout(&[("a", "a")]);
    let git_directory = source.directory().join(".git");
    let fifo = |name: &str| {
        let path = git_directory.join(name);
        if path.exists() {
            std::fs::remove_file(&path).expect("removed");
        }
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
            .expect("made");
    };
    fifo("config");
    let artifact = built(&source);
    assert_eq!(artifact.config()["sourceType"], "git");
    fifo("HEAD");
    // Without a HEAD it is not a repository.
    assert_eq!(built(&source).config()["sourceType"], "directory");
}

#[test]
fn a_link_in_a_repository_publishes_nothing_of_the_file_that_it_leads_to() {
    let source = Source::checkout(&[("a", "a")]);
    let secret = source.ground.write("secret", "canary = word\n");
    source.git(&["config", "core.sparseCheckout", "true"]);
    let info = source.directory().join(".git/info");
    let patterns = info.join("sparse-checkout");
    symlink(&secret, &patterns).expect("linked");
    let text = |artifact: &Artifact| String::from_utf8_lossy(&artifact.config).into_owned();
    let published = text(&built(&source));
    assert!(!published.contains("canary"), "{published}");
    // The same with a link in place of the directory above the file.
    let folder = source.ground.write("folder/sparse-checkout", "canary\n");
    std::fs::remove_dir_all(&info).expect("removed");
    symlink(folder.parent().expect("above"), &info).expect("linked");
    let published = text(&built(&source));
    assert!(!published.contains("canary"), "{published}");
}

#[test]
fn formats_that_are_not_known_are_refused() {
    let source = Source::checkout(&[("a", "a")]);
    let config = source.directory().join(".git/config");
    let before = std::fs::read_to_string(&config).expect("read");
    let with = format!("{before}[extensions]\n\tobjectformat = \"sha1\\n[core]\\nfsmonitor=x\"\n");
    std::fs::write(&config, with).expect("written");
    source
        .try_build(&[])
        .assert_refused("source_git_failed", &["extensions.objectformat"]);
    std::fs::write(&config, "[core\n").expect("written");
    source
        .try_build(&[])
        .assert_refused("source_git_failed", &["git config failed", "--no-git"]);
}

#[test]
fn nothing_of_the_repository_is_changed_and_nothing_stays_behind() {
    let trap = Trap::new();
    trap.touch_all();
    let git_directory = trap.source.directory().join(".git");
    let listing = || {
        let found = std::process::Command::new("find")
            .args([".", "-printf", "%p %s %T@ %m\n"])
            .current_dir(&git_directory)
            .output()
            .expect("find runs");
        String::from_utf8(found.stdout).expect("text")
    };
    let before = listing();
    let temporary = trap.source.ground.path("temporary");
    std::fs::create_dir(&temporary).expect("made");
    let mut command = trap
        .source
        .command(&trap.source.directory(), &["--name", "it"]);
    command.env("TMPDIR", &temporary);
    trap.source.artifact(command);
    assert_eq!(listing(), before);
    assert_eq!(std::fs::read_dir(&temporary).expect("listed").count(), 0);
    let mut command = trap
        .source
        .command(&trap.source.directory(), &["--name", "it"]);
    command.env("TMPDIR", trap.source.ground.path("missing"));
    let ended = support::bundling::output_of(&mut command);
    ended.assert_refused("source_git_failed", &["temporary directory", "TMPDIR"]);
    git(&trap.source.directory(), &["status"]);
}
