//! Reports as pages: written as safely as the JSON, complete, and shown by a real browser.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use support::packages::{has, npm_package, tool};
use support::{Case, Done, Ground, runner};

const BROWSER: &str = include_str!("bodies/page/browser.mjs");
/// A name that would be a script, if the page took it for one.
const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'\u{202e}";
const LISTED: &str = "&#60;script&#62;alert(1)&#60;/script&#62;";

struct Place {
    ground: Ground,
}

impl Place {
    fn new() -> Self {
        Self {
            ground: Ground::new(),
        }
    }

    /// A run, of which `page` is the page.
    fn case(&self, page: &Path, words: &[&str]) -> Case<'_> {
        let (page, state) = (text(page), self.ground.path("state"));
        let words = [&["run", "--report", page], words].concat();
        self.ground
            .command(&words)
            .env("RUNNER_OPT_STATE_DIRECTORY", text(&state))
    }

    fn run(&self, name: &str, words: &[&str]) -> (Done, String) {
        let page = self.ground.path(name);
        let done = self.case(&page, words).done();
        let page = std::fs::read_to_string(page).expect("a page");
        (done, page)
    }

    /// `runner report WORDS`: its exit code and what it says.
    fn report(&self, words: &[&str]) -> (i32, String) {
        let output = Command::new(runner())
            .arg("report")
            .args(words)
            .env("RUNNER_OPT_STATE_DIRECTORY", self.ground.path("state"))
            .output()
            .expect("the runner starts");
        let code = output.status.code().expect("an exit code");
        (code, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Whether the run had counters to sample.
fn has_counters(report: &Value) -> bool {
    report["usage"]["memory_peak_bytes"].is_u64() && report["cgroup_backend"] != "none"
}

#[test]
fn only_a_run_with_a_page_records_its_view_and_samples_its_use() {
    let place = Place::new();
    let workspace = place.ground.workspace();
    let rw = text(&workspace);
    let (done, page) = place.run("page.html", &["--rw", rw, "--", "sleep", "0.6"]);
    done.assert_exited(0);
    let view = done.report["view"].as_array().expect("a view");
    let row = |path: &str| view.iter().find(|row| row["path"] == path);
    let row = row(rw).expect("the workspace");
    assert_eq!(row["decided_by"], "--rw");
    assert_eq!(row["writable"], true);
    assert!(page.contains(&format!("<code>{rw}</code>")), "{page}");
    if has_counters(&done.report) {
        let samples = done.report["samples"].as_array().expect("samples");
        // The start, two more, the end; but for the end at most four a second.
        assert!(samples.len() >= 4, "{samples:?}");
        let memory = samples.iter().map(|sample| &sample["memory_bytes"]);
        assert!(memory.clone().all(Value::is_u64), "{samples:?}");
        let times = samples.iter().map(|sample| sample["at_ms"].as_u64());
        let times: Vec<u64> = times.map(|time| time.expect("a time")).collect();
        let (_end, others) = times.split_last().expect("samples");
        // Each time is cut to whole milliseconds.
        assert!(
            others.windows(2).all(|pair| pair[1] >= pair[0] + 249),
            "{times:?}"
        );
        assert!(page.contains("class=\"curve\""), "{page}");
    } else {
        assert!(done.report["samples"].is_null());
        assert!(page.contains("nothing was sampled"), "{page}");
    }

    let plain = place.ground.run(&[], &["true"]);
    assert!(plain.report["view"].is_null() && plain.report["samples"].is_null());
}

#[test]
fn a_view_has_the_paths_of_the_plan() {
    let place = Place::new();
    let workspace = place.ground.workspace();
    let flags = ["--ro", text(&workspace), "--tmpfs", "/var/cache:1m"];
    let words = [&flags[..], &["--", "true"]].concat();
    let (done, _) = place.run("page.html", &words);
    let plan = Command::new(runner())
        .args([&["plan", "--json"], &words[..]].concat())
        .output()
        .expect("started");
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    assert_eq!(done.report["view"], plan["view"]);
}

#[test]
fn a_page_replaces_its_file_as_a_whole_and_nothing_else() {
    let place = Place::new();
    let workspace = place.ground.workspace();
    let page = workspace.join("page.html");
    std::fs::write(&page, "old").expect("written");
    // The old page is there until the end, whatever the body makes of its name.
    let body = format!("cat {0}; rm {0}; ln -s /etc/passwd {0}", page.display());
    let done = place
        .case(&page, &["--rw", text(&workspace), "--", "sh", "-c", &body])
        .done();
    done.assert_exited(0);
    assert_eq!(done.text(), "old");
    let kind = std::fs::symlink_metadata(&page).expect("there").file_type();
    assert!(kind.is_file());
    let written = std::fs::read_to_string(&page).expect("read");
    assert!(written.starts_with("<!DOCTYPE html>") && written.ends_with("</html>\n"));

    let link = place.ground.path("link.html");
    std::os::unix::fs::symlink(&page, &link).expect("linked");
    let missing = place.ground.path("none/page.html");
    let text_file = place.ground.path("page.txt");
    for (file, expected) in [
        (&link, "is a symbolic link"),
        (&missing, "cannot be opened for writing"),
        (&text_file, "expected a file whose name ends with .html"),
    ] {
        let made = workspace.join("made");
        let refused = Command::new(runner())
            .args(["run", "--no-record", "--report", text(file)])
            .args(["--rw", text(&workspace), "--", "touch", text(&made)])
            .output()
            .expect("started");
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125), "{stderr}");
        assert!(
            stderr.contains(&format!("--report={}", file.display())),
            "{stderr}"
        );
        assert!(stderr.contains(expected), "{stderr}");
        assert!(!made.exists(), "the body ran");
        assert!(!text_file.exists());
    }
}

#[test]
fn the_page_of_a_recorded_run_is_that_of_the_run() {
    let place = Place::new();
    let (done, page) = place.run("page.html", &["--", "sh", "-c", "exit 3"]);
    done.assert_exited(3);
    let again = place.ground.path("again.html");
    let run_id = done.report["run_id"].as_str().expect("an id");
    for run in [&[][..], &["last"], &[run_id], &[&run_id[..20]]] {
        let words = [run, &["-o", text(&again)]].concat();
        assert_eq!(place.report(&words), (0, String::new()));
        let written = std::fs::read_to_string(&again).expect("a page");
        assert_eq!(written, page);
        std::fs::remove_file(&again).expect("removed");
    }
    for (words, expected) in [
        (&["zz", "-o", "x.html"][..], "no run has the id zz"),
        (
            &["-o", "x.pdf"],
            "--output=x.pdf: expected a file whose name",
        ),
        (&["last"], "--output <FILE.html>"),
    ] {
        let (code, stderr) = place.report(words);
        assert_eq!(code, 125, "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
    assert!(!Path::new("x.html").exists());
}

#[test]
fn a_run_without_a_report_has_no_page() {
    let place = Place::new();
    let page = place.ground.path("page.html");
    let mut running = place
        .case(&page, &["--", "sh", "-c", "exec sleep 600"])
        .start();
    running.until_body_is("sleep");
    let listed = Command::new(runner())
        .args(["ps", "--json"])
        .env("RUNNER_OPT_STATE_DIRECTORY", place.ground.path("state"))
        .output()
        .expect("started");
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let run_id = listed["runs"][0]["run_id"].as_str().expect("an id");
    let words = [run_id, "-o", text(&page)];
    let (code, stderr) = place.report(&words);
    assert_eq!(code, 125);
    assert!(
        stderr.contains("goes on, and has no report yet"),
        "{stderr}"
    );
    running.signal(rustix::process::Signal::KILL);
    drop(running.finish());
    let (code, stderr) = place.report(&words);
    assert_eq!(code, 125);
    assert!(stderr.contains("its runner was killed"), "{stderr}");
    assert!(!page.exists());
}

#[test]
fn a_secret_is_in_no_page() {
    let place = Place::new();
    let value = "the-value-8642";
    let shown = place.ground.path(value);
    std::fs::create_dir(&shown).expect("made");
    let page = place.ground.path("page.html");
    let words = [
        "--secret",
        "S=env:VALUE",
        "--ro",
        text(&shown),
        "--",
        "echo",
        value,
    ];
    let done = place.case(&page, &words).env("VALUE", value).done();
    done.assert_exited(0);
    let page = std::fs::read_to_string(&page).expect("a page");
    assert!(
        page.contains("env:VALUE") && !page.contains(value),
        "{page}"
    );
    assert!(!done.report["view"].to_string().contains(value));
}

#[test]
fn a_plan_and_an_answer_say_that_they_write_no_page() {
    let place = Place::new();
    let page = place.ground.path("page.html");
    for words in [&["plan"][..], &["why", "--path", "/etc"]] {
        let output = Command::new(runner())
            .args(words)
            .args(["--report", text(&page), "--", "true"])
            .output()
            .expect("started");
        let all = [output.stdout, output.stderr].concat();
        let all = String::from_utf8_lossy(&all);
        assert!(all.contains("--report is ignored"), "{all}");
        assert!(!page.exists());
    }
}

/// The pages of four outcomes, in one directory.
fn four_outcomes(place: &Place) -> PathBuf {
    let directory = place.ground.path("pages");
    std::fs::create_dir(&directory).expect("made");
    let hostile = place.ground.path("hostile").join(HOSTILE.replace('/', "|"));
    std::fs::create_dir_all(&hostile).expect("made");
    let workspace = place.ground.workspace();
    let (hostile, rw) = (text(&hostile), text(&workspace));
    let denied = "import socket, sys\n\
                  for host in ('evil.example', '192.0.2.1'):\n \
                      try: socket.create_connection((host, 443), 2)\n \
                      except OSError: pass\n\
                  sys.exit(1)";
    let hungry =
        "import time\nkept = []\nwhile True: kept.append(bytearray(1 << 20)); time.sleep(0.01)";
    let view = ["--ro", hostile, "--rw", rw];
    for (name, flags, body, outcome) in [
        (
            "success",
            &[][..],
            &["sh", "-c", "sleep 0.6", HOSTILE][..],
            "exited",
        ),
        (
            "denied",
            &["--allow-net", "example.org"],
            &["python3", "-c", denied, HOSTILE],
            "exited",
        ),
        (
            "memory",
            &["-m", "32m"],
            &["python3", "-c", hungry, HOSTILE],
            "out_of_memory",
        ),
        (
            "timeout",
            &["--timeout", "1s"],
            &["sh", "-c", "sleep 600", HOSTILE],
            "timed_out",
        ),
    ] {
        let words = [flags, &view, &["--"], body].concat();
        let page = directory.join(format!("{name}.html"));
        let done = place.case(&page, &words).done();
        assert_eq!(done.outcome(), outcome, "{done:?}");
        if name == "denied" {
            assert!(
                !done.report["denials"]
                    .as_array()
                    .expect("a list")
                    .is_empty()
            );
        }
        let page = std::fs::read_to_string(&page).expect("a page");
        assert!(page.contains(LISTED) && !page.contains("<script"), "{page}");
    }
    directory
}

/// hostile names stay text.
#[test]
fn hostile_names_are_text_in_the_page_of_each_outcome() {
    if has("python3") {
        four_outcomes(&Place::new());
    }
}

/// hostile names stay text. Contrast, landmarks, names of pictures and the like are checked by axe.
#[test]
fn chromium_shows_four_outcomes_at_two_widths_in_both_colour_schemes() {
    if !["chromium", "node", "npm", "python3"]
        .iter()
        .all(|name| has(name))
    {
        return;
    }
    let packages = [("playwright-core", "1.65.1"), ("axe-core", "4.14.1")];
    let [Some(playwright), Some(axe)] = packages.map(|(name, version)| npm_package(name, version))
    else {
        return;
    };
    let place = Place::new();
    let pages = four_outcomes(&place);
    let script = place.ground.write("browser.mjs", BROWSER);
    let home = place.ground.path("home");
    std::fs::create_dir(&home).expect("made");
    let mut node = tool("node");
    node.arg(script).args([&playwright, &axe]);
    node.args(["/usr/bin/chromium", text(&pages)]);
    node.args(["success", "denied", "memory", "timeout"]);
    let output = node.env("HOME", &home).output().expect("node starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert_eq!(said, "looked at 16 views\n", "{errors}");
    let pictures = std::fs::read_dir(&pages).expect("listed").filter(|entry| {
        let path = entry.as_ref().expect("listed").path();
        path.extension().is_some_and(|extension| extension == "png")
    });
    assert_eq!(pictures.count(), 16);
    if let Some(kept) = std::env::var_os("RUNNER_TESTS_SCREENSHOTS") {
        let mut copy = Command::new("cp");
        let copied = copy.arg("-rT").arg(&pages).arg(kept).status();
        assert!(copied.expect("started").success());
    }
}
