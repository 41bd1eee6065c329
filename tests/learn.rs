//! `runner learn`: what the policy has, what it never has, and that nothing of the host changes.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use support::bodies::c_body;
use support::{Case, Done, Ground, runner, skip, text};

const HOSTILE: &str = include_str!("bodies/learn/hostile.py");

/// Files of the home that stay hidden, besides a key.
const HIDDEN: [&str; 10] = [
    ".aws/credentials",
    ".bash_history",
    ".config/gcloud/token",
    ".config/google-chrome/Default/Cookies",
    ".docker/config.json",
    ".gnupg/private-keys-v1.d/key",
    ".kube/config",
    ".mozilla/firefox/logins.json",
    ".netrc",
    ".pgpass",
];

/// A ground whose home has keys.
fn ground() -> Ground {
    let ground = Ground::new();
    ground.write("home/.ssh/id_rsa", "canary of a key");
    ground.write("home/notes", "notes");
    for name in HIDDEN {
        ground.write(&format!("home/{name}"), "canary of a key");
    }
    ground
}

/// `runner WORDS…` in the workspace.
fn case<'ground>(ground: &'ground Ground, words: &[&str]) -> Case<'ground> {
    let mut case = ground
        .command(words)
        .env("HOME", text(&ground.path("home")));
    case.command.current_dir(ground.workspace());
    case
}

/// Learns from `body` to a new `policy.yaml` of the ground.
fn learn(ground: &Ground, flags: &[&str], body: &[&str]) -> Done {
    learn_from(ground, &[flags, &["--"], body].concat())
}

/// The same with the words of a command or a bundle.
fn learn_from(ground: &Ground, words: &[&str]) -> Done {
    let policy = ground.path("policy.yaml");
    if policy.exists() && !words.contains(&"--merge") {
        fs::remove_file(&policy).expect("removed");
    }
    let words = [&["learn", "-o", text(&policy)], words].concat();
    case(ground, &words).done()
}

fn policy(ground: &Ground) -> String {
    fs::read_to_string(ground.path("policy.yaml")).expect("a policy")
}

/// The entries of the policy, without comments.
fn entries(ground: &Ground) -> Vec<String> {
    let lines = policy(ground);
    let lines = lines.lines().filter(|line| !line.trim().starts_with('#'));
    lines
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Runs `body` under the policy, in another directory.
fn run(ground: &Ground, directory: &Path, body: &[&str]) -> Done {
    let policy = ground.path("policy.yaml");
    let words = [&["run", "--policy", text(&policy), "--"], body].concat();
    let mut case = case(ground, &words);
    case.command.current_dir(directory);
    case.done()
}

/// Each path below a directory with inode, mode, size and time of change.
fn states(directory: &Path) -> BTreeMap<String, (u64, u32, u64, i64, i64)> {
    let mut states = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        let found = path.symlink_metadata().expect("there");
        if found.is_dir() {
            let names = fs::read_dir(&path).expect("listed");
            pending.extend(names.map(|name| name.expect("a name").path()));
        }
        let size = if found.is_dir() { 0 } else { found.size() };
        let state = (
            found.ino(),
            found.mode(),
            size,
            found.ctime(),
            found.ctime_nsec(),
        );
        states.insert(text(&path).to_owned(), state);
    }
    states
}

/// the project is as it was.
#[test]
fn the_policy_lets_the_same_command_through_and_learning_changes_nothing() {
    let ground = ground();
    for name in [
        "work/in/a",
        "work/old",
        "work/sub/kept",
        "copy/in/a",
        "copy/old",
    ] {
        ground.write(name, "1\n");
    }
    ground.write("copy/sub/kept", "1\n");
    let before = states(&ground.workspace());
    let script =
        "cat in/a >out; rm old; mkdir -p made/deep; echo 2 >sub/kept; mv sub/kept sub/moved";
    let body = ["sh", "-ec", script];
    learn(&ground, &[], &body).assert_exited(0);
    assert_eq!(states(&ground.workspace()), before);
    assert_eq!(
        entries(&ground),
        ["flags:", "ro: []", "rw:", "- \".\"", "allow_net: []"]
    );
    let copy = ground.path("copy");
    run(&ground, &copy, &body).assert_exited(0);
    assert!(copy.join("made/deep").is_dir() && !copy.join("old").exists());
}

#[test]
fn only_what_is_used_is_in_the_policy() {
    let ground = ground();
    for name in ["work/in/a", "work/out/old", "work/not-used"] {
        ground.write(name, "1\n");
    }
    let body = ["sh", "-ec", "cat in/a >out/new"];
    learn(&ground, &[], &body).assert_exited(0);
    let expected = [
        "flags:",
        "ro:",
        "- \"in/a\"",
        "rw:",
        "- \"out\"",
        "allow_net: []",
    ];
    assert_eq!(entries(&ground), expected);
    run(&ground, &ground.workspace(), &body).assert_exited(0);
    run(&ground, &ground.workspace(), &["cat", "not-used"]).assert_exited(1);
    // A second policy of the same uses is the same.
    let first = policy(&ground);
    learn(&ground, &[], &body).assert_exited(0);
    assert_eq!(policy(&ground), first);
}

/// keys of the home, and of the project.
#[test]
fn credentials_stay_hidden_and_out_of_the_policy() {
    let ground = ground();
    ground.write("work/.env", "TOKEN=canary of a token");
    ground.write("work/sub/server.key", "-----BEGIN PRIVATE KEY-----canary");
    for name in ["a", "b", "c"] {
        ground.write(&format!("work/{name}"), name);
    }
    let ssh = ground.path("home/.ssh");
    let script =
        "cat a b c; cat .env sub/server.key; cat \"$0/id_rsa\" \"$@\"; ls \"$0\"; echo >new";
    let hidden = HIDDEN.map(|name| text(&ground.path(&format!("home/{name}"))).to_owned());
    let mut body = vec!["sh", "-c", script, text(&ssh)];
    body.extend(hidden.iter().map(String::as_str));
    let done = learn(&ground, &[], &body);
    done.assert_exited(0);
    assert_eq!(done.text(), "abc");
    let expected = [
        "flags:",
        "ro:",
        "- \"a\"",
        "- \"b\"",
        "- \"c\"",
        "rw: []",
        "allow_net: []",
    ];
    assert_eq!(entries(&ground), expected);
    let policy = policy(&ground);
    for left_out in [".env", "sub/server.key", "write .: "] {
        assert!(
            policy.contains(&format!(" {left_out}")),
            "{left_out}: {policy}"
        );
    }
    // The caller may name them: the entry is marked.
    let done = learn(&ground, &["--rw", "."], &body);
    assert!(done.text().contains("canary of a token"), "{done:?}");
    assert!(!done.text().contains("canary of a key"));
    assert_eq!(
        entries(&ground),
        ["flags:", "ro: []", "rw:", "- \".\"", "allow_net: []"]
    );
    let marked = "; a file in it may hold credentials (.env)\n    - \".\"\n";
    assert!(self::policy(&ground).contains(marked), "{policy}");
    run(&ground, &ground.workspace(), &body).assert_exited(0);
}

/// a key in a directory that stays hidden.
#[test]
fn what_the_policy_says_about_a_credential_allows_it() {
    let ground = ground();
    let key = ground.path("home/.ssh/id_rsa");
    let body = ["cat", text(&key)];
    learn(&ground, &[], &body).assert_exited(1);
    let hint = format!("to allow it: runner learn --ro {}\n", text(&key));
    assert!(policy(&ground).contains(&hint), "{}", policy(&ground));
    learn(&ground, &["--ro", text(&key)], &body).assert_exited(0);
    let entry = format!("; may hold credentials\n    - \"{}\"\n", text(&key));
    assert!(policy(&ground).contains(&entry), "{}", policy(&ground));
    run(&ground, &ground.workspace(), &body).assert_exited(0);
}

#[test]
fn a_file_that_the_command_makes_and_reads_is_no_entry() {
    let ground = ground();
    ground.write("work/.env", "TOKEN=canary of a token");
    ground.write("work/a", "a");
    let body = ["sh", "-ec", "cat a >new; cat new"];
    learn(&ground, &[], &body).assert_exited(0);
    let expected = ["flags:", "ro:", "- \"a\"", "rw: []", "allow_net: []"];
    assert_eq!(entries(&ground), expected);
    let done = run(&ground, &ground.workspace(), &body);
    done.assert_exited(0);
    assert_eq!(done.text(), "a");
    assert!(!ground.path("work/new").exists());
}

/// also what is meant to break the list of uses.
#[test]
fn hostile_uses_make_a_valid_and_bounded_policy() {
    let ground = ground();
    ground.write("work/kept/file", "1");
    let program = ground.write("work/hostile.py", HOSTILE);
    let before = [states(&ground.workspace()), states(&ground.path("home"))];
    let ssh = ground.path("home/.ssh");
    let body = ["/usr/bin/python3", text(&program), text(&ssh)];
    let flags = ["-m", "512m", "--disk", "256m", "--timeout", "5m"];
    if !Path::new(body[0]).exists() {
        return skip("no /usr/bin/python3");
    }
    learn(&ground, &flags, &body).assert_exited(0);
    assert_eq!(
        [states(&ground.workspace()), states(&ground.path("home"))],
        before
    );
    let policy = policy(&ground);
    assert!(policy.len() < 64 << 10, "{} bytes", policy.len());
    assert_eq!(
        entries(&ground),
        ["flags:", "ro: []", "rw:", "- \".\"", "allow_net: []"]
    );
    assert!(!policy.contains("absent"), "{policy}");
    run(&ground, &ground.workspace(), &["true"]).assert_exited(0);
}

#[test]
fn the_exit_code_is_that_of_the_command_and_the_policy_says_that_it_failed() {
    let ground = ground();
    ground.write("work/a", "a");
    learn(&ground, &[], &["sh", "-c", "cat a; exit 7"]).assert_exited(7);
    assert!(policy(&ground).contains("# The command failed"));
    assert!(policy(&ground).contains("- \"a\""));
    let before = policy(&ground);
    let done = learn(&ground, &["--merge"], &["no-such-program"]);
    assert_eq!(done.code, 127, "{done:?}");
    assert_eq!(policy(&ground), before);
    assert!(
        done.stderr.contains("is not written: nothing was learned"),
        "{done:?}"
    );
}

#[test]
fn a_policy_that_cannot_be_written_is_refused_before_the_command_starts() {
    let ground = ground();
    let other = ground.write("other", "kept");
    symlink(&other, ground.path("link")).expect("made");
    for (target, expected) in [
        ("link", "is a symbolic link"),
        ("none/policy", "No such file"),
    ] {
        let target = ground.path(target);
        let words = [
            "learn",
            "-o",
            text(&target),
            "--",
            "sh",
            "-c",
            "echo started",
        ];
        let done = case(&ground, &words).done();
        assert_eq!((done.code, done.text().as_str()), (125, ""), "{done:?}");
        assert!(done.stderr.contains(expected), "{done:?}");
    }
    assert_eq!(fs::read_to_string(other).expect("there"), "kept");
}

#[test]
fn merging_keeps_and_uses_what_the_policy_had() {
    let ground = ground();
    ground.write("work/a", "a");
    let tool = ground.write("elsewhere/tool", "tool");
    let before = format!(
        "# mine, above\nflags:\n  ro: # mine, within\n  - {}\n  allow_net:\n  - 'a.test:443'\n# mine, below\n",
        text(&tool)
    );
    ground.write("policy.yaml", &before);
    learn(&ground, &["--merge"], &["cat", "a", text(&tool)]).assert_exited(0);
    let expected = before.replace("  allow_net", "  # read: a\n  - \"a\"\n  allow_net");
    let expected = expected.replace("# mine, below", "  rw: []\n# mine, below");
    let (kept, left_out) = policy(&ground).split_once("\n# Left out:").map_or_else(
        || (policy(&ground), String::new()),
        |(kept, left_out)| (kept.to_owned(), left_out.to_owned()),
    );
    assert_eq!(kept, expected, "{left_out}");
    // The same again adds nothing.
    let before = policy(&ground);
    learn(&ground, &["--merge"], &["cat", "a", text(&tool)]).assert_exited(0);
    assert_eq!(policy(&ground), before);
    run(&ground, &ground.workspace(), &["cat", "a", text(&tool)]).assert_exited(0);
    let before = "syscalls: strict # mine\n";
    ground.write("policy.yaml", before);
    learn(&ground, &["--merge"], &["cat", "a"]).assert_exited(0);
    let lists = "flags:\n  ro:\n    # read: a\n    - \"a\"\n  rw: []\n  allow_net: []\n";
    assert!(
        policy(&ground).starts_with(&format!("{before}{lists}")),
        "{}",
        policy(&ground)
    );
    let file = ground.path("policy.yaml");
    let done = learn(
        &ground,
        &["--merge", "--policy", text(&file)],
        &["cat", "a"],
    );
    done.assert_exited(0);
    assert_eq!(done.report["syscall_policy"], "strict");
}

#[test]
fn a_policy_is_never_lost() {
    let ground = ground();
    for (before, flags, error, hint) in [
        ("flags: {}\n", &[][..], "policy_exists", "add --merge"),
        (
            "flags: { ro: [a] }\n",
            &["--merge"],
            "policy_not_merged",
            "block style",
        ),
        (
            "flags:\n  ro: [a]\n",
            &["--merge"],
            "policy_not_merged",
            "block style",
        ),
    ] {
        let file = ground.write("policy.yaml", before);
        let target = text(&file);
        let words = [&["learn", "-o", target], flags, &["--", "echo", "started"]].concat();
        let done = case(&ground, &words).done();
        done.assert_error("refused", error);
        assert_eq!((done.code, done.text().as_str()), (125, ""), "{done:?}");
        assert!(done.stderr.contains(hint), "{done:?}");
        assert_eq!(policy(&ground), before);
    }
    // An empty file has nothing to lose, as that of mktemp.
    let file = ground.write("policy.yaml", "");
    case(&ground, &["learn", "-o", text(&file), "--", "true"])
        .done()
        .assert_exited(0);
    assert!(policy(&ground).contains("flags:"));
}

#[test]
fn a_directory_that_is_not_that_of_a_project_is_refused() {
    let ground = ground();
    let policy = ground.path("policy.yaml");
    for directory in [Path::new("/"), &ground.path("home"), &ground.path(".")] {
        let mut case = case(&ground, &["learn", "-o", text(&policy), "--", "true"]);
        case.command.current_dir(directory);
        let done = case.done();
        assert_eq!(done.code, 125, "{}", directory.display());
        assert!(done.stderr.contains("not that of one project"), "{done:?}");
    }
    let policy = ground.write("deny.yaml", "deny_grants: [mounts, egress]\n");
    let words = ["--policy", text(&policy)];
    let done = learn(&ground, &words, &["true"]);
    assert!(done.stderr.contains("deny_grants"), "{done:?}");
    let done = learn(&ground, &[&words[..], &["--learn-net"]].concat(), &["true"]);
    assert!(
        done.stderr.contains("--learn-net grants egress"),
        "{done:?}"
    );
}

#[test]
fn the_flags_of_a_policy_are_those_of_the_command_line() {
    let ground = ground();
    ground.write("work/a", "a");
    ground.write("policy.yaml", "flags: { ro: [a] }\n");
    run(&ground, &ground.workspace(), &["cat", "a"]).assert_exited(0);
    let denied = ground.write("deny.yaml", "deny_grants: [mounts]\nflags: { ro: [a] }\n");
    let words = ["run", "--policy", text(&denied), "--", "cat", "a"];
    case(&ground, &words)
        .done()
        .assert_error("refused", "grant_forbidden");
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(ground.path("work/a"), mode).expect("set");
    run(&ground, &ground.workspace(), &["cat", "a"]).assert_exited(0);
}

#[test]
fn links_on_the_way_are_in_the_policy() {
    let ground = ground();
    let script = "#!/bin/sh\ncat \"$(dirname \"$(readlink -f \"$0\")\")/../lib/words\"\n";
    ground.program("home/apps/tool-1/bin/run", script);
    ground.write("home/apps/tool-1/lib/words", "words");
    fs::create_dir(ground.path("home/bin")).expect("made");
    symlink("../apps/tool/bin/run", ground.path("home/bin/run")).expect("made");
    symlink("tool-1", ground.path("home/apps/tool")).expect("made");
    let program = ground.path("home/bin/run");
    let body = ["sh", "-c", "\"$0\"", text(&program)];
    let done = learn(&ground, &[], &body);
    done.assert_exited(0);
    let done = run(&ground, &ground.workspace(), &body);
    done.assert_exited(0);
    assert_eq!(done.text(), "words", "{}", policy(&ground));
}

/// what is shown to learn cannot leave.
#[test]
fn the_host_is_not_shown_while_hosts_are_reachable() {
    let ground = ground();
    let notes = ground.path("home/notes");
    let body = ["cat", text(&notes)];
    learn(&ground, &[], &body).assert_exited(0);
    for flags in [&["--learn-net"][..], &["--allow-net", "a.test"]] {
        learn(&ground, flags, &body).assert_exited(1);
    }
    // The hosts of a policy that is merged are not reachable either.
    ground.write("policy.yaml", "flags:\n  allow_net:\n    - 'a.test:443'\n");
    let done = learn(&ground, &["--merge"], &body);
    done.assert_exited(0);
    assert_eq!(done.report["egress"]["allowed"], serde_json::json!([]));
    assert!(policy(&ground).contains("- 'a.test:443'"));
}

#[test]
fn where_calls_cannot_be_traced_nothing_is_learned() {
    let ground = ground();
    let prelude = include_str!("bodies/escapes/attempts_prelude.c");
    let wrapper = include_str!("bodies/escapes/under_a_listener.c");
    let wrapper = c_body("under-a-listener", &format!("{prelude}\n{wrapper}"));
    let policy = ground.path("policy.yaml");
    let mut command = Command::new(wrapper);
    command
        .arg(runner())
        .args(["learn", "-o", text(&policy), "--", "true"]);
    command.current_dir(ground.workspace());
    let done = ground.harness(command).done();
    done.assert_error("failed", "sandbox_step_failed");
    assert!(done.stderr.contains("cannot trace the body"), "{done:?}");
    assert!(!policy.exists());
}

#[test]
fn mounts_of_flags_at_other_paths_are_no_entries() {
    let ground = ground();
    for name in ["work/a", "data/in", "out/old"] {
        ground.write(name, "1\n");
    }
    let [data, out] = ["data", "out"].map(|name| text(&ground.path(name)).to_owned());
    let flags = [
        "--mount",
        &format!("{data}:/data:ro"),
        "--mount",
        &format!("{out}:/out"),
        "--tmpfs",
        "/cache",
        "--rw",
        "../out",
        "--rw",
        "../out",
        "--ro",
        "../data",
    ];
    let script = "cat /data/in a >/out/new; echo >/cache/x; cat /cache/x; cat ../data/in >../out/b";
    learn(&ground, &flags, &["sh", "-ec", script]).assert_exited(0);
    assert_eq!(fs::read_dir(ground.path("out")).expect("listed").count(), 1);
    let [data, out] = [data, out].map(|path| format!("- \"{path}\""));
    let expected = [
        "flags:",
        "ro:",
        &data,
        "- \"a\"",
        "rw:",
        &out,
        "allow_net: []",
    ];
    assert_eq!(entries(&ground), expected);
}

#[test]
fn many_credentials_of_a_project_are_hidden() {
    let ground = ground();
    let body = ["sh", "-c", "cat */.env */.gnupg/key; true"];
    for number in 0..31 {
        ground.write(&format!("work/{number}/.env"), "canary");
        ground.write(&format!("work/{number}/.gnupg/key"), "canary");
    }
    let done = learn(&ground, &[], &body);
    done.assert_exited(0);
    assert_eq!(done.text(), "");
    ground.write("work/more/.env", "canary");
    ground.write("work/more/.netrc", "canary");
    let done = learn(&ground, &[], &body);
    assert_eq!(done.code, 125);
    assert!(done.stderr.contains("too many files to hide"), "{done:?}");
    let done = learn(&ground, &["--rw", "."], &body);
    assert!(done.text().contains("canary"));
}

/// A bundle that runs `script` with the arguments.
fn bundle(ground: &Ground, keys: &str, script: &str) -> String {
    let manifest = format!("run: main.sh\n{keys}");
    let script = format!("#!/bin/sh\n{script}");
    let files = [("manifest.yaml", manifest.as_str()), ("main.sh", &script)];
    text(&ground.bundle(&files)).to_owned()
}

/// `runner exec --policy policy.yaml WORDS…`
fn exec(ground: &Ground, words: &[&str]) -> Done {
    let policy = ground.path("policy.yaml");
    case(
        ground,
        &[&["exec", "--policy", text(&policy)], words].concat(),
    )
    .done()
}

#[test]
fn a_bundle_does_under_its_policy_what_it_did_while_learning() {
    let ground = ground();
    let tool = ground.write("home/tools/words", "words");
    ground.write("work/out/old", "1");
    let before = states(&ground.workspace());
    let script = "set -e; pwd; cat \"$1\"; echo 2 >\"$2/out/new\"; echo 3 >/scratch/own";
    let [tool, work] = [tool, ground.workspace()].map(|path| text(&path).to_owned());
    let bundle = bundle(&ground, "", script);
    let words = [bundle.as_str(), "--", &tool, &work];
    let done = learn_from(&ground, &words);
    done.assert_exited(0);
    assert_eq!(done.text(), "/bundle\nwords");
    assert_eq!(states(&ground.workspace()), before);
    let (tool, out) = (format!("- \"{tool}\""), format!("- \"{work}/out\""));
    assert_eq!(
        entries(&ground),
        ["flags:", "ro:", &tool, "rw:", &out, "allow_net: []"]
    );
    let line = format!(
        "#   runner exec --policy {}",
        text(&ground.path("policy.yaml"))
    );
    assert!(policy(&ground).contains(&line), "{}", policy(&ground));
    let with = |verb: &[&str], directory: &str| {
        let mut case = case(&ground, &[verb, &words].concat());
        // Its paths are absolute.
        case.command.current_dir(ground.path(directory));
        case.done()
    };
    let file = ground.path("policy.yaml");
    with(&["exec"], "work").assert_exited(1);
    with(&["exec", "--policy", text(&file)], "home").assert_exited(0);
    let written = ground.path("work/out/new");
    assert_eq!(fs::read_to_string(written).expect("there"), "2\n");
}

/// a bundle cannot change what it asks for, nor what it was given.
#[test]
fn nothing_of_the_host_changes_while_a_bundle_is_learned_from() {
    let ground = ground();
    ground.write("work/in", "1");
    ground.write("files/kept", "1");
    let keys = "sandbox: { provider: local, config: {}, mounts: [{ source: workspace, at: /data/w, mode: read-write }] }\n\
                outputsFiles: { made: { path: made } }\n";
    let script = "for d in \"$1/work\" \"$1/home\" /data/w; do \
                  echo x >\"$d/new\"; rm -rf \"$d\"/*; ln -s / \"$d/link\"; chmod \"$2\" \"$d\"; done; \
                  cat \"$1/home/.ssh/id_rsa\"; echo x >/scratch/made; rm -r /bundle/*; true";
    let bundle = bundle(&ground, keys, script);
    let top = ground.path(".");
    let files = ground.path("files");
    let before = ["work", "files", "home"].map(|name| states(&ground.path(name)));
    let flags = ["--grant", "mounts", "--workspace", text(&files)];
    let words = |mode| [&flags[..], &[&bundle, "--", text(&top), mode]].concat();
    let done = learn_from(&ground, &words("0"));
    done.assert_exited(0);
    assert!(!done.text().contains("canary"), "{done:?}");
    assert_eq!(done.report["outputs"][0]["state"], "skipped", "{done:?}");
    let after = ["work", "files", "home"].map(|name| states(&ground.path(name)));
    assert_eq!(after, before);
    let [notes, work] =
        ["home/notes", "work"].map(|name| format!("- \"{}\"", text(&ground.path(name))));
    // rm(1) asks for them.
    let expected = ["flags:", "ro:", &notes, "rw:", &work, "allow_net: []"];
    assert_eq!(entries(&ground), expected);
    // The same flags and the policy let it through.
    exec(&ground, &words("700")).assert_exited(0);
    assert!(ground.path("files/made").exists() && ground.path("work/link").is_symlink());
}

/// what a bundle sees to learn from cannot leave, whoever grants its hosts.
#[test]
fn the_hosts_of_a_manifest_are_closed_while_the_host_is_shown() {
    let ground = ground();
    let notes = ground.path("home/notes");
    let keys = "network: { egress: [a.test, '*.b.test'] }\n";
    let bundle = bundle(&ground, keys, "cat \"$1\"");
    let words = [bundle.as_str(), "--", text(&notes)];
    let manifest = ground.write("manifest.yaml", format!("run: main.sh\n{keys}"));
    for flags in [
        &[][..],
        &["--grant", "egress"],
        &["--manifest", text(&manifest)],
    ] {
        let done = learn_from(&ground, &[flags, &words].concat());
        done.assert_exited(0);
        assert_eq!(done.text(), "notes");
        assert_eq!(done.report["egress"]["allowed"], serde_json::json!([]));
        let policy = policy(&ground);
        assert!(policy.contains("  allow_net: []\n"), "{policy}");
        assert!(
            policy.contains("#   connect a.test: asked for by the bundle"),
            "{policy}"
        );
    }
    let done = exec(&ground, &words);
    done.assert_error("refused", "grant_required");
    // A wildcard is never learned.
    let net = [&["--learn-net"][..], &words].concat();
    learn_from(&ground, &net).assert_error("refused", "grant_required");
    let flags_of_net = ["--learn-net", "--allow-net", "*.b.test"];
    let net = [&flags_of_net[..], &words].concat();
    learn_from(&ground, &net).assert_exited(1);
    let hosts = ["allow_net:", "- \"*.b.test\"", "- \"a.test\""];
    assert_eq!(entries(&ground)[3..], hosts);
    // It starts.
    exec(&ground, &words).assert_exited(1);
    // Nor does it see the project.
    let kept = ground.write("work/kept", "project");
    let of_project = [&flags_of_net[..], &[&bundle, "--", text(&kept)]].concat();
    let done = learn_from(&ground, &of_project);
    assert_eq!((done.code, done.text().as_str()), (1, ""), "{done:?}");
    // The files after the hosts.
    learn_from(&ground, &[&["--merge"][..], &words].concat()).assert_exited(0);
    exec(&ground, &words).assert_exited(0);
}

#[test]
fn a_bundle_is_learned_from_in_any_directory_and_from_standard_input() {
    let ground = ground();
    let notes = ground.path("home/notes");
    let bundle = bundle(&ground, "", "cat \"$1\"; echo x >\"$1\"");
    let file = ground.path("policy.yaml");
    let expected = format!("- \"{}\"", text(&notes));
    for directory in [Path::new("/"), &ground.path("home"), &ground.path(".")] {
        let words = [
            "learn",
            "--merge",
            "-o",
            text(&file),
            "-",
            "--",
            text(&notes),
        ];
        let mut case = case(&ground, &words).stdin(fs::read(&bundle).expect("there"));
        case.command.current_dir(directory);
        let done = case.done();
        assert_eq!((done.code, done.text().as_str()), (1, "notes"), "{done:?}");
        assert!(entries(&ground).contains(&expected), "{}", policy(&ground));
        let left_out = format!("#   write {}: it was not writable", text(&notes));
        assert!(policy(&ground).contains(&left_out), "{}", policy(&ground));
    }
    assert_eq!(fs::read_to_string(notes).expect("there"), "notes");
    let done = learn_from(&ground, &["no-such-bundle"]);
    assert_eq!(done.code, 125);
    assert!(done.stderr.contains("learn -o FILE -- CMD"), "{done:?}");
}
