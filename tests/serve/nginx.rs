//! A server behind nginx, with the configuration of docs/serve.md.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::access::{TOKEN, Tcp};
use crate::api::{Reply, curl, reply};
use crate::ports;
use support::invariants::eventually;
use support::packages::has;
use support::{certificates, skip};

const NGINX: &str = "/usr/sbin/nginx";

/// One process, whose files are in its directory. As root it stays root, who has the directory and the socket.
const BEFORE: &str = "daemon off; master_process off; user root; pid nginx.pid; events {} http {
    access_log off; client_body_temp_path body; proxy_temp_path proxied;
    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n";

/// nginx before a server, with its own socket instead of a port. Killed when it is dropped.
struct Front {
    nginx: Child,
    directory: PathBuf,
    _tcp: Tcp,
}

impl Drop for Front {
    fn drop(&mut self) {
        // It may have ended in the test.
        let _killed = self.nginx.kill();
        let _waited = self.nginx.wait();
    }
}

/// The configuration of the page.
fn configuration() -> &'static str {
    let (_, page) = include_str!("../../docs/serve.md")
        .split_once("```nginx\n")
        .expect("a block");
    page.split_once("```\n").expect("its end").0
}

/// Each text is in it once.
fn replace(text: &str, pairs: &[(&str, String)]) -> String {
    pairs.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

impl Front {
    /// `None`, with a printed skip, without nginx. `upstream` is what nginx connects to.
    fn start(upstream: impl FnOnce(&Tcp) -> String) -> Option<Self> {
        if !Path::new(NGINX).exists() {
            skip("no /usr/sbin/nginx: scripts/test installs it");
            return None;
        }
        if !has("openssl") {
            return None;
        }
        let tcp = Tcp::new();
        let directory = tcp.api.host.ground.path("nginx");
        std::fs::create_dir(&directory).expect("made");
        certificates::make(&directory, &[("runner", &["runner.example".to_owned()])]);
        let plain = directory.to_str().expect("a plain path").to_owned();
        let pairs = [
            ("listen 443 ssl", format!("listen unix:{plain}/front ssl")),
            ("/etc/nginx/", format!("{plain}/")),
            ("http://127.0.0.1:8080", upstream(&tcp)),
            ("127.0.0.1:8080", format!("127.0.0.1:{}", tcp.port)),
        ];
        let text = replace(configuration(), &pairs);
        let file = directory.join("nginx.conf");
        std::fs::write(&file, format!("{BEFORE}{text}}}\n")).expect("written");
        let log = std::fs::File::create(directory.join("log")).expect("made");
        let nginx = Command::new(NGINX)
            .args(["-e", "stderr", "-p", &plain, "-c", "nginx.conf"])
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("started");
        let front = Self {
            nginx,
            directory,
            _tcp: tcp,
        };
        eventually("nginx answers", || front.ready());
        Some(front)
    }

    fn ready(&self) -> bool {
        let mut curl = self.curl(&["-o", "/dev/null"], "/health");
        curl.stderr(Stdio::null())
            .status()
            .expect("started")
            .success()
    }

    fn curl(&self, words: &[&str], path: &str) -> Command {
        self.curl_with(TOKEN, words, path)
    }

    fn curl_with(&self, token: &str, words: &[&str], path: &str) -> Command {
        let bearer = format!("Authorization: Bearer {token}");
        let mut curl = curl(&["-H", &bearer]);
        curl.args(words)
            .arg("--cacert")
            .arg(self.directory.join("ca.pem"))
            .arg("--unix-socket")
            .arg(self.directory.join("front"))
            .arg(format!("https://runner.example{path}"));
        curl
    }

    fn post(&self, path: &str, document: &Value) -> Reply {
        reply(self.curl(&["-d", &document.to_string()], path), None)
    }

    fn put(&self, path: &str, bytes: &[u8]) -> Reply {
        let words = ["-X", "PUT", "--data-binary", "@-"];
        reply(self.curl(&words, path), Some(bytes))
    }

    /// Runs a command until it ends, and sees its first output before it may end.
    fn check_stream(&self, accept: &str) {
        let header = format!("Accept: {accept}");
        let go = format!("/scratch/{}", accept.replace('/', "-"));
        let text = format!("echo first; until test -e {go}; do sleep 0.05; done; echo last");
        let document = json!({ "argv": ["sh", "-c", text] }).to_string();
        let words = ["-N", "-H", &header, "-d", &document];
        let mut stream = self
            .curl(&words, "/v1/sandboxes/one/commands")
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let stdout = stream.stdout.take().expect("a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let mut until = |part: &str| {
            let mut text = lines.by_ref().map(|line| line.expect("text"));
            text.any(|line| line.contains(part))
        };
        assert!(until("first"), "{accept}");
        self.put(&format!("/v1/sandboxes/one/files?path={go}"), b"")
            .expect(204);
        assert!(until("last"), "{accept}");
        assert!(until("\"exit_code\":0"), "{accept}");
        assert!(stream.wait().expect("waited").success());
    }

    /// A large file there and back, and one that is refused.
    fn check_files(&self) {
        let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let path = "/v1/sandboxes/one/files?path=/scratch/file";
        self.put(path, &bytes).expect(204);
        let read = reply(self.curl(&[], path), None).expect(200);
        assert!(read.body == bytes, "{} bytes", read.body.len());
        let refused = self.put("/v1/sandboxes/one/files?path=file", &bytes);
        assert_eq!(refused.expect(400).code(), "path");
    }

    /// An event of a server in the sandbox, which comes while the answer goes on; an upgraded connection.
    fn check_port(&self) {
        ports::serve(|path, document| self.post(path, document));
        let port = "/v1/sandboxes/one/ports/8000";
        let mut events = self
            .curl(&["-N"], &format!("{port}/events"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut first = [0; 9];
        let stdout = events.stdout.as_mut().expect("a pipe");
        stdout.read_exact(&mut first).expect("read");
        assert_eq!(&first, b"data: 1\n\n");
        events.kill().expect("killed");
        events.wait().expect("waited");
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_return_error"])
            .args(["-servername", "runner.example", "-CAfile", "ca.pem"])
            .args(["-unix", "front"])
            .current_dir(&self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let mut stdin = client.stdin.take().expect("a pipe");
        let request = format!(
            "GET {port}/upgrade HTTP/1.1\r\nHost: runner.example\r\nAuthorization: Bearer {TOKEN}\r\n\
             Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"
        );
        stdin.write_all(request.as_bytes()).expect("written");
        let mut stdout = client.stdout.take().expect("a pipe");
        let mut read = Vec::new();
        let mut until = |end: &[u8]| {
            while !read.ends_with(end) {
                let mut byte = [0];
                stdout.read_exact(&mut byte).expect("read");
                read.extend(byte);
            }
            String::from_utf8_lossy(&read).into_owned()
        };
        let head = until(b"ready");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        for word in ["one", "two"] {
            stdin.write_all(word.as_bytes()).expect("written");
            until(word.as_bytes());
        }
        client.kill().expect("killed");
        client.wait().expect("waited");
    }

    fn check(&self) {
        self.check_stream("application/x-ndjson");
        self.check_stream("text/event-stream");
        self.check_files();
        self.check_port();
    }
}

#[test]
fn commands_files_and_ports_pass_nginx_as_docs_serve_configures_it() {
    let Some(front) = Front::start(|tcp| format!("http://127.0.0.1:{}", tcp.port)) else {
        return;
    };
    let new = json!({ "template": "small", "name": "one" });
    front.post("/v1/sandboxes", &new).expect(201);
    front.check();
    // Without the token, and as a page of another site.
    let path = "/v1/sandboxes";
    let unknown = front.curl_with("0123456789abcdef", &[], path);
    reply(unknown, None).expect(401);
    let words = ["-H", "Origin: https://evil.example"];
    reply(front.curl(&words, path), None).expect(200);
}

#[test]
fn nginx_reaches_the_unix_socket_as_the_user_of_the_server() {
    let upstream = |tcp: &Tcp| {
        let socket = tcp.api.server.socket.to_str().expect("a plain path");
        format!("http://unix:{socket}:")
    };
    let Some(front) = Front::start(upstream) else {
        return;
    };
    front
        .post("/v1/sandboxes", &json!({ "name": "one" }))
        .expect(201);
    front.check();
}
