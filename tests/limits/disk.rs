//! The writable file systems: bytes, inodes, holes, deleted files that are open.

use crate::back_end::{limit, one_at_a_time, usage};
use support::bodies::c_body;
use support::{Done, Ground};

fn run(flags: &[&str], name: &str, text: &str) -> Done {
    let program = c_body(name, text);
    Ground::new().run(flags, &[program.to_str().expect("plain")])
}

/// C-11: one limit for all writable directories together.
#[test]
fn no_more_bytes_than_the_disk_limit_can_be_written() {
    let _turn = one_at_a_time();
    let script = "for d in /tmp /scratch /dev/shm $HOME; do \
        dd if=/dev/zero of=$d/fill bs=4096 2>/dev/null; done; \
        cat /tmp/fill /scratch/fill /dev/shm/fill $HOME/fill | wc -c";
    let done = Ground::new().run(&["--memory=128m", "--disk=8m"], &["/bin/sh", "-c", script]);
    done.assert_exited(0);
    let written: u64 = done.text().trim().parse().expect("a number");
    assert!((7 << 20..=8 << 20).contains(&written), "{written}");
    let reported = usage(&done, "written_bytes");
    assert!((7 << 20..=8 << 20).contains(&reported), "{reported}");
    assert_eq!(limit(&done, "disk_bytes"), (Some(8 << 20), "flag"));
}

/// C-11: what a full disk is to the body is ENOSPC; the report says that the limit was reached, if the space is
/// full at the end.
#[test]
fn a_disk_that_is_full_at_the_end_is_named_with_the_flag_that_sets_its_limit() {
    let _turn = one_at_a_time();
    let fill = "dd if=/dev/zero of=/tmp/fill bs=4096 2>/dev/null";
    let full = |flags: &[&str], script: &str| {
        let done = Ground::new().run(flags, &["/bin/sh", "-c", script]);
        done.assert_exited(1);
        let warnings = done.report["warnings"].as_array().expect("a list").iter();
        let full = warnings.filter(|warning| warning["code"] == "disk_full");
        let full = full.map(|warning| warning["message"].as_str().expect("text").to_owned());
        full.collect::<Vec<String>>()
    };
    let disk = &["--disk=1m"][..];
    let reached = "the disk limit of 1 MiB was reached: the writable directories were full when the body \
                   ended; --disk sets it";
    assert_eq!(full(disk, fill), [reached]);
    let none: [&str; 0] = [];
    assert_eq!(full(disk, &format!("{fill}; rm /tmp/fill; exit 1")), none);
    assert_eq!(full(disk, "exit 1"), none);
    // A request for more than what is left leaves the rest free.
    let more = "fallocate -l 600k /tmp/a && fallocate -l 600k /tmp/b || exit 1";
    assert_eq!(full(disk, more), none);
    let many = "i=0; while true > /tmp/$((i += 1)); do :; done; exit 1";
    let reached = "the inodes limit of 65536 was reached: the writable directories were full when the body \
                   ended; no flag changes it";
    assert_eq!(full(&["--memory=512m"], many), [reached]);
}

/// C-12, C-30: a hundred thousand names exceed the limit, of every file type.
#[test]
fn no_more_files_than_the_limit_of_inodes_can_be_made() {
    let _turn = one_at_a_time();
    let text =
        include_str!("../bodies/limits/no_more_files_than_the_limit_of_inodes_can_be_made.c");
    // Each name also takes kernel memory, which counts.
    let done = run(&["--memory=512m"], "inodes", text);
    done.assert_exited(0);
    assert_eq!(done.text(), "1 1\n");
    assert_eq!(limit(&done, "disk_inodes").0, Some(65_536));
}

/// C-30
#[test]
fn a_million_files_in_one_directory_end_at_the_limit_of_inodes() {
    if !support::belongs_to_tier("long") {
        return;
    }
    let _turn = one_at_a_time();
    let text = include_str!(
        "../bodies/limits/a_million_files_in_one_directory_end_at_the_limit_of_inodes.c"
    );
    let done = run(&["--memory=512m"], "million", text);
    done.assert_exited(0);
    assert_eq!(done.text(), "1\n");
}

/// C-13
#[test]
fn a_hole_larger_than_the_disk_cannot_be_made() {
    let text = include_str!("../bodies/limits/a_hole_larger_than_the_disk_cannot_be_made.c");
    let done = run(&["--disk=16m"], "holes", text);
    done.assert_exited(0);
    assert_eq!(done.text(), "1 1 1 1 1\n");
}

/// C-13: also for files outside the disk limit; without the flag nothing changes.
#[test]
fn a_file_is_no_larger_than_the_flag_states_wherever_it_lies() {
    let ground = Ground::new();
    let lent = ground.workspace();
    let lent = lent.to_str().expect("plain").to_owned();
    let script = "for d in /tmp $0; do \
        dd if=/dev/zero of=$d/fill bs=64k count=64 2>/dev/null || echo refused; \
        wc -c <$d/fill; done";
    let body = ["/bin/sh", "-c", script, &lent];
    let done = ground.run(&["--rw", &lent, "--fsize=1m"], &body);
    done.assert_exited(0);
    assert_eq!(done.text(), "refused\n1048576\nrefused\n1048576\n");
    assert_eq!(limit(&done, "file_bytes"), (Some(1 << 20), "flag"));
    let done = ground.run(&["--rw", &lent], &body);
    done.assert_exited(0);
    assert_eq!(done.text(), "4194304\n4194304\n");
    assert_eq!(limit(&done, "file_bytes").0, None);
    // The flag never raises the size that the disk limit allows.
    let script = "dd if=/dev/zero of=/tmp/hole bs=1 count=1 seek=64m 2>/dev/null || echo refused";
    let done = ground.run(&["--disk=8m", "--fsize=1g"], &["/bin/sh", "-c", script]);
    assert_eq!(done.text(), "refused\n");
}

/// C-13: the kernel ends a program that does not handle the signal.
#[test]
fn a_file_that_grows_too_large_is_a_signal_of_its_own() {
    let text = "#include <fcntl.h>
        #include <unistd.h>
        int main(void) { return ftruncate(open(\"/tmp/x\", O_CREAT | O_RDWR, 0600), 1L << 50) < 0; }";
    let done = run(&["--disk=16m"], "xfsz", text);
    done.assert_outcome("signaled", 128 + 25);
}

/// C-14
#[test]
fn a_file_without_a_name_counts_and_is_gone_afterwards() {
    let text =
        include_str!("../bodies/limits/a_file_without_a_name_counts_and_is_gone_afterwards.c");
    let done = run(&["--disk=8m"], "unlinked", text);
    done.assert_exited(0);
    assert_eq!(done.text(), "1 1\n");
}

/// Files never use memory that processes need.
#[test]
fn the_disk_limit_is_less_than_the_memory_limit() {
    let done = Ground::new().run(&["--memory=64m", "--disk=1g"], &["/bin/true"]);
    done.assert_exited(0);
    assert_eq!(limit(&done, "disk_bytes"), (Some(32 << 20), "memory_bytes"));
}
