//! A fetcher that a registry or a name server takes over.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::artifact::Artifact;
use super::cache::contents;
use super::network::{exploration, heard_outside};
use super::{Scene, text_of};
use attacker::{Answer, Attack};
use rustix::process::Signal;
use support::invariants::eventually;
use support::network::Outside;
use support::processes::{confined_child, is_gone};
use support::{Case, Done};

/// A limit for hangs.
const HANG_AFTER: Duration = Duration::from_secs(120);
const MALFORMED: &str = "the answer of the fetcher is malformed";

/// Answers each request with the same bytes.
pub(crate) struct Registry {
    pub(crate) address: SocketAddr,
    /// What comes after the requests.
    heard: Receiver<String>,
}

impl Registry {
    pub(crate) fn start(answer: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let (sender, heard) = channel();
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(&stream.expect("accepted"), &answer, &sender);
            }
        });
        Self { address, heard }
    }

    /// What it hears between `start` and `end`, with the end.
    fn heard(&self, start: &str, end: &str) -> String {
        let mut heard = String::new();
        loop {
            if let Some((_, after)) = heard.split_once(start)
                && after.ends_with(end)
            {
                return after.to_owned();
            }
            let more = self.heard.recv_timeout(HANG_AFTER);
            heard.push_str(&more.expect("the attacker says more"));
        }
    }
}

fn serve(mut stream: &TcpStream, answer: &[u8], heard: &Sender<String>) {
    let mut received = Vec::new();
    let mut part = [0; 4096];
    let end = b"\r\n\r\n";
    while !received.windows(end.len()).any(|window| window == end) {
        match stream.read(&mut part).expect("a request") {
            0 => break,
            count => received.extend_from_slice(&part[..count]),
        }
        // A record of TLS, which is tried first.
        if received[0] == 0x16 {
            if answer.starts_with(b"HTTP") {
                let refused = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                return refused.expect("sent");
            }
            break;
        }
    }
    stream.write_all(answer).expect("sent");
    // A process that is killed with unread input resets the connection.
    while let Ok(count @ 1..) = stream.read(&mut part) {
        let text = String::from_utf8_lossy(&part[..count]).into_owned();
        // The test may have ended.
        if heard.send(text).is_err() {
            return;
        }
    }
}

/// Where a registry writes what the fetcher parses: TLS, the head, the body.
fn answers(attack: &Attack) -> [Vec<u8>; 4] {
    let attack = attack.on("fetcher");
    let length = attack.len();
    [
        format!("\u{16}\u{3}\u{3}\u{40}\0{attack}"),
        format!("HTTP/1.1 {attack}\r\n\r\n"),
        format!("HTTP/1.1 200 OK\r\nX: {attack}\r\nContent-Length: 2\r\n\r\nok"),
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{attack}"),
    ]
    .map(String::into_bytes)
}

/// What is fetched: an image of a run, a source of a bundle.
const FETCHED: [&str; 2] = ["image", "source"];

struct Host {
    scene: Scene,
    store: PathBuf,
    /// The digest of an artifact in the store, and a bundle that has it as its source.
    victim: (String, String),
}

impl Host {
    fn new() -> Option<Self> {
        let scene = Scene::new()?;
        let store = scene.ground.path("store");
        std::fs::create_dir(&store).expect("made");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&store, private).expect("set");
        let artifact = Artifact::of(&[("a", "victim\n")]);
        artifact.keep(&store);
        let mut host = Self {
            scene,
            store,
            victim: (artifact.digest(), String::new()),
        };
        host.victim.1 = host.bundle(&artifact.nowhere());
        host.assert_victim();
        Some(host)
    }

    /// It connects: where to is up to the client, which it may disobey.
    fn exploration(&self) -> Attack {
        let mut attack = exploration(&self.scene);
        attack.surroundings.directories.push(self.store.clone());
        attack
    }

    fn bundle(&self, reference: &str) -> String {
        let manifest = format!(
            "run: [./main.sh]\nworkspaceSources:\n- {{id: a, ref: '{reference}', mountPath: /workspace/a}}\n"
        );
        let files = [
            ("manifest.yaml", manifest.as_str()),
            ("main.sh", "#!/bin/sh\ncat /workspace/a/a\n"),
        ];
        let bundle = self.scene.ground.folder(&files);
        bundle.to_str().expect("plain").to_owned()
    }

    fn case(&self, fetched: &str, reference: &str) -> Case<'_> {
        let (bundle, image);
        let words = match fetched {
            "image" => {
                image = format!("docker://{reference}");
                vec!["run", "--insecure", "--image", &image, "--", "/bin/true"]
            }
            _ => {
                bundle = self.bundle(reference);
                vec!["exec", "--grant=sources", "--insecure", &bundle]
            }
        };
        let store = self.store.to_str().expect("plain");
        self.scene
            .command(&words)
            .env("RUNNER_OPT_OCI_DIRECTORY", store)
    }

    /// Runs it to its end. It is no success, and nothing of the host was affected.
    fn refused(&self, case: Case<'_>) -> Done {
        let before = [&self.store, &self.scene.cache].map(|path| contents(path));
        let done = case.done();
        assert_eq!((done.code, done.text().as_str()), (125, ""), "{done:#?}");
        let after = [&self.store, &self.scene.cache].map(|path| contents(path));
        assert_eq!(after, before);
        self.scene.assert_untouched();
        done
    }

    /// The other artifact is what it was.
    fn assert_victim(&self) {
        let words = ["exec", "--grant=sources", &self.victim.1];
        let store = self.store.to_str().expect("plain");
        let case = self.scene.command(&words);
        let done = case.env("RUNNER_OPT_OCI_DIRECTORY", store).done();
        assert_eq!(done.assert_exited(0).text(), "victim\n", "{done:#?}");
    }
}

fn reference(address: &str, digest: &str) -> String {
    format!("{address}/team/backend@{digest}")
}

fn unknown() -> String {
    format!("sha256:{}", "0".repeat(64))
}

fn message(done: &Done) -> String {
    text_of(&done.report["error"]["message"])
}

/// A-64: it keeps the connection, and may make others.
#[test]
fn a_fetcher_that_is_taken_over_reaches_servers_and_nothing_else() {
    let Some(host) = Host::new() else { return };
    let attack = host.exploration();
    for answer in answers(&attack) {
        for fetched in FETCHED {
            let registry = Registry::start(answer.clone());
            let reference = reference(&registry.address.to_string(), &unknown());
            let done = host.refused(host.case(fetched, &reference));
            assert!(done.error().starts_with("registry_"), "{done:#?}");
            assert!(message(&done).contains(MALFORMED), "{done:#?}");
            // Its link, the connection; the standard streams, its answer.
            let heard = "has 2 sockets and 4 others, socket inet\n";
            assert_eq!(registry.heard(&attack.answer.text.0, "\n"), heard);
        }
    }
    host.assert_victim();
}

/// A-64: by the answer of a name server.
#[test]
fn a_fetcher_that_a_name_server_takes_over_reaches_nothing_else_either() {
    let Some(host) = Host::new() else { return };
    let Some(outside) = Outside::get() else {
        return;
    };
    let attack = host.exploration();
    let label = outside.plant(attack.on("resolver").as_bytes());
    let reference = reference(&format!("{label}.zone.example:9000"), &unknown());
    let done = host.refused(host.case("source", &reference).inside(outside));
    assert!(message(&done).contains(MALFORMED), "{done:#?}");
    // It also has epoll.
    let heard = "has 2 sockets and 5 others, socket inet\n";
    assert_eq!(heard_outside(outside, &attack), heard);
}

/// The message with this head and this start of the body, padded so that it is text.
fn forged_head(head: &str, body: &str) -> String {
    let is_text = |length: usize| length.to_le_bytes().into_iter().all(|byte| byte < 0x80);
    let (mut head, mut body) = (head.to_owned(), body.to_owned());
    while !is_text(head.len()) {
        head.push(' ');
    }
    while !is_text(4 + head.len() + body.len()) {
        body.push(' ');
    }
    let length = |count: usize| {
        let count = u32::try_from(count).expect("short").to_le_bytes();
        String::from_utf8(count.to_vec()).expect("text")
    };
    let (all, of_head) = (length(4 + head.len() + body.len()), length(head.len()));
    format!("\u{5}{all}{of_head}{head}{body}")
}

/// A-64: it says that the registry has other bytes for the digest of an artifact.
#[test]
fn a_fetcher_that_is_taken_over_poisons_nothing() {
    let Some(host) = Host::new() else { return };
    let head = r#"{"status":200,"fields":[],"stated_bytes":null,"is_whole":true}"#;
    let body = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json"}"#;
    let other = Artifact::of(&[("a", "other\n")]).digest();
    for (text, part) in [
        (forged_head(head, body), "digest"),
        (forged_head(&head.replace("200", "100"), body), MALFORMED),
        (forged_head("{}", body), MALFORMED),
        (
            forged_head(&head.replace("[]", r#"[["a\nb","c"]]"#), body),
            MALFORMED,
        ),
        ("\u{6}\u{d}\0\0\0{\"Io\":\"\\u001b\"}".to_owned(), ""),
        (String::new(), "the fetcher ended without an answer"),
    ] {
        let attack = Attack {
            answer: Answer {
                text: (text, None),
                ..Answer::default()
            },
            ..Attack::default()
        };
        let [.., answer, _] = answers(&attack);
        let registry = Registry::start(answer);
        for fetched in FETCHED {
            let reference = reference(&registry.address.to_string(), &other);
            let done = host.refused(host.case(fetched, &reference));
            assert!(message(&done).contains(part), "{part}: {done:#?}");
            assert!(!done.stderr.contains('\u{1b}'), "{done:#?}");
        }
    }
    host.assert_victim();
}

/// A-61: of `WWW-Authenticate`, which a registry sends with a 401.
#[test]
fn the_parser_of_challenges_is_no_process_with_rights() {
    let Some(host) = Host::new() else { return };
    let told = r#"[{"Bearer":{"realm":"http://taken.example/","service":null,"scope":null}}]"#;
    let attack = Attack {
        answer: Answer {
            text: (told.to_owned(), None),
            ..Answer::default()
        },
        ..host.scene.attack(Answer::default())
    };
    let head = format!(
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"{}\"\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n",
        attack.on("texts")
    );
    let registry = Registry::start(head.into_bytes());
    let reference = reference(&registry.address.to_string(), &unknown());
    let done = host.refused(host.case("source", &reference));
    let expected = "the URL of the token service is http://taken.example, expected https";
    assert!(message(&done).contains(expected), "{done:#?}");
    host.assert_victim();
}

/// A-64: it begins an answer and does not end it.
#[test]
fn a_fetcher_that_is_taken_over_does_not_outlive_the_run() {
    let Some(host) = Host::new() else { return };
    let attack = Attack {
        answer: Answer {
            text: ("\u{5}".to_owned(), None),
            ..Answer::default()
        },
        stays: true,
        ..Attack::default()
    };
    let [.., answer, _] = answers(&attack);
    for signal in [Signal::TERM, Signal::KILL] {
        let registry = Registry::start(answer.clone());
        let reference = reference(&registry.address.to_string(), &unknown());
        let case = host.case("source", &reference);
        let running = case.without("I4").without("I5").without("I8").start();
        let fetcher = confined_child(running.pid());
        registry.heard("\u{5}", "");
        running.signal(signal);
        let (done, breaches) = running.finish();
        assert_eq!(done.code, 128 + signal.as_raw(), "{done:#?}");
        assert!(breaches.is_empty(), "{breaches:#?}");
        eventually("the fetcher has ended", || is_gone(fetcher));
    }
    host.assert_victim();
}
