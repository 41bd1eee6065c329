//! The sandboxes of `runner serve`: many of them, many commands in one, and a server that is killed meanwhile.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::flat::{Counted, adopt_orphans, children, kib};
use crate::harness::{Place, how_many, in_a_process_of_its_own};
use crate::sandboxes::{GROWTH_KIB_MAX, IDLE_KIB_MAX, in_lanes, inits, names, pss_kib};
use support::invariants::eventually;
use support::{is_root, runner};

/// How much the server may grow, in KiB: the allocator keeps its memory.
const SERVER_GROWTH_KIB_MAX: u64 = 2 << 10;

/// Creations that are compared.
const PAIRS: usize = 15;

/// `runner serve`, a child that [`children`] reaps.
struct Server {
    pid: i32,
    socket: PathBuf,
}

impl Server {
    fn start(place: &Place, max_sandboxes: usize) -> Self {
        Self::start_at(place, "api", &place.runtime(), max_sandboxes)
    }

    /// With a socket and a runtime directory of its own.
    #[expect(clippy::zombie_processes, reason = "`children` reaps it")]
    fn start_at(place: &Place, name: &str, runtime: &Path, max_sandboxes: usize) -> Self {
        let socket = place.files().join(format!("{name}.sock"));
        let child = Command::new(runner())
            .args(["serve", "--max-sandboxes", &max_sandboxes.to_string()])
            .arg("--socket")
            .arg(&socket)
            .env("RUNNER_OPT_STATE_DIRECTORY", place.files())
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", runtime)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the runner starts");
        eventually("the server listens", || {
            UnixStream::connect(&socket).is_ok()
        });
        let pid = i32::try_from(child.id()).expect("a pid");
        Self { pid, socket }
    }

    /// Sends a signal that ends it, and waits for its end and that of its calls.
    fn end(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid).expect("a pid");
        kill_process(pid, signal).expect("sent");
        eventually("the server has ended", || !children().contains(&self.pid));
    }

    /// The supervisors, while no call is in progress.
    fn supervisors(&self) -> Vec<i32> {
        let children = children().into_iter();
        children.filter(|pid| *pid != self.pid).collect()
    }

    /// A call; `None`: the connection ended without an answer.
    fn try_call(&self, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: r\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + body).as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_str(body).unwrap_or_default()))
    }

    #[track_caller]
    fn call(&self, method: &str, path: &str, body: &Value, expected: u16) -> Value {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = self.try_call(method, path, &body);
        let (status, document) = answer.expect("an answer");
        assert_eq!(status, expected, "{method} {path}: {document}");
        document
    }

    fn create(&self, name: &str) {
        let flags = ["--no-record", "-m", "64m"];
        let document = json!({ "name": name, "flags": flags });
        self.call("POST", "/v1/sandboxes", &document, 201);
    }

    fn remove(&self, name: &str) {
        let path = format!("/v1/sandboxes/{name}?force=true");
        self.call("DELETE", &path, &Value::Null, 204);
    }

    #[track_caller]
    fn execute(&self, name: &str, argv: &[&str], expected: u16) -> Value {
        let path = format!("/v1/sandboxes/{name}/commands");
        self.call("POST", &path, &json!({ "argv": argv }), expected)
    }
}

/// What a server and a sandbox make once: directories, a spare record.
fn warm_up(place: &Place) {
    adopt_orphans();
    let server = Server::start(place, 1);
    server.create("first");
    server.remove("first");
    server.end(Signal::TERM);
    eventually("the sandbox has ended", || children().is_empty());
}

/// E-32: through the API, of which a server is killed under load.
#[test]
fn many_sandboxes_of_a_server_are_small_outlive_it_and_leave_nothing() {
    in_a_process_of_its_own(
        "served::many_sandboxes_of_a_server_are_small_outlive_it_and_leave_nothing",
        many_at_once,
    );
}

fn many_at_once(place: &Place) {
    warm_up(place);
    let before = Counted::look(place);
    let count = how_many([40, 1_000, 1_000]);
    let names = names(count);
    let server = Server::start(place, count);
    let kernel_kib = kernel_kib();
    in_lanes(count, |number| server.create(&names[number]));
    let kernel_kib =
        self::kernel_kib().saturating_sub(kernel_kib) / u64::try_from(count).expect("small");
    let listed = server.call("GET", "/v1/sandboxes", &Value::Null, 200);
    assert_eq!(listed["sandboxes"].as_array().map(Vec::len), Some(count));
    let one_more = json!({ "name": "more" });
    server.call("POST", "/v1/sandboxes", &one_more, 429);
    in_lanes(count, |number| {
        let text = "echo $0 > /tmp/x; cat /tmp/x";
        let argv = ["sh", "-c", text, &number.to_string()];
        let done = server.execute(&names[number], &argv, 200);
        assert_eq!(done["stdout"]["text"], format!("{number}\n"), "{done}");
    });
    let supervisors = server.supervisors();
    assert_eq!(supervisors.len(), count);
    let kib = pss_kib(&supervisors) / u64::try_from(count).expect("small");
    let server = kill_under_load(place, &server, &names);
    let [beside_all, alone] = creation_times(place, count);
    in_lanes(count, |number| {
        let name = &names[number];
        eventually("what the killed server had accepted is done", || {
            let done = server.execute(name, &["cat", "/tmp/x", "/tmp/y"], 200);
            done["stdout"]["text"] == format!("{number}\n{number}\n")
        });
        server.remove(name);
    });
    server.end(Signal::TERM);
    let leaks = before.leaks(place);
    println!(
        "endurance: served={count} leaks={} pss_kib={kib} kernel_kib={kernel_kib} beside_all_ms={} alone_ms={}",
        leaks.len(),
        beside_all.as_millis(),
        alone.as_millis()
    );
    assert_eq!(leaks, [""; 0]);
    assert!(kib <= IDLE_KIB_MAX, "{kib} KiB for each sandbox");
    // A call that asked each sandbox took many times as long.
    assert!(
        count < 1_000 || beside_all < alone * 2,
        "a creation took {beside_all:?} beside {count} sandboxes, and {alone:?} alone"
    );
}

/// How long a creation takes beside all sandboxes, and alone, in turns: the machine may have other work.
fn creation_times(place: &Place, count: usize) -> [Duration; 2] {
    let empty = place.files().join("empty");
    let servers = [
        Server::start_at(place, "full", &place.runtime(), count + 1),
        Server::start_at(place, "empty", &empty, 1),
    ];
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..PAIRS {
        for (server, times) in servers.iter().zip(&mut times) {
            let begun = Instant::now();
            server.create("next");
            times.push(begun.elapsed());
            server.remove("next");
        }
    }
    for server in servers {
        server.end(Signal::TERM);
    }
    std::fs::remove_dir_all(empty).expect("removed");
    times.map(|mut times| {
        times.sort_unstable();
        times[PAIRS / 2]
    })
}

/// Memory of the kernel that sandboxes use.
fn kernel_kib() -> u64 {
    let rows = ["SUnreclaim:", "KernelStack:", "PageTables:", "Percpu:"];
    rows.iter().map(|row| kib("/proc/meminfo", row)).sum()
}

/// Starts a command in the background in each sandbox while the server is killed and started again. Returns
/// the new one.
fn kill_under_load(place: &Place, server: &Server, names: &[String]) -> Server {
    let accepted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            in_lanes(names.len(), |number| {
                let text = number.to_string();
                let argv = ["sh", "-c", "echo $0 > /tmp/y", &text];
                let document = json!({ "argv": argv, "background": true }).to_string();
                let path = format!("/v1/sandboxes/{}/commands", names[number]);
                // The new server listens at the same place.
                eventually("a server accepts the command", || {
                    let answer = server.try_call("POST", &path, &document);
                    let is_accepted = |(status, answer): &(u16, Value)| {
                        assert_eq!(*status, 201, "{answer}");
                    };
                    answer.inspect(is_accepted).is_some()
                });
                accepted.fetch_add(1, Ordering::Relaxed);
            });
        });
        eventually("the load has begun", || {
            accepted.load(Ordering::Relaxed) >= 10
        });
        server.end(Signal::KILL);
        Server::start(place, names.len())
    })
}

/// E-32: through the API.
#[test]
fn many_commands_of_clients_leave_the_server_and_the_sandbox_as_they_were() {
    in_a_process_of_its_own(
        "served::many_commands_of_clients_leave_the_server_and_the_sandbox_as_they_were",
        many_commands,
    );
}

fn many_commands(place: &Place) {
    warm_up(place);
    let before = Counted::look(place);
    let server = Server::start(place, 1);
    server.create("one");
    let supervisors = server.supervisors();
    let [supervisor] = supervisors[..] else {
        panic!("not one supervisor: {supervisors:?}");
    };
    let [init] = inits(&supervisors)[..] else {
        panic!("not one init");
    };
    let run = |number: usize| {
        let code = (number % 7).to_string();
        // Some cannot be started, some are killed.
        let (argv, status, code) = match number % 10 {
            0 => (vec!["/nosuch"], 422, json!(null)),
            1 => (vec!["sh", "-c", "kill -9 $$"], 200, json!(137)),
            _ => (vec!["sh", "-c", "exit $0", &code], 200, json!(number % 7)),
        };
        let done = server.execute("one", &argv, status);
        assert_eq!(done["exit_code"], code, "{argv:?}: {done}");
    };
    in_lanes(100, run);
    let descriptors = || {
        // Those of init are shown to root alone.
        let pids = [supervisor, server.pid].into_iter();
        let pids = pids.chain(is_root().then_some(init));
        let count = |pid| std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count);
        pids.map(|pid| count(pid).expect("readable"))
            .collect::<Vec<_>>()
    };
    let resident_kib = || {
        [supervisor, init, server.pid].map(|pid| kib(&format!("/proc/{pid}/status"), "RssAnon:"))
    };
    let is_idle = || {
        let state = server.call("GET", "/v1/sandboxes/one", &Value::Null, 200);
        state["commands"] == json!([])
    };
    eventually("the first commands are forgotten", is_idle);
    let (first_descriptors, first_kib) = (descriptors(), resident_kib());
    let count = how_many([300, 10_000, 100_000]);
    in_lanes(count, run);
    eventually("the descriptors of the clients are closed", || {
        let now = descriptors();
        now.iter()
            .zip(&first_descriptors)
            .all(|(now, then)| now <= then)
    });
    let now_kib = resident_kib();
    let growth_kib: Vec<u64> = now_kib
        .iter()
        .zip(first_kib)
        .map(|(now, then)| now.saturating_sub(then))
        .collect();
    server.remove("one");
    server.end(Signal::TERM);
    let leaks = before.leaks(place);
    println!(
        "endurance: served_commands={count} leaks={} growth_kib={growth_kib:?}",
        leaks.len()
    );
    assert_eq!(leaks, [""; 0]);
    let most = [GROWTH_KIB_MAX, GROWTH_KIB_MAX, SERVER_GROWTH_KIB_MAX];
    assert!(
        growth_kib.iter().zip(most).all(|(kib, most)| *kib <= most),
        "supervisor, init and server grew by {growth_kib:?} KiB"
    );
}
