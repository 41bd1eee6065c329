//! Packages of the operating system: apt resolves and checks, the runner unpacks.

use crate::host::Host;
use crate::index::{Deb, Index};

/// A package with a dependency, whose installation scripts would leave a file.
pub(crate) const GREETING: [Deb<'static>; 2] = [
    Deb {
        name: "greeting-text",
        depends: "",
        files: &[("usr/share/greeting/text", "hello\n")],
        postinst: "",
    },
    Deb {
        name: "greeting",
        depends: "greeting-text",
        files: &[(
            "usr/bin/greeting",
            "#!/bin/sh\ncat /usr/share/greeting/text\n",
        )],
        postinst: "touch /usr/share/greeting/installed",
    },
];
pub(crate) const NEEDS: &str = "needs: {native: [greeting]}";

#[test]
fn a_package_is_installed_with_its_dependencies_and_without_its_scripts() {
    let Some(host) = Host::new() else { return };
    host.index.debs(&GREETING);
    let done = host.done(NEEDS, &[], "greeting; ls /usr/share/greeting; id -u");
    done.assert_exited(0);
    assert_eq!(done.text(), "hello\ntext\n1000\n", "{done:#?}");
    let row = &done.report["preparation"][0];
    assert_eq!(row["kind"], "native");
    assert_eq!(row["found"], "made");
    assert_eq!(row["packages"][1], "greeting 1.0");
    assert_eq!(row["packages"][0], "greeting-text 1.0");
    assert_eq!(row["scripts_not_run"][0], "greeting 1.0");
    assert_eq!(row["hosts"][0]["host"], "apt.test");
    assert_eq!(
        done.report["runner"]["needs_unsatisfied"],
        serde_json::json!([])
    );
}

#[test]
fn a_root_that_cannot_be_written_has_all_that_was_prepared() {
    let Some(host) = Host::new() else { return };
    host.index.debs(&GREETING);
    let package = serde_json::json!({ "name": "salutation", "version": "2.1.0" });
    host.index
        .npm(&package, "module.exports = 'hello from npm';\n");
    host.index
        .wheel("farewell", "2.0", "said = 'bye from pip'\n");
    host.configure(&format!(
        "{}oci: {{root_read_only: true}}\n",
        host.index.policy()
    ));
    let needs = "needs: {native: [greeting], npm: [salutation], pip: ['farewell==2.0']}";
    let script = "greeting; node -p \"require('salutation')\"
        python3 -c 'import farewell; print(farewell.said)'
        for at in / /usr /node_modules /opt/runner; do touch $at/x 2>/dev/null && echo WROTE $at; done
        true";
    for found in ["made", "store"] {
        let done = host.done(needs, &[], script);
        done.assert_exited(0);
        let said = "hello\nhello from npm\nbye from pip\n";
        assert_eq!(done.text(), said, "{done:#?}");
        assert_eq!(done.report["image"]["root"], "read_only");
        let rows = done.report["preparation"].as_array().expect("a list");
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row["found"] == found), "{rows:?}");
    }
}

#[test]
fn a_second_run_uses_the_cache_without_a_request() {
    let Some(mut host) = Host::new() else { return };
    host.index.debs(&GREETING);
    host.done(NEEDS, &[], "greeting").assert_exited(0);
    let asked = host.index.asked();
    assert!(
        asked
            .iter()
            .any(|one| one.ends_with("greeting_1.0_all.deb")),
        "{asked:?}"
    );
    host.index.stop();
    let done = host.done(NEEDS, &[], "greeting; true");
    done.assert_exited(0);
    assert_eq!(done.text(), "hello\n");
    assert_eq!(done.report["preparation"][0]["found"], "store");
    assert_eq!(host.index.asked(), asked);
}

#[test]
fn a_package_that_no_index_has_is_named() {
    let Some(host) = Host::new() else { return };
    host.index.debs(&GREETING);
    let done = host.done("needs: {native: [greeting, nonesuch]}", &[], "true");
    done.assert_error("failed", "preparation_failed");
    let message = done.report["error"]["message"].as_str().expect("a message");
    assert!(message.contains("the index has no nonesuch"), "{message}");
    assert!(
        message.contains("Unable to locate package nonesuch"),
        "{message}"
    );
}

#[test]
fn packages_of_an_untrusted_index_are_refused() {
    let Some(host) = Host::new() else { return };
    host.index.debs(&GREETING);
    // Changed after it was signed.
    let list = host.index.apt("Packages");
    let text = std::fs::read_to_string(&list).expect("readable");
    std::fs::write(&list, text.replace("greeting-text", "greeting-tent")).expect("written");
    let done = host.done(NEEDS, &[], "true");
    done.assert_error("failed", "preparation_failed");
    // Signed with a key that the host does not trust.
    host.index.sign();
    let Some(other) = Index::start() else { return };
    let own = host.index.keys();
    let policy = host.index.policy();
    let text = |path: std::path::PathBuf| path.to_str().expect("plain").to_owned();
    host.configure(&policy.replace(&text(own), &text(other.keys())));
    let done = host.done(NEEDS, &[], "true");
    done.assert_error("failed", "preparation_failed");
    let message = done.report["error"]["message"].as_str().expect("a message");
    assert!(message.contains("not signed"), "{message}");
}

#[test]
fn a_plan_lists_packages_and_their_origin_and_installs_nothing() {
    let Some(host) = Host::new() else { return };
    let bundle = host.bundle("planned", NEEDS, &[("main.sh", "true")]);
    // Its output is not a report.
    let done = host.verb("plan", &[], &bundle).without("I8").done();
    let row = &done.report["preparation"][0];
    assert_eq!(row["kind"], "native", "{done:#?}");
    assert_eq!(row["needs"][0], "greeting");
    let from = row["from"][0].as_str().expect("a line");
    assert!(from.starts_with("deb http://apt.test:"), "{from}");
    let reached = row["allowed"][0].as_str().expect("a host");
    assert!(reached.starts_with("apt.test:"), "{reached}");
    assert_eq!(host.index.asked(), Vec::<String>::new());
}
