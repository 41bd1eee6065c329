//! Who may ask for what.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use rustix::fs::OFlags;
use subtle::ConstantTimeEq as _;
use tokio::net::unix::UCred;

use super::error::ApiError;
use super::hmac::hmac_sha256;
use companion::own_file;
use spec::path::escape;
use spec::sandboxes::SandboxName;

/// What the client of a call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// All that the user of the server may do: a client on the unix socket.
    Owner,
    /// To create sandboxes of templates, and to use those: a client with the token.
    Templates,
    /// As [`Self::Templates`], for clients of E2B: another server of this user may have clients of either kind.
    E2b,
}

impl Access {
    /// The beginning of the names of sandboxes that such clients created. They see and use no others, and do
    /// not see it.
    fn prefix(self) -> &'static str {
        match self {
            Self::Owner => "",
            Self::Templates => "tcp.",
            Self::E2b => "e2b.",
        }
    }

    /// The sandbox that a client calls `name`.
    ///
    /// # Errors
    /// It is not a name.
    pub(super) fn sandbox(self, name: &str) -> Result<SandboxName, ApiError> {
        let refused = |error: spec::sandboxes::NotAName| {
            ApiError::bad_request("sandbox_name", error.to_string())
        };
        let named = SandboxName::parse(name).map_err(refused)?;
        match self.prefix() {
            "" => Ok(named),
            prefix => SandboxName::parse(&format!("{prefix}{named}")).map_err(refused),
        }
    }

    /// What a client calls the sandbox `name`; `None` if it is not one of its sandboxes.
    pub(super) fn shown(self, name: &str) -> Option<&str> {
        name.strip_prefix(self.prefix())
    }
}

/// Whether a client on the unix socket is a process of this user on this host.
///
/// # Errors
/// Why it is not.
pub(super) fn check_peer(peer: UCred) -> Result<(), &'static str> {
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err("a client of another user");
    }
    // A body may have this uid (ordinary users have only one), and see a socket outside of the runtime
    // directory that a mount shows it.
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let pid = peer.pid().unwrap_or(0).to_string();
    match (namespace(&pid), namespace("self")) {
        (Some(client), Some(own)) if client == own => Ok(()),
        _ => Err("a client in another pid namespace, such as a sandbox"),
    }
}

/// What clients on the loopback interface have to know.
pub(super) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token")
    }
}

/// Fewer characters could be guessed.
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 512;

impl Token {
    /// # Errors
    /// A message: others can read or replace the file, or it has no token.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let shown = escape(path.as_os_str().as_bytes());
        let failed = |error: std::io::Error| format!("--token-file {shown}: {error}");
        let opened = own_file::open(path, OFlags::NOFOLLOW, 0o077).map_err(failed)?;
        let file = opened.ok_or_else(|| {
            format!(
                "--token-file {shown}: must belong to you and be readable by nobody else: chmod 600 {shown}"
            )
        })?;
        let mut text = String::new();
        file.take(u64::try_from(TOKEN_BYTES_MAX).unwrap_or(0) + 2)
            .read_to_string(&mut text)
            .map_err(failed)?;
        let token = text.trim_ascii_end();
        let is_token = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len())
            && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token {
            return Err(format!(
                "--token-file {shown}: expected one line of {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} characters \
                 without spaces, such as that of: openssl rand -hex 32"
            ));
        }
        Ok(Self(token.to_owned()))
    }

    /// The token for one sandbox, the same for each server with this one.
    pub(super) fn of_sandbox(&self, id: &str) -> Self {
        let parts = [b"access token of a sandbox\0", id.as_bytes()];
        let mac = hmac_sha256(self.0.as_bytes(), &parts);
        Self(mac.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// For the answer to a client that may have it.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it is this one. The time tells its length at most.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        bool::from(given.ct_eq(self.0.as_bytes()))
    }

    /// Whether the request has it. The time tells its length at most.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let value = headers
            .get(header::AUTHORIZATION)
            .map(|value| value.as_bytes());
        let Some((scheme, given)) =
            value.and_then(|value| value.split_at_checked(b"Bearer ".len()))
        else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"Bearer ") && self.is(given)
    }
}

/// Checks that a request which came through the loopback interface was meant for it: the page of a
/// browser sends the name of its own host, whatever address that name has meanwhile.
///
/// # Errors
/// 403.
pub(super) fn check_host(uri: &Uri, headers: &HeaderMap, port: u16) -> Result<(), ApiError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let is_own = |host: &str| is_loopback_name(host, port);
    let is_meant = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(is_own),
        _ => false,
    };
    // A request to a proxy names its host in the first line, too.
    let authority = uri.authority().map(Authority::as_str);
    match is_meant && authority.is_none_or(is_own) {
        true => Ok(()),
        false => Err(ApiError::forbidden(
            "foreign_host",
            format!(
                "the header Host is not a loopback name: expected 127.0.0.1:{port} or localhost:{port}"
            ),
        )),
    }
}

/// # Errors
/// 401.
pub(super) fn check_token(headers: &HeaderMap, token: &Token) -> Result<(), ApiError> {
    match token.is_in(headers) {
        true => Ok(()),
        false => Err(ApiError::unauthorized()),
    }
}

/// Refuses what a page of another origin asks a browser for.
///
/// # Errors
/// 403.
pub(super) fn check_origin(headers: &HeaderMap, port: Option<u16>) -> Result<(), ApiError> {
    let is_own = |origin: &str| {
        let host = origin.strip_prefix("http://");
        host.zip(port)
            .is_some_and(|(host, port)| is_loopback_name(host, port))
    };
    let mut origins = headers.get_all(header::ORIGIN).iter();
    match origins.all(|origin| origin.to_str().is_ok_and(is_own)) {
        true => Ok(()),
        false => Err(ApiError::forbidden(
            "foreign_origin",
            "the header Origin names another site: pages of browsers may not use this server"
                .to_owned(),
        )),
    }
}

fn is_loopback_name(host: &str, port: u16) -> bool {
    let (name, given) = match host.rsplit_once(':') {
        Some((name, given)) if !given.ends_with(']') => (name, given),
        _ => (host, "80"),
    };
    given == port.to_string()
        && ["127.0.0.1", "localhost", "[::1]"].contains(&name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_loopback_interface_with_this_port_are_accepted() {
        for host in [
            "127.0.0.1:8080",
            "localhost:8080",
            "LOCALHOST:8080",
            "[::1]:8080",
        ] {
            assert!(is_loopback_name(host, 8080), "{host}");
        }
        for host in [
            "",
            ":8080",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.1:8080:8080",
            "evil.example:8080",
            "localhost.evil.example:8080",
            "127.0.0.1.nip.io:8080",
            "[::1]",
            "[::1]:",
            "localhost:99999",
            "localhost:+8080",
            "localhost:08080",
        ] {
            assert!(!is_loopback_name(host, 8080), "{host}");
        }
        assert!(is_loopback_name("[::1]", 80) && is_loopback_name("localhost", 80));
    }

    #[test]
    fn a_token_is_compared_as_a_whole() {
        let token = Token("0123456789abcdef".to_owned());
        let is_in = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().expect("a value"));
            token.is_in(&headers)
        };
        assert!(is_in("Bearer 0123456789abcdef") && is_in("bearer 0123456789abcdef"));
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "0123456789abcdef",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdeff",
            "Basic 0123456789abcdef",
            "Bearer  0123456789abcdef",
        ] {
            assert!(!is_in(value), "{value}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
    }

    #[test]
    fn the_token_of_a_sandbox_depends_on_the_key_and_the_sandbox() {
        let [one, other] =
            ["0123456789abcdef", "0123456789abcdee"].map(|key| Token(key.to_owned()));
        let token = one.of_sandbox("a");
        assert!(token.is(one.of_sandbox("a").expose().as_bytes()));
        assert_eq!(token.expose().len(), 64);
        for wrong in [
            one.of_sandbox("b"),
            one.of_sandbox(""),
            other.of_sandbox("a"),
        ] {
            assert!(!token.is(wrong.expose().as_bytes()));
        }
        assert!(!token.is(b"0123456789abcdef"));
    }

    #[test]
    fn clients_with_the_token_name_their_own_sandboxes_alone() {
        let name = |access: Access, name| access.sandbox(name).map(|name| name.to_string());
        assert_eq!(name(Access::Owner, "a").expect("a name"), "a");
        assert_eq!(name(Access::Templates, "a").expect("a name"), "tcp.a");
        assert_eq!(
            name(Access::Templates, "tcp.a").expect("a name"),
            "tcp.tcp.a"
        );
        let long = "a".repeat(48);
        assert!(Access::Templates.sandbox(&long).is_err());
        for bad in ["", "-f", "../x", "a/b", "a b"] {
            assert!(name(Access::Templates, bad).is_err() && name(Access::Owner, bad).is_err());
        }
        assert_eq!(Access::Templates.shown("tcp.a"), Some("a"));
        assert_eq!(Access::Templates.shown("a"), None);
        assert_eq!(Access::E2b.shown("tcp.a"), None);
    }
}
