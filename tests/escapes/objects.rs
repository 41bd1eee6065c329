//! Objects of the kernel that the caller has: keys, System V objects, message queues.

use super::attempts::{assert_lines, case, program};
use support::{Ground, random};

/// Makes one of each kind, runs the rest of its words, and takes away what it made. The key lies in a
/// session keyring of its own, which what it runs inherits.
const KEEP: &str = include_str!("../bodies/escapes/objects_keep.c");

const LOOK: &str = include_str!("../bodies/escapes/objects_look.c");

/// B-42, B-15: what the caller really has, the body neither sees nor reaches.
#[test]
fn keys_queues_and_shared_memory_of_the_caller_are_not_reached() {
    let ground = Ground::new();
    let key = format!("0x{}", &random()[..7]);
    let keep = program("keep-objects", KEEP);
    let looking = case(&ground, &[], &program("look-for-objects", LOOK), &[&key]);
    // I10 would watch the keeper.
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
