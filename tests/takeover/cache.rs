//! What a process that was taken over does to other bundles of the same caller.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{Scene, archive, listed, of_archives, part, unpacked};
use attacker::Answer;
use support::{Done, text};

/// Path, mode and contents of everything below `root`.
pub(crate) fn contents(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let status = path.symlink_metadata().expect("looked at");
        let bytes = if status.is_dir() {
            let entries = std::fs::read_dir(&path).expect("listed");
            pending.extend(entries.map(|entry| entry.expect("an entry").path()));
            Vec::new()
        } else if status.is_file() {
            std::fs::read(&path).expect("read")
        } else {
            let target = std::fs::read_link(&path).expect("a link");
            target.into_os_string().into_encoded_bytes()
        };
        found.insert(path, (status.permissions().mode(), bytes));
    }
    found
}

fn exec(scene: &Scene, bundle: &Path) -> Done {
    scene.command(&["exec", text(bundle)]).done()
}

/// it claims the digest of a bundle that it is not, leaves other files than it says, and tries to
/// write into the tree of that bundle.
#[test]
fn a_bundle_that_is_in_the_cache_is_found_there_as_it_was() {
    let Some(scene) = Scene::new() else { return };
    let (victim, tree) = keep_victim(&scene);
    let digest = &exec(&scene, &victim).report["bundle"]["content_digest"];
    let digest = digest.as_str().expect("a digest");
    let before = contents(&scene.cache);
    let poison = "#!/bin/sh\necho poisoned\n";
    for list in [
        Vec::new(),
        listed("main.sh", poison.len() as u64),
        listed("main.sh", 1),
        listed("other", poison.len() as u64),
    ] {
        let mut attack = scene.attack(Answer {
            text: (unpacked(digest), None),
            after: Some(part(&list)),
            ..Answer::default()
        });
        attack.leave.push(("main.sh".to_owned(), poison.to_owned()));
        attack
            .surroundings
            .directories
            .extend([tree.clone(), scene.cache.join("1")]);
        let bytes = archive(&attack, "echo attack\n", 100_000);
        let done = exec(&scene, &scene.ground.write("attack.tar.gz", bytes));
        done.assert_error("refused", "archive_unreadable");
        let message = done.report["error"]["message"].as_str().expect("text");
        assert!(
            message.contains("its reader told another tree than it left"),
            "{message}"
        );
        assert_eq!(done.text(), "");
        assert_eq!(contents(&scene.cache), before);
    }
    let mut attack = scene.attack(of_archives());
    attack.surroundings.directories.push(tree);
    let bytes = archive(&attack, "echo attack\n", 100_000);
    exec(&scene, &scene.ground.write("attack.tar.gz", bytes)).assert_error("refused", "planted");
    assert_eq!(contents(&scene.cache), before);

    let again = exec(&scene, &victim);
    assert_eq!(again.text(), "victim\n", "{again:#?}");
    assert_ne!(
        again.report["bundle"]["cache"]["found"], "miss",
        "{again:#?}"
    );
    assert_eq!(again.report["bundle"]["content_digest"], digest);
    scene.assert_untouched();
}

/// A bundle that is in the cache, and its tree there.
pub(crate) fn keep_victim(scene: &Scene) -> (PathBuf, PathBuf) {
    let victim = scene.ground.bundle(&[
        ("manifest.yaml", "run: [sh, main.sh]\n"),
        ("main.sh", "echo victim\n"),
        ("noise", &noise()),
    ]);
    let first = exec(scene, &victim);
    assert_eq!(first.text(), "victim\n", "{first:#?}");
    assert_eq!(
        first.report["bundle"]["cache"]["found"], "miss",
        "{first:#?}"
    );
    let trees = std::fs::read_dir(scene.cache.join("1/trees")).expect("listed");
    let mut trees = trees.map(|tree| tree.expect("a tree").path());
    (victim, trees.next().expect("a tree"))
}

/// Text that gzip cannot make small: small bundles are not kept.
fn noise() -> String {
    let words = (0..8000).map(|_| support::random());
    words.collect()
}
