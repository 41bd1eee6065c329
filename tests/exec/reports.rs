//! Attacks of the body on the report, whose directory it may write.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use support::text;
use support::{Ground, is_root, runner, skip};

/// A forged report.
const FORGED: &str = "{\"outcome\":\"forged\"}";

/// A directory that the body may write, and one outside that must not change.
struct Place {
    ground: Ground,
    lent: PathBuf,
}

impl Place {
    fn new() -> Self {
        let ground = Ground::new();
        let lent = ground.path("lent");
        std::fs::create_dir_all(lent.join("sub")).expect("made");
        ground.write("outside/report.json", "untouched");
        Self { ground, lent }
    }

    /// `runner run --rw LENT --json=REPORT`, started in LENT; the variables `forged` and `outside`
    /// name the body's targets.
    fn run(&self, report: &str, body: &str) -> Output {
        let outside = self.ground.path("outside");
        let script = format!(
            "cd {} || exit 9; forged='{FORGED}' outside={}\n{body}",
            text(&self.lent),
            text(&outside)
        );
        let mut command = Command::new(runner());
        command.current_dir(&self.lent).args(["run", "--rw", "."]);
        command.arg(format!("--json={report}"));
        command.args(["--", "sh", "-c", &script]);
        let output = command.output().expect("it starts");
        let kept = std::fs::read_to_string(outside.join("report.json"));
        assert_eq!(kept.expect("read"), "untouched", "{body}");
        output
    }

    fn report(&self, path: &str) -> Value {
        let path = self.lent.join(path);
        let found = path.symlink_metadata().expect("a report");
        assert!(found.is_file(), "{found:?}");
        let text = std::fs::read_to_string(path).expect("read");
        serde_json::from_str(&text).expect("JSON")
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.lent.join(path)).expect("listed");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// D-29
#[test]
fn a_file_at_the_report_path_never_becomes_the_report() {
    for attack in [
        "echo \"$forged\" > report.json",
        "echo \"$forged\" > own; mv own report.json",
        "rm -f report.json; ln -s \"$outside/report.json\" report.json",
        "rm -f report.json; ln -s nowhere report.json",
        "rm -f report.json; mkfifo report.json",
        "echo \"$forged\" > own; rm -f report.json; ln own report.json",
        // Half of the attackers continue until they are killed.
        "setsid sh -c 'while :; do echo \"$0\" > report.json; rm report.json; done' \"$forged\" &",
    ] {
        for old in [None, Some("old")] {
            let place = Place::new();
            if let Some(old) = old {
                std::fs::write(place.lent.join("report.json"), old).expect("written");
            }
            let output = place.run("report.json", &format!("{attack}\nexit 3"));
            assert_eq!(output.status.code(), Some(3), "{attack}: {output:?}");
            let report = place.report("report.json");
            assert_eq!(report["outcome"], "exited", "{attack}");
            assert_eq!(report["exit"]["code"], 3, "{attack}");
            let names = place.names(".");
            let stray = names.iter().any(|name| name.ends_with(".tmp"));
            assert!(!stray, "{attack}: {names:?}");
        }
    }
}

/// D-29
#[test]
fn a_directory_at_the_name_of_the_report_gives_way_and_is_not_lost() {
    let place = Place::new();
    let output = place.run("report.json", "mkdir report.json; touch report.json/kept");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(place.report("report.json")["outcome"], "exited");
    let moved = place.names(".");
    let moved = moved.iter().find(|name| name.ends_with(".tmp"));
    assert_eq!(place.names(moved.expect("moved")), ["kept"]);
}

/// D-29
#[test]
fn a_swapped_report_directory_is_detected_and_reported() {
    for attack in [
        "mv sub away; mkdir sub; echo \"$forged\" > sub/report.json",
        "mv sub away; ln -s \"$outside\" sub",
        "mv sub away; ln -s away sub; rm sub; echo \"$forged\" > sub",
        "mv sub away",
    ] {
        let place = Place::new();
        let output = place.run("sub/report.json", attack);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{attack}: {errors}");
        assert!(errors.contains("(report_unwritable)"), "{attack}: {errors}");
        assert!(errors.contains("is not the report"), "{attack}: {errors}");
        // It is written to the directory that existed before the body.
        assert_eq!(place.report("away/report.json")["outcome"], "exited");
    }
}

#[test]
fn a_link_at_the_name_of_the_report_is_refused_before_anything_runs() {
    let place = Place::new();
    let outside = place.ground.path("outside");
    symlink(outside.join("report.json"), place.lent.join("link")).expect("linked");
    let output = place.run("link", "touch ran");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{errors}");
    assert!(errors.contains("is a symbolic link"), "{errors}");
    assert!(errors.contains("hint: "), "{errors}");
    assert!(!place.lent.join("ran").exists());
}

#[test]
fn the_kernel_s_names_of_open_descriptors_are_those_descriptors() {
    let place = Place::new();
    let output = place.run("/dev/stdout", "echo words");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(report["stdout"]["text"], "words\n", "{report:#}");
    let script = "\"$1\" run --json=/dev/fd/5 -- sh -c 'echo words' 5> of-shell.json";
    let output = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(runner())
        .current_dir(&place.lent)
        .output()
        .expect("it starts");
    assert_eq!(output.stdout, b"words\n", "{output:?}");
    assert_eq!(place.report("of-shell.json")["outcome"], "exited");
}

#[test]
fn a_report_file_that_no_rename_can_replace_is_written_in_place() {
    let place = Place::new();
    let file = place.lent.join("sub/plan.json");
    let old = "x".repeat(1_000_000);
    // A single mounted file, as in a container, and one in a directory that cannot be written.
    let mounted = "mount --bind plan.json plan.json";
    let unshare = if is_root() { "-m" } else { "-Urm" };
    let mut ways = vec![(mounted, unshare)];
    if !is_root() {
        ways.push(("chmod 555 .", "--fork"));
    }
    for (make, flag) in ways {
        std::fs::write(&file, &old).expect("written");
        let script = format!("{make} && exec \"$1\" plan --json=plan.json -- true");
        let output = Command::new("unshare")
            .args([flag, "sh", "-c", &script, "sh"])
            .arg(runner())
            .current_dir(place.lent.join("sub"))
            .output()
            .expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if errors.contains("mount: ") || errors.contains("unshare: ") {
            skip("this user cannot mount in a namespace of its own");
            continue;
        }
        let plan = place.report("sub/plan.json");
        assert!(plan["verdict"].is_string(), "{make}: {errors}");
        assert_eq!(place.names("sub"), ["plan.json"]);
    }
    let writable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.lent.join("sub"), writable).expect("set");
}
