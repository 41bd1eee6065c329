//! Devices: which nodes exist, and that no others can be created or opened.

use super::attempts::{assert_all_refused, assert_lines, attempt, attempt_with, shell};
use support::Ground;

/// B-27.
#[test]
fn dev_holds_the_documented_nodes_and_no_other() {
    let ground = Ground::new();
    assert_eq!(
        shell(&ground, &[], "ls -A /dev; echo --; ls -A /dev/pts"),
        [
            "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout",
            "tty", "urandom", "zero", "--", "ptmx"
        ]
    );
    let text = include_str!("../bodies/escapes/dev_holds_the_documented_nodes_and_no_other.c");
    let names = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/ptmx",
    ];
    assert_lines(
        &attempt_with(&ground, &[], "stat-devices", text, &names),
        "/dev/null device 1:3
        /dev/zero device 1:5
        /dev/full device 1:7
        /dev/random device 1:8
        /dev/urandom device 1:9
        /dev/tty device 5:0
        /dev/ptmx device 5:2",
    );
}

/// B-28.
#[test]
fn the_host_s_devices_are_not_there() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/the_host_s_devices_are_not_there.c");
    let mut names: Vec<String> = [
        "kvm",
        "fuse",
        "net/tun",
        "vsock",
        "userfaultfd",
        "kmsg",
        "vda",
        "sda",
        "nvme0n1",
        "loop0",
        "loop-control",
        "mem",
        "port",
        "console",
        "tty0",
        "ttyS0",
        "vcs",
        "hpet",
        "rtc0",
        "uinput",
        "mapper/control",
        "dri/card0",
        "snd/seq",
        "mqueue",
        "hugepages",
        "cpu/0/msr",
    ]
    .iter()
    .map(|name| format!("/dev/{name}"))
    .collect();
    // And all devices of this host.
    for entry in std::fs::read_dir("/dev").expect("readable") {
        let name = entry.expect("readable").file_name();
        let name = name.to_str().expect("a plain name");
        let known = [
            "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout",
            "tty", "urandom", "zero",
        ];
        if !known.contains(&name) {
            names.push(format!("/dev/{name}"));
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let done = attempt_with(&ground, &[], "open-devices", text, &names);
    assert_all_refused(&done, names.len(), &["ENOENT"]);
}

/// B-27: device nodes cannot be created anywhere, other nodes can.
#[test]
fn a_device_node_cannot_be_made_and_a_fifo_can() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/a_device_node_cannot_be_made_and_a_fifo_can.c");
    let four = "character EPERM\nblock EPERM\nat EPERM\nwhiteout EPERM\n".repeat(4);
    assert_lines(
        &attempt(&ground, "make-nodes", text),
        &format!("{four}high EPERM\nfifo ok\nfile ok"),
    );
}
