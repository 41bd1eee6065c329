//! Source artifacts with as many files as asked for, in the store.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::support::{Ground, run_once, runner};

/// One that the store has.
pub(super) struct Source {
    /// For names of files.
    pub(super) plain_name: String,
    /// How long it took to bring it into the store, the unpacking included.
    pub(super) took_ms: f64,
    digest: String,
}

impl Source {
    /// Plants its files, builds it and has it kept.
    pub(super) fn plant(ground: &Ground, name: &str, files: usize, bytes: usize) -> Self {
        let plain_name = name.replace(' ', "").to_lowercase();
        let tree = ground.folder(&format!("tree-{plain_name}"));
        for file in 0..files {
            let folder = tree.join(format!("src/{:03}", file / 100));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("{file}.ts")), text(file, bytes)).unwrap();
        }
        let layout = ground.path(&format!("{plain_name}.oci"));
        let mut build = source(ground, &["build", "--version", "1.0.0", "--name"]);
        run_once(build.arg(&plain_name).arg("-o").arg(&layout).arg(&tree));
        std::fs::remove_dir_all(&tree).unwrap();
        let digest = only_digest(&layout);
        let begun = Instant::now();
        let mut pull = source(ground, &["pull"]);
        run_once(pull.arg(format!("oci:{}@{digest}", layout.display())));
        let took_ms = begun.elapsed().as_secs_f64() * 1e3;
        std::fs::remove_dir_all(&layout).unwrap();
        Self {
            plain_name,
            took_ms,
            digest,
        }
    }

    /// What a manifest says to have it. No registry of that name is ever asked.
    pub(super) fn manifest(&self, is_writable: bool) -> String {
        format!(
            "workspaceSources:\n- id: source\n  ref: registry.test/{}@{}\n  mountPath: /workspace/source\n  \
             writable: {is_writable}\n",
            self.plain_name, self.digest
        )
    }
}

fn source(ground: &Ground, words: &[&str]) -> Command {
    let mut command = Command::new(runner());
    command.arg("source").args(words).stdout(Stdio::null());
    command.env("RUNNER_OPT_OCI_DIRECTORY", ground.path("cache"));
    command
}

/// The digest of the one manifest in a layout.
pub(super) fn only_digest(layout: &Path) -> String {
    let index = std::fs::read(layout.join("index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    index["manifests"][0]["digest"].as_str().unwrap().to_owned()
}

/// Text of a program, mostly lines that come again, so that a gigabyte is packed in seconds.
fn text(file: usize, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 80);
    let mut line = file;
    while text.len() < bytes {
        writeln!(text, "export const value_{line} = {};", line * 7_919).unwrap();
        for _ in 0..20 {
            text.push_str("    if (result === undefined) { return context.error(name); }\n");
        }
        line += 1;
    }
    text.truncate(bytes);
    text
}
