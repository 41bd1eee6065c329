//! The commands of docs/kubernetes.md that need no cluster.

use std::os::unix::fs::symlink;
use std::process::Command;

use support::documents::{blocks, is_as_printed};
use support::packages::has;
use support::{Ground, source_path};

use crate::container::{said, stripped};

#[test]
fn the_commands_of_the_document_make_an_image_for_a_node() {
    if !has("skopeo") {
        return;
    }
    let ground = Ground::new();
    let built = ground.path("target/x86_64-unknown-linux-gnu");
    std::fs::create_dir_all(&built).expect("made");
    stripped(&built.join("dist"));
    symlink(source_path("scripts"), ground.path("scripts")).expect("linked");
    let document = include_str!("../../docs/kubernetes.md");
    let blocks = blocks(document);
    assert!(!blocks.is_empty(), "the document has commands");
    for (commands, expected) in blocks {
        let mut shell = Command::new("bash");
        shell.args(["-ec", &commands]).current_dir(ground.path("."));
        let output = shell.output().expect("bash starts");
        assert!(output.status.success(), "{commands}\n{}", said(&output));
        let printed = String::from_utf8_lossy(&output.stdout);
        let expected = expected.unwrap_or_default();
        assert!(is_as_printed(&printed, &expected), "{commands}\n{printed}");
    }
    assert!(ground.path("runner.tar").exists());
}
