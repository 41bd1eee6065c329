//! The configuration files: found, read and merged into the host policy.
//!
//! In order: `/etc/runner/config.yaml`, the user's `runner/config.yaml` below `XDG_CONFIG_HOME`
//! or `~/.config` (not for uid 0), the file of `--policy`. The first two may be missing. Every
//! key is optional:
//!
//! ```yaml
//! maxima: { memory: 4g, timeout: 1h, processes: 4096 } # for a bundle's own manifest
//! grants: [secrets]          # egress secrets env mounts sources outputs policy, or all
//! deny_grants: [egress]      # what no later file and no flag may grant
//! uid_range: { first: 1879048192, last: 1879113727 } # uids of bodies where root runs them
//! cgroup_parent: /runner     # runs get their cgroup below it
//! interpreters: [/opt/python] # programs below may be made visible
//! unpack: { archive: 100m, unpacked: 1g, entries: 100000 }
//! runtime_directory: /run/runner
//! ```

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::Error as _;

use crate::cli::surroundings::Surroundings;
use crate::spec::did_you_mean::nearest;
use crate::spec::host_policy::{
    ForbiddenGrant, HostPolicy, Statement, UidRange, grants_named, merge, union,
};
use crate::spec::path::escape;
use crate::spec::report::ErrorReport;
use crate::spec::request::Grants;
use crate::spec::units::{parse_duration, parse_size_bytes};

/// Largest configuration file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most YAML nodes in one file, aliases counted as often as they are used.
const NODES_MAX: usize = 10_000;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is there, or was asked for, and cannot be read.
    #[error("the configuration file {file} cannot be read")]
    Unreadable {
        /// The path, escaped.
        file: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Larger than 1 MiB.
    #[error("the configuration file {file} is larger than 1 MiB")]
    TooLarge {
        /// The path, escaped.
        file: String,
    },
    /// It does not say what a configuration file may say.
    #[error("{file}:{line}:{column}: {message}")]
    Invalid {
        /// The path, escaped.
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
}

impl ConfigError {
    /// The error as the report has it.
    #[must_use]
    pub fn report(&self) -> ErrorReport {
        let (code, hint) = match self {
            Self::Unreadable { .. } => ("policy_unreadable", None),
            Self::TooLarge { .. } => ("policy_invalid", None),
            Self::Invalid { hint, .. } => ("policy_invalid", hint.clone()),
        };
        ErrorReport {
            code: code.to_owned(),
            message: crate::cli::request::chain(self),
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

/// The file as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    maxima: WrittenMaxima,
    grants: Vec<Grant>,
    deny_grants: Vec<Grant>,
    uid_range: Option<Uids>,
    cgroup_parent: Option<AbsolutePath>,
    interpreters: Vec<AbsolutePath>,
    unpack: WrittenUnpack,
    runtime_directory: Option<AbsolutePath>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenMaxima {
    memory: Option<Size>,
    timeout: Option<Time>,
    processes: Option<Count>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenUnpack {
    archive: Option<Size>,
    unpacked: Option<Size>,
    entries: Option<Count>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenUidRange {
    first: u32,
    last: u32,
}

#[derive(Deserialize)]
#[serde(try_from = "WrittenUidRange")]
struct Uids(UidRange);

/// The uid that the kernel shows for ids without a name (user_namespaces(7)).
const OVERFLOW_UID: u32 = 65_534;

impl TryFrom<WrittenUidRange> for Uids {
    type Error = String;

    fn try_from(WrittenUidRange { first, last }: WrittenUidRange) -> Result<Self, String> {
        let range = first..=last;
        if range.is_empty() {
            return Err(format!("the first uid {first} is above the last {last}"));
        }
        for uid in [0, OVERFLOW_UID, u32::MAX] {
            if range.contains(&uid) {
                return Err(format!("the range holds uid {uid}, which no body may have"));
            }
        }
        Ok(Self(UidRange { first, last }))
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Grant {
    Egress,
    Secrets,
    Env,
    Mounts,
    Sources,
    Outputs,
    Policy,
    All,
}

impl Grant {
    fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Secrets => "secrets",
            Self::Env => "env",
            Self::Mounts => "mounts",
            Self::Sources => "sources",
            Self::Outputs => "outputs",
            Self::Policy => "policy",
            Self::All => "all",
        }
    }
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Size(u64);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match parse_size_bytes(&text).map_err(|error| error.to_string())? {
            0 => Err("0 would leave nothing; leave the key out for the default".to_owned()),
            bytes => Ok(Self(bytes)),
        }
    }
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Time(Duration);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let time = parse_duration(&text).map_err(|error| error.to_string())?;
        if time.is_zero() {
            return Err("0 would leave no time; leave the key out for the default".to_owned());
        }
        Ok(Self(time))
    }
}

struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            0 => Err(D::Error::custom(
                "0 would leave nothing; leave the key out for the default",
            )),
            count => Ok(Self(count)),
        }
    }
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct AbsolutePath(String);

impl TryFrom<String> for AbsolutePath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let leaves = text.split('/').any(|segment| segment == "..");
        if !text.starts_with('/') || leaves || text.contains('\0') {
            return Err(format!(
                "`{}` is no absolute path without `..`",
                escape(text.as_bytes())
            ));
        }
        Ok(Self(text))
    }
}

impl Written {
    fn statement(self, file: &str) -> Statement {
        Statement {
            origin: file.to_owned(),
            memory_bytes: self.maxima.memory.map(|size| size.0),
            wall_time: self.maxima.timeout.map(|time| time.0),
            processes: self.maxima.processes.map(|count| count.0),
            grants: sum(&self.grants),
            deny_grants: sum(&self.deny_grants),
            uid_range: self.uid_range.map(|uids| uids.0),
            cgroup_parent: self.cgroup_parent.map(|path| path.0),
            interpreters: self
                .interpreters
                .into_iter()
                .map(|path| PathBuf::from(path.0))
                .collect(),
            archive_bytes: self.unpack.archive.map(|size| size.0),
            unpacked_bytes: self.unpack.unpacked.map(|size| size.0),
            entries: self.unpack.entries.map(|count| count.0),
            runtime_directory: self.runtime_directory.map(|path| PathBuf::from(path.0)),
        }
    }
}

fn sum(grants: &[Grant]) -> Grants {
    grants
        .iter()
        .filter_map(|grant| grants_named(grant.name()))
        .fold(Grants::default(), union)
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
        } => unknown("grant", variant, expected),
        Yaml::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("?");
            (
                format!("the key `{}` stands twice", escape(key.as_bytes())),
                None,
            )
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
    escape(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let error = parse("f", text.as_bytes()).map(drop).expect_err(text);
        let report = error.report();
        assert_eq!(report.code, "policy_invalid");
        format!("{} | {}", report.message, report.hint.unwrap_or_default())
    }

    #[test]
    fn every_documented_key_is_read() {
        let statement = parse(
            "f",
            b"maxima: { memory: 2g, timeout: 5m, processes: 100 }\n\
              grants: [secrets]\n\
              deny_grants: [all]\n\
              uid_range: { first: 200000, last: 265535 }\n\
              cgroup_parent: /runner\n\
              interpreters: [/opt/a, /opt/b]\n\
              unpack: { archive: 1m, unpacked: 512, entries: 7 }\n\
              runtime_directory: /run/r\n",
        )
        .expect("well formed");
        let expected = Statement {
            origin: "f".to_owned(),
            memory_bytes: Some(2 << 30),
            wall_time: Some(Duration::from_secs(300)),
            processes: Some(100),
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
    fn an_error_names_file_line_column_and_the_nearest_word() {
        for (text, place, says) in [
            (
                "maxima:\n  memroy: 1g\n",
                "f:2:3: ",
                "did you mean `memory`?",
            ),
            ("grant: [env]\n", "f:1:1: ", "did you mean `grants`?"),
            ("grants: [egres]\n", "f:1:10: ", "did you mean `egress`?"),
            ("zzz: 1\n", "f:1:1: ", "known: maxima"),
            ("maxima: { memory: 1x }\n", "f:1:", "`1x` is not a size"),
            ("maxima: { memory: 0 }\n", "f:1:", "0 would leave nothing"),
            ("maxima: { timeout: 5 }\n", "f:1:", "`5` is not a duration"),
            ("maxima: { processes: -1 }\n", "f:1:22: ", "a whole number"),
            (
                "maxima: { processes: 0 }\n",
                "f:1:",
                "0 would leave nothing",
            ),
            ("maxima: 5\n", "f:1:9: ", "expected mapping"),
            ("grants: all\n", "f:1:", ""),
            ("interpreters: [opt]\n", "f:1:", "no absolute path"),
            ("cgroup_parent: /a/../b\n", "f:1:", "no absolute path"),
            ("uid_range: { first: 1 }\n", "f:1:", "last"),
            (
                "uid_range: { first: 9, last: 8 }\n",
                "f:1:",
                "above the last",
            ),
            ("uid_range: { first: 0, last: 8 }\n", "f:1:", "uid 0"),
            (
                "uid_range: { first: 7, last: 70000 }\n",
                "f:1:",
                "uid 65534",
            ),
            ("grants: []\ngrants: []\n", "f:2:1: ", "stands twice"),
            ("grants: [\n", "f:", ""),
            ("maxima: {}\n---\nmaxima: {}\n", "f:", "a second document"),
            ("<<: { grants: [] }\n", "f:1:", ""),
        ] {
            let error = refused(text);
            assert!(error.starts_with(place), "{text:?}: {error}");
            assert!(error.contains(says), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{text:?}: {error}");
            assert!(!error.contains("at line"), "{text:?}: {error}");
        }
        let error = parse("f", b"# a\n# \xff\n").map(drop).expect_err("no text");
        assert_eq!(error.to_string(), "f:2:3: a byte that is not UTF-8");
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
        assert_eq!(policy.maxima.memory_bytes, 1 << 30);
        assert!(policy.grants.env && !policy.grants.egress);
        assert_eq!(forbidden[0].grant, "egress");
        assert!(forbidden[0].forbidden_by.ends_with("runner/config.yaml"));
    }
}
