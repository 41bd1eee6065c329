//! What a list of Python requirements names besides packages: other lists of the bundle, by `-r` and
//! `-c`. They go into the preparation run with it, and into the key of its layer.

use spec::path::{RelPath, escape};

/// The options that name another list (pip's requirements file format).
const OPTIONS: [&str; 4] = ["-r", "-c", "--requirement", "--constraint"];

/// Why a list cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementsError {
    /// A URL: nobody vouches for what it is when the layer is made again.
    #[error("names the list {0}; expected a file of the bundle")]
    Url(String),
    /// A path that leaves the bundle, or none at all.
    #[error("names the list {0}, which is not a path inside of the bundle")]
    Outside(String),
}

/// The lists that `text` names, where `text` is the content of the file `path` of a bundle. What is
/// no list's name is pip's to judge.
///
/// # Errors
/// [`RequirementsError`], for the first that is no file of a bundle.
pub(crate) fn named_lists(path: &RelPath, text: &[u8]) -> Result<Vec<RelPath>, RequirementsError> {
    let text = String::from_utf8_lossy(text)
        .replace("\\\r\n", "")
        .replace("\\\n", "");
    let names = text.lines().filter_map(named);
    names.map(|name| inside(path, name)).collect()
}

/// What the line names as a list.
fn named(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = line.find(" #").map_or(line, |comment| &line[..comment]);
    let rest = OPTIONS.into_iter().find_map(|option| {
        let rest = line.strip_prefix(option)?;
        let is_whole = rest.starts_with(['=', ' ', '\t']);
        // `-rFILE` is one too, `--requirementFILE` is none.
        (is_whole || !option.starts_with("--")).then_some(rest)
    })?;
    let name = rest.trim_start_matches(['=', ' ', '\t']).trim_end();
    let quoted = |quote: char| name.strip_prefix(quote)?.strip_suffix(quote);
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(name))
}

/// `name`, which is relative to the directory of the list that names it.
fn inside(list: &RelPath, name: &str) -> Result<RelPath, RequirementsError> {
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
        let named = named_lists(&path, text.as_bytes())?;
        Ok(named.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn other_lists_are_found_in_every_spelling_and_packages_are_not_lists() {
        for (text, expected) in [
            ("greeting==1.0\n# -r a.txt\n", &[][..]),
            ("-r a.txt\n", &["a.txt"]),
            ("-ra.txt", &["a.txt"]),
            ("  -c  'a b.txt' # why\r\n", &["a b.txt"]),
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
