//! Bodies: small hostile C programs, each with one attack, linked statically once per test run.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};

/// The directory of the programs of this test process.
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

/// The static program of this C text; built once per name, so a name stands for one text.
pub fn c_body(name: &str, text: &str) -> PathBuf {
    let _one_at_a_time = BUILDING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let program = BUILT.path().join(name);
    if program.exists() {
        let built = std::fs::read_to_string(program.with_extension("c")).expect("its text");
        assert!(built == text, "two texts are called {name}");
    } else {
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

/// Copies a program for execution, in a separate process: with a writable descriptor in this one, a
/// process that another case is just starting would inherit a copy, and executing the program would
/// fail with ETXTBSY.
pub fn copy_program(program: impl AsRef<Path>, copy: &Path) {
    let status = Command::new("cp")
        .arg(program.as_ref())
        .arg(copy)
        .status()
        .expect("cp runs");
    assert!(status.success(), "cp to {}", copy.display());
}

/// Writes a file that anybody may execute, with the directories above it, in a separate process as
/// [`copy_program`] does.
pub fn write_program(path: &Path, contents: impl AsRef<[u8]>) {
    let mut install = Command::new("install")
        .args(["-D", "-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("install starts");
    let mut stdin = install.stdin.take().expect("piped");
    stdin.write_all(contents.as_ref()).expect("read");
    drop(stdin);
    let status = install.wait().expect("awaited");
    assert!(status.success(), "install of {}", path.display());
}
