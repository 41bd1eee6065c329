//! Bodies: small hostile C programs, each with one attack, linked statically once per test run.
//!
//! `RUNNER_TESTS_BODIES` names a directory in which the test programs of a run share them: to compile one
//! takes as long as ten runs. Whoever cannot write there uses what is there. A test that changes a body, or its mode,
//! changes a copy.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use rustix::fs::{Access, access};

use crate::random;

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

/// The static program of this C text.
pub fn c_body(name: &str, text: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (name, text).hash(&mut hasher);
    let place = format!("{:016x}", hasher.finish());
    let shared = std::env::var_os("RUNNER_TESTS_BODIES").map(PathBuf::from);
    let known = shared.as_ref().map(|all| all.join(&place));
    if let Some(program) = known.and_then(|directory| built(&directory, name, text)) {
        return program;
    }
    let all = shared.filter(|all| access(all, Access::WRITE_OK).is_ok());
    let all = all.unwrap_or_else(|| BUILT.path().to_owned());
    let ready = all.join(&place);
    if let Some(program) = built(&ready, name, text) {
        return program;
    }
    let building = all.join(format!("{place}-{}", random()));
    std::fs::create_dir(&building).expect("made");
    compile(text, &building.join(name), &["-static", "-pthread"]);
    // Another test may have been faster.
    if std::fs::rename(&building, &ready).is_err() {
        std::fs::remove_dir_all(&building).expect("removed");
    }
    built(&ready, name, text).expect("built")
}

/// The program in this directory.
fn built(directory: &Path, name: &str, text: &str) -> Option<PathBuf> {
    let program = directory.join(name);
    let source = std::fs::read_to_string(program.with_extension("c")).ok()?;
    assert!(
        source == text,
        "two texts have the name {}",
        directory.display()
    );
    Some(program)
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
