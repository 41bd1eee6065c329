//! References to artifacts and images.
//!
//! `HOST[:PORT]/REPOSITORY[:TAG][@sha256:HEX]` as in the distribution specification, but stricter:
//! the host is lower case, and the digest is SHA-256.
//!
//! A short name has no host. As in docker and podman, the part before the first `/` is a host if it
//! has a `.`, a `:` or a capital letter, or is `localhost`. Short names are allowed for images if the
//! host's configuration sets a default registry, and not for sources.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::path::PathBuf;

use crate::digest::Digest;
use crate::egress::parse_port;
use crate::host_name::HostName;
use crate::path::escape;

/// Maximum length of registry and repository together (distribution-spec, "Pulling manifests").
pub const NAME_BYTES_MAX: usize = 255;
pub(crate) const TAG_BYTES_MAX: usize = 128;
pub(crate) const LATEST: &str = "latest";

/// A repository of a registry, with an optional tag and digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// `HOST` or `HOST:PORT`, lower case; an IPv6 address in brackets.
    pub registry: String,
    /// Components joined by `/`: lower-case letters and digits, with `.`, `_`, `__`, dashes between.
    pub repository: String,
    pub tag: Option<String>,
    /// Takes precedence over the tag.
    pub digest: Option<Digest>,
}

/// Selects a manifest of a repository or a layout.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Which {
    Digest(Digest),
    /// A tag of a repository or a name in a layout.
    Tag(String),
    /// The tag `latest` of a repository, or the only manifest of a layout.
    Unnamed,
}

impl fmt::Display for Which {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest(digest) => write!(formatter, "{digest}"),
            Self::Tag(tag) => formatter.write_str(&escape(tag.as_bytes())),
            Self::Unnamed => formatter.write_str(LATEST),
        }
    }
}

/// Location of an image: `docker://REFERENCE` or `oci:DIRECTORY[:NAME]`, as in skopeo, or
/// `oci:DIRECTORY@sha256:HEX`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    Registry(Reference),
    Layout {
        /// A directory in the OCI layout.
        directory: PathBuf,
        which: Which,
    },
}

/// Why a reference is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found `{found}`, expected {expected}: {reason}")]
pub struct ReferenceError {
    /// The start of the text, escaped.
    pub found: String,
    pub expected: &'static str,
    pub reason: ReferenceProblem,
}

/// The rule that a reference breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceProblem {
    #[error("it is empty")]
    Empty,
    #[error("it names no registry, and there is no default one")]
    NoRegistry,
    #[error("the registry is not a lower-case host name or address, with or without `:PORT`")]
    Registry,
    #[error("it names no repository")]
    NoRepository,
    #[error("the repository has a capital letter; registries know lower case only")]
    Capital,
    #[error(
        "a component of the repository is not made of lower-case letters and digits, with `.`, \
         `_`, `__` or dashes in between"
    )]
    Repository,
    #[error("registry and repository have more than 255 bytes")]
    Long,
    #[error("the tag is not 1 to 128 letters, digits, `_`, `.` and `-`, or starts with `.` or `-`")]
    Tag,
    #[error("the digest is not `sha256:` and 64 lower-case hexadecimal digits")]
    Digest,
    #[error("it starts with neither `docker://` nor `oci:`")]
    Transport,
    #[error("it names no directory")]
    NoDirectory,
    #[error("it contains a NUL byte")]
    Nul,
    #[error("the name after the directory is empty or has more than 255 bytes")]
    LayoutName,
    #[error("the directory is followed by a name and a digest, which exclude each other")]
    NameAndDigest,
}

const REFERENCE: &str = "HOST[:PORT]/REPOSITORY[:TAG][@sha256:HEX]";
const DOCKER: &str = "docker://";
/// Prefix of one-word repositories, as in docker and podman.
const LIBRARY: &str = "library/";
const PLACE: &str = "docker://HOST[:PORT]/REPOSITORY[:TAG][@sha256:HEX] or \
                     oci:DIRECTORY[:NAME|@sha256:HEX]";
const FOUND_CHARACTERS_MAX: usize = 120;

fn refused(text: &str, expected: &'static str) -> impl Fn(ReferenceProblem) -> ReferenceError {
    let found = escape(text.as_bytes());
    move |reason| ReferenceError {
        found: match found.char_indices().nth(FOUND_CHARACTERS_MAX) {
            Some((cut, _)) => format!("{}…", &found[..cut]),
            None => found.clone(),
        },
        expected,
        reason,
    }
}

impl ReferenceError {
    /// Stable error code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "reference_invalid"
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self.reason {
            ReferenceProblem::NoRegistry => return Some(self.hint_of_short_name()),
            ReferenceProblem::Capital => "write the repository in lower case",
            ReferenceProblem::Digest => {
                "a digest is written @sha256: and 64 lower-case hexadecimal digits"
            }
            ReferenceProblem::Transport => {
                "write docker:// before a reference, or oci: before a directory"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }

    fn hint_of_short_name(&self) -> String {
        let short = self.found.strip_prefix(DOCKER);
        let Some(name) = short.filter(|name| !name.starts_with('/') && !name.ends_with('…'))
        else {
            return "write the registry before the repository: registry.example.org/team/name"
                .to_owned();
        };
        let library = if name.contains('/') { "" } else { LIBRARY };
        format!(
            "docker and podman read it as `{library}{name}` in their default registry: write \
             {DOCKER}REGISTRY/{library}{name}, or set `oci: {{default_registry: REGISTRY}}` in the \
             host configuration, with the host of that registry for REGISTRY"
        )
    }
}

impl Reference {
    /// Parses a reference.
    ///
    /// # Errors
    /// [`ReferenceError`]: the first rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        parse_reference(text, None).map_err(refused(text, REFERENCE))
    }

    /// Selects the digest, else the tag, else [`Which::Unnamed`].
    #[must_use]
    pub fn which(&self) -> Which {
        match (self.digest, &self.tag) {
            (Some(digest), _) => Which::Digest(digest),
            (None, Some(tag)) => Which::Tag(tag.clone()),
            (None, None) => Which::Unnamed,
        }
    }

    /// The host without port and brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        host_and_port(&self.registry).map_or(&self.registry, |(host, _)| host)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(formatter, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl Place {
    /// Parses a place.
    ///
    /// # Errors
    /// [`ReferenceError`]: the first rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        Self::parse_with(text, None)
    }

    /// Parses a place. Short names belong to `default_registry`.
    ///
    /// # Errors
    /// As [`Place::parse`].
    pub fn parse_with(text: &str, default_registry: Option<&str>) -> Result<Self, ReferenceError> {
        let refused = refused(text, PLACE);
        if let Some(reference) = text.strip_prefix(DOCKER) {
            let reference = parse_reference(reference, default_registry);
            return reference.map(Self::Registry).map_err(refused);
        }
        match text.strip_prefix("oci:") {
            Some(layout) => parse_layout(layout).map_err(refused),
            None => Err(refused(ReferenceProblem::Transport)),
        }
    }

    /// The same place with this digest.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        match self {
            Self::Registry(reference) => Self::Registry(Reference {
                digest: Some(digest),
                ..reference.clone()
            }),
            Self::Layout { directory, .. } => Self::Layout {
                directory: directory.clone(),
                which: Which::Digest(digest),
            },
        }
    }

    /// The selected manifest.
    #[must_use]
    pub fn which(&self) -> Which {
        match self {
            Self::Registry(reference) => reference.which(),
            Self::Layout { which, .. } => which.clone(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (directory, which) = match self {
            Self::Registry(reference) => return write!(formatter, "docker://{reference}"),
            Self::Layout { directory, which } => (directory, which),
        };
        let directory = escape(directory.as_os_str().as_encoded_bytes());
        match which {
            Which::Digest(digest) => write!(formatter, "oci:{directory}@{digest}"),
            Which::Tag(_) => write!(formatter, "oci:{directory}:{which}"),
            Which::Unnamed => write!(formatter, "oci:{directory}"),
        }
    }
}

fn parse_reference(
    text: &str,
    default_registry: Option<&str>,
) -> Result<Reference, ReferenceProblem> {
    if text.is_empty() {
        return Err(ReferenceProblem::Empty);
    }
    let (named, digest) = match text.split_once('@') {
        Some((named, digest)) => {
            let digest = Digest::parse(digest).ok_or(ReferenceProblem::Digest)?;
            (named, Some(digest))
        }
        None => (text, None),
    };
    let (registry, path, above) = match named.split_once('/') {
        Some((registry, path)) if is_registry_like(registry) => (registry, path, ""),
        slash => {
            let registry = default_registry.ok_or(ReferenceProblem::NoRegistry)?;
            let above = if slash.is_none() { LIBRARY } else { "" };
            (registry, named, above)
        }
    };
    if host_and_port(registry).is_none() {
        return Err(ReferenceProblem::Registry);
    }
    let (repository, tag) = match path.split_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (path, None),
    };
    if let Some(problem) = repository_problem(repository) {
        return Err(problem);
    }
    let repository = format!("{above}{repository}");
    if registry.len() + 1 + repository.len() > NAME_BYTES_MAX {
        return Err(ReferenceProblem::Long);
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(ReferenceProblem::Tag);
    }
    Ok(Reference {
        registry: registry.to_owned(),
        repository,
        tag: tag.map(str::to_owned),
        digest,
    })
}

/// Whether the part before the first `/` is a host, possibly an invalid one.
fn is_registry_like(text: &str) -> bool {
    text == "localhost" || text.contains(['.', ':', '[']) || text.chars().any(char::is_uppercase)
}

/// Splits a registry into host, without brackets, and port. `None` if the host is neither a host name
/// nor an IP address in canonical form, or the port is invalid.
pub(crate) fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    if text.ends_with(':') {
        return None;
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            let address: Ipv6Addr = host.parse().ok()?;
            if address.to_string() != host {
                return None;
            }
            (
                host,
                rest.strip_prefix(':').or(rest.is_empty().then_some(""))?,
            )
        }
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            if !is_host(host) {
                return None;
            }
            (host, port)
        }
    };
    match port {
        "" => Some((host, None)),
        port => Some((host, Some(parse_port(port)?))),
    }
}

fn is_host(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok()
        || HostName::parse(text.as_bytes())
            .is_ok_and(|host| host.as_str() == text && !text.contains('_'))
}

fn repository_problem(repository: &str) -> Option<ReferenceProblem> {
    if repository.is_empty() {
        return Some(ReferenceProblem::NoRepository);
    }
    if repository.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some(ReferenceProblem::Capital);
    }
    (!repository.split('/').all(is_component)).then_some(ReferenceProblem::Repository)
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_component(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends_in_letters = [text.bytes().next(), text.bytes().last()]
        .iter()
        .all(|byte| byte.is_some_and(is_letter));
    ends_in_letters
        && text
            .split(|letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit())
            .all(|between| {
                matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
            })
}

/// `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`
fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= TAG_BYTES_MAX
        && text.bytes().next().is_some_and(is_word)
        && text
            .bytes()
            .all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

/// Parses `DIRECTORY[:NAME|@sha256:HEX]`. A final `@sha256:` ends the directory, else the first `:`.
fn parse_layout(text: &str) -> Result<Place, ReferenceProblem> {
    if text.contains('\0') {
        return Err(ReferenceProblem::Nul);
    }
    let (directory, which) = match text.rsplit_once('@') {
        Some((directory, digest)) if digest.starts_with("sha256:") => {
            let digest = Digest::parse(digest).ok_or(ReferenceProblem::Digest)?;
            if directory.contains(':') {
                return Err(ReferenceProblem::NameAndDigest);
            }
            (directory, Which::Digest(digest))
        }
        _ => match text.split_once(':') {
            Some((_, name)) if name.is_empty() || name.len() > NAME_BYTES_MAX => {
                return Err(ReferenceProblem::LayoutName);
            }
            Some((directory, name)) => (directory, Which::Tag(name.to_owned())),
            None => (text, Which::Unnamed),
        },
    };
    if directory.is_empty() {
        return Err(ReferenceProblem::NoDirectory);
    }
    Ok(Place::Layout {
        directory: PathBuf::from(directory),
        which,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_reference_is_parsed_and_displayed_unchanged() {
        for (text, registry, repository, tag) in [
            ("registry.test/a", "registry.test", "a", None),
            ("localhost/a/b", "localhost", "a/b", None),
            ("127.0.0.1:5000/a:v1", "127.0.0.1:5000", "a", Some("v1")),
            ("[::1]:5000/a/b:_x.y-z", "[::1]:5000", "a/b", Some("_x.y-z")),
            ("[2001:db8::1]/a", "[2001:db8::1]", "a", None),
            (
                "r.test:443/a.b_c__d---e/f0",
                "r.test:443",
                "a.b_c__d---e/f0",
                None,
            ),
        ] {
            let read = Reference::parse(text).expect(text);
            let found = (
                read.registry.as_str(),
                read.repository.as_str(),
                read.tag.as_deref(),
            );
            assert_eq!(found, (registry, repository, tag), "{text}");
            assert_eq!(read.to_string(), text);
            let pinned = format!("{text}@{HEX}");
            let read = Reference::parse(&pinned).expect("pinned");
            assert_eq!(read.which(), Which::Digest(Digest::of(b"")));
            assert_eq!(read.to_string(), pinned);
        }
        let bare = |text| Reference::parse(text).expect(text).which();
        assert_eq!(bare("r.test/a"), Which::Unnamed);
        assert_eq!(bare("r.test/a:b"), Which::Tag("b".to_owned()));
        let host = |text| Reference::parse(text).expect(text).host().to_owned();
        assert_eq!(host("[::1]:5000/a"), "::1");
        assert_eq!(host("r.test:5000/a"), "r.test");
    }

    #[test]
    fn invalid_references_are_refused_with_their_problem() {
        let long = format!("r.test/{}", "a".repeat(249));
        let tag = format!("r.test/a:{}", "a".repeat(129));
        for (text, problem) in [
            ("", ReferenceProblem::Empty),
            ("name", ReferenceProblem::NoRegistry),
            ("team/name:tag", ReferenceProblem::NoRegistry),
            ("/name", ReferenceProblem::NoRegistry),
            // Docker and podman read a host only before a `/`.
            ("r.test", ReferenceProblem::NoRegistry),
            ("python:3.12", ReferenceProblem::NoRegistry),
            ("r.test/", ReferenceProblem::NoRepository),
            ("r.test/:tag", ReferenceProblem::NoRepository),
            ("R.test/a", ReferenceProblem::Registry),
            ("Host/a", ReferenceProblem::Registry),
            ("r_x.test/a", ReferenceProblem::Registry),
            ("-r.test/a", ReferenceProblem::Registry),
            ("r..test/a", ReferenceProblem::Registry),
            ("r.test./a", ReferenceProblem::Registry),
            ("r.test:/a", ReferenceProblem::Registry),
            ("r.test:0/a", ReferenceProblem::Registry),
            ("r.test:080/a", ReferenceProblem::Registry),
            ("r.test:65536/a", ReferenceProblem::Registry),
            ("r.test:5000x/a", ReferenceProblem::Registry),
            ("r.test:+80/a", ReferenceProblem::Registry),
            ("r.test:80:80/a", ReferenceProblem::Registry),
            ("user:word@r.test/a", ReferenceProblem::Digest),
            ("1.2.3/a", ReferenceProblem::Registry),
            ("256.1.1.1/a", ReferenceProblem::Registry),
            ("::1/a", ReferenceProblem::Registry),
            ("[::1/a", ReferenceProblem::Registry),
            ("[::1]x/a", ReferenceProblem::Registry),
            ("[::1]:/a", ReferenceProblem::Registry),
            ("[::0001]/a", ReferenceProblem::Registry),
            ("[fe80::1%eth0]/a", ReferenceProblem::Registry),
            ("[127.0.0.1]/a", ReferenceProblem::Registry),
            ("https://r.test/a", ReferenceProblem::Registry),
            ("r.test/A", ReferenceProblem::Capital),
            ("r.test/a/Bc", ReferenceProblem::Capital),
            ("r.test//a", ReferenceProblem::Repository),
            ("r.test/a/", ReferenceProblem::Repository),
            ("r.test/a//b", ReferenceProblem::Repository),
            ("r.test/..", ReferenceProblem::Repository),
            ("r.test/../a", ReferenceProblem::Repository),
            ("r.test/a..b", ReferenceProblem::Repository),
            ("r.test/a___b", ReferenceProblem::Repository),
            ("r.test/a._b", ReferenceProblem::Repository),
            ("r.test/-a", ReferenceProblem::Repository),
            ("r.test/a-", ReferenceProblem::Repository),
            ("r.test/a b", ReferenceProblem::Repository),
            ("r.test/a?b", ReferenceProblem::Repository),
            ("r.test/a%2fb", ReferenceProblem::Repository),
            ("r.test/ä", ReferenceProblem::Repository),
            ("r.test/a\nb", ReferenceProblem::Repository),
            (long.as_str(), ReferenceProblem::Long),
            ("r.test/a:", ReferenceProblem::Tag),
            ("r.test/a:.b", ReferenceProblem::Tag),
            ("r.test/a:-b", ReferenceProblem::Tag),
            ("r.test/a:b/c", ReferenceProblem::Tag),
            ("r.test/a:b:c", ReferenceProblem::Tag),
            ("r.test/a:ä", ReferenceProblem::Tag),
            (tag.as_str(), ReferenceProblem::Tag),
            ("r.test/a@", ReferenceProblem::Digest),
            ("r.test/a@sha256:abc", ReferenceProblem::Digest),
            ("r.test/a@sha512:abc", ReferenceProblem::Digest),
        ] {
            let error = Reference::parse(text).expect_err(text);
            assert_eq!(error.reason, problem, "{text}");
        }
        let upper = format!("r.test/a@{}", HEX.to_uppercase());
        assert!(Reference::parse(&upper).is_err());
        assert!(Reference::parse(&format!("r.test/a@{HEX}@{HEX}")).is_err());
    }

    #[test]
    fn a_short_name_is_read_as_by_docker_and_podman() {
        for (text, written) in [
            ("python", "r.test:5000/library/python"),
            ("python:3.12", "r.test:5000/library/python:3.12"),
            ("team/name", "r.test:5000/team/name"),
            ("team/name:1", "r.test:5000/team/name:1"),
            ("a/b/c", "r.test:5000/a/b/c"),
            ("library/python", "r.test:5000/library/python"),
            // With a host: a dot, a port, `localhost`.
            ("other.test/a", "other.test/a"),
            ("other:5000/a", "other:5000/a"),
            ("localhost/a", "localhost/a"),
            // Without a `/` it is not a host.
            ("other.test:5000", "r.test:5000/library/other.test:5000"),
            ("localhost", "r.test:5000/library/localhost"),
        ] {
            for digest in ["", "@"] {
                let pin = if digest.is_empty() { "" } else { HEX };
                let text = format!("docker://{text}{digest}{pin}");
                let place = Place::parse_with(&text, Some("r.test:5000")).expect(&text);
                assert_eq!(
                    place.to_string(),
                    format!("docker://{written}{digest}{pin}")
                );
            }
        }
        for (text, problem) in [
            ("docker://Python", ReferenceProblem::Capital),
            ("docker:///python", ReferenceProblem::Repository),
            ("docker://python:", ReferenceProblem::Tag),
            ("docker://team/", ReferenceProblem::Repository),
            ("docker://Host/a", ReferenceProblem::Registry),
        ] {
            let error = Place::parse_with(text, Some("r.test")).expect_err(text);
            assert_eq!(error.reason, problem, "{text}");
        }
        for (text, hint) in [
            (
                "docker://python:3.12",
                "docker://REGISTRY/library/python:3.12,",
            ),
            ("docker://team/name", "docker://REGISTRY/team/name,"),
            ("docker://python", "oci: {default_registry: REGISTRY}"),
            ("docker:///python", "registry.example.org/team/name"),
        ] {
            let error = Place::parse(text).expect_err(text);
            assert_eq!(error.reason, ReferenceProblem::NoRegistry);
            assert!(
                error.hint().is_some_and(|found| found.contains(hint)),
                "{text}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn any_valid_reference_is_displayed_unchanged(
            text in "[\\PC]{0,40}|[a-zA-Z0-9.:\\[\\]_-]{1,12}(/[a-zA-Z0-9._-]{0,6}){0,3}(:[a-z.]{0,4})?",
        ) {
            if let Ok(read) = Reference::parse(&text) {
                proptest::prop_assert_eq!(read.to_string(), text);
            }
        }
    }

    #[test]
    fn an_error_shows_the_start_of_the_text_escaped() {
        let error = Reference::parse(&format!("\x1b[31m{}", "x".repeat(4096))).expect_err("none");
        let text = error.to_string();
        assert!(!text.contains('\x1b') && text.len() < 400, "{text}");
        let error = Reference::parse("team/name").expect_err("none");
        assert!(error.hint().is_some_and(|hint| hint.contains("registry.")));
    }

    #[test]
    fn a_place_is_a_registry_or_a_layout() {
        for (text, directory, which) in [
            ("oci:/a/b", "/a/b", Which::Unnamed),
            ("oci:a", "a", Which::Unnamed),
            ("oci:/a:x/y:1", "/a", Which::Tag("x/y:1".to_owned())),
            ("oci:/a@b", "/a@b", Which::Unnamed),
            (
                &format!("oci:/a@{HEX}"),
                "/a",
                Which::Digest(Digest::of(b"")),
            ),
        ] {
            let place = Place::parse(text).expect(text);
            assert_eq!(place.which(), which, "{text}");
            assert_eq!(place.to_string(), text);
            let directory = PathBuf::from(directory);
            assert_eq!(place, Place::Layout { directory, which });
        }
        let place = Place::parse("docker://r.test/a:b").expect("a registry");
        assert_eq!(place.to_string(), "docker://r.test/a:b");
        for (text, problem) in [
            ("r.test/a", ReferenceProblem::Transport),
            ("docker:r.test/a", ReferenceProblem::Transport),
            ("docker://name", ReferenceProblem::NoRegistry),
            ("oci:", ReferenceProblem::NoDirectory),
            ("oci::name", ReferenceProblem::NoDirectory),
            ("oci:/a:", ReferenceProblem::LayoutName),
            ("oci:/a\0", ReferenceProblem::Nul),
            ("oci:/a@sha256:1", ReferenceProblem::Digest),
            (
                &format!("oci:/a:name@{HEX}"),
                ReferenceProblem::NameAndDigest,
            ),
        ] {
            let error = Place::parse(text).expect_err(text);
            assert_eq!(error.reason, problem, "{text}");
        }
    }
}
