//! A server of the test's own.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api::{Api, Reply, Server, curl, reply};
use crate::host::Host;
use support::packages::tool;

pub const KEY: &str = "e2b_0123456789abcdef0123456789abcdef01234567";

/// A port that the kernel chooses.
const CHOSEN: &str = "127.0.0.1:0";

pub struct Service {
    pub api: Api,
    pub port: u16,
    flags: Vec<String>,
}

/// A sandbox, as a client knows it.
pub struct Access {
    pub id: String,
    pub token: String,
}

impl Service {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(flags: &[&str]) -> Self {
        let host = Host::new();
        let write = |name: &str, text: &str, mode| {
            let path = host.ground.write(name, text);
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
            path.to_str().expect("a plain path").to_owned()
        };
        let key = write("key", &format!("{KEY}\n"), 0o600);
        let templates = write(
            "templates.yaml",
            "base: [-m, 512m]\nshort: [--timeout, 1m]\n",
            0o644,
        );
        let own = [
            "--api",
            "e2b",
            "--listen",
            CHOSEN,
            "--token-file",
            &key,
            "--templates",
            &templates,
        ];
        let flags = [&own, flags].concat();
        let server = Server::start(&host, &flags);
        let port = server.chosen_port();
        Self {
            api: Api { server, host },
            port,
            flags: flags.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Kills the server, and starts another one on its port.
    pub fn restart(&mut self) {
        self.api.server.signal(Signal::KILL);
        self.api.server.child.wait().expect("ended");
        let listen = format!("127.0.0.1:{}", self.port);
        let flags = self.flags.iter().map(String::as_str);
        let flags = flags.map(|word| if word == CHOSEN { &listen } else { word });
        self.api.server = Server::start(&self.api.host, &flags.collect::<Vec<_>>());
        self.api.server.chosen_port();
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The command with the variables of the SDKs.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        let tool = tool(program);
        command.args(["--kill-after=5", "120"]);
        command.arg(tool.get_program()).args(tool.get_args());
        command
            .env("E2B_API_URL", self.url())
            .env("E2B_SANDBOX_URL", self.url())
            .env("E2B_API_KEY", KEY)
            .env_remove("E2B_DEBUG")
            .env_remove("PYTHONPATH")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("NO_COLOR", "1");
        command
    }

    pub fn call(&self, words: &[&str], path: &str, body: Option<&[u8]>) -> Reply {
        let url = format!("{}{path}", self.url());
        let mut words = [words, &[&*url]].concat();
        if body.is_some() {
            words.extend(["--data-binary", "@-"]);
        }
        reply(curl(&words), body)
    }

    /// A call of the service.
    pub fn control(&self, method: &str, path: &str, document: Option<&Value>) -> Reply {
        let key = format!("X-API-Key: {KEY}");
        let body = document.map(|document| document.to_string().into_bytes());
        let words = [
            "-X",
            method,
            "-H",
            &key,
            "-H",
            "Content-Type: application/json",
        ];
        self.call(&words, path, body.as_deref())
    }

    pub fn create(&self) -> Access {
        let made = self.control(
            "POST",
            "/v2/sandboxes",
            Some(&json!({"templateID": "base", "timeout": 300})),
        );
        let made = made.expect(201).json();
        let text = |name: &str| made[name].as_str().expect("text").to_owned();
        Access {
            id: text("sandboxID"),
            token: text("envdAccessToken"),
        }
    }

    /// A call to a sandbox.
    pub fn envd(&self, access: &Access, words: &[&str], path: &str, body: Option<&[u8]>) -> Reply {
        let headers = [
            format!("E2b-Sandbox-Id: {}", access.id),
            format!("X-Access-Token: {}", access.token),
        ];
        let headers = ["-H", &*headers[0], "-H", &headers[1]];
        self.call(&[&headers, words].concat(), path, body)
    }

    /// A call of the Connect protocol with one answer.
    pub fn unary(&self, access: &Access, method: &str, document: &Value) -> Reply {
        let body = document.to_string();
        let words = ["-H", "Content-Type: application/json"];
        self.envd(access, &words, &format!("/{method}"), Some(body.as_bytes()))
    }

    /// A call with a stream, and these bytes as its request.
    pub fn stream(&self, access: &Access, method: &str, request: &[u8]) -> Reply {
        let words = ["-H", "Content-Type: application/connect+json"];
        self.envd(
            access,
            &words,
            &format!("/process.Process/{method}"),
            Some(request),
        )
    }
}

/// One message of a stream.
pub fn frame(document: &Value) -> Vec<u8> {
    let text = document.to_string();
    let length = u32::try_from(text.len()).expect("short").to_be_bytes();
    [&[0][..], &length, text.as_bytes()].concat()
}

/// The messages of an answer with their flags.
pub fn messages(mut bytes: &[u8]) -> Vec<(u8, Value)> {
    let mut found = Vec::new();
    while let Some((&[flags, a, b, c, d], rest)) = bytes.split_first_chunk::<5>() {
        let (text, rest) = rest.split_at(u32::from_be_bytes([a, b, c, d]) as usize);
        found.push((flags, serde_json::from_slice(text).expect("a document")));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "a cut message");
    found
}
