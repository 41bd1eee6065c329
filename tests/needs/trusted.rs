//! Indexes over TLS, read-only roots, and package sources that a bundle states.

use serde_json::json;

use crate::host::Host;
use crate::native::GREETING;

const ALL: &str = "needs: {native: [greeting], npm: [salutation], pip: [farewell]}";
const USE: &str = "greeting; node -p 'require(\"salutation\")'; \
                   python3 -c 'import farewell; print(farewell.WORD)'";

fn publish(host: &Host) {
    host.index.debs(&GREETING);
    let salutation = json!({ "name": "salutation", "version": "1.0.0", "main": "index.js" });
    host.index
        .npm(&salutation, "module.exports = 'well met';\n");
    host.index.wheel("farewell", "1.0", "WORD = 'bye'\n");
}

#[test]
fn indexes_over_tls_are_trusted_if_the_host_names_their_authority() {
    let Some(host) = Host::with_tls() else { return };
    publish(&host);
    let policy = host.index.policy();
    assert!(policy.contains("https://npm.test:"), "{policy}");
    for needs in [
        "needs: {native: [greeting]}",
        "needs: {npm: [salutation]}",
        "needs: {pip: [farewell]}",
    ] {
        let done = host.done(needs, &[], "true");
        done.assert_error("failed", "preparation_failed");
        let told = done.report["error"]["message"].as_str().expect("a message");
        let told = told.to_lowercase();
        assert!(told.contains("certificate"), "{told}");
    }
    assert_eq!(host.index.asked(), Vec::<String>::new());
    let authority = host.index.authority();
    host.configure(&format!("{policy}  ca_file: {}\n", authority.display()));
    let done = host.done(ALL, &[], USE);
    done.assert_exited(0);
    assert_eq!(done.text(), "hello\nwell met\nbye\n", "{done:#?}");
    for row in done.report["preparation"].as_array().expect("rows") {
        assert_eq!(row["found"], "made", "{row}");
    }
}

#[test]
fn packages_are_mounted_over_a_read_only_root() {
    let Some(host) = Host::new() else { return };
    publish(&host);
    host.configure(&format!(
        "{}oci: {{root_read_only: true}}\n",
        host.index.policy()
    ));
    let script = format!("{USE}; touch /usr/there 2>/dev/null || echo nobody writes");
    let done = host.done(ALL, &[], &script);
    done.assert_exited(0);
    let said = "hello\nwell met\nbye\nnobody writes\n";
    assert_eq!(done.text(), said, "{done:#?}");
    assert_eq!(done.report["image"]["root"], "read_only");
}

#[test]
fn lists_that_requirements_name_are_installed_and_decide_the_layer() {
    let Some(host) = Host::new() else { return };
    for version in ["1.0", "2.0"] {
        let word = format!("WORD = 'bye {version}'\n");
        host.index.wheel("farewell", version, &word);
    }
    let found = |constraint: &str| {
        let files = [
            ("requirements.txt", "-r lists/more.txt\n"),
            ("lists/more.txt", "farewell\n-c ../bounds.txt\n"),
            ("bounds.txt", constraint),
        ];
        let script = "python3 -c 'import farewell; print(farewell.WORD)'";
        let done = host.done("needs: {language: python}", &files, script);
        done.assert_exited(0);
        let found = done.report["preparation"][0]["found"].clone();
        (done.text(), found)
    };
    assert_eq!(
        found("farewell<2\n"),
        ("bye 1.0\n".to_owned(), "made".into())
    );
    assert_eq!(
        found("farewell<2\n"),
        ("bye 1.0\n".to_owned(), "store".into())
    );
    assert_eq!(
        found("farewell>1\n"),
        ("bye 2.0\n".to_owned(), "made".into())
    );
}

#[test]
fn a_list_that_the_bundle_does_not_have_is_refused_by_name() {
    let Some(host) = Host::new() else { return };
    for (text, words) in [
        ("-r more.txt\n", "more.txt, which the bundle does not have"),
        (
            "-c ../more.txt\n",
            "../more.txt, which is not a path inside of",
        ),
        (
            "-r https://pip.test/x\n",
            "names the list https://pip.test/x",
        ),
    ] {
        let files = [("requirements.txt", text)];
        let done = host.done("needs: {language: python}", &files, "true");
        done.assert_error("refused", "needs_list_unreadable");
        let told = done.report["error"]["message"].as_str().expect("a message");
        assert!(told.contains("requirements.txt"), "{told}");
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(host.index.asked(), Vec::<String>::new());
}

#[test]
fn settings_of_npm_in_a_bundle_lead_nowhere() {
    let Some(host) = Host::new() else { return };
    publish(&host);
    let package = json!({ "name": "tool", "version": "1.0.0" });
    let lock = json!({ "name": "tool", "version": "1.0.0", "lockfileVersion": 3,
                       "requires": true, "packages": { "": package.clone() } });
    let files = [
        ("package.json", &*package.to_string()),
        ("package-lock.json", &*lock.to_string()),
        (
            ".npmrc",
            "registry=http://elsewhere.test/\nignore-scripts=true\n",
        ),
    ];
    let script = "node -p 'require(\"salutation\")'";
    let done = host.done("needs: {npm: [salutation]}", &files, script);
    done.assert_exited(0);
    assert_eq!(done.text(), "well met\n");
    let row = &done.report["preparation"][0];
    let hosts = row["hosts"].as_array().expect("hosts");
    assert_eq!(hosts.len(), 1, "{row}");
    assert_eq!(hosts[0]["host"], "npm.test");
    assert_eq!(row["denials"], json!([]));
}

#[test]
fn a_preparation_may_make_more_files_than_a_body() {
    if !support::belongs_to_tier("long") {
        return;
    }
    let Some(host) = Host::new() else { return };
    let script =
        "node -e 'for (let i = 0; i < 70000; i++) fs.closeSync(fs.openSync(`f${i}`, `w`))'";
    let manifest = json!({ "name": "many", "version": "1.0.0",
                           "scripts": { "postinstall": script } });
    host.index.npm(&manifest, "\n");
    let count = "ls -f /node_modules/many | grep -c '^f[0-9]'";
    let done = host.done("needs: {npm: [many]}", &[], count);
    done.assert_exited(0);
    assert_eq!(done.text(), "70000\n");
}
