//! Failures: unreachable indexes, denied hosts, limits, signals, concurrent runs.

use rustix::process::Signal;
use serde_json::json;

use crate::host::Host;
use crate::native::{GREETING, NEEDS};
use support::has_cgroup;

fn message(done: &support::Done) -> String {
    let text = |key: &str| {
        done.report["error"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    format!("{} | {}", text("message"), text("hint"))
}

#[test]
fn an_index_that_is_down_is_named() {
    let Some(mut host) = Host::new() else { return };
    host.index.debs(&GREETING);
    host.index.stop();
    for needs in [
        NEEDS,
        "needs: {npm: [greeting]}",
        "needs: {pip: [greeting]}",
    ] {
        let done = host.done(needs, &[], "true");
        done.assert_error("failed", "preparation_failed");
        let told = message(&done);
        assert!(told.contains("no answer from "), "{told}");
        assert!(told.contains("connection refused"), "{told}");
    }
}

#[test]
fn a_host_that_the_policy_does_not_list_is_named_with_the_key_that_would() {
    let Some(host) = Host::new() else { return };
    host.index.debs(&GREETING);
    let policy = host.index.policy();
    host.configure(&format!("{policy}  allow: [other.test]\n"));
    let done = host.done(NEEDS, &[], "true");
    done.assert_error("failed", "preparation_failed");
    let told = message(&done);
    assert!(told.contains("may not reach apt.test"), "{told}");
    assert!(told.contains("preparation: {allow: [apt.test]}"), "{told}");
    assert_eq!(
        done.report["preparation"][0]["denials"][0]["host"],
        "apt.test"
    );
    // Nor is it learned from.
    let bundle = host.bundle("learned", NEEDS, &[("main.sh", "true")]);
    let target = host.ground.path("learned.yaml");
    let flags = ["-o", support::text(&target), "--learn-net"];
    let told = message(&host.verb("learn", &flags, &bundle).done());
    assert!(told.contains("may not reach apt.test"), "{told}");
    host.configure(&policy.replace("allow_private: [127.0.0.1/32]", "allow_private: []"));
    let told = message(&host.done(NEEDS, &[], "true"));
    assert!(told.contains("allow_private: ['127.0.0.1/32']"), "{told}");
    assert_eq!(host.index.asked(), Vec::<String>::new());
}

#[test]
fn packages_need_permission_by_the_host_configuration() {
    let Some(host) = Host::new() else { return };
    host.configure("");
    let done = host.done(NEEDS, &[], "true");
    done.assert_error("refused", "needs_unsatisfied");
    let told = message(&done);
    assert!(
        told.contains("preparation: {apt: {sources: [LINE]}}"),
        "{told}"
    );
    let files = [("requirements.txt", "greeting\n")];
    let done = host.done("needs: {language: python}", &files, "echo ran");
    done.assert_exited(0);
    let warnings = done.report["warnings"].to_string();
    assert!(warnings.contains("list_not_installed"), "{warnings}");
}

#[test]
fn limits_of_the_host_hold_for_a_preparation() {
    let Some(host) = Host::new() else { return };
    let scripted = |name: &str, script: &str| {
        let manifest = json!({ "name": name, "version": "1.0.0",
                               "scripts": { "postinstall": script } });
        host.index.npm(&manifest, "\n");
    };
    scripted("slow", "sleep 600");
    scripted("large", "head -c 200m /dev/zero >zeroes");
    scripted("greedy", "node -e 'Buffer.alloc(1 << 29, 1)'");
    let mut cases = vec![
        ("{timeout: 5s}", "slow", "longer than 5 s"),
        ("{disk: 64m}", "large", "wrote more than 64 MiB"),
    ];
    // Without a cgroup an allocation fails, and the message is that of the program.
    if has_cgroup() {
        cases.push(("{memory: 128m}", "greedy", "more than 128 MiB of memory"));
    }
    for (limits, name, words) in cases {
        host.configure(&format!("{}  limits: {limits}\n", host.index.policy()));
        let done = host.done(&format!("needs: {{npm: [{name}]}}"), &[], "true");
        done.assert_error("failed", "preparation_failed");
        let told = message(&done);
        assert!(told.contains(words), "{told}");
        assert!(told.contains("preparation: {limits: {"), "{told}");
    }
}

/// A package whose installation does not end by itself.
fn slow(host: &Host) -> std::path::PathBuf {
    let manifest = json!({ "name": "slow", "version": "1.0.0",
                           "scripts": { "postinstall": "sleep 600" } });
    host.index.npm(&manifest, "\n");
    host.bundle("slow", "needs: {npm: [slow]}", &[("main.sh", "true")])
}

/// Whether the archive of the package was requested.
fn is_under_way(host: &Host) -> bool {
    host.index.asked().iter().any(|one| one.ends_with(".tgz"))
}

fn kept(host: &Host) -> usize {
    let trees = host.prepared().join("1/trees");
    std::fs::read_dir(trees).map_or(0, Iterator::count)
}

#[test]
fn cancelled_provisioning_keeps_nothing() {
    let Some(host) = Host::new() else { return };
    let bundle = slow(&host);
    let before = kept(&host);
    let mut running = host.exec(&[], &bundle).start();
    running.until("the archive is asked for", || is_under_way(&host));
    running.signal(Signal::INT);
    let done = running.done();
    assert_eq!(done.outcome(), "cancelled", "{done:#?}");
    assert_eq!(kept(&host), before);
}

#[test]
fn killed_provisioning_leaves_nothing_that_the_next_run_uses() {
    let Some(host) = Host::new() else { return };
    let bundle = slow(&host);
    let case = host
        .exec(&[], &bundle)
        .without("I4")
        .without("I5")
        .without("I8");
    let mut running = case.start();
    running.until("the archive is asked for", || is_under_way(&host));
    running.signal(Signal::KILL);
    let done = running.done();
    assert_eq!(done.code, 137, "{done:#?}");
    // The package is fixed, and no run waits for the dead one.
    let manifest = json!({ "name": "slow", "version": "1.0.0" });
    host.index.npm(&manifest, "\n");
    let done = host.exec(&[], &bundle).done();
    done.assert_exited(0);
    assert_eq!(done.report["preparation"][0]["found"], "made");
}

#[test]
fn two_runs_that_need_the_same_prepare_it_once() {
    let Some(host) = Host::new() else { return };
    host.index.debs(&GREETING);
    let bundle = host.bundle("both", NEEDS, &[("main.sh", "greeting")]);
    let (one, two) = (
        host.exec(&[], &bundle).without("I4").without("I5").start(),
        host.exec(&[], &bundle).without("I4").without("I5").start(),
    );
    let (one, two) = std::thread::scope(|scope| {
        let two = scope.spawn(|| two.done());
        (one.done(), two.join().expect("done"))
    });
    let mut found = Vec::new();
    for done in [&one, &two] {
        done.assert_exited(0);
        assert_eq!(done.text(), "hello\n");
        found.push(
            done.report["preparation"][0]["found"]
                .as_str()
                .expect("a word"),
        );
    }
    found.sort_unstable();
    assert_eq!(found, ["made", "store"]);
    let asked = host.index.asked();
    let times = asked
        .iter()
        .filter(|one| one.ends_with("greeting_1.0_all.deb"));
    assert_eq!(times.count(), 1, "{asked:?}");
}
