//! `--keep`: a copy of the scratch root remains and belongs to the caller.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::destinations::ids;
use support::{Done, Ground, is_root};

fn kept(done: &Done) -> PathBuf {
    let path = done.report["kept"].as_str().expect("a path");
    assert!(done.stderr.contains(path), "the path is printed: {done:#?}");
    PathBuf::from(path)
}

struct RemoveAtEnd(PathBuf);

impl Drop for RemoveAtEnd {
    fn drop(&mut self) {
        let removed = std::fs::remove_dir_all(&self.0);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

fn walk(path: &Path, visit: &mut dyn FnMut(&Path, &std::fs::Metadata)) {
    let found = std::fs::symlink_metadata(path).expect("there");
    visit(path, &found);
    if found.is_dir() {
        for entry in std::fs::read_dir(path).expect("listed") {
            walk(&entry.expect("read").path(), visit);
        }
    }
}

#[test]
fn the_copy_holds_what_the_body_left_and_belongs_to_the_caller_alone() {
    let ground = Ground::new();
    let body = "echo s > /scratch/s; echo t > /tmp/t; echo h > ~/h; echo b > /bundle/b; mkdir -m 0 /scratch/closed
        mkfifo /scratch/fifo; ln -s /etc/passwd /scratch/link; echo x > /scratch/set; chmod 6777 /scratch/set; exit 4\n";
    let done = ground.exec(&["--keep"], &ground.script("run: body.sh\n", body));
    done.assert_exited(4);
    let path = kept(&done);
    let _removed = RemoveAtEnd(path.clone());
    assert_eq!(
        std::fs::metadata(&path).expect("there").mode() & 0o7777,
        0o700
    );
    walk(&path, &mut |path, found| {
        assert_eq!((found.uid(), found.gid()), ids(), "{}", path.display());
        assert_eq!(found.mode() & 0o6000, 0, "{}", path.display());
    });
    for (name, contents) in [
        ("scratch/s", "s\n"),
        ("tmp/t", "t\n"),
        ("home/runner/h", "h\n"),
        ("bundle/b", "b\n"),
    ] {
        assert_eq!(
            std::fs::read_to_string(path.join(name)).expect("read"),
            contents
        );
    }
    assert_eq!(
        std::fs::read_link(path.join("scratch/link")).expect("a link"),
        Path::new("/etc/passwd")
    );
    assert!(!path.join("scratch/fifo").exists());
    assert!(done.warns("keep_incomplete"), "{done:#?}");
}

#[test]
fn a_body_that_closes_its_own_directories_does_not_change_how_the_run_ended() {
    let ground = Ground::new();
    let body = "echo s > /scratch/s; chmod 0 /scratch /tmp ~ /bundle; exit 0\n";
    let bundle = ground.script("run: body.sh\n", body);
    let done = ground.exec(&["--keep", "--inputs", "{}"], &bundle);
    done.assert_exited(0);
    let path = kept(&done);
    let _removed = RemoveAtEnd(path.clone());
    if is_root() {
        let contents = std::fs::read_to_string(path.join("scratch/s"));
        assert_eq!(contents.expect("read"), "s\n");
    } else {
        // After the end of the body its files are on a read-only mount, so their modes cannot be changed.
        assert!(done.warns("keep_incomplete"), "{done:#?}");
        assert!(path.join("runner/input.json").exists(), "{done:#?}");
    }
}

#[test]
fn without_the_flag_nothing_is_kept() {
    let ground = Ground::new();
    let done = ground.exec(
        &[],
        &ground.script("run: body.sh\n", "echo s > /scratch/s\n"),
    );
    done.assert_exited(0);
    assert!(done.report["kept"].is_null());
}

#[test]
fn a_run_that_was_ended_by_a_limit_is_kept_too() {
    let ground = Ground::new();
    let flags = ["--keep", "--timeout", "1s", "--grace", "0s"];
    let done = ground.exec(
        &flags,
        &ground.script("run: body.sh\n", "echo s > /scratch/s; sleep 100\n"),
    );
    done.assert_outcome("timed_out", 124);
    let path = kept(&done);
    let _removed = RemoveAtEnd(path.clone());
    assert!(path.join("scratch/s").exists());
}
