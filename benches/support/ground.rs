//! A directory that is removed, programs compiled in it, and the programs of others.

use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::rounds::run_once;

/// A directory of this run's own, which every user may enter; removed with the value, after a panic
/// too.
pub struct Ground {
    directory: tempfile::TempDir,
}

impl Ground {
    pub fn new() -> Self {
        let everybody = std::fs::Permissions::from_mode(0o755);
        let directory = tempfile::Builder::new()
            .prefix("runner-bench-")
            .permissions(everybody)
            .tempdir();
        Self {
            directory: directory.unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A new directory.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// A new file.
    pub fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    /// A C program, at `name` in this directory. The text and not its path is given, so that a
    /// bench does not need the source tree when it runs.
    pub fn compile(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let program = self.path(name);
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        // Not beside the program, where it could become part of a bundle.
        let text = self.path("source.c");
        std::fs::write(&text, source).unwrap();
        run_once(
            Command::new("cc")
                .args(["-O2", "-s", "-o"])
                .args([&program, &text])
                .args(flags),
        );
        program
    }

    /// A program that ends at once.
    pub fn nothing(&self, name: &str) -> PathBuf {
        self.compile(name, include_str!("nothing.c"), &["-static", "-nostdlib"])
    }

    /// A tar.gz of everything in a folder.
    pub fn archive(&self, name: &str, folder: &Path) -> PathBuf {
        let archive = self.path(name);
        let mut tar = Command::new("tar");
        tar.arg("-czf").arg(&archive).arg("-C").arg(folder).arg(".");
        run_once(&mut tar);
        archive
    }
}

/// A directory of a file system in memory, where there is one; `RUNNER_BENCHES_MEMORY` names another.
pub fn in_memory() -> PathBuf {
    let stated = std::env::var_os("RUNNER_BENCHES_MEMORY").map(PathBuf::from);
    let shared = || Some(PathBuf::from("/dev/shm")).filter(|path| path.is_dir());
    stated.or_else(shared).unwrap_or_else(std::env::temp_dir)
}

/// The program that is measured: `RUNNER_BIN`, else the one that cargo built beside the bench.
pub fn runner() -> PathBuf {
    std::env::var_os("RUNNER_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_runner")),
        PathBuf::from,
    )
}

/// Where a program is found, also in the directories that only root has on its path.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|file| {
            std::fs::metadata(file)
                .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
        })
}

/// This bench again as another user, with copies of what it needs where that user can reach them.
pub(super) fn as_user(uid: u32, json_file: Option<&Path>) {
    let ground = Ground::new();
    let [bench, program] = ["bench", "runner"].map(|name| ground.path(name));
    std::fs::copy(std::env::current_exe().unwrap(), &bench).unwrap();
    std::fs::copy(runner(), &program).unwrap();
    let home = ground.folder("home");
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
    chown(&home, Some(uid), Some(uid)).unwrap();
    let mut again = Command::new("setpriv");
    let id = uid.to_string();
    again
        .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"])
        .arg(&bench)
        .args(without_user())
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| {
            name == "PATH"
                || name
                    .to_str()
                    .is_some_and(|name| name.starts_with("RUNNER_"))
        }))
        .env("RUNNER_BIN", &program)
        .current_dir(&home);
    for name in ["HOME", "TMPDIR", "XDG_RUNTIME_DIR"] {
        again.env(name, &home);
    }
    // The file that root's caller named is not that user's to write.
    let inside = home.join("bench.json");
    if json_file.is_some() {
        let mut option = OsString::from("--json=");
        option.push(&inside);
        again.arg(option);
    }
    run_once(&mut again);
    if let Some(outside) = json_file {
        std::fs::copy(inside, outside).unwrap();
    }
}

/// The words of this process without `--user UID` and `--json=FILE`.
fn without_user() -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        if word == "--user" {
            words.next();
        } else if !word.to_string_lossy().starts_with("--json=") {
            kept.push(word);
        }
    }
    kept
}
