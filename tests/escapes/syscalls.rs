//! System calls: refused numbers, other ABIs, unknown numbers, and code generated at run time.

use super::attempts::{assert_all_refused, assert_lines, attempt, case, program};
use support::Ground;

/// B-29, B-19 ("shocker"), B-15 (CVE-2016-0728).
#[test]
fn administrative_calls_fail_with_eperm() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/administrative_calls_fail_with_eperm.c");
    let done = attempt(&ground, "refused-calls", text);
    assert_all_refused(&done, 46, &["EPERM"]);
}

/// B-30 (CVE-2026-43494): the setup calls fail, so that programs fall back instead of dying.
#[test]
fn io_uring_cannot_be_set_up_and_asking_does_not_kill() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/io_uring_cannot_be_set_up_and_asking_does_not_kill.c");
    assert_lines(
        &attempt(&ground, "io-uring", text),
        "setup EPERM\nhigh EPERM\nenter EPERM\nregister EPERM",
    );
}

/// B-15: keys of the caller's keyrings are not visible either.
#[test]
fn keyrings_cannot_be_reached() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/keyrings_cannot_be_reached.c");
    assert_lines(
        &attempt(&ground, "keyrings", text),
        "add EPERM\nrequest EPERM\njoin EPERM\npersistent EPERM\nsearch EPERM\nkeys 0",
    );
}

/// B-31 (CVE-2009-0835): the 32-bit entry from 64-bit code ends the body, and nothing is executed.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_32_bit_entry_kills_the_body() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/the_32_bit_entry_kills_the_body.c");
    let into = program("int80", text);
    // getpid, socketcall, mount, unshare and an unknown number, through the 32-bit table.
    for number in ["20", "102", "21", "310", "9999"] {
        let done = case(&ground, &[], &into, &[number]).done();
        done.assert_outcome("signaled", 128 + 31);
        assert_eq!(done.text(), "before\n", "{number}");
    }
}

/// B-31: a program for the other ABI; a kernel without it does not execute it.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_program_is_killed_or_not_executed() {
    let ground = Ground::new();
    // xor ebx, ebx; mov eax, 1 (exit); int 0x80
    let code = [0x31, 0xdb, 0xb8, 1, 0, 0, 0, 0xcd, 0x80];
    let entry: u32 = 0x0804_8054;
    let mut image = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for half in [2_u16, 3] {
        image.extend(half.to_le_bytes());
    }
    for word in [1, entry, 52, 0, 0] {
        image.extend(word.to_le_bytes());
    }
    for half in [52_u16, 32, 1, 0, 0, 0] {
        image.extend(half.to_le_bytes());
    }
    let size = u32::try_from(84 + code.len()).expect("small");
    for word in [1, 0, 0x0804_8000, 0x0804_8000, size, size, 5, 0x1000] {
        image.extend(word.to_le_bytes());
    }
    image.extend(code);
    let path = ground.program("program-32", image);
    let done = case(&ground, &[], &path, &[]).done();
    let seen = (done.outcome(), done.code);
    assert!(
        matches!(seen, ("signaled", 159) | ("failed", 126)),
        "{done:#?}"
    );
}

/// B-32.
#[cfg(target_arch = "x86_64")]
#[test]
fn numbers_of_the_x32_abi_are_not_there() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/numbers_of_the_x32_abi_are_not_there.c");
    assert_lines(&attempt(&ground, "x32", text), "exit_group ENOSYS");
}

/// B-33.
#[test]
fn unknown_call_numbers_fail_with_enosys() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/unknown_call_numbers_fail_with_enosys.c");
    assert_lines(
        &attempt(&ground, "unknown-numbers", text),
        "large ENOSYS\nlargest ENOSYS\nnegative ENOSYS",
    );
}

/// B-36.
#[test]
fn personalities_that_weaken_the_address_space_are_refused() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/personalities_that_weaken_the_address_space_are_refused.c");
    assert_lines(
        &attempt(&ground, "personality", text),
        "0 ok
        8 ok
        20008 ok
        20000 ok
        query ok
        no randomisation EPERM
        executable EPERM
        both EPERM
        page 0 EPERM
        high EPERM
        now 0",
    );
}

/// B-37: code runs under the same filter, whatever its origin.
#[test]
fn code_that_is_made_at_run_time_has_the_same_confinement() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/code_that_is_made_at_run_time_has_the_same_confinement.c");
    assert_lines(
        &attempt(&ground, "made-code", text),
        "body 3 unshare EPERM
        fexecve 3 unshare EPERM
        execveat 3 unshare EPERM
        /dev/shm/code 3 unshare EPERM
        /tmp/code 3 unshare EPERM
        /scratch/code 3 unshare EPERM
        mapped -1",
    );
}

/// B-56.
#[test]
fn the_body_cannot_put_itself_before_others() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/the_body_cannot_put_itself_before_others.c");
    assert_lines(
        &attempt(&ground, "priorities", text),
        "fifo EPERM
        round robin EPERM
        deadline EPERM
        nice EACCES
        io EPERM
        oom EACCES
        locked EPERM
        lock ENOMEM
        files EPERM
        size EPERM
        core 1",
    );
}

/// B-58: programs that create sandboxes print why they cannot, and end.
#[test]
fn a_sandbox_inside_the_sandbox_fails_with_a_clear_error() {
    let ground = Ground::new();
    let done = ground.run(&[], &["unshare", "--user", "--map-root-user", "true"]);
    done.assert_exited(1);
    assert!(done.stderr.contains("Operation not permitted"), "{done:#?}");
    let bwrap = "/usr/bin/bwrap";
    if std::path::Path::new(bwrap).exists() {
        let words = [bwrap, "--unshare-all", "--ro-bind", "/", "/", "true"];
        let done = ground.run(&[], &words);
        done.assert_exited(1);
        assert!(done.stderr.starts_with("bwrap: "), "{done:#?}");
    } else {
        support::skip("bwrap is not installed");
    }
    let runner = support::runner();
    let runner = runner.to_str().expect("a plain path");
    let done = ground.run(&["--ro", runner], &[runner, "run", "--", "true"]);
    done.assert_exited(125);
    assert!(done.stderr.contains("runner:"), "{done:#?}");
}
