//! Destinations of outputs: refused names, and existing files.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};

use super::inputs::make_fifo;
use support::text;
use support::{Ground, is_root, skip};

fn to(path: &str) -> String {
    format!("run: body.sh\noutputsFiles: {{out: {{path: '{path}'}}}}\n")
}

const WRITE: &str = "printf new > /scratch/out; echo ran\n";

/// D-12.
#[test]
fn a_file_at_the_destination_is_replaced_and_never_followed() {
    let ground = Ground::new();
    let victim = ground.write("outside/victim", "victim");
    symlink(&victim, ground.path("work/link")).expect("linked");
    symlink("/nonexistent/x", ground.path("work/dangling")).expect("linked");
    make_fifo(&ground.path("work/fifo"));
    let other = ground.write("work/other", "other");
    std::fs::hard_link(&other, ground.path("work/hard")).expect("linked");
    let read_only = ground.write("work/readonly", "old");
    std::fs::set_permissions(&read_only, PermissionsExt::from_mode(0o444)).expect("set");
    for name in ["link", "dangling", "fifo", "hard", "readonly"] {
        let done = ground.exec_script(&[], &to(name), WRITE);
        done.assert_exited(0);
        assert_eq!(done.output("out")["state"], "synced", "{done:#?}");
        let path = ground.path("work").join(name);
        let found = std::fs::symlink_metadata(&path).expect("there");
        assert!(found.is_file(), "{name}");
        assert_eq!((found.mode() & 0o7777, found.nlink()), (0o644, 1), "{name}");
        assert_eq!(std::fs::read_to_string(path).expect("read"), "new");
    }
    assert_eq!(std::fs::read_to_string(victim).expect("read"), "victim");
    assert_eq!(std::fs::read_to_string(other).expect("read"), "other");
    assert!(!std::path::Path::new("/nonexistent").exists());
}

/// D-08.
#[test]
fn a_directory_on_the_way_that_is_a_link_is_not_followed() {
    let ground = Ground::new();
    std::fs::create_dir(ground.path("outside")).expect("made");
    symlink(ground.path("outside"), ground.path("work/folder")).expect("linked");
    symlink("../outside", ground.path("work/relative")).expect("linked");
    for path in ["folder/x", "relative/x", "relative/new/x"] {
        let done = ground.exec_script(&[], &to(path), WRITE);
        done.assert_exited(0);
        assert_eq!(
            done.output("out")["error"]["code"],
            "destination_escapes",
            "{done:#?}"
        );
    }
    assert_eq!(
        std::fs::read_dir(ground.path("outside"))
            .expect("listed")
            .count(),
        0
    );
}

/// D-25.
#[test]
fn a_destination_that_is_executed_later_is_refused_before_anything_runs() {
    let ground = Ground::new();
    for path in [
        ".git/hooks/x",
        ".git/config",
        "sub/.GIT/hooks/x",
        ".vscode/tasks.json",
        ".bashrc",
        ".ssh/authorized_keys",
        ".runner/manifest.json",
        ".github/workflows/x.yml",
        "a/.profile",
        ".secrets/SECRETS.md",
        ".code-workspaces/tool/manifest.yaml",
        ".config/runner/config.yaml",
        "home/.Config/systemd/user/x.service",
        ".npmrc",
    ] {
        let done = ground.exec_script(&[], &to(path), WRITE);
        done.assert_error("refused", "destination_refused")
            .assert_hint("--grant outputs")
            .assert_nothing_ran();
        let flag = format!("out={path}");
        let done = ground.exec_script(&["--out", &flag], "run: body.sh\n", WRITE);
        done.assert_error("refused", "destination_refused")
            .assert_nothing_ran();
    }
    assert_eq!(
        std::fs::read_dir(ground.workspace())
            .expect("listed")
            .count(),
        0
    );
    let done = ground.exec_script(&["--grant", "outputs"], &to(".git/hooks/x"), WRITE);
    done.assert_exited(0);
    assert_eq!(done.output("out")["state"], "synced");
    assert!(ground.path("work/.git/hooks/x").exists());
}

/// D-25: a poisoned tree, record or configuration would be trusted by later runs.
#[test]
fn an_output_never_replaces_a_file_that_the_runner_trusts() {
    let ground = Ground::new();
    std::fs::create_dir(ground.path("work/real")).expect("made");
    symlink("real", ground.path("work/link")).expect("linked");
    let work = ground.workspace();
    let policy = format!(
        "secrets: {{provider: {{directory: {0}/vault}}, inventory: {0}/inventory.md}}\n\
         cache: {{directory: {0}/fetched}}\n",
        text(&work)
    );
    let policy = ground.write("policy.yaml", policy);
    let outside = ground.path("outside");
    std::fs::create_dir(&outside).expect("made");
    let bundle = ground.script("run: body.sh\n", WRITE);
    let start = |verb: &str, root: &[&str], path: &str| {
        let out = format!("out={path}");
        let flags = [
            "--grant",
            "outputs",
            "--policy",
            text(&policy),
            "--out",
            &out,
        ];
        let words = [&[verb], root, &flags, &[text(&bundle)]].concat();
        let case = ground.command(&words);
        let case = case
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", text(&work.join("runtime")))
            .env("RUNNER_OPT_CACHE_DIRECTORY", text(&work.join("link/trees")))
            .env("RUNNER_OPT_OCI_DIRECTORY", text(&work.join("oci")))
            .env("XDG_CACHE_HOME", text(&work.join("cache")));
        // A plan has no report.
        let done = case.without("I8").done();
        let said = format!("{}{}{}", done.text(), done.stderr, done.report);
        (done, said)
    };
    // That of root is /var/cache/runner.
    let cache: &[&str] = match is_root() {
        true => &[],
        false => &["cache/runner/github/x", "cache"],
    };
    let stores = [
        "real/trees/1/trees/x/tree/body.sh",
        "REAL/Trees/x",
        "runtime/runs/x",
        "runtime",
        "oci/x",
        "fetched/x",
        "vault/slug",
        "inventory.md",
    ];
    for path in stores.iter().chain(cache) {
        for root in [["--workspace", text(&work)], ["--out-dir", text(&work)]] {
            for verb in ["exec", "plan"] {
                let (done, said) = start(verb, &root, path);
                assert_eq!(done.code, 125, "{verb} {path}: {done:#?}");
                assert!(said.contains("destination_refused"), "{said}");
                assert!(said.contains("(--out-dir)"), "{said}");
                assert!(!said.contains("grant it"), "{said}");
            }
        }
    }
    // Only planned: it would change the host.
    let (_, said) = start("plan", &["--workspace", "/etc"], "runner/config.yaml");
    assert!(said.contains("destination_refused"), "{said}");
    for path in ["o", "real/x", "vaults/x", "cache/other/x"] {
        let (done, _) = start("exec", &["--workspace", text(&work)], path);
        assert_eq!(done.output("out")["state"], "synced", "{path}: {done:#?}");
    }
    let (done, _) = start("exec", &["--out-dir", text(&outside)], "runtime/x");
    done.assert_exited(0);
}

#[test]
fn a_destination_that_looks_like_the_runner_s_own_temporary_file_is_refused() {
    let ground = Ground::new();
    let id = "01jd4w2v7m8q9r0s1t2u3v4w5x";
    for name in [
        format!(".runner-{id}-0"),
        format!(".runner-{id}.0.tmp"),
        format!("{id}.tmp"),
    ] {
        let done = ground.exec_script(&["--grant", "outputs"], &to(&name), WRITE);
        // Foreign syntax is refused by name, or is a literal name.
        match done.outcome() {
            "refused" => drop(done.assert_nothing_ran()),
            _ => assert_eq!(done.output("out")["state"], "synced", "{done:#?}"),
        }
    }
}

/// D-15, D-19.
#[test]
fn a_key_that_is_no_file_name_is_refused_with_its_place() {
    let ground = Ground::new();
    let long = "k".repeat(4_096);
    for key in [
        "a/b",
        "..",
        ".",
        "",
        "-x",
        "a\\0b",
        "a\\nb",
        "/etc",
        &long,
        "../../etc/x",
    ] {
        let manifest = format!("run: body.sh\noutputsFiles: {{\"{key}\": {{path: out.txt}}}}\n");
        let done = ground.exec_script(&[], &manifest, "echo ran\n");
        assert_eq!(done.outcome(), "refused", "{key} {done:#?}");
        done.assert_nothing_ran();
        assert!(!done.stderr.contains('\0'), "{done:#?}");
        let manifest = format!("run: body.sh\ninputsFiles: {{\"{key}\": {{path: out.txt}}}}\n");
        let done = ground.exec_script(&[], &manifest, "echo ran\n");
        assert_eq!(done.outcome(), "refused", "{key} {done:#?}");
        done.assert_nothing_ran();
    }
    let done = ground.exec_script(
        &[],
        "run: body.sh\noutputsFiles: {a: {path: x}, a: {path: y}}\n",
        "",
    );
    done.assert_error("refused", "duplicate_key")
        .assert_nothing_ran();
    let done = ground.exec_script(
        &[],
        "run: body.sh\noutputsFiles: {a: {path: x}, b: {path: X}}\n",
        "",
    );
    done.assert_error("refused", "outputs_overlap")
        .assert_nothing_ran();
    for other in ["x", "./x", "a/../x", "x/"] {
        let manifest =
            format!("run: body.sh\noutputsFiles: {{a: {{path: x}}, b: {{path: '{other}'}}}}\n");
        let done = ground.exec_script(&[], &manifest, "echo ran\n");
        assert_eq!(done.outcome(), "refused", "{other} {done:#?}");
        done.assert_nothing_ran();
    }
    let done = ground.exec_script(
        &["--out", "a=x", "--out", "b=./X"],
        "run: body.sh\n",
        "echo ran\n",
    );
    assert_eq!(done.outcome(), "refused", "{done:#?}");
    done.assert_nothing_ran();
    // Letters of all of Unicode are ordinary names.
    let manifest = "run: body.sh\noutputsFiles: {\"é 名\": {path: out.txt}}\n";
    let done = ground.exec_script(&[], manifest, "printf x > '/scratch/é 名'\n");
    done.assert_exited(0);
    assert_eq!(done.output("é 名")["state"], "synced", "{done:#?}");
}

/// D-16, D-24: an output path has no patterns, so only the named file is synced.
#[test]
fn foreign_interpolation_syntax_is_a_literal_name_or_refused() {
    let ground = Ground::new();
    for path in [
        "$(id)",
        "`id`",
        "${HOME}",
        "%s%n",
        "{{x}}",
        "${{ inputs.x }}",
        "$HOME",
        "*.txt",
        "[a-z]?",
    ] {
        let done = ground.exec_script(&[], &to(path), WRITE);
        if done.outcome() == "refused" {
            done.assert_nothing_ran();
            continue;
        }
        done.assert_exited(0);
        assert_eq!(done.output("out")["path"], path);
        let name = path.rsplit('/').next().expect("a name");
        assert!(ground.path("work").join(name).exists(), "{path}");
    }
}

/// D-17.
#[test]
fn an_unknown_token_or_an_id_that_is_no_name_is_refused() {
    let ground = Ground::new();
    for path in [
        "<runid>/x",
        "<run<runId>Id>",
        "<inputs.x>",
        "<",
        "a<runId",
        "<<runId>>",
        &"<runId>/".repeat(100_000),
        &"<runId>".repeat(100_000),
        "<toolId>",
    ] {
        let done = ground.exec_script(&[], &format!("id: '<toolId>/x'\n{}", to(path)), WRITE);
        assert_eq!(done.outcome(), "refused", "{path} {done:#?}");
        done.assert_nothing_ran();
    }
    for id in ["a/b", "..", "<runId>/../..", "/etc"] {
        let manifest = format!("id: '{id}'\n{}", to("r/<toolId>"));
        let done = ground.exec_script(&[], &manifest, WRITE);
        assert_eq!(done.outcome(), "refused", "{id} {done:#?}");
        done.assert_nothing_ran();
    }
    // The value of a token is not expanded again.
    let manifest = format!("id: '<runId>'\n{}", to("r/<toolId>"));
    let done = ground.exec_script(&[], &manifest, WRITE);
    done.assert_exited(0);
    assert_eq!(done.output("out")["path"], "r/<runId>", "{done:#?}");
}

/// D-01: for an output as for an input.
#[test]
fn a_path_that_leaves_the_workspace_is_refused() {
    let ground = Ground::new();
    let long = "a/".repeat(2_500) + "x";
    for path in [
        "../x",
        "/etc/x",
        "a/../../x",
        "",
        ".",
        "~/x",
        "a/./../../b",
        &long,
    ] {
        let done = ground.exec_script(&[], &to(path), WRITE);
        assert_eq!(done.outcome(), "refused", "{path} {done:#?}");
        done.assert_nothing_ran();
        let manifest = format!("run: body.sh\ninputsFiles: {{in: {{path: '{path}'}}}}\n");
        let done = ground.exec_script(&[], &manifest, "echo ran\n");
        assert_eq!(done.outcome(), "refused", "{path} {done:#?}");
        done.assert_nothing_ran();
    }
}

/// D-13.
#[test]
fn mode_and_owner_are_the_runner_s_and_not_the_body_s() {
    let ground = Ground::new();
    let owner = if is_root() { (40_777, 40_778) } else { ids() };
    if is_root() {
        std::os::unix::fs::chown(ground.workspace(), Some(owner.0), Some(owner.1)).expect("given");
    }
    let manifest = "run: body.sh\noutputsFiles:\n  set: {path: d/set}\n  all: {path: d/all}\n  \
        none: {path: d/none}\n  exec: {path: d/exec}\n";
    let body = "cd /scratch; umask 0; for n in set all none exec; do echo x > $n; done
        chmod 6777 set || chmod 1777 set; chmod 0666 all; chmod 0600 none; chmod 0700 exec
        exec 2>&1; setfattr -n user.x -v y all && getfattr --only-values -n user.x all; true\n";
    let done = ground.exec_script(&[], manifest, body);
    done.assert_exited(0);
    for (name, mode) in [
        ("set", 0o755),
        ("all", 0o644),
        ("none", 0o644),
        ("exec", 0o755),
        ("", 0o755),
    ] {
        let found = std::fs::metadata(ground.path("work/d").join(name)).expect("there");
        assert_eq!(found.mode() & 0o7777, mode, "{name}");
        assert_eq!((found.uid(), found.gid()), owner, "{name}");
    }
    let told = done.text();
    if ["not found", "not supported"]
        .iter()
        .any(|why| told.contains(why))
    {
        // Needs the package attr, and a file system with extended attributes.
        return skip(&format!("the body could give no attribute: {told}"));
    }
    assert_eq!(told, "y", "{done:#?}");
    let kept = rustix::fs::lgetxattr(ground.path("work/d/all"), "user.x", &mut [0_u8; 8]);
    assert_eq!(kept, Err(rustix::io::Errno::NODATA));
}

/// D-22.
#[test]
fn a_workspace_on_another_file_system_is_synced_to_as_well() {
    let ground = Ground::new();
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        support::skip("no /dev/shm to write to");
        return;
    };
    let bundle = ground.script(&to("a/out.txt"), WRITE);
    let done = ground.exec(&["--workspace", text(elsewhere.path())], &bundle);
    done.assert_exited(0);
    assert_eq!(done.output("out")["state"], "synced", "{done:#?}");
    assert_eq!(
        std::fs::read_to_string(elsewhere.path().join("a/out.txt")).expect("read"),
        "new"
    );
}

/// D-18.
#[test]
fn two_runs_at_once_leave_the_file_of_one_of_them() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    let bundles: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|sign| {
            let body = format!("head -c 3000000 /dev/zero | tr '\\0' {sign} > /scratch/out\n");
            ground.script(&to("out.txt"), &body)
        })
        .collect();
    let running: Vec<_> = bundles
        .iter()
        .map(|bundle| {
            // The processes of the other runs carry the same marker.
            let words = ["exec", "--workspace", text(&workspace), text(bundle)];
            ground.command(&words).without("I2").start()
        })
        .collect();
    for run in running {
        let done = run.done();
        done.assert_exited(0);
        assert_eq!(done.output("out")["state"], "synced", "{done:#?}");
    }
    let written = std::fs::read(ground.path("work/out.txt")).expect("read");
    assert_eq!(written.len(), 3_000_000);
    assert!(
        written.iter().all(|byte| *byte == written[0]),
        "a mix of two runs"
    );
    assert_eq!(
        std::fs::read_dir(&workspace).expect("listed").count(),
        1,
        "a temporary file stays"
    );
}

/// D-26.
#[test]
fn the_workspace_and_its_manifest_are_not_there_for_the_body() {
    let ground = Ground::new();
    let own = ground.write("work/manifest.yaml", to("out.txt"));
    let before = std::fs::read(&own).expect("read");
    let workspace = ground.workspace();
    let bundle = ground.script(
        &to("out.txt"),
        &format!(
            "ls {0} && echo visible; echo x > {0}/manifest.yaml && echo written; {WRITE}",
            text(&workspace)
        ),
    );
    let flags = ["--workspace", text(&workspace), "--manifest", text(&own)];
    let done = ground.exec(&flags, &bundle);
    done.assert_exited(0);
    assert_eq!(done.text(), "ran\n", "{done:#?}");
    assert_eq!(std::fs::read(&own).expect("read"), before);
}

pub(crate) fn ids() -> (u32, u32) {
    let uid = rustix::process::geteuid().as_raw();
    (uid, rustix::process::getegid().as_raw())
}
