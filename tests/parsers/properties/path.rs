//! Paths and how they are joined, compared with the standard library.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use archive::LayerView;
use spec::mount_target::MountTarget;
use spec::path::{PATH_BYTES_MAX, RelPath, SEGMENT_BYTES_MAX, escape};
use spec::run_form::bundle_path;

/// Lines: the first two are paths to join, the others are links: a path and its target.
pub(crate) fn check(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let (one, other) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    check_escaped(one);
    let first = check_one(one);
    let second = check_one(other);
    if let (Some(first), Some(second)) = (&first, &second) {
        check_joined(first, second);
    }
    if let Ok(text) = std::str::from_utf8(one) {
        check_named(text, first.as_ref());
    }
    let links: Vec<(&[u8], &[u8])> = lines
        .filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b' ')?;
            Some((&line[..at], &line[at + 1..]))
        })
        .collect();
    for path in first.iter().chain(&second) {
        check_led(path, &links);
    }
}

/// An accepted path has only names, and is the same path to the standard library.
fn check_one(bytes: &[u8]) -> Option<RelPath> {
    let path = Path::new(OsStr::from_bytes(bytes));
    let names_only = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    // The standard library ignores redundant parts: `a//b`, `a/./b`, `a/`.
    let rejoined: Vec<&[u8]> = path.iter().map(OsStr::as_bytes).collect();
    let fits = bytes.len() <= PATH_BYTES_MAX
        && rejoined
            .iter()
            .all(|segment| segment.len() <= SEGMENT_BYTES_MAX);
    let expected = names_only
        && !bytes.is_empty()
        && !bytes.contains(&0)
        && rejoined.join(&b'/') == bytes
        && fits;
    let parsed = RelPath::parse(bytes).ok();
    assert_eq!(parsed.is_some(), expected, "{}", bytes.escape_ascii());
    let parsed = parsed?;
    assert_eq!(parsed.as_bytes(), bytes);
    assert!(parsed.segments().eq(rejoined.iter().copied()));
    assert_eq!(
        Some(parsed.file_name()),
        path.file_name().map(OsStr::as_bytes)
    );
    let above = path.parent().map(|parent| parent.as_os_str().as_bytes());
    let ours = parsed.parent();
    assert_eq!(
        ours.as_ref().map_or(&b""[..], RelPath::as_bytes),
        above.unwrap_or_default()
    );
    Some(parsed)
}

/// A joined path is below the first one, at the second one.
fn check_joined(first: &RelPath, second: &RelPath) {
    let length = first.as_bytes().len() + 1 + second.as_bytes().len();
    let joined = first.join(second);
    assert_eq!(joined.is_ok(), length <= PATH_BYTES_MAX);
    let Ok(joined) = joined else {
        return;
    };
    let expected =
        Path::new(OsStr::from_bytes(first.as_bytes())).join(OsStr::from_bytes(second.as_bytes()));
    assert_eq!(joined.as_bytes(), expected.as_os_str().as_bytes());
    assert!(
        joined
            .segments()
            .eq(first.segments().chain(second.segments()))
    );
    assert_eq!(RelPath::parse(joined.as_bytes()).as_ref(), Ok(&joined));
}

/// The printed form has no control characters, and differs for different bytes.
fn check_escaped(bytes: &[u8]) {
    let text = escape(bytes);
    assert!(!text.contains(char::is_control));
    let turned = |one: char| matches!(one, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!text.contains(turned));
    if text.as_bytes() != bytes {
        assert_ne!(escape(text.as_bytes()), text, "two texts that look alike");
    }
}

fn check_named(text: &str, plain: Option<&RelPath>) {
    let inside = text.strip_prefix("./").unwrap_or(text);
    let in_bundle = bundle_path(text).ok();
    assert_eq!(in_bundle, RelPath::parse(inside.as_bytes()).ok());
    assert!(plain.is_none() || in_bundle.is_some());
    if let Ok(target) = MountTarget::parse(text) {
        assert_eq!(target.as_str(), text);
        let names = Path::new(text)
            .components()
            .filter(|part| *part != Component::RootDir);
        assert_eq!(target.depth(), names.clone().count());
        assert!(
            names
                .into_iter()
                .all(|part| matches!(part, Component::Normal(_)))
        );
        for taken in ["/proc", "/dev", "/sys", "/usr", "/bin", "/etc/passwd"] {
            assert!(text != taken, "{taken}");
        }
    }
}

/// A resolved path contains no link, and resolves to itself.
fn check_led(path: &RelPath, links: &[(&[u8], &[u8])]) {
    let mut written = LayerView::default().write();
    let end = written.split_off(written.len() - 1);
    for (link, target) in links {
        written.extend_from_slice(&[link, &b"\0l"[..], target, b"\0"].concat());
    }
    written.extend_from_slice(&end);
    let Some(view) = LayerView::read(&written) else {
        return;
    };
    let Ok(Some(led)) = view.resolve(path, true) else {
        return;
    };
    let mut above = Some(led.clone());
    while let Some(here) = above {
        assert!(view.link(&here).is_none(), "{here}: a link on the way");
        above = here.parent();
    }
    assert_eq!(view.resolve(&led, true), Ok(Some(led)));
}
