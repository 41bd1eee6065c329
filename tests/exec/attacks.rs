//! Attacks of the body on its own outputs: links, special files, holes, races.

use support::text;
use support::{Ground, bodies::c_body};

const MANIFEST: &str =
    "run: body.sh\noutputsFiles: {out: {path: out.txt}, good: {path: good.txt}}\n";

/// Runs a body that leaves something under `out`; `good` is synced in any case, and the destination
/// of `out` does not change.
#[track_caller]
fn assert_output_fails(attack: &str, code: &str) {
    let ground = Ground::new();
    let old = ground.write("work/out.txt", "old");
    let secret = ground.write("outside/secret", ground.canary());
    let shared = text(secret.parent().expect("a parent")).to_owned();
    let attack = attack.replace("SECRET", text(&secret));
    let body = format!("cd /scratch; printf good > good\n{attack}\n");
    // The secret is visible to the body, so only the sync itself protects it. One of the bodies
    // binds a socket.
    let flags = ["--unix-sockets", "--ro", &shared];
    let done = ground.exec_script(&flags, MANIFEST, &body);
    done.assert_exited(0);
    let output = done.output("out");
    assert_eq!(output["state"], "failed", "{attack}: {done:#?}");
    assert_eq!(output["error"]["code"], code, "{attack}: {done:#?}");
    assert!(output["sha256"].is_null());
    assert_eq!(
        done.output("good")["state"],
        "synced",
        "{attack}: {done:#?}"
    );
    assert!(done.warns("sync_failed"));
    assert_eq!(std::fs::read_to_string(old).expect("read"), "old");
    let left = std::fs::read_dir(ground.workspace())
        .expect("listed")
        .count();
    assert_eq!(left, 2, "a temporary file stays");
}

/// D-07.
#[test]
fn an_output_that_is_a_link_is_not_copied() {
    for target in [
        "SECRET",
        "/etc/passwd",
        "/proc/self/environ",
        "/nonexistent",
        "good",
        "out",
        "/proc/self/fd/1",
    ] {
        assert_output_fails(&format!("ln -s {target} out"), "output_is_link");
    }
}

/// D-08: the scratch directory itself, which the body cannot replace.
#[test]
fn the_directory_of_the_outputs_cannot_be_replaced() {
    let ground = Ground::new();
    let body = "cd /; rm -rf /scratch/* ; mv /scratch /bundle/x 2>/dev/null && echo moved
        rmdir /scratch 2>/dev/null && echo removed; ln -sfn /etc /scratch 2>/dev/null
        printf mine > /scratch/out; chmod 0 /scratch; true\n";
    let done = ground.exec_script(&[], MANIFEST, body);
    done.assert_exited(0);
    assert!(
        !done.text().contains("moved") && !done.text().contains("removed"),
        "{done:#?}"
    );
    // A scratch directory without search permission for its owner hides the outputs, and only that.
    assert_ne!(done.output("out")["state"], "skipped", "{done:#?}");
}

/// D-09.
#[test]
fn an_output_of_another_file_type_fails_alone() {
    assert_output_fails("mkfifo out", "output_not_regular");
    assert_output_fails("mkdir out; echo x > out/x", "output_not_regular");
    assert_output_fails("echo x > other; ln other out", "output_hard_linked");
    assert_output_fails("echo x > out; chmod 0 out", "output_unreadable");
    assert_output_fails(
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"out\")'",
        "output_not_regular",
    );
}

/// D-14. The file size limit equals the disk limit, so a hole has at most that size.
#[test]
fn an_output_that_is_larger_than_accepted_is_not_copied() {
    let ground = Ground::new();
    let body = "cd /scratch; printf good > good; (truncate -s 1T out) 2>/dev/null || echo refused
        truncate -s 1500M out && echo hole\n";
    let flags = ["--disk", "2g", "--memory", "3g"];
    let done = ground.exec_script(&flags, MANIFEST, body);
    done.assert_exited(0);
    assert_eq!(done.text(), "refused\nhole\n", "{done:#?}");
    assert_eq!(
        done.output("out")["error"]["code"],
        "output_too_large",
        "{done:#?}"
    );
    assert_eq!(done.output("good")["state"], "synced");
    assert!(!ground.path("work/out.txt").exists());
}

/// D-10: an orphan continues to swap the output for a link. Every process is dead before the sync,
/// so the output is one or the other, complete.
#[test]
fn a_process_that_left_its_parents_cannot_swap_the_output_during_the_sync() {
    let ground = Ground::new();
    let secret = ground.write("outside/secret", ground.canary());
    let swapper = c_body("swapper", SWAPPER);
    let flags = [
        "--ro",
        text(&swapper),
        "--ro",
        text(secret.parent().expect("a parent")),
    ];
    let body = format!("{} {}; exit 0\n", text(&swapper), text(&secret));
    for _round in 0..5 {
        let done = ground.exec_script(&flags, MANIFEST, &body);
        done.assert_exited(0);
        let output = done.output("out");
        let written = std::fs::read(ground.path("work/out.txt")).unwrap_or_default();
        match output["state"].as_str() {
            Some("synced") => {
                assert_eq!(written.len(), 4_000_000);
                assert!(written.iter().all(|byte| *byte == b'a'));
            }
            Some("failed") => assert_eq!(output["error"]["code"], "output_is_link", "{done:#?}"),
            Some("missing") => (),
            _ => panic!("{done:#?}"),
        }
        assert!(
            !written.windows(6).any(|part| part == b"canary"),
            "the secret came out"
        );
    }
}

/// D-18
#[test]
fn a_lock_on_a_shared_workspace_does_not_block_another_run() {
    const LOCKER: &str = "import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
open(sys.argv[2], 'w').close()
time.sleep(1000)";
    let ground = Ground::new();
    let (workspace, shared) = (ground.workspace(), ground.path("shared"));
    std::fs::create_dir(&shared).expect("made");
    let ready = shared.join("ready");
    for lent in ["--ro", "--rw"] {
        let words = [
            "run",
            lent,
            text(&workspace),
            "--rw",
            text(&shared),
            "--grace",
            "0s",
            "--",
            "python3",
            "-c",
            LOCKER,
            text(&workspace),
            text(&ready),
        ];
        let mut locker = ground.command(&words).start();
        locker.until("the body has the lock", || ready.exists());
        let body = "cd /scratch; echo out > out; echo good > good\n";
        let bundle = ground.script(MANIFEST, body);
        let words = ["exec", "--workspace", text(&workspace), text(&bundle)];
        // The processes of the other run carry the same marker.
        let done = ground.command(&words).without("I2").done();
        done.assert_exited(0);
        for key in ["out", "good"] {
            assert_eq!(done.output(key)["state"], "synced", "{lent}: {done:#?}");
        }
        locker.signal(rustix::process::Signal::TERM);
        locker.done().assert_outcome("cancelled", 143);
        std::fs::remove_file(&ready).expect("removed");
    }
}

/// Leaves a grandchild in its own session, which ignores every signal that it can and swaps /scratch/out
/// between a file and a link until it is killed. The first process ends once the swapping has begun.
const SWAPPER: &str = include_str!("../bodies/exec/attacks_swapper.c");

#[test]
fn a_body_that_fills_its_outputs_with_names_and_levels_is_cleaned_up() {
    let ground = Ground::new();
    let body = "cd /scratch; printf x > good; printf y > out
        for i in 1 2 3 4 5 6 7 8 9; do mkdir -p d/$i/$i/$i/$i/$i/$i/$i/$i; done
        mkdir -p $(printf 'n/%.0s' $(seq 1900))
        chmod 0 /scratch/d; true\n";
    let done = ground.exec_script(&[], MANIFEST, body);
    done.assert_exited(0);
    assert_eq!(done.output("good")["state"], "synced");
    assert_eq!(done.output("out")["state"], "synced");
}
