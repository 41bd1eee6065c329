//! Maps the paths of an archive to paths of the target directory.

use crate::error::{Refusal, shown};
use spec::path::RelPath;

#[derive(Debug)]
pub(crate) enum PathMapping {
    Unchanged,
    /// The single top folder is stripped; a folder below it may become the root.
    BelowTopFolder(FolderSearch),
}

/// The requested folder of an archive, and the state of its search.
#[derive(Debug)]
pub(crate) struct FolderSearch {
    /// Below the top folder; `None` is the whole top folder.
    requested: Option<RelPath>,
    top: Option<Vec<u8>>,
    is_found: bool,
    instead: Option<&'static str>,
}

impl PathMapping {
    pub(crate) fn below_top_folder(requested: Option<RelPath>) -> Self {
        Self::BelowTopFolder(FolderSearch {
            is_found: requested.is_none(),
            requested,
            top: None,
            instead: None,
        })
    }

    /// The destination of an entry; `None` if it is skipped or is the root itself. A second top folder is
    /// refused.
    pub(crate) fn map_entry(
        &mut self,
        path: Option<RelPath>,
        kind: &'static str,
    ) -> Result<Option<RelPath>, Refusal> {
        let (Self::BelowTopFolder(search), Some(path)) = (&mut *self, &path) else {
            return Ok(path);
        };
        let top = path.segments().next().unwrap_or_default();
        let is_top = path.as_bytes() == top;
        let first = search.top.get_or_insert_with(|| top.to_vec());
        if first != top || (is_top && kind != "a directory") {
            let top = shown(first);
            return Err(Refusal::new(
                "second_top_folder",
                format!("it lies outside of `{top}`, the one top folder of the entries before it"),
            ));
        }
        let Some(inside) = relative_to(path.as_bytes(), top) else {
            return Ok(None);
        };
        let Some(requested) = &search.requested else {
            return Ok(Some(inside));
        };
        if inside == *requested {
            match kind {
                "a directory" => search.is_found = true,
                other => search.instead = Some(other),
            }
            return Ok(None);
        }
        let below = relative_to(inside.as_bytes(), requested.as_bytes());
        search.is_found |= below.is_some();
        Ok(below)
    }

    /// The destination of a hard link's target, which is refused if it is not unpacked.
    pub(crate) fn map_link_target(&self, target: RelPath) -> Result<RelPath, Refusal> {
        let Self::BelowTopFolder(search) = self else {
            return Ok(target);
        };
        let top = search.top.as_deref().unwrap_or_default();
        relative_to(target.as_bytes(), top)
            .and_then(|inside| match &search.requested {
                Some(requested) => relative_to(inside.as_bytes(), requested.as_bytes()),
                None => Some(inside),
            })
            .ok_or_else(|| Refusal::hard_link_missing(target.as_bytes()))
    }

    /// What the archive contains instead of the requested folder; `None` if it has the folder.
    pub(crate) fn found_instead(&self) -> Option<&'static str> {
        match self {
            Self::BelowTopFolder(search) if !search.is_found => {
                Some(search.instead.unwrap_or("nothing"))
            }
            Self::Unchanged | Self::BelowTopFolder(_) => None,
        }
    }
}

/// `path` relative to `folder`; `None` if it is not below it.
pub(crate) fn relative_to(path: &[u8], folder: &[u8]) -> Option<RelPath> {
    let rest = path.strip_prefix(folder)?.strip_prefix(b"/")?;
    RelPath::parse(rest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    fn map(mapping: &mut PathMapping, name: &str, kind: &'static str) -> Option<String> {
        mapping
            .map_entry(Some(path(name)), kind)
            .expect("one top folder")
            .map(|path| path.to_string())
    }

    #[test]
    fn the_one_top_folder_is_stripped_and_a_second_one_is_refused() {
        let mut all = PathMapping::below_top_folder(None);
        assert_eq!(map(&mut all, "o-r-1", "a directory"), None);
        assert_eq!(map(&mut all, "o-r-1/a/b", "a file").as_deref(), Some("a/b"));
        assert_eq!(all.found_instead(), None);
        for (name, kind) in [
            ("o-r-12/a", "a file"),
            ("other", "a directory"),
            ("o-r-1", "a file"),
        ] {
            let refusal = all.map_entry(Some(path(name)), kind).expect_err("refused");
            assert_eq!(refusal.code(), "second_top_folder", "{name}");
        }
    }

    #[test]
    fn only_entries_below_the_folder_are_mapped() {
        let mut part = PathMapping::below_top_folder(Some(path("lib/core")));
        for (name, kind, mapped) in [
            ("t/lib", "a directory", None),
            ("t/lib/core", "a directory", None),
            ("t/lib/core/x", "a file", Some("x")),
            ("t/lib/core2/x", "a file", None),
            ("t/x", "a symlink", None),
            ("t/lib/core/d/y", "a file", Some("d/y")),
        ] {
            assert_eq!(map(&mut part, name, kind).as_deref(), mapped, "{name}");
        }
        assert_eq!(part.found_instead(), None);
        assert_eq!(part.map_link_target(path("t/lib/core/x")), Ok(path("x")));
        assert!(part.map_link_target(path("t/x")).is_err());
    }

    #[test]
    fn the_entry_found_instead_of_the_folder_is_reported() {
        let mut missing = PathMapping::below_top_folder(Some(path("lib")));
        assert_eq!(map(&mut missing, "t/library", "a directory"), None);
        assert_eq!(missing.found_instead(), Some("nothing"));
        assert_eq!(map(&mut missing, "t/lib", "a file"), None);
        assert_eq!(missing.found_instead(), Some("a file"));
    }
}
