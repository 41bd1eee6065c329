//! A signal during a build leaves nothing.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::artifacts::Source;

/// Large enough that the program is still running when this test looks.
const NOISE_BYTES: usize = 200 << 20;

fn noise(path: &Path) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut chunk = Vec::with_capacity(1 << 20);
    let mut file = std::fs::File::create(path).expect("made");
    for _ in 0..NOISE_BYTES >> 20 {
        chunk.clear();
        while chunk.len() < 1 << 20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            chunk.extend_from_slice(&state.to_le_bytes());
        }
        file.write_all(&chunk).expect("written");
    }
}

/// Waits until `is_there`, then sends SIGINT; returns how the program ended.
fn interrupted(mut child: Child, is_there: impl Fn() -> bool) -> std::process::ExitStatus {
    let started = Instant::now();
    while !is_there() {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "it never came so far"
        );
        let ended = child.try_wait().expect("waited");
        assert_eq!(ended, None, "it ended before it was interrupted");
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("sent");
    child.wait().expect("waited")
}

#[test]
fn a_build_that_is_interrupted_leaves_no_blob_and_no_layout() {
    let source = Source::new();
    noise(&source.file("noise", ""));
    let start = || {
        let mut command = source.command(&source.directory(), &["--name", "it", "--version", "1"]);
        command.arg("-o").arg(source.ground.path("it.oci"));
        command.stdout(Stdio::null()).spawn().expect("started")
    };
    let begun = || 0 < source.stored();
    let status = interrupted(start(), begun);
    assert_eq!(status.signal(), Some(2), "{status:?}");
    assert_eq!(source.stored(), 0);
    // Later: the layer is in the store, and the layout is being written beside its final name.
    let names = |part: &str| -> Vec<String> {
        std::fs::read_dir(source.ground.path("."))
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name.contains(part))
            .collect()
    };
    let status = interrupted(start(), || !names(".runner-").is_empty());
    assert_eq!(status.signal(), Some(2), "{status:?}");
    assert_eq!(names(".runner-"), [""; 0]);
    assert_eq!(names("it.oci"), [""; 0]);
}
