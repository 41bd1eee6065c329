//! The process that unpacks a bundle: which rights it has while it reads, and when it ends.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::process::{Signal, getegid, geteuid};

use support::processes::{confined_child, status};
use support::tar::Tar;
use support::{Ground, Running, is_root, text};

/// An archive that does not fit into a pipe.
fn archive() -> Vec<u8> {
    let mut state = 1u64;
    let noise: Vec<u8> = (0..400_000)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect();
    Tar::new()
        .file("manifest.yaml", b"run: body.sh\n")
        .file("body.sh", b"echo ran\n")
        .file("noise", &noise)
        .gz()
}

fn is_gone(pid: i32) -> bool {
    !fs::exists(format!("/proc/{pid}")).expect("looked")
}

/// A run that has read the first part of its bundle, the pipe of the rest, and its reader.
fn halfway<'ground>(
    ground: &'ground Ground,
    flags: &[&str],
) -> (Running<'ground>, std::io::PipeWriter, i32) {
    let (end, mut pipe) = std::io::pipe().expect("a pipe");
    pipe.write_all(&archive()[..50_000]).expect("fits");
    let mut case = ground.command(&[&["exec"], flags, &["-"]].concat());
    case.command.stdin(end);
    let running = case.start();
    let reader = confined_child(running.pid());
    (running, pipe, reader)
}

///
#[test]
fn the_process_that_unpacks_has_no_rights() {
    let ground = Ground::new();
    let (running, pipe, reader) = halfway(&ground, &[]);
    for (key, expected) in [
        ("NoNewPrivs", "1"),
        ("CapEff", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("CapInh", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
    ] {
        assert_eq!(status(reader, key).as_deref(), Some(expected), "{key}");
    }
    let ids = |key| status(reader, key).expect("a process");
    if is_root() {
        let uid = ids("Uid");
        let uid = uid.split(' ').next().expect("a uid");
        assert_ne!(uid, "0");
        assert_eq!(ids("Uid"), [uid; 4].join(" "));
        assert_eq!(ids("Gid"), [uid; 4].join(" "));
        assert_eq!(ids("Groups"), "");
        // Its root is the directory that it fills.
        let root = fs::metadata(format!("/proc/{reader}/root/.")).expect("looked");
        let of_host = fs::metadata("/").expect("looked");
        assert_ne!((root.dev(), root.ino()), (of_host.dev(), of_host.ino()));
        let names = fs::read_dir(format!("/proc/{reader}/root/")).expect("listed");
        for name in names {
            let name = name.expect("an entry").file_name();
            assert!(
                ["body.sh", "manifest.yaml", "noise"].contains(&name.to_str().expect("text")),
                "{name:?}"
            );
        }
        // Standard streams, the archive's pipe, the answer's pipe, the directory; perhaps the file that it
        // is writing, which may be closed before it is looked at.
        let open = fs::read_dir(format!("/proc/{reader}/fd")).expect("listed");
        let open = open.map(|entry| fs::read_link(entry.expect("an entry").path()));
        let files = ["body.sh", "manifest.yaml", "noise"];
        let is_written = |target: &PathBuf| files.iter().any(|name| target.ends_with(name));
        let is_closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        let others = open.filter(|target| match target {
            Ok(target) => !is_written(target),
            Err(error) => !is_closed(error),
        });
        let others: Vec<_> = others.collect();
        assert_eq!(others.len(), 6, "{others:?}");
    } else {
        let (uid, gid) = (
            geteuid().as_raw().to_string(),
            getegid().as_raw().to_string(),
        );
        assert_eq!(ids("Uid"), [uid.as_str(); 4].join(" "));
        assert_eq!(ids("Gid"), [gid.as_str(); 4].join(" "));
    }
    running.signal(Signal::TERM);
    let done = running.done();
    drop(pipe);
    assert_eq!(done.outcome(), "cancelled", "{done:#?}");
    assert!(is_gone(reader));
}

/// with the run.
#[test]
fn the_process_that_unpacks_ends_with_the_run() {
    let ground = Ground::new();
    let (running, pipe, reader) = halfway(&ground, &["--timeout=1s"]);
    let done = running.done();
    drop(pipe);
    assert_eq!(done.outcome(), "timed_out", "{done:#?}");
    assert!(is_gone(reader));
}

/// The second half arrives as well as the first.
#[test]
fn a_bundle_that_arrives_slowly_is_unpacked() {
    let ground = Ground::new();
    let whole = archive();
    let done = ground.command(&["exec", "-"]).stdin(whole.clone()).done();
    assert_eq!(done.text(), "ran\n", "{done:#?}");
    assert_eq!(
        done.report["bundle"]["archive_digest"],
        super::sha256(&whole)
    );
    let bundle = ground.write("again.tar.gz", &whole);
    let done = ground.command(&["exec", text(&bundle)]).done();
    assert_eq!(
        done.report["bundle"]["archive_digest"],
        super::sha256(&whole)
    );
}

/// the writer of a damaged archive cannot delay its refusal.
#[test]
fn a_refusal_does_not_wait_for_the_rest() {
    let ground = Ground::new();
    let (end, mut pipe) = std::io::pipe().expect("a pipe");
    pipe.write_all(b"this is no archive, and never ends")
        .expect("fits");
    let mut case = ground.command(&["exec", "-"]);
    case.command.stdin(end);
    let done = case.done();
    assert_eq!(done.outcome(), "refused", "{done:#?}");
    drop(pipe);
}
