//! Warnings about large content: installed packages and large files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::left_out::join_first;
use crate::overlay::Overlay;
use spec::path::RelPath;
use spec::report::WarningReport;

const WARN_FROM_BYTES: u64 = 10 << 20;
const NAMES_MAX: usize = 10;
/// Marker file of a Python virtual environment.
const VENV_MARKER: &[u8] = b"pyvenv.cfg";

#[derive(Default)]
struct Size {
    files: u64,
    bytes: u64,
}

pub(crate) fn warnings(overlay: &Overlay) -> Vec<WarningReport> {
    let environments: BTreeSet<Option<RelPath>> = overlay
        .files()
        .filter(|(path, _)| path.file_name() == VENV_MARKER)
        .map(|(path, _)| path.parent())
        .collect();
    let mut installed: BTreeMap<RelPath, Size> = BTreeMap::new();
    let mut total = Size::default();
    for (path, bytes) in overlay.files() {
        total.add_file(bytes);
        let above = std::iter::successors(path.parent(), RelPath::parent);
        let outermost = above
            .filter(|above| {
                matches!(above.file_name(), b"node_modules" | b"__pycache__")
                    || environments.contains(&Some(above.clone()))
            })
            .last();
        if let Some(folder) = outermost {
            installed.entry(folder).or_default().add_file(bytes);
        }
    }
    let mut warnings = Vec::new();
    if !installed.is_empty() {
        let mut folders: Vec<(RelPath, Size)> = installed.into_iter().collect();
        folders.sort_by_key(|(_, size)| std::cmp::Reverse(size.bytes));
        let names = folders
            .iter()
            .map(|(path, size)| format!("`{path}` ({size})"));
        warnings.push(WarningReport::new(
            "bundle_installed",
            format!(
                "the bundle contains files installed or compiled for one machine: {}; if not \
                 intended, list them in .bundleignore",
                join_first(names, NAMES_MAX)
            ),
        ));
    }
    if total.bytes > WARN_FROM_BYTES {
        let mut largest: Vec<(&RelPath, u64)> = overlay.files().collect();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let names = largest.iter().map(|(path, bytes)| {
            let size = format_bytes(*bytes);
            format!("`{path}` ({size})")
        });
        warnings.push(WarningReport::new(
            "bundle_large",
            format!("the largest of {total}: {}", join_first(names, NAMES_MAX)),
        ));
    }
    warnings
}

impl Size {
    fn add_file(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.files == 1 { "" } else { "s" };
        let bytes = format_bytes(self.bytes);
        write!(formatter, "{} file{plural}, {bytes}", self.files)
    }
}

fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
