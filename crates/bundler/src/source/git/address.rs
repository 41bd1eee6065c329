//! Repository addresses for artifacts, without credentials and local paths.

use spec::credential::looks_issued;

const BYTES_MAX: usize = 2_048;
/// Other schemes run programs or name local files.
const SCHEMES: [&str; 5] = ["https", "http", "ssh", "git+ssh", "git"];
/// Common user of hosting services: not a credential, and required by ssh.
const COMMON_USER: &str = "git";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) url: String,
    pub(super) repository: Option<String>,
}

/// Returns the publishable form of a remote address; `None` for a local path, an address that runs
/// a program, or a credential in the path.
pub(super) fn address_of(written: &str) -> Option<Address> {
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
            let with_user = scheme.ends_with("ssh");
            (
                format!("{scheme}://"),
                host_of(authority, with_user)?,
                format!("/{path}"),
            )
        }
        // `user@host:path`: git treats it as ssh if no slash precedes the colon.
        None => {
            let (authority, path) = written.split_once(':')?;
            if authority.contains('/') || path.starts_with(':') {
                return None;
            }
            (String::new(), host_of(authority, true)?, format!(":{path}"))
        }
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if path.split(['/', ':']).any(looks_issued) {
        return None;
    }
    Some(Address {
        url: format!("{start}{host}{path}"),
        repository: repository_of(path),
    })
}

fn host_of(authority: &str, with_user: bool) -> Option<String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let known = host
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte));
    if host.is_empty() || !known {
        return None;
    }
    Some(match user {
        Some(user) if with_user && user.split(':').next() == Some(COMMON_USER) => {
            format!("{COMMON_USER}@{host}")
        }
        _ => host.to_owned(),
    })
}

fn repository_of(path: &str) -> Option<String> {
    let path = path.trim_matches(['/', ':']);
    let path = path.strip_suffix(".git").unwrap_or(path);
    path.contains('/').then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_removed_and_paths_of_this_host_refused() {
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
        ] {
            let expected = Address {
                url: url.to_owned(),
                repository: repository.map(str::to_owned),
            };
            assert_eq!(address_of(written), Some(expected), "{written}");
        }
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
            "https://host name/a",
            "https://git.example.org/ghp_0123456789abcdef/b",
            "https://ho\u{7}st/a",
        ] {
            assert_eq!(address_of(written), None, "{written}");
        }
    }
}
