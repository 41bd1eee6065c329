//! The progress of a preparation on the terminal.

use serde_json::json;

use crate::host::Host;
use support::screen::ERASED;

const NEEDS: &str = "needs: {npm: [greeting]}";
const BODY: &str = "echo the body speaks >&2";

fn host() -> Option<Host> {
    let host = Host::new()?;
    let manifest = json!({ "name": "greeting", "version": "1.0.0" });
    host.index.npm(&manifest, "\n");
    Some(host)
}

#[test]
fn provisioning_progress_is_shown_and_erased_before_the_bodys_output() {
    let Some(host) = host() else { return };
    let bundle = host.bundle("shown", NEEDS, &[("main.sh", BODY)]);
    let (case, shown) = host.exec(&[], &bundle).on_screen();
    case.done().assert_exited(0);
    let shown = shown.join().expect("joined");
    let standing = "runner: npm packages greeting: installing";
    assert!(shown.contains(standing), "{shown:?}");
    let (before, body) = shown.split_once("the body speaks").expect("the body's");
    assert!(before.ends_with(ERASED), "{shown:?}");
    assert!(body.starts_with("\r\n"), "{shown:?}");
    assert!(!body.contains("installing"), "{shown:?}");
    // Nothing is printed for a preparation that is in the store.
    let (case, shown) = host.exec(&[], &bundle).on_screen();
    case.done().assert_exited(0);
    let shown = shown.join().expect("joined");
    assert!(!shown.contains("npm packages"), "{shown:?}");
}

#[test]
fn provisioning_shows_no_progress_without_a_terminal_or_with_quiet() {
    let Some(host) = host() else { return };
    let bundle = host.bundle("quiet", NEEDS, &[("main.sh", BODY)]);
    let (case, shown) = host.exec(&["-q"], &bundle).on_screen();
    case.done().assert_exited(0);
    assert_eq!(shown.join().expect("joined"), "the body speaks\r\n");
    let bundle = |name: &str, needs: &str| host.bundle(name, needs, &[("main.sh", BODY)]);
    let other = "needs: {npm: ['greeting@1.0.0']}";
    let done = host.exec(&[], &bundle("piped", other)).done();
    assert_eq!(done.report["preparation"][0]["found"], "made");
    assert!(done.stderr.starts_with("the body speaks\n"), "{done:#?}");
    // With -v there is a line for each step, before the body.
    let other = "needs: {npm: ['greeting@^1.0.0']}";
    let done = host.exec(&["-v"], &bundle("verbose", other)).done();
    let (before, _) = done.stderr.split_once("the body speaks").expect("both");
    let lines: Vec<&str> = before.lines().collect();
    assert_eq!(lines.len(), 2, "{before}");
    assert!(lines[0].starts_with("runner: image oci:"), "{before}");
    assert!(lines[0].contains(": in the store, "), "{before}");
    let installed = "runner: npm packages greeting@^1.0.0: installed, ";
    assert!(lines[1].starts_with(installed), "{before}");
}

#[test]
fn failed_provisioning_erases_its_progress_line() {
    let Some(host) = host() else { return };
    let bundle = host.bundle("fails", "needs: {npm: [nonesuch]}", &[("main.sh", BODY)]);
    let (case, shown) = host.exec(&[], &bundle).on_screen();
    case.done().assert_error("failed", "preparation_failed");
    let shown = shown.join().expect("joined");
    let (before, error) = shown.split_once("failed:").expect("an error");
    assert!(before.contains("installing"), "{shown:?}");
    let line = before.rsplit(ERASED).next().unwrap_or_default();
    assert!(!line.contains("installing"), "{shown:?}");
    assert!(error.contains("the index has no nonesuch"), "{shown:?}");
}
