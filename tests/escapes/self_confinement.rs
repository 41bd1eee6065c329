//! Programs that confine themselves: it works, and loosens nothing.

use super::attempts::{assert_lines, attempt};
use support::Ground;

/// B-46.
#[test]
fn prctl_and_capset_loosen_nothing() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/prctl_and_capset_loosen_nothing.c");
    assert_lines(
        &attempt(&ground, "prctl", text),
        "new privileges EINVAL
        no seccomp EINVAL
        ambient EPERM
        bounding EPERM
        securebits EPERM
        exe EPERM
        capset EPERM
        inheritable EPERM
        still 1 2
        dumpable ok
        death signal ok
        reaper ok",
    );
}

/// B-47: the strictest result of all filters applies.
#[test]
fn a_permissive_filter_of_the_body_s_own_changes_nothing() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/a_permissive_filter_of_the_body_s_own_changes_nothing.c");
    // TRACE without a tracer makes every call fail with ENOSYS: this is the last output.
    let done = attempt_last_lost(&ground, text);
    let four = "unshare EPERM\nmount EPERM\nclone3 ENOSYS\nsocket EAFNOSUPPORT";
    assert_lines(&done, &format!("allow ok\n{four}\nall threads ok\nlog ok"));
}

/// B-47: a listener of the body's own would not be asked about calls that the outer filter refuses. There
/// can be one in a chain of filters, and the outer one has it.
#[test]
fn a_listener_of_the_body_s_own_filter_permits_nothing() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/a_listener_of_the_body_s_own_filter_permits_nothing.c");
    assert_lines(
        &attempt(&ground, "own-listener", text),
        "listener EBUSY
        unshare EPERM
        mount EPERM",
    );
}

fn attempt_last_lost(ground: &Ground, text: &str) -> support::Done {
    let program = super::attempts::program("own-filter", text);
    let done = super::attempts::case(ground, &[], &program, &[]).done();
    assert!(matches!(done.outcome(), "exited" | "signaled"), "{done:#?}");
    done
}

/// B-48: programs that confine themselves with Landlock work, as deep as the kernel allows.
#[test]
fn a_landlock_ruleset_of_the_body_s_own_only_tightens() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/a_landlock_ruleset_of_the_body_s_own_only_tightens.c");
    let done = attempt(&ground, "own-landlock", text);
    let text = done.text();
    if text.contains("write rights ENOSYS") || text.contains("write rights EOPNOTSUPP") {
        return support::skip("this kernel has no Landlock");
    }
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..8],
        [
            "read before ok",
            "write before ok",
            "write rights ok",
            "read ok",
            "write EACCES",
            "read rights ok",
            "read EACCES",
            "too deep E2BIG"
        ]
    );
    assert!(
        matches!(lines[8], "usr EROFS" | "usr EACCES"),
        "{}",
        lines[8]
    );
}
