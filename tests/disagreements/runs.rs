//! Rows that only a run decides.

use serde_json::{Value, json};

use support::{Done, Ground, runner};

fn exec(ground: &Ground, flags: &[&str], files: &[(&str, &str)]) -> Done {
    let workspace = ground.workspace();
    let workspace = workspace.to_str().expect("a plain path");
    let flags: Vec<&str> = ["--workspace", workspace]
        .iter()
        .chain(flags)
        .copied()
        .collect();
    ground.exec(&flags, &ground.bundle(files))
}

fn warns(done: &Done, code: &str) -> bool {
    let warnings = done.report["warnings"].as_array().expect("a list");
    warnings.iter().any(|warning| warning["code"] == code)
}

fn limit<'done>(done: &'done Done, name: &str) -> &'done Value {
    let limits = done.report["limits"].as_object().expect("an object");
    limits
        .get(name)
        .unwrap_or_else(|| panic!("no limit {name}: {limits:#?}"))
}

/// Rows 4 and 31.
#[test]
fn strict_turns_warnings_into_refusals() {
    for (block, code) in [
        ("provider: local", "config_missing"),
        (
            "provider: local, config: {}, extraPorts: [80]",
            "unspecified_key",
        ),
    ] {
        let ground = Ground::new();
        let manifest = format!("run: body.sh\nsandbox: {{{block}}}\n");
        let files = [
            ("manifest.yaml", manifest.as_str()),
            ("body.sh", "exit 0\n"),
        ];
        let done = exec(&ground, &[], &files);
        done.assert_exited(0);
        assert!(warns(&done, code), "{done:#?}");
        let done = exec(&ground, &["--strict"], &files);
        assert_eq!((done.outcome(), done.code), ("refused", 125), "{done:#?}");
    }
}

/// Row 23.
#[test]
fn of_two_stated_times_the_shorter_holds_and_the_report_names_who_stated_it() {
    for (runner_ms, sandbox_ms, winner) in [
        (50_000, 40_000, "sandbox.limits.timeout_ms"),
        (40_000, 50_000, "runner.limits.timeout_ms"),
    ] {
        let ground = Ground::new();
        let manifest = format!(
            "run: body.sh\nrunner: {{limits: {{timeout_ms: {runner_ms}}}}}\n\
             sandbox: {{provider: local, config: {{}}, limits: {{timeout_ms: {sandbox_ms}}}}}\n"
        );
        let done = exec(
            &ground,
            &[],
            &[("manifest.yaml", &manifest), ("body.sh", "exit 0\n")],
        );
        done.assert_exited(0);
        let time = limit(&done, "wall_time_ms");
        assert_eq!(time["effective"], 40_000, "{time}");
        assert_eq!(time["source"], winner, "{time}");
    }
    let ground = Ground::new();
    let silent = "run: body.sh\nsandbox: {provider: local, config: {}}\n";
    let done = exec(
        &ground,
        &[],
        &[("manifest.yaml", silent), ("body.sh", "exit 0\n")],
    );
    assert_eq!(limit(&done, "wall_time_ms")["effective"], 30_000);
    let done = exec(
        &ground,
        &[],
        &[("manifest.yaml", "run: body.sh\n"), ("body.sh", "exit 0\n")],
    );
    assert_eq!(limit(&done, "wall_time_ms")["effective"], 600_000);
}

/// Row 24.
#[test]
fn a_downgrade_of_the_engine_is_in_the_report() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nrunner: {engine: in-process}\n";
    let done = exec(
        &ground,
        &[],
        &[("manifest.yaml", manifest), ("body.sh", "exit 0\n")],
    );
    done.assert_exited(0);
    assert!(warns(&done, "engine_downgraded"), "{done:#?}");
}

/// Row 26: the host policy restricts what is requested, and the plan says so.
#[test]
fn the_plan_shows_what_the_host_policy_allows_of_each_host() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nnetwork: {egress: [x.c.org, '*.c.org:443', z.org]}\n";
    let bundle = ground.bundle(&[("manifest.yaml", manifest), ("body.sh", "exit 0\n")]);
    let policy = ground.write("policy.yaml", "egress: {allow: ['*.c.org']}\n");
    let output = std::process::Command::new(runner())
        .args(["plan", "--json", "--policy"])
        .args([&policy, &bundle])
        .output()
        .expect("the runner starts");
    let plan: Value = serde_json::from_slice(&output.stdout).expect("a plan");
    let hosts = plan["egress"].as_array().expect("a list").iter();
    let left: Vec<(&str, &Value)> = hosts
        .map(|row| {
            (
                row["host"].as_str().expect("a host"),
                &row["host_policy_leaves"],
            )
        })
        .collect();
    assert_eq!(
        left,
        [
            ("x.c.org", &json!(["x.c.org"])),
            ("*.c.org:443", &json!(["*.c.org:443"])),
            ("z.org", &json!([])),
        ]
    );
}

/// Row 25.
#[test]
fn an_unmet_need_is_a_warning_for_the_hosts_programs_and_a_refusal_for_an_image() {
    let ground = Ground::new();
    let needs = "needs: {native: [no-such-package-anywhere]}";
    let manifest = format!("run: body.sh\nrunner: {{{needs}}}\n");
    let done = exec(
        &ground,
        &[],
        &[("manifest.yaml", &manifest), ("body.sh", "exit 0\n")],
    );
    done.assert_exited(0);
    assert!(warns(&done, "needs_unsatisfied"), "{done:#?}");
    let Some(image) = support::images::tiny() else {
        return;
    };
    for (needs, name) in [
        (needs, "no-such-package-anywhere"),
        (
            "needs: {language: python}",
            &*format!("image {} lacks", image.place()),
        ),
    ] {
        let manifest = format!("run: sh body.sh\nrunner: {{engine: sandbox, {needs}}}\n");
        let done = exec(
            &ground,
            &["--image", &image.place()],
            &[("manifest.yaml", &manifest), ("body.sh", "exit 0\n")],
        );
        done.assert_error("refused", "needs_unsatisfied");
        let message = done.report["error"]["message"].as_str().expect("a message");
        assert!(message.contains(name), "{message}");
    }
}

/// Rows 28 and 29.
#[test]
fn outputs_are_synced_to_the_workspace_at_the_end_and_only_a_required_one_fails_the_run() {
    let ground = Ground::new();
    let manifest = "run: body.sh\noutputsFiles:\n\
                    \x20 made: {path: out/made.txt}\n\x20 missing: {path: out/missing.txt}\n";
    let files = [
        ("manifest.yaml", manifest),
        ("body.sh", "echo made > /scratch/made\n"),
    ];
    let done = exec(&ground, &[], &files);
    done.assert_exited(0);
    let made = std::fs::read_to_string(ground.workspace().join("out/made.txt"));
    assert_eq!(made.expect("synced"), "made\n");
    assert!(!ground.workspace().join("out/missing.txt").exists());
    assert!(
        !done.report["warnings"]
            .as_array()
            .expect("a list")
            .is_empty(),
        "{done:#?}"
    );
    let required = manifest.replace("missing.txt}", "missing.txt, required: true}");
    let files = [("manifest.yaml", required.as_str()), files[1]];
    let done = exec(&ground, &[], &files);
    done.assert_error("failed", "missing-artifact");
    assert_eq!(done.code, 125, "{done:#?}");
}

/// Row 20, for archives: if no link leads outside, links are unpacked as links.
#[test]
fn a_link_inside_the_bundle_is_kept_and_one_that_leaves_it_is_refused() {
    for (target, code) in [("data.txt", 0), ("../outside", 125), ("/etc/passwd", 125)] {
        let ground = Ground::new();
        let folder = ground.path("folder");
        std::fs::create_dir(&folder).expect("made");
        std::fs::write(folder.join("data.txt"), "inside\n").expect("written");
        std::os::unix::fs::symlink(target, folder.join("link")).expect("linked");
        let archive = support::bundles::pack(&folder);
        let done = ground.exec(&["--run", "[\"cat\", \"link\"]"], &archive);
        assert_eq!(done.code, code, "{target}: {done:#?}");
        assert_eq!(done.text() == "inside\n", code == 0, "{target}");
    }
}
