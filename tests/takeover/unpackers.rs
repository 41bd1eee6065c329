//! The readers that fill a directory of a store: layers of images, Debian packages, snapshots of sources, and
//! archives of repositories.

use std::fs::Permissions;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::artifact::Artifact;
use super::cache::contents;
use super::fetcher::Registry;
use super::{Scene, UNPACKER, listed, of_archives, part, stored, told, unpacked};
use archive::{UnpackLimits, survey_directory};
use attacker::{Answer, Attack};
use rustix::process::{Pid, Signal};
use spec::digest::Digest;
use support::bodies::c_body;
use support::invariants::eventually;
use support::processes::{confined_children, is_gone};
use support::tar::Tar;
use support::{random, text};

const KINDS: [Kind; 4] = [
    Kind::Layer,
    Kind::Packages,
    Kind::Snapshot,
    Kind::Repository,
];
const VICTIM: &str = "victim\n";
/// More than a pipe holds: who answers early has not read it.
const MORE_BYTES: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Layer,
    Packages,
    Snapshot,
    Repository,
}

/// What a command said, and its exit code.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    text: String,
}

impl Kind {
    fn parser(self) -> &'static str {
        match self {
            Self::Layer => "layers",
            Self::Packages => "packages",
            Self::Snapshot => "snapshots",
            Self::Repository => "repositories",
        }
    }

    /// What its reader has. Layers have hard links.
    fn rights(self) -> String {
        match self {
            Self::Layer | Self::Packages => UNPACKER.replace(", ", ", linkat, "),
            Self::Snapshot | Self::Repository => UNPACKER.to_owned(),
        }
    }

    /// An answer that gives the list of successful attempts as an error.
    fn confession(self) -> Answer {
        let of_archives = of_archives();
        match self {
            Self::Layer => Answer {
                after: Some(Vec::new()),
                ..of_archives
            },
            Self::Packages => told(
                r#"{"Problem":{"index":0,"problem":{"code":"planted","message":""#,
                r#"","hint":null,"cause":"Bundle"}}}"#,
                Some(Vec::new()),
            ),
            Self::Snapshot => of_archives,
            Self::Repository => Answer {
                before: facts(),
                ..of_archives
            },
        }
    }
}

/// What precedes the answer about a repository's archive.
fn facts() -> Vec<u8> {
    part(br#"{"comment":null,"instead":null}"#)
}

struct Host {
    scene: Scene,
    store: PathBuf,
}

impl Host {
    fn new() -> Option<Self> {
        let scene = Scene::new()?;
        let store = scene.ground.path("store");
        std::fs::create_dir(&store).expect("made");
        std::fs::set_permissions(&store, Permissions::from_mode(0o700)).expect("set");
        Some(Self { scene, store })
    }

    /// Tries everything, also to change what is in the store.
    fn attack(&self, answer: Answer) -> Attack {
        let mut attack = self.scene.attack(answer);
        let directories = &mut attack.surroundings.directories;
        directories.push(self.store.clone());
        let below = contents(&self.store).into_keys();
        directories.extend(below.filter(|path| path.is_dir()));
        attack
    }

    fn command(&self, words: &[&str]) -> Command {
        let case = self.scene.command(words);
        let case = case.env("RUNNER_OPT_OCI_DIRECTORY", text(&self.store));
        case.command
    }

    /// A command whose reader meets the attack.
    fn trap(&self, kind: Kind, attack: &Attack) -> Command {
        self.trap_of(kind, attack, Digest::of(b""))
    }

    /// As [`Self::trap`], with an image that calls its layer `diff_id`.
    fn trap_of(&self, kind: Kind, attack: &Attack, diff_id: Digest) -> Command {
        let attack = attack.on(kind.parser());
        let more = random().repeat(MORE_BYTES / 16);
        let planted = |folder: &str| {
            Tar::new()
                .file(&format!("{folder}attack"), attack.as_bytes())
                .file(&format!("{folder}more"), more.as_bytes())
        };
        match kind {
            Kind::Layer => {
                let image = self.scene.image_of("hostile", &planted("").end(), diff_id);
                self.command(&["run", "--image", &image, "--", "/say"])
            }
            Kind::Packages => self.packages("hostile", &planted("./").end()),
            Kind::Snapshot => {
                let artifact = Artifact::of_layer(stored(&planted("").end()));
                artifact.keep(&self.store);
                self.source(&artifact)
            }
            Kind::Repository => self.repository(&stored(&planted("top/").end())),
        }
    }

    /// A run of a bundle with this source, which is in the store.
    fn source(&self, artifact: &Artifact) -> Command {
        let manifest = format!(
            "run: [cat, /workspace/a/a]\n\
            workspaceSources: [{{id: a, ref: '{}', mountPath: /workspace/a}}]\n",
            artifact.nowhere()
        );
        let bundle = self.scene.ground.folder(&[("manifest.yaml", &manifest)]);
        self.command(&["exec", "--grant=sources", text(&bundle)])
    }

    /// A run that needs packages, in an image that has this as the data of the package. It is kept in the
    /// directory `name`.
    fn packages(&self, name: &str, data: &[u8]) -> Command {
        let shell = c_body("packages", include_str!("../bodies/takeover/packages.c"));
        let image = executable(Tar::new(), "bin/sh", &shell)
            .file("planted.deb", &package(data))
            .file("var/lib/dpkg/status", b"")
            .end();
        let image = self.scene.image_of(name, &image, Digest::of(&image));
        let policy = "preparation: {apt: {sources: ['deb http://apt.test/apt ./']}}\n";
        let policy = self.policy(policy);
        let manifest = "run: [/say]\nrunner: {needs: {native: [planted]}}\n";
        let bundle = self.scene.ground.folder(&[("manifest.yaml", manifest)]);
        let (policy, bundle) = (text(&policy), text(&bundle));
        self.command(&["exec", "--policy", policy, "--image", &image, bundle])
    }

    fn policy(&self, text: &str) -> PathBuf {
        let name = format!("policy-{}.yaml", random());
        self.scene.ground.write(&name, text)
    }

    /// Makes a bundle of a commit, of which a service of repositories has this archive.
    fn repository(&self, archive: &[u8]) -> Command {
        let port = serve(archive).address.port();
        let commit = Digest::of(random().as_bytes()).hexadecimal();
        let commit = &commit[..40];
        let policy = format!(
            "github: {{base_url: 'http://127.0.0.1:{port}'}}\ncache: {{directory: '{}'}}\n",
            self.store.display()
        );
        let policy = self.policy(&policy);
        let manifest = format!(
            "kind: tool\nname: fetched\nrun: cat a\n\
            code: {{sources: [{{github: {{repo: org/repo, ref: '{commit}'}}}}]}}\n"
        );
        let folder = self.scene.ground.folder(&[("manifest.yaml", &manifest)]);
        let mut command = Command::new(&self.scene.program);
        command
            .args([
                "bundle",
                ".",
                "-o",
                "made.tar.gz",
                "--policy",
                text(&policy),
            ])
            .env("HOME", self.scene.ground.path("home"))
            .current_dir(folder);
        command
    }

    /// A command that uses what another reader left in the store, and says `victim`.
    fn victim(&self, kind: Kind) -> Command {
        let say = c_body("victim", include_str!("../bodies/takeover/victim.c"));
        match kind {
            Kind::Layer => {
                let layer = executable(Tar::new(), "say", &say).end();
                let image = self.scene.image_of("victim", &layer, Digest::of(&layer));
                self.command(&["run", "--image", &image, "--", "/say"])
            }
            Kind::Packages => self.packages("victim", &executable(Tar::new(), "./say", &say).end()),
            Kind::Snapshot => {
                let artifact = Artifact::of(&[("a", VICTIM)]);
                artifact.keep(&self.store);
                self.source(&artifact)
            }
            Kind::Repository => {
                let archive = Tar::new().file("top/a", VICTIM.as_bytes());
                self.repository(&stored(&archive.end()))
            }
        }
    }

    /// The answer of a reader that filled its directory with what the victim's reader left.
    fn forged(&self, kind: Kind, list: &[u8]) -> Answer {
        let of_tree = Answer {
            text: (unpacked(&self.victims_tree().to_string()), None),
            after: Some(part(list)),
            ..Answer::default()
        };
        match kind {
            Kind::Layer => {
                let digest = self.victims_layer();
                let header = format!(
                    r#"{{"Unpacked":{{"diff_id":"{digest}","hides_all":false,"bytes":1,"warnings":[]}}}}"#
                );
                Answer {
                    text: (header, None),
                    after: Some(part(b"layer view 1\n")),
                    ..Answer::default()
                }
            }
            Kind::Packages => {
                let header = r#"{"Unpacked":{"packages":[["planted","1.0","all",[]]],"bytes":1}}"#;
                Answer {
                    text: (header.to_owned(), None),
                    after: Some(Vec::new()),
                    ..Answer::default()
                }
            }
            Kind::Snapshot => of_tree,
            Kind::Repository => Answer {
                before: facts(),
                ..of_tree
            },
        }
    }

    /// The content digest of a source or repository of the victim.
    fn victims_tree(&self) -> Digest {
        let folder = self.scene.ground.folder(&[("a", VICTIM)]);
        let folder = std::fs::File::open(folder).expect("opened");
        let surveyed = survey_directory(folder.as_fd(), &UnpackLimits::default(), &[]);
        surveyed.expect("a tree").content_digest.expect("a digest")
    }

    fn victims_layer(&self) -> Digest {
        let say = c_body("victim", include_str!("../bodies/takeover/victim.c"));
        Digest::of(&executable(Tar::new(), "say", &say).end())
    }

    /// Whether a reader has left the file in the directory that it fills.
    fn has_left(&self, name: &str) -> bool {
        let mut pending = vec![self.store.clone()];
        while let Some(path) = pending.pop() {
            // What is being removed is not there.
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                if entry.file_name() == name {
                    return true;
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    pending.push(entry.path());
                }
            }
        }
        false
    }
}

/// A service of repositories that has one archive.
fn serve(archive: &[u8]) -> Registry {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-gzip\r\n";
    let head = format!("{head}Content-Length: {}\r\n\r\n", archive.len());
    Registry::start([head.as_bytes(), archive].concat())
}

fn executable(tar: Tar, name: &str, program: &Path) -> Tar {
    let bytes = std::fs::read(program).expect("read");
    tar.with(b'0', name.as_bytes(), bytes.len() as u64, |block| {
        block[100..108].copy_from_slice(b"0000755\0");
    })
    .data(&bytes)
}

/// A package with this data, as deb(5) describes it.
fn package(data: &[u8]) -> Vec<u8> {
    let control = b"Package: planted\nVersion: 1.0\nArchitecture: all\n";
    let control = Tar::new().file("control", control).end();
    let mut bytes = b"!<arch>\n".to_vec();
    for (member, contents) in [
        ("debian-binary", &b"2.0\n"[..]),
        ("control.tar", &control),
        ("data.tar", data),
    ] {
        let size = contents.len();
        let header = format!("{member:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 0);
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(contents);
    }
    bytes
}

fn said(command: &mut Command) -> Said {
    let output = command.output().expect("the runner starts");
    let text = [output.stdout, output.stderr].concat();
    Said {
        code: output.status.code(),
        text: String::from_utf8(text).expect("text"),
    }
}

/// A-61: the directory that it fills, and nothing of the host or of the store.
#[test]
fn a_reader_that_fills_a_store_has_its_directory() {
    for kind in KINDS {
        let Some(host) = Host::new() else { return };
        let before = contents(&host.scene.cache);
        let attack = host.attack(kind.confession());
        let said = said(&mut host.trap(kind, &attack));
        assert_eq!(said.code, Some(125), "{kind:?}: {said:#?}");
        let rights = kind.rights();
        let (_, after) = said.text.split_once(&rights).unwrap_or_else(|| {
            panic!("{kind:?}: not `{rights}` {said:#?}");
        });
        assert!(!after.starts_with(','), "{kind:?}: {said:#?}");
        assert_eq!(contents(&host.scene.cache), before, "{kind:?}");
        host.scene.assert_untouched();
        for name in ["planted", "planted-link", "planted-file"] {
            assert!(!host.has_left(name), "{kind:?} {name}");
        }
    }
}

/// What the program made or said of the victim.
fn result(host: &Host, kind: Kind, command: &mut Command) -> Vec<u8> {
    let done = said(command);
    assert_eq!(done.code, Some(0), "{kind:?}: {done:#?}");
    if kind == Kind::Repository {
        let folder = command.get_current_dir().expect("a folder");
        let made = folder.join("made.tar.gz");
        let bytes = std::fs::read(&made).expect("read");
        std::fs::remove_file(made).expect("removed");
        return bytes;
    }
    assert!(done.text.starts_with(VICTIM), "{kind:?}: {done:#?}");
    host.scene.assert_untouched();
    VICTIM.into()
}

/// A-61: it leaves other files than it says, and says that they are those of another.
#[test]
fn a_reader_that_fills_a_store_changes_nothing_of_others_there() {
    for kind in KINDS {
        let Some(host) = Host::new() else { return };
        let mut victim = host.victim(kind);
        let expected = result(&host, kind, &mut victim);
        let before = contents(&host.store);
        let poison = "#!/bin/sh\necho poisoned\n";
        let name = match kind {
            Kind::Layer | Kind::Packages => "say",
            Kind::Snapshot | Kind::Repository => "a",
        };
        let length = poison.len() as u64;
        for (list, reads_all) in [
            (listed(name, length), false),
            (listed(name, length), true),
            (listed(name, 1), true),
            (Vec::new(), true),
        ] {
            let attack = Attack {
                leave: vec![(name.to_owned(), poison.to_owned())],
                reads_all,
                ..host.attack(host.forged(kind, &list))
            };
            let done = said(&mut host.trap_of(kind, &attack, host.victims_layer()));
            assert!(!done.text.contains(VICTIM), "{kind:?}: {done:#?}");
            let problem = match (kind, reads_all) {
                (_, false) => Some("its reader answered before it had the whole archive"),
                (Kind::Snapshot | Kind::Repository, true) => {
                    Some("its reader told another tree than it left")
                }
                // What it left is its own layer, which has the name of no other.
                (Kind::Layer | Kind::Packages, true) => None,
            };
            if let Some(problem) = problem {
                assert_eq!(done.code, Some(125), "{kind:?}: {done:#?}");
                assert!(done.text.contains(problem), "{kind:?}: {done:#?}");
            }
            let after = contents(&host.store);
            let mut changed = before.iter();
            let changed = changed.find(|(path, old)| after.get(*path) != Some(*old));
            assert_eq!(changed, None, "{kind:?}");
        }
        assert_eq!(result(&host, kind, &mut victim), expected, "{kind:?}");
        host.scene.assert_untouched();
    }
}

/// A-61, E-26: it neither answers nor ends.
#[test]
fn a_reader_that_fills_a_store_does_not_outlive_the_run() {
    for kind in KINDS {
        for signal in [Signal::TERM, Signal::KILL] {
            let Some(host) = Host::new() else { return };
            let attack = Attack {
                leave: vec![("taken-over".to_owned(), String::new())],
                stays: true,
                ..Attack::default()
            };
            let mut command = host.trap(kind, &attack);
            let runtime = host.scene.ground.path("runtime");
            let command = command.env("RUNNER_OPT_RUNTIME_DIRECTORY", &runtime);
            let mut child = command.stderr(Stdio::null()).spawn().expect("starts");
            let pid = Pid::from_child(&child);
            eventually("the reader is taken over", || host.has_left("taken-over"));
            let readers = confined_children(pid.as_raw_nonzero().get());
            assert!(!readers.is_empty(), "{kind:?}");
            rustix::process::kill_process(pid, signal).expect("sent");
            child.wait().expect("waited for");
            eventually("the reader has ended", || {
                readers.iter().copied().all(is_gone)
            });
            // Removes what is left of it.
            let mut next = host.command(&["run", "--", "/bin/true"]);
            let next = said(next.env("RUNNER_OPT_RUNTIME_DIRECTORY", &runtime));
            assert_eq!(next.code, Some(0), "{kind:?}: {next:#?}");
        }
    }
}
