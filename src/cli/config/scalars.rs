//! Single values of a configuration file, each checked where it stands.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::Error as _;

use spec::path::escape;
use spec::units::{parse_duration, parse_size_bytes};

/// A value that, where its key stands, is there: a key without a value would say "no bound" by
/// accident.
pub(super) fn stated<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Size(pub(super) u64);

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
pub(super) struct Time(pub(super) Duration);

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

pub(super) struct Count(pub(super) u64);

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
pub(super) struct AbsolutePath(pub(super) String);

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

impl From<AbsolutePath> for PathBuf {
    fn from(path: AbsolutePath) -> Self {
        Self::from(path.0)
    }
}
