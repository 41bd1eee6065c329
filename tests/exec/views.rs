//! Flags that make paths visible: `--ro`, `--rw`, `--mount`, `--tmpfs`, `-w`.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::{Command, Stdio};

use super::destinations::ids;
use support::text;
use support::{Ground, is_root};

#[test]
fn a_path_that_is_shown_read_only_cannot_be_written() {
    let ground = Ground::new();
    let file = ground.write("shown/a.txt", "A");
    let folder = ground.path("shown");
    let body = format!(
        "cat {0}/a.txt; for act in 'echo x > {0}/a.txt' 'touch {0}/new' 'rm -f {0}/a.txt' 'chmod 777 {0}/a.txt' \
        'mv {0}/a.txt {0}/b' 'ln {0}/a.txt {0}/c' 'truncate -s 0 {0}/a.txt'; do
        sh -c \"$act\" 2>/dev/null && echo \"did $act\"; done; true\n",
        text(&folder)
    );
    let done = ground.exec(
        &["--ro", text(&folder)],
        &ground.script("run: body.sh\n", &body),
    );
    done.assert_exited(0);
    assert_eq!(done.text(), "A", "{done:#?}");
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "A");
    assert_eq!(std::fs::read_dir(&folder).expect("listed").count(), 1);
}

#[test]
fn files_created_in_a_writable_path_belong_to_its_owner() {
    let ground = Ground::new();
    let folder = ground.path("shared");
    std::fs::create_dir(&folder).expect("made");
    let owner = if is_root() { (40_777, 40_778) } else { ids() };
    if is_root() {
        std::os::unix::fs::chown(&folder, Some(owner.0), Some(owner.1)).expect("given");
    }
    let body = format!(
        "cd {}; echo x > file; mkdir d; ln -s x link; stat -c %u:%g . file\n",
        text(&folder)
    );
    let done = ground.exec(
        &["--rw", text(&folder)],
        &ground.script("run: body.sh\n", &body),
    );
    done.assert_exited(0);
    assert_eq!(done.text(), "1000:1000\n1000:1000\n");
    for name in ["file", "d", "link"] {
        let found = std::fs::symlink_metadata(folder.join(name)).expect("there");
        assert_eq!((found.uid(), found.gid()), owner, "{name}");
    }
}

#[test]
fn two_hundred_paths_of_several_owners_can_be_shown_at_once() {
    let ground = Ground::new();
    let owner = |number: u32| match is_root() {
        true => (40_770 + number % 3, 40_780 + number % 2),
        false => ids(),
    };
    let folders: Vec<_> = (0..200_u32)
        .map(|number| {
            let folder = ground.path(&format!("shown-{number}"));
            std::fs::create_dir(&folder).expect("made");
            if is_root() {
                let (uid, gid) = owner(number);
                std::os::unix::fs::chown(&folder, Some(uid), Some(gid)).expect("given");
            }
            folder
        })
        .collect();
    let flags: Vec<&str> = folders
        .iter()
        .flat_map(|folder| ["--rw", text(folder)])
        .collect();
    let body = format!(
        "cd {}; for folder in shown-*; do echo x > $folder/file; done; stat -c %u:%g shown-* | uniq -c | tr -s ' '\n",
        text(folders[0].parent().expect("a parent"))
    );
    let done = ground.exec(&flags, &ground.script("run: body.sh\n", &body));
    done.assert_exited(0);
    assert_eq!(done.text(), " 200 1000:1000\n");
    for (number, folder) in (0..).zip(&folders) {
        let found = std::fs::symlink_metadata(folder.join("file")).expect("there");
        assert_eq!((found.uid(), found.gid()), owner(number), "{number}");
    }
}

#[test]
fn more_paths_than_root_can_pass_on_are_refused_by_name() {
    let ground = Ground::new();
    let flags: Vec<String> = (0..300)
        .flat_map(|number| {
            let folder = ground.path(&format!("shown-{number}"));
            std::fs::create_dir(&folder).expect("made");
            ["--ro".to_owned(), text(&folder).to_owned()]
        })
        .collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let done = ground.exec(&flags, &ground.script("run: body.sh\n", "echo ran\n"));
    if is_root() {
        done.assert_error("refused", "mounts_too_many");
    } else {
        // As an ordinary user, the child mounts them from their paths itself.
        done.assert_exited(0);
    }
}

#[test]
fn a_single_file_can_be_shown_too() {
    let ground = Ground::new();
    let read = ground.write("shown/read", "R");
    let written = ground.write("shown/written", "W");
    ground.write("shown/hidden", "H");
    let body = format!(
        "ls {0}; cat {0}/read {0}/written; echo x > {0}/read || echo refused; printf new > {0}/written\n",
        text(&ground.path("shown"))
    );
    let bundle = ground.script("run: body.sh\n", &body);
    let done = ground.exec(&["--ro", text(&read), "--rw", text(&written)], &bundle);
    done.assert_exited(0);
    assert_eq!(done.text(), "read\nwritten\nRWrefused\n");
    assert_eq!(std::fs::read_to_string(&read).expect("read"), "R");
    assert_eq!(std::fs::read_to_string(&written).expect("read"), "new");
}

#[test]
fn a_mount_appears_at_another_place() {
    let ground = Ground::new();
    ground.write("data/a.txt", "A");
    let folder = ground.path("data");
    let bundle = ground.script(
        "run: body.sh\n",
        "cat /data/a.txt; echo x > /data/new && echo wrote; ls /data\n",
    );
    let read_only = format!("{}:/data:ro", text(&folder));
    let done = ground.exec(&["--mount", &read_only], &bundle);
    assert_eq!(done.text(), "Aa.txt\n", "{done:#?}");
    let writable = format!("{}:/data", text(&folder));
    let done = ground.exec(&["--mount", &writable], &bundle);
    done.assert_exited(0);
    assert_eq!(done.text(), "Awrote\na.txt\nnew\n");
}

#[test]
fn a_mount_over_a_reserved_path_is_refused() {
    let ground = Ground::new();
    let folder = ground.path("data");
    std::fs::create_dir(&folder).expect("made");
    let bundle = ground.script("run: body.sh\n", "echo ran\n");
    for target in [
        "/",
        "/bundle",
        "/scratch",
        "/tmp",
        "/proc",
        "/proc/self",
        "/dev/shm",
        "/etc/passwd",
        "/usr/bin",
        "/runner/out",
        "/sys",
        "/a/../etc",
        "/lib64/x",
        "/home/runner",
    ] {
        let flag = format!("{}:{target}", text(&folder));
        let done = ground
            .command(&["exec", "--mount", &flag, text(&bundle)])
            .done();
        assert_eq!(done.code, 125, "{target} {done:#?}");
        assert!(done.stdout.is_empty(), "{target} {done:#?}");
    }
    let missing = ground.path("nowhere");
    let done = ground.exec(&["--ro", text(&missing)], &bundle);
    done.assert_error("refused", "mount_source_missing")
        .assert_nothing_ran();
}

#[test]
fn a_private_directory_is_empty_writable_and_as_large_as_it_says() {
    let ground = Ground::new();
    let body =
        "ls -A /cache; head -c 3000000 /dev/zero > /cache/x || echo full; stat -c %u /cache\n";
    let done = ground.exec(
        &["--tmpfs", "/cache:1m"],
        &ground.script("run: body.sh\n", body),
    );
    done.assert_exited(0);
    assert_eq!(done.text(), "full\n1000\n", "{done:#?}");
    assert!(!std::path::Path::new("/cache").exists());
}

#[test]
fn the_working_directory_is_the_bundle_or_what_the_caller_says() {
    let ground = Ground::new();
    let bundle = ground.bundle(&[("manifest.yaml", "run: [pwd]\n"), ("sub/x", "")]);
    for (flags, expected) in [
        (vec![], "/bundle\n"),
        (vec!["-w", "/tmp"], "/tmp\n"),
        (vec!["-w", "/bundle/sub"], "/bundle/sub\n"),
    ] {
        let done = ground.exec(&flags, &bundle);
        done.assert_exited(0);
        assert_eq!(done.text(), expected);
    }
    let done = ground.exec(&["-w", "/nowhere"], &bundle);
    assert_eq!(done.code, 125, "{done:#?}");
    done.assert_nothing_ran();
}

#[test]
fn a_command_does_not_see_the_directory_that_it_was_started_in() {
    let ground = Ground::new();
    ground.write("work/a.txt", "A");
    let workspace = ground.workspace();
    let show = format!(
        "pwd; ls {0} 2>/dev/null && echo visible; true",
        text(&workspace)
    );
    let mut case = ground.command(&["run", "--", "/bin/sh", "-c", &show]);
    case.command.current_dir(&workspace);
    let done = case.done();
    done.assert_exited(0);
    assert_eq!(done.text(), "/home/runner\n");
    let mut case = ground.command(&[
        "run",
        "--ro",
        text(&workspace),
        "--",
        "/bin/sh",
        "-c",
        &show,
    ]);
    case.command.current_dir(&workspace);
    let done = case.done();
    assert_eq!(
        done.text(),
        format!("{}\na.txt\nvisible\n", text(&workspace))
    );
}

#[test]
fn the_program_of_a_command_is_visible_read_only_and_nothing_beside_it() {
    let ground = Ground::new();
    ground.write("work/secret", "S");
    let program = ground.program(
        "work/tool",
        "#!/bin/sh\nls \"${0%/*}\"; echo x >> \"$0\" || echo kept\n",
    );
    let before = std::fs::read(&program).expect("read");
    for word in [text(&program), "./tool"] {
        let mut case = ground.command(&["run", "--", word]);
        case.command.current_dir(ground.workspace());
        let done = case.done();
        assert_eq!(done.outcome(), "exited", "{done:#?}");
        if word != "./tool" {
            assert_eq!(done.text(), "tool\nkept\n", "{done:#?}");
        }
        assert_eq!(done.report["bound_programs"][0], text(&program));
    }
    assert_eq!(std::fs::read(&program).expect("read"), before);
}

/// The target of a link of /proc is not at the path that readlink(2) returns.
#[test]
fn a_source_in_another_mount_namespace_is_not_taken_for_the_host_s_path_of_that_name() {
    let ground = Ground::new();
    let folder = ground.path("data");
    std::fs::create_dir(&folder).expect("made");
    let namespaces: &[&str] = match is_root() {
        true => &["--mount"],
        false => &["--user", "--map-root-user", "--mount"],
    };
    let script = r#"mount -t tmpfs none "$1" && echo theirs >"$1/mark" && echo ready && read end"#;
    let mut other = Command::new("unshare")
        .args(namespaces)
        .args(["sh", "-c", script, "sh", text(&folder)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare runs");
    let mut said = String::new();
    BufReader::new(other.stdout.take().expect("piped"))
        .read_line(&mut said)
        .expect("read");
    assert_eq!(said, "ready\n");
    let source = format!("/proc/{}/root{}", other.id(), text(&folder));
    let body = "cat /data/mark; echo x >/data/new";
    for access in ["", ":ro"] {
        let mount = format!("{source}:/data{access}");
        let done = ground.run(&["--mount", &mount], &["/bin/sh", "-c", body]);
        assert!(!folder.join("new").exists(), "{done:#?}");
        done.assert_error("refused", "mount_source_changed")
            .assert_nothing_ran();
    }
    // In the same namespace, such a link is equivalent to the path.
    let mount = format!("/proc/self/root{}:/data", text(&folder));
    let done = ground.run(
        &["--mount", &mount],
        &["/bin/sh", "-c", "echo x >/data/new"],
    );
    done.assert_exited(0);
    assert!(folder.join("new").exists());
    drop(other.stdin.take());
    other.wait().expect("ended");
}

/// D-18: a process that can open the file can lock it, and so block the outputs of other runs.
#[test]
fn a_directory_above_the_runtime_directory_cannot_be_mounted() {
    let ground = Ground::new();
    let (lent, beside) = (ground.path("lent"), ground.path("beside"));
    for directory in [&lent, &beside] {
        std::fs::create_dir(directory).expect("made");
    }
    let link = ground.path("way");
    symlink(&lent, &link).expect("linked");
    let runtime = lent.join("deep");
    std::fs::create_dir(&runtime).expect("made");
    let runtime = runtime.join("runtime");
    for flag in ["--ro", "--rw"] {
        // Before it exists, and after a run has created it.
        for made in [false, true] {
            assert_eq!(runtime.exists(), made);
            for source in [&lent, &link, &lent.join("deep")] {
                let words = ["run", flag, text(source), "--", "/bin/true"];
                let case = ground.command(&words);
                let case = case.env("RUNNER_OPT_RUNTIME_DIRECTORY", text(&runtime));
                let done = case.done();
                done.assert_error("refused", "mount_holds_runtime_directory")
                    .assert_hint("RUNNER_OPT_RUNTIME_DIRECTORY")
                    .assert_nothing_ran();
            }
            let words = ["run", flag, text(&beside), "--", "/bin/true"];
            let case = ground.command(&words);
            let case = case.env("RUNNER_OPT_RUNTIME_DIRECTORY", text(&runtime));
            case.done().assert_exited(0);
        }
        let runs = runtime.join("runs");
        let case = ground.command(&["run", flag, text(&runs), "--", "/bin/true"]);
        let case = case.env("RUNNER_OPT_RUNTIME_DIRECTORY", text(&runtime));
        case.done()
            .assert_error("refused", "mount_holds_runtime_directory");
        std::fs::remove_dir_all(&runtime).expect("removed");
    }
}

/// Creating the store later would follow the link into a directory that the body could fill before.
#[test]
fn the_target_of_a_dangling_store_link_cannot_be_mounted() {
    let ground = Ground::new();
    let lent = ground.path("lent");
    std::fs::create_dir(&lent).expect("made");
    symlink(lent.join("deep/cache"), ground.path("absolute")).expect("linked");
    symlink("lent/deep/cache", ground.path("relative")).expect("linked");
    symlink("relative", ground.path("twice")).expect("linked");
    symlink("lent/../lent/cache", ground.path("winding")).expect("linked");
    let body = format!("mkdir -p {0}/deep/cache {0}/cache", text(&lent));
    for variable in STORES {
        for link in ["absolute", "relative", "twice", "winding"] {
            for store in [ground.path(link), ground.path(link).join("bundles")] {
                let words = ["run", "--rw", text(&lent), "--", "/bin/sh", "-c", &body];
                let done = ground.command(&words).env(variable, text(&store)).done();
                assert!(!lent.join("cache").exists(), "{link}: {done:#?}");
                done.assert_error("refused", "mount_holds_cache")
                    .assert_nothing_ran();
            }
        }
    }
}

/// The settings that name each store.
const STORES: [&str; 2] = ["RUNNER_OPT_CACHE_DIRECTORY", "RUNNER_OPT_OCI_DIRECTORY"];

#[test]
fn nothing_is_mounted_while_a_store_path_is_unknown() {
    let ground = Ground::new();
    let lent = ground.path("lent");
    std::fs::create_dir(&lent).expect("made");
    symlink("circle", ground.path("circle")).expect("linked");
    symlink("lent/none/../cache", ground.path("back")).expect("linked");
    let file = ground.write("file", "");
    let body = ["--", "/bin/sh", "-c", "true"];
    for variable in STORES {
        for store in [ground.path("circle/x"), ground.path("back"), file.join("x")] {
            let run = |flags: &[&str]| {
                let words = [&["run"], flags, &body].concat();
                ground.command(&words).env(variable, text(&store)).done()
            };
            run(&["--rw", text(&lent)])
                .assert_error("failed", "host_failed")
                .assert_nothing_ran();
            run(&["--ro", text(&lent)]).assert_exited(0);
        }
    }
}

#[test]
fn a_private_directory_in_the_bundle_shows_nothing_of_the_bundle() {
    let ground = Ground::new();
    let body = "cd /bundle; ls -A node_modules new; echo x >node_modules/x && ls node_modules\n";
    let bundle = ground.bundle(&[
        ("manifest.yaml", "run: [sh, body.sh]\n"),
        ("body.sh", body),
        ("node_modules/own/file", "own"),
    ]);
    for size in ["", ":1m"] {
        let place = |at: &str| format!("{at}{size}");
        let flags = [
            "--tmpfs",
            &place("/bundle/node_modules"),
            "--tmpfs",
            &place("/bundle/new"),
        ];
        let done = ground.exec(&flags, &bundle);
        done.assert_exited(0);
        assert_eq!(
            done.text(),
            "new:\n\nnode_modules:\nx\n",
            "{size}: {done:#?}"
        );
    }
}
