//! `--events`: a run says what happens while it goes on, and is never changed by who listens.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::path::Path;

use runner::cli::schema;
use runner::cli::schema::SchemaName;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use serde_json::Value;

use support::bodies::c_body;
use support::{Done, Ground};

/// The events in a text, each valid against the schema, with numbers that are all there.
fn events_of(text: &str) -> Vec<Value> {
    let schema = serde_json::from_str(&schema::text(SchemaName::Events)).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    for (number, event) in events.iter().enumerate() {
        assert!(schema.is_valid(event), "{event}");
        assert_eq!(event["seq"], number);
    }
    events
}

fn read(path: &Path) -> Vec<Value> {
    events_of(&std::fs::read_to_string(path).expect("read"))
}

fn names(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| {
        let phase = event["phase"].as_str().unwrap_or_default();
        format!("{} {phase}", event["event"].as_str().expect("text"))
    };
    let names = events.iter().map(name);
    names.map(|name| name.trim_end().to_owned()).collect()
}

/// What is given as `--events`.
fn flag(path: &Path) -> String {
    format!("--events={}", path.display())
}

fn lost(done: &Done) -> String {
    let warnings = done.report["warnings"].as_array().expect("a list");
    let lost = warnings.iter().filter(|one| one["code"] == "events_lost");
    let messages = lost.map(|one| one["message"].as_str().expect("text"));
    messages.collect::<Vec<_>>().join("; ")
}

#[test]
fn every_phase_begins_and_ends_and_the_last_event_is_the_end() {
    let ground = Ground::new();
    let file = ground.write("events", "what was there before\n");
    let bundle = ground.bundle(&[
        ("manifest.yaml", "run: [sh, main.sh]\n"),
        ("main.sh", "printf made > /scratch/x; exit 3\n"),
    ]);
    let workspace = ground.workspace();
    let done = ground.exec(
        &[
            &flag(&file),
            "--out",
            "x=x.txt",
            "--workspace",
            workspace.to_str().expect("text"),
        ],
        &bundle,
    );
    done.assert_exited(3);
    let events = read(&file);
    let phases = [
        "prepare", "unpack", "plan", "stage", "launch", "body", "sync", "clean",
    ];
    let mut expected = vec!["started".to_owned()];
    for phase in phases {
        expected.push(format!("phase_started {phase}"));
        expected.extend((phase == "sync").then(|| "output".to_owned()));
        expected.push(format!("phase_ended {phase}"));
    }
    expected.push("ended".to_owned());
    assert_eq!(names(&events), expected);
    let timings = done.report["timings_ms"].as_object().expect("an object");
    assert_eq!(timings.keys().collect::<Vec<_>>().len(), phases.len());
    for event in &events {
        assert_eq!(event["run_id"], done.report["run_id"]);
        if event["event"] == "phase_ended" {
            let phase = event["phase"].as_str().expect("text");
            assert_eq!(event["duration_ms"], timings[phase], "{phase}");
        }
    }
    let of_kind = |kind: &str| {
        let mut found = events.iter().filter(|event| event["event"] == kind);
        found.next().expect("an event").clone()
    };
    assert_eq!(of_kind("output")["output"], done.report["outputs"][0]);
    assert_eq!(of_kind("output")["output"]["state"], "synced");
    let ended = of_kind("ended");
    assert_eq!(
        (&ended["outcome"], &ended["exit"]["code"]),
        (&"exited".into(), &3.into())
    );
}

/// A reader sees the body begin while it goes on.
#[test]
fn events_arrive_while_the_body_runs() {
    let ground = Ground::new();
    let file = ground.path("events");
    let words = ["run", &flag(&file), "--", "sh", "-c", "exec sleep 600"];
    let mut running = ground.command(&words).start();
    running.until("the phase of the body", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.ends_with("\"phase_started\",\"phase\":\"body\"}\n")
    });
    running.until_body_is("sleep");
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.done().outcome(), "cancelled");
    let last = read(&file).pop().expect("an event");
    assert_eq!(
        (&last["outcome"], &last["cancelled_by"]),
        (&"cancelled".into(), &15.into())
    );
}

/// The objects of the events of one name.
fn objects(events: &[Value], name: &str) -> Vec<String> {
    let of_name = events.iter().filter(|event| event["event"] == name);
    let object = |event: &Value| event["denial"]["object"].as_str().expect("text").to_owned();
    of_name.map(object).collect()
}

/// A reader sees what the body was denied while it goes on, and at the end how often.
#[test]
fn the_first_of_equal_denials_is_an_event_while_the_body_runs() {
    let ground = Ground::new();
    let file = ground.path("events");
    let key = ground.write("home/key", "");
    let key = key.to_str().expect("text");
    let script = format!(
        "cat {key} {key}; kill -0 1; chroot / true; sleep 0.3; cat {key}; chroot / true; sleep 600"
    );
    let words = ["run", &flag(&file), "--trace", "--", "sh", "-c", &script];
    let mut running = ground.command(&words).start();
    let is_refused = sys::landlock::abi().is_ok_and(|abi| 6 <= abi);
    let expected = if is_refused { 3 } else { 2 };
    // Each in lines that are whole.
    let is_there = |text: &str| {
        ["chroot", "process 1", key]
            .iter()
            .filter(|object| text.contains(**object))
            .count()
            == expected
    };
    running.until("the denials", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.ends_with('\n') && is_there(&text)
    });
    std::thread::sleep(std::time::Duration::from_secs(1));
    running.signal(rustix::process::Signal::TERM);
    let done = running.done();
    let events = read(&file);
    let first = objects(&events, "first_denial");
    let own: Vec<_> = first
        .iter()
        .filter(|object| *object == key || !object.starts_with('/'))
        .collect();
    assert_eq!(own.len(), expected, "{own:?}");
    for event in events
        .iter()
        .filter(|event| event["event"] == "first_denial")
    {
        let object = &event["denial"]["object"];
        let mut all = done.report["denials"].as_array().expect("a list").iter();
        let mut same = all
            .find(|one| one["object"] == *object)
            .expect("listed")
            .clone();
        assert!(event["denial"]["count"].as_u64() <= same["count"].as_u64());
        same["count"] = event["denial"]["count"].clone();
        assert_eq!(event["denial"], same);
    }
    let reported = done.report["denials"].as_array().expect("a list");
    let count = reported.iter().find(|one| one["object"] == key);
    assert_eq!(count.expect("listed")["count"], 3);
    assert_eq!(objects(&events, "denial").len(), reported.len());
    let names = names(&events);
    let last = names.iter().rposition(|name| name == "first_denial");
    let ended = names.iter().position(|name| name == "phase_ended body");
    assert!(last < ended, "{names:?}");
}

/// C-43: the events have the limit of the report.
#[test]
fn no_more_first_denials_are_events_than_the_report_lists() {
    let ground = Ground::new();
    let file = ground.path("events");
    let key = ground.write("home/key", "");
    let body = c_body("kinds", include_str!("bodies/trace/kinds.c"));
    let [key, body] = [&key, &body].map(|path| path.to_str().expect("text"));
    let done = ground.run(&[&flag(&file), "--trace", "--ro", body], &[body, key]);
    done.assert_exited(0);
    let events = read(&file);
    let first = objects(&events, "first_denial");
    assert_eq!(first.len(), 1_000);
    assert!(first.iter().all(|object| object.starts_with("socket(")));
    assert!(objects(&events, "denial").contains(&key.to_owned()));
}

/// F-03
#[test]
fn no_first_denial_has_the_value_of_a_secret() {
    let ground = Ground::new();
    let file = ground.path("events");
    let value = "Hidden-Value-4711";
    ground.write(&format!("home/{value}"), "");
    let directory = ground.path("home");
    let script = format!("cat {}/$S; sleep 0.5", directory.display());
    let words = ["run", &flag(&file), "--trace", "--secret", "S=env:VALUE"];
    let words = [&words[..], &["--", "sh", "-c", &script]].concat();
    let done = ground.command(&words).env("VALUE", value).done();
    done.assert_exited(0);
    let first = objects(&read(&file), "first_denial");
    let masked = format!("{}/***", directory.display());
    assert!(first.contains(&masked), "{first:?}");
    let text = std::fs::read_to_string(&file).expect("read");
    assert!(!text.contains(value), "{text}");
}

#[test]
fn a_run_that_is_refused_ends_too() {
    let ground = Ground::new();
    let file = ground.path("events");
    let refused = ground.run(&[&flag(&file), "--in", "malformed"], &["true"]);
    assert_eq!(refused.outcome(), "refused");
    let events = read(&file);
    assert_eq!(names(&events), ["ended"]);
    assert_eq!(events[0]["error"], refused.report["error"]);
    let refused = ground.run(&[&flag(&file), "--ro", "/nonexistent/path"], &["true"]);
    assert_eq!(refused.outcome(), "refused");
    let events = read(&file);
    let names = names(&events);
    assert_eq!(names.first().map(String::as_str), Some("started"));
    assert_eq!(names.last().map(String::as_str), Some("ended"));
    assert!(
        !names.contains(&"phase_started body".to_owned()),
        "{names:?}"
    );
}

/// F-03
#[test]
fn no_event_has_the_value_of_a_secret() {
    let ground = Ground::new();
    let file = ground.path("events");
    let value = "Hidden-Value-4711";
    let done = ground
        .command(&[
            "run",
            &flag(&file),
            "--report-denials",
            "--secret",
            "S=env:VALUE",
            "--",
            "sh",
            "-c",
            "getent ahostsv4 $S.example.com; true",
        ])
        .env("VALUE", value)
        .done();
    done.assert_exited(0);
    let events = read(&file);
    let denial = events.iter().find(|event| event["event"] == "denial");
    assert_eq!(
        denial.expect("a denial")["denial"],
        done.report["denials"][0]
    );
    let text = std::fs::read_to_string(&file).expect("read");
    assert!(text.contains("***.example.com"), "{text}");
    assert!(!text.to_ascii_lowercase().contains("hidden"), "{text}");
}

#[test]
fn a_full_disk_and_a_reader_that_went_away_are_warnings_and_the_run_goes_on() {
    let ground = Ground::new();
    let full = ground.run(&["--events=/dev/full"], &["echo", "done"]);
    full.assert_exited(0);
    assert_eq!(full.text(), "done\n");
    assert!(lost(&full).contains("18 of 18 events"), "{}", lost(&full));

    let fifo = ground.path("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).expect("made");
    let unread = ground.run(&[&flag(&fifo)], &["true"]);
    unread.assert_error("refused", "report_unwritable");
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let reader = rustix::fs::open(&fifo, flags, Mode::empty()).expect("opened");
    let words = ["run", &flag(&fifo), "--", "sh", "-c", "exec sleep 600"];
    let mut running = ground.command(&words).start();
    running.until_body_is("sleep");
    drop(reader);
    running.signal(rustix::process::Signal::TERM);
    let done = running.done();
    assert_eq!(done.outcome(), "cancelled");
    assert!(lost(&done).contains("Broken pipe"), "{}", lost(&done));
}

/// A pipe that is full, and that is never read, delays nothing.
#[test]
fn a_reader_that_has_stopped_does_not_stop_the_run() {
    let ground = Ground::new();
    let fifo = ground.path("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).expect("made");
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let pipe = rustix::fs::open(&fifo, flags, Mode::empty()).expect("opened");
    while rustix::io::write(&pipe, &[b'x'; 4096]).is_ok() {}
    let done = ground.run(&[&flag(&fifo)], &["echo", "done"]);
    done.assert_exited(0);
    assert_eq!(done.text(), "done\n");
    assert!(lost(&done).contains("18 of 18 events"), "{}", lost(&done));
    assert!(lost(&done).contains("too slow"), "{}", lost(&done));
}

#[test]
fn a_descriptor_gets_the_events_and_the_bodys_own_are_refused() {
    let ground = Ground::new();
    let file = ground.path("events");
    let runner = support::runner();
    let script = "exec \"$1\" run --no-record --events=fd:5 -- echo body 5>\"$2\"";
    let output = std::process::Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(runner)
        .arg(&file)
        .output()
        .expect("started");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "body\n");
    assert_eq!(
        names(&read(&file)).last().map(String::as_str),
        Some("ended")
    );
    let link = ground.path("link");
    std::os::unix::fs::symlink("events", &link).expect("linked");
    let link = link.to_str().expect("text");
    for target in [
        "fd:1",
        "fd:2",
        "/dev/stdout",
        "fd:x",
        "fd:1000000",
        link,
        "/nonexistent/x",
    ] {
        let refused = ground.run(&[&format!("--events={target}")], &["true"]);
        refused.assert_error("refused", "report_unwritable");
        let message = refused.report["error"]["message"].as_str().expect("text");
        assert!(message.contains("--events="), "{target}: {message}");
    }
}

/// The body can write where the events are: it may change the file, but not pretend to be it.
#[test]
fn a_file_that_the_body_put_in_the_place_of_the_events_is_reported() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    let file = workspace.join("events");
    let rw = workspace.to_str().expect("text");
    let body = format!("rm {0} && echo forged > {0}", file.display());
    let done = ground.run(&[&flag(&file), "--rw", rw], &["sh", "-c", &body]);
    done.assert_exited(0);
    assert!(
        lost(&done).contains("another file took its place"),
        "{}",
        lost(&done)
    );
}
