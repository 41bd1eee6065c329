//! Templates: lists of flags that clients with the token choose from.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use super::access::Access;
use super::error::ApiError;
use companion::own_file;
use spec::path::escape;

/// Flags of `runner sandbox create`, or of `runner exec`, by template name.
pub(super) type Templates = BTreeMap<String, Vec<String>>;

const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads the file that the flag `option` names.
///
/// # Errors
/// A message: others can write to the file, or it is malformed.
pub(super) fn read(option: &str, path: &Path) -> Result<Templates, String> {
    let shown = format!("{option} {}", escape(path.as_os_str().as_bytes()));
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let opened = own_file::open(path, OFlags::empty(), 0o022).map_err(failed)?;
    let file = opened.ok_or_else(|| {
        format!("{shown}: must belong to you and be writable by nobody else: chmod go-w FILE")
    })?;
    let mut text = String::new();
    let read = file
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(format!("{shown} is larger than 1 MiB"));
    }
    let templates: Templates = serde_saphyr::from_str(&text).map_err(|error| {
        let error = error.to_string();
        let error = escape(error.lines().next().unwrap_or_default().as_bytes());
        format!("{shown}: expected `NAME: [FLAG, …]` for each template: {error}")
    })?;
    for (name, flags) in &templates {
        check_flags(flags)
            .map_err(|error| format!("{shown}: {}: {error}", escape(name.as_bytes())))?;
    }
    Ok(templates)
}

/// Returns the flags for a new sandbox or run: those of the template `wanted`, then those of the client.
/// `option` is the flag of the server that names the file of templates.
///
/// # Errors
/// 403: no or an unknown template, or flags that the client may not send. 400: an invalid flag.
pub(super) fn flags_for(
    templates: &Templates,
    option: &str,
    access: Access,
    wanted: Option<&str>,
    flags: &[String],
) -> Result<Vec<String>, ApiError> {
    let shown = wanted.map(|name| escape(name.as_bytes()));
    let known = || {
        if templates.is_empty() {
            return format!("no templates: start the server with {option} FILE");
        }
        let names = templates.keys().map(|name| escape(name.as_bytes()));
        format!(
            "templates of this server: {}",
            names.collect::<Vec<_>>().join(", ")
        )
    };
    let template = wanted.map(|name| templates.get(name));
    match (access, template) {
        (Access::Templates | Access::E2b, None) => Err(ApiError::forbidden(
            "template_needed",
            "clients of --listen must name a template",
        )
        .with_hint(known())),
        (Access::Templates | Access::E2b, Some(_)) if !flags.is_empty() => {
            let shown = shown.unwrap_or_default();
            let message =
                format!("the template `{shown}` decides all flags: `flags` is for the unix socket");
            Err(ApiError::forbidden("template_only", message))
        }
        (_, Some(None)) => {
            let message = format!("there is no template `{}`", shown.unwrap_or_default());
            Err(ApiError::forbidden("no_template", message).with_hint(known()))
        }
        (_, template) => {
            check_flags(flags).map_err(|error| ApiError::bad_request("flags", error))?;
            let template = template.flatten().into_iter().flatten();
            Ok(template.chain(flags).cloned().collect())
        }
    }
}

/// Refuses arguments that are not flags, or that a call cannot use.
///
/// # Errors
/// A message with the refused argument.
fn check_flags(flags: &[String]) -> Result<(), String> {
    let is_flag = |word: &str, flag: &str| {
        word.strip_prefix(flag)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    if flags.first().is_some_and(|word| !word.starts_with('-')) {
        return Err(format!(
            "expected a flag such as `-m`, found `{}`",
            escape(flags[0].as_bytes())
        ));
    }
    for word in flags {
        let shown = escape(word.as_bytes());
        let value = match word.split_once('=') {
            Some((_flag, value)) if word.starts_with("--") => value,
            _ => word,
        };
        if word.contains('\0') {
            return Err(format!("`{shown}` has a NUL"));
        }
        if word == "--" {
            return Err("`--` is not a flag".to_owned());
        }
        if value.starts_with("fd:") {
            return Err(format!("`{shown}`: a call cannot pass file descriptors"));
        }
        // The name decides which clients may use a sandbox.
        if is_flag(word, "--name") {
            return Err("`--name`: use the field `name`".to_owned());
        }
        if ["-h", "--help", "--version"].contains(&word.as_str()) {
            return Err(format!("`{shown}` only prints a text"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_not_flags_of_a_call_are_refused() {
        let check = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            check_flags(&words)
        };
        for words in [
            &[][..],
            &["-m", "512m"],
            &["--rw", "/srv/fd"],
            &["--json=/tmp/fd:3/x"],
            &["-e", "A=fd:3"],
        ] {
            assert_eq!(check(words), Ok(()), "{words:?}");
        }
        for words in [
            &["x"][..],
            &["-m", "1g", "--"],
            &["--name", "x"],
            &["--name=x"],
            &["--json=fd:3"],
            &["--events", "fd:3"],
            &["--help"],
            &["-m\0"],
        ] {
            assert!(check(words).is_err(), "{words:?}");
        }
    }
}
