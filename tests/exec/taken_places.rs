//! Paths inside that are in use, and devices: each refusal says what is there, and its hint works.

use std::process::Command;

use support::text;
use support::{Ground, is_root};

#[test]
fn a_path_in_use_is_refused_with_its_reason_and_the_flag_that_works() {
    let ground = Ground::new();
    for (path, reason) in [
        ("/etc/passwd", "has the files of the sandbox"),
        ("/proc/cpuinfo", "processes of the sandbox"),
        ("/sys/kernel", "does not exist in a sandbox"),
        ("/dev", "has the devices of the sandbox"),
    ] {
        let done = ground.run(&["--ro", path], &["true"]);
        done.assert_error("refused", "mount_target_refused")
            .assert_nothing_ran();
        let error = &done.report["error"];
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(reason), "{message}");
        let hint = error["hint"].as_str().expect("a hint");
        let flag = hint.split_once("--mount ").expect("a flag").1;
        let inside = flag.split(':').nth(1).expect("a place");
        ground
            .run(&["--mount", flag], &["test", "-e", inside])
            .assert_exited(0);
    }
}

#[test]
fn mounting_a_standard_path_again_is_accepted_without_effect() {
    let ground = Ground::new();
    for path in ["/lib", "/usr/share", "/etc/ssl"] {
        ground
            .run(&["--ro", path], &["test", "-e", path])
            .assert_exited(0);
        ground
            .run(&["--rw", path], &["true"])
            .assert_error("refused", "mount_target_refused");
    }
}

#[test]
fn a_file_can_be_mounted_into_etc() {
    let ground = Ground::new();
    let file = ground.write("own.conf", "own\n");
    let at = |place: &str| format!("{}:{place}:ro", text(&file));
    let done = ground.run(
        &["--mount", &at("/etc/own/own.conf")],
        &["cat", "/etc/own/own.conf"],
    );
    done.assert_exited(0);
    assert_eq!(done.text(), "own\n");
    for place in ["/etc", "/etc/group", "/etc/resolv.conf", "/etc/ssl/own"] {
        ground
            .run(&["--mount", &at(place)], &["true"])
            .assert_error("refused", "mount_target_refused");
    }
}

/// B-28.
#[test]
fn a_host_device_cannot_be_mounted() {
    let ground = Ground::new();
    let mut devices = vec!["/dev/null".to_owned(), "/dev/full".to_owned()];
    if is_root() {
        let node = ground.path("lent/node");
        std::fs::create_dir(ground.path("lent")).expect("made");
        let made = Command::new("mknod")
            .args(["-m", "666", text(&node), "c", "1", "3"])
            .status();
        assert!(made.expect("runs").success());
        // Inside a mounted directory it is visible, but cannot be opened.
        let open = format!("test -c {0} && ! cat {0}", text(&node));
        let lent = ground.path("lent");
        ground
            .run(&["--rw", text(&lent)], &["sh", "-c", &open])
            .assert_exited(0);
        devices.push(text(&node).to_owned());
    }
    for device in &devices {
        for flags in [
            ["--ro".to_owned(), device.clone()],
            ["--rw".to_owned(), device.clone()],
            ["--mount".to_owned(), format!("{device}:/data/device:ro")],
        ] {
            let [flag, value] = &flags;
            ground
                .run(&[flag, value], &["true"])
                .assert_error("refused", "mount_source_device")
                .assert_nothing_ran();
        }
    }
    for words in [&["--device", "/dev/kvm"][..], &["--gpus=all"]] {
        let done = ground.run(words, &["true"]);
        done.assert_error("refused", "usage").assert_nothing_ran();
        let message = done.report["error"]["message"].as_str();
        let message = message.expect("a message");
        assert!(
            message.contains("devices of the host cannot be mounted"),
            "{message}"
        );
    }
}
