//! `runner doctor` on hosts that block something: it names the control, and its commands work.

#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "test code: a failure is a panic, and what it leaves is printed"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use serde_json::Value;

use support::bodies::copy_program;
use support::{Ground, is_root, runner, skip};

/// The user to whom root has not delegated anything.
const UID: &str = "40127";

fn find<'value>(diagnosis: &'value Value, id: &str) -> &'value Value {
    let items = diagnosis["items"].as_array().expect("items");
    let found = items.iter().find(|item| item["id"] == id);
    found.expect("the item")
}

fn text<'value>(item: &'value Value, key: &str) -> &'value str {
    item[key].as_str().unwrap_or_default()
}

/// The diagnoses in what a script printed, one after the other.
fn diagnoses(command: &mut Command) -> Vec<Value> {
    let output = command.output().expect("it starts");
    let documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let documents: Result<Vec<Value>, _> = documents.collect();
    let documents = documents.unwrap_or_default();
    if documents.is_empty() {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    }
    documents
}

#[test]
fn a_filter_around_the_program_is_named() {
    let ground = Ground::new();
    let filter = include_str!("bodies/doctor/filter.py");
    for (of_clone3, of_unshare) in [
        // Docker and Podman: clone3(2) is refused as if it did not exist.
        (Errno::NOSYS, Errno::PERM),
        (Errno::PERM, Errno::PERM),
    ] {
        let errno = |errno: Errno| errno.raw_os_error().to_string();
        let found = diagnoses(
            Command::new("python3")
                .args(["-c", filter, &errno(of_clone3), &errno(of_unshare)])
                .arg(runner())
                .args(["doctor", "--json"])
                .env("RUNNER_OPT_RUNTIME_DIRECTORY", ground.path("records")),
        );
        let [diagnosis] = found.as_slice() else {
            return skip("no seccomp filter for a test");
        };
        assert_eq!(diagnosis["verdict"], "cannot_run", "{diagnosis:#}");
        for (id, calls) in [
            ("user_namespace", "refuses clone3(2) and unshare(2)"),
            ("mount_namespace", "refuses clone3(2) and unshare(2)"),
            ("clone3", "refuses clone3(2)"),
        ] {
            let item = find(diagnosis, id);
            assert!(text(item, "blocked_by").contains(calls), "{item}");
            assert!(
                text(item, "blocked_by").contains("seccomp filter"),
                "{item}"
            );
        }
        assert_eq!(find(diagnosis, "openat2")["state"], "enforced");
        let summary = text(diagnosis, "summary");
        assert!(summary.starts_with("runner cannot run here: "), "{summary}");
        assert!(summary.contains("seccomp filter"), "{summary}");
    }
}

#[test]
fn the_command_for_a_setting_of_user_namespaces_allows_runs() {
    let ground = Ground::new();
    // A user namespace of its own, with settings of its own.
    let script = "echo 0 >/proc/sys/user/max_user_namespaces
        \"$0\" doctor --json >\"$1\"
        cat \"$1\"
        sh -ec \"$(python3 -c \"$2\" <\"$1\")\" >&2
        exec \"$0\" doctor --json";
    let mend = "import json, sys
items = json.load(sys.stdin)['items']
print(next(item['mend'] for item in items if item['id'] == 'user_namespace'))";
    let found = diagnoses(
        Command::new("unshare")
            .args(["--user", "--map-root-user", "sh", "-c", script])
            .arg(runner())
            .arg(ground.path("diagnosis"))
            .arg(mend)
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", ground.path("records")),
    );
    let [before, after] = found.as_slice() else {
        return skip("no user namespace for a test");
    };
    let summary = text(before, "summary");
    assert_eq!(
        summary,
        "runner cannot run here: user.max_user_namespaces is 0"
    );
    let item = find(before, "network_namespace");
    assert_eq!(text(item, "blocked_by"), "user.max_user_namespaces is 0");
    for id in ["sandbox", "user_namespace", "network_namespace"] {
        let item = find(after, id);
        assert_eq!(item["state"], "enforced", "{item}");
        assert_eq!(item["blocked_by"], Value::Null, "{item}");
    }
    let summary = text(after, "summary");
    assert!(summary.starts_with("runner can run here: "), "{summary}");
}

/// Groups that the command creates, and that are removed with this.
struct Groups(Vec<PathBuf>);

impl Groups {
    /// `None`: somebody else has them.
    fn reserve() -> Option<Self> {
        let tops = std::fs::read_dir("/sys/fs/cgroup").ok()?;
        let tops = tops.filter_map(|entry| Some(entry.ok()?.path()));
        let tops = tops.chain([PathBuf::from("/sys/fs/cgroup")]);
        let groups: Vec<PathBuf> = tops.map(|top| top.join("runner")).collect();
        (!groups.iter().any(|group| group.exists())).then_some(Self(groups))
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            for path in [group.join("shell"), group.clone()] {
                match std::fs::remove_dir(&path) {
                    Ok(()) => (),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => (),
                    Err(error) => eprintln!("{} is left: {error}", path.display()),
                }
            }
        }
    }
}

#[test]
fn the_command_for_a_cgroup_gives_a_user_all_limits() {
    if !is_root() {
        return;
    }
    let Some(_groups) = Groups::reserve() else {
        return skip("a group named runner exists already");
    };
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    set_mode(directory.path(), 0o755);
    copy_program(runner(), &at("runner"));
    std::fs::write(at("sudo"), "#!/bin/sh\nexec \"$@\"\n").expect("written");
    set_mode(&at("sudo"), 0o755);
    let home = at("home");
    std::fs::create_dir(&home).expect("made");
    let uid = UID.parse().ok();
    std::os::unix::fs::chown(&home, uid, uid).expect("changed");
    let path = format!(
        "{}:/usr/sbin:/usr/bin:/sbin:/bin",
        directory.path().display()
    );
    let diagnosis_after = |command: &str| {
        let script = format!(
            "{command}\nexec setpriv --reuid={UID} --regid={UID} --clear-groups -- runner doctor --json"
        );
        let found = diagnoses(
            Command::new("sh")
                .args(["-ec", &script])
                .env_clear()
                .env("PATH", &path)
                .env("HOME", &home)
                .env("TMPDIR", &home)
                .env("RUNNER_OPT_RUNTIME_DIRECTORY", home.join("run"))
                .env("RUNNER_OPT_NO_RECORD", "yes"),
        );
        found.into_iter().next().expect("a diagnosis")
    };
    let before = diagnosis_after("");
    let item = find(&before, "cgroup");
    assert_eq!(item["state"], "absent", "{item}");
    assert!(text(item, "blocked_by").contains("not writable"), "{item}");
    let summary = text(&before, "summary");
    assert!(
        summary.starts_with(
            "runner can run here: isolation is complete, enforcement of limits is weaker"
        ),
        "{summary}"
    );
    let mend = text(item, "mend");
    if !mend.starts_with("sudo sh -c ") {
        return skip(&format!("another command is the one of this host: {mend}"));
    }
    let after = diagnosis_after(mend);
    for id in [
        "cgroup",
        "limit_memory",
        "limit_processes",
        "limit_cpu_share",
    ] {
        let item = find(&after, id);
        assert_eq!(item["state"], "enforced", "{mend}\n{item}");
    }
    let summary = text(&after, "summary");
    assert!(
        summary.ends_with("enforcement of limits is complete"),
        "{summary}"
    );
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("changed");
}

#[test]
fn the_server_beside_the_program_says_which_clients_it_is_tested_with() {
    let ground = Ground::new();
    let path = ground.path("doctor.json");
    let diagnose = |program: &Path| {
        let file = std::fs::File::create(&path).expect("made");
        let status = Command::new(program)
            .args(["doctor", "--json"])
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", ground.path("records"))
            .stdout(file)
            .status();
        status.expect("it starts");
        let text = std::fs::read_to_string(&path).expect("read");
        serde_json::from_str::<Value>(&text).expect("a document")
    };
    let server = Path::new(&runner()).with_file_name("runner-server");
    let said = Command::new(&server).arg("--version").output();
    let said = String::from_utf8(said.expect("it starts").stdout).expect("text");
    let lines: Vec<&str> = said.lines().collect();
    let [version, python, javascript] = lines[..] else {
        panic!("{said}");
    };
    assert!(version.starts_with("runner-server "), "{said}");
    assert!(
        python.starts_with("e2b ") && python.ends_with(" of PyPI"),
        "{said}"
    );
    assert!(javascript.ends_with(" of npm"), "{said}");
    let diagnosis = diagnose(Path::new(&runner()));
    let item = find(&diagnosis, "server");
    assert_eq!(item["state"], "enforced", "{item}");
    for line in lines {
        assert!(text(item, "effect").contains(line), "{item}");
    }
    // Without it nothing is missing, and another program of that name is no server.
    let directory = ground.path("bin");
    std::fs::create_dir(&directory).expect("made");
    let program = directory.join("runner");
    copy_program(runner(), &program);
    let diagnosis = diagnose(&program);
    let items = diagnosis["items"].as_array().expect("items");
    assert!(
        !items.iter().any(|item| item["id"] == "server"),
        "{diagnosis}"
    );
    std::os::unix::fs::symlink("/bin/false", directory.join("runner-server")).expect("made");
    let diagnosis = diagnose(&program);
    assert_eq!(find(&diagnosis, "server")["state"], "absent", "{diagnosis}");
}
