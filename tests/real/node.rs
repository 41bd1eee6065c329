//! Node: a program with installed dependencies, npm without the network, a server on loopback, a
//! Node outside the system directories.

use std::path::PathBuf;

use crate::bundling::{exec_bundled, populated};
use support::Ground;
use support::bodies::copy_program;
use support::bundles::pack;
use support::packages::{has, node_program, succeed, tool};

const MAIN: &str = r#"
const { execFileSync } = require('child_process');
const greeting = require('greeting');
console.log(greeting('sandbox'), require('semver').inc('1.2.3', 'minor'));
console.log(require('cowsay').say({ text: 'moo' }).includes('< moo >'));
console.log(execFileSync('semver', ['-r', '>=2', '1.0.0', '2.5.0']).toString().trim());
"#;

const SERVER: &str = r#"
const http = require('http');
const server = http.createServer((request, answer) => answer.end('served ' + request.url));
server.listen(0, '127.0.0.1', () => {
  http.get({ host: 'localhost', port: server.address().port, path: '/x' }, answer => {
    answer.on('data', bytes => process.stdout.write(bytes));
    answer.on('end', () => server.close());
  });
});
"#;

/// The program with its dependencies.
fn program(ground: &Ground, run: &str) -> Option<PathBuf> {
    let manifest = format!("name: report\nrun: {run}\n");
    let files = [("main.js", MAIN), ("manifest.yaml", &manifest)];
    Some(populated(ground, &node_program()?, &files))
}

#[test]
fn a_node_program_with_installed_dependencies_runs_from_a_plain_tar() {
    let ground = Ground::new();
    let Some(folder) = program(&ground, "main.js") else {
        return;
    };
    let done = ground.exec(&[], &pack(&folder));
    done.assert_exited(0);
    assert_eq!(done.text(), "hello sandbox 1.3.0\ntrue\n2.5.0\n");
    let memory = &done.report["limits"]["memory_bytes"];
    assert_eq!(memory["effective"], 256 << 20, "{done:#?}");
}

#[test]
fn a_node_program_with_installed_dependencies_runs_from_a_made_bundle() {
    let ground = Ground::new();
    let Some(folder) = program(&ground, "main.js") else {
        return;
    };
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "hello sandbox 1.3.0\ntrue\n2.5.0\n");
}

#[test]
fn npm_runs_scripts_and_lists_packages_without_the_network() {
    let ground = Ground::new();
    let run = "npm run --silent check && npm --offline ls";
    let Some(folder) = program(&ground, run) else {
        return;
    };
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    let text = done.text();
    assert!(text.starts_with("2.5.0\nreport@1.0.0 /bundle\n"), "{text}");
    assert!(text.contains("greeting@1.0.0 -> ./greeting"), "{text}");
}

#[test]
fn a_node_server_answers_on_loopback() {
    let ground = Ground::new();
    if !has("node") {
        return;
    }
    let done = ground.run(&[], &["node", "-e", SERVER]);
    done.assert_exited(0);
    assert_eq!(done.text(), "served /x");
    let manifest = ("manifest.yaml", "name: served\nrun: server.js\n");
    let folder = ground.folder(&[manifest, ("server.js", SERVER)]);
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "served /x");
}

#[test]
fn node_sizes_its_heap_by_the_limit_and_not_by_the_host() {
    let ground = Ground::new();
    if !has("node") {
        return;
    }
    let heap = "console.log(require('v8').getHeapStatistics().heap_size_limit >> 20)";
    let done = ground.run(&[], &["node", "-e", heap]);
    done.assert_exited(0);
    let mebibytes: u64 = done.text().trim().parse().expect("a number");
    assert!(mebibytes <= 256, "{mebibytes} MiB");
    let own = ["-e", "NODE_OPTIONS=--max-old-space-size=700", "-m", "1g"];
    let done = ground.run(&own, &["node", "-e", heap]);
    done.assert_exited(0);
    let mebibytes: u64 = done.text().trim().parse().expect("a number");
    assert!((700..=900).contains(&mebibytes), "{mebibytes} MiB");
}

#[test]
fn a_node_outside_the_system_directories_is_shown_with_its_prefix() {
    let ground = Ground::new();
    if !has("node") {
        return;
    }
    let prefix = ground.path("opt/node-20");
    std::fs::create_dir_all(prefix.join("bin")).expect("made");
    let system = succeed(tool("sh").args(["-c", "readlink -f $(command -v node)"])).expect("found");
    // A copy: a link would lead to the system's.
    copy_program(system.trim(), &prefix.join("bin/node-of-mine"));
    ground.write("opt/node-20/share/text", "beside it");
    let script = "#!/usr/bin/env node-of-mine\nconsole.log('a script of the prefix')\n";
    let greet = ground.write("opt/node-20/bin/greet", script);
    succeed(tool("chmod").arg("755").arg(&greet)).expect("executable");
    let path = format!("{}/bin:/usr/bin:/bin", prefix.display());
    let shown = prefix.join("share/text");
    let read = format!(
        "console.log(require('fs').readFileSync('{}', 'utf8'))",
        shown.display()
    );
    let body = ["run", "--", "node-of-mine", "-e", &read];
    let done = ground.command(&body).env("PATH", &path).done();
    done.assert_exited(0);
    assert_eq!(done.text(), "beside it\n");

    // A script beside its interpreter is visible with the same prefix.
    let done = ground
        .command(&["run", "--", "greet"])
        .env("PATH", &path)
        .done();
    done.assert_exited(0);
    assert_eq!(done.text(), "a script of the prefix\n");
}
