//! Kernel objects of the caller: keys, System V objects, message queues.

use super::attempts::{assert_lines, case, program};
use support::{Ground, random};

/// Creates one of each kind, runs its arguments, and removes them. The key is in its own session
/// keyring, which its child inherits.
const KEEP: &str = include_str!("../bodies/escapes/objects_keep.c");

const LOOK: &str = include_str!("../bodies/escapes/objects_look.c");

/// B-42, B-15: the body neither sees nor reaches these objects of the caller.
#[test]
fn keys_queues_and_shared_memory_of_the_caller_are_not_reached() {
    let ground = Ground::new();
    let key = format!("0x{}", &random()[..7]);
    let keep = program("keep-objects", KEEP);
    let looking = case(&ground, &[], &program("look-for-objects", LOOK), &[&key]);
    // I10 would measure this program.
    let done = looking
        .through(keep.to_str().expect("a plain path"), &[&key])
        .without("I10")
        .done();
    done.assert_exited(0);
    assert_lines(
        &done,
        "shm ENOENT
        sem ENOENT
        msg ENOENT
        queue closed
        request EPERM
        search EPERM
        session EPERM
        user EPERM
        keys 0",
    );
}
