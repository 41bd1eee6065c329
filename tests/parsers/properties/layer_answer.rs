//! The answer of the process that unpacks a layer of an image.

use archive::{LayerView, SEGMENTS_MAX, UnpackLimits};
use reader::read_layer_answer;

const VIEW_BYTES_MAX: u64 = 1 << 12;

/// What is accepted is within the limits, with paths below the root, or an error that may be shown.
pub(crate) fn check(bytes: &[u8]) {
    accepts(bytes);
}

/// Whether it is a layer.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    let limits = UnpackLimits {
        unpacked_bytes: 1000,
        entries: 5,
        ..UnpackLimits::default()
    };
    match read_layer_answer(bytes, &limits, VIEW_BYTES_MAX) {
        Ok(layer) => {
            assert!(layer.bytes <= limits.unpacked_bytes);
            let view = layer.view.write();
            let again = LayerView::read(&view).expect("what was written");
            assert_eq!(again.write(), view);
            let hidden = || layer.hiding.opaque.iter().chain(&layer.hiding.whiteouts);
            assert!(hidden().count() as u64 <= limits.entries);
            for path in hidden() {
                let segments: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').collect();
                assert!(segments.len() <= SEGMENTS_MAX);
                for segment in segments {
                    let climbs = [&b""[..], b".", b".."].contains(&segment);
                    assert!(!climbs && !segment.contains(&0), "{path:?}");
                }
            }
            super::check_warnings(&layer.warnings);
            true
        }
        Err(problem) => super::check_problem(&problem),
    }
}
