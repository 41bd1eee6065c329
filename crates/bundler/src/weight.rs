//! Warnings about large content: installed packages and large files.

use std::collections::{BTreeMap, BTreeSet};

use crate::left_out::first;
use crate::overlay::Overlay;
use spec::path::RelPath;
use spec::report::WarningReport;

const LARGE_BYTES: u64 = 10 << 20;
const LARGEST: usize = 10;
/// Marker file of a Python virtual environment.
const ENVIRONMENT: &[u8] = b"pyvenv.cfg";

#[derive(Default)]
struct Weight {
    files: u64,
    bytes: u64,
}

pub(crate) fn warnings(overlay: &Overlay) -> Vec<WarningReport> {
    let environments: BTreeSet<Option<RelPath>> = overlay
        .files()
        .filter(|(path, _)| path.file_name() == ENVIRONMENT)
        .map(|(path, _)| path.parent())
        .collect();
    let mut installed: BTreeMap<RelPath, Weight> = BTreeMap::new();
    let mut all = Weight::default();
    for (path, bytes) in overlay.files() {
        all.files += 1;
        all.bytes = all.bytes.saturating_add(bytes);
        let above = std::iter::successors(path.parent(), RelPath::parent);
        let outermost = above
            .filter(|above| {
                matches!(above.file_name(), b"node_modules" | b"__pycache__")
                    || environments.contains(&Some(above.clone()))
            })
            .last();
        if let Some(folder) = outermost {
            let weight = installed.entry(folder).or_default();
            weight.files += 1;
            weight.bytes = weight.bytes.saturating_add(bytes);
        }
    }
    let mut warnings = Vec::new();
    if !installed.is_empty() {
        let mut folders: Vec<(RelPath, Weight)> = installed.into_iter().collect();
        folders.sort_by_key(|(_, weight)| std::cmp::Reverse(weight.bytes));
        let named = folders.iter().map(|(path, weight)| {
            let words = weight.words();
            format!("`{path}` ({words})")
        });
        warnings.push(WarningReport::new(
            "bundle_installed",
            format!(
                "the bundle contains files installed or compiled for one machine: {}; if not \
                 intended, list them in .bundleignore",
                first(named, LARGEST)
            ),
        ));
    }
    if all.bytes > LARGE_BYTES {
        let mut largest: Vec<(&RelPath, u64)> = overlay.files().collect();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let named = largest.iter().map(|(path, bytes)| {
            let size = size_words(*bytes);
            format!("`{path}` ({size})")
        });
        warnings.push(WarningReport::new(
            "bundle_large",
            format!("the largest of {}: {}", all.words(), first(named, LARGEST)),
        ));
    }
    warnings
}

impl Weight {
    fn words(&self) -> String {
        let plural = if self.files == 1 { "" } else { "s" };
        format!("{} file{plural}, {}", self.files, size_words(self.bytes))
    }
}

fn size_words(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
