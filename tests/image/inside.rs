//! What a body in an image sees, and what it may do.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Stored;
use super::layout::{Entry, base, file, image, layer};
use support::{Ground, is_root};

#[test]
fn the_body_runs_as_the_images_user_without_rights() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    for (user, uid, gid, home) in [
        (None, 1000, 1000, "/home/runner"),
        (Some("root"), 0, 0, "/root"),
        (Some("0:0"), 0, 0, "/root"),
        (Some("app"), 12, 34, "/srv/app"),
        (Some("app:staff"), 12, 50, "/srv/app"),
        (Some("999"), 999, 999, "/home/runner"),
        (Some("1000:7"), 1000, 7, "/home/runner"),
    ] {
        let name = format!("image-{}", user.unwrap_or("none").replace(':', "-"));
        let config = json!({ "User": user });
        let image = image(&stored.ground, &name, std::slice::from_ref(&base), config);
        let script = "cat /proc/self/status; echo HOME: $HOME; \
            echo Owner: $(stat -c %u:%g /etc/of-image /etc/passwd /tmp /bundle); \
            touch $HOME/own && echo Made: $(stat -c %u:%g $HOME/own)";
        let done = stored.run(&image, &[], &["sh", "-c", script]);
        done.assert_exited(0);
        let text = done.text();
        let status: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name, value.trim()))
            .collect();
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status[set], "0000000000000000", "{set} of {user:?}");
        }
        assert_eq!((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"));
        assert_eq!(status["Uid"], format!("{uid}\t{uid}\t{uid}\t{uid}"));
        assert_eq!(status["Gid"], format!("{gid}\t{gid}\t{gid}\t{gid}"));
        if is_root() {
            assert_eq!(status["Groups"], "", "{user:?}");
        }
        assert_eq!(status["HOME"], home, "{user:?}");
        assert_eq!(status["Owner"], vec![format!("{uid}:{gid}"); 4].join(" "));
        assert_eq!(status["Made"], format!("{uid}:{gid}"));
        let told = &done.report["image"]["user"];
        assert_eq!(told, &json!({ "uid": uid, "gid": gid }));
    }
}

/// What uid 0 of an image may not do, and whether only root of the host may do it.
const ONLY_WITH_RIGHTS: [(&str, bool); 22] = [
    ("mount -t tmpfs tmpfs /tmp", false),
    ("mount -t proc proc /tmp", false),
    ("mount -o remount,rw /dev", true),
    ("umount /proc", false),
    ("umount -l /dev", false),
    ("mknod /tmp/node c 1 3", true),
    ("chown 1:1 /tmp", true),
    ("chown 12:34 /etc/of-image", true),
    ("unshare -U true", false),
    ("unshare -m true", false),
    ("unshare -n true", false),
    ("unshare -r true", false),
    ("su app -c true", true),
    ("cat /proc/1/environ", false),
    ("cat /proc/1/maps", false),
    ("ls /proc/1/fd", false),
    ("ls /proc/1/root/", false),
    ("touch /dev/new", false),
    ("touch /runner/new", false),
    ("touch /new", false),
    ("echo x > /proc/sys/kernel/hostname", true),
    ("echo 500 > /proc/1/oom_score_adj", false),
];

/// With these rights, the programs of the image can do all of it: no call is refused because the
/// filter does not know it.
#[test]
fn attacks_by_uid_0_succeed_only_with_host_rights() {
    const ENTER: &str = include_str!("../bodies/image/inside_enter.sh");
    let Some(base) = base() else { return };
    let ground = Ground::new();
    let root = ground.path("root");
    unfold(&base, &root);
    for name in ["proc", "dev", "tmp", "runner"] {
        std::fs::create_dir_all(root.join(name)).expect("made");
    }
    for (command, only_root) in ONLY_WITH_RIGHTS {
        if only_root && !is_root() {
            continue;
        }
        let script = format!("{{ {command}; }} >/dev/null && echo DONE");
        let mut unshare = std::process::Command::new("unshare");
        if !is_root() {
            unshare.arg("--map-root-user");
        }
        let words = [
            "--mount", "--pid", "--net", "--uts", "--fork", "sh", "-c", ENTER, "sh",
        ];
        let done = unshare.args(words).arg(&root).arg(script).output();
        let done = done.expect("unshare runs");
        assert_eq!(
            String::from_utf8_lossy(&done.stdout),
            "DONE\n",
            "{command}: {done:?}"
        );
    }
}

fn unfold(layer: &super::layout::Layer, root: &std::path::Path) {
    for (path, entry) in layer {
        let path = root.join(path);
        match entry {
            Entry::Directory => std::fs::create_dir_all(path).expect("made"),
            Entry::File(bytes, mode) => {
                std::fs::write(&path, bytes).expect("written");
                let mode = std::os::unix::fs::PermissionsExt::from_mode(*mode);
                std::fs::set_permissions(path, mode).expect("set");
            }
            Entry::Link(target) => std::os::unix::fs::symlink(target, path).expect("linked"),
            Entry::Device(..) | Entry::Fifo => panic!("the base has none"),
        }
    }
}

#[test]
fn uid_0_of_an_image_has_no_host_rights() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let image = image(&stored.ground, "image", &[base], json!({ "User": "0" }));
    for (command, _) in ONLY_WITH_RIGHTS {
        let script = format!("{{ {command}; }} >/dev/null 2>&1 && echo DONE; true");
        let done = stored.run(&image, &[], &["sh", "-c", &script]);
        done.assert_exited(0);
        assert_eq!(done.text(), "", "{command}");
    }
    // A signal without a handler in pid 1 of a namespace never arrives from inside.
    let done = stored.run(
        &image,
        &[],
        &["sh", "-c", "kill -9 1; kill -STOP 1; echo here"],
    );
    done.assert_exited(0);
    assert_eq!(done.text(), "here\n");
}

#[test]
fn nothing_of_the_host_s_programs_is_there_and_nothing_names_the_host() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let image = image(&stored.ground, "image", &[base], json!({}));
    let say = |script: &str| {
        let done = stored.run(&image, &[], &["sh", "-c", script]);
        done.assert_exited(0);
        done.text()
    };
    assert_eq!(say("ls -A /usr/bin"), "only-here\n");
    assert_eq!(say("cat /lib/kept"), "kept\n");
    assert_eq!(say("only-here"), "only\n");
    assert_eq!(
        say("ls -A /"),
        "bin\nbundle\ndev\netc\nhome\nlib\nproc\nroot\nrunner\nscratch\nsrv\ntmp\nusr\n"
    );
    assert_eq!(
        say("ls -A /runner/overlays /home"),
        "/home:\nrunner\n\n/runner/overlays:\n"
    );
    let mounts = say("cat /proc/self/mountinfo");
    let store = stored.store().to_str().expect("text").to_owned();
    let ground = stored.ground.path("").to_str().expect("text").to_owned();
    for word in [
        store.as_str(),
        ground.trim_end_matches('/'),
        "/usr",
        "/lib64",
    ] {
        assert!(!mounts.contains(word), "{word} in\n{mounts}");
    }
    let root: Vec<&str> = mounts
        .lines()
        .filter(|line| line.contains(" / / "))
        .collect();
    assert!(
        root.iter().any(|line| line.contains(" overlay ")),
        "{mounts}"
    );
    assert_eq!(
        say("for d in /proc/[0-9]*; do cat $d/comm; done")
            .lines()
            .next(),
        Some("init")
    );
    assert_eq!(say("cat /proc/keys /proc/kallsyms"), "");
    assert_eq!(say("ls -A /sys 2>/dev/null; true"), "");
}

#[test]
fn image_settings_are_defaults() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let config = json!({
        "Env": ["PATH=/bin:/srv/tools", "GREETING=image", "LANG=C", "RUNNER_INPUT=/etc/passwd"],
        "WorkingDir": "/srv/app", "Entrypoint": ["/bin/false"], "Cmd": ["no"],
    });
    let tools = layer([
        ("srv", Entry::Directory),
        ("srv/tools", Entry::Directory),
        (
            "srv/tools/mine",
            Entry::File(b"#!/bin/sh\necho mine\n".to_vec(), 0o755),
        ),
    ]);
    let image = image(&stored.ground, "image", &[base, tools], config);
    let say = |flags: &[&str], script: &str| {
        let done = stored.run(&image, flags, &["sh", "-c", script]);
        done.assert_exited(0);
        done.text()
    };
    let script = "mine; echo $PATH $GREETING $LANG $RUNNER_INPUT $PWD $HOME";
    assert_eq!(
        say(&[], script),
        "mine\n/bin:/srv/tools image C /runner/input.json /srv/app /home/runner\n"
    );
    let flags = ["-e", "GREETING=flag", "-w", "/etc"];
    assert_eq!(
        say(&flags, script),
        "mine\n/bin:/srv/tools flag C /runner/input.json /etc /home/runner\n"
    );
}

#[test]
fn writes_are_private_to_the_run_and_layers_stay_unchanged() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let upper = layer([
        ("srv/data", Entry::Directory),
        ("srv/data/file", file("lower\n")),
        ("srv/data/sub", Entry::Directory),
        ("srv/data/sub/deep", file("deep\n")),
    ]);
    let image = image(&stored.ground, "image", &[base, upper], json!({}));
    let change = "set -e
        echo changed > /srv/data/file; rm -r /srv/data/sub; mkdir /srv/data/sub
        echo new > /srv/data/new; rm /usr/lib/kept; echo x > /etc/of-image; echo y > /usr/bin/mine
        ls -A /srv/data/sub; cat /srv/data/file";
    let look = "cat /srv/data/file /srv/data/sub/deep /usr/lib/kept /etc/of-image; \
        ls /srv/data /usr/bin";
    let clean = "lower\ndeep\nkept\nimage\n/srv/data:\nfile\nsub\n\n/usr/bin:\nonly-here\n";
    let first = stored.run(&image, &[], &["sh", "-c", look]);
    assert_eq!(first.text(), clean, "{}", first.stderr);
    assert_eq!(first.report["image"]["found"], "pulled");
    let before = everything(stored.store());
    for _again in 0..2 {
        let done = stored.run(&image, &[], &["sh", "-c", change]);
        done.assert_exited(0);
        assert_eq!(done.text(), "changed\n", "{}", done.stderr);
        let done = stored.run(&image, &[], &["sh", "-c", look]);
        assert_eq!(done.text(), clean, "{}", done.stderr);
        assert_eq!(done.report["image"]["found"], "store");
    }
    assert_eq!(everything(stored.store()), before);
}

/// Every file of the store with its contents; a directory with its mode.
fn everything(directory: &std::path::Path) -> BTreeMap<String, Vec<u8>> {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = BTreeMap::new();
    let mut pending = vec![directory.to_path_buf()];
    while let Some(path) = pending.pop() {
        for entry in std::fs::read_dir(&path).expect("readable").flatten() {
            let path = entry.path();
            let status = path.symlink_metadata().expect("there");
            let name = path.display().to_string();
            if status.is_dir() {
                found.insert(name, vec![]);
                pending.push(path);
            } else if status.is_symlink() {
                let target = std::fs::read_link(&path).expect("a link");
                found.insert(name, target.into_os_string().into_encoded_bytes());
            } else {
                let mut bytes = std::fs::read(&path).expect("readable");
                bytes.extend(status.mode().to_le_bytes());
                found.insert(name, bytes);
            }
        }
    }
    found
}

#[test]
fn what_is_written_to_the_root_counts_against_the_disk_limit() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let image = image(&stored.ground, "image", &[base], json!({}));
    let script = "dd if=/dev/zero of=/usr/lib/large bs=1M count=64 2>/dev/null && echo WRITTEN
        test $(stat -c %s /usr/lib/large) -le 8388608 && echo bounded";
    let done = stored.run(&image, &["--disk", "8m"], &["sh", "-c", script]);
    assert_eq!(done.text(), "bounded\n", "{}", done.stderr);
    // A changed large file of the image is copied up, and counts too.
    let large = layer([("srv/large", Entry::File(vec![7; 12 << 20], 0o644))]);
    let image = super::layout::image(&stored.ground, "large", &[base_again(), large], json!({}));
    let script = "echo x >> /srv/large || echo refused; wc -c < /srv/large";
    let done = stored.run(&image, &["--disk", "8m"], &["sh", "-c", script]);
    assert_eq!(done.text(), "refused\n12582912\n", "{}", done.stderr);
}

fn base_again() -> super::layout::Layer {
    base().expect("it was there before")
}

#[test]
fn a_read_only_root_is_reported_and_enforced() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    stored.policy("oci: { root_read_only: true }\n");
    let image = image(&stored.ground, "image", &[base], json!({}));
    let script = "for at in / /etc /usr /root /home; do touch $at/x 2>/dev/null && echo WROTE $at; done
        for at in /tmp /bundle /scratch /home/runner /dev/shm; do touch $at/x || echo NOT $at; done";
    let done = stored.run(&image, &["--strict"], &["sh", "-c", script]);
    done.assert_exited(0);
    assert_eq!(done.text(), "", "{}", done.stderr);
    let told: &Value = &done.report["image"];
    assert_eq!(told["root"], "read_only");
}

#[test]
fn a_program_that_an_image_lacks_is_reported_with_the_most_similar_one() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let scripts = layer([
        (
            "bin/elsewhere",
            Entry::File(b"#!/opt/none/sh\n".to_vec(), 0o755),
        ),
        ("bin/closed", Entry::File(b"#!/bin/sh\n".to_vec(), 0o644)),
    ]);
    let image = image(&stored.ground, "image", &[base, scripts], json!({}));
    let told = |words: &[&str]| {
        let done = stored.run(&image, &[], words);
        let error = &done.report["error"];
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        (text("code"), text("message"), text("hint"))
    };
    let (code, message, hint) = told(&["nonesuch-7f3a"]);
    assert_eq!(code, "program_not_found");
    assert!(
        message.contains("the image has no such program"),
        "{message}"
    );
    assert!(hint.starts_with("install it in the image"), "{hint}");
    // The host has it, and the image does not.
    assert!(
        told(&["/usr/bin/ldd"])
            .1
            .contains("the image has nothing at this path")
    );
    let (_, message, hint) = told(&["elsewhere"]);
    assert!(
        message.contains("names the interpreter `/opt/none/sh`"),
        "{message}"
    );
    assert!(
        hint.ends_with("#!/usr/bin/env sh") || hint.ends_with("#!/bin/sh"),
        "{hint}"
    );
    let (code, _, hint) = told(&["closed"]);
    assert_eq!(code, "program_not_executable");
    // No command of a hint changes a file of the host with the same name.
    assert!(
        hint.ends_with("where the image is built: chmod a+rx /bin/closed"),
        "{hint}"
    );
    let (_, _, hint) = told(&["readlinkk", "/lib"]);
    assert_eq!(hint, "did you mean `readlink`?");
    let meant = hint.split('`').nth(1).expect("a name");
    let done = stored.run(&image, &[], &[meant, "/lib"]);
    done.assert_exited(0);
    assert_eq!(done.text(), "usr/lib\n");
}
