//! The environment of the body.

use support::Ground;
use support::text;

/// Every process of the ground is marked by a variable, which `-e` would replace.
fn marker(ground: &Ground) -> String {
    format!("RUNNER_TEST_MARKER={}", ground.marker())
}

fn names(text: &str) -> Vec<&str> {
    let mut names: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn the_environment_is_exactly_what_is_documented() {
    let ground = Ground::new();
    let bundle = ground.bundle(&[("manifest.yaml", "run: [env]\n")]);
    let done = ground
        .command(&["exec", text(&bundle)])
        .env("LD_PRELOAD", "")
        .env("BASH_ENV", "/x")
        .done();
    done.assert_exited(0);
    let text = done.text();
    let expected = [
        "HOME",
        "JAVA_TOOL_OPTIONS",
        "LANG",
        "NODE_OPTIONS",
        "PATH",
        "RUNNER_INPUT",
        "RUNNER_OUTPUT",
        "RUNNER_RUN_ID",
        "RUNNER_TEST_MARKER",
        "TMPDIR",
    ];
    assert_eq!(names(&text), expected);
    for line in [
        "HOME=/home/runner",
        "TMPDIR=/tmp",
        "LANG=C.UTF-8",
        "RUNNER_INPUT=/runner/input.json",
        "RUNNER_OUTPUT=/runner/out/output.json",
        "PATH=/bundle/node_modules/.bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
}

#[test]
fn variables_come_from_flags_files_and_the_caller_by_name() {
    let ground = Ground::new();
    let bundle = ground.bundle(&[("manifest.yaml", "run: [env]\n")]);
    let file = ground.write("env", "# words\nA=from file\nB='q'\n\n");
    let marker = marker(&ground);
    let words = [
        "exec",
        "--env-file",
        text(&file),
        "-e",
        "A=from flag",
        "-e",
        "PASSED",
        "-e",
        "EMPTY=",
        "-e",
        &marker,
        text(&bundle),
    ];
    let done = ground
        .command(&words)
        .env("PASSED", "here")
        .env("OTHER", "not")
        .done();
    done.assert_exited(0);
    for line in ["A=from flag", "B='q'", "PASSED=here", "EMPTY="] {
        assert!(
            done.text().lines().any(|one| one == line),
            "{line}: {done:#?}"
        );
    }
    assert!(!done.text().contains("OTHER"));
    let done = ground
        .command(&["exec", "-e", "NOT_SET_7F3A", text(&bundle)])
        .done();
    assert_eq!(done.code, 125);
    assert!(
        done.stdout.is_empty() && done.stderr.contains("NOT_SET_7F3A"),
        "{done:#?}"
    );
}

#[test]
fn a_secret_reaches_the_body_and_nothing_else() {
    let ground = Ground::new();
    let file = ground.write("secret", format!("{}\n", ground.canary()));
    let manifest = "run: body.sh\nsecrets: {FROM_FILE: {vault: a}, FROM_ENV: {vault: b}}\n";
    // The body prints only their lengths, since its output may contain the values.
    let bundle = ground.script(manifest, "echo ${#FROM_FILE} ${#FROM_ENV}; exit 3\n");
    let from_file = format!("FROM_FILE=file:{}", text(&file));
    let words = [
        "exec",
        "-v",
        "--secret",
        &from_file,
        "--secret",
        "FROM_ENV=env:RUNNER_TEST_CANARY_SECRET",
        text(&bundle),
    ];
    let done = ground.command(&words).done();
    done.assert_exited(3);
    let length = ground.canary().len();
    assert_eq!(done.text(), format!("{length} {length}\n"));
}
