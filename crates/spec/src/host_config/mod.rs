//! Parses a configuration file, or the file of `--policy`: docs/configuration.md has an example.
//!
//! The schemas `config` and `policy` are generated from [`Statement`] and its parts, the `Written…`
//! types. [`merge`](crate::host_policy::merge) has the rules for several files.

mod external;
mod preparation;
mod scalars;
mod statement;

pub(crate) use external::WrittenProvider;
pub use external::{
    BaseUrl, RegistryHost, Slug, Token, WrittenBundleCache, WrittenCache, WrittenEgress,
    WrittenFlags, WrittenGitHub, WrittenOci, WrittenSecrets,
};
pub use preparation::{WrittenApt, WrittenLimits, WrittenNpm, WrittenPip, WrittenPreparation};
pub use scalars::{AbsolutePath, Count, HostPath, Size, Time};
pub(crate) use statement::WrittenUidRange;
pub use statement::{AtLine, Statement, WrittenMaxima, WrittenUnpack};

use crate::did_you_mean::nearest;
use crate::document::{Place, SourceLine};
use crate::path::escape;

/// Maximum number of YAML nodes in one file. Aliases count as often as they are used.
const NODES_MAX: usize = 10_000;

/// An error in a configuration file, with its location.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct InvalidConfig {
    file: String,
    /// Counted from 1.
    line: u64,
    /// In characters, counted from 1.
    column: u64,
    message: String,
    pub hint: Option<String>,
    pub source_line: Option<Box<SourceLine>>,
}

impl InvalidConfig {
    fn with_source_line(mut self, text: &[u8]) -> Self {
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let place = Place {
            line: number(self.line),
            column: number(self.column),
        };
        self.source_line = SourceLine::find(text, place).map(Box::new);
        self
    }
}

/// Parses the bytes of a configuration file; `file` is its name for messages.
///
/// # Errors
/// [`InvalidConfig`]: the first error.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Statement, InvalidConfig> {
    let text = std::str::from_utf8(bytes).map_err(|_invalid| {
        let before = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let line = before.rsplit('\n').next().unwrap_or(before);
        InvalidConfig {
            file: file.to_owned(),
            line: before.matches('\n').count() as u64 + 1,
            column: line.chars().count() as u64 + 1,
            message: "a byte that is not UTF-8".to_owned(),
            hint: None,
            source_line: None,
        }
        .with_source_line(bytes)
    })?;
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        reject_unsupported_tags: true,
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        budget: serde_saphyr::budget! { max_nodes: NODES_MAX },
    };
    let statement: Option<Statement> = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| invalid(file, &error).with_source_line(bytes))?;
    Ok(Statement {
        origin: file.to_owned(),
        ..statement.unwrap_or_default()
    })
}

fn invalid(file: &str, error: &serde_saphyr::Error) -> InvalidConfig {
    use serde_saphyr::Error as Yaml;
    let error = error.without_snippet();
    let location = error.location();
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
        Yaml::SerdeMissingField { field, .. } => (format!("the key `{field}` is missing"), None),
        Yaml::MergeKeyNotAllowed { .. } => ("merge keys (`<<`) are not supported".to_owned(), None),
        Yaml::Budget { .. } => (
            format!("expected at most {NODES_MAX} values, aliases counted as often as used"),
            None,
        ),
        other => (without_location(&other.to_string()), None),
    };
    InvalidConfig {
        file: file.to_owned(),
        line: location.map_or(1, |location| location.line()),
        column: location.map_or(1, |location| location.column()),
        message,
        hint,
        source_line: None,
    }
}

/// Removes the location from a message of the parser: [`InvalidConfig`] starts with it.
fn without_location(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.rsplit_once(" at line ").map_or(line, |(what, _)| what);
    let plain = match line {
        "expected sequence start" => "expected a list, such as [a, b]",
        "expected mapping start" => "expected a map, such as {key: value}",
        "expected string scalar" => "expected text",
        line if line.starts_with("cannot deserialize null") => "expected text, found no value",
        line if line.starts_with("externally tagged enum") => "expected text",
        line if line.starts_with("invalid boolean") => "expected true or false",
        line => line,
    };
    escape(plain.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::egress::EgressRule;
    use crate::host_policy::{UidRange, grants_named};
    use crate::image::ImageTemplate;
    use crate::preparation::{AptSource, IndexUrl};
    use crate::request::Grants;
    use crate::runner_block::Language;
    use crate::sources_policy::{IpRange, SecretsProvider};
    use crate::syscall_policy::SyscallPolicyName;

    fn at_line<T>(value: T) -> Option<AtLine<T>> {
        Some(AtLine { value, line: 1 })
    }

    fn path(text: &str) -> AbsolutePath {
        AbsolutePath(text.to_owned())
    }

    fn refused(text: &str) -> String {
        let error = parse("f", text.as_bytes()).map(drop).expect_err(text);
        let hint = error.hint.as_deref().unwrap_or_default();
        format!("{error} | {hint}")
    }

    #[test]
    fn type_errors_use_the_terms_of_yaml() {
        for (text, expected) in [
            (
                "egress: {allow: a}",
                "f:1:17: expected a list, such as [a, b]",
            ),
            ("images: {}", "f:1:9: expected a list"),
            ("egress: [a]", "f:1:9: expected a map, such as {key: value}"),
            ("require_pin: maybe", "f:1:14: expected true or false"),
            ("- a", "f:1:1: expected a map"),
            ("maxima: {memory: [1]}", "f:1:18: expected text"),
            ("cgroup_parent:", "f:1:14: expected text, found no value"),
            ("grants: [null]", "f:1:10: expected text, found no value"),
            ("syscalls: [strict]", "f:1:11: expected text"),
            ("uid_range: {first: 3}", "f:1:13: the key `last` is missing"),
            ("<<: {}", "f:1:1: merge keys (`<<`) are not supported"),
        ] {
            let error = refused(text);
            assert!(error.starts_with(expected), "{text}: {error}");
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
              syscalls: strict\n\
              audit: required\n\
              flags: { ro: [., /opt/tool], rw: [out], allow_net: ['a.com:443'] }\n";

    #[test]
    #[expect(clippy::too_many_lines, reason = "every key")]
    fn every_documented_key_is_read() {
        let statement = parse("f", EVERY_KEY.as_bytes()).expect("well formed");
        let expected = Statement {
            origin: "f".to_owned(),
            maxima: WrittenMaxima {
                memory: at_line(Size(2 << 30)),
                timeout: at_line(Time(Duration::from_secs(300))),
                processes: at_line(Count(100)),
            },
            grants: grants_named("secrets").expect("a name"),
            deny_grants: grants_named("all").expect("a name"),
            uid_range: Some(UidRange {
                first: 200_000,
                last: 265_535,
            }),
            cgroup_parent: Some(path("/runner")),
            interpreters: vec![path("/opt/a"), path("/opt/b")],
            unpack: WrittenUnpack {
                archive: Some(Size(1 << 20)),
                unpacked: Some(Size(512)),
                entries: Some(Count(7)),
            },
            runtime_directory: Some(path("/run/r")),
            egress: WrittenEgress {
                allow: Some(
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
            },
            secrets: WrittenSecrets {
                provider: Some(SecretsProvider::Directory("/s".into())),
                inventory: Some(path("/s/SECRETS.md")),
            },
            refs: [("@o/n", "/r/n.yaml"), ("@o/code/m", "/r/m")]
                .map(|(slug, file)| (Slug(slug.to_owned()), path(file)))
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
            cache: WrittenCache {
                directory: Some(path("/c")),
                size: Some(Size(2 << 30)),
                bundles: WrittenBundleCache {
                    directory: Some(path("/b")),
                    size: Some(Size(1 << 20)),
                    off: true,
                    copy: true,
                },
            },
            github: WrittenGitHub {
                base_url: Some(BaseUrl("https://git.example.com/api/v3".to_owned())),
                token: Some(Token("file:/s/token".to_owned())),
            },
            oci: WrittenOci {
                directory: Some(path("/o")),
                size: Some(Size(3 << 30)),
                layer: Some(Size(1 << 20)),
                unpacked: Some(Size(2 << 20)),
                entries: Some(Count(8)),
                ca_file: Some(path("/o.pem")),
                insecure: ["r.test:5000", "[::1]"]
                    .map(|host| RegistryHost(host.to_owned()))
                    .to_vec(),
                default_registry: Some(RegistryHost("d.test:5000".to_owned())),
                copy: true,
                root_read_only: true,
            },
            require_pin: true,
            preparation: WrittenPreparation {
                apt: Some(WrittenApt {
                    sources: vec![
                        AptSource::parse("deb http://d.example.org/ ./").expect("a source"),
                    ],
                    trusted_keys: Some(path("/k.asc")),
                }),
                npm: Some(WrittenNpm {
                    registry: IndexUrl::parse("https://n.example.org/").expect("a URL"),
                }),
                pip: Some(WrittenPip {
                    index: IndexUrl::parse("https://p.example.org/simple/").expect("a URL"),
                }),
                allow: Some(vec![EgressRule::parse("f.example.org").expect("a rule")]),
                allow_private: Some(vec![IpRange::parse("10.0.0.0/8").expect("a range")]),
                ca_file: Some(path("/ca.pem")),
                limits: WrittenLimits {
                    memory: Some(Size(1 << 30)),
                    timeout: Some(Time(Duration::from_secs(60))),
                    disk: Some(Size(1 << 20)),
                },
            },
            syscalls: Some(SyscallPolicyName::Strict),
            audit: Some(crate::history::AuditPolicy::Required),
            flags: WrittenFlags {
                ro: [".", "/opt/tool"]
                    .map(|path| HostPath(path.to_owned()))
                    .to_vec(),
                rw: vec![HostPath("out".to_owned())],
                allow_net: vec![EgressRule::parse("a.com:443").expect("a rule")],
            },
        };
        assert_eq!(statement, expected);
    }

    #[test]
    fn a_file_with_comments_only_states_nothing() {
        for text in ["", "# nothing\n", "---\n"] {
            let statement = parse("f", text.as_bytes()).expect(text);
            assert_eq!(statement.maxima.memory, None);
            assert_eq!(statement.grants, Grants::default());
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_refused_with_their_location() {
        for (bytes, place) in [
            (&b"# a\n# \xff\n"[..], "f:2:3"),
            (b"# \xc3\xbc\xff", "f:1:4"),
        ] {
            let error = parse("f", bytes).map(drop).expect_err("no text");
            assert_eq!(
                error.to_string(),
                format!("{place}: a byte that is not UTF-8")
            );
        }
    }

    #[test]
    fn an_unknown_grant_is_refused_at_its_place() {
        for (text, expected) in [
            (
                "grants: [env, egres]",
                "f:1:15: unknown word `egres` | did you mean `egress`?",
            ),
            (
                "deny_grants: [x]",
                "f:1:15: unknown word `x` | known: egress, secrets, env, mounts, sources, outputs, \
                 policy, all",
            ),
        ] {
            assert_eq!(refused(text), expected);
        }
    }

    #[test]
    fn a_registry_is_written_as_in_references() {
        for text in ["R.test", "localhost:5000", "127.0.0.1", "[::1]:5000"] {
            let read = RegistryHost::try_from(text.to_owned());
            assert_eq!(read, Ok(RegistryHost(text.to_ascii_lowercase())));
        }
        for text in [
            "",
            "a_b.test",
            "r.test.",
            "r.test:",
            "r.test:080",
            "r.test:0",
            "[::0]",
            "http://r.test",
            "r.test/a",
        ] {
            assert!(RegistryHost::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_base_url_has_tls_or_is_on_loopback() {
        for text in [
            "https://git.example.com/api/v3",
            "https://10.0.0.1:8443",
            "http://localhost:80/x",
            "http://[::1]",
        ] {
            let read = BaseUrl::try_from(format!("{text}/"));
            assert_eq!(read, Ok(BaseUrl(text.to_owned())));
        }
        for text in [
            "http://git.example.com",
            "http://[::1]example.com",
            "http://localhost:x",
            "https://",
            "https://:443",
            "https://*.example.com",
            "https://user@example.com",
            "ftp://localhost",
        ] {
            assert!(BaseUrl::try_from(text.to_owned()).is_err(), "{text}");
        }
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
            assert_eq!(statement.secrets.provider, Some(expected), "{text}");
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
}
