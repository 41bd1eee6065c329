//! The second line by itself: what the Landlock ruleset refuses if every mount is writable, and
//! that the mounts refuse what it leaves to them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use sandbox::ruleset::{Ruleset, ruleset};
use sandbox::view;
use spec::host::{HostEntry, HostSupport};
use sys::landlock;

use super::attempts::{attempt_with, program};
use support::{Ground, skip};

/// Creates a tree in its own mount namespace, where it may write everything, applies only a ruleset
/// to itself, and tries.
const ALONE: &str = include_str!("../bodies/escapes/second_line_alone.c");

/// From the view that every run has.
fn own_ruleset() -> Option<Ruleset> {
    let host = HostSupport {
        entries: vec![("/usr", HostEntry::Directory)],
        ..HostSupport::default()
    };
    ruleset(landlock::abi().expect("a version"), &view::base(&host))
}

/// B-49: even with writable mounts and the body's own files, nothing outside its paths can be
/// written, created, removed, moved or executed.
#[test]
fn where_the_mounts_would_let_everything_be_written_the_second_line_refuses_it() {
    let Some(ruleset) = own_ruleset() else {
        return skip("this kernel has no Landlock");
    };
    let ground = Ground::new();
    let tree = ground.path("tree");
    std::fs::create_dir(&tree).expect("made");
    let rules = ruleset.rules.iter().map(|rule| {
        let path = std::str::from_utf8(&rule.path).expect("a plain path");
        OsString::from(format!("{path}={}", rule.allowed.bits()))
    });
    let output = Command::new(program("second-line-alone", ALONE))
        .arg(&tree)
        .args([ruleset.handled.bits(), ruleset.scoped.bits()].map(|bits| bits.to_string()))
        .args(rules)
        .output()
        .expect("started");
    let text = String::from_utf8(output.stdout).expect("plain text");
    assert!(output.status.success(), "{text}{:?}", output.stderr);
    let parts: Vec<&str> = text.split("--\n").collect();
    let [refused, allowed, left] = parts[..] else {
        panic!("{text}");
    };
    assert_eq!(refused.lines().count(), 4 * 17 + 5, "{text}");
    for line in refused.lines() {
        // EXDEV between directories without the right to move, as between file systems.
        assert!(
            line.ends_with(" EACCES") || line.ends_with(" EXDEV"),
            "{line}"
        );
    }
    let refers = 2 <= landlock::abi().expect("a version");
    for line in allowed.lines() {
        let between = line.starts_with("/tmp within") || line.starts_with("/tmp across");
        assert!(line.ends_with(" ok") || (between && !refers), "{line}");
    }
    let names = ["truncate", "truncating", "mode"].map(|name| format!("/etc {name} ok\n"));
    assert_eq!(left, names.concat(), "left to the mounts");
}

/// Truncation by path is left to the mounts: a ruleset that handled it would walk up the tree at
/// every open for reading. So a mount is writable only where the ruleset also allows writing files,
/// and files on other mounts cannot be truncated.
#[test]
fn no_file_is_kept_from_being_truncated_by_the_second_line_alone() {
    let text = include_str!(
        "../bodies/escapes/no_file_is_kept_from_being_truncated_by_the_second_line_alone.c"
    );
    let ground = Ground::new();
    let [canary, lent] = ["canary", "lent"].map(|name| ground.path(name));
    std::fs::create_dir(&lent).expect("made");
    let [canary, lent] = [&canary, &lent].map(|path| path.to_str().expect("a plain path"));
    let flags = [
        "--ro",
        canary,
        "--rw",
        lent,
        "--tmpfs",
        "/own",
        "--tmpfs",
        "/other:1M",
    ];
    let done = attempt_with(&ground, &flags, "truncate-everywhere", text, &[]);
    let text = done.text();
    let (writable, refused): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("writable "));
    assert!(4 <= refused.len(), "{text}");
    // By path and by open(2). Whether mode or mount is checked first depends on the call, the
    // kernel and the file; one of the two shows that the mount refuses.
    for both in refused.chunks(2) {
        let is_refusal = |line: &str| line.ends_with(" EROFS") || line.ends_with(" EACCES");
        assert!(both.iter().all(|line| is_refusal(line)), "{text}");
        assert!(both.iter().any(|line| line.ends_with(" EROFS")), "{text}");
    }
    let writable: BTreeSet<&str> = writable
        .iter()
        .filter_map(|line| line.strip_prefix("writable "))
        .collect();
    let may_be_written = |place: &Path| {
        let asked = [lent, "/own", "/other", "/proc", "/dev/pts"];
        let own = view::WRITABLE.iter().chain(&asked);
        own.into_iter().any(|own| place == Path::new(own))
    };
    for place in writable {
        // Devices, and the null device over files of /proc: there is nothing to truncate.
        let is_device = place.starts_with("/dev/") || place.starts_with("/proc/");
        assert!(is_device || may_be_written(Path::new(place)), "{place}");
    }
}
