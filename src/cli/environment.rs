//! Resolves `-e`, `--env-file` and `--secret` to names and values.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::cli::args::EnvironmentFlags;
use crate::cli::config::{check_kind, open, read_small};
use crate::cli::context::ProcessContext;
use spec::path::escape;
use spec::request::{EnvironmentEntry, GivenSecret};
use spec::secret::Secret;

/// Longest `NAME=VALUE` with its NUL that execve(2) accepts: MAX_ARG_STRLEN, 32 pages of 4 KiB.
const ENTRY_BYTES_MAX: usize = 131_072;

/// An invalid variable or secret. Names are escaped; `place` is the flag, or file and line. The text
/// never contains a value.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("{place}: `{name}` is not a name of a variable: {cause}")]
    Name {
        place: String,
        name: String,
        cause: &'static str,
    },
    #[error("{place}: the value of `{name}` {cause}")]
    Value {
        place: String,
        name: String,
        cause: &'static str,
    },
    #[error("--env {name}: the variable is not set in the environment of runner")]
    NotSet { name: String },
    #[error("{file}:{line}: expected NAME=VALUE, a comment line or an empty line")]
    Line {
        file: String,
        /// Counted from 1.
        line: usize,
    },
    #[error("{flag} cannot read {file}")]
    Unreadable {
        flag: &'static str,
        file: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{flag}: {file} is larger than 1 MiB")]
    TooLarge { flag: &'static str, file: String },
    /// The text may be the secret itself.
    #[error("--secret: expected NAME=REFERENCE, with env:VAR or file:PATH as reference")]
    NoReference,
    #[error("--secret {name}: expected NAME=env:VAR or NAME=file:PATH")]
    Reference { name: String },
    #[error("--secret {name}: `{variable}` is not set in the environment of runner")]
    SecretNotSet { name: String, variable: String },
}

/// The variables of `--env-file` in order, then those of `-e`.
///
/// # Errors
/// The first entry that is not a valid variable, or a file that cannot be read.
pub fn resolve(
    flags: &EnvironmentFlags,
    context: &ProcessContext,
) -> Result<Vec<EnvironmentEntry>, EnvironmentError> {
    let mut entries = Vec::new();
    for file in &flags.env_file {
        let bytes = read_file("--env-file", file)?;
        entries.extend(parse_env_file(&escaped(file.as_os_str()), &bytes)?);
    }
    for entry in &flags.env {
        let (name, value) = split(entry);
        check(|| "--env".to_owned(), name, value.unwrap_or_default())?;
        let value = match value {
            Some(value) => value,
            None => context
                .variables
                .get(OsStr::from_bytes(name))
                .ok_or_else(|| EnvironmentError::NotSet { name: escape(name) })?
                .as_bytes(),
        };
        entries.push((name.to_vec(), value.to_vec()));
    }
    Ok(entries)
}

/// What to do with the values of `--secret`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecretValues {
    Read,
    /// Check that each variable is set and each file has a value, and leave the values empty.
    CheckOnly,
}

/// The secrets of `--secret`.
///
/// # Errors
/// The first reference that is malformed or cannot be resolved.
pub(crate) fn resolve_secrets(
    flags: &EnvironmentFlags,
    values: SecretValues,
    context: &ProcessContext,
) -> Result<Vec<GivenSecret>, EnvironmentError> {
    let resolve = |entry: &OsString| resolve_secret(entry, values, context);
    flags.secret.iter().map(resolve).collect()
}

fn resolve_secret(
    entry: &OsStr,
    values: SecretValues,
    context: &ProcessContext,
) -> Result<GivenSecret, EnvironmentError> {
    let (name, reference) = match split(entry) {
        // `=` at the end may be the padding of a secret in base64.
        (_, None | Some(b"" | b"=")) => return Err(EnvironmentError::NoReference),
        (name, Some(reference)) => (name, reference),
    };
    let mut value = Vec::new();
    if let Some(variable) = reference.strip_prefix(b"env:") {
        let found = context
            .variables
            .get(OsStr::from_bytes(variable))
            .ok_or_else(|| EnvironmentError::SecretNotSet {
                name: escape(name),
                variable: escape(variable),
            })?;
        if values == SecretValues::Read {
            value = found.as_bytes().to_vec();
        }
    } else if let Some(path) = reference.strip_prefix(b"file:") {
        let path = Path::new(OsStr::from_bytes(path));
        // What is read from a pipe cannot be read again.
        if values == SecretValues::Read || path.is_file() {
            value = read_file("--secret", path)?;
            // Most files with one secret end with a newline that is not part of it.
            if value.last() == Some(&b'\n') {
                value.pop();
            }
        } else {
            let readable = check_kind(path)
                .and_then(|()| Ok(rustix::fs::access(path, rustix::fs::Access::READ_OK)?));
            readable.map_err(|source| EnvironmentError::Unreadable {
                flag: "--secret",
                file: escaped(path.as_os_str()),
                source,
            })?;
        }
    } else {
        return Err(EnvironmentError::Reference { name: escape(name) });
    }
    let value = Secret::new(value);
    check(|| "--secret".to_owned(), name, value.bytes())?;
    Ok(GivenSecret {
        variable: name.to_vec(),
        reference: escape(reference),
        value: match values {
            SecretValues::Read => value,
            SecretValues::CheckOnly => Secret::new(Vec::new()),
        },
    })
}

/// Parses the entries of [`entries_of`], of the form `NAME=VALUE`. A value keeps its quotes.
///
/// # Errors
/// The first invalid entry, as `file` and number.
pub(crate) fn parse_env_file(
    file: &str,
    bytes: &[u8],
) -> Result<Vec<EnvironmentEntry>, EnvironmentError> {
    let mut entries = Vec::new();
    for (number, entry) in entries_of(bytes) {
        let (name, value) = split(OsStr::from_bytes(entry));
        let value = value.ok_or_else(|| EnvironmentError::Line {
            file: file.to_owned(),
            line: number,
        })?;
        check(|| format!("{file}:{number}"), name, value)?;
        entries.push((name.to_vec(), value.to_vec()));
    }
    Ok(entries)
}

/// The entries of a file with their numbers from 1 on. In a file that ends with a NUL, as `env -0` writes
/// it, a NUL ends each. In others they are lines, without a final carriage return and white space before
/// the name; empty lines and comments (`#`) are none.
pub(super) fn entries_of(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let (bytes, separator) = match bytes.strip_suffix(b"\0") {
        Some(entries) => (entries, 0),
        None => (bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes), b'\n'),
    };
    let entries = bytes
        .split(move |byte| *byte == separator)
        .map(move |entry| {
            let line = entry.strip_suffix(b"\r").unwrap_or(entry);
            match (separator, line.trim_ascii_start()) {
                (0, _) => entry,
                (_, [b'#', ..]) => &[],
                (_, visible) => visible,
            }
        });
    (1..).zip(entries).filter(|(_, entry)| !entry.is_empty())
}

fn split(entry: &OsStr) -> (&[u8], Option<&[u8]>) {
    let bytes = entry.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    }
}

/// A name from [`split`] has no `=`. Other than that it is any bytes but NUL and white space, such as
/// `BASH_FUNC_x%%`. A value is any bytes but NUL.
fn check(place: impl Fn() -> String, name: &[u8], value: &[u8]) -> Result<(), EnvironmentError> {
    let refused_name = |cause| {
        Err(EnvironmentError::Name {
            place: place(),
            name: escape(name),
            cause,
        })
    };
    let refused_value = |cause| {
        Err(EnvironmentError::Value {
            place: place(),
            name: escape(name),
            cause,
        })
    };
    if name.is_empty() {
        return refused_name("it is empty");
    }
    if name.contains(&0) {
        return refused_name("it contains a NUL byte");
    }
    if name.iter().any(u8::is_ascii_whitespace) {
        return refused_name("it contains white space");
    }
    if value.contains(&0) {
        return refused_value("contains a NUL byte");
    }
    if name.len() + value.len() + 2 > ENTRY_BYTES_MAX {
        return refused_value("is longer than 128 KiB with its name, more than execve(2) accepts");
    }
    Ok(())
}

pub(super) fn read_file(flag: &'static str, path: &Path) -> Result<Vec<u8>, EnvironmentError> {
    let file = escaped(path.as_os_str());
    match open(path).and_then(read_small) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(EnvironmentError::TooLarge { flag, file }),
        Err(source) => Err(EnvironmentError::Unreadable { flag, file, source }),
    }
}

fn escaped(path: &OsStr) -> String {
    escape(path.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt as _;

    fn caller() -> ProcessContext {
        ProcessContext {
            variables: [("TOKEN", "canary-1"), ("EMPTY", "")]
                .into_iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value)))
                .collect(),
            ..ProcessContext::default()
        }
    }

    fn flags(env: &[&[u8]]) -> EnvironmentFlags {
        EnvironmentFlags {
            env: env
                .iter()
                .map(|entry| OsString::from_vec(entry.to_vec()))
                .collect(),
            ..EnvironmentFlags::default()
        }
    }

    fn secret(text: &str) -> Result<Vec<GivenSecret>, EnvironmentError> {
        let flags = EnvironmentFlags {
            secret: vec![OsString::from(text)],
            ..EnvironmentFlags::default()
        };
        resolve_secrets(&flags, SecretValues::Read, &caller())
    }

    /// F-10.
    #[test]
    fn a_file_that_ends_with_a_nul_has_entries_of_any_bytes() {
        let text = b"A=two\nlines\r\n\0 B=#\0\0#C=\0";
        assert_eq!(
            entries_of(text).collect::<Vec<_>>(),
            [(1, &b"A=two\nlines\r\n"[..]), (2, b" B=#"), (4, b"#C=")]
        );
        let entries = parse_env_file("f", b"A=1\n2\0#B=\0").expect("well formed");
        let expected = [("A", "1\n2"), ("#B", "")];
        let expected = expected.map(|(name, value)| (name.into(), value.into()));
        assert_eq!(entries, expected);
        for bad in [&b"A=1\0B\0"[..], b" A=1\0", b"A=1\0B=2", b"\0A=1\n"] {
            assert!(parse_env_file("f", bad).is_err(), "{bad:?}");
        }
    }

    /// F-10.
    #[test]
    fn a_value_is_passed_exactly_or_refused() {
        for (given, name, value) in [
            (&b"A=1"[..], &b"A"[..], &b"1"[..]),
            (b"A=", b"A", b""),
            (b"A=b=c", b"A", b"b=c"),
            (b"A=two\nlines", b"A", b"two\nlines"),
            (b"A=\xff\xfe", b"A", b"\xff\xfe"),
            (b"A= ' x", b"A", b" ' x"),
            (b"BASH_FUNC_x%%=() {", b"BASH_FUNC_x%%", b"() {"),
            (b"TOKEN", b"TOKEN", b"canary-1"),
            (b"EMPTY", b"EMPTY", b""),
        ] {
            let entries = resolve(&flags(&[given]), &caller()).expect("a variable");
            assert_eq!(entries, [(name.to_vec(), value.to_vec())]);
        }
        let long = [b"A=".to_vec(), vec![b'x'; 2_000_000]].concat();
        for given in [
            &b""[..],
            b"=x",
            b"A B=x",
            b"A=x\0y",
            b"A\0=x",
            b"MISSING",
            &long,
        ] {
            let error = resolve(&flags(&[given]), &caller()).expect_err("no variable");
            assert!(error.to_string().contains("--env"), "{error}");
        }
        for invalid_name in [&b""[..], b"A B"] {
            let error = resolve(&flags(&[invalid_name]), &caller()).expect_err("no variable");
            assert!(matches!(error, EnvironmentError::Name { .. }), "{error}");
        }
    }

    #[test]
    fn the_longest_entry_that_execve_accepts_is_accepted() {
        let fits = [b"A=".to_vec(), vec![b'x'; ENTRY_BYTES_MAX - 3]].concat();
        assert!(resolve(&flags(&[&fits]), &caller()).is_ok());
        let longer = [fits, b"x".to_vec()].concat();
        assert!(resolve(&flags(&[&longer]), &caller()).is_err());
    }

    #[test]
    fn an_env_file_is_read_line_by_line_and_errors_name_the_line() {
        let text = b"# a comment\n\n  # another\nA=1\r\nB=\"q\" # no comment\n  C=x y\nD=a=b";
        let entries = parse_env_file("f", text).expect("well formed");
        let expected = [
            ("A", "1"),
            ("B", "\"q\" # no comment"),
            ("C", "x y"),
            ("D", "a=b"),
        ]
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        assert_eq!(entries, expected);
        let text = b"A=1\nB=2\r\n\0#C= x\0";
        let entries = parse_env_file("f", text).expect("well formed");
        let expected = [("A", "1\nB=2\r\n"), ("#C", " x")]
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        assert_eq!(entries, expected);
        for (text, place) in [
            (&b"A=1\nB\n"[..], "f:2"),
            (b"\n\nexport A=1", "f:3"),
            (b"=1", "f:1"),
            (b"A=1\nA=\0x", "f:2"),
            (b"A=1\0B\0", "f:2"),
            (b"#\0", "f:1"),
        ] {
            let error = parse_env_file("f", text).expect_err("malformed");
            assert!(error.to_string().starts_with(place), "{error}");
        }
    }

    #[test]
    fn files_come_before_flags_so_that_a_flag_replaces_a_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("env");
        std::fs::write(&file, "A=file\nB=file\n").expect("written");
        let mut given = flags(&[b"A=flag"]);
        given.env_file.push(file);
        let entries = resolve(&given, &caller()).expect("well formed");
        let names: Vec<&[u8]> = entries.iter().map(|(name, _)| name.as_slice()).collect();
        assert_eq!(names, [b"A", b"B", b"A"]);
        assert_eq!(entries[2].1, b"flag");
    }

    #[test]
    fn a_secret_is_taken_from_a_variable_or_a_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("secret");
        std::fs::write(&file, "s3cret\n\n").expect("written");
        let reference = format!("KEY=file:{}", file.display());
        let of_file = secret(&reference).expect("readable");
        assert_eq!(of_file[0].value.bytes(), b"s3cret\n");
        let of_variable = secret("KEY=env:TOKEN").expect("set");
        assert_eq!(
            of_variable,
            [GivenSecret {
                variable: b"KEY".to_vec(),
                reference: "env:TOKEN".to_owned(),
                value: Secret::new(b"canary-1".to_vec()),
            }]
        );
        assert!(!format!("{of_variable:?}").contains("canary"));
    }

    #[test]
    fn a_check_refuses_a_file_that_cannot_be_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("missing");
        for path in [directory.path(), &missing] {
            let reference = format!("KEY=file:{}", path.display());
            assert!(secret(&reference).is_err());
            let flags = EnvironmentFlags {
                secret: vec![reference.into()],
                ..EnvironmentFlags::default()
            };
            let checked = resolve_secrets(&flags, SecretValues::CheckOnly, &caller());
            assert!(checked.is_err(), "{}", path.display());
        }
    }

    #[test]
    fn what_a_wrong_secret_holds_is_not_in_the_error() {
        for text in [
            "canary-2",
            "canary-2=",
            "canary-2==",
            "KEY=canary-2",
            "KEY=env:canary-missing",
            "KEY=file:/nonexistent/file",
            "=env:TOKEN",
            "K Y=env:TOKEN",
        ] {
            let error = secret(text).expect_err("refused").to_string();
            assert!(error.contains("--secret"), "{error}");
            assert!(
                !error.contains("canary-1") && !error.contains("canary-2"),
                "{error}"
            );
        }
    }
}
