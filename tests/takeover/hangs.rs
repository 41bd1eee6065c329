//! Readers that are taken over and neither answer nor end: a signal or the time limit of the run ends them.

use std::cell::Cell;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Scene, archive_with, stored};
use attacker::Attack;
use rustix::process::{Pid, Signal, kill_process};
use support::git::git;
use support::invariants::eventually;
use support::processes::{assert_without_rights, confined_children, is_gone, status};
use support::tar::Tar;
use support::text;

/// Less than the time that a reader of text has, which would end it too.
const AT_ONCE: Duration = Duration::from_secs(8);
/// More than the time of each text, and less than that without progress.
const OF_TEXTS: Duration = Duration::from_secs(50);
/// More than the time without progress.
const OF_LAYERS: Duration = Duration::from_secs(150);
const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::KILL];
const RUN: &str = "run: [sh, main.sh]\n";
const MAIN: (&str, &str) = ("main.sh", "echo ran\n");

/// What is read, the parser that the attack is on, and a command that reads it.
type Place = (&'static str, &'static str, fn(&Scene, &str) -> Command);

/// Readers of a run. The time of the run ends those that do not belong to its planning.
const OF_RUNS: [Place; 7] = [
    ("exec an archive", "archives", |scene, attack| {
        let bundle = archive_with(attack, "echo ran\n", 0);
        let bundle = scene.ground.write("bundle.tar.gz", bundle);
        command(scene, &["exec", text(&bundle)])
    }),
    ("exec a directory", "documents", |scene, attack| {
        let bundle = manifest(scene, &format!("# {attack}\n"));
        command(scene, &["exec", text(&bundle)])
    }),
    ("its schema", "schemas", |scene, attack| {
        let schema = format!("inputs: {{type: object, description: {attack}}}\n");
        let bundle = manifest(scene, &schema);
        command(scene, &["exec", text(&bundle)])
    }),
    ("its packages", "texts", |scene, attack| {
        let package = format!(r#"{{"version": "{attack}"}}"#);
        let manifest = format!("{RUN}runner: {{needs: {{npm: [six]}}}}\n");
        let files = [
            ("manifest.yaml", manifest.as_str()),
            MAIN,
            ("node_modules/six/package.json", &package),
        ];
        let bundle = scene.ground.folder(&files);
        command(scene, &["exec", text(&bundle)])
    }),
    ("the users of an image", "texts", |scene, attack| {
        let image = scene.image(&format!("# {attack}\n"));
        command(scene, &["run", "--image", &image, "--", "/bin/sh"])
    }),
    ("the index of an image", "documents", |scene, attack| {
        scene.image("");
        let index = format!(r#"{{"schemaVersion": 2, "manifests": [], "x": "{attack}"}}"#);
        scene.ground.write("image/index.json", index);
        let image = format!("oci:{}", scene.ground.path("image").display());
        command(scene, &["run", "--image", &image, "--", "/bin/sh"])
    }),
    ("a layer of an image", "layers", |scene, attack| {
        let layer = Tar::new().file("attack", attack.as_bytes()).end();
        let image = scene.image_of("image", &layer, spec::digest::Digest::of(&layer));
        command(scene, &["run", "--image", &image, "--", "/bin/sh"])
    }),
];

const OF_OTHERS: [Place; 8] = [
    ("plan an archive", "surveys", |scene, attack| {
        let bundle = archive_with(attack, "echo ran\n", 0);
        let bundle = scene.ground.write("bundle.tar.gz", bundle);
        command(scene, &["plan", text(&bundle)])
    }),
    ("plan a directory", "documents", |scene, attack| {
        let bundle = manifest(scene, &format!("# {attack}\n"));
        command(scene, &["plan", text(&bundle)])
    }),
    ("check", "documents", |scene, attack| {
        let bundle = manifest(scene, &format!("# {attack}\n"));
        check(scene, &bundle)
    }),
    ("check a schema", "schemas", |scene, attack| {
        let schema = format!("inputs: {{type: object, description: {attack}}}\n");
        check(scene, &manifest(scene, &schema))
    }),
    ("bundle", "documents", |scene, attack| {
        bundle(scene, &manifest(scene, &format!("# {attack}\n")))
    }),
    ("bundle with patterns", "questions", |scene, attack| {
        let bundled = manifest(scene, "");
        std::fs::write(bundled.join(".bundleignore"), format!("{attack}\n")).expect("written");
        bundle(scene, &bundled)
    }),
    (
        "build a source of a checkout",
        "questions",
        |scene, attack| {
            let checkout = scene.ground.folder(&[("a", "a")]);
            git(&checkout, &["init", "-q", "-b", "main"]);
            git(&checkout, &["add", "-A"]);
            git(&checkout, &["commit", "-q", "-m", attack]);
            let words = [
                "source",
                "build",
                text(&checkout),
                "--name=x",
                "--version=1",
            ];
            command(scene, &words)
        },
    ),
    ("pull a source", "snapshots", |scene, attack| {
        let layer = stored(&Tar::new().file("attack", attack.as_bytes()).end());
        let artifact = super::artifact::Artifact::of_layer(layer);
        artifact.keep(&scene.ground.path("oci"));
        command(scene, &["source", "pull", &artifact.nowhere()])
    }),
];

fn command(scene: &Scene, words: &[&str]) -> Command {
    in_folder(scene, &scene.ground.path(""), words)
}

fn in_folder(scene: &Scene, folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(&scene.program);
    command
        .args(words)
        .env("RUNNER_OPT_CACHE_DIRECTORY", &scene.cache)
        .env("RUNNER_OPT_OCI_DIRECTORY", scene.ground.path("oci"))
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", scene.ground.path("runtime"))
        .env("HOME", scene.ground.path("home"))
        // What a command leaves that is killed.
        .env("TMPDIR", scene.ground.path(""))
        .current_dir(folder);
    command
}

/// A folder with a manifest that has this at its end.
fn manifest(scene: &Scene, end: &str) -> std::path::PathBuf {
    let manifest = format!("{RUN}{end}");
    scene.ground.folder(&[("manifest.yaml", &manifest), MAIN])
}

fn check(scene: &Scene, folder: &Path) -> Command {
    in_folder(scene, folder, &["check", "."])
}

fn bundle(scene: &Scene, folder: &Path) -> Command {
    in_folder(scene, folder, &["bundle", ".", "-o", "made.tar.gz"])
}

/// Starts the command, and returns it with the reader that is taken over.
fn hang(scene: &Scene, place: &Place, time: Option<&str>) -> (std::process::Child, i32) {
    let (what, parser, make) = place;
    let attack = Attack {
        stays: true,
        ..Attack::default()
    };
    let mut command = make(scene, &attack.on(parser));
    if let Some(time) = time {
        command.env("RUNNER_OPT_TIMEOUT", time);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("starts");
    let pid = Pid::from_child(&child).as_raw_nonzero().get();
    let reader = Cell::new(None);
    eventually(what, || {
        let mut readers = confined_children(pid).into_iter();
        reader.set(readers.find(|reader| is_waiting(*reader)));
        // Others answer meanwhile, but may wait for a processor before.
        reader.get().is_some_and(|reader| {
            (0..8).all(|_| {
                std::thread::sleep(Duration::from_millis(40));
                is_waiting(reader)
            })
        })
    });
    (child, reader.get().expect("a reader"))
}

/// Whether it sleeps.
fn is_waiting(pid: i32) -> bool {
    status(pid, "State").is_some_and(|state| state.starts_with('S'))
}

/// A-61: by Ctrl-C, SIGTERM and the end of its supervisor.
#[test]
fn a_reader_that_hangs_ends_with_a_signal() {
    let of_runs = OF_RUNS.iter().map(|place| (place, &SIGNALS[..2]));
    // A run that is killed leaves its cgroup to the next one.
    let of_others = OF_OTHERS.iter().map(|place| (place, &SIGNALS[..]));
    for (place, signals) in of_runs.chain(of_others) {
        for signal in signals.iter().copied() {
            let Some(scene) = Scene::new() else { return };
            let (mut child, reader) = hang(&scene, place, None);
            let pid = Pid::from_child(&child);
            assert_without_rights(reader, pid.as_raw_nonzero().get());
            let sent = Instant::now();
            kill_process(pid, signal).expect("sent");
            let ended = child.wait().expect("waited for");
            let (what, took) = (place.0, sent.elapsed());
            assert!(took < AT_ONCE, "{what}: {signal:?} took {took:?}");
            let by_signal = std::os::unix::process::ExitStatusExt::signal(&ended);
            let code = by_signal.map(|number| 128 + number).or(ended.code());
            assert_eq!(code, Some(128 + signal.as_raw()), "{what}: {ended:?}");
            eventually(what, || is_gone(reader));
        }
    }
}

/// A-61: by `--timeout`, or, where its time does not count, by the reader's own.
#[test]
fn a_reader_that_hangs_ends_with_its_time_whatever_the_time_of_the_run() {
    std::thread::scope(|scope| {
        for place in &OF_RUNS {
            // A layer may be decompressed for long: its reader is ended after a minute without progress.
            if place.1 == "layers" && !support::belongs_to_tier("long") {
                continue;
            }
            scope.spawn(|| end_by_time(place));
        }
    });
}

fn end_by_time(place: &Place) {
    let Some(scene) = Scene::new() else { return };
    let started = Instant::now();
    let (child, reader) = hang(&scene, place, Some("1s"));
    let ended = child.wait_with_output().expect("waited for");
    let (what, took) = (place.0, started.elapsed());
    let (time_max, expected, said) = match (place.1, what) {
        ("archives", _) => (AT_ONCE, 124, "timed out"),
        // A schema that takes so long is refused, as what belongs to the planning is.
        ("schemas", _) => (AT_ONCE, 125, "longer than"),
        ("layers", _) => (OF_LAYERS, 125, "neither read nor answered for 60s"),
        // What is not read of a package is a warning.
        (_, "its packages") => (OF_TEXTS, 0, "has no version"),
        _ => (OF_TEXTS, 125, "longer than 10s"),
    };
    assert!(took < time_max, "{what}: took {took:?}");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(expected), "{what}: {errors}");
    assert!(errors.contains(said), "{what}: {errors}");
    eventually(what, || is_gone(reader));
}
