//! Warns of arguments that name files of the host which the command does not see: the command
//! itself would only report "no such file".

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::run::program::{clean, is_visible_anyway};
use sandbox::view::check_target;
use spec::path::escape;
use spec::report::WarningReport;
use spec::request::ViewEntry;

/// Warning code of a plan and of a run that failed: an argument may be a file name by chance.
pub(super) const ARGUMENT_NOT_VISIBLE: &str = "argument_not_visible";

/// Longer arguments are not paths.
const PATH_BYTES_MAX: usize = 4_096;

/// Where the arguments were written, and what the command sees of that.
pub(super) struct Caller<'run> {
    /// The caller's directory; `None` if it is unknown or if the command starts in another one, so
    /// that relative arguments mean another path.
    pub here: Option<&'run Path>,
    /// Whether the command needs `-w` to start in the caller's directory.
    pub is_image: bool,
    /// The caller's home: never suggested as a whole.
    pub home: Option<&'run Path>,
    /// Whether the command sees this path of the host.
    pub is_seen: &'run dyn Fn(&Path) -> bool,
}

/// The warning for the first such argument.
pub(super) fn warning(words: &[Vec<u8>], caller: &Caller<'_>) -> Option<WarningReport> {
    let message = words.iter().skip(1).find_map(|word| caller.message(word))?;
    Some(WarningReport::new(ARGUMENT_NOT_VISIBLE, message))
}

impl Caller<'_> {
    fn message(&self, word: &[u8]) -> Option<String> {
        if matches!(word, [] | [b'-', ..]) || PATH_BYTES_MAX < word.len() || word.contains(&0) {
            return None;
        }
        let written = Path::new(OsStr::from_bytes(word));
        let path = match self.here {
            Some(here) => clean(&here.join(written)),
            None if written.is_absolute() => clean(written),
            None => return None,
        };
        let is_own = is_visible_anyway(&path) || (self.is_seen)(&path);
        if is_own || path.symlink_metadata().is_err() {
            return None;
        }
        let shown = escape(word);
        let here = self.here.filter(|_| !written.is_absolute());
        Some(match here {
            Some(here) if path.starts_with(here) => format!(
                "`{shown}` is in this directory, which the command does not see; add {}",
                self.flags(here, &path, &shown)?
            ),
            Some(_) => {
                let path = mountable(&path)?;
                format!(
                    "`{shown}` is there, and the command does not see it; add --ro {path} and name \
                     it by that path"
                )
            }
            None => {
                let path = mountable(&path)?;
                format!("`{shown}` is there, and the command does not see it; add --ro {path}")
            }
        })
    }

    /// Suggests the whole directory, since a script may need its neighbours; for a home, or a
    /// directory that cannot be mounted, only the file.
    fn flags(&self, here: &Path, path: &Path, shown: &str) -> Option<String> {
        let is_lendable = mountable(here).is_some() && self.home != Some(here);
        match (is_lendable, self.is_image) {
            (true, false) => Some("--ro .".to_owned()),
            (true, true) => Some("--ro . -w .".to_owned()),
            (false, false) if here != Path::new("/") => {
                mountable(path).map(|_path| format!("--ro {shown}"))
            }
            (false, _) => None,
        }
    }
}

/// The path, escaped, if it can be mounted at the same place.
fn mountable(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    check_target(text.as_bytes())
        .is_ok()
        .then(|| escape(text.as_bytes()))
}

/// Whether the caller mounts something below `here` at the same place: the command then finds it by
/// its name.
pub(super) fn lends_part_of(here: &Path, view: &[ViewEntry]) -> bool {
    let is_beneath = |entry: &ViewEntry| match entry {
        ViewEntry::Bind { source, target, .. } => source == target && target.starts_with(here),
        ViewEntry::Tmpfs { .. } => false,
    };
    here != Path::new("/") && view.iter().any(is_beneath)
}
