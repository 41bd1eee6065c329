//! When the sandboxes of clients with the token end: never later than their template allows.

use std::time::Duration;

use super::access::Access;
use super::error::ApiError;
use super::server::Server;
use super::types::{Sandbox, SetTimeout};
use spec::path::escape;
use spec::units::parse_duration;

/// The beginning of the names of labels that the server sets, and clients with the token do not.
const RESERVED: &str = "runner.";

/// The label that has the name of the template.
pub(super) const TEMPLATE: &str = "runner.template";

/// The label of sandboxes that were created over the API of E2B.
pub(super) const API: &str = "runner.api";

/// # Errors
/// 403.
pub(super) fn check_label_names<'name>(
    mut names: impl Iterator<Item = &'name String>,
) -> Result<(), ApiError> {
    match names.find(|name| name.starts_with(RESERVED)) {
        None => Ok(()),
        Some(name) => {
            let name = escape(name.as_bytes());
            let message = format!("`{name}`: names that begin with `{RESERVED}` are of the server");
            Err(ApiError::forbidden("label_reserved", message))
        }
    }
}

/// The `--timeout` of a template; `None`: it has none.
///
/// # Errors
/// 500: it cannot be read.
pub(super) fn longest(flags: &[String]) -> Result<Option<Duration>, ApiError> {
    let mut found = None;
    for (index, word) in flags.iter().enumerate() {
        let value = match word.strip_prefix("--timeout") {
            Some("") => flags.get(index + 1).map(String::as_str),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        found = value.or(found);
    }
    match found {
        None | Some("none") => Ok(None),
        Some(text) => parse_duration(text).map(Some).map_err(|error| {
            ApiError::failed(format!(
                "the --timeout of the template cannot be read: {error}"
            ))
        }),
    }
}

impl Server {
    /// How long the sandbox of a client with the token may live altogether; `None`: as long as the
    /// configuration allows.
    ///
    /// # Errors
    /// 403: its template is not in the file; 500: that cannot be read.
    pub(super) fn longest_life(&self, sandbox: &Sandbox) -> Result<Option<Duration>, ApiError> {
        let name = sandbox.labels.get(TEMPLATE);
        let flags = name.and_then(|name| self.templates.get(name));
        match flags {
            Some(flags) => longest(flags),
            None => Err(ApiError::forbidden(
                "no_template",
                "the template of the sandbox is not in the file of --templates: its end cannot be moved",
            )),
        }
    }

    /// Checks what a client wants to change.
    ///
    /// # Errors
    /// 400; 403: it is for the unix socket, or more than the template allows.
    pub(super) fn check_timeout(
        &self,
        access: Access,
        sandbox: &Sandbox,
        wanted: &SetTimeout,
    ) -> Result<(), ApiError> {
        if wanted.timeout_ms == Some(0) || wanted.idle_timeout_ms == Some(0) {
            let message = "0 would leave no time: expected 1 ms or more";
            return Err(ApiError::bad_request("timeout", message));
        }
        if wanted.timeout_ms.is_none() && wanted.idle_timeout_ms.is_none() {
            let message = "expected `timeout_ms` or `idle_timeout_ms`";
            return Err(ApiError::bad_request("timeout", message));
        }
        match (access, wanted.timeout_ms) {
            (Access::Owner, _) => Ok(()),
            (Access::Templates | Access::E2b, _) if wanted.idle_timeout_ms.is_some() => {
                let message =
                    "the template decides the idle time: `idle_timeout_ms` is for the unix socket";
                Err(ApiError::forbidden("template_only", message))
            }
            (Access::Templates | Access::E2b, Some(timeout_ms)) => {
                check_life(sandbox, timeout_ms, self.longest_life(sandbox)?)
            }
            (Access::Templates | Access::E2b, None) => Ok(()),
        }
    }
}

/// # Errors
/// 403: the sandbox would live for longer than `longest`.
pub(super) fn check_life(
    sandbox: &Sandbox,
    timeout_ms: u64,
    longest: Option<Duration>,
) -> Result<(), ApiError> {
    let Some(longest) = longest else {
        return Ok(());
    };
    let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    let left_ms = longest_ms.saturating_sub(sandbox.run_time_ms);
    match timeout_ms <= left_ms {
        true => Ok(()),
        false => Err(ApiError::forbidden(
            "timeout",
            format!(
                "the timeout is {timeout_ms} ms from now, and {left_ms} ms are left of the \
                 {longest_ms} ms that the template allows"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_template_is_the_longest() {
        let longest = |flags: &[&str]| {
            let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            longest(&flags)
                .map(|time| time.map(|time| time.as_secs()))
                .ok()
        };
        assert_eq!(longest(&["-m", "1g"]), Some(None));
        assert_eq!(longest(&["--timeout", "none"]), Some(None));
        assert_eq!(longest(&["--timeout", "5m"]), Some(Some(300)));
        assert_eq!(
            longest(&["--timeout=5m", "--timeout=1h"]),
            Some(Some(3_600))
        );
        assert_eq!(longest(&["--timeout=soon"]), None);
    }
}
