//! `--publish`: only the caller reaches a server of the body, at the published port.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::runs::{Capture, Seen, Setting};
use support::Running;
use support::network::{PYTHON, Who};

/// A port of the host's namespace that no other case uses.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A server in the body: it echoes, and ends at `stop`.
const SERVER: &str = "
stopped = threading.Event()
def serve(family, address, port):
    listener = socket.socket(family)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind((address, port))
    listener.listen(256)
    def answer(connection):
        with connection:
            while piece := connection.recv(1 << 18):
                connection.sendall(piece)
                if piece == b'stop':
                    stopped.set()
    def forever():
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=forever, daemon=True).start()
";

/// Functions for the callers.
const CALLER: &str = include_str!("../bodies/egress/publish_caller.py");

/// Runs a caller in the host's namespace and returns its output.
fn call(setting: &Setting, script: &str) -> String {
    let directory = setting.ground.path("");
    let mut command = setting
        .outside
        .command(Who::Caller, PYTHON.as_ref(), &directory);
    let output = command
        .args(["-c", &format!("{CALLER}\n{script}")])
        .output()
        .expect("starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn end(running: Running<'_>) -> Seen {
    let seen = Seen::of(running.done());
    seen.done.assert_exited(0);
    seen
}

on_both_captures! {
    /// H-18: the port is reachable only while the run lasts.
    fn a_published_server_is_reached_until_the_body_ends(setting) {
        let (four, six) = (port(), port());
        let publish = [format!("{four}:8080"), format!("{six}:8081")];
        let flags = ["--publish", &publish[0], "--publish", &publish[1], "--allow-net", "api.openai.com"];
        let running = setting.case(&flags, &format!("{SERVER}
serve(socket.AF_INET, '127.0.0.1', 8080)
serve(socket.AF_INET6, '::', 8081)
stopped.wait(100)")).start();
        let said = call(setting, &format!("
print(echo({four}, b'four'), echo({six}, b'six'))
data = bytes(range(256)) * 40000
print(echo({four}, data) == data)
for host in '198.51.100.1', '93.184.217.1', '::1':
    print(host, echo({four}, b'x', host, 0))
print(echo({four}, b'stop'))"));
        assert_eq!(said, "b'four' b'six'
True
198.51.100.1 ConnectionRefusedError
93.184.217.1 ConnectionRefusedError
::1 ConnectionRefusedError
b'stop'");
        let seen = end(running);
        seen.assert_denied(&[]);
        let published = &seen.done.report["egress"]["published"];
        assert_eq!(published[0]["host_port"], four);
        assert_eq!(published[0]["body_port"], 8080);
        assert!(published[0]["connections"].as_u64().is_some_and(|count| 3 <= count), "{published}");
        let after = call(setting, &format!("print(echo({four}, b'x', patience=0))"));
        assert_eq!(after, "ConnectionRefusedError");
    }

    /// At first no server listens there, then one does.
    fn a_connection_to_a_port_where_nobody_listens_is_reset(setting) {
        let host_port = port();
        let publish = format!("{host_port}:8080");
        let running = setting.case(&["--publish", &publish, "--allow-net", "api.openai.com"], &format!("{SERVER}
serve(socket.AF_INET, '127.0.0.1', 9999)
say('ready')
time.sleep(1.5)
serve(socket.AF_INET, '127.0.0.1', 8080)
stopped.wait(100)")).start();
        let said = call(setting, &format!("
ends = time.monotonic() + 60
while True:
    try:
        connection = socket.create_connection(('127.0.0.1', {host_port}), 20)
        break
    except OSError:
        time.sleep(0.02)
        if ends < time.monotonic(): raise
try:
    connection.sendall(b'x')
    print('came back', connection.recv(9))
except OSError as error:
    print(type(error).__name__)
print(echo({host_port}, b'later'))
print(echo({host_port}, b'stop'))"));
        assert!(
            said == "ConnectionResetError\nb'later'\nb'stop'"
                || said == "BrokenPipeError\nb'later'\nb'stop'"
                || said == "came back b''\nb'later'\nb'stop'",
            "{said}"
        );
        end(running).assert_said("ready:");
    }

    /// Many connections at the same time, one of which outlives the body.
    fn many_callers_are_served_and_ended_with_the_body(setting) {
        let host_port = port();
        let publish = format!("{host_port}:8080");
        let running = setting.case(&["--publish", &publish, "--allow-net", "api.openai.com"], &format!("{SERVER}
serve(socket.AF_INET, '0.0.0.0', 8080)
stopped.wait(100)")).start();
        let said = call(setting, &format!("
echo({host_port}, b'ready')
results = []
def one(number):
    text = str(number).encode() * 5000
    results.append(echo({host_port}, text) == text)
threads = [threading.Thread(target=one, args=(number,)) for number in range(100)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(results.count(True))
kept = socket.create_connection(('127.0.0.1', {host_port}), 60)
kept.sendall(b'kept')
print(kept.recv(9))
print(echo({host_port}, b'stop'))
try:
    print('the end', kept.recv(9))
except OSError as error:
    print('the end', type(error).__name__)"));
        assert!(said.starts_with("100\nb'kept'\nb'stop'\nthe end"), "{said}");
        let seen = end(running);
        let published = &seen.done.report["egress"]["published"][0]["connections"];
        assert!(published.as_u64().is_some_and(|count| 103 <= count), "{published}");
    }
}

/// Without an egress list, the body has only its loopback and the published port.
#[test]
fn a_port_is_published_without_any_list() {
    Setting::with(Capture::Tproxy, |setting| {
        let host_port = port();
        let publish = format!("{host_port}:8080");
        let words = ["run", "--publish", &publish];
        let script = format!(
            "{SERVER}
serve(socket.AF_INET, '127.0.0.1', 8080)
try:
    socket.create_connection(('93.184.216.34', 443), 5)
except OSError as error:
    say('out', told(error))
stopped.wait(100)"
        );
        let running = setting.case_of(&words, &script).start();
        let said = call(setting, &format!("print(echo({host_port}, b'stop'))"));
        assert_eq!(said, "b'stop'");
        end(running).assert_said("out: ENETUNREACH");
    });
}

/// A port in use, and an invalid port.
#[test]
fn a_port_that_cannot_be_published_is_refused_before_anything_runs() {
    Setting::with(Capture::Tproxy, |setting| {
        // The test network's own service listens at 7777.
        for wrong in [
            "7777:8080",
            "00:8080",
            "8080:0",
            "70000:80",
            "x:80",
            "80",
            "8080:80:90",
            "+8080:80",
        ] {
            let done = setting
                .case_of(&["run", "--publish", wrong], "say('ran')")
                .without("I8")
                .done();
            assert_eq!(done.code, 125, "{wrong}: {done:#?}");
            assert_eq!(done.text(), "", "{wrong}");
            assert!(
                done.stderr.contains("publish") || done.stderr.contains("7777"),
                "{wrong}: {}",
                done.stderr
            );
        }
    });
}

/// If all runs have the same uid, the kernel counts the descriptors in flight over all of them.
fn alone_with_descriptors() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

on_both_captures! {
    /// The kernel counts descriptors in flight per uid. A body that uses them up prevents init from
    /// passing a connection, and only that connection ends.
    fn a_body_with_too_many_descriptors_under_way_keeps_its_init(setting) {
        let _alone = alone_with_descriptors();
        let host_port = port();
        let publish = format!("{host_port}:8080");
        let script = include_str!("../bodies/egress/a_body_with_too_many_descriptors_under_way_keeps_its_init.py");
        let running = setting
            .case(&["--publish", &publish, "--allow-net", "api.openai.com"], script)
            .through("/usr/bin/prlimit", &["--nofile=1024:1024"])
            .start();
        let said = call(setting, &format!("print(echo({host_port}, b'back'))"));
        assert_eq!(said, "b'back'");
        end(running).assert_said("too many: ETOOMANYREFS\ncame over it: 0");
    }

    /// The limit allows no further connection: it is refused, and the run continues.
    fn callers_beyond_the_descriptors_that_there_are_do_not_end_the_run(setting) {
        let _alone = alone_with_descriptors();
        let host_port = port();
        let publish = format!("{host_port}:8080");
        let running = setting
            .case(&["--publish", &publish, "--allow-net", "api.openai.com"], &format!("{SERVER}
serve(socket.AF_INET, '127.0.0.1', 8080)
stopped.wait(100)"))
            .through("/usr/bin/prlimit", &["--nofile=64:64"])
            .start();
        let said = call(setting, &format!("
print(echo({host_port}, b'before'))
for _ in range(5):
    many = []
    for _ in range(80):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(('127.0.0.1', {host_port}))
        many.append(one)
    time.sleep(0.3)
    for one in many:
        one.close()
print(echo({host_port}, b'stop'))"));
        assert_eq!(said, "b'before'\nb'stop'");
        end(running);
    }
}
