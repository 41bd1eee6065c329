//! Finds the lists that a list of Python requirements includes with `-r` and `-c`. They become inputs
//! of the preparation run and part of the key of its layer.

use spec::parse_permit::ParsePermit;
use spec::path::{RelPath, escape};

/// The options that name another list (pip's requirements file format).
const OPTIONS: [&str; 4] = ["-r", "-c", "--requirement", "--constraint"];

/// Why an included list is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementsError {
    /// A URL: its content may change before the layer is made again.
    #[error("names the list {0}; expected a file of the bundle")]
    Url(String),
    /// A path that leaves the bundle, or no path.
    #[error("names the list {0}, which is not a path inside of the bundle")]
    Outside(String),
}

/// The names of the lists that a list with content `text` includes. All other lines are left to pip.
pub(crate) fn included_names(_permit: &ParsePermit, text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text)
        .replace("\\\r\n", "")
        .replace("\\\n", "");
    text.lines().filter_map(named).map(str::to_owned).collect()
}

/// The list that the line includes.
fn named(line: &str) -> Option<&str> {
    let line = line.trim();
    let is_comment = |at: &usize| line[..*at].ends_with(char::is_whitespace);
    let comment = line.match_indices('#').map(|(at, _)| at).find(is_comment);
    let line = &line[..comment.unwrap_or(line.len())];
    let rest = OPTIONS.into_iter().find_map(|option| {
        let rest = line.strip_prefix(option)?;
        let is_whole = rest.starts_with(['=', ' ', '\t']);
        // `-rFILE` is valid, `--requirementFILE` is not.
        (is_whole || !option.starts_with("--")).then_some(rest)
    })?;
    let name = rest.trim_start_matches(['=', ' ', '\t']).trim_end();
    let quoted = |quote: char| name.strip_prefix(quote)?.strip_suffix(quote);
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(name))
}

/// Resolves a name in the list at the path `list` of a bundle.
///
/// # Errors
/// [`RequirementsError`]: it is not a path in the bundle.
pub(crate) fn resolve_included(list: &RelPath, name: &str) -> Result<RelPath, RequirementsError> {
    let shown = || escape(name.as_bytes());
    if name.contains("://") || name.starts_with("file:") {
        return Err(RequirementsError::Url(shown()));
    }
    let outside = || RequirementsError::Outside(shown());
    if name.starts_with('/') {
        return Err(outside());
    }
    let parent = list.parent();
    let mut segments: Vec<&[u8]> = parent.iter().flat_map(RelPath::segments).collect();
    for segment in name.split('/') {
        match segment {
            "" | "." => (),
            ".." => {
                segments.pop().ok_or_else(outside)?;
            }
            other => segments.push(other.as_bytes()),
        }
    }
    RelPath::parse(&segments.join(&b'/')).map_err(|_no_path| outside())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(path: &str, text: &str) -> Result<Vec<String>, RequirementsError> {
        let path = RelPath::parse(path.as_bytes()).expect("a path");
        let names = included_names(&ParsePermit::for_trusted_text(), text.as_bytes());
        let paths = names.iter().map(|name| resolve_included(&path, name));
        paths.map(|path| Ok(path?.to_string())).collect()
    }

    #[test]
    fn other_lists_are_found_in_every_spelling_and_packages_are_not_lists() {
        for (text, expected) in [
            ("greeting==1.0\n# -r a.txt\n", &[][..]),
            ("-r a.txt\n", &["a.txt"]),
            ("-ra.txt", &["a.txt"]),
            ("  -c  'a b.txt' # why\r\n", &["a b.txt"]),
            ("-r a#1.txt\t# why", &["a#1.txt"]),
            (
                "--requirement=a.txt\n--constraint \"b.txt\"",
                &["a.txt", "b.txt"],
            ),
            ("-r \\\n  lists/../a.txt", &["a.txt"]),
            ("--require-hashes\nrequests -c\n", &[]),
            ("--requirements-are-none x", &[]),
        ] {
            let found = lists("requirements.txt", text).expect(text);
            assert_eq!(found, expected, "{text:?}");
        }
        let found = lists("lists/main.txt", "-r more.txt\n-r ./../base.txt");
        assert_eq!(found.expect("inside"), ["lists/more.txt", "base.txt"]);
    }

    #[test]
    fn a_list_that_is_no_file_of_the_bundle_is_refused() {
        for name in ["/etc/passwd", "../a.txt", "a/../../b", ".", ""] {
            let found = lists("requirements.txt", &format!("-r {name}\n"));
            assert_eq!(found, Err(RequirementsError::Outside(name.to_owned())));
        }
        for name in ["https://index.example.org/a.txt", "file:a.txt"] {
            let found = lists("requirements.txt", &format!("-c {name}\n"));
            assert_eq!(found, Err(RequirementsError::Url(name.to_owned())));
        }
    }
}
