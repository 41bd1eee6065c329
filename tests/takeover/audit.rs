//! Audit records of Landlock, from a socket in the place of the kernel's: audit is of the whole host.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use attacker::AUDIT_RECORDS;
use serde_json::{Value, json};
use support::invariants::living;
use support::{Done, is_root, skip, text};
use sys::audit::{LANDLOCK_ACCESS, LANDLOCK_DOMAIN};

use super::Scene;

/// A supervisor that reads nothing is noticed.
const READS_WITHIN: Duration = Duration::from_secs(30);

/// The first process of a body, as /proc of the host shows it.
struct Body {
    pid: String,
    uid: String,
    init: String,
}

fn body_of(marker: &str) -> Option<Body> {
    living(marker).into_iter().find_map(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next())
                .map(str::to_owned)
        };
        status
            .lines()
            .any(|line| line.starts_with("NSpid:") && line.ends_with("\t2"))
            .then_some(())?;
        Some(Body {
            pid: pid.to_string(),
            uid: field("Uid:")?,
            init: field("PPid:")?,
        })
    })
}

/// `None` after a skip.
fn scene() -> Option<Scene> {
    if sys::landlock::abi().is_ok_and(|abi| abi < 7) {
        skip("Landlock has audit records from Linux 6.15 on");
        return None;
    }
    Scene::new()
}

fn send(socket: &UnixDatagram, kind: u16, text: &str) {
    let mut message = vec![0; 16];
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(format!("audit(1729738800.268:30): {text}").as_bytes());
    socket.send(&message).expect("sent");
}

/// Runs a body that is refused a file to read-only `data` and a signal, and then waits until `records` are sent.
fn traced(scene: &Scene, records: impl Fn(&UnixDatagram, &Body)) -> Done {
    let ground = &scene.ground;
    let (data, shared) = (ground.path("data"), ground.path("shared"));
    ground.write("data/old", "");
    std::fs::create_dir_all(&shared).expect("made");
    let script = format!(
        "echo x > {0}/old; echo x > {0}/new; kill -TERM 1; \
         while [ ! -e {1}/go ]; do sleep 0.01; done",
        text(&data),
        text(&shared)
    );
    let flags = ["run", "--trace", "--ro", text(&data), "--rw", text(&shared)];
    let words = [&flags[..], &["--", "sh", "-c", &script]].concat();
    let path = ground.path(&format!("audit-{}", support::random()));
    let case = scene.command(&words).env(AUDIT_RECORDS, text(&path));
    let mut running = case.start();
    running.until("the body", || body_of(ground.marker()).is_some());
    if is_root() {
        let socket = UnixDatagram::unbound().expect("made");
        socket.connect(&path).expect("connected");
        socket.set_write_timeout(Some(READS_WITHIN)).expect("set");
        records(&socket, &body_of(ground.marker()).expect("the body"));
    }
    std::fs::write(shared.join("go"), "").expect("written");
    running.done()
}

/// The denials below `data`, by Landlock and of signals: kind, operation, object, rule, certainty, count. Others are
/// of the libraries of this host.
fn denials(done: &Done, data: &Path) -> Vec<Value> {
    let keys = ["kind", "operation", "object", "rule", "certainty", "count"];
    let is_meant = |denial: &&Value| {
        denial["kind"] == "signal"
            || denial["rule"] == "landlock"
            || Path::new(denial["object"].as_str().expect("a text")).starts_with(data)
    };
    let all = done.report["denials"].as_array().expect("a list").iter();
    let row = |denial: &Value| Value::from(keys.map(|key| denial[key].clone()).to_vec());
    all.filter(is_meant).map(row).collect()
}

fn by_trace(data: &Path) -> Vec<Value> {
    let inferred = |operation: &str, name: &str| {
        let object = data.join(name);
        json!(["file", operation, text(&object), "read-only", "inferred", 1])
    };
    vec![
        inferred("write", "old"),
        inferred("create", "new"),
        json!(["signal", null, "SIGTERM to process 1", "init", null, 1]),
    ]
}

/// B-76.
#[test]
fn what_only_the_audit_records_say_is_listed_and_nothing_twice() {
    let Some(scene) = scene() else { return };
    let data = scene.ground.path("data");
    let done = traced(&scene, |socket, body| {
        let access = |text: &str| send(socket, LANDLOCK_ACCESS, text);
        let allocated = |domain: &str, pid: &str, uid: &str| {
            let rest = r#"exe="/usr/bin/runner" comm="runner""#;
            let text = format!(
                "domain={domain} status=allocated mode=enforcing pid={pid} uid={uid} {rest}"
            );
            send(socket, LANDLOCK_DOMAIN, &text);
        };
        // More than the kernel keeps: the supervisor reads while the body runs.
        for _ in 0..2_000 {
            access(r#"domain=a0 blockers=fs.execute path="/etc/foreign" dev="vda" ino=1"#);
        }
        // Of another program, and of a process of the run that is not its first.
        access(r#"domain=a1 blockers=fs.execute path="/etc/foreign" dev="vda" ino=1"#);
        allocated("a1", &body.pid, "0");
        access(r#"domain=a2 blockers=fs.execute path="/etc/of-init" dev="vda" ino=1"#);
        allocated("a2", &body.init, &body.uid);
        access(&format!(
            r#"domain=a3 blockers=fs.write_file path="{}/old" dev="vda" ino=2"#,
            text(&data)
        ));
        allocated("a3", &body.pid, &body.uid);
        access(&format!(
            r#"domain=a3 blockers=fs.make_reg,fs.refer path="{}" dev="vda" ino=3"#,
            text(&data)
        ));
        access(r#"domain=a3 blockers=fs.execute path="/etc/tool" dev="vda" ino=4"#);
        access(r"domain=a3 blockers=fs.resolve_unix path=2F6120736F636B6574 dev=tmpfs ino=5");
        for _ in 0..3 {
            let init = &body.init;
            access(&format!(
                r#"domain=a3 blockers=scope.signal opid={init} ocomm="runner""#
            ));
        }
        let end = "domain=a3 status=deallocated denials=7";
        send(socket, LANDLOCK_DOMAIN, end);
        access(r#"domain=a3 blockers=fs.execute path="/etc/again" dev="vda" ino=1"#);
    });
    done.assert_exited(0);
    let observation = &done.report["observation"];
    let signals = observation["signals"]["reason"].as_str().expect("a reason");
    assert_eq!(observation["files"]["state"], "observed", "{observation}");
    if !is_root() {
        assert_eq!(denials(&done, &data), by_trace(&data));
        assert!(signals.contains("programs of its user"), "{signals}");
        return;
    }
    let mut expected = by_trace(&data);
    let landlock = |kind: &str, operation: Value, object: &str, count: u64| {
        json!([kind, operation, object, "landlock", null, count])
    };
    expected.insert(2, landlock("exec", json!("execute"), "/etc/tool", 1));
    expected.insert(3, landlock("file", json!("connect"), "/a socket", 1));
    expected.push(landlock(
        "signal",
        json!(null),
        "unknown signal to process 1",
        2,
    ));
    assert_eq!(denials(&done, &data), expected);
    assert!(!signals.contains("F_SETOWN"), "{signals}");
}

#[test]
fn what_the_audit_records_lack_is_in_the_observation() {
    let Some(scene) = scene() else { return };
    let done = traced(&scene, |socket, _| {
        send(socket, LANDLOCK_ACCESS, "domain=a3");
    });
    done.assert_exited(0);
    let data = scene.ground.path("data");
    assert_eq!(denials(&done, &data), by_trace(&data));
    if is_root() {
        let files = &done.report["observation"]["files"];
        let expected =
            json!({"state": "partial", "reason": "1 audit record could not be used", "beyond": 0});
        assert_eq!(*files, expected);
    }
}

/// The flags with which init and the body confine themselves.
fn domain_flags(scene: &Scene, records: Option<&Path>) -> Vec<String> {
    let log = scene.ground.path("strace");
    let mut case = scene.command(&["run", "--trace", "--", "true"]);
    if let Some(records) = records {
        case = case.env(AUDIT_RECORDS, text(records));
    }
    let to = text(&log);
    case.behind(&[
        "strace",
        "-f",
        "-e",
        "trace=landlock_restrict_self",
        "-o",
        to,
    ]);
    case.done().assert_exited(0);
    let log = std::fs::read_to_string(&log).expect("written");
    let calls = log
        .lines()
        .filter_map(|line| line.split_once("landlock_restrict_self("));
    let flags = calls.filter_map(|(_, call)| call.split_once(", ")?.1.split_once(')'));
    flags.map(|(flags, _)| flags.to_owned()).collect()
}

/// Otherwise a body that is refused something in a loop would fill the log of the host.
#[test]
fn landlock_records_what_it_refuses_only_if_the_records_can_be_read() {
    let Some(scene) = scene() else { return };
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("no strace");
    }
    // Of init and of the body. LOG_SAME_EXEC_OFF, LOG_NEW_EXEC_ON and LOG_SUBDOMAINS_OFF; otherwise the last one
    // for all below init, for domains that the body makes, too. With the uid of the caller nobody can tell whose the
    // records are.
    let of_domains = |is_read: bool| match is_root() && is_read {
        true => ["0", "0x7"],
        false => ["0x4", "0"],
    };
    let is_read = sys::audit::open().is_ok();
    assert_eq!(domain_flags(&scene, None), of_domains(is_read));
    let socket = scene.ground.path("records");
    assert_eq!(domain_flags(&scene, Some(&socket)), of_domains(true));
}
