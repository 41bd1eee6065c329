//! `run_bundle`: bundles of the operator, with the flags of the server.

use serde_json::json;

use crate::client::{Client, text};
use crate::host::Host;

/// A directory of bundles with one that prints its arguments and what it may write.
fn bundles(host: &Host) -> String {
    let manifest = "name: hello\nrun: [sh, -c, 'echo \"$@\"; ls \"$0\"', $1]\n";
    let manifest = manifest.replace("$1", "/nowhere");
    host.ground.write("bundles/hello/manifest.yaml", manifest);
    host.ground.path("bundles").display().to_string()
}

#[test]
fn a_bundle_runs_with_the_flags_of_the_server_and_its_own_arguments() {
    let host = Host::new();
    let directory = bundles(&host);
    let mut client = Client::start(&host, &["--bundles", &directory]);
    let result = client.call(
        "run_bundle",
        &json!({"bundle": "hello", "args": ["--rw", "/", "b c"]}),
    );
    assert_eq!(
        result["structuredContent"]["stdout"], "--rw / b c\n",
        "{result}"
    );
    assert_eq!(result["structuredContent"]["exit_code"], 2, "{result}");
    assert!(text(&result).contains("/nowhere"), "{result}");
}

#[test]
fn a_bundle_elsewhere_is_refused() {
    let host = Host::new();
    let directory = bundles(&host);
    host.ground
        .write("other/manifest.yaml", "name: other\nrun: [sh]\n");
    let link = host.ground.path("bundles/link");
    std::os::unix::fs::symlink(host.ground.path("other"), link).expect("linked");
    let other = host.ground.path("other").display().to_string();
    let mut client = Client::start(&host, &["--bundles", &directory]);
    for bundle in [
        "../other",
        &*other,
        "link",
        "hello/../../other",
        "",
        ".",
        "hello/..",
        "/",
        "a\0b",
        "none",
        "-",
    ] {
        let refusal = client.refused("run_bundle", &json!({"bundle": bundle}));
        // The same of what the host has and has not.
        let expected = format!(
            "`bundle` is `{}`; expected the path",
            bundle.replace('\0', "\\u{0}")
        );
        assert!(refusal.starts_with(&expected), "{bundle}: {refusal}");
    }
    assert_eq!(
        client
            .refused("run_bundle", &json!({"bundle": "hello", "flags": "--rw /"}))
            .find("unknown field"),
        Some(19)
    );
}

/// What the sandbox can write, it could replace by a bundle of its own, or by a link.
#[test]
fn bundles_that_the_sandbox_can_write_are_refused() {
    let host = Host::new();
    let directory = bundles(&host);
    let mut client = Client::start_silent(&host, &["--bundles", &directory, "--rw", &directory]);
    let gone = client.wait();
    assert_eq!(gone.code, 125);
    assert!(gone.stderr.contains("(mcp_bundles)"), "{gone:?}");
    let part = format!("{directory}/hello");
    let mut client = Client::start(&host, &["--bundles", &directory, "--rw", &part]);
    let refusal = client.refused("run_bundle", &json!({"bundle": "hello"}));
    assert!(refusal.contains("could write it"), "{refusal}");
    let mut client = Client::start(&host, &["--bundles", &directory, "--ro", &directory]);
    let result = client.call("run_bundle", &json!({"bundle": "hello"}));
    assert_eq!(result["structuredContent"]["exit_code"], 2, "{result}");
    for flag in ["--json=a", "--manifest=a", "--report=a.html"] {
        let mut client = Client::start_silent(&host, &["--bundles", &directory, flag]);
        assert!(
            client
                .wait()
                .stderr
                .contains("cannot be used with --bundles")
        );
    }
}

#[test]
fn a_bundle_ends_with_its_timeout_and_with_a_cancellation() {
    let host = Host::new();
    let directory = bundles(&host);
    let manifest = "name: sleep\nrun: [sh, -c, 'echo up; sleep 1000']\n";
    host.ground.write("bundles/sleep/manifest.yaml", manifest);
    let mut client = Client::start(&host, &["--bundles", &directory, "--grace", "100ms"]);
    let result = client.call("run_bundle", &json!({"bundle": "sleep", "timeout": 1}));
    assert_eq!(result["structuredContent"]["timed_out"], true, "{result}");
    assert_eq!(result["structuredContent"]["stdout"], "up\n");
    let id = client.begin("run_bundle", &json!({"bundle": "sleep"}));
    let running = || host.say(&["ps", "--json"]).stdout.contains("sleep");
    support::invariants::eventually("it runs", running);
    client.notify("notifications/cancelled", &json!({"requestId": id}));
    support::invariants::eventually("it has ended", || !running());
    // It ends with the server, which waits for it.
    client.begin("run_bundle", &json!({"bundle": "sleep"}));
    support::invariants::eventually("it runs again", running);
    client.signal(rustix::process::Signal::TERM);
    assert_eq!(client.wait().code, 143);
    assert!(!running());
    host.assert_empty();
}
