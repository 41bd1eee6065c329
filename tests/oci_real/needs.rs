//! `engine: sandbox` with `needs`: the image from the registry by a template of the host, packages
//! from indexes of the tests.

use serde_json::json;

use crate::host::Host;
use crate::index::{Deb, Index};
use crate::sources::pushed;
use support::images::debian;

#[test]
fn a_manifest_has_an_image_packages_of_three_kinds_and_a_source_all_at_once() {
    let Some(image) = debian() else { return };
    let Some(mut index) = Index::start() else {
        return;
    };
    let Some(mut host) = Host::new() else { return };
    image.push(&host.registry, "images/debian:1");
    let place = host.docker(&format!("images/debian@{}", image.digest()));
    let source = pushed(&host, "sources/backend:1.2.3");
    host.forget();
    index.debs(&[Deb {
        name: "greeting",
        files: &[("usr/bin/greeting", "#!/bin/sh\necho native\n")],
        ..Deb::default()
    }]);
    let package = json!({ "name": "salutation", "version": "2.1.0", "main": "index.js" });
    index.npm(&package, "module.exports = 'npm';\n");
    index.wheel("salute", "1.0", "WORD = 'pip'\n");
    host.allow(&format!(
        "images: [{{id: of-the-host, languages: [multi], cost_tier: 1, source: '{place}'}}]\n{}",
        index.policy()
    ));
    host.ground.write(
        "bundle/manifest.yaml",
        format!(
            "run: {{exec: [sh, main.sh]}}\n\
             runner:\n  engine: sandbox\n  image: of-the-host\n  needs:\n    \
             native: [greeting]\n    npm: ['salutation@^2']\n    pip: ['salute>=1']\n\
             workspaceSources:\n- {{id: backend, ref: '{}', mountPath: /workspace/backend}}\n",
            host.registry
                .reference(&format!("sources/backend@{source}"))
        ),
    );
    host.ground.write(
        "bundle/main.sh",
        "greeting\nnode -p 'require(\"salutation\")'\npython3 -c 'import salute; print(salute.WORD)'\n\
         cat /workspace/backend/src/main.txt\n",
    );
    let directory = host.ground.path("bundle");
    let words = [
        "exec",
        "--grant=sources",
        "--add-host=apt.test:127.0.0.1",
        "--add-host=npm.test:127.0.0.1",
        "--add-host=pip.test:127.0.0.1",
        directory.to_str().expect("plain"),
    ];
    let done = host.command(&words).done();
    done.assert_exited(0);
    assert_eq!(done.text(), "native\nnpm\npip\nas it was\n");
    let found = |row: &serde_json::Value| (row["kind"].clone(), row["found"].clone());
    let rows: Vec<_> = done.report["preparation"]
        .as_array()
        .expect("rows")
        .iter()
        .map(found)
        .collect();
    let wanted = ["native", "npm", "pip"].map(|kind| (json!(kind), json!("made")));
    assert_eq!(rows, wanted);
    // Everything is kept: no further request is sent.
    index.stop();
    host.registry.stop();
    let done = host.command(&words).done();
    done.assert_exited(0);
    assert_eq!(done.text(), "native\nnpm\npip\nas it was\n");
}
