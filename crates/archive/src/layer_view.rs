//! Path resolution in the layers of an image: through the symbolic links of all layers up to this one,
//! never out of the root.
//!
//! Pure: no file system access. A layer needs to know which paths of the layers below are links, and
//! which directories have an explicit mode; overlayfs merges everything else.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::entry_rules::SEGMENTS_MAX;
use crate::error::Refusal;
use spec::path::{PATH_BYTES_MAX, RelPath, SEGMENT_BYTES_MAX};

/// Maximum number of links in the resolution of one path (MAXSYMLINKS of linux/namei.h).
pub(crate) const LINKS_MAX: usize = 40;
/// Maximum number of segments in the resolution of one path, including those of links.
const STEPS_MAX: usize = 4096;
/// The mode of a directory without an explicit mode.
pub(crate) const DIRECTORY_MODE: u32 = 0o755;
/// The header of the serialized form.
const HEADER: &[u8] = b"layer view 1\n";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    Link(Vec<u8>),
    Directory(u32),
}

/// The state of the lower layers that a layer needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayerView {
    known: BTreeMap<Vec<u8>, Known>,
}

impl LayerView {
    /// Resolves `path`: all links before the last segment are followed, and the last one too if
    /// `follows_last`. `..` in a link removes the preceding segment and has no effect at the root, as in
    /// a process with this root. `None` is the root itself.
    ///
    /// # Errors
    /// Too many links, or a path that is too long.
    pub fn resolve(&self, path: &RelPath, follows_last: bool) -> Result<Option<RelPath>, Refusal> {
        let mut resolved: Vec<u8> = Vec::with_capacity(path.as_bytes().len());
        // The remaining segments, the next one last.
        let mut pending: Vec<&[u8]> = path.segments().rev().collect();
        let (mut links, mut steps) = (0, 0);
        while let Some(segment) = pending.pop() {
            steps += 1;
            if steps > STEPS_MAX {
                return Err(too_long());
            }
            match segment {
                b"" | b"." => continue,
                b".." => {
                    let cut = resolved.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    resolved.truncate(cut);
                    continue;
                }
                _ if segment.len() > SEGMENT_BYTES_MAX => return Err(too_long()),
                _ => (),
            }
            let parent = resolved.len();
            if parent > 0 {
                resolved.push(b'/');
            }
            resolved.extend_from_slice(segment);
            let is_last = pending.is_empty();
            match self.known.get(&resolved) {
                Some(Known::Link(target)) if follows_last || !is_last => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Refusal::new(
                            "layer_path_links",
                            format!("its name leads through more than {LINKS_MAX} symlinks"),
                        ));
                    }
                    let is_absolute = target.first() == Some(&b'/');
                    resolved.truncate(if is_absolute { 0 } else { parent });
                    pending.extend(target.rsplit(|byte| *byte == b'/'));
                }
                _ => (),
            }
        }
        if resolved.is_empty() {
            return Ok(None);
        }
        let path = RelPath::parse(&resolved).map_err(|_long| too_long())?;
        if path.segments().count() > SEGMENTS_MAX {
            return Err(too_long());
        }
        Ok(Some(path))
    }

    /// The target of the link at `path`; `None` if no link is known there.
    #[must_use]
    pub fn link(&self, path: &RelPath) -> Option<&[u8]> {
        match self.known.get(path.as_bytes()) {
            Some(Known::Link(target)) => Some(target),
            _ => None,
        }
    }

    /// The mode of an existing or future directory at `path`.
    #[must_use]
    pub fn directory_mode(&self, path: &RelPath) -> u32 {
        match self.known.get(path.as_bytes()) {
            Some(Known::Directory(mode)) => *mode,
            _ => DIRECTORY_MODE,
        }
    }

    /// Records a link at `path`, which replaces everything at or beneath it.
    pub(crate) fn add_link(&mut self, path: &RelPath, target: Vec<u8>) {
        self.remove(path);
        let key = path.as_bytes().to_vec();
        self.known.insert(key, Known::Link(target));
    }

    /// Records a directory at `path`; entries beneath an existing directory stay.
    pub(crate) fn add_directory(&mut self, path: &RelPath, mode: u32) {
        match mode {
            DIRECTORY_MODE => drop(self.known.remove(path.as_bytes())),
            _ => {
                let key = path.as_bytes().to_vec();
                self.known.insert(key, Known::Directory(mode));
            }
        }
    }

    /// Removes everything at or beneath `path`.
    pub(crate) fn remove(&mut self, path: &RelPath) {
        self.known.remove(path.as_bytes());
        self.retain_below(Some(path), |_| false);
    }

    /// Removes everything beneath `path` (`None` is the root) for which `keep` returns false.
    pub(crate) fn retain_below(&mut self, path: Option<&RelPath>, keep: impl Fn(&[u8]) -> bool) {
        let Some(path) = path else {
            self.known.retain(|key, _| keep(key));
            return;
        };
        let removed: Vec<Vec<u8>> = beneath(&self.known, path.as_bytes())
            .filter(|(key, _)| !keep(key))
            .map(|(key, _)| key.clone())
            .collect();
        for key in removed {
            self.known.remove(&key);
        }
    }

    /// Serializes the view for [`Self::read`].
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = HEADER.to_vec();
        for (path, known) in &self.known {
            // Paths and targets contain no NUL byte.
            bytes.extend_from_slice(path);
            match known {
                Known::Link(target) => {
                    bytes.extend_from_slice(b"\0l");
                    bytes.extend_from_slice(target);
                }
                Known::Directory(mode) => {
                    bytes.extend_from_slice(format!("\0d{mode:o}").as_bytes());
                }
            }
            bytes.push(0);
        }
        bytes
    }

    /// Parses the output of [`Self::write`]; `None` for other input.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.strip_prefix(HEADER)?.split(|byte| *byte == 0);
        let mut known = BTreeMap::new();
        loop {
            let path = fields.next()?;
            if path.is_empty() {
                return fields.next().is_none().then_some(Self { known });
            }
            let path = RelPath::parse(path).ok()?;
            let entry = match fields.next()?.split_first()? {
                (b'l', target) if !target.is_empty() => Known::Link(target.to_vec()),
                (b'd', mode) => {
                    let mode = std::str::from_utf8(mode).ok()?;
                    Known::Directory(u32::from_str_radix(mode, 8).ok()? & 0o1777)
                }
                _ => return None,
            };
            known.insert(path.as_bytes().to_vec(), entry);
        }
    }
}

/// The entries beneath `path` in a map by path, in order.
pub(crate) fn beneath<'map, V>(
    map: &'map BTreeMap<Vec<u8>, V>,
    path: &[u8],
) -> impl Iterator<Item = (&'map Vec<u8>, &'map V)> + use<'map, V> {
    let first = [path, b"/"].concat();
    // The byte after `/`: all paths beneath sort before it.
    let end = [path, b"0"].concat();
    map.range((Bound::Excluded(first), Bound::Excluded(end)))
}

fn too_long() -> Refusal {
    Refusal::new(
        "path_too_long",
        format!(
            "its name leads to a path that is longer than {PATH_BYTES_MAX} bytes, has more than \
             {SEGMENTS_MAX} segments, or one that is longer than {SEGMENT_BYTES_MAX} bytes"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    fn view(links: &[(&str, &str)]) -> LayerView {
        let mut view = LayerView::default();
        for (link, target) in links {
            view.add_link(&path(link), target.as_bytes().to_vec());
        }
        view
    }

    fn resolved(view: &LayerView, from: &str, follows_last: bool) -> String {
        match view.resolve(&path(from), follows_last) {
            Ok(Some(to)) => to.to_string(),
            Ok(None) => "/".to_owned(),
            Err(error) => error.code().to_owned(),
        }
    }

    #[test]
    fn links_are_followed_and_never_lead_out_of_the_root() {
        let view = view(&[
            ("lib", "usr/lib"),
            ("usr/lib64", "lib"),
            ("abs", "/usr/share/"),
            ("up", "../../../etc"),
            ("usr/up", ".."),
            ("a/b/l", "../c/./d//e"),
            ("usr/lib/x", "/lib/y"),
            ("loop", "loop/a"),
            ("one", "two"),
            ("two", "one"),
            ("root", "/"),
            ("dots", "a/../../lib"),
        ]);
        for (from, to) in [
            ("lib/x/z", "usr/lib/y/z"),
            ("usr/lib64/f", "usr/lib/f"),
            ("abs/f", "usr/share/f"),
            ("up/passwd", "etc/passwd"),
            ("usr/up/f", "f"),
            ("a/b/l/f", "a/c/d/e/f"),
            ("loop/f", "layer_path_links"),
            ("one/f", "layer_path_links"),
            ("root/f", "f"),
            ("dots/f", "usr/lib/f"),
            ("lib", "lib"),
            ("one", "one"),
            ("none/f", "none/f"),
        ] {
            assert_eq!(resolved(&view, from, false), to, "{from}");
        }
        for (from, to) in [
            ("lib", "usr/lib"),
            ("root", "/"),
            ("usr/up", "/"),
            ("two", "layer_path_links"),
        ] {
            assert_eq!(resolved(&view, from, true), to, "{from}");
        }
    }

    #[test]
    fn removed_and_replaced_entries_are_forgotten() {
        let mut view = view(&[("a/l", "x"), ("a/b/l", "x"), ("a0/l", "x"), ("a-/l", "x")]);
        view.add_directory(&path("a/b"), 0o700);
        assert_eq!(view.directory_mode(&path("a/b")), 0o700);
        view.retain_below(Some(&path("a")), |_| false);
        assert_eq!(view.directory_mode(&path("a/b")), 0o755);
        assert_eq!(resolved(&view, "a/l/f", false), "a/l/f");
        assert_eq!(resolved(&view, "a0/l/f", false), "a0/x/f");
        assert_eq!(resolved(&view, "a-/l/f", false), "a-/x/f");
        view.add_directory(&path("a0/l"), 0o755);
        assert_eq!(resolved(&view, "a0/l/f", false), "a0/l/f");
        view.retain_below(None, |_| false);
        assert_eq!(view, LayerView::default());
    }

    #[test]
    fn paths_that_become_too_long_are_refused() {
        let long = "a/".repeat(2_000);
        let view = view(&[
            ("l", &long),
            ("n", &"b".repeat(300)),
            ("d", &"c/".repeat(200)),
        ]);
        for from in ["l/f", "n/f", "d/f"] {
            assert_eq!(resolved(&view, from, false), "path_too_long", "{from}");
        }
        let mut circle = LayerView::default();
        circle.add_link(&path("x"), [b"y/../".repeat(800), b"x".to_vec()].concat());
        assert_eq!(resolved(&circle, "x/f", false), "path_too_long");
    }

    proptest! {
        #[test]
        fn no_path_leads_out_or_through_a_link(
            links in proptest::collection::vec(("[ab]{1,2}(/[ab]{1,2}){0,2}", "/?([ab.]{1,2}/){0,4}[ab.]{1,2}"), 0..12),
            from in "[ab]{1,2}(/[ab]{1,2}){0,3}",
            follows: bool,
        ) {
            let mut view = LayerView::default();
            for (link, target) in &links {
                view.add_link(&path(link), target.clone().into_bytes());
            }
            if let Ok(Some(to)) = view.resolve(&path(&from), follows) {
                let mut above = to.parent();
                while let Some(parent) = above {
                    prop_assert!(view.link(&parent).is_none(), "{to} is behind {parent}");
                    above = parent.parent();
                }
                prop_assert!(!follows || view.link(&to).is_none());
                prop_assert_eq!(view.resolve(&to, follows), Ok(Some(to)));
            }
            let written = view.write();
            prop_assert_eq!(LayerView::read(&written), Some(view));
        }
    }
}
