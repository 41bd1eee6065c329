//! The parts of an image config (OCI image specification, `config.md`) that a run uses: environment,
//! working directory, user. Entrypoint, command, ports and volumes are ignored, because the manifest
//! or the command line sets the program.

use serde::Deserialize;

use crate::digest::Digest;
use crate::path::escape;

pub(crate) const WORD_BYTES_MAX: usize = 4_096;
/// Limited because each variable is compared with those before it.
pub(crate) const VARIABLES_MAX: usize = 1_024;
/// Maximum size of all variables: the limit of execve(2) for a single one.
pub(crate) const VARIABLES_BYTES_MAX: usize = 128 << 10;
/// Limited because each directory in PATH is searched in every layer for every interpreter.
pub(crate) const PATH_DIRECTORIES_MAX: usize = 64;

/// The supported parts of an image config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// `Env`, in order, without invalid entries.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    pub working_directory: Option<Vec<u8>>,
    pub user: Option<UserWords>,
    /// Digests of the uncompressed layers, lowest first.
    pub diff_ids: Vec<Digest>,
    pub os: String,
    pub architecture: String,
}

/// `user`, `uid`, `user:group`, `uid:gid`, `uid:group` or `user:gid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserWords {
    pub user: String,
    pub group: Option<String>,
}

/// Why a config is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageConfigError {
    #[error("the config of the image cannot be parsed: {reason}")]
    Unreadable { reason: String },
    #[error("the config of the image has the {key} `{found}`, expected {expected}")]
    Value {
        key: &'static str,
        found: String,
        expected: &'static str,
    },
}

impl ImageConfigError {
    /// The document cannot be parsed, or has other keys; `reason` may quote it.
    #[must_use]
    pub fn unreadable(reason: &str) -> Self {
        Self::Unreadable {
            reason: escape(reason.as_bytes()),
        }
    }

    /// Stable error code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "image_config_invalid"
    }
}

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    config: Option<WrittenConfig>,
    rootfs: WrittenLayers,
}

#[derive(Deserialize, Default)]
struct WrittenConfig {
    #[serde(rename = "User", default)]
    user: Option<String>,
    #[serde(rename = "Env", default)]
    environment: Option<Vec<String>>,
    #[serde(rename = "WorkingDir", default)]
    working_directory: Option<String>,
}

#[derive(Deserialize)]
struct WrittenLayers {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    diff_ids: Vec<String>,
}

impl ImageConfig {
    /// Reads the config from its parsed `document`.
    ///
    /// # Errors
    /// [`ImageConfigError`].
    pub fn read(document: serde_json::Value) -> Result<Self, ImageConfigError> {
        let written: Written = serde_json::from_value(document)
            .map_err(|error| ImageConfigError::unreadable(&error.to_string()))?;
        if written.rootfs.kind != "layers" {
            return Err(invalid("rootfs.type", &written.rootfs.kind, "`layers`"));
        }
        let diff_ids = written.rootfs.diff_ids.iter().map(|text| {
            Digest::parse(text)
                .ok_or_else(|| invalid("rootfs.diff_ids", text, "digests such as sha256:…"))
        });
        let diff_ids = diff_ids.collect::<Result<_, _>>()?;
        let config = written.config.unwrap_or_default();
        Ok(Self {
            environment: parse_variables(config.environment.unwrap_or_default())?,
            working_directory: parse_directory(config.working_directory.unwrap_or_default())?,
            user: parse_user(&config.user.unwrap_or_default())?,
            diff_ids,
            os: written.os,
            architecture: written.architecture,
        })
    }

    /// The value of the last variable of this name.
    #[must_use]
    pub fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.environment.iter().rfind(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    }
}

fn invalid(key: &'static str, found: &str, expected: &'static str) -> ImageConfigError {
    ImageConfigError::Value {
        key,
        found: escape(found.as_bytes()),
        expected,
    }
}

type Variables = Vec<(Vec<u8>, Vec<u8>)>;

fn parse_variables(written: Vec<String>) -> Result<Variables, ImageConfigError> {
    let bytes: usize = written.iter().map(String::len).sum();
    let too_many = |found: String, expected| ImageConfigError::Value {
        key: "Env",
        found,
        expected,
    };
    if written.len() > VARIABLES_MAX {
        let found = format!("{} variables", written.len());
        return Err(too_many(found, "at most 1024"));
    }
    if bytes > VARIABLES_BYTES_MAX {
        return Err(too_many(format!("{bytes} bytes"), "at most 128 KiB"));
    }
    let mut list: Variables = Vec::with_capacity(written.len());
    for entry in written {
        let Some((name, value)) = entry.split_once('=') else {
            continue;
        };
        if name.is_empty() || entry.contains('\0') {
            continue;
        }
        list.retain(|(known, _)| known != name.as_bytes());
        list.push((name.into(), value.into()));
    }
    let path = list.iter().find(|(name, _)| name == b"PATH");
    let directories = path.map_or(0, |(_, value)| {
        value.iter().filter(|byte| **byte == b':').count() + 1
    });
    if directories > PATH_DIRECTORIES_MAX {
        let found = format!("PATH of {directories} directories");
        return Err(too_many(found, "at most 64 directories"));
    }
    Ok(list)
}

fn parse_directory(written: String) -> Result<Option<Vec<u8>>, ImageConfigError> {
    if written.is_empty() {
        return Ok(None);
    }
    if !written.starts_with('/') || written.contains('\0') || written.len() > WORD_BYTES_MAX {
        return Err(invalid(
            "WorkingDir",
            &written,
            "an absolute path of at most 4096 bytes",
        ));
    }
    Ok(Some(written.into_bytes()))
}

fn parse_user(written: &str) -> Result<Option<UserWords>, ImageConfigError> {
    if written.is_empty() {
        return Ok(None);
    }
    let (user, group) = match written.split_once(':') {
        None => (written, None),
        Some((user, group)) => (user, Some(group)),
    };
    let is_word = |word: &str| {
        !word.is_empty()
            && word.len() <= WORD_BYTES_MAX
            && !word.contains(|one: char| one.is_control() || one == ':' || one == '/')
    };
    if !is_word(user) || !group.is_none_or(is_word) {
        return Err(invalid(
            "User",
            written,
            "a name or a number, or two with `:`",
        ));
    }
    Ok(Some(UserWords {
        user: user.to_owned(),
        group: group.map(str::to_owned),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYER: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000001";

    fn config(inner: &str) -> Result<ImageConfig, ImageConfigError> {
        let text = format!(
            r#"{{"os":"linux","architecture":"amd64","config":{inner},
               "rootfs":{{"type":"layers","diff_ids":["{LAYER}"]}}}}"#
        );
        ImageConfig::read(serde_json::from_str(&text).expect("JSON"))
    }

    #[test]
    fn environment_directory_and_user_are_read_and_entrypoint_is_ignored() {
        let read = config(
            r#"{"User":"app:staff","WorkingDir":"/srv","Env":["PATH=/a","X=1=2","Y","=z","X=3"],
                "Entrypoint":["/evil"],"Cmd":["x"],"ExposedPorts":{"1/tcp":{}}}"#,
        )
        .expect("read");
        assert_eq!(read.variable(b"X"), Some(&b"3"[..]));
        assert_eq!(read.environment.len(), 2);
        assert_eq!(read.working_directory.as_deref(), Some(&b"/srv"[..]));
        let user = read.user.expect("a user");
        assert_eq!(
            (user.user.as_str(), user.group.as_deref()),
            ("app", Some("staff"))
        );
        assert_eq!(read.diff_ids.len(), 1);
    }

    #[test]
    fn an_empty_config_is_valid() {
        for inner in ["null", "{}", r#"{"User":"","WorkingDir":"","Env":null}"#] {
            let read = config(inner).expect("read");
            assert_eq!((read.user, read.working_directory), (None, None), "{inner}");
        }
    }

    #[test]
    fn too_large_environments_are_refused() {
        let list = |entries: &[String]| {
            let entries = serde_json::to_string(entries).expect("written");
            config(&format!(r#"{{"Env":{entries}}}"#))
        };
        let many = |count: usize| (0..count).map(|at| format!("V{at}=")).collect::<Vec<_>>();
        let path = |count: usize| vec![format!("PATH=/a{}", ":/a".repeat(count - 1))];
        let long = |bytes: usize| vec![format!("X={}", "x".repeat(bytes - 2))];
        for taken in [
            many(VARIABLES_MAX),
            path(PATH_DIRECTORIES_MAX),
            long(VARIABLES_BYTES_MAX),
        ] {
            assert!(list(&taken).is_ok());
        }
        for (refused, word) in [
            (many(VARIABLES_MAX + 1), "1025 variables"),
            (path(PATH_DIRECTORIES_MAX + 1), "65 directories"),
            (long(VARIABLES_BYTES_MAX + 1), "131073 bytes"),
        ] {
            let error = list(&refused).expect_err(word);
            assert_eq!(error.code(), "image_config_invalid");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        for inner in [
            r#"{"WorkingDir":"relative"}"#,
            r#"{"WorkingDir":"/a\u0000b"}"#,
            r#"{"User":":0"}"#,
            r#"{"User":"a:"}"#,
            r#"{"User":"a:b:c"}"#,
            r#"{"User":"../root"}"#,
            r#"{"User":"a\nb"}"#,
            r#"{"User":7}"#,
        ] {
            let refused = config(inner).expect_err(inner);
            assert_eq!(refused.code(), "image_config_invalid");
        }
        for text in [
            r#"{"rootfs":{"type":"layers","diff_ids":["md5:1"]}}"#,
            r#"{"rootfs":{"type":"tar","diff_ids":[]}}"#,
            "{}",
            "1",
        ] {
            let document = serde_json::from_str(text).expect("JSON");
            assert!(ImageConfig::read(document).is_err(), "{text}");
        }
    }
}
