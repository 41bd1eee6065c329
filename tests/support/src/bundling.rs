//! Support for tests of `runner bundle` and `runner source`: a workspace, and the contents of archives.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Ground, runner};

/// The result of a call of the program.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ended {
    /// Asserts that it ended with code 0.
    #[track_caller]
    pub fn assert_done(&self) -> &Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// Asserts that it was refused with this code, and that the message has each part.
    #[track_caller]
    pub fn assert_refused(&self, code: &str, parts: &[&str]) -> &Self {
        let named = self.stderr.contains(&format!("({code})"));
        assert!(self.code == 125 && named, "expected {code}: {self:#?}");
        for part in parts {
            assert!(self.stderr.contains(part), "no `{part}`: {self:#?}");
        }
        assert!(
            self.stderr.lines().all(|line| line.starts_with("runner: ")),
            "{self:#?}"
        );
        self
    }

    /// Asserts that a warning with this code was given.
    #[track_caller]
    pub fn assert_warns(&self, code: &str) -> &Self {
        let warned = self.stderr.lines().any(|line| {
            line.starts_with("runner: warning: ") && line.ends_with(&format!("({code})"))
        });
        assert!(warned, "no {code}: {self:#?}");
        self
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("text")
    }

    /// Standard output as one JSON text.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).expect("one JSON text")
    }
}

/// Runs a command to its end.
pub fn output_of(command: &mut Command) -> Ended {
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("the runner starts");
    Ended {
        code: output.status.code().expect("an exit code"),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Ground {
    /// `runner bundle WORDS…` in the workspace, not started.
    pub fn bundle_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(runner());
        command
            .arg("bundle")
            .args(words)
            .current_dir(self.workspace())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("home"));
        command
    }

    /// `runner bundle WORDS…` in the workspace.
    pub fn make(&self, words: &[&str]) -> Ended {
        output_of(&mut self.bundle_command(words))
    }

    /// Writes a file of the workspace.
    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        self.write(&format!("work/{name}"), contents)
    }

    /// Bundles `subject` and reads the archive.
    #[track_caller]
    pub fn archive(&self, words: &[&str]) -> Archive {
        let target = self.path("archive.tar.gz");
        let flags = [words, &["-o", target.to_str().expect("a plain path")]].concat();
        self.make(&flags).assert_done();
        Archive::read(&target)
    }

    /// Bundles a manifest with these sources, written at the top of the workspace.
    #[track_caller]
    pub fn archive_of(&self, sources: &str) -> Archive {
        self.file("m.yaml", manifest(sources));
        self.archive(&["m.yaml"])
    }

    /// The content digest of `subject`.
    #[track_caller]
    pub fn digest(&self, words: &[&str]) -> String {
        let ended = self.make(&[words, &["--print-digest"]].concat());
        ended.assert_done();
        ended.text().trim_end().to_owned()
    }
}

/// A manifest with these sources, one a line.
pub fn manifest(sources: &str) -> String {
    let mut text = String::from("name: tool\nrun: [echo]\ncode:\n  sources:\n");
    for source in sources.lines() {
        text.push_str(&format!("    - {source}\n"));
    }
    text
}

/// The contents of an archive as tar(1) lists them.
#[derive(Debug, PartialEq, Eq)]
pub struct Archive {
    pub entries: BTreeMap<String, Content>,
}

/// One entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    File { text: Vec<u8>, executable: bool },
    Directory,
    Link(String),
}

impl Archive {
    /// Unpacks an archive with tar(1) and reads the result.
    #[track_caller]
    pub fn read(path: &Path) -> Self {
        let unpacked = tempfile::tempdir().expect("a directory");
        let status = Command::new("tar")
            .arg("-xzpf")
            .arg(path)
            .arg("-C")
            .arg(unpacked.path())
            .status()
            .expect("tar runs");
        assert!(status.success(), "tar -xzf");
        let mut entries = BTreeMap::new();
        visit(unpacked.path(), "", &mut entries);
        Self { entries }
    }

    /// All entries except the resolved manifest: directories end in `/`, links show their targets.
    pub fn names(&self) -> Vec<String> {
        self.entries
            .iter()
            .filter(|(name, _)| !name.starts_with(".runner"))
            .map(|(name, content)| match content {
                Content::File { .. } => name.clone(),
                Content::Directory => format!("{name}/"),
                Content::Link(target) => format!("{name} -> {target}"),
            })
            .collect()
    }

    /// The text of a file of the archive.
    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        match self.entries.get(name) {
            Some(Content::File { text, .. }) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{name}: {other:?}"),
        }
    }

    /// The resolved manifest of the archive.
    #[track_caller]
    pub fn resolved(&self) -> Value {
        serde_json::from_str(&self.text(".runner/manifest.json")).expect("JSON")
    }
}

fn visit(directory: &Path, above: &str, entries: &mut BTreeMap<String, Content>) {
    for entry in std::fs::read_dir(directory).expect("listed") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        let name = format!("{above}{name}");
        let status = path.symlink_metadata().expect("there");
        let content = if status.is_symlink() {
            let target = std::fs::read_link(&path).expect("read");
            Content::Link(target.to_string_lossy().into_owned())
        } else if status.is_dir() {
            visit(&path, &format!("{name}/"), entries);
            Content::Directory
        } else {
            let mut text = Vec::new();
            let mut file = std::fs::File::open(&path).expect("opened");
            file.read_to_end(&mut text).expect("read");
            Content::File {
                text,
                executable: status.permissions().mode() & 0o100 != 0,
            }
        };
        entries.insert(name, content);
    }
}
