//! Warns of arguments that name host files which are not mounted: the command itself would only
//! report "no such file".

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::run::planning::programs::lookup::{is_in_base_view, normalize};
use sandbox::view::check_target;
use spec::path::{escape, quoted};
use spec::report::WarningReport;
use spec::request::ViewEntry;

/// Warning code in a plan, and in a run that failed: an argument may be a file name by chance.
pub(in crate::run) const ARGUMENT_NOT_VISIBLE: &str = "argument_not_visible";

/// Longer arguments are not paths.
const PATH_BYTES_MAX: usize = 4_096;

/// The context of the arguments.
pub(in crate::run::planning) struct Caller<'run> {
    /// The caller's directory; `None` if it is unknown or if the command starts in another one, so
    /// that relative arguments mean another path.
    pub(in crate::run::planning) directory: Option<&'run Path>,
    /// Whether the command needs `-w` to start in the caller's directory.
    pub(in crate::run) is_image: bool,
    /// Whether `directory` is a home, which is never suggested as a whole.
    pub(in crate::run::planning) is_home: bool,
    /// Whether the command sees this path of the host.
    pub(in crate::run::planning) is_visible: &'run dyn Fn(&Path) -> bool,
}

/// The warning for the first such argument.
pub(in crate::run::planning) fn warning(
    words: &[Vec<u8>],
    caller: &Caller<'_>,
) -> Option<WarningReport> {
    let message = words.iter().skip(1).find_map(|word| caller.message(word))?;
    Some(WarningReport::new(ARGUMENT_NOT_VISIBLE, message))
}

impl Caller<'_> {
    fn message(&self, word: &[u8]) -> Option<String> {
        if matches!(word, [] | [b'-', ..]) || word.len() > PATH_BYTES_MAX || word.contains(&0) {
            return None;
        }
        let written = Path::new(OsStr::from_bytes(word));
        let path = match self.directory {
            Some(directory) => normalize(&directory.join(written)),
            None if written.is_absolute() => normalize(written),
            None => return None,
        };
        let is_visible = is_in_base_view(&path) || (self.is_visible)(&path);
        if is_visible || path.symlink_metadata().is_err() {
            return None;
        }
        let shown = escape(word);
        let directory = self.directory.filter(|_| !written.is_absolute());
        Some(match directory {
            Some(directory) if path.starts_with(directory) => format!(
                "`{shown}` is in this directory, which the command does not see; add {}",
                self.flags(directory, &path, &shown)?
            ),
            Some(_) => {
                let path = mountable(&path)?;
                format!(
                    "`{shown}` exists, but the command does not see it; add --ro {path} and name \
                     it by that path"
                )
            }
            None => {
                let path = mountable(&path)?;
                format!("`{shown}` exists, but the command does not see it; add --ro {path}")
            }
        })
    }

    /// Suggests the whole directory, since a script may need the files beside it; for a home, or a
    /// directory that cannot be mounted, only the file.
    fn flags(&self, directory: &Path, path: &Path, shown: &str) -> Option<String> {
        if mountable(directory).is_some() && !self.is_home {
            let flags = if self.is_image {
                "--ro . -w ."
            } else {
                "--ro ."
            };
            return Some(flags.to_owned());
        }
        if self.is_image || directory == Path::new("/") {
            return None;
        }
        mountable(path).map(|_path| format!("--ro {}", quoted(shown)))
    }
}

/// The path as a shell word, if it can be mounted at the same place.
fn mountable(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    check_target(text.as_bytes())
        .is_ok()
        .then(|| quoted(&escape(text.as_bytes())))
}

/// Whether the caller mounts something below `directory` at the same path, so that a relative name
/// finds it.
pub(in crate::run::planning) fn mounts_part_of(directory: &Path, view: &[ViewEntry]) -> bool {
    let is_beneath = |entry: &ViewEntry| match entry {
        ViewEntry::Bind { source, target, .. } => source == target && target.starts_with(directory),
        ViewEntry::Tmpfs { .. } => false,
    };
    directory != Path::new("/") && view.iter().any(is_beneath)
}
