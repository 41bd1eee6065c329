//! Finds the missing package and the last lines in the log of a failed package client.

use serde::{Deserialize, Serialize};

use crate::plan::preparation::Kind;
use spec::parse_permit::ParsePermit;
use spec::path::escape;

/// Texts of ENOSPC.
const FULL: [&str; 2] = ["No space left on device", "ENOSPC"];
/// Lines of a log that are shown.
const LINES_MAX: usize = 20;
/// Bytes of a log that are shown.
const BYTES_MAX: usize = 4096;
/// Longer names are not shown: the limit of npm.
const NAME_BYTES_MAX: usize = 214;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The package that the index does not have, escaped.
    pub package: Option<String>,
    /// The last lines of the log, escaped.
    pub tail: Vec<String>,
    /// Whether the client says that the disk is full.
    pub says_full: bool,
}

impl Failure {
    /// Whether [`explain`] can return it.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let mut texts = self.tail.iter().chain(&self.package);
        self.tail.len() <= LINES_MAX
            && self.tail.iter().map(String::len).sum::<usize>() <= BYTES_MAX
            && texts.all(|text| text.len() <= BYTES_MAX && !text.contains(char::is_control))
    }
}

/// Reads the log of a failed client. The log is untrusted.
#[must_use]
pub fn explain(_permit: &ParsePermit, kind: Kind, log: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(log);
    let package = text.lines().find_map(|line| {
        let name = match kind {
            Kind::Native => of_apt(line),
            Kind::Npm => of_npm(line),
            Kind::Pip => of_pip(line),
        }?;
        let plain = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        plain.then(|| escape(name.as_bytes()))
    });
    let mut tail: Vec<String> = Vec::new();
    let mut bytes = 0;
    for line in text.lines().rev().filter(|line| !line.trim().is_empty()) {
        let line = escape(line.trim_end().as_bytes());
        bytes += line.len();
        if tail.len() == LINES_MAX || bytes > BYTES_MAX {
            break;
        }
        tail.push(line);
    }
    tail.reverse();
    Failure {
        package,
        tail,
        says_full: FULL.into_iter().any(|words| text.contains(words)),
    }
}

fn of_apt(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("E: ")?;
    if let Some(name) = rest.strip_prefix("Unable to locate package ") {
        return name.split_whitespace().next();
    }
    let name = rest.strip_prefix("Package '")?;
    let (name, rest) = name.split_once('\'')?;
    rest.contains("no installation candidate").then_some(name)
}

fn of_npm(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("npm ")?;
    let rest = rest
        .strip_prefix("error ")
        .or_else(|| rest.strip_prefix("ERR! "))?;
    if let Some((_, rest)) = rest.split_once("No matching version found for ") {
        return rest.split_whitespace().next().map(without_dot);
    }
    // `404  'name@range' is not in this registry.`
    let rest = rest.trim_start().strip_prefix("404")?;
    let (_, name) = rest.split_once('\'')?;
    let (name, rest) = name.split_once('\'')?;
    rest.contains("not in this registry")
        .then_some(name)
        .or_else(|| rest.contains("is not in the npm registry").then_some(name))
}

fn of_pip(line: &str) -> Option<&str> {
    let (_, name) = line.split_once("No matching distribution found for ")?;
    name.split_whitespace().next()
}

fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

    #[test]
    fn the_package_that_is_missing_is_named() {
        for (kind, line, package) in [
            (
                Kind::Native,
                "E: Unable to locate package nonesuch",
                Some("nonesuch"),
            ),
            (
                Kind::Native,
                "E: Package 'awk' has no installation candidate",
                Some("awk"),
            ),
            (Kind::Native, "E: Package 'x' is something else", None),
            (Kind::Native, "W: Unable to locate package nonesuch", None),
            (
                Kind::Npm,
                "npm error 404  'nonesuch@*' is not in this registry.",
                Some("nonesuch@*"),
            ),
            (
                Kind::Npm,
                "npm ERR! 404  'nonesuch@1' is not in the npm registry.",
                Some("nonesuch@1"),
            ),
            (
                Kind::Npm,
                "npm error notarget No matching version found for greeting@^9.0.0.",
                Some("greeting@^9.0.0"),
            ),
            (Kind::Npm, "npm error 404 Not Found - GET http://x/y", None),
            (Kind::Npm, "nothing", None),
            (
                Kind::Pip,
                "ERROR: No matching distribution found for nonesuch==1 (from x)",
                Some("nonesuch==1"),
            ),
            (
                Kind::Pip,
                "ERROR: No matching distribution found for ",
                None,
            ),
        ] {
            let log = format!("first\n{line}\nlast\n");
            let found = explain(&PERMIT, kind, log.as_bytes());
            assert_eq!(found.package.as_deref(), package, "{line}");
            assert_eq!(found.tail, ["first", line.trim_end(), "last"]);
            assert!(!found.says_full);
        }
        for line in [
            "cp: write error: No space left on device",
            "npm error code ENOSPC",
        ] {
            assert!(
                explain(&PERMIT, Kind::Npm, line.as_bytes()).says_full,
                "{line}"
            );
        }
    }

    #[test]
    fn only_the_end_of_a_log_is_shown_and_nothing_in_it_is_obeyed() {
        let mut log = b"begin\n".repeat(10_000);
        log.extend(b"\x1b[31mred\xff\r\n\n\n");
        let found = explain(&PERMIT, Kind::Npm, &log);
        assert_eq!(found.tail.len(), LINES_MAX);
        let last = found.tail.last().expect("a line");
        assert!(last.starts_with("\\x1b[31mred"), "{last}");
        let one_line = vec![b'x'; 1 << 20];
        assert_eq!(explain(&PERMIT, Kind::Pip, &one_line).tail.len(), 0);
        let name = "n".repeat(NAME_BYTES_MAX + 1);
        let log = format!("E: Unable to locate package {name}");
        assert_eq!(explain(&PERMIT, Kind::Native, log.as_bytes()).package, None);
    }
}
