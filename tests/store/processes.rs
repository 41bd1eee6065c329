//! Processes that pull at the same time, and processes that are killed at any time.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::ground::{Artifact, Ground, noise, source};
use support::images::skopeo;
use support::packages::{has, succeed};
use support::registry::{Options, Registry};
use support::runner;

fn pull(ground: &Ground, words: &[&str]) -> Command {
    let mut command = Command::new(runner());
    command
        .args(["source", "pull", "--json"])
        .args(words)
        .env("RUNNER_OPT_OCI_DIRECTORY", ground.path("oci"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Pushes the artifact to a registry; returns its reference by digest.
fn published(artifact: &Artifact, ground: &Ground, registry: &Registry) -> String {
    artifact.write(&ground.path("published"), Some("latest"));
    let from = format!("oci:{}:latest", ground.path("published").display());
    let to = format!("docker://{}", registry.reference("sources/backend:1"));
    let mut copy = skopeo("copy", registry, "dest-");
    succeed(copy.args([&from, &to])).expect("copied");
    let digest = artifact.digest();
    registry.reference(&format!("sources/backend@{digest}"))
}

#[test]
fn processes_that_pull_one_source_at_once_download_it_once() {
    if !has("skopeo") {
        return;
    }
    let Some(registry) = Registry::start(Options::default()) else {
        return;
    };
    let artifact = source(5, 6 << 20);
    let ground = Ground::new();
    let reference = published(&artifact, &ground, &registry);
    let blobs = |digest: &str| registry.count("GET", &format!("blobs/{digest}"));
    for (round, processes) in [2, 16].into_iter().enumerate() {
        let ground = Ground::new();
        let words = ["--insecure", &*reference];
        let children: Vec<Child> = (0..processes)
            .map(|_| pull(&ground, &words).spawn().expect("started"))
            .collect();
        let mut pulled = 0;
        for child in children {
            let output = child.wait_with_output().expect("waited");
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{told}");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains(&artifact.digest().to_string()), "{text}");
            pulled += usize::from(text.contains("\"found\": \"pulled\""));
        }
        assert!(0 < pulled);
        let layer = artifact.layer().digest.to_string();
        assert_eq!(blobs(&layer), round + 1, "{processes} processes");
        assert_eq!(ground.assert_untorn(), 3);
    }
}

#[test]
fn a_killed_pull_leaves_no_partial_file_and_the_next_completes_it() {
    const KILLS: u32 = 40;
    let artifact = source(6, 6 << 20);
    let ground = Ground::new();
    artifact.write(&ground.path("layout"), None);
    let place = format!("oci:{}", ground.path("layout").display());
    // The shortest of a few runs: on a busy host the times vary.
    let pulls = (0..4).map(|_| {
        let started = Instant::now();
        let first = Ground::new();
        let output = pull(&first, &[&place]).output().expect("the runner starts");
        assert!(output.status.success());
        started.elapsed()
    });
    let mut whole = pulls.min().expect("several");
    let mut killed = 0;
    for kill in 0..KILLS {
        let mut child = pull(&ground, &[&place]).spawn().expect("started");
        // Spread over the duration of a pull; on a slow host they hit the same steps at other times.
        let delay = whole * (kill * 17 % KILLS) / KILLS;
        std::thread::sleep(delay);
        child.kill().expect("killed");
        let was_killed = !child.wait().expect("waited").success();
        killed += u32::from(was_killed);
        if !was_killed {
            // The host was busier when the pulls were measured.
            whole = delay;
        }
        ground.assert_untorn();
        if kill % 8 == 7 || !was_killed {
            let mut next = pull(&ground, &[&place]);
            let output = next.output().expect("the runner starts");
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{told}");
            assert_whole(&ground);
            std::fs::remove_dir_all(ground.path("oci")).expect("removed");
        }
    }
    assert!(
        KILLS / 2 < killed,
        "only {killed} pulls were killed in time"
    );
}

fn assert_whole(ground: &Ground) {
    assert_eq!(ground.assert_untorn(), 3);
    let trees = std::fs::read_dir(ground.path("oci/1/snapshots/1/trees")).expect("there");
    let trees: Vec<_> = trees.flatten().collect();
    assert_eq!(trees.len(), 1);
    let tree = trees[0].path().join("tree");
    let bytes = std::fs::read(tree.join("a/noise")).expect("read");
    assert!(
        bytes == noise(6, 6 << 20),
        "the tree is not what was packed"
    );
    ground.store().gc(false).expect("collected");
    for part in ["claims", "snapshots/1/building"] {
        let left = std::fs::read_dir(ground.path("oci/1").join(part)).expect("there");
        assert_eq!(left.count(), 0, "{part}");
    }
}
