//! A bug in each parser of what strangers wrote, by which an attacker takes over the process that parses:
//! what he reaches, and what his answers do.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

mod answers;
#[path = "../sources/artifact.rs"]
#[expect(dead_code, reason = "the sources of runs need more of it")]
mod artifact;
mod audit;
mod cache;
mod checkouts;
mod copies;
mod fetcher;
mod hangs;
mod init;
mod network;
mod patterns;
mod reach;
mod relay;
mod resolver;
mod unpackers;

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use attacker::{Answer, Attack, Surroundings};
use serde_json::json;
use spec::digest::Digest;
use support::tar::Tar;
use support::{Case, Ground, random, runner, skip};

/// What a process has that reads what it is sent.
const READER: &str = "has 3 devices and 2 pipes";
/// What a process has that fills a directory.
const UNPACKER: &str = "has 3 devices and 2 pipes and 1 directories, create in its directory";

/// The program with planted bugs. `None` after a skip.
fn planted() -> Option<PathBuf> {
    let program = PathBuf::from(runner());
    let beside = ["planted", "examples/planted"].map(|name| program.with_file_name(name));
    let found = beside.into_iter().find(|path| path.exists());
    if found.is_none() {
        skip(
            "no program with planted bugs: \
            cargo build --workspace --example planted --features runner/planted-bugs",
        );
    }
    found
}

/// What belongs to the caller, and the program with planted bugs.
struct Scene {
    ground: Ground,
    program: PathBuf,
    cache: PathBuf,
    listener: TcpListener,
}

impl Scene {
    fn new() -> Option<Self> {
        let program = planted()?;
        let ground = Ground::new();
        ground.write("home/letter", "mine");
        let cache = ground.path("cache");
        std::fs::create_dir(&cache).expect("made");
        std::fs::set_permissions(&cache, Permissions::from_mode(0o700)).expect("set");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        listener.set_nonblocking(true).expect("set");
        Some(Self {
            ground,
            program,
            cache,
            listener,
        })
    }

    /// Tries everything, and then answers.
    fn attack(&self, answer: Answer) -> Attack {
        Attack {
            surroundings: Surroundings {
                files: vec![self.ground.path("home/letter")],
                directories: vec![
                    self.ground.path("home"),
                    self.ground.path("canary"),
                    self.cache.clone(),
                    std::env::temp_dir(),
                ],
                address: Some(self.listener.local_addr().expect("bound")),
            },
            answer,
            ..Attack::default()
        }
    }

    fn command(&self, words: &[&str]) -> Case<'_> {
        let mut case = self.ground.command(words);
        let mut command = Command::new(&self.program);
        command.args(case.command.get_args());
        case.replace(command);
        case.command.env("RUNNER_OPT_CACHE_DIRECTORY", &self.cache);
        case
    }

    /// The output of a verb without a report, in the folder.
    fn output(&self, folder: &Path, words: &[&str]) -> Output {
        Command::new(&self.program)
            .args(words)
            .env("RUNNER_OPT_CACHE_DIRECTORY", &self.cache)
            .env("RUNNER_OPT_OCI_DIRECTORY", self.ground.path("oci"))
            .env("HOME", self.ground.path("home"))
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", self.ground.path("runtime"))
            .current_dir(folder)
            .output()
            .expect("the runner starts")
    }

    /// An image with a shell that cannot run, and these users.
    fn image(&self, passwd: &str) -> String {
        let layer = Tar::new()
            .file("bin/sh", b"#!/bin/sh\n")
            .file("etc/passwd", passwd.as_bytes())
            .end();
        self.image_of("image", &layer, Digest::of(&layer))
    }

    /// An image of one layer, a tar that its config calls `diff_id`. It is kept in the directory `name`.
    fn image_of(&self, name: &str, layer: &[u8], diff_id: Digest) -> String {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            _ => "arm64",
        };
        let blob = |bytes: &[u8], media_type: &str| {
            let digest = Digest::of(bytes).to_string();
            let (algorithm, hexadecimal) = digest.split_once(':').expect("an algorithm");
            let place = format!("{name}/blobs/{algorithm}/{hexadecimal}");
            self.ground.write(&place, bytes);
            json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
        };
        let media_type = |name: &str| format!("application/vnd.oci.image.{name}");
        let config = json!({
            "os": "linux",
            "architecture": architecture,
            "config": {"Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [diff_id.to_string()]},
        });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": media_type("manifest.v1+json"),
            "config": blob(config.to_string().as_bytes(), &media_type("config.v1+json")),
            "layers": [blob(layer, &media_type("layer.v1.tar"))],
        });
        let manifest = blob(
            manifest.to_string().as_bytes(),
            &media_type("manifest.v1+json"),
        );
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        let file = |file: &str| format!("{name}/{file}");
        self.ground.write(&file("index.json"), index.to_string());
        let version = r#"{"imageLayoutVersion":"1.0.0"}"#;
        self.ground.write(&file("oci-layout"), version);
        format!("oci:{}", self.ground.path(name).display())
    }

    /// Nothing of the caller's was touched.
    fn assert_untouched(&self) {
        let letter = std::fs::read_to_string(self.ground.path("home/letter"));
        assert_eq!(letter.expect("read"), "mine");
        for name in ["home", "cache", "canary", "work"] {
            for new in ["planted", "planted-link"] {
                let path = self.ground.path(name).join(new);
                assert!(path.symlink_metadata().is_err(), "{}", path.display());
            }
        }
        let accepted = self.listener.accept();
        assert_eq!(
            accepted.expect_err("nobody connected").kind(),
            std::io::ErrorKind::WouldBlock
        );
    }
}

/// Answers that give the list of successful attempts as an error.
fn of_archives() -> Answer {
    told(
        r#"{"Problem":{"code":"planted","message":""#,
        r#"","hint":null,"cause":"Bundle"}}"#,
        Some(part(b"")),
    )
}

fn of_documents() -> Answer {
    told(
        r#"{"Error":{"place":null,"problem":{"Syntax":{"reason":""#,
        r#""}}}}"#,
        None,
    )
}

fn of_schemas() -> Answer {
    told(
        r#"[{"InvalidSchema":{"TooCostly":{"reason":""#,
        r#""}}}]"#,
        None,
    )
}

fn of_json() -> Answer {
    told(r#"e{"Syntax":{"reason":""#, r#""}}"#, None)
}

/// A text, or a list of one.
fn of_texts(is_list: bool) -> Answer {
    match is_list {
        true => told("[\"", "\"]", None),
        false => told("\"", "\"", None),
    }
}

fn told(before: &str, after: &str, rest: Option<Vec<u8>>) -> Answer {
    Answer {
        text: (before.to_owned(), Some(after.to_owned())),
        after: rest,
        ..Answer::default()
    }
}

/// A part of an answer, as `reader` writes it.
fn part(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

/// The header of an answer with a tree.
fn unpacked(digest: &str) -> String {
    format!(r#"{{"Tree":{{"content_digest":"{digest}","warnings":[]}}}}"#)
}

/// The list of a tree with this program in it, as `archive::listing` writes it.
fn listed(name: &str, bytes: u64) -> Vec<u8> {
    let length = u32::try_from(name.len()).expect("short");
    [
        &b"x"[..],
        &bytes.to_le_bytes(),
        &length.to_le_bytes(),
        name.as_bytes(),
    ]
    .concat()
}

fn text_of(value: &serde_json::Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// A gzip file whose data is not compressed, so that an attack in the tar is found in it.
fn stored(tar: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    std::io::Write::write_all(&mut encoder, tar).expect("stored");
    encoder.finish().expect("finished")
}

/// An archive with `script`, the attack on the process that unpacks it, and as many more bytes.
fn archive(attack: &Attack, script: &str, more: usize) -> Vec<u8> {
    archive_with(&attack.on("archives"), script, more)
}

fn archive_with(attack: &str, script: &str, more: usize) -> Vec<u8> {
    let tar = Tar::new()
        .file("attack", attack.as_bytes())
        .file("manifest.yaml", b"run: [sh, main.sh]\n")
        .file("main.sh", script.as_bytes())
        .file("more", random().repeat(more / 16).as_bytes());
    stored(&tar.end())
}
