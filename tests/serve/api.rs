//! A server of the test's own, and its clients.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::host::Host;
use support::invariants::eventually;

/// A server on a unix socket, ended with the test; then the sandboxes are removed.
pub struct Api {
    pub server: Server,
    pub host: Host,
}

/// `runner serve`, killed when it is dropped.
pub struct Server {
    pub child: Child,
    pub socket: PathBuf,
    pub runtime: PathBuf,
}

/// What curl got.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {self:?}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The code of the error.
    #[track_caller]
    pub fn code(&self) -> String {
        self.json()["error"]["code"]
            .as_str()
            .expect("a code")
            .to_owned()
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}\n{}", self.head, self.text());
        self
    }
}

impl Server {
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")).expect("not 0")
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("sent");
    }

    /// The port on the loopback interface that it has chosen for `--listen 127.0.0.1:0`.
    pub fn chosen_port(&self) -> u16 {
        let port = || -> Option<u16> {
            let said = std::fs::read_to_string(log(&self.socket)).expect("readable");
            let mut lines = said.lines();
            let (_, port) = lines.find_map(|line| line.split_once(" and http://127.0.0.1:"))?;
            port.parse().ok()
        };
        eventually("the server says where it listens", || port().is_some());
        port().expect("a port")
    }

    /// Starts a server for `host`, and waits until it listens.
    pub fn start(host: &Host, flags: &[&str]) -> Self {
        Self::start_at(host, "api", flags)
    }

    /// As [`Server::start`], with this name of the socket.
    pub fn start_at(host: &Host, name: &str, flags: &[&str]) -> Self {
        let socket = host.ground.path(&format!("{name}.sock"));
        let path = socket.to_str().expect("a plain path").to_owned();
        let log = std::fs::File::create(log(&socket)).expect("made");
        let child = serve(host, &[&["--socket", &path], flags].concat())
            .process_group(0)
            .stderr(log)
            .spawn()
            .expect("started");
        let runtime = host.runtime_directory();
        let mut server = Self {
            child,
            socket,
            runtime,
        };
        eventually("the server listens", || {
            UnixStream::connect(&server.socket).is_ok()
        });
        assert!(
            server.child.try_wait().expect("asked").is_none(),
            "it has ended"
        );
        server
    }
}

/// What it writes to standard error.
fn log(socket: &Path) -> PathBuf {
    socket.with_extension("log")
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended in the test.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
        // A verb that it has executed would make the runtime directory again once that is removed.
        let until = Instant::now() + Duration::from_secs(10);
        let verbs = ["ls", "logs", "cp", "rm", "create"].map(|verb| format!("\0sandbox\0{verb}\0"));
        let runs = |verb: &String| !processes(&self.runtime, verb).is_empty();
        while verbs.iter().any(runs) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// `runner serve FLAGS…`, not started.
pub fn serve(host: &Host, flags: &[&str]) -> Command {
    let mut command = host.command(&[&["serve"], flags].concat());
    command
        .env("TMPDIR", host.ground.path(""))
        .stdout(Stdio::null());
    command
}

impl Api {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(flags: &[&str]) -> Self {
        let host = Host::new();
        Self {
            server: Server::start(&host, flags),
            host,
        }
    }

    /// curl for this socket, not started.
    pub fn curl(&self, words: &[&str]) -> Command {
        let mut curl = curl(words);
        curl.arg("--unix-socket").arg(&self.server.socket);
        curl
    }

    #[track_caller]
    pub fn call(&self, method: &str, path: &str) -> Reply {
        reply(self.curl(&["-X", method, &url(path)]), None)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.call("GET", path)
    }

    #[track_caller]
    pub fn post(&self, path: &str, document: &Value) -> Reply {
        self.send("POST", path, &[], document.to_string().as_bytes())
    }

    /// Sends a body.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, words: &[&str], body: &[u8]) -> Reply {
        let url = url(path);
        let words = [&["-X", method, "--data-binary", "@-", &url], words].concat();
        reply(self.curl(&words), Some(body))
    }

    #[track_caller]
    pub fn create(&self, name: &str) {
        self.post("/v1/sandboxes", &serde_json::json!({ "name": name }))
            .expect(201);
    }

    /// Runs `sh -c TEXT` in the sandbox `one`.
    #[track_caller]
    pub fn shell(&self, text: &str) -> Value {
        let document = serde_json::json!({ "argv": ["sh", "-c", text] });
        self.post("/v1/sandboxes/one/commands", &document)
            .expect(200)
            .json()
    }
}

/// Creates `count` sandboxes at once, by each server in turn. What curl wrote about each answer, sorted.
pub fn create_at_once(servers: &[&Server], count: usize, write_out: &str) -> Vec<String> {
    let creations: Vec<_> = (0..count)
        .zip(servers.iter().cycle())
        .map(|(number, server)| {
            let body = serde_json::json!({ "name": format!("n{number}") }).to_string();
            let words = ["-o", "/dev/null", "-w", write_out, "-d", &body];
            let mut curl = curl(&words);
            curl.arg("--unix-socket").arg(&server.socket);
            curl.arg(url("/v1/sandboxes"));
            curl.stdout(Stdio::piped()).spawn().expect("started")
        })
        .collect();
    let mut written: Vec<String> = creations
        .into_iter()
        .map(|curl| {
            String::from_utf8(curl.wait_with_output().expect("waited").stdout).expect("text")
        })
        .collect();
    written.sort();
    written
}

pub fn url(path: &str) -> String {
    format!("http://runner{path}")
}

/// curl, without what the caller has configured.
pub fn curl(words: &[&str]) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["-q", "-sS", "--max-time", "60", "--globoff", "--path-as-is"])
        .args(words);
    curl
}

/// Runs curl and reads what it got.
#[track_caller]
pub fn reply(mut curl: Command, body: Option<&[u8]>) -> Reply {
    let output = run(curl.arg("-i"), body);
    let end = output
        .stdout
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n");
    // What curl sends first may have been answered by `100 Continue`.
    let Some(end) = end else {
        panic!("no answer: {}", String::from_utf8_lossy(&output.stderr));
    };
    let (head, rest) = output.stdout.split_at(end);
    let head = String::from_utf8_lossy(head).into_owned();
    if head.starts_with("HTTP/1.1 100") {
        let rest = &rest[4..];
        let end = rest
            .windows(4)
            .position(|bytes| bytes == b"\r\n\r\n")
            .expect("an answer");
        return parse(&String::from_utf8_lossy(&rest[..end]), &rest[end + 4..]);
    }
    parse(&head, &rest[4..])
}

pub fn parse(head: &str, body: &[u8]) -> Reply {
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Reply {
        status: status.expect("a status"),
        head: head.to_owned(),
        body: body.to_vec(),
    }
}

pub fn run(command: &mut Command, input: Option<&[u8]>) -> Output {
    let stdin = if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    };
    let mut child = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let input = input.map(<[u8]>::to_vec);
    let stdin = child.stdin.take();
    let writer = std::thread::spawn(move || {
        if let (Some(mut pipe), Some(input)) = (stdin, input) {
            // A server may refuse before it has read everything.
            let _written = pipe.write_all(&input);
        }
    });
    let output = child.wait_with_output().expect("waited");
    writer.join().expect("joined");
    output
}

/// Processes for the sandboxes below this runtime directory that have this in their command lines, without
/// supervisors, which lead sessions.
pub fn processes(runtime: &Path, text: &str) -> Vec<Pid> {
    let directory = format!("RUNNER_OPT_RUNTIME_DIRECTORY={}", runtime.display());
    let pids = std::fs::read_dir("/proc").expect("proc");
    let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has = |pid: Pid, file: &str, text: &str| {
        let bytes = std::fs::read(format!("/proc/{}/{file}", pid.as_raw_pid()));
        String::from_utf8_lossy(&bytes.unwrap_or_default()).contains(text)
    };
    pids.filter_map(Pid::from_raw)
        .filter(|pid| has(*pid, "cmdline", text) && has(*pid, "environ", &directory))
        .filter(|pid| session(*pid).is_some_and(|session| session != pid.as_raw_pid()))
        .collect()
}

/// Whether a process of the host has this text among its words, which every user can read.
pub fn is_on_a_command_line(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("proc");
    processes.filter_map(Result::ok).any(|process| {
        // It may have ended.
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(text)
    })
}

/// The session of a process by proc_pid_stat(5): 0 where its leader is outside of this pid namespace, which
/// `rustix::process::getsid` panics on.
fn session(pid: Pid) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(3)?.parse().ok()
}
