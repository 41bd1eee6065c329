//! A writable source in a sandbox that stays.

use std::process::{Command, Stdio};

use crate::artifact::Artifact;
use crate::host::Host;
use support::runner;

/// Runs `runner sandbox WORDS…`.
#[track_caller]
fn done(host: &Host, words: &[&str]) -> String {
    std::fs::create_dir_all(host.ground.path("state")).expect("made");
    let done = Command::new(runner())
        .arg("sandbox")
        .args(words)
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", host.ground.path("run"))
        .env("RUNNER_OPT_STATE_DIRECTORY", host.ground.path("state"))
        .env("RUNNER_OPT_OCI_DIRECTORY", host.store())
        .stdin(Stdio::null())
        .output()
        .expect("the runner starts");
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words:?}: {stderr}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn the_edits_of_a_source_are_listed_and_come_back_from_a_snapshot() {
    let artifact = Artifact::of(&[
        ("README", "read me\n"),
        ("services/api/main.txt", "api\n"),
        ("services/web/main.txt", "web\n"),
    ]);
    let host = Host::with(&artifact);
    let reference = artifact.nowhere();
    let text = format!(
        "sandbox: {{provider: local}}\nworkspaceSources:\n\
         - {{id: s, ref: '{reference}', mountPath: /workspace/backend, writable: true}}\n"
    );
    let manifest = host.ground.write("sandbox.yaml", &text);
    let manifest = format!("--manifest={}", manifest.display());
    let snapshot = host.ground.path("snapshot.tar");
    let snapshot = snapshot.to_str().expect("plain");
    done(&host, &["create", "--name=one", &manifest]);
    assert_eq!(done(&host, &["diff", "one"]), "");
    let script = "cd /workspace/backend && echo changed > README && rm -r services/web && \
                  echo new > services/api/new";
    done(&host, &["exec", "one", "--", "sh", "-c", script]);
    let changes = "C /workspace/backend/README\nC /workspace/backend/services\n\
                   C /workspace/backend/services/api\nA /workspace/backend/services/api/new\n\
                   D /workspace/backend/services/web\n";
    assert_eq!(done(&host, &["diff", "one"]), changes);
    done(&host, &["snapshot", "one", snapshot]);
    done(&host, &["rm", "one"]);
    done(&host, &["restore", snapshot, "--name=two", &manifest]);
    assert_eq!(done(&host, &["diff", "two"]), changes);
    let script = "cd /workspace/backend && cat README && find services | sort";
    let found = done(&host, &["exec", "two", "--", "sh", "-c", script]);
    assert_eq!(
        found,
        "changed\nservices\nservices/api\nservices/api/main.txt\nservices/api/new\n"
    );
    done(&host, &["rm", "two"]);
}
