//! Attacks by an index or a package.

use serde_json::json;

use crate::host::Host;
use crate::index::Deb;

#[test]
fn a_package_archive_that_leaves_its_root_is_refused() {
    let Some(host) = Host::new() else { return };
    host.index.debs(&[Deb {
        name: "evil",
        files: &[("usr/share/evil/x", "\n")],
        ..Deb::default()
    }]);
    host.index.replace_data("evil", "../../escaped", "x");
    let done = host.done("needs: {native: [evil]}", &[], "true");
    done.assert_error("refused", "preparation_refused");
    let message = done.report["error"]["message"].as_str().expect("a message");
    assert!(message.contains("evil_1.0_all.deb"), "{message}");
    assert!(message.contains("escaped"), "{message}");
}

/// The link refers to a path of the image, so the file is written there: in the layer.
#[test]
fn a_package_that_writes_through_a_link_of_its_own_stays_in_the_layer() {
    let Some(host) = Host::new() else { return };
    let target = host.ground.path("elsewhere");
    std::fs::create_dir_all(&target).expect("made");
    host.index.debs(&[Deb {
        name: "evil",
        files: &[("usr/share/evil/x", "\n")],
        ..Deb::default()
    }]);
    let target = target.to_str().expect("plain");
    host.index.replace_with_link("evil", target);
    let done = host.done(
        "needs: {native: [evil]}",
        &[],
        "readlink /usr/share/evil/out; ls /usr/share/evil",
    );
    done.assert_exited(0);
    assert_eq!(done.text(), format!("{target}\nout\n"), "{done:#?}");
    let there = std::fs::read_dir(target).expect("listed").count();
    assert_eq!(there, 0, "something was written to the host");
    let key = done.report["preparation"][0]["key"]
        .as_str()
        .expect("a key");
    let layer = host.layer(key);
    let through = layer.join(target.trim_start_matches('/')).join("through");
    assert_eq!(std::fs::read(through).expect("in the layer"), b"x");
}

#[test]
fn an_npm_tree_with_links_out_of_it_is_refused_and_one_with_links_inside_is_not() {
    let Some(host) = Host::new() else { return };
    for (name, script, refused) in [
        ("inside", "ln -s index.js linked.js", false),
        ("outside", "ln -s /etc/passwd linked.js", true),
        ("above", "ln -s ../../../../etc linked", true),
        ("fifo", "mkfifo pipe", true),
    ] {
        let manifest = json!({ "name": name, "version": "1.0.0",
                               "scripts": { "postinstall": script } });
        host.index.npm(&manifest, "console.log('ran')\n");
        let run = format!("node /node_modules/{name}/index.js");
        let done = host.done(&format!("needs: {{npm: [{name}]}}"), &[], &run);
        match refused {
            false => assert_eq!(done.text(), "ran\n", "{done:#?}"),
            true => {
                done.assert_error("refused", "preparation_refused");
            }
        }
    }
}

#[test]
fn a_package_cannot_lay_anything_beside_its_own_directory() {
    let Some(host) = Host::new() else { return };
    // A process that survives npm moves something into the layer.
    let script = "(mkdir -p /scratch/layer/usr/bin; echo x >/scratch/layer/usr/bin/sh)";
    let manifest = json!({ "name": "beside", "version": "1.0.0",
                           "scripts": { "postinstall": script } });
    host.index.npm(&manifest, "\n");
    let done = host.done("needs: {npm: [beside]}", &[], "true");
    done.assert_error("refused", "preparation_refused");
    let message = done.report["error"]["message"].as_str().expect("a message");
    assert!(message.contains("/usr"), "{message}");
}

#[test]
fn provisioning_sees_nothing_of_the_caller() {
    let Some(host) = Host::new() else { return };
    let script = "env >seen; ls -a /scratch /bundle >>seen 2>&1; id -u >>seen";
    let manifest = json!({ "name": "curious", "version": "1.0.0",
                           "scripts": { "postinstall": script } });
    host.index.npm(&manifest, "\n");
    let bundle = host.bundle(
        "curious",
        "needs: {npm: [curious]}",
        &[("main.sh", "cat /node_modules/curious/seen")],
    );
    let mut case = host.exec(&["-e", "GIVEN=by-the-caller"], &bundle);
    case = case.env("CALLERS_OWN", "value");
    let done = case.done();
    done.assert_exited(0);
    let text = done.text();
    for word in [
        "by-the-caller",
        "CALLERS_OWN",
        "main.sh",
        host.ground.canary(),
    ] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    assert!(
        text.contains("npm_config_registry=http://npm.test"),
        "{text}"
    );
}
