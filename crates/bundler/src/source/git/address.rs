//! Repository addresses for artifacts, without credentials and local paths.

use std::net::Ipv6Addr;

use spec::credential::looks_issued;
use spec::parse_permit::ParsePermit;

const BYTES_MAX: usize = 2_048;
/// Schemes of remote repositories. `file` names a local path, `ext` and other helpers run programs.
const SCHEMES: [&str; 5] = ["https", "http", "ssh", "git+ssh", "git"];
/// Common user of hosting services: not a credential, and required by ssh.
const COMMON_USER: &str = "git";

/// The address of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub url: String,
    pub repository: Option<String>,
}

impl Address {
    /// Whether [`address_of`] can have returned it, as far as its signs say: it has no user but the common
    /// one, and no query.
    pub(super) fn is_plain(&self) -> bool {
        let user = self.url.split_once('@').map(|(before, _)| before);
        let is_common = |user: &str| user == COMMON_USER || user.ends_with("://git");
        let is_part = |repository: &String| self.url.contains(repository.as_str());
        self.url.len() <= BYTES_MAX + 1
            && self.url.bytes().all(|byte| byte.is_ascii_graphic())
            && !self.url.contains(['?', '#'])
            && user.is_none_or(is_common)
            && self.repository.as_ref().is_none_or(is_part)
    }
}

/// Returns the address without credentials, query and fragment. `None` if it is a local path, runs a
/// program or is malformed, or if its path may contain a credential.
pub(super) fn address_of(_permit: &ParsePermit, written: &str) -> Option<Address> {
    let plain = written.bytes().all(|byte| byte.is_ascii_graphic());
    if !plain || written.len() > BYTES_MAX {
        return None;
    }
    let (start, host, path) = match written.split_once("://") {
        Some((scheme, rest)) => {
            let scheme = scheme.to_ascii_lowercase();
            if !SCHEMES.contains(&scheme.as_str()) {
                return None;
            }
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let keeps_git_user = scheme.ends_with("ssh");
            (
                format!("{scheme}://"),
                host_of(authority, keeps_git_user)?,
                format!("/{path}"),
            )
        }
        // `user@host:path`: git treats it as ssh if no slash precedes the colon.
        None => {
            let (authority, path) = split_scp_address(written)?;
            if authority.contains('/') || path.starts_with(':') {
                return None;
            }
            (String::new(), host_of(authority, true)?, format!(":{path}"))
        }
    };
    // A password with a slash: the `@` before the host is in the path.
    if path.contains('@') {
        return None;
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if path.split(['/', ':']).any(looks_issued) {
        return None;
    }
    Some(Address {
        url: format!("{start}{host}{path}"),
        repository: repository_of(path),
    })
}

/// Splits `AUTHORITY:PATH` as git does: the authority can have brackets, as in `git@[::1]:a`,
/// `git@[host:22]:a` and `[git@host:22]:a`.
fn split_scp_address(written: &str) -> Option<(&str, &str)> {
    let start = written.find("@[").map_or(0, |at| at + 1);
    if !written[start..].starts_with('[') {
        return written.split_once(':');
    }
    let (authority, path) = written.split_at(start + written[start..].find(']')? + 1);
    Some((authority, path.strip_prefix(':')?))
}

fn host_of(authority: &str, keeps_git_user: bool) -> Option<String> {
    let (user, host) = match authority.rsplit_once('@') {
        // `[user@host:22]`
        Some((user, host)) => match user.strip_prefix('[') {
            Some(user) => (Some(user), format!("[{host}")),
            None => (Some(user), host.to_owned()),
        },
        None => (None, authority.to_owned()),
    };
    let is_valid = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']').is_some_and(|(inner, port)| {
            let is_host = inner.parse::<Ipv6Addr>().is_ok() || is_host_and_port(inner);
            is_host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        }),
        None => is_host_and_port(&host),
    };
    if !is_valid {
        return None;
    }
    Some(match user {
        Some(user) if keeps_git_user && user.split(':').next() == Some(COMMON_USER) => {
            format!("{COMMON_USER}@{host}")
        }
        _ => host,
    })
}

fn is_host_and_port(text: &str) -> bool {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !host.is_empty() && host.bytes().all(is_plain) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

fn repository_of(path: &str) -> Option<String> {
    let path = path.trim_matches(['/', ':']);
    let path = path.strip_suffix(".git").unwrap_or(path);
    let path = path.trim_end_matches('/');
    path.contains('/').then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

    #[test]
    fn an_answer_with_a_credential_is_refused() {
        for url in [
            "https://me:word@git.example.org/a",
            "https://word@git.example.org/a",
            "git:word@git.example.org:a",
            "https://git.example.org/a?token=word",
            "https://git.example.org/\u{1b}",
        ] {
            let address = Address {
                url: url.to_owned(),
                repository: None,
            };
            assert!(!address.is_plain(), "{url}");
        }
    }

    #[test]
    fn an_address_is_recorded_without_credentials() {
        for (written, url, repository) in [
            (
                "https://git.example.org/a/b.git",
                "https://git.example.org/a/b.git",
                Some("a/b"),
            ),
            (
                "https://me:s3cret@git.example.org/a/b",
                "https://git.example.org/a/b",
                Some("a/b"),
            ),
            (
                "https://t0ken@git.example.org/a/b",
                "https://git.example.org/a/b",
                Some("a/b"),
            ),
            (
                "https://a@b:c@git.example.org:8443/a",
                "https://git.example.org:8443/a",
                None,
            ),
            (
                "HTTPS://x:y@git.example.org",
                "https://git.example.org/",
                None,
            ),
            (
                "https://git.example.org/a/b?token=x#y",
                "https://git.example.org/a/b",
                Some("a/b"),
            ),
            (
                "ssh://git@git.example.org/a/b.git",
                "ssh://git@git.example.org/a/b.git",
                Some("a/b"),
            ),
            (
                "ssh://git:pw@git.example.org/a/b",
                "ssh://git@git.example.org/a/b",
                Some("a/b"),
            ),
            (
                "ssh://AKXX@git.example.org/a/b",
                "ssh://git.example.org/a/b",
                Some("a/b"),
            ),
            (
                "git@git.example.org:a/b.git",
                "git@git.example.org:a/b.git",
                Some("a/b"),
            ),
            (
                "me@git.example.org:a/b.git",
                "git.example.org:a/b.git",
                Some("a/b"),
            ),
            ("https://[::1]:80/a/b", "https://[::1]:80/a/b", Some("a/b")),
            (
                "git@[2001:db8::1]:a/b",
                "git@[2001:db8::1]:a/b",
                Some("a/b"),
            ),
            (
                "me@[git.example.org:2222]:a/b",
                "[git.example.org:2222]:a/b",
                Some("a/b"),
            ),
            (
                "[git@git.example.org:2222]:a/b",
                "git@[git.example.org:2222]:a/b",
                Some("a/b"),
            ),
            ("https://h/a/b/.git", "https://h/a/b/.git", Some("a/b")),
            ("https://h/a/.git", "https://h/a/.git", None),
        ] {
            let expected = Address {
                url: url.to_owned(),
                repository: repository.map(str::to_owned),
            };
            assert!(expected.is_plain(), "{written}");
            assert_eq!(address_of(&PERMIT, written), Some(expected), "{written}");
        }
    }

    #[test]
    fn local_paths_programs_and_addresses_with_a_password_in_the_path_are_refused() {
        for written in [
            "",
            "/home/me/repo.git",
            "../repo",
            "./a:b",
            "file:///home/me/repo",
            "ext::sh -c 'touch x'",
            "ext::sh",
            "fd::17",
            "https:///a/b",
            "https://me:s3/cret@git.example.org/a",
            "https://me:12/cret@git.example.org/a",
            "https://me:12/3?cret@git.example.org/a",
            "me:s3cret@git.example.org:a/b",
            "https://git.example.org:+80/a",
            "https://git.example.org:65536/a",
            "https://[::1/a",
            "https://[::1]80/a",
            "https://a:b:80/a",
            "git@[::1:a/b",
            "git@[::1]a/b:c",
            "https://host name/a",
            "https://git.example.org/ghp_0123456789abcdef/b",
            "https://ho\u{7}st/a",
        ] {
            assert_eq!(address_of(&PERMIT, written), None, "{written}");
        }
    }
}
