//! Resolves `User` of an image config with the image's own user and group files.

use serde::{Deserialize, Serialize};

use crate::view::{HOME, INSIDE_ID};
use spec::oci::image_config::UserWords;
use spec::parse_permit::ParsePermit;
use spec::path::escape;

/// Limit of an error's text. Names are those of the image's config.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

/// Ids and home of the body inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageUser {
    pub uid: u32,
    pub gid: u32,
    pub home: Vec<u8>,
    /// The line for the image's `etc/passwd` if no user there has this uid.
    added_user: Option<String>,
    /// The line for `etc/group` if no group there has this gid.
    added_group: Option<String>,
}

/// Reason why an image's user cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ImageUserError {
    #[error("the image runs as the {kind} `{name}`, which is missing in its {file}")]
    Unknown {
        kind: String,
        name: String,
        file: String,
    },
    #[error("the image runs as the {kind} `{number}`: expected a number from 0 to 4294967294")]
    Number { kind: String, number: String },
}

impl ImageUserError {
    /// Stable error code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "image_user_unknown"
    }
}

impl Default for ImageUser {
    /// The user of runs without image.
    fn default() -> Self {
        Self {
            uid: INSIDE_ID,
            gid: INSIDE_ID,
            home: HOME.into(),
            added_user: None,
            added_group: None,
        }
    }
}

impl ImageUser {
    /// Resolves `words` with the image's `etc/passwd` and `etc/group`. A numeric user without entry
    /// has the group of the same number; in docker it has group 0.
    pub fn find(
        _permit: &ParsePermit,
        words: Option<&UserWords>,
        passwd: &[u8],
        group: &[u8],
    ) -> Result<Self, ImageUserError> {
        let mut found = match words {
            Some(words) => Self::of_words(words, passwd, group)?,
            None => Self::default(),
        };
        let (uid, gid) = (found.uid, found.gid);
        if !users(passwd).any(|user| user.uid == uid) {
            let name = unused_name(users(passwd).map(|user| user.name));
            let line = format!("{name}:x:{uid}:{gid}:runner:{HOME}:/bin/sh\n");
            found.added_user = Some(line);
        }
        if !groups(group).any(|(_, known)| known == gid) {
            let name = unused_name(groups(group).map(|(name, _)| name));
            found.added_group = Some(format!("{name}:x:{gid}:\n"));
        }
        Ok(found)
    }

    fn of_words(words: &UserWords, passwd: &[u8], group: &[u8]) -> Result<Self, ImageUserError> {
        let number = id(&words.user, "user")?;
        let entry = users(passwd).find(|user| match number {
            Some(uid) => user.uid == uid,
            None => user.name == words.user.as_bytes(),
        });
        let (uid, own_gid, home) = match (number, entry) {
            (_, Some(user)) => (user.uid, user.gid, user.home),
            (Some(uid), None) => (uid, uid, &b""[..]),
            (None, None) => return Err(unknown("user", &words.user, "etc/passwd")),
        };
        let gid = match &words.group {
            None => own_gid,
            Some(word) => match id(word, "group")? {
                Some(gid) => gid,
                None => group_of(word, group)?,
            },
        };
        let home = if home.starts_with(b"/") {
            home
        } else {
            HOME.as_bytes()
        };
        Ok(Self {
            uid,
            gid,
            home: home.to_vec(),
            ..Self::default()
        })
    }

    /// Whether [`Self::find`] can return it for some image: it may come from a process that an image took over.
    #[must_use]
    pub fn is_possible(found: &Result<Self, ImageUserError>) -> bool {
        match found {
            Ok(user) => {
                user.uid != u32::MAX
                    && user.gid != u32::MAX
                    && user.home.starts_with(b"/")
                    && !user.home.contains(&0)
            }
            Err(error) => {
                let text = error.to_string();
                text.len() <= MESSAGE_BYTES_MAX && !text.contains(char::is_control)
            }
        }
    }

    /// Whether the ids are those of a run without image.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        (self.uid, self.gid) == (INSIDE_ID, INSIDE_ID)
    }

    /// The image's `etc/passwd`, with an added line if no user has this uid.
    #[must_use]
    pub fn passwd(&self, of_image: &[u8]) -> Vec<u8> {
        with_line(of_image, self.added_user.as_deref())
    }

    /// The image's `etc/group`, with an added line if no group has this gid.
    #[must_use]
    pub fn group(&self, of_image: &[u8]) -> Vec<u8> {
        with_line(of_image, self.added_group.as_deref())
    }
}

/// A second line of the same name would be hidden from getpwnam(3) by the first.
fn unused_name<'text>(mut names: impl Iterator<Item = &'text [u8]>) -> &'static str {
    if names.any(|name| name == b"runner") {
        "body"
    } else {
        "runner"
    }
}

fn with_line(of_image: &[u8], line: Option<&str>) -> Vec<u8> {
    let mut text = of_image.to_vec();
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text.extend_from_slice(line.unwrap_or_default().as_bytes());
    text
}

/// Parses a numeric id; `None` for a name.
fn id(word: &str, kind: &'static str) -> Result<Option<u32>, ImageUserError> {
    if !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    match word.parse::<u32>() {
        // 4294967295 means "no id" in the kernel.
        Ok(number) if number != u32::MAX => Ok(Some(number)),
        _ => Err(ImageUserError::Number {
            kind: kind.to_owned(),
            number: escape(word.as_bytes()),
        }),
    }
}

fn unknown(kind: &'static str, name: &str, file: &'static str) -> ImageUserError {
    ImageUserError::Unknown {
        kind: kind.to_owned(),
        name: escape(name.as_bytes()),
        file: file.to_owned(),
    }
}

fn group_of(word: &str, group: &[u8]) -> Result<u32, ImageUserError> {
    let found = groups(group).find(|(name, _)| *name == word.as_bytes());
    found.map_or_else(
        || Err(unknown("group", word, "etc/group")),
        |(_, gid)| Ok(gid),
    )
}

struct User<'text> {
    name: &'text [u8],
    uid: u32,
    gid: u32,
    home: &'text [u8],
}

/// Entries of passwd(5); malformed lines are skipped.
fn users(text: &[u8]) -> impl Iterator<Item = User<'_>> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next()?;
        let _password = fields.next()?;
        let (uid, gid) = (decimal(fields.next()?)?, decimal(fields.next()?)?);
        let _comment = fields.next()?;
        Some(User {
            name,
            uid,
            gid,
            home: fields
                .next()
                .filter(|home| !home.contains(&0))
                .unwrap_or_default(),
        })
    })
}

fn groups(text: &[u8]) -> impl Iterator<Item = (&[u8], u32)> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next()?;
        let _password = fields.next()?;
        Some((name, decimal(fields.next()?)?))
    })
}

fn decimal(field: &[u8]) -> Option<u32> {
    let number: u32 = std::str::from_utf8(field).ok()?.parse().ok()?;
    (number != u32::MAX).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\n\
        broken\n\
        app:x:12:34::/srv/app:/bin/sh\n\
        odd:x:13:13::relative:/bin/sh\n\
        none:x:4294967295:1::/:/bin/sh\n\
        last:x:70000:70000:::";
    const GROUP: &[u8] = b"root:x:0:\nstaff:x:50:app\n";

    fn find(user: &str, group: Option<&str>) -> Result<(u32, u32, String), ImageUserError> {
        let words = UserWords {
            user: user.to_owned(),
            group: group.map(str::to_owned),
        };
        ImageUser::find(&PERMIT, Some(&words), PASSWD, GROUP).map(|user| {
            let home = String::from_utf8(user.home).expect("text");
            (user.uid, user.gid, home)
        })
    }

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        for (user, group, expected) in [
            ("root", None, (0, 0, "/root")),
            ("0", None, (0, 0, "/root")),
            ("app", None, (12, 34, "/srv/app")),
            ("12", None, (12, 34, "/srv/app")),
            ("app", Some("staff"), (12, 50, "/srv/app")),
            ("app", Some("7"), (12, 7, "/srv/app")),
            ("999", None, (999, 999, HOME)),
            ("999", Some("staff"), (999, 50, HOME)),
            ("odd", None, (13, 13, HOME)),
            ("last", None, (70_000, 70_000, HOME)),
        ] {
            let (uid, gid, home) = expected;
            assert_eq!(find(user, group), Ok((uid, gid, home.to_owned())), "{user}");
        }
        let plain = ImageUser::find(&PERMIT, None, PASSWD, GROUP).expect("found");
        assert!(plain.is_plain() && plain.home == HOME.as_bytes());
    }

    #[test]
    fn an_unknown_user_is_refused() {
        for (user, group) in [
            ("nobody-here", None),
            ("none", None),
            ("4294967295", None),
            ("99999999999", None),
            ("app", Some("nobody-here")),
            ("app", Some("4294967295")),
        ] {
            let refused = find(user, group).expect_err(user);
            assert_eq!(refused.code(), "image_user_unknown");
        }
    }

    #[test]
    fn a_line_is_added_only_where_the_id_has_none() {
        let plain = |passwd| ImageUser::find(&PERMIT, None, passwd, b"").expect("found");
        let passwd = plain(PASSWD).passwd(PASSWD);
        assert!(passwd.starts_with(PASSWD));
        assert!(passwd.ends_with(b":::\nrunner:x:1000:1000:runner:/home/runner:/bin/sh\n"));
        assert_eq!(plain(&passwd).passwd(&passwd), passwd);
        assert_eq!(plain(b"").group(b""), b"runner:x:1000:\n");
        let words = UserWords {
            user: "root".to_owned(),
            group: None,
        };
        let root = ImageUser::find(&PERMIT, Some(&words), PASSWD, GROUP).expect("known");
        assert_eq!(root.group(GROUP), GROUP);
    }

    #[test]
    fn an_added_line_has_a_name_that_the_image_does_not_use() {
        let passwd = b"runner:x:1001:1001::/:/bin/sh\n";
        let group = b"runner:x:1001:\n";
        let user = ImageUser::find(&PERMIT, None, passwd, group).expect("found");
        let passwd = user.passwd(passwd);
        assert!(passwd.ends_with(b"\nbody:x:1000:1000:runner:/home/runner:/bin/sh\n"));
        assert_eq!(user.group(group), b"runner:x:1001:\nbody:x:1000:\n");
    }

    ///
    #[test]
    fn an_answer_that_no_image_has_is_told_from_others() {
        let user = |uid, gid, home: &[u8]| {
            Ok(ImageUser {
                uid,
                gid,
                home: home.to_vec(),
                ..ImageUser::default()
            })
        };
        let named = |name: &str| Err(unknown_as_it_is(name));
        assert!(ImageUser::is_possible(&user(0, 0, b"/")));
        assert!(ImageUser::is_possible(&named("nobody")));
        for forged in [
            user(u32::MAX, 0, b"/"),
            user(0, u32::MAX, b"/"),
            user(0, 0, b"relative"),
            user(0, 0, b"/a\0b"),
            named("\u{1b}[2J"),
            named(&"x".repeat(MESSAGE_BYTES_MAX)),
        ] {
            assert!(!ImageUser::is_possible(&forged), "{forged:?}");
        }
    }

    fn unknown_as_it_is(name: &str) -> ImageUserError {
        ImageUserError::Unknown {
            kind: "user".to_owned(),
            name: name.to_owned(),
            file: "etc/passwd".to_owned(),
        }
    }
}
