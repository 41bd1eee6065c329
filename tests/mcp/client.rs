//! A client of the protocol that sends what a test wants, and checks each line of standard output.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::host::Host;
use support::invariants::watch_memory;

/// A server that does not answer in this time hangs. Not an assertion about speed.
const HANG_AFTER: Duration = Duration::from_secs(60);

pub struct Client {
    pub child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Answers that nobody has taken yet.
    answers: BTreeMap<u64, Value>,
    pub notifications: Vec<Value>,
    next: u64,
    reads: Arc<AtomicBool>,
}

impl Client {
    /// Starts `runner mcp FLAGS…` in the workspace of the host's ground, and initializes the protocol.
    pub fn start(host: &Host, flags: &[&str]) -> Self {
        Self::start_with(host, flags, &[])
    }

    /// The same with variables of the server.
    pub fn start_with(host: &Host, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut client = Self::spawn(host, flags, variables);
        let id = client.request(
            "initialize",
            &json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }),
        );
        let answer = client.answer(id);
        assert_eq!(answer["result"]["serverInfo"]["name"], "runner", "{answer}");
        client.notify("notifications/initialized", &json!({}));
        client
    }

    /// The same without a message.
    pub fn start_silent(host: &Host, flags: &[&str]) -> Self {
        Self::spawn(host, flags, &[])
    }

    fn spawn(host: &Host, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let words = [&["mcp"], flags].concat();
        let mut child = host
            .command(&words)
            .envs(variables.iter().copied())
            .current_dir(host.ground.workspace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the runner starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        let reads = Arc::new(AtomicBool::new(true));
        let goes_on = Arc::clone(&reads);
        std::thread::spawn(move || {
            for line in stdout.split(b'\n') {
                while !goes_on.load(Ordering::Relaxed) {
                    std::thread::park_timeout(HANG_AFTER);
                }
                let line = line.expect("read");
                let controls = line.iter().filter(|byte| byte.is_ascii_control()).count();
                assert_eq!(controls, 0, "{:?}", String::from_utf8_lossy(&line));
                let value: Value = serde_json::from_slice(&line).expect("only the protocol");
                assert_eq!(value["jsonrpc"], "2.0", "{value}");
                // A client that ends early takes no more.
                drop(sender.send(value));
            }
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
            answers: BTreeMap::new(),
            notifications: Vec::new(),
            next: 0,
            reads,
        }
    }

    /// Sends bytes and a line break.
    pub fn send(&mut self, line: &[u8]) {
        let stdin = self.stdin.as_mut().expect("open");
        stdin.write_all(line).expect("written");
        stdin.write_all(b"\n").expect("written");
    }

    pub fn notify(&mut self, method: &str, params: &Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.send(message.to_string().as_bytes());
    }

    /// Returns the id.
    pub fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let id = self.next;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(message.to_string().as_bytes());
        id
    }

    /// Starts a call of a tool. Returns the id.
    pub fn begin(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// The answer to a request: its result or error.
    #[track_caller]
    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            self.read();
        }
    }

    /// Takes one more message.
    #[track_caller]
    pub fn read(&mut self) {
        let value = self.lines.recv_timeout(HANG_AFTER);
        let value = value.expect("a message before the end of the server");
        match value["id"].as_u64() {
            Some(id) => drop(self.answers.insert(id, value)),
            None => self.notifications.push(value),
        }
    }

    /// Calls a tool; returns its result.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.begin(tool, arguments);
        let answer = self.answer(id);
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    /// Runs a text in the sandbox; returns the structured result.
    #[track_caller]
    pub fn shell(&mut self, text: &str) -> Value {
        let result = self.call("execute_command", &json!({"command": text}));
        result["structuredContent"].clone()
    }

    /// Calls a tool that refuses; returns why.
    #[track_caller]
    pub fn refused(&mut self, tool: &str, arguments: &Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(result["structuredContent"], Value::Null, "{result}");
        text(&result)
    }

    /// Starts a command in the background; returns its id.
    #[track_caller]
    pub fn background(&mut self, text: &str) -> Value {
        let arguments = json!({"command": text, "background": true});
        let result = self.call("execute_command", &arguments);
        result["structuredContent"]["id"].clone()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("sent");
    }

    /// From now on standard output stays unread.
    pub fn stop_reading(&self) {
        self.reads.store(false, Ordering::Relaxed);
    }

    /// The most memory that the server had.
    pub fn peak_kib(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).expect("there");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
        peak.expect("a line").parse().expect("a number")
    }

    pub fn end_input(&mut self) {
        drop(self.stdin.take());
    }

    /// Ends standard input, and waits for the end.
    pub fn close(mut self) -> Gone {
        self.end_input();
        self.wait()
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> Gone {
        let code = self.wait_code();
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().expect("a pipe");
        pipe.read_to_string(&mut stderr).expect("read");
        Gone { code, stderr }
    }

    /// The same if others may have standard error, too.
    pub fn wait_code(&mut self) -> i32 {
        watch_memory(&mut self.child, HANG_AFTER);
        let ended = self.child.wait().expect("waited");
        let code = ended.code();
        code.unwrap_or_else(|| 128 + ended.signal().expect("a signal"))
    }
}

/// A server that has ended.
#[derive(Debug)]
pub struct Gone {
    pub code: i32,
    pub stderr: String,
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // A test that failed leaves it.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// All blocks of text.
pub fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().expect("blocks").iter();
    let texts = blocks.map(|block| block["text"].as_str().expect("text").to_owned());
    texts.collect::<Vec<_>>().join("\n")
}
