//! The worker of the manifest, with a NATS server that knows it by the NKey of its Secret.

use std::process::{Child, Command, Stdio};

use serde_json::json;
use support::invariants::eventually;
use support::ports::free_port;
use support::{Ground, runner, skip};

use crate::container::{Container, can_make_containers, said};
use crate::manifest::Pod;
use crate::runs::static_bundle;

/// A key pair that nothing else uses.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

/// Killed when it is dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
    }
}

fn server(ground: &Ground) -> Option<Server> {
    let port = free_port(std::net::Ipv4Addr::LOCALHOST);
    let config = format!("authorization {{ users: [ {{ nkey: {PUBLIC} }} ] }}\n");
    let config = ground.write("nats.conf", config);
    let log = std::fs::File::create(ground.path("nats.log")).expect("made");
    let started = Command::new("nats-server")
        .args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"])
        .arg(ground.path("nats"))
        .arg("-c")
        .arg(config)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let Ok(child) = started else {
        skip("no nats-server: scripts/test installs it");
        return None;
    };
    eventually("the server listens", || {
        let said = std::fs::read_to_string(ground.path("nats.log"));
        said.expect("readable").contains("Server is ready")
    });
    Some(Server { child, port })
}

#[test]
fn the_worker_of_the_manifest_takes_runs_and_ends_when_it_is_asked_to() {
    if !can_make_containers() {
        return;
    }
    let ground = Ground::new();
    let Some(server) = server(&ground) else {
        return;
    };
    let url = format!("nats://127.0.0.1:{}", server.port);
    let mut pod = Pod::of("worker.yaml");
    let arguments = pod.container()["args"].as_array_mut().expect("a list");
    let address = arguments
        .iter()
        .position(|word| word == "--nats=nats://nats:4222");
    arguments[address.expect("the address")] = json!(format!("--nats={url}"));
    let mut container = Container::new(pod);
    container.shares_network = true;
    container.put("nkey", "seed", SEED);
    let log = ground.path("worker.log");
    let mut worker = container.command(&[]);
    worker.stderr(std::fs::File::create(&log).expect("made"));
    let mut worker = worker.spawn().expect("runc starts");
    let logged = || std::fs::read_to_string(&log).expect("readable");
    eventually("the worker takes runs", || {
        logged().contains("2 places for runs of the stream builds")
    });

    let seed = ground.write("seed", SEED);
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&seed, private).expect("set");
    let bundle = static_bundle("#include <stdio.h>\nint main(void) { return puts(\"done\") < 0; }");
    let bundle = ground.write("bundle.tar.gz", bundle);
    let client = |verb: &str, words: &[&str]| {
        let mut command = Command::new(runner());
        command.args([verb, "--stream", "builds", "--nats", &url, "--nkey"]);
        command.arg(&seed).args(words);
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}\n{}", said(&output), logged());
        String::from_utf8(output.stdout).expect("text")
    };
    let bundle = bundle.to_str().expect("a plain path");
    assert_eq!(client("submit", &["--id", "one", bundle]), "one\n");
    assert_eq!(client("result", &["--wait", "--logs", "one"]), "done\n");
    container.terminate();
    let status = worker.wait().expect("waited");
    assert_eq!(status.code(), Some(0), "{}", logged());
}
