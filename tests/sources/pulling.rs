//! Where a source comes from: a real registry on loopback, then the store.

use crate::artifact::Artifact;
use crate::host::{Host, Wanted, one, said};
use support::registry::{Options, Registry};
use support::screen::ERASED;

const SHOW: &str = "cat /workspace/backend/a";
const INSECURE: &str = "--insecure";

fn pushed(text: &str) -> Option<(Registry, Artifact, String)> {
    let registry = Registry::start(Options::default())?;
    let artifact = Artifact::of(&[("a", text)]);
    let reference = artifact.push(&registry.reference("sources/backend"));
    Some((registry, artifact, reference))
}

#[test]
fn a_source_is_asked_for_once_and_had_from_the_store_when_the_registry_is_gone() {
    let Some((mut registry, artifact, reference)) = pushed("a\n") else {
        return;
    };
    let host = Host::new();
    let bundle = host.bundle(&one(&*reference, ""), SHOW);
    let done = host.exec(&[INSECURE], &bundle);
    assert_eq!(said(done.assert_exited(0)), "a\n");
    let source = &done.report["workspace_sources"][0];
    assert_eq!(
        (&source["found"], &source["digest"]),
        (&"pulled".into(), &artifact.digest().into())
    );
    let asked = registry.answered().len();
    let done = host.exec(&[INSECURE], &bundle);
    assert_eq!(said(done.assert_exited(0)), "a\n");
    assert_eq!(done.report["workspace_sources"][0]["found"], "store");
    assert_eq!(registry.answered().len(), asked, "nobody was asked");
    registry.stop();
    let done = host.exec(&[], &bundle);
    assert_eq!(said(done.assert_exited(0)), "a\n");
    let elsewhere = Host::new();
    let bundle = elsewhere.bundle(&one(&*reference, ""), SHOW);
    let done = elsewhere.exec(&[INSECURE], &bundle);
    assert_eq!((done.code, done.text().as_str()), (125, ""), "{done:#?}");
    assert!(done.error().starts_with("registry_"), "{done:#?}");
    let optional = elsewhere.bundle(&one(&*reference, "required: false"), "");
    let done = elsewhere.exec(&[INSECURE], &optional);
    done.assert_exited(0);
    assert_eq!(done.report["workspace_sources"][0]["found"], "absent");
}

#[test]
fn a_registry_without_tls_is_spoken_to_only_where_caller_or_host_say_so() {
    let Some((registry, _artifact, reference)) = pushed("a\n") else {
        return;
    };
    let host = Host::new();
    let bundle = host.bundle(&one(&*reference, ""), SHOW);
    let asked = registry.answered().len();
    let done = host.exec(&[], &bundle);
    assert_eq!((done.code, done.text().as_str()), (125, ""), "{done:#?}");
    assert_eq!(
        registry.answered().len(),
        asked,
        "nothing was asked in plain HTTP"
    );
    let policy = host.policy(&format!("oci: {{insecure: ['{}']}}\n", registry.address()));
    let done = host.exec(&["--policy", &policy], &bundle);
    assert_eq!(said(done.assert_exited(0)), "a\n");
}

#[test]
fn a_tag_is_refused_before_any_request_and_resolved_to_a_digest_where_allowed() {
    let Some((registry, artifact, _)) = pushed("a\n") else {
        return;
    };
    let host = Host::new();
    let tag = format!("{}:1", registry.reference("sources/backend"));
    let bundle = host.bundle(&one(&*tag, ""), SHOW);
    let asked = registry.answered().len();
    let done = host.exec(&[INSECURE], &bundle);
    done.assert_error("refused", "source_tag_refused");
    assert_eq!(registry.answered().len(), asked);
    let done = host.exec(&[INSECURE, "--allow-tags"], &bundle);
    assert_eq!(said(done.assert_exited(0)), "a\n");
    let source = &done.report["workspace_sources"][0];
    assert_eq!(source["digest"], artifact.digest());
    let policy = host.policy("require_pin: true\n");
    let done = host.exec(&[INSECURE, "--allow-tags", "--policy", &policy], &bundle);
    done.assert_error("refused", "source_tag_refused");
    // A tag that moves is resolved again.
    let next = Artifact::of(&[("a", "next\n")]);
    next.push(&registry.reference("sources/backend"));
    let done = host.exec(&[INSECURE, "--allow-tags"], &bundle);
    assert_eq!(said(done.assert_exited(0)), "next\n");
    assert_eq!(done.report["workspace_sources"][0]["digest"], next.digest());
}

/// of the layer.
#[test]
fn bytes_with_a_wrong_digest_never_reach_a_body() {
    let Some((registry, artifact, reference)) = pushed("a\n") else {
        return;
    };
    let file = registry.blob_file(&artifact.layer_digest());
    let other = Artifact::of(&[("a", "b\n")]);
    let mut bytes = other.layer().to_vec();
    bytes.resize(artifact.layer().len(), 0);
    std::fs::write(file, bytes).expect("harmed");
    let host = Host::new();
    let bundle = host.bundle(&one(&*reference, ""), SHOW);
    let done = host.exec(&[INSECURE], &bundle);
    assert_eq!((done.code, done.text().as_str()), (125, ""), "{done:#?}");
    assert!(done.error().contains("digest"), "{done:#?}");
    assert!(host.trees().is_empty());
    let optional = host.bundle(
        &one(&*reference, "required: false"),
        "ls /workspace 2>/dev/null || echo nothing",
    );
    let done = host.exec(&[INSECURE], &optional);
    assert_eq!(said(done.assert_exited(0)), "nothing\n");
}

#[test]
fn two_concurrent_runs_fetch_a_source_once() {
    let Some((registry, artifact, reference)) = pushed("a\n") else {
        return;
    };
    let host = Host::new();
    let both = [("/one", ""), ("/two", "writable: true")].map(|(at, keys)| Wanted {
        reference: reference.clone(),
        at,
        keys,
    });
    let bundle = host.bundle(&both, "cat /one/a /two/a");
    let words = ["exec", "--grant=sources", INSECURE, &bundle];
    let running: Vec<_> = (0..3).map(|_| host.command(&words).start()).collect();
    for run in running {
        assert_eq!(said(run.done().assert_exited(0)), "a\na\n");
    }
    let blob = format!("/blobs/{}", artifact.layer_digest());
    assert_eq!(registry.count("GET", &blob), 1);
    assert_eq!(host.trees().len(), 1);
}

#[test]
fn a_quick_pull_leaves_nothing_before_the_bodys_output() {
    let Some((_registry, _artifact, reference)) = pushed("a\n") else {
        return;
    };
    let shown = |flag: &str| {
        let host = Host::new();
        let bundle = host.bundle(&one(&*reference, ""), "echo the body speaks >&2");
        let words = ["exec", "--grant=sources", INSECURE, flag, &bundle];
        let (case, shown) = host.command(&words).on_screen();
        case.done().assert_exited(0);
        shown.join().expect("joined")
    };
    let text = shown("--color=never");
    let (before, body) = text.split_once("the body speaks").expect("the body's");
    // On a slow host it may take half a second.
    assert!(before.is_empty() || before.ends_with(ERASED), "{text:?}");
    assert_eq!(body, "\r\n", "{text:?}");
    assert_eq!(shown("-q"), "the body speaks\r\n");
}
