//! `runner serve --mcp`: a server of the test's own, and a client that sends what a test wants.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::api::{Reply, curl, reply, serve};
use crate::host::Host;

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The version of the protocol that has all that the tests look at.
const VERSION: &str = "2025-11-25";

/// A server that listens on a unix socket and on the loopback interface.
pub struct Server {
    pub child: Child,
    pub port: u16,
    socket: PathBuf,
}

/// How a client reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Unix,
    /// With the token.
    Tcp,
}

pub const WAYS: [Way; 2] = [Way::Unix, Way::Tcp];

/// A session of a client.
pub struct Session<'server> {
    pub server: &'server Server,
    pub way: Way,
    pub id: String,
}

/// A file that only its owner may read and write.
fn private(host: &Host, name: &str, text: &str) -> String {
    let path = host.ground.write(name, text);
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
    plain(&path)
}

fn plain(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

impl Server {
    /// Whose sandboxes have these flags, as YAML.
    pub fn start(host: &Host, template: &str, flags: &[&str]) -> Self {
        Self::start_at(host, "api.sock", template, flags)
    }

    /// At the socket of this name in the host's ground.
    pub fn start_at(host: &Host, socket: &str, template: &str, flags: &[&str]) -> Self {
        let templates = private(host, "templates.yaml", &format!("agent: {template}\n"));
        let flags = [&["--mcp", "agent", "--templates", &templates], flags].concat();
        Self::start_plain(host, socket, &flags)
    }

    /// With these flags alone.
    pub fn start_plain(host: &Host, socket: &str, flags: &[&str]) -> Self {
        let token = private(host, "token", TOKEN);
        let socket = host.ground.path(socket);
        let path = plain(&socket);
        let own = ["--socket", &path, "--token-file", &token];
        let listen = ["--listen", "127.0.0.1:0"];
        let mut child = serve(host, &[&own[..], &listen, flags].concat())
            .current_dir(host.ground.workspace())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("read");
        let port = line.trim_end().rsplit_once("http://127.0.0.1:");
        let port = port.and_then(|(_, port)| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("it listens nowhere: {line}"));
        // It must not be held up by a full pipe.
        std::thread::spawn(move || stderr.lines().count());
        Self {
            child,
            port,
            socket,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// curl with the rights of the way, not started.
    pub fn curl(&self, way: Way, words: &[&str]) -> Command {
        let bearer = format!("Authorization: Bearer {TOKEN}");
        let socket = plain(&self.socket);
        let rights = match way {
            Way::Unix => ["--unix-socket", &socket],
            Way::Tcp => ["-H", &bearer],
        };
        curl(&[&rights, words].concat())
    }

    /// Asks by curl.
    #[track_caller]
    pub fn ask(&self, way: Way, path: &str, words: &[&str], body: Option<&[u8]>) -> Reply {
        let mut curl = self.curl(way, words);
        if body.is_some() {
            curl.args(["--data-binary", "@-"]);
        }
        curl.arg(self.url(path));
        reply(curl, body)
    }

    /// Posts bytes to `/mcp` as a client of the protocol does.
    #[track_caller]
    pub fn post(&self, way: Way, session: Option<&str>, words: &[&str], body: &[u8]) -> Reply {
        let session = session.map(|id| format!("Mcp-Session-Id: {id}"));
        let session = session.iter().flat_map(|header| ["-H", header]);
        let session: Vec<&str> = session.collect();
        let types = [
            "-H",
            "Content-Type: application/json",
            "-H",
            "Accept: application/json, text/event-stream",
        ];
        self.ask(
            way,
            "/mcp",
            &[&types, &session[..], words].concat(),
            Some(body),
        )
    }

    /// Begins a session.
    #[track_caller]
    pub fn open(&self, way: Way) -> Session<'_> {
        let answer = self.post(way, None, &[], initialize().to_string().as_bytes());
        let answer = answer.expect(200);
        assert_eq!(message(&answer)["result"]["serverInfo"]["name"], "runner");
        let id = header(&answer, "mcp-session-id").expect("an id").to_owned();
        let session = Session {
            server: self,
            way,
            id,
        };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        session.send(&initialized).expect(202);
        session
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("sent");
    }

    /// Waits for its end; returns the exit code, `None` after a signal.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("waited").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test ends it by SIGTERM or SIGKILL; one that failed has not.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _sent = kill_process(Pid::from_child(&self.child), Signal::TERM);
            drop(self.child.wait());
        }
    }
}

impl Session<'_> {
    /// Posts a message.
    #[track_caller]
    pub fn send(&self, message: &Value) -> Reply {
        let body = message.to_string();
        self.server
            .post(self.way, Some(&self.id), &[], body.as_bytes())
    }

    /// Calls a tool; returns its result.
    #[track_caller]
    pub fn call(&self, tool: &str, arguments: &Value) -> Value {
        let answer = message(&self.send(&tool_call(tool, arguments)).expect(200));
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    /// Runs a text in the sandbox; returns the structured result.
    #[track_caller]
    pub fn shell(&self, text: &str) -> Value {
        let result = self.call("execute_command", &json!({"command": text}));
        result["structuredContent"].clone()
    }

    /// Asks with another method than POST.
    #[track_caller]
    pub fn method(&self, method: &str, words: &[&str]) -> Reply {
        let session = format!("Mcp-Session-Id: {}", self.id);
        let own = ["-X", method, "-H", &session];
        self.server
            .ask(self.way, "/mcp", &[&own, words].concat(), None)
    }
}

pub fn initialize() -> Value {
    let params = json!({
        "protocolVersion": VERSION,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

/// With an id of its own: of two calls with one id a client gets the answers of neither for certain.
pub fn tool_call(tool: &str, arguments: &Value) -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(100);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// The last message of an answer: a document, or events.
#[track_caller]
pub fn message(answer: &Reply) -> Value {
    let text = answer.text();
    let mut events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let message = events.rfind(|data| !data.is_empty());
    let message = serde_json::from_str(message.unwrap_or(&text));
    message.unwrap_or_else(|error| panic!("{error}: {}\n{text}", answer.head))
}

pub fn header<'reply>(reply: &'reply Reply, name: &str) -> Option<&'reply str> {
    let mut lines = reply.head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(found, _)| found.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value)
}
