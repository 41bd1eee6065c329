//! Bodies: small C programs that misbehave in one way each, linked statically once per test run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

/// Where the programs of this test process lie.
static BUILT: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::Builder::new()
        .prefix("bodies-")
        .tempdir()
        .expect("a directory");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).expect("set");
    directory
});
static BUILDING: Mutex<()> = Mutex::new(());

/// The static program made of this C text; built once per text.
pub fn c_body(name: &str, text: &str) -> PathBuf {
    let _one_at_a_time = BUILDING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let program = BUILT.path().join(name);
    if !program.exists() {
        compile(text, &program, &["-static", "-pthread"]);
    }
    program
}

/// Compiles C text with the system's compiler.
pub fn compile(text: &str, program: &Path, flags: &[&str]) {
    let source = program.with_extension("c");
    std::fs::write(&source, text).expect("written");
    let output = Command::new("cc")
        .args(["-O1", "-Wall", "-D_GNU_SOURCE"])
        .args(flags)
        .arg("-o")
        .arg(program)
        .arg(&source)
        .output()
        .expect("cc runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Copies a program that is going to be executed. By a process of its own: had this one a descriptor
/// to write it, a process that another case is just starting would have a copy of that, and nobody
/// could execute the program for a moment (ETXTBSY).
pub fn copy_program(program: impl AsRef<Path>, copy: &Path) {
    let status = Command::new("cp")
        .arg(program.as_ref())
        .arg(copy)
        .status()
        .expect("cp runs");
    assert!(status.success(), "cp to {}", copy.display());
}
