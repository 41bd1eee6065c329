//! npm and Python packages: the lists of the bundle first, then `needs`.

use serde_json::json;

use crate::host::Host;

fn publish(host: &Host) -> serde_json::Value {
    let salutation = json!({ "name": "salutation", "version": "2.1.0", "main": "index.js" });
    let greeting = json!({ "name": "greeting", "version": "1.0.0", "main": "index.js",
                           "bin": { "greet": "index.js" },
                           "dependencies": { "salutation": "^2.0.0" } });
    let locked = host.index.npm(&salutation, "module.exports = 'hello';\n");
    let code = "#!/usr/bin/env node\nconsole.log(require('salutation'));\n";
    host.index.npm(&greeting, code);
    locked
}

/// A lock file with `salutation`.
fn lists(locked: &serde_json::Value) -> [String; 2] {
    let package = json!({ "name": "tool", "version": "1.0.0",
                          "dependencies": { "salutation": "^2.0.0" } });
    let lock = json!({
        "name": "tool", "version": "1.0.0", "lockfileVersion": 3, "requires": true,
        "packages": {
            "": package.clone(),
            "node_modules/salutation": {
                "version": "2.1.0",
                "resolved": locked["dist"]["tarball"],
                "integrity": locked["dist"]["integrity"],
            },
        },
    });
    [package.to_string(), lock.to_string()]
}

#[test]
fn npm_packages_are_added_to_the_lock_files() {
    let Some(host) = Host::new() else { return };
    let [package, lock] = lists(&publish(&host));
    let files = [
        ("package.json", package.as_str()),
        ("package-lock.json", &lock),
        (
            "main.js",
            "console.log(require('salutation'), 'from', require.resolve('greeting'))\n",
        ),
    ];
    let done = host.done(
        "needs: {npm: ['greeting@^1.0.0']}",
        &files,
        "node main.js; greet; ls",
    );
    done.assert_exited(0);
    let said = "hello from /node_modules/greeting/index.js\nhello\n\
                main.js\nmain.sh\nmanifest.yaml\npackage-lock.json\npackage.json\n";
    assert_eq!(done.text(), said, "{done:#?}");
    let row = &done.report["preparation"][0];
    assert_eq!(
        (&row["kind"], &row["found"]),
        (&json!("npm"), &json!("made"))
    );
    // The lists alone are a request.
    let done = host.done(
        "needs: {language: node}",
        &files[..2],
        "node -p 'require(\"salutation\")'",
    );
    done.assert_exited(0);
    assert_eq!(done.text(), "hello\n");
    assert_eq!(done.report["preparation"][0]["found"], "made");
    assert_eq!(done.report["preparation"][0]["needs"], json!([]));
}

#[test]
fn a_lock_file_that_changed_is_installed_anew_and_one_that_did_not_is_not() {
    let Some(host) = Host::new() else { return };
    let [package, lock] = lists(&publish(&host));
    let found = |lock: &str| {
        let files = [
            ("package.json", package.as_str()),
            ("package-lock.json", lock),
        ];
        let done = host.done("needs: {language: node}", &files, "true");
        done.assert_exited(0);
        done.report["preparation"][0]["found"]
            .as_str()
            .expect("a word")
            .to_owned()
    };
    let other = lock.replace("\"name\":\"tool\"", "\"name\":\"tool2\"");
    assert_ne!(lock, other);
    assert_eq!(found(&lock), "made");
    assert_eq!(found(&lock), "store");
    assert_eq!(found(&other), "made");
}

#[test]
fn python_packages_are_added_to_the_requirements() {
    let Some(host) = Host::new() else { return };
    host.index.wheel(
        "greeting",
        "1.0",
        "def greet(name): return f'hello {name}'\n",
    );
    host.index.wheel("farewell", "2.0", "WORD = 'bye'\n");
    let script = "python3 -c 'import greeting, farewell; print(greeting.greet(farewell.WORD)); \
                  print(greeting.__file__.startswith(\"/opt/runner/python/\"))'";
    let files = [("requirements.txt", "greeting==1.0\n")];
    let done = host.done("needs: {pip: ['farewell==2.0']}", &files, script);
    done.assert_exited(0);
    assert_eq!(done.text(), "hello bye\nTrue\n", "{done:#?}");
    assert_eq!(done.report["preparation"][0]["kind"], "pip");
    assert_eq!(
        done.report["preparation"][0]["hosts"][0]["host"],
        "pip.test"
    );
}

#[test]
fn a_package_that_the_registry_does_not_have_is_named() {
    let Some(host) = Host::new() else { return };
    publish(&host);
    for (needs, words) in [
        ("needs: {npm: [nonesuch]}", "the index has no nonesuch"),
        (
            "needs: {npm: ['greeting@^9.0.0']}",
            "the index has no greeting@^9.0.0",
        ),
        (
            "needs: {pip: ['nonesuch==1.0']}",
            "the index has no nonesuch==1.0",
        ),
    ] {
        let done = host.done(needs, &[], "true");
        done.assert_error("failed", "preparation_failed");
        let message = done.report["error"]["message"].as_str().expect("a message");
        assert!(message.contains(words), "{message}");
        assert_eq!(done.report["preparation"][0]["found"], "absent");
    }
}

#[test]
fn a_body_does_not_get_the_network_of_its_provisioning() {
    let Some(host) = Host::new() else { return };
    publish(&host);
    let url = host.index.url("npm");
    let script = format!(
        "node -e 'fetch(\"{url}/\").then(() => console.log(\"reached\"), () => console.log(\"denied\"))'"
    );
    let done = host.done("needs: {npm: [greeting]}", &[], &script);
    done.assert_exited(0);
    assert_eq!(done.text(), "denied\n");
    assert_eq!(done.report["egress"]["capture"], "none");
}
