//! Artifacts of other programs, read by the runner.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;

use archive::{Compression, LayerView, UnpackLimits, unpack_layer};

use spec::parse_permit::ParsePermit;
use support::images::tiny;

const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

fn unpacked(layer: &Path, view: LayerView, into: &Path) -> LayerView {
    std::fs::create_dir(into).expect("made");
    let into = File::open(into).expect("a directory");
    let unpacked = unpack_layer(
        &PERMIT,
        File::open(layer).expect("a blob"),
        Compression::Gzip,
        into.as_fd(),
        view,
        &UnpackLimits::default(),
        &|| false,
    );
    let unpacked = unpacked.expect("a layer");
    let hidden = unpacked
        .hiding
        .write(into.as_fd(), &unpacked.view, &|_path| Ok(true));
    hidden.expect("hidden");
    unpacked.view
}

/// umoci ends its layers without the padding of the last file and without the end of the archive.
#[test]
fn layers_that_umoci_made_are_unpacked_one_over_the_other() {
    let Some(image) = tiny() else { return };
    let ground = tempfile::tempdir().expect("a directory");
    let mut view = LayerView::default();
    let layers = image.layers();
    assert_eq!(layers.len(), 5);
    for (number, layer) in layers.iter().enumerate() {
        view = unpacked(layer, view, &ground.path().join(number.to_string()));
    }
    let text = |path: &str| std::fs::read_to_string(ground.path().join(path));
    assert_eq!(text("1/data/changed").expect("a file"), "upper\n");
    assert_eq!(
        text("4/usr/lib/second").expect("through the link"),
        "second\n"
    );
    let gone = std::fs::symlink_metadata(ground.path().join("2/data/gone")).expect("a whiteout");
    assert!(!gone.is_file(), "a file in place of a whiteout");
}
