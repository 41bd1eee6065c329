//! Descriptors and links of /proc that lead outside: inherited ones, and the runner's own program.

use std::path::PathBuf;

use super::attempts::{assert_all_refused, assert_lines, attempt, case, program};
use support::bodies::{compile, copy_program};
use support::{Ground, runner, tier_includes};

const LIST: &str = include_str!("../bodies/escapes/descriptors_list.c");
const ONLY_THE_THREE: &str = "0 null ENOTDIR\n1 pipe ENOTDIR\n2 pipe ENOTDIR";

/// B-01 (CVE-2024-21626, CVE-2016-9962).
#[test]
fn the_body_has_its_three_streams_and_no_other_descriptor() {
    let ground = Ground::new();
    assert_lines(&attempt(&ground, "list-descriptors", LIST), ONLY_THE_THREE);
}

/// B-03 (CVE-2024-21626).
#[test]
fn descriptors_that_the_caller_left_open_do_not_reach_the_body() {
    let ground = Ground::new();
    let canary = ground.path("canary");
    let open_fifty = format!(
        "for n in $(seq 10 58); do eval \"exec $n<'{0}/file'\"; done; exec 59<'{0}'; exec \"$@\"",
        canary.display()
    );
    let started = case(&ground, &[], &program("list-descriptors", LIST), &[]);
    let done = started.through("bash", &["-c", &open_fifty, "bash"]).done();
    done.assert_exited(0);
    assert_lines(&done, ONLY_THE_THREE);
}

/// B-02 (CVE-2024-21626).
#[test]
fn a_working_directory_that_leads_through_proc_stays_inside_or_is_refused() {
    let ground = Ground::new();
    // Climbs up and checks whether the top is the sandbox's root.
    let text = include_str!(
        "../bodies/escapes/a_working_directory_that_leads_through_proc_stays_inside_or_is_refused.c"
    );
    let climb = program("climb", text);
    let mut started = 0;
    // The creation uses the directory: later commands make no difference.
    let is_sampled = super::IS_LATER && !tier_includes("long");
    let links = (3..24).step_by(if is_sampled { 7 } else { 1 });
    let links = links.map(|fd| format!("/proc/self/fd/{fd}"));
    let others = [
        "/proc/self/fd/7/../../..",
        "/proc/thread-self/fd/6",
        "/dev/fd/6",
        "/dev/stdin",
        "/proc/self/cwd/..",
        "/proc/self/root",
        "/proc/1/cwd",
        "/proc/1/root/tmp",
        "/proc/1/fd/6",
        "/tmp/../../..",
    ];
    for directory in links.chain(others.map(str::to_owned)) {
        let done = case(&ground, &["-w", &directory], &climb, &[]).done();
        match done.outcome() {
            "exited" => {
                assert_eq!(done.text(), "inside\n", "{directory}");
                started += 1;
            }
            outcome => {
                assert!(matches!(outcome, "refused" | "failed"), "{done:#?}");
                assert_eq!((done.code, done.text().as_str()), (125, ""), "{directory}");
            }
        }
    }
    assert!(started < 10, "nearly all of them must be refused");
    let done = case(&ground, &["-w", "/usr/.."], &climb, &[]).done();
    done.assert_exited(0);
    assert_eq!(done.text(), "inside\n");
}

/// B-04 (CVE-2019-5736): init's program through /proc/1/exe.
#[test]
fn the_program_of_init_cannot_be_opened() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/the_program_of_init_cannot_be_opened.c");
    let done = attempt(&ground, "exe-of-init", text);
    assert_all_refused(&done, 6, &["EACCES"]);
}

/// B-04 (CVE-2019-5736): the bundle makes the runner's own program run inside, with a library of
/// the bundle; the program belongs to the caller. After it has ended, only the sandbox stands
/// between a kept descriptor and the file.
#[test]
fn the_runner_s_program_is_unchanged_after_a_body_that_is_the_runner_itself() {
    let ground = Ground::new();
    let copy = ground.path("runner-copy");
    copy_program(runner(), &copy);
    let before = std::fs::read(&copy).expect("readable");
    let folder = ground.path("evil");
    std::fs::create_dir(&folder).expect("made");
    // Loaded into the runner: keeps a descriptor of its file in a process that then executes
    // another program.
    let library = include_str!(
        "../bodies/escapes/the_runner_s_program_is_unchanged_after_a_body_that_is_the_runner_itself.c"
    );
    compile(
        library,
        &folder.join("evil.so"),
        &["-shared", "-fPIC", "-nostartfiles"],
    );
    let overwrite = include_str!(
        "../bodies/escapes/the_runner_s_program_is_unchanged_after_a_body_that_is_the_runner_itself.sh"
    );
    std::fs::write(folder.join("overwrite.sh"), overwrite).expect("written");
    std::fs::write(folder.join("entry.sh"), "#!/proc/self/exe\n").expect("written");
    for name in ["entry.sh", "evil.so", "overwrite.sh"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.join(name), mode).expect("set");
    }
    let bundle: PathBuf = support::bundles::pack(&folder);
    for preload in ["LD_PRELOAD=/bundle/evil.so", "NOTHING=1"] {
        let mut started = ground.command(&[
            "exec",
            "-e",
            preload,
            "--run",
            r#"["/bundle/entry.sh"]"#,
            bundle.to_str().expect("a plain path"),
        ]);
        let words: Vec<_> = started
            .command
            .get_args()
            .map(std::ffi::OsStr::to_owned)
            .collect();
        let environment: Vec<_> = started
            .command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        started.command = std::process::Command::new(&copy);
        started.command.args(words).envs(environment);
        started
            .command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let done = started.done();
        if done.report["enforcement"]["landlock"]["state"] == "enforced" {
            // It is outside of what may be executed, so it does not even start.
            done.assert_error("failed", "program_not_executable");
        }
        assert!(
            !done.text().contains("written") && !done.text().contains("changed"),
            "{done:#?}"
        );
        let metadata = std::fs::metadata(&copy).expect("there");
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
        assert_eq!(mode & 0o6000, 0, "{done:#?}");
        let now = std::fs::read(&copy).expect("readable");
        assert!(now == before, "the runner's program was changed\n{done:#?}");
    }
}
