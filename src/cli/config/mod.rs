//! The configuration files: found, read and merged into the host policy.
//!
//! In order: `/etc/runner/config.yaml`, the user's `runner/config.yaml` below `XDG_CONFIG_HOME`
//! or `~/.config` (not for uid 0), the file of `--policy`. The first two may be missing. Every
//! key is optional:
//!
//! ```yaml
//! maxima: { memory: 4g, timeout: 1h, processes: 4096 } # binds flags and manifests; built in are these, for a bundle's own manifest only
//! grants: [secrets]          # egress secrets env mounts sources outputs policy, or all
//! deny_grants: [egress]      # what no later file and no flag may grant
//! uid_range: { first: 1879048192, last: 1879113727 } # uids of bodies where root runs them
//! cgroup_parent: /runner     # runs get their cgroup below it
//! interpreters: [/opt/python] # programs below may be made visible
//! unpack: { archive: 100m, unpacked: 1g, entries: 100000 }
//! runtime_directory: /run/runner
//! egress:                    # for every run, whoever grants
//!   allow: [api.example.com:443, "*.example.org"] # at most these; [] is nobody
//!   private_ranges: [10.0.0.0/8, "fd00::/8"]      # private addresses that names may have
//!   refuse_ech: true         # no TLS hello that hides another one inside
//! secrets:
//!   provider: { directory: /etc/runner/secrets } # one file for each slug; or one of
//!   # provider: { environment: VAULT_ }          # variables of the caller with this prefix
//!   # provider: { command: [/usr/bin/vault, read] } # the slug comes last, the value on stdout
//!   inventory: /etc/runner/SECRETS.md # who may have what
//! refs: { "@owner/name": /etc/runner/refs/name.yaml } # what registry slugs stand for
//! images:                    # templates beside the built-in ones
//!   - id: python-3.12        # letters, digits, `-`, `_`, `.`; stated once in all files
//!     languages: [python]    # node python multi
//!     native: [libpango-1.0-0] # packages that are baked in, by their Debian names
//!     npm: [typescript@5.4.2] # the same of npm and pip: where a program of a bundle finds them
//!     pip: [requests==2.31.0]
//!     cost_tier: 1           # 0 for the lightest
//!     source: "docker://registry.example.org/python:3.12" # or oci:DIRECTORY; none: not built yet
//! cache:
//!   directory: /var/cache/runner # fetched sources
//!   size: 5g
//!   bundles:                 # unpacked bundles; in memory unless a directory is stated
//!     directory: /var/cache/runner/bundles
//!     size: 512m
//!     off: true              # keep none, use none
//!     copy: true             # give each body a copy, though an overlayfs could be laid out
//! github: { base_url: "https://api.github.com", token: "file:/etc/runner/token" } # or env:NAME
//! oci:                       # images and workspace sources from registries
//!   directory: /var/cache/runner/oci # what was pulled, on disk
//!   size: 20g
//!   layer: 4g                # one layer as it is sent
//!   unpacked: 16g            # and its files
//!   entries: 1000000
//!   ca_file: /etc/runner/registry.pem # certificates that are trusted beside the host's
//!   insecure: [registry.example.org:5000] # registries without TLS
//!   default_registry: registry.example.org # of images with a short name: docker://python:3.12
//!   copy: true               # give each body a copy, though an overlayfs could be laid out
//!   root_read_only: true     # no body writes the root of its image
//! require_pin: true          # refuse branches and tags where a commit can be named
//! preparation:               # where `needs` of `engine: sandbox` are installed from
//!   apt:                     # native packages; without sources the image's own lists
//!     sources: ["deb https://deb.example.org/debian trixie main"]
//!     trusted_keys: /etc/runner/apt.asc # instead of the image's own
//!   npm: { registry: "https://registry.example.org/" }
//!   pip: { index: "https://index.example.org/simple/" }
//!   allow: [files.example.org] # whom a preparation run reaches, instead of the hosts above
//!   allow_private: [10.1.0.0/16] # private addresses that those names may have
//!   ca_file: /etc/runner/ca.pem # vouches for them, instead of the image's certificates
//!   # what is written is memory too; each 2 KiB of memory have room for one file
//!   limits: { memory: 2g, timeout: 10m, disk: 1g }
//! syscalls: strict           # fewer system calls for every run; `default` is the other value
//! ```
//!
//! What a later file may change is said at [`merge`].

mod elsewhere;
mod preparation;
mod scalars;
mod written;

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::cli::config::written::Written;
use crate::cli::surroundings::Surroundings;
use spec::did_you_mean::nearest;
use spec::host_policy::{ForbiddenGrant, HostPolicy, ImageTwice, Statement, check_images, merge};
use spec::path::escape;
use spec::report::ErrorReport;

const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most YAML nodes in one file, aliases counted as often as they are used.
const NODES_MAX: usize = 10_000;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is there, or was asked for, and cannot be read.
    #[error("the configuration file {file} cannot be read")]
    Unreadable {
        file: String,
        #[source]
        source: std::io::Error,
    },
    /// Larger than 1 MiB.
    #[error("the configuration file {file} is larger than 1 MiB")]
    TooLarge { file: String },
    /// It does not say what a configuration file may say.
    #[error("{file}:{line}:{column}: {message}")]
    Invalid {
        file: String,
        /// Counted from 1.
        line: u64,
        /// Counted from 1.
        column: u64,
        /// What was found and what was expected.
        message: String,
        /// The nearest known word.
        hint: Option<String>,
    },
    /// An image template that is there already.
    #[error("{again}: the image `{id}` is in {first} already; neither may replace the other")]
    ImageTwice {
        id: String,
        /// The file that states it first, escaped.
        first: String,
        /// The file that states it again, escaped.
        again: String,
    },
}

impl ConfigError {
    /// The error as the report has it.
    #[must_use]
    pub fn report(&self) -> ErrorReport {
        let (code, hint) = match self {
            Self::Unreadable { .. } => ("policy_unreadable", None),
            Self::TooLarge { .. } => ("policy_invalid", None),
            Self::ImageTwice { .. } => (
                "policy_invalid",
                Some("give one of the two another id".to_owned()),
            ),
            Self::Invalid { hint, .. } => ("policy_invalid", hint.clone()),
        };
        ErrorReport {
            code: code.to_owned(),
            message: spec::report::with_causes(self),
            hint,
        }
    }
}

/// The policy of this host for this caller, and the grants that did not count.
///
/// # Errors
/// A file that is there and cannot be read or understood; a missing one of `--policy`.
pub fn load(
    surroundings: &Surroundings,
    policy: Option<&Path>,
) -> Result<(HostPolicy, Vec<ForbiddenGrant>), ConfigError> {
    Ok(merge(&statements(surroundings, policy)?))
}

/// What each of the files states, earliest first.
///
/// # Errors
/// As [`load`].
pub fn statements(
    surroundings: &Surroundings,
    policy: Option<&Path>,
) -> Result<Vec<Statement>, ConfigError> {
    let mut statements = Vec::new();
    for file in surroundings.config_files() {
        statements.extend(read(&file, true)?);
    }
    if let Some(file) = policy {
        statements.extend(read(file, false)?);
    }
    check_images(&statements)
        .map_err(|ImageTwice { id, first, again }| ConfigError::ImageTwice { id, first, again })?;
    Ok(statements)
}

fn read(path: &Path, may_be_missing: bool) -> Result<Option<Statement>, ConfigError> {
    let file = escape(path.as_os_str().as_bytes());
    let opened = match std::fs::File::open(path) {
        Err(error) if may_be_missing && is_missing(&error) => return Ok(None),
        other => other,
    };
    let mut bytes = Vec::new();
    opened
        .and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|source| ConfigError::Unreadable {
            file: file.clone(),
            source,
        })?;
    if FILE_BYTES_MAX < u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        return Err(ConfigError::TooLarge { file });
    }
    parse(&file, &bytes).map(Some)
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
    )
}

/// Reads the bytes of one configuration file; `file` is its name for messages.
///
/// # Errors
/// [`ConfigError::Invalid`] with the place of the first thing that is wrong.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Statement, ConfigError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line_start = before.iter().rposition(|byte| *byte == b'\n');
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        let column = before.len() - line_start.map_or(0, |at| at + 1);
        ConfigError::Invalid {
            file: file.to_owned(),
            line: u64::try_from(lines + 1).unwrap_or(u64::MAX),
            column: u64::try_from(column + 1).unwrap_or(u64::MAX),
            message: "a byte that is not UTF-8".to_owned(),
            hint: None,
        }
    })?;
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        reject_unsupported_tags: true,
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        budget: serde_saphyr::budget! { max_nodes: NODES_MAX },
    };
    let written: Option<Written> = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| invalid(file, &error))?;
    Ok(written.unwrap_or_default().statement(file))
}

fn invalid(file: &str, error: &serde_saphyr::Error) -> ConfigError {
    use serde_saphyr::Error as Yaml;
    let error = error.without_snippet();
    let place = error.location();
    let unknown = |what: &str, found: &str, known: &[&'static str]| {
        let hint = match nearest(found, known.iter().copied()) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("known: {}", known.join(", ")),
        };
        (
            format!("unknown {what} `{}`", escape(found.as_bytes())),
            Some(hint),
        )
    };
    let (message, hint) = match error {
        Yaml::SerdeUnknownField {
            field, expected, ..
        } => unknown("key", field, expected),
        Yaml::SerdeUnknownVariant {
            variant, expected, ..
        } => unknown("word", variant, expected),
        Yaml::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("?");
            (format!("duplicate key `{}`", escape(key.as_bytes())), None)
        }
        Yaml::Message { msg, .. } => (escape(msg.as_bytes()), None),
        Yaml::InvalidScalar { ty, .. } if matches!(*ty, "u64" | "u32") => {
            ("expected a whole number such as 4096".to_owned(), None)
        }
        Yaml::MultipleDocuments { .. } => ("a second document: expected one".to_owned(), None),
        Yaml::Budget { .. } => (
            format!("expected at most {NODES_MAX} values, aliases counted as often as used"),
            None,
        ),
        other => (without_place(&other.to_string()), None),
    };
    ConfigError::Invalid {
        file: file.to_owned(),
        line: place.map_or(1, |place| place.line()),
        column: place.map_or(1, |place| place.column()),
        message,
        hint,
    }
}

/// The place is said once already, in front.
fn without_place(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.rsplit_once(" at line ").map_or(line, |(what, _)| what);
    let plain = match line {
        "expected sequence start" => "expected a list, such as [a, b]",
        "expected mapping start" => "expected a map, such as {key: value}",
        line if line.starts_with("invalid boolean") => "expected true or false",
        line => line,
    };
    escape(plain.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use spec::egress::EgressRule;
    use spec::host_policy::{AtLine, UidRange, grants_named};
    use spec::image::ImageTemplate;
    use spec::oci_policy::OciStatement;
    use spec::preparation::{AptSource, IndexUrl, PreparationStatement};
    use spec::request::Grants;
    use spec::runner_block::Language;
    use spec::sources_policy::{BundleCachePolicy, IpRange, SecretsProvider};
    use spec::syscall_policy::SyscallPolicyName;

    fn at_line<T>(value: T) -> Option<AtLine<T>> {
        Some(AtLine { value, line: 1 })
    }

    fn refused(text: &str) -> String {
        let error = parse("f", text.as_bytes()).map(drop).expect_err(text);
        let report = error.report();
        assert_eq!(report.code, "policy_invalid");
        format!("{} | {}", report.message, report.hint.unwrap_or_default())
    }

    #[test]
    fn the_wrong_kind_of_value_is_told_in_the_words_of_the_file() {
        for (text, says) in [
            (
                "egress: {allow: a}",
                "f:1:17: expected a list, such as [a, b]",
            ),
            ("images: {}", "f:1:9: expected a list"),
            ("egress: [a]", "f:1:9: expected a map, such as {key: value}"),
            ("require_pin: maybe", "f:1:14: expected true or false"),
            ("- a", "f:1:1: expected a map"),
        ] {
            let told = refused(text);
            assert!(told.starts_with(says), "{text}: {told}");
        }
    }

    const EVERY_KEY: &str = "maxima: { memory: 2g, timeout: 5m, processes: 100 }\n\
              grants: [secrets]\n\
              deny_grants: [all]\n\
              uid_range: { first: 200000, last: 265535 }\n\
              cgroup_parent: /runner\n\
              interpreters: [/opt/a, /opt/b]\n\
              unpack: { archive: 1m, unpacked: 512, entries: 7 }\n\
              runtime_directory: /run/r\n\
              egress: { allow: [A.com:443, '*.b.org'], private_ranges: [10.0.0.0/8, 'fd00::/8'], refuse_ech: true }\n\
              secrets: { provider: { directory: /s }, inventory: /s/SECRETS.md }\n\
              refs: { '@o/n': /r/n.yaml, '@o/code/m': /r/m }\n\
              images:\n\
              - { id: py-3.12, languages: [python, multi], native: [libpango-1.0-0], pip: [six==1.16.0], cost_tier: 2, source: 'oci:/img' }\n\
              - { id: n, languages: [node], npm: ['@s/a'], cost_tier: 0 }\n\
              cache: { directory: /c, size: 2g, bundles: { directory: /b, size: 1m, off: true, copy: true } }\n\
              github: { base_url: 'https://git.example.com/api/v3/', token: 'file:/s/token' }\n\
              oci: { directory: /o, size: 3g, layer: 1m, unpacked: 2m, entries: 8, ca_file: /o.pem, insecure: ['R.test:5000', '[::1]'], default_registry: 'D.test:5000', copy: true, root_read_only: true }\n\
              require_pin: true\n\
              preparation:\n\
              \x20 apt: { sources: ['deb http://d.example.org/ ./'], trusted_keys: /k.asc }\n\
              \x20 npm: { registry: 'https://n.example.org/' }\n\
              \x20 pip: { index: 'https://p.example.org/simple/' }\n\
              \x20 allow: [f.example.org]\n\
              \x20 allow_private: [10.0.0.0/8]\n\
              \x20 ca_file: /ca.pem\n\
              \x20 limits: { memory: 1g, timeout: 1m, disk: 1m }\n\
              syscalls: strict\n";

    #[test]
    fn every_documented_key_is_read() {
        let statement = parse("f", EVERY_KEY.as_bytes()).expect("well formed");
        let expected = Statement {
            origin: "f".to_owned(),
            memory_bytes: at_line(2 << 30),
            wall_time: at_line(Duration::from_secs(300)),
            processes: at_line(100),
            grants: grants_named("secrets").expect("a name"),
            deny_grants: grants_named("all").expect("a name"),
            uid_range: Some(UidRange {
                first: 200_000,
                last: 265_535,
            }),
            cgroup_parent: Some("/runner".to_owned()),
            interpreters: vec!["/opt/a".into(), "/opt/b".into()],
            archive_bytes: Some(1 << 20),
            unpacked_bytes: Some(512),
            entries: Some(7),
            runtime_directory: Some("/run/r".into()),
            egress_allow: Some(
                ["a.com:443", "*.b.org"]
                    .map(|rule| EgressRule::parse(rule).expect(rule))
                    .to_vec(),
            ),
            private_ranges: Some(
                ["10.0.0.0/8", "fd00::/8"]
                    .map(|range| IpRange::parse(range).expect(range))
                    .to_vec(),
            ),
            refuse_ech: true,
            secrets_provider: Some(SecretsProvider::Directory("/s".into())),
            secrets_inventory: Some("/s/SECRETS.md".into()),
            refs: [
                ("@o/n".to_owned(), PathBuf::from("/r/n.yaml")),
                ("@o/code/m".to_owned(), "/r/m".into()),
            ]
            .into(),
            images: vec![
                ImageTemplate {
                    id: "py-3.12".to_owned(),
                    languages: vec![Language::Python, Language::Multi],
                    native: vec!["libpango-1.0-0".to_owned()],
                    npm: Vec::new(),
                    pip: vec!["six==1.16.0".to_owned()],
                    cost_tier: 2,
                    source: Some("oci:/img".to_owned()),
                },
                ImageTemplate {
                    id: "n".to_owned(),
                    languages: vec![Language::Node],
                    native: Vec::new(),
                    npm: vec!["@s/a".to_owned()],
                    pip: Vec::new(),
                    cost_tier: 0,
                    source: None,
                },
            ],
            cache_directory: Some("/c".into()),
            cache_bytes: Some(2 << 30),
            bundle_cache: BundleCachePolicy {
                directory: Some("/b".into()),
                size_bytes: Some(1 << 20),
                off: true,
                copy: true,
            },
            github_base_url: Some("https://git.example.com/api/v3".to_owned()),
            github_token: Some("file:/s/token".to_owned()),
            oci: OciStatement {
                directory: Some("/o".into()),
                size_bytes: Some(3 << 30),
                archive_bytes: Some(1 << 20),
                unpacked_bytes: Some(2 << 20),
                entries: Some(8),
                ca_file: Some("/o.pem".into()),
                insecure: vec!["r.test:5000".to_owned(), "[::1]".to_owned()],
                default_registry: Some("d.test:5000".to_owned()),
                copy: true,
                root_read_only: true,
            },
            require_pin: true,
            preparation: PreparationStatement {
                apt: Some((
                    vec![AptSource::parse("deb http://d.example.org/ ./").expect("a source")],
                    Some("/k.asc".into()),
                )),
                npm: Some(IndexUrl::parse("https://n.example.org/").expect("a URL")),
                pip: Some(IndexUrl::parse("https://p.example.org/simple/").expect("a URL")),
                allow: Some(vec![EgressRule::parse("f.example.org").expect("a rule")]),
                allow_private: Some(vec![IpRange::parse("10.0.0.0/8").expect("a range")]),
                ca_file: Some("/ca.pem".into()),
                memory_bytes: Some(1 << 30),
                wall_time: Some(Duration::from_secs(60)),
                disk_bytes: Some(1 << 20),
            },
            syscalls: Some(SyscallPolicyName::Strict),
        };
        assert_eq!(statement, expected);
    }

    #[test]
    fn a_file_with_comments_only_states_nothing() {
        for text in ["", "# nothing\n", "---\n"] {
            let statement = parse("f", text.as_bytes()).expect(text);
            assert_eq!(statement.memory_bytes, None);
            assert_eq!(statement.grants, Grants::default());
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_where_they_stand() {
        let error = parse("f", b"# a\n# \xff\n").map(drop).expect_err("no text");
        assert_eq!(error.to_string(), "f:2:3: a byte that is not UTF-8");
    }

    #[test]
    fn each_provider_of_secrets_is_read() {
        for (text, expected) in [
            (
                "{ environment: VAULT_ }",
                SecretsProvider::Environment {
                    prefix: "VAULT_".to_owned(),
                },
            ),
            (
                "{ command: [/usr/bin/vault, read, -field=value] }",
                SecretsProvider::Command(
                    ["/usr/bin/vault", "read", "-field=value"]
                        .map(str::to_owned)
                        .to_vec(),
                ),
            ),
        ] {
            let text = format!("secrets: {{ provider: {text} }}");
            let statement = parse("f", text.as_bytes()).expect(&text);
            assert_eq!(statement.secrets_provider, Some(expected), "{text}");
        }
    }

    #[test]
    fn a_secret_in_a_configuration_file_is_not_repeated() {
        const SECRET: &str = "ghp_0123456789abcdef";
        for text in [
            format!("github: {{ token: {SECRET} }}"),
            format!("github: {{ token: 'file:{SECRET}' }}"),
            format!("github: {{ base_url: 'https://{SECRET}@h' }}"),
            format!("secrets: {{ provider: {{ command: [v, {SECRET}] }} }}"),
            format!("preparation: {{ npm: {{ registry: 'https://{SECRET}@h/' }} }}"),
            format!("preparation: {{ apt: {{ sources: ['deb https://{SECRET}@h/ ./'] }} }}"),
        ] {
            let error = refused(&text);
            assert!(!error.contains("0123456789"), "{error}");
        }
    }

    /// G-01: whether a key is known is only seen after the value was read.
    #[test]
    fn a_bomb_of_aliases_is_refused_before_it_grows() {
        let mut text = String::from("interpreters:\n- &a0 [/x, /x, /x, /x, /x, /x, /x, /x, /x]\n");
        for level in 1..10 {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            text.push_str(&format!("- &a{level} [{aliases}]\n"));
        }
        refused(&text);
        let many = "grants: [".to_owned() + &"env, ".repeat(20_000) + "]";
        assert!(refused(&many).starts_with("f:1:"), "{}", refused(&many));
    }

    #[test]
    fn a_missing_policy_is_an_error_and_a_missing_configuration_is_none() {
        let surroundings = Surroundings {
            variables: [("HOME".into(), "/nonexistent".into())].into(),
            uid: 1000,
            ..Surroundings::default()
        };
        let (policy, forbidden) = load(&surroundings, None).expect("nothing to read");
        assert_eq!(policy, HostPolicy::default());
        assert!(forbidden.is_empty());
        let error =
            load(&surroundings, Some(Path::new("/nonexistent/policy"))).expect_err("missing");
        assert_eq!(error.report().code, "policy_unreadable");
        assert!(error.to_string().contains("/nonexistent/policy"), "{error}");
    }

    #[test]
    fn an_image_of_two_files_is_refused_with_both_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let image = "images: [{ id: a, languages: [node], cost_tier: 0 }]\n";
        std::fs::create_dir(directory.path().join("runner")).expect("made");
        std::fs::write(directory.path().join("runner/config.yaml"), image).expect("written");
        let flag = directory.path().join("policy.yaml");
        std::fs::write(&flag, image).expect("written");
        let surroundings = Surroundings {
            variables: [("XDG_CONFIG_HOME".into(), directory.path().into())].into(),
            uid: 1000,
            ..Surroundings::default()
        };
        let error = load(&surroundings, Some(&flag)).expect_err("twice");
        assert_eq!(error.report().code, "policy_invalid");
        let message = error.to_string();
        assert!(message.contains("policy.yaml: the image `a`"), "{message}");
        assert!(message.contains("runner/config.yaml already"), "{message}");
    }

    #[test]
    fn the_file_of_the_flag_cannot_loosen_the_users() {
        let directory = tempfile::tempdir().expect("a directory");
        let users = directory.path().join("runner");
        std::fs::create_dir(&users).expect("made");
        std::fs::write(
            users.join("config.yaml"),
            "maxima: { memory: 1g }\ndeny_grants: [egress]\n",
        )
        .expect("written");
        let flag = directory.path().join("policy.yaml");
        std::fs::write(&flag, "maxima: { memory: 8g }\ngrants: [egress, env]\n").expect("written");
        let surroundings = Surroundings {
            variables: [("XDG_CONFIG_HOME".into(), directory.path().into())].into(),
            uid: 1000,
            ..Surroundings::default()
        };
        let (policy, forbidden) = load(&surroundings, Some(&flag)).expect("readable");
        assert_eq!(policy.maxima.memory_bytes.value, 1 << 30);
        assert!(policy.grants.env && !policy.grants.egress);
        assert_eq!(forbidden[0].grant, "egress");
        assert!(forbidden[0].forbidden_by.ends_with("runner/config.yaml"));
    }
}
