//! Leftovers of a body: deep trees, unreadable files, core dumps.

use crate::back_end::one_at_a_time;
use support::bodies::c_body;
use support::{Done, Ground, tier_includes};

/// Runs a shell text as a bundle with `--keep`; removes the copy.
fn kept(ground: &Ground, flags: &[&str], script: &str) -> (Done, Vec<String>) {
    let manifest = serde_json::json!({"name": "x", "run": {"shell": script}}).to_string();
    let bundle = ground.bundle(&[("manifest.json", &manifest)]);
    let flags: Vec<&str> = ["--keep"].iter().chain(flags).copied().collect();
    let done = ground.exec(&flags, &bundle);
    let path = done.report["kept"].as_str();
    let path = path.unwrap_or_else(|| panic!("nothing was kept: {done:#?}"));
    let list = std::process::Command::new("find")
        .arg(path)
        .output()
        .expect("find runs");
    let names = String::from_utf8_lossy(&list.stdout)
        .lines()
        .map(|line| line.replace(path, ""))
        .collect();
    // A user would remove it in the same way, without special means.
    let removed = std::process::Command::new("rm")
        .arg("-rf")
        .arg(path)
        .status()
        .expect("rm runs");
    assert!(removed.success(), "what was kept cannot be removed");
    (done, names)
}

/// C-29: the longer tiers use the depth that the limit of inodes allows: each further level makes
/// the body walk all the way up.
#[test]
fn a_tree_without_a_bottom_is_cleaned_up() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/a_tree_without_a_bottom_is_cleaned_up.c");
    let program = c_body("deep", text);
    let program = program.to_str().expect("plain");
    let levels = match tier_includes("long") {
        true => "100000",
        false => "4000",
    };
    let done = Ground::new().run(&["--memory=768m"], &[program, levels]);
    done.assert_exited(0);
    assert_eq!(done.text(), "1\n");
}

/// C-29: a copy of it, which the supervisor walks.
#[test]
fn a_deep_tree_can_be_kept_and_removed() {
    let ground = Ground::new();
    let script = include_str!("../bodies/limits/a_deep_tree_can_be_kept_and_removed.sh");
    let (done, names) = kept(&ground, &[], script);
    done.assert_exited(0);
    assert_eq!(done.text(), "1500\n");
    assert!(1000 < names.len(), "{}", names.len());
}

/// C-31
#[test]
fn files_and_directories_that_nobody_may_enter_are_cleaned_up_and_kept() {
    let ground = Ground::new();
    // Made immutable while it can still be opened: the refusal is for that, not for its mode.
    let script = "cd /scratch; mkdir -p a/b c s; echo x >a/b/f; echo y >c/g; echo z >s/h; \
        chattr +i c/g 2>/dev/null && echo IMMUTABLE || echo refused $?; chmod 1777 s; \
        chmod 4755 s/h; chmod 000 a/b/f a/b a; chmod 0555 c; chmod 000 c/g; \
        chmod 000 /scratch; exit 0";
    // 1 is the program's own error; 127 would mean that the program does not exist.
    let said = "refused 1\n";
    let done = ground.run(&[], &["/bin/sh", "-c", script]);
    assert_eq!(done.assert_exited(0).text(), said, "{done:#?}");
    let (done, _) = kept(&ground, &[], script);
    assert_eq!(done.assert_exited(0).text(), said, "{done:#?}");
}

/// C-32
#[test]
fn files_in_use_are_cleaned_up() {
    // The first process ends only after all others have reported that they are ready.
    let script = include_str!("../bodies/limits/files_in_use_are_cleaned_up.sh");
    let done = Ground::new().run(&["--timeout=60s"], &["/bin/sh", "-c", script]);
    done.assert_exited(0);
    assert_eq!(done.text(), "running\nlock\nmap\nlocked\nrefused\n");
}

/// C-33: invariant 1 checks the canary tree.
#[test]
fn a_directory_that_becomes_a_link_leads_nobody_outside() {
    let ground = Ground::new();
    let canary = ground.path("canary");
    let canary = canary.to_str().expect("plain");
    let flags = ["--timeout=60s"];
    let script = format!(
        "mkdir /scratch/d /scratch/e; echo x >/scratch/d/file; ln -s {canary} /scratch/l; ln -s / /scratch/r; \
         (while mv -T /scratch/d /scratch/t && mv -T /scratch/l /scratch/d && \
         mv -T /scratch/d /scratch/l && mv -T /scratch/t /scratch/d; do touch /scratch/swapped; done) & \
         until [ -e /scratch/swapped ]; do sleep 0.01; done; exit 0"
    );
    ground
        .run(&flags, &["/bin/sh", "-c", &script])
        .assert_exited(0);
    let (done, _) = kept(&ground, &flags, &script);
    done.assert_exited(0);
}

/// C-34
#[test]
fn a_crash_leaves_no_core_anywhere() {
    let ground = Ground::new();
    let script = "cd /scratch; ulimit -c unlimited 2>/dev/null; ulimit -c; \
        sh -c 'kill -SEGV $$'; sh -c 'kill -ABRT $$'; kill -ABRT $$; sleep 5";
    let (done, names) = kept(&ground, &[], script);
    done.assert_outcome("signaled", 134);
    assert_eq!(done.report["exit"]["core_dump"], false);
    assert!(
        done.text()
            .lines()
            .all(|line| line.trim() == "0" || line.trim() == "1"),
        "{}",
        done.text()
    );
    let cores: Vec<&String> = names.iter().filter(|name| name.contains("core")).collect();
    assert!(cores.is_empty(), "{cores:?}");
    let here = std::fs::read_dir(".").expect("readable");
    assert!(
        here.filter_map(Result::ok)
            .all(|entry| entry.file_name() != "core")
    );
}
