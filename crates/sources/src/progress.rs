//! Progress of transfers, as TRACE events for a status line.

use std::fmt;
use std::time::Duration;

use spec::digest::Digest;

const BAR_COLUMNS: usize = 24;
/// Digits of an abbreviated digest or commit.
const SHORT_DIGITS: usize = 12;

/// The current activity of a transfer.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'now> {
    Asking {
        /// Name of the origin, for messages.
        place: &'now str,
    },
    Resolving {
        repository: &'now str,
        reference: &'now str,
    },
    Receiving {
        digest: &'now Digest,
        bytes: u64,
        of_bytes: u64,
    },
    /// `of_bytes` is `None` if the service does not state the size.
    Downloading {
        place: &'now str,
        bytes: u64,
        of_bytes: Option<u64>,
    },
    /// Both counts are compressed bytes.
    Unpacking {
        digest: &'now Digest,
        bytes: u64,
        of_bytes: u64,
    },
    /// A bundle; `of_bytes` is `None` if it is read from a pipe. Both count its archive.
    UnpackingBundle { bytes: u64, of_bytes: Option<u64> },
    Sending {
        digest: &'now Digest,
        bytes: u64,
        of_bytes: u64,
    },
    /// A retry follows after a pause.
    Waiting { cause: &'now str, pause: Duration },
    /// The activity ended, with success or failure.
    Done,
}

impl Progress<'_> {
    /// Emits the event.
    pub fn emit(&self) {
        match self {
            Self::Done => tracing::trace!(is_over = true, "transfer ended"),
            _ => tracing::trace!("{self}"),
        }
    }

    /// Emits the event with the purpose of the transfer, which comes last because a narrow line is
    /// cut.
    pub fn emit_for(&self, what: &str) {
        match self {
            Self::Done | Self::Asking { .. } => self.emit(),
            _ => tracing::trace!("{self}, {what}"),
        }
    }
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Asking { place } => write!(formatter, "{place}: asking"),
            Self::Resolving {
                repository,
                reference,
            } => write!(formatter, "{repository}: looking for {reference}"),
            Self::Receiving {
                digest,
                bytes,
                of_bytes,
            } => bar(formatter, "receiving", short_of(digest), bytes, of_bytes),
            Self::Downloading {
                place,
                bytes,
                of_bytes: Some(of_bytes),
            } => write!(formatter, "{place}: {} of {}", kib(bytes), kib(of_bytes)),
            Self::Downloading { place, bytes, .. } => write!(formatter, "{place}: {}", kib(bytes)),
            Self::Unpacking {
                digest,
                bytes,
                of_bytes,
            } => bar(formatter, "unpacking", short_of(digest), bytes, of_bytes),
            Self::UnpackingBundle {
                bytes,
                of_bytes: Some(of_bytes),
            } => bar(formatter, "unpacking", "the bundle", bytes, of_bytes),
            Self::UnpackingBundle { bytes, .. } => {
                write!(formatter, "unpacking the bundle: {}", kib(bytes))
            }
            Self::Sending {
                digest,
                bytes,
                of_bytes,
            } => bar(formatter, "sending", short_of(digest), bytes, of_bytes),
            Self::Waiting { cause, pause } => {
                write!(formatter, "{cause}; trying again in {pause:?}")
            }
            Self::Done => Ok(()),
        }
    }
}

/// Abbreviates a digest or a commit.
#[must_use]
pub fn short(digits: &str) -> &str {
    let digits = digits.trim_start_matches("sha256:");
    digits.get(..SHORT_DIGITS).unwrap_or(digits)
}

/// Writes `receiving 4f3a2b1c4f3a [######------------------] 12 KiB of 48 KiB`.
fn bar(
    formatter: &mut fmt::Formatter<'_>,
    activity: &str,
    object: impl fmt::Display,
    bytes: u64,
    of_bytes: u64,
) -> fmt::Result {
    let done = u128::from(bytes.min(of_bytes)) * BAR_COLUMNS as u128 / u128::from(of_bytes.max(1));
    let bar = "#".repeat(usize::try_from(done).unwrap_or(0));
    let (bytes, of_bytes) = (kib(bytes), kib(of_bytes));
    write!(
        formatter,
        "{activity} {object} [{bar:-<BAR_COLUMNS$}] {bytes} of {of_bytes}"
    )
}

fn short_of(digest: &Digest) -> String {
    short(&digest.to_string()).to_owned()
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_empty_at_the_start_full_at_the_end_and_never_longer() {
        let digest = Digest::of(b"");
        let at = |bytes| {
            let of_bytes = 4096;
            let digest = &digest;
            let progress = Progress::Receiving {
                digest,
                bytes,
                of_bytes,
            };
            progress.to_string()
        };
        let (empty, full) = ("-".repeat(24), "#".repeat(24));
        let start = "receiving e3b0c44298fc";
        assert_eq!(at(0), format!("{start} [{empty}] 0 KiB of 4 KiB"));
        assert_eq!(at(4096), format!("{start} [{full}] 4 KiB of 4 KiB"));
        assert_eq!(at(9000), format!("{start} [{full}] 9 KiB of 4 KiB"));
        assert!(at(2048).contains("############------------"));
        let nothing = Progress::Sending {
            digest: &digest,
            bytes: 0,
            of_bytes: 0,
        };
        let text = format!("sending e3b0c44298fc [{empty}] 0 KiB of 0 KiB");
        assert_eq!(nothing.to_string(), text);
    }

    #[test]
    fn each_activity_has_its_text() {
        let place = "org/repo at 4f3a2b1c4f3a";
        let download = |bytes, of_bytes| Progress::Downloading {
            place,
            bytes,
            of_bytes,
        };
        for (progress, expected) in [
            (
                Progress::Resolving {
                    repository: "org/repo",
                    reference: "main",
                },
                "org/repo: looking for main",
            ),
            (
                Progress::Asking { place },
                "org/repo at 4f3a2b1c4f3a: asking",
            ),
            (
                download(1025, Some(4096)),
                "org/repo at 4f3a2b1c4f3a: 2 KiB of 4 KiB",
            ),
            (download(0, None), "org/repo at 4f3a2b1c4f3a: 0 KiB"),
            (
                Progress::UnpackingBundle {
                    bytes: 4096,
                    of_bytes: None,
                },
                "unpacking the bundle: 4 KiB",
            ),
            (
                Progress::UnpackingBundle {
                    bytes: 2048,
                    of_bytes: Some(4096),
                },
                "unpacking the bundle [############------------] 2 KiB of 4 KiB",
            ),
            (
                Progress::Waiting {
                    cause: "the answer was 500",
                    pause: Duration::from_millis(500),
                },
                "the answer was 500; trying again in 500ms",
            ),
        ] {
            assert_eq!(progress.to_string(), expected);
        }
    }
}
