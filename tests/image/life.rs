//! Images over time: concurrent runs, removal during a run, a supervisor that dies.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::json;
use sources::oci::store::{Store, StorePlace};

use super::Stored;
use super::layout::{base, file, image, layer};

fn stored_image(stored: &Stored) -> Option<PathBuf> {
    let upper = layer([("srv/file", file("kept\n"))]);
    Some(image(&stored.ground, "image", &[base()?, upper], json!({})))
}

#[test]
fn two_runs_at_once_share_the_layers_and_see_nothing_of_each_other() {
    let stored = Stored::new();
    let Some(image) = stored_image(&stored) else {
        return;
    };
    // Neither finds the image: one unpacks it, the other waits.
    let script = "echo $0 > /srv/mine; cat /srv/file; sleep 1; ls /srv; cat /srv/mine";
    let started = ["one", "two"].map(|name| {
        let case = stored.case(&image, &[], &["sh", "-c", script, name]);
        // Processes and objects of the second run may live longer; its own case looks for them.
        if name == "one" {
            case.without("I2").without("I6")
        } else {
            case
        }
        .start()
    });
    for (name, running) in ["one", "two"].into_iter().zip(started) {
        let done = running.done();
        done.assert_exited(0);
        assert_eq!(
            done.text(),
            format!("kept\napp\nfile\nmine\n{name}\n"),
            "{}",
            done.stderr
        );
    }
    assert_eq!(layers(&stored), 2);
}

/// A directory of the host, and the flag that mounts it.
fn lent(stored: &Stored) -> (PathBuf, String) {
    let lent = stored.ground.path("lent");
    std::fs::create_dir(&lent).expect("made");
    let mount = format!("{}:/workspace", lent.display());
    (lent, mount)
}

fn gc(stored: &Stored) {
    let place = StorePlace {
        directory: stored.store().to_path_buf(),
        size_bytes: 1 << 30,
    };
    let store = Store::open(&place).expect("opened");
    store.gc(true).expect("collected");
}

fn layers(stored: &Stored) -> usize {
    let shelf = stored.store().join("1/layers/1/trees");
    let found = walk(&shelf, 2);
    found.iter().filter(|path| path.ends_with("tree")).count()
}

/// Directories down to `depth` below `directory`.
fn walk(directory: &Path, depth: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.push(entry.path());
            if 0 < depth {
                found.extend(walk(&entry.path(), depth - 1));
            }
        }
    }
    found
}

#[test]
fn layers_in_use_are_kept_and_unused_ones_evicted() {
    let stored = Stored::new();
    let Some(image) = stored_image(&stored) else {
        return;
    };
    let (lent, mount) = lent(&stored);
    let script = "touch /workspace/here; while ! test -e /workspace/go; do sleep 0.05; done
        cat /srv/file; ls /usr/bin";
    let case = stored.case(&image, &["--mount", &mount], &["sh", "-c", script]);
    let mut running = case.start();
    running.until("the body", || lent.join("here").exists());
    gc(&stored);
    assert_eq!(layers(&stored), 2);
    std::fs::write(lent.join("go"), "").expect("written");
    let done = running.done();
    done.assert_exited(0);
    assert_eq!(done.text(), "kept\nonly-here\n", "{}", done.stderr);
    gc(&stored);
    assert_eq!(layers(&stored), 0);
    let done = stored.run(&image, &[], &["cat", "/srv/file"]);
    assert_eq!((done.text().as_str(), layers(&stored)), ("kept\n", 2));
    assert_eq!(done.report["image"]["found"], "pulled");
}

#[test]
fn nothing_stays_mounted_where_the_supervisor_is_killed() {
    let stored = Stored::new();
    let Some(image) = stored_image(&stored) else {
        return;
    };
    let (lent, mount) = lent(&stored);
    let script = "trap '' TERM HUP; echo x > /srv/mine; touch /workspace/here
        sleep 600 & sleep 600";
    let case = stored.case(&image, &["--mount", &mount], &["sh", "-c", script]);
    let mut running = case.without("I4").without("I5").without("I8").start();
    running.until("the body", || lent.join("here").exists());
    running.signal(Signal::KILL);
    // The invariants check that no process of the run is alive and that no mount remains.
    assert_eq!(running.done().code, 137);
    let done = stored.run(&image, &[], &["sh", "-c", "cat /srv/file; ls /srv"]);
    done.assert_exited(0);
    assert_eq!(done.text(), "kept\napp\nfile\n", "{}", done.stderr);
}
