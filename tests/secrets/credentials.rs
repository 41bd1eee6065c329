//! Credentials of a registry: which process has them in its memory while an image is pulled.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use spec::base64;
use spec::digest::Digest;
use support::processes::{confined_children, send, status};
use support::tar::Tar;
use support::{Ground, is_root, needs_root};

use super::{look_at_memory, private};

const USER: &str = "somebody";
const PASSWORD: &str = "sixteen-and-more-of-the-password";
const TOKEN: &str = "sixteen-and-more-of-the-token";
/// Enough for its reader to be found at work.
const UNPACKED_BYTES: usize = 64 << 20;

/// A registry whose service of tokens asks for the password, and which sends the layer from another server.
struct Registry {
    address: SocketAddr,
    storage: SocketAddr,
    /// The service of tokens. It answers once, so that only the end of its connection frees what it answered.
    tokens: SocketAddr,
    tar: Vec<u8>,
    layer: Vec<u8>,
    /// The second half of the layer may be sent.
    is_released: AtomicBool,
    /// Paths that were asked for with the right credential.
    authorized: Mutex<BTreeSet<String>>,
}

fn encoded() -> String {
    base64::encode(format!("{USER}:{PASSWORD}").as_bytes())
}

fn compressed(tar: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(tar).expect("compressed");
    encoder.finish().expect("compressed")
}

fn media_type(name: &str) -> String {
    format!("application/vnd.oci.image.{name}")
}

impl Registry {
    fn start() -> Arc<Self> {
        let [registry, storage, tokens] =
            [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("bound"));
        let tar = Tar::new().file("bin/sh", &vec![0; UNPACKED_BYTES]).end();
        let address = |listener: &TcpListener| listener.local_addr().expect("bound");
        let service = Arc::new(Self {
            address: address(&registry),
            storage: address(&storage),
            tokens: address(&tokens),
            layer: compressed(&tar),
            tar,
            is_released: AtomicBool::new(false),
            authorized: Mutex::default(),
        });
        // They end with the process.
        for listener in [registry, tokens] {
            let serving = Arc::clone(&service);
            std::thread::spawn(move || serving.serve(&listener));
        }
        let serving = Arc::clone(&service);
        std::thread::spawn(move || {
            for stream in storage.incoming() {
                serving.send(stream.expect("accepted"));
            }
        });
        service
    }

    fn config(&self) -> String {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            _ => "arm64",
        };
        json!({
            "os": "linux",
            "architecture": architecture,
            "config": {"Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [Digest::of(&self.tar).to_string()]},
        })
        .to_string()
    }

    fn manifest(&self) -> String {
        let blob = |bytes: &[u8], name: &str| {
            let digest = Digest::of(bytes).to_string();
            json!({"mediaType": media_type(name), "digest": digest, "size": bytes.len()})
        };
        json!({
            "schemaVersion": 2,
            "mediaType": media_type("manifest.v1+json"),
            "config": blob(self.config().as_bytes(), "config.v1+json"),
            "layers": [blob(&self.layer, "layer.v1.tar+gzip")],
        })
        .to_string()
    }

    fn serve(&self, listener: &TcpListener) {
        // One client, which closes a connection before it opens another one, or leaves it unused.
        std::thread::scope(|scope| {
            for stream in listener.incoming() {
                let stream = stream.expect("accepted");
                scope.spawn(move || self.answer_all(&stream));
            }
        });
    }

    fn answer_all(&self, mut stream: &TcpStream) {
        let mut first = [0];
        if matches!(stream.peek(&mut first), Ok(1)) && first[0] == 0x16 {
            let refused = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            return refused.expect("sent");
        }
        let mut reader = BufReader::new(stream);
        while let Some((path, authorization)) = request(&mut reader) {
            let answer = self.answer(&path, authorization.as_deref());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, path: &str, authorization: Option<&str>) -> String {
        let is_token = path.starts_with("/token");
        let expected = match is_token {
            true => format!("Basic {}", encoded()),
            false => format!("Bearer {TOKEN}"),
        };
        if authorization != Some(&expected) {
            let challenge = format!(
                "Bearer realm=\"http://{}/token\",service=\"s\"",
                self.tokens
            );
            return answer("401 Unauthorized", &[("WWW-Authenticate", &challenge)], "");
        }
        self.authorized
            .lock()
            .expect("locked")
            .insert(path.to_owned());
        let config = self.config();
        if is_token {
            let token = json!({"token": TOKEN}).to_string();
            return answer("200 OK", &[("Content-Type", "application/json")], &token);
        }
        if path.contains("/manifests/") {
            let content_type = media_type("manifest.v1+json");
            return answer(
                "200 OK",
                &[("Content-Type", &content_type)],
                &self.manifest(),
            );
        }
        if path.ends_with(&Digest::of(config.as_bytes()).to_string()) {
            return answer("200 OK", &[], &config);
        }
        let location = format!("http://{}/layer", self.storage);
        answer("307 Temporary Redirect", &[("Location", &location)], "")
    }

    /// Sends half of the layer, and the rest once it is released.
    fn send(&self, mut stream: TcpStream) {
        let asked = request(&mut BufReader::new(&stream));
        let without_credential = Some(("/layer".to_owned(), None));
        assert_eq!(asked, without_credential, "of another host");
        let length = self.layer.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let (half, rest) = self.layer.split_at(length / 2);
        stream
            .write_all(&[head.as_bytes(), half].concat())
            .expect("sent");
        while !self.is_released.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        stream.write_all(rest).expect("sent");
    }
}

fn answer(status: &str, headers: &[(&str, &str)], body: &str) -> String {
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

/// Path and `Authorization` of the next request.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<(String, Option<String>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split_whitespace().nth(1)?.to_owned();
    let mut authorization = None;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            return Some((path, authorization));
        };
        if name.eq_ignore_ascii_case("authorization") {
            authorization = Some(value.trim().to_owned());
        }
    }
}

/// Which of the credentials lie in the writable memory of a process.
fn credentials_in_memory(pid: i32) -> BTreeSet<&'static str> {
    let encoded = encoded();
    let mut found = BTreeSet::new();
    look_at_memory(pid, &mut |part| {
        for (name, text) in [
            ("password", PASSWORD),
            ("encoded", &encoded),
            ("token", TOKEN),
        ] {
            let (first, rest) = text.as_bytes().split_first().expect("a text");
            let mut at = part;
            while let Some(next) = at.iter().position(|byte| byte == first) {
                at = &at[next + 1..];
                if at.starts_with(rest) {
                    found.insert(name);
                }
            }
        }
    });
    found
}

/// A-64, F-19: a process that unpacks a layer never had the credentials, and the fetcher, which had them, keeps
/// none.
#[test]
fn no_process_of_a_pull_has_the_credentials_of_the_registry_but_for_a_request() {
    if !is_root() {
        return needs_root("no_process_of_a_pull_has_the_credentials_of_the_registry");
    }
    let ground = Ground::new();
    let registry = Registry::start();
    let auths = json!({"auths": {registry.address.to_string(): {"auth": encoded()}}});
    private(&ground, "docker/config.json", auths.to_string().as_bytes());
    let digest = Digest::of(registry.manifest().as_bytes());
    let image = format!("--image=docker://{}/team/image@{digest}", registry.address);
    let docker_config = ground.path("docker");
    let store = ground.path("oci");
    let mut running = ground
        .command(&["run", "--insecure", &image, "--", "/bin/sh"])
        .env("DOCKER_CONFIG", docker_config.to_str().expect("plain"))
        .env("RUNNER_OPT_OCI_DIRECTORY", store.to_str().expect("plain"))
        .without("I8")
        .start();
    let runner = running.pid();
    running.until("the layer is asked for", || {
        let authorized = registry.authorized.lock().expect("locked");
        let digest = Digest::of(&registry.layer).to_string();
        let is_asked_for = authorized.iter().any(|path| path.ends_with(&digest));
        is_asked_for && confined_children(runner).len() == 1
    });
    let [fetcher] = confined_children(runner)[..] else {
        panic!("a fetcher");
    };
    // It waits for the second half.
    running.until("the first half", || {
        status(fetcher, "State").is_some_and(|state| state.starts_with('S'))
    });
    let authorized = registry.authorized.lock().expect("locked").clone();
    assert_eq!(
        authorized.len(),
        4,
        "token, manifest, config, layer: {authorized:#?}"
    );
    let of_runner = credentials_in_memory(runner);
    assert!(
        of_runner.is_superset(&BTreeSet::from(["password", "token"])),
        "{of_runner:?}"
    );
    assert_eq!(credentials_in_memory(fetcher), BTreeSet::new());

    registry.is_released.store(true, Ordering::SeqCst);
    let reader = Cell::new(None);
    running.until("the reader of the layer", || {
        let mut children = confined_children(runner).into_iter();
        reader.set(children.find(|pid| *pid != fetcher));
        reader.get().is_some()
    });
    let reader = reader.get().expect("found");
    send(reader, Signal::STOP);
    assert_eq!(credentials_in_memory(reader), BTreeSet::new());
    let of_runner = credentials_in_memory(runner);
    assert!(
        of_runner.is_superset(&BTreeSet::from(["password", "token"])),
        "{of_runner:?}"
    );
    send(reader, Signal::CONT);
    // The image has no program that runs.
    running.signal(Signal::TERM);
    running.done().assert_outcome("cancelled", 143);
}
