//! TLS and NKeys from files.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::queue::{Queue, STREAM, script};
use support::{Ground, certificates};

#[test]
fn a_worker_and_its_clients_use_tls_with_certificates_of_files() {
    let ground = Ground::new();
    let directory = ground.path("tls");
    std::fs::create_dir(&directory).expect("made");
    let names = ["127.0.0.1".to_owned()];
    certificates::make(&directory, &[("server", &names), ("client", &names)]);
    let path = |name: &str| directory.join(name).display().to_string();
    let [ca, cert, key] = [path("ca.pem"), path("server.pem"), path("server.key")];
    let options = [
        "--tls",
        "--tlscert",
        &cert,
        "--tlskey",
        &key,
        "--tlscacert",
        &ca,
        "--tlsverify",
    ];
    let queue = Queue::with_options(ground, &options);
    let url = format!("tls://127.0.0.1:{}", queue.port);
    let [client, client_key] = [path("client.pem"), path("client.key")];
    let flags = [
        "--nats",
        &url,
        "--tls-ca",
        &ca,
        "--tls-cert",
        &client,
        "--tls-key",
        &client_key,
    ];
    // Without a certificate the server refuses, and without the authority the client does.
    for few in [&flags[..4], &flags[..2]] {
        let output = queue.run(&[&["worker"], few].concat());
        assert_eq!(output.status.code(), Some(125), "{output:?}");
    }
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&client_key, open).expect("set");
    let output = queue.run(&[&["worker"], &flags[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("nobody else may read"), "{said}");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&client_key, private).expect("set");
    let _worker = queue.worker("one", &flags);
    let bundle = script(&queue.ground, "true");
    let bundle = bundle.to_str().expect("plain");
    queue.printed(&[&["submit", "--id", "secret", bundle], &flags[..]].concat());
    queue.printed(&[&["result", "--wait", "secret"], &flags[..]].concat());
}

#[test]
fn a_worker_proves_who_it_is_by_the_nkey_of_a_file() {
    // A key pair that nothing else uses.
    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let ground = Ground::new();
    let config = format!("authorization {{ users: [ {{ nkey: {PUBLIC} }} ] }}\n");
    let config = ground.write("nats.conf", config).display().to_string();
    let seed = ground.write("seed", SEED).display().to_string();
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&seed, private).expect("set");
    let queue = Queue::with_options(ground, &["-c", &config]);
    let output = queue.run(&["worker"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let flags = ["--nkey", &seed];
    let worker = queue.worker("one", &flags);
    let bundle = script(&queue.ground, "true");
    let bundle = bundle.to_str().expect("plain");
    queue.printed(&[&["submit", "--id", "mine", bundle], &flags[..]].concat());
    queue.printed(&[&["result", "--wait", "mine"], &flags[..]].concat());
    // The seed is nowhere where others look.
    let shown = Command::new("ps")
        .args(["-ewwo", "args"])
        .output()
        .expect("ps");
    assert!(!String::from_utf8_lossy(&shown.stdout).contains(SEED));
    assert!(!worker.said().contains(SEED));
}

/// The subjects that docs/workers.md says: who, what they publish to, what they subscribe to.
fn permissions() -> Vec<[Vec<String>; 3]> {
    let text = include_str!("../../docs/workers.md");
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| who |"))
        .skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let subjects = |cell: &str| -> Vec<String> {
        let names = cell.split('`').skip(1).step_by(2);
        let of_stream = |part: &str| match part.strip_prefix('S') {
            Some(rest) if rest.is_empty() || rest.starts_with('-') => format!("{STREAM}{rest}"),
            _ => part.to_owned(),
        };
        let subject = |name: &str| name.split('.').map(of_stream).collect::<Vec<_>>().join(".");
        names.map(subject).collect()
    };
    let cells = |row: &str| -> Vec<Vec<String>> { row.split('|').map(subjects).collect() };
    rows.map(|row| {
        let cells = cells(row);
        [cells[1].clone(), cells[2].clone(), cells[3].clone()]
    })
    .collect()
}

#[test]
fn accounts_need_no_more_than_the_page_says() {
    let rows = permissions();
    assert_eq!(rows.len(), 3, "{rows:?}");
    let quoted = |subjects: &[String]| -> String {
        let quoted = subjects.iter().filter(|subject| !subject.starts_with("--"));
        let quoted = quoted.map(|subject| format!("\"{subject}\""));
        quoted.collect::<Vec<_>>().join(", ")
    };
    let mut config = "authorization { users: [\n".to_owned();
    for ([_, publish, subscribe], name) in rows.iter().zip(["worker", "sender", "reader"]) {
        let (publish, subscribe) = (quoted(publish), quoted(subscribe));
        config += &format!(
            "{{ user: {name}, password: {name}, permissions: {{ \
             publish: {{ allow: [ {publish} ] }}, subscribe: {{ allow: [ {subscribe} ] }} }} }}\n"
        );
    }
    config += "] }\n";
    let ground = Ground::new();
    let config = ground.write("nats.conf", config).display().to_string();
    let queue = Queue::with_options(ground, &["-c", &config]);
    let url = |name: &str| format!("nats://{name}:{name}@127.0.0.1:{}", queue.port);
    let worker = queue.worker("one", &["--nats", &url("worker")]);
    let manifest = "name: whole\nrun: body.sh\noutputsFiles:\n  out: { path: out }\n";
    let body = "#!/bin/sh\necho said\ncp /scratch/data /scratch/out\n";
    let bundle = queue
        .ground
        .bundle(&[("manifest.yaml", manifest), ("body.sh", body)]);
    let bundle = bundle.to_str().expect("plain");
    let data = format!(
        "data={}",
        queue.ground.write("data", "of the file").display()
    );
    let sender = url("sender");
    queue.printed(&[
        "submit", "--nats", &sender, "--id", "a", "--in", &data, bundle,
    ]);
    let (outputs, reader) = (queue.ground.path("outputs"), url("reader"));
    let outputs = outputs.to_str().expect("plain");
    let report = queue.printed(&[
        "result",
        "--nats",
        &reader,
        "--wait",
        "--out-dir",
        outputs,
        "a",
    ]);
    assert!(report.contains("\"exited\""), "{report}");
    queue.printed(&["submit", "--nats", &sender, "--id", "b", bundle]);
    queue.run(&["result", "--nats", &reader, "--cancel", "--wait", "b"]);
    assert!(!worker.said().contains("ermission"), "{}", worker.said());
    // A reader submits nothing.
    let output = queue.run(&["submit", "--nats", &reader, "--id", "c", bundle]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
}
