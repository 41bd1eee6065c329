//! Bundles for tests, made of a folder with plain `tar` or with `runner bundle`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Ground, random, runner};

impl Ground {
    /// A tar.gz of `files`: path, contents. Files whose path ends in `.sh`, or whose contents begin
    /// with `#!`, are executable.
    pub fn bundle(&self, files: &[(&str, &str)]) -> PathBuf {
        pack(&self.folder(files))
    }

    /// The folder of [`Ground::bundle`].
    pub fn folder(&self, files: &[(&str, &str)]) -> PathBuf {
        let folder = self.path(&format!("bundle-{}", random()));
        std::fs::create_dir(&folder).expect("made");
        for (name, contents) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(&path, contents).expect("written");
            let executable = name.ends_with(".sh") || contents.starts_with("#!");
            let mode = if executable { 0o755 } else { 0o644 };
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        }
        folder
    }
}

/// Bundles a folder with a manifest with `runner bundle`; the bundle lies beside it.
pub fn bundled(folder: &Path) -> PathBuf {
    let archive = folder.with_extension("bundled.tar.gz");
    let output = Command::new(runner())
        .args(["bundle", ".", "-o"])
        .arg(&archive)
        .current_dir(folder)
        .output()
        .expect("the runner starts");
    let said = String::from_utf8_lossy(&output.stderr);
    // Only warnings about installed packages are accepted: the author wants to run each of these folders.
    let is_expected = |line: &str| line.ends_with("(bundle_installed)");
    assert!(
        output.status.success() && said.lines().all(is_expected),
        "{said}"
    );
    archive
}

/// Packs a folder's contents with the system's `tar`, beside it.
pub fn pack(folder: &Path) -> PathBuf {
    let archive = folder.with_extension("tar.gz");
    let status = Command::new("tar")
        .arg("-czf")
        .arg(&archive)
        .arg("-C")
        .arg(folder)
        .arg(".")
        .status()
        .expect("tar runs");
    assert!(status.success(), "tar -czf");
    archive
}
