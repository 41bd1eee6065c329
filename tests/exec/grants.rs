//! A manifest in the bundle requests, and the caller grants.

use std::os::unix::fs::symlink;
use std::path::Path;

use support::bodies::{c_body, copy_program};
use support::{Ground, text};

const GREEDY: &str = "run: body.sh
network: {egress: [evil.example]}
secrets: {API_KEY: {vault: prod/key}}
sandbox:
  provider: local
  config: {}
  env: {passthrough: [RUNNER_TEST_CANARY_SECRET]}
  mounts: [{source: workspace, at: /work}]
inputsFiles: {key: {path: .ssh/id_rsa}}
outputsFiles: {hook: {path: .git/hooks/x}}
";

/// F-15: nothing that it names is read.
#[test]
fn ungranted_requests_are_refused_by_name_with_flags() {
    let ground = Ground::new();
    ground.write("work/.ssh/id_rsa", ground.canary());
    let bundle = ground.script(GREEDY, "cat /scratch/key /work/.ssh/id_rsa; env\n");
    let mut case = ground.command(&["exec", text(&bundle)]);
    case.command.current_dir(ground.workspace());
    let done = case.done();
    done.assert_error("refused", "grant_required")
        .assert_nothing_ran();
    for part in [
        "evil.example",
        "API_KEY",
        "RUNNER_TEST_CANARY_SECRET",
        "/work",
        "inputsFiles",
    ] {
        done.assert_message(part);
    }
    for flag in [
        "--allow-net evil.example",
        "--secret API_KEY=env:API_KEY",
        "-e RUNNER_TEST_CANARY_SECRET",
        "--grant mounts",
        "--workspace DIR",
    ] {
        done.assert_hint(flag);
    }
    assert_eq!(done.report["inputs"], serde_json::json!([]));
    assert!(!ground.path("work/.git").exists());
}

/// F-15: each request alone is refused, and is granted only by its own flag.
#[test]
fn each_request_needs_its_own_grant() {
    let ground = Ground::new();
    ground.write("work/a.txt", "A");
    let workspace = ground.workspace();
    let workspace = text(&workspace);
    let rows: [(&str, &[&str], &[&str]); 6] = [
        (
            "secrets: {KEY: {vault: k}}",
            &["--secret", "KEY=env:GIVEN"],
            &["--grant", "env"],
        ),
        (
            "sandbox: {provider: local, config: {}, env: {passthrough: [GIVEN]}}",
            &["-e", "GIVEN"],
            &["--grant", "mounts"],
        ),
        (
            "sandbox: {provider: local, config: {}, env: {passthrough: [GIVEN]}}",
            &["--grant", "env"],
            &["--grant", "secrets"],
        ),
        (
            "sandbox: {provider: local, config: {}, mounts: [{source: workspace, at: /work}]}",
            &["--grant", "mounts", "--workspace", workspace],
            &["--workspace", workspace],
        ),
        (
            "inputsFiles: {a: {path: a.txt}}",
            &["--workspace", workspace],
            &["--grant", "all"],
        ),
        (
            "approval: always",
            &["--grant", "policy"],
            &["--grant", "outputs"],
        ),
    ];
    for (wish, enough, too_little) in rows {
        let manifest = format!("run: body.sh\n{wish}\n");
        let bundle = ground.script(
            &manifest,
            "echo ran $KEY $GIVEN; cat /work/a.txt 2>/dev/null; true\n",
        );
        for flags in [too_little, &[]] {
            let words: Vec<&str> = ["exec"]
                .iter()
                .chain(flags)
                .chain(&[text(&bundle)])
                .copied()
                .collect();
            let done = ground.command(&words).env("GIVEN", "given").done();
            done.assert_error("refused", "grant_required")
                .assert_nothing_ran();
        }
        let words: Vec<&str> = ["exec"]
            .iter()
            .chain(enough)
            .chain(&[text(&bundle)])
            .copied()
            .collect();
        let done = ground.command(&words).env("GIVEN", "given").done();
        done.assert_exited(0);
        let expects_value = wish.contains("KEY") || wish.contains("GIVEN");
        assert_eq!(
            done.text().contains("given"),
            expects_value,
            "{wish}: {done:#?}"
        );
        assert_eq!(
            done.text().contains("ran\nA"),
            wish.contains("/work"),
            "{wish}: {done:#?}"
        );
    }
}

/// F-17: otherwise the manifest chooses which directory of the host its body can read.
#[test]
fn a_program_of_the_callers_path_is_mounted_for_a_bundle_only_if_the_caller_names_it() {
    let ground = Ground::new();
    let body = c_body("ends-with-9", "int main(void) { return 9; }");
    let path = ["links", "project/bin", "alone"].map(|at| ground.path(at));
    for directory in &path {
        std::fs::create_dir_all(directory).expect("made");
    }
    let prefix = ground.path("project").canonicalize().expect("there");
    let alone = ground
        .path("alone")
        .canonicalize()
        .expect("there")
        .join("alone-7f3a");
    copy_program(&body, &prefix.join("bin/tool-7f3a"));
    copy_program(&body, &alone);
    let link = ground.path("links/link-7f3a");
    symlink("../project/bin/tool-7f3a", link).expect("linked");
    let path = std::env::join_paths(path).expect("a PATH");
    let path = path.to_str().expect("UTF-8");
    let exec = |verb: &str, flags: &[&str], bundle: &Path| {
        let words = [&[verb], flags, &[text(bundle)]].concat();
        let case = ground.command(&words);
        // A plan has no report.
        let case = if verb == "plan" {
            case.without("I8")
        } else {
            case
        };
        case.env("PATH", path).done()
    };
    for (name, needed) in [
        ("tool-7f3a", &prefix),
        ("link-7f3a", &prefix),
        ("alone-7f3a", &alone),
    ] {
        let manifest = format!("run: [{name}]\n");
        let bundle = ground.bundle(&[("manifest.yaml", &manifest)]);
        let done = exec("exec", &[], &bundle);
        done.assert_error("refused", "grant_required")
            .assert_message(name)
            .assert_hint(&format!("--ro {}", needed.display()))
            .assert_nothing_ran();
        let planned = exec("plan", &[], &bundle);
        assert!(planned.text().contains("grant_required"), "{planned:#?}");
        let own = ground.write("own.yaml", &manifest);
        let run = format!("[\"{name}\"]");
        let policy = format!("interpreters: [{}]\n", text(&prefix));
        let policy = ground.write("policy.yaml", policy);
        for flags in [
            &["--ro", text(needed)][..],
            &["--manifest", text(&own)],
            &["--run", &run],
            &["--policy", text(&policy)],
        ] {
            if flags[0] == "--policy" && *needed != prefix {
                continue;
            }
            exec("exec", flags, &bundle).assert_exited(9);
        }
    }
    // An interpreter of the run forms is the caller's.
    let of_system = |name: &&str| {
        let mut places = ["/usr/local/bin", "/usr/bin", "/bin"].iter();
        places.any(|place| Path::new(place).join(name).exists())
    };
    let names = ["tsx", "npx", "python", "node", "python3"];
    let Some(name) = names.iter().find(|name| !of_system(name)) else {
        support::skip("all interpreters are installed");
        return;
    };
    copy_program(&body, &prefix.join("bin").join(name));
    let manifest = format!("run: [{name}]\n");
    let done = exec("exec", &[], &ground.bundle(&[("manifest.yaml", &manifest)]));
    done.assert_exited(9);
    assert_eq!(done.report["bound_programs"][0], text(&prefix));
}

#[test]
fn a_secret_that_was_granted_and_has_no_value_is_refused() {
    let ground = Ground::new();
    let bundle = ground.script("run: body.sh\nsecrets: {KEY: {vault: k}}\n", "echo ran\n");
    let done = ground.exec(&["--grant", "secrets"], &bundle);
    done.assert_error("refused", "secret_unresolved")
        .assert_hint("--secret KEY=")
        .assert_nothing_ran();
}

#[test]
fn a_workspace_mount_can_be_written_only_where_its_mode_says_so() {
    let ground = Ground::new();
    let file = ground.write("work/a.txt", "A");
    let body = "cat /work/a.txt; echo x > /work/a.txt; touch /work/new; true\n";
    for (mode, left) in [("read-only", "A"), ("read-write", "x\n")] {
        let manifest = format!(
            "run: body.sh\nsandbox: {{provider: local, config: {{}}, \
            mounts: [{{source: workspace, at: /work, mode: {mode}}}]}}\n"
        );
        let done = ground.exec_script(&["--grant", "mounts"], &manifest, body);
        done.assert_exited(0);
        assert_eq!(done.text(), "A");
        assert_eq!(std::fs::read_to_string(&file).expect("read"), left);
        assert_eq!(ground.path("work/new").exists(), mode == "read-write");
    }
}

#[test]
fn egress_needs_a_grant_that_the_host_policy_does_not_deny() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nnetwork: {egress: ['example.com:443']}\n";
    let bundle = ground.script(manifest, "echo ran\n");
    let own = ground.write("own.yaml", manifest);
    let plain = ground.script("run: body.sh\n", "echo ran\n");
    for flags in [&[][..], &["--allow-net", "example.com:80"]] {
        ground
            .exec(flags, &bundle)
            .assert_error("refused", "grant_required")
            .assert_nothing_ran();
    }
    for (flags, bundle) in [
        (vec!["--grant", "egress"], &bundle),
        (vec!["--allow-net", "example.com:443"], &bundle),
        (vec!["--allow-net", "*.com.example,example.com"], &bundle),
        (vec!["--manifest", text(&own)], &plain),
        (vec!["--allow-net", "example.com"], &plain),
    ] {
        let done = ground.exec(&flags, bundle);
        done.assert_exited(0);
        assert_eq!(done.text(), "ran\n", "{flags:?}");
    }
    let denied = ground.write("deny.yaml", "deny_grants: [egress]\n");
    let done = ground.exec(
        &["--policy", text(&denied), "--manifest", text(&own)],
        &plain,
    );
    done.assert_error("refused", "grant_forbidden")
        .assert_nothing_ran();
}

#[test]
fn without_egress_there_is_loopback_and_nothing_else() {
    let ground = Ground::new();
    if !std::path::Path::new("/usr/bin/python3").exists() {
        support::skip("python3 is not installed");
        return;
    }
    for manifest in ["run: body.py\n", "run: body.py\nnetwork: {egress: []}\n"] {
        let done = ground.exec(
            &[],
            &ground.bundle(&[("manifest.yaml", manifest), ("body.py", NETWORK)]),
        );
        done.assert_exited(0);
        assert_eq!(
            done.text(),
            "loopback hello\nENETUNREACH\nENETUNREACH\nno name\n",
            "{done:#?}"
        );
    }
}

const NETWORK: &str = include_str!("../bodies/exec/grants_network.py");

#[test]
fn the_caller_s_own_manifest_grants_what_it_says() {
    let ground = Ground::new();
    ground.write("work/a.txt", "A");
    let manifest = "run: body.sh\nsandbox: {provider: local, config: {}, env: {passthrough: [GIVEN]}, \
        mounts: [{source: workspace, at: /work}]}\ninputsFiles: {a: {path: a.txt}}\n";
    let own = ground.write("own.yaml", manifest);
    let bundle = ground.bundle(&[("body.sh", "echo $GIVEN; cat /scratch/a /work/a.txt\n")]);
    let workspace = ground.workspace();
    let words = [
        "exec",
        "--manifest",
        text(&own),
        "--workspace",
        text(&workspace),
        text(&bundle),
    ];
    let done = ground.command(&words).env("GIVEN", "given").done();
    done.assert_exited(0);
    assert_eq!(done.text(), "given\nAA");
    // Except destinations that are executed later: those are granted by name.
    let manifest = "run: body.sh\noutputsFiles: {out: {path: .git/hooks/x}}\n";
    let own = ground.write("own.yaml", manifest);
    let flags = ["--manifest", text(&own), "--workspace", text(&workspace)];
    ground
        .exec(&flags, &bundle)
        .assert_error("refused", "destination_refused")
        .assert_nothing_ran();
}

#[test]
fn a_read_only_sandbox_and_another_provider_are_refused() {
    let ground = Ground::new();
    for (block, code) in [
        (
            "{provider: local, config: {}, read_only: true}",
            "sandbox_read_only",
        ),
        (
            "{provider: mastra-e2b, config: {template: x}}",
            "provider_unavailable",
        ),
        ("{provider: lokal, config: {}}", "unknown_value"),
    ] {
        let manifest = format!("run: body.sh\nsandbox: {block}\n");
        let done = ground.exec(&[], &ground.script(&manifest, "echo ran\n"));
        done.assert_error("refused", code).assert_nothing_ran();
    }
}
