//! Values of a configuration file. Each is checked when it is read, so that errors have its place.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::Error as _;

use crate::path::escape;
use crate::units::{parse_duration, parse_size_bytes};

/// Reads the value of a key that is present. A key without a value is refused: it would mean "no
/// limit" by accident.
pub(super) fn stated<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// A size in bytes; not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match parse_size_bytes(&text).map_err(|error| error.to_string())? {
            0 => Err("0 would leave nothing; leave the key out for the default".to_owned()),
            bytes => Ok(Self(bytes)),
        }
    }
}

/// A duration such as `10m`, `1h30m` or `1d`; not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^(?=[^1-9]*[1-9])(?:[0-9]+d)?(?:[0-9]+h)?(?:[0-9]+m(?!s))?(?:[0-9]+s)?(?:[0-9]+ms)?$")))]
#[serde(try_from = "String")]
pub struct Time(pub Duration);

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

/// A whole number, not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(extend("minimum" = 1)))]
pub struct Count(pub u64);

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

#[cfg(test)]
pub(super) const ABSOLUTE_PATH: &str = r"^(?![^\x00]*/\.\.(?:/|$))/[^\x00]*$";

/// An absolute path without `..`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = ABSOLUTE_PATH)))]
#[serde(try_from = "String")]
pub struct AbsolutePath(pub String);

impl TryFrom<String> for AbsolutePath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let has_parent = text.split('/').any(|segment| segment == "..");
        if !text.starts_with('/') || has_parent || text.contains('\0') {
            return Err(format!(
                "`{}` is not an absolute path without `..`",
                escape(text.as_bytes())
            ));
        }
        Ok(Self(text))
    }
}

/// A path of the host, as a flag takes it: relative to the caller's working directory, or absolute.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String", extend("pattern" = r"^[^\x00]+$")))]
#[serde(try_from = "String")]
pub struct HostPath(pub String);

impl TryFrom<String> for HostPath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') {
            return Err(format!("`{}` is not a path", escape(text.as_bytes())));
        }
        Ok(Self(text))
    }
}

impl From<AbsolutePath> for PathBuf {
    fn from(path: AbsolutePath) -> Self {
        Self::from(path.0)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Bytes, or a number with `k`, `m`, `g` or `t` (powers of 1024); not 0.",
            "oneOf": [
                { "type": "integer", "minimum": 1, "maximum": i64::MAX },
                { "type": "string", "pattern": r"^0*[1-9][0-9]*(?:[bB]|[kKmMgGtT](?:[iI]?[bB])?)?$" }
            ]
        })
    }
}
