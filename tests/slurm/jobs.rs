//! Jobs that end by themselves.

use support::is_root;

use crate::cluster::Cluster;

/// A bundle whose body is this script.
pub fn script(cluster: &Cluster, body: &str) -> String {
    let manifest = "name: script\nrun: body.sh\n";
    let text = format!("#!/bin/sh\n{body}\n");
    let files = [("manifest.yaml", manifest), ("body.sh", &*text)];
    let bundle = cluster.ground.bundle(&files);
    bundle.to_str().expect("a plain path").to_owned()
}

#[test]
fn srun_passes_on_the_output_and_the_exit_code_of_runner() {
    let Some(cluster) = Cluster::start("pgid") else {
        return;
    };
    let bundle = script(&cluster, "echo out; echo err >&2; exit $1");
    for code in [0, 3] {
        let words = [
            "srun",
            "runner",
            "exec",
            "--json=report.json",
            &*bundle,
            "--",
        ];
        let output = cluster.run(&[&words[..], &[&code.to_string()]].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "out\n");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.lines().any(|line| line == "err"), "{said}");
        let report = cluster.report("report.json");
        assert_eq!(report["outcome"], "exited");
        assert_eq!(report["exit"]["code"], code);
        cluster.assert_nothing_left(report["run_id"].as_str().expect("a name"));
    }

    let refused = cluster.ground.bundle(&[("manifest.yaml", "run: 5\n")]);
    let refused = refused.to_str().expect("a plain path");
    let output = cluster.run(&["srun", "runner", "exec", refused]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_eq!(output.stdout, b"");

    let late = script(&cluster, "exec sleep 60");
    let output = cluster.run(&["srun", "runner", "exec", "--timeout=1s", &late]);
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    cluster.assert_no_process_left();
}

#[test]
fn a_batch_job_has_the_exit_code_of_its_run() {
    let Some(cluster) = Cluster::start("pgid") else {
        return;
    };
    for (start, code, state) in [
        ("exec", 0, "COMPLETED"),
        ("exec", 3, "FAILED"),
        ("srun", 3, "FAILED"),
    ] {
        let bundle = script(&cluster, &format!("exit {code}"));
        let job = format!("#!/bin/sh\n{start} runner exec --json=report.json {bundle}\n");
        cluster.ground.write("work/job.sbatch", job);
        let output = cluster.run(&["sbatch", "--wait", "--parsable", "job.sbatch"]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let job = String::from_utf8_lossy(&output.stdout);
        assert_eq!(cluster.field(job.trim(), "ExitCode"), format!("{code}:0"));
        assert_eq!(cluster.field(job.trim(), "JobState"), state);
        assert_eq!(cluster.report("report.json")["exit"]["code"], code);
    }
}

/// sbatch passes on the environment of a login session, which has a directory that other nodes do not have.
#[test]
fn the_directory_of_a_session_need_not_exist_on_the_node() {
    let Some(cluster) = Cluster::start("pgid") else {
        return;
    };
    let bundle = script(&cluster, "echo ran");
    let elsewhere = cluster.ground.path("of-a-session");
    let mut command = cluster.command(&["srun", "runner", "exec", &bundle]);
    command
        .env_remove("RUNNER_OPT_RUNTIME_DIRECTORY")
        .env("XDG_RUNTIME_DIR", elsewhere);
    let output = command.output().expect("started");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, b"ran\n");
}

#[test]
fn a_run_without_a_cgroup_is_told_so() {
    if is_root() {
        return println!("root may make cgroups: as an ordinary user only");
    }
    let Some(cluster) = Cluster::start("pgid") else {
        return;
    };
    let bundle = script(&cluster, "echo ran");
    let run = |flags: &[&str]| {
        let words = [&["srun", "runner", "exec"], flags, &[&*bundle]].concat();
        let mut command = cluster.command(&words);
        command.env_remove("RUNNER_OPT_CGROUP_PARENT");
        command.output().expect("started").status.code()
    };
    assert_eq!(run(&["--json=report.json"]), Some(0));
    let report = cluster.report("report.json");
    assert_eq!(report["enforcement"]["memory"]["state"], "weaker");
    assert_eq!(run(&["--limits=require"]), Some(125));
}
