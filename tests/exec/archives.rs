//! Hostile archives through the program: refused or harmless, with no leftovers.

use std::io::Write as _;
use std::path::PathBuf;

use super::inputs::make_fifo;
use support::tar::{Tar, gzip};
use support::text;
use support::{Done, Ground};

const MANIFEST: &str = "run: body.sh\n";

fn write_archive(ground: &Ground, bytes: &[u8]) -> PathBuf {
    let name = format!("archive-{}.tar.gz", support::random());
    ground.write(&name, bytes)
}

fn tar(body: &str) -> Tar {
    Tar::new()
        .file("manifest.yaml", MANIFEST.as_bytes())
        .file("body.sh", body.as_bytes())
}

///
#[test]
fn a_path_of_a_hundred_thousand_levels_in_a_small_archive_is_refused() {
    let ground = Ground::new();
    let name = "a/".repeat(200_000);
    let bundle = write_archive(
        &ground,
        &tar("echo ran\n").pax_file(name.as_bytes(), b"").gz(),
    );
    let done = ground.exec(&[], &bundle);
    assert_eq!(done.outcome(), "refused", "{done:#?}");
    done.assert_nothing_ran();
    assert!(
        done.stderr.len() < 16_384,
        "the message is bounded: {}",
        done.stderr.len()
    );
}

///
#[test]
fn a_damaged_archive_is_refused_wherever_it_breaks() {
    let ground = Ground::new();
    let whole = tar("echo ran\n").file("more", &vec![7; 100_000]).gz();
    let mut bad_sum = whole.clone();
    let at = bad_sum.len() - 8;
    bad_sum[at] ^= 1;
    let mut bad_size = whole.clone();
    let at = bad_size.len() - 1;
    bad_size[at] ^= 1;
    let joined = [whole.clone(), b"trailing".to_vec()].concat();
    let damaged = [
        whole[..whole.len() / 2].to_vec(),
        whole[..whole.len() - 4].to_vec(),
        whole[..10].to_vec(),
        bad_sum,
        bad_size,
        joined,
        Vec::new(),
        b"no archive at all".to_vec(),
        gzip(b"no tar"),
    ];
    for bytes in damaged {
        let done = ground.exec(&[], &write_archive(&ground, &bytes));
        assert_eq!(done.outcome(), "refused", "{done:#?}");
        done.assert_nothing_ran();
        assert!(!done.stderr.is_empty());
    }
}

/// A-58, B-17: entries with the names of the runner's own files are files of the bundle below
/// /bundle, or are refused; the runner's own files are unchanged.
#[test]
fn entries_with_the_names_of_the_runner_s_own_files_stay_below_the_bundle() {
    let ground = Ground::new();
    let check = "cat \"$RUNNER_INPUT\" /etc/resolv.conf; stat -c %F /dev/null /runner /proc; head -1 /etc/passwd\n";
    let expected = "{}nameserver 198.18.0.1\noptions timeout:2 attempts:2\ncharacter special file\ndirectory\ndirectory\nrunner:x:1000:1000:runner:/home/runner:/bin/sh\n";
    let honest = tar(check)
        .directory(".runner/")
        .file(".runner/other.json", b"{}")
        .file("runner/input.json", b"evil")
        .file("dev/null", b"evil")
        .file("etc/resolv.conf", b"evil")
        .file("etc/passwd", b"evil")
        .symlink("proc", "dev")
        .symlink("scratch", "runner");
    let done = ground.exec(&["--inputs", "{}"], &write_archive(&ground, &honest.gz()));
    done.assert_exited(0);
    assert_eq!(done.text(), expected, "{done:#?}");
    for target in [
        "/runner/input.json",
        "../runner/input.json",
        "../../etc",
        "/proc/self/root",
    ] {
        let hostile = tar(check).symlink("runner", target);
        let done = ground.exec(&["--inputs", "{}"], &write_archive(&ground, &hostile.gz()));
        assert_eq!(done.outcome(), "refused", "{done:#?}");
        done.assert_nothing_ran();
    }
    for name in [
        "../runner/input.json",
        "/runner/input.json",
        "../scratch/x",
        "a/../../etc/passwd",
    ] {
        let hostile = tar(check).file(name, b"evil");
        let done = ground.exec(&["--inputs", "{}"], &write_archive(&ground, &hostile.gz()));
        assert_eq!(done.outcome(), "refused", "{done:#?}");
        done.assert_nothing_ran();
    }
}

/// G-19, A-58: a manifest in the bundle that is a link to another file does not count.
#[test]
fn a_manifest_that_is_a_link_is_not_followed() {
    let ground = Ground::new();
    let bundle = Tar::new()
        .file("body.sh", b"echo ran\n")
        .file("other.yaml", MANIFEST.as_bytes())
        .symlink("manifest.yaml", "other.yaml");
    let done = ground.exec(&[], &write_archive(&ground, &bundle.gz()));
    done.assert_error("refused", "manifest_missing")
        .assert_nothing_ran();
}

/// set-id modes and special files reach neither the host nor the body.
#[test]
fn set_id_modes_and_devices_do_not_come_out_of_an_archive() {
    let ground = Ground::new();
    let mut set_id = support::tar::header(b'0', b"set", 0);
    set_id[100..108].copy_from_slice(b"0006777\0");
    support::tar::seal(&mut set_id);
    let bundle = tar("stat -c %a set\n").raw(&set_id);
    let done = ground.exec(&[], &write_archive(&ground, &bundle.gz()));
    if done.outcome() == "exited" {
        assert_eq!(done.text(), "755\n", "{done:#?}");
    } else {
        done.assert_nothing_ran();
    }
    for kind in [b'3', b'4', b'6', b'7'] {
        let device = support::tar::header(kind, b"device", 0);
        let done = ground.exec(
            &[],
            &write_archive(&ground, &tar("echo ran\n").raw(&device).gz()),
        );
        if kind != b'7' {
            assert_eq!(done.outcome(), "refused", "{done:#?}");
            done.assert_nothing_ran();
        }
    }
}

///
#[test]
fn a_special_file_as_bundle_is_refused_without_blocking() {
    let ground = Ground::new();
    let real = ground.script(MANIFEST, "echo ran\n");
    let link = ground.path("link.tar.gz");
    std::os::unix::fs::symlink(&real, &link).expect("linked");
    let fifo = ground.path("fifo.tar.gz");
    make_fifo(&fifo);
    let missing = ground.path("missing.tar.gz");
    for bundle in [
        &link,
        &fifo,
        &PathBuf::from("/dev/zero"),
        &missing,
        &PathBuf::from("/dev/null"),
    ] {
        let done = ground.exec(&[], bundle);
        assert_eq!(done.code, 125, "{done:#?}");
        done.assert_nothing_ran();
        assert!(
            done.report["error"]["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
    }
}

/// a gzip bomb stops at the limit of the host policy, while it is read.
#[test]
fn a_bundle_that_unpacks_to_more_than_is_accepted_is_refused() {
    let ground = Ground::new();
    let policy = ground.write("policy.yaml", "unpack: {unpacked: 1m}\n");
    let bomb = tar("echo ran\n").file("zeros", &vec![0; 8 << 20]).gz();
    assert!(bomb.len() < 100_000);
    let done = ground.exec(&["--policy", text(&policy)], &write_archive(&ground, &bomb));
    assert_eq!(done.outcome(), "refused", "{done:#?}");
    done.assert_error("refused", "unpacked_bytes_limit")
        .assert_nothing_ran();
}

/// for a stream as for a file.
#[test]
fn an_archive_on_standard_input_that_never_ends_or_breaks_off_is_refused() {
    let ground = Ground::new();
    let whole = tar("echo ran\n").file("more", &vec![7; 100_000]).gz();
    let half = whole[..whole.len() / 2].to_vec();
    let done = ground.command(&["exec", "-"]).stdin(half).done();
    assert_eq!(done.outcome(), "refused", "{done:#?}");
    done.assert_nothing_ran();
    let mut case = ground.command(&["exec", "-"]);
    case.command
        .stdin(std::fs::File::open("/dev/zero").expect("opened"));
    let done = case.done();
    assert_eq!(done.outcome(), "refused", "{done:#?}");
    done.assert_nothing_ran();
}

/// C-40: an endless stream ends at the wall time, and so does a tree of many files; the body did not start.
#[test]
fn unpacking_counts_against_the_wall_time() {
    let ground = Ground::new();
    let timed_out_before_the_body = |done: &Done, act: &str| {
        done.assert_outcome("timed_out", 124).assert_nothing_ran();
        let warnings = done.report["warnings"].as_array().expect("a list");
        let told = warnings
            .iter()
            .find(|one| one["code"] == "body_not_started");
        let message = told.and_then(|one| one["message"].as_str());
        assert!(message.is_some_and(|text| text.ends_with(act)), "{done:#?}");
        let last = "timed out: the wall time limit ended the run";
        assert!(done.stderr.contains(last), "{done:#?}");
    };
    let whole = tar("echo ran\n").file("more", &vec![7; 100_000]).gz();
    // The write end stays open: the stream does not end.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    (&writer)
        .write_all(&whole[..whole.len() / 2])
        .expect("fits");
    let mut case = ground.command(&["exec", "--timeout=200ms", "-"]);
    case.command.stdin(reader);
    timed_out_before_the_body(&case.done(), "unpacking the bundle");

    let bundle = ground.script("run: body.sh\ninputs: {type: object}\n", "echo ran\n");
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let words = ["exec", "--timeout=200ms", "--inputs=@-", text(&bundle)];
    let mut case = ground.command(&words);
    case.command.stdin(reader);
    timed_out_before_the_body(&case.done(), "reading the inputs");

    // For the manifest and for the flag; for a file and for a directory.
    let many = (0..4_000).fold(tar("echo ran\n"), |tar, number| {
        tar.file(&format!("f{number}"), b"x")
    });
    let archive = ground.path("many.tar.gz");
    std::fs::write(&archive, many.gz()).expect("written");
    let directory = ground.folder(&[("manifest.yaml", MANIFEST), ("body.sh", "echo ran\n")]);
    for number in 0..4_000 {
        std::fs::write(directory.join(format!("f{number}")), "x").expect("written");
    }
    for bundle in [&archive, &directory] {
        for flag in ["--timeout=1ms", "--no-cache"] {
            let done = match flag {
                "--no-cache" => {
                    let manifest = "run: body.sh\nrunner: {limits: {timeout_ms: 1}}\n";
                    let manifest = ground.write("short.yaml", manifest);
                    let manifest = format!("--manifest={}", text(&manifest));
                    ground.exec(&[flag, &manifest], bundle)
                }
                flag => ground.exec(&["--run=body.sh", flag], bundle),
            };
            timed_out_before_the_body(&done, "unpacking the bundle");
        }
    }
}

/// the built-in limit, reached by files and by directories.
#[test]
fn more_than_a_hundred_thousand_entries_are_refused_without_any_policy() {
    if !support::belongs_to_tier("long") {
        return;
    }
    let ground = Ground::new();
    let files = (0..=100_000).fold(tar("echo ran\n"), |tar, number| {
        tar.file(&format!("f{number}"), b"")
    });
    let directories = (0..=100_000).fold(tar("echo ran\n"), |tar, number| {
        tar.directory(&format!("d{number}/"))
    });
    for tar in [files, directories] {
        let archive = tar.gz();
        assert!(archive.len() < 4 << 20, "{}", archive.len());
        let done = ground.exec(&[], &write_archive(&ground, &archive));
        done.assert_error("refused", "entries_limit")
            .assert_nothing_ran();
    }
}

/// more bytes than a bundle may have; refused before it is read to its end.
#[test]
fn a_bundle_of_more_bytes_than_the_limit_is_refused() {
    let ground = Ground::new();
    let policy = ground.write("policy.yaml", "unpack: {archive: 64k}\n");
    let mut noise = vec![0; 300_000];
    let random = std::fs::File::open("/dev/urandom");
    random
        .and_then(|mut random| std::io::Read::read_exact(&mut random, &mut noise))
        .expect("read");
    let bundle = write_archive(&ground, &tar("echo ran\n").file("noise", &noise).gz());
    let done = ground.exec(&["--policy", text(&policy)], &bundle);
    done.assert_error("refused", "compressed_bytes_limit")
        .assert_nothing_ran();
}
