//! Destinations of the entries of an archive: unchanged, or relative to a folder of the archive.

use crate::error::{Refusal, shown};
use spec::path::RelPath;

/// The destination of the entries of an archive.
#[derive(Debug)]
pub(crate) enum Placing {
    /// The paths are unchanged.
    AsNamed,
    /// The single top folder is stripped; a folder below it may become the root.
    Below(Folder),
}

/// The requested folder of an archive, and the state of its search.
#[derive(Debug)]
pub(crate) struct Folder {
    wanted: Option<RelPath>,
    top: Option<Vec<u8>>,
    found: bool,
    instead: Option<&'static str>,
}

impl Placing {
    /// Strips the single top folder; `wanted` is a folder below it, `None` is the whole top folder.
    pub(crate) fn below(wanted: Option<RelPath>) -> Self {
        Self::Below(Folder {
            found: wanted.is_none(),
            wanted,
            top: None,
            instead: None,
        })
    }

    /// The destination of an entry; `None` if it is skipped or is the root itself.
    ///
    /// # Errors
    /// A second top folder.
    pub(crate) fn entry(
        &mut self,
        path: Option<RelPath>,
        kind: &'static str,
    ) -> Result<Option<RelPath>, Refusal> {
        let (Self::Below(folder), Some(path)) = (&mut *self, &path) else {
            return Ok(path);
        };
        let top = path.segments().next().unwrap_or_default();
        let is_alone = path.as_bytes() == top;
        let first = folder.top.get_or_insert_with(|| top.to_vec());
        if first != top || (is_alone && kind != "a directory") {
            let top = shown(first);
            return Err(Refusal::new(
                "second_top_folder",
                format!("it lies outside of `{top}`, the one top folder of the entries before it"),
            ));
        }
        let Some(inside) = without(path.as_bytes(), top) else {
            return Ok(None);
        };
        let Some(wanted) = &folder.wanted else {
            return Ok(Some(inside));
        };
        if inside == *wanted {
            match kind {
                "a directory" => folder.found = true,
                other => folder.instead = Some(other),
            }
            return Ok(None);
        }
        let below = without(inside.as_bytes(), wanted.as_bytes());
        folder.found |= below.is_some();
        Ok(below)
    }

    /// The destination of a hard link's target.
    ///
    /// # Errors
    /// The target is not unpacked.
    pub(crate) fn target(&self, target: RelPath) -> Result<RelPath, Refusal> {
        let Self::Below(folder) = self else {
            return Ok(target);
        };
        let top = folder.top.as_deref().unwrap_or_default();
        without(target.as_bytes(), top)
            .and_then(|inside| match &folder.wanted {
                Some(wanted) => without(inside.as_bytes(), wanted.as_bytes()),
                None => Some(inside),
            })
            .ok_or_else(|| Refusal::hard_link_missing(target.as_bytes()))
    }

    /// What the archive contains instead of the requested folder; `None` if it has the folder.
    pub(crate) fn instead(&self) -> Option<&'static str> {
        match self {
            Self::Below(folder) if !folder.found => Some(folder.instead.unwrap_or("nothing")),
            Self::AsNamed | Self::Below(_) => None,
        }
    }
}

/// `path` relative to `folder`; `None` if it is not below it.
fn without(path: &[u8], folder: &[u8]) -> Option<RelPath> {
    let rest = path.strip_prefix(folder)?.strip_prefix(b"/")?;
    RelPath::parse(rest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    fn place(placing: &mut Placing, name: &str, kind: &'static str) -> Option<String> {
        placing
            .entry(Some(path(name)), kind)
            .expect("one top folder")
            .map(|path| path.to_string())
    }

    #[test]
    fn the_one_top_folder_is_stripped_and_a_second_one_is_refused() {
        let mut all = Placing::below(None);
        assert_eq!(place(&mut all, "o-r-1", "a directory"), None);
        assert_eq!(
            place(&mut all, "o-r-1/a/b", "a file").as_deref(),
            Some("a/b")
        );
        assert_eq!(all.instead(), None);
        for (name, kind) in [
            ("o-r-12/a", "a file"),
            ("other", "a directory"),
            ("o-r-1", "a file"),
        ] {
            let refusal = all.entry(Some(path(name)), kind).expect_err("refused");
            assert_eq!(refusal.code(), "second_top_folder", "{name}");
        }
    }

    #[test]
    fn only_what_lies_below_the_folder_is_taken() {
        let mut part = Placing::below(Some(path("lib/core")));
        for (name, kind, placed) in [
            ("t/lib", "a directory", None),
            ("t/lib/core", "a directory", None),
            ("t/lib/core/x", "a file", Some("x")),
            ("t/lib/core2/x", "a file", None),
            ("t/x", "a symlink", None),
            ("t/lib/core/d/y", "a file", Some("d/y")),
        ] {
            assert_eq!(place(&mut part, name, kind).as_deref(), placed, "{name}");
        }
        assert_eq!(part.instead(), None);
        assert_eq!(part.target(path("t/lib/core/x")), Ok(path("x")));
        assert!(part.target(path("t/x")).is_err());
    }

    #[test]
    fn what_is_there_instead_of_the_folder_is_told() {
        let mut missing = Placing::below(Some(path("lib")));
        assert_eq!(place(&mut missing, "t/library", "a directory"), None);
        assert_eq!(missing.instead(), Some("nothing"));
        assert_eq!(place(&mut missing, "t/lib", "a file"), None);
        assert_eq!(missing.instead(), Some("a file"));
    }
}
