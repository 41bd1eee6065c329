//! A Debian package: an ar archive with two tars.

use std::os::fd::AsFd as _;

use super::PERMIT;
use super::ground::{Ground, Made, seal};
use archive::deb::{DebError, Package, PackageLayer};
use archive::{LayerView, UnpackLimits};

const LIMITS: UnpackLimits = UnpackLimits {
    compressed_bytes: 1 << 20,
    unpacked_bytes: 1 << 20,
    entries: 64,
};
const MAGIC: &[u8] = b"!<arch>\n";
const HEADER_BYTES: usize = 60;

/// The first byte selects whether the checksums of the tars are corrected. Parsing twice has the
/// same result, and nothing is written outside the target.
pub(crate) fn check(bytes: &[u8]) {
    let Some((options, package)) = bytes.split_first() else {
        return;
    };
    let mut package = package.to_vec();
    if options & 1 == 0 {
        seal_members(&mut package);
    }
    let (one, other) = (Ground::new(), Ground::new());
    let first = unpack(&one, &package);
    let second = unpack(&other, &package);
    let (made, again) = (one.made(), other.made());
    match (first, second) {
        (Ok(first), Ok(second)) => {
            assert_eq!(first, second);
            assert_eq!(made, again);
            assert!(package.starts_with(MAGIC));
            assert!(!first.name.is_empty() && !first.version.is_empty());
        }
        (Err(first), Err(second)) => {
            assert_eq!(first.to_string(), second.to_string());
            assert!(!first.to_string().contains(char::is_control), "{first}");
        }
        (first, second) => panic!("{first:?}\n{second:?}"),
    }
    for (path, made) in made {
        let is_device = matches!(made, Made::Whiteout);
        assert!(
            !is_device,
            "{}: a package hides nothing",
            path.escape_ascii()
        );
    }
}

fn unpack(ground: &Ground, package: &[u8]) -> Result<Package, DebError> {
    let directory = ground.open();
    let mut layer = PackageLayer::new(directory.as_fd(), LayerView::default(), LIMITS);
    let read = layer.add(&PERMIT, package, &|| false)?;
    if let Err(error) = layer.finish() {
        assert!(error.is_refusal(), "{error:?}");
    }
    Ok(read)
}

/// Corrects the checksums in the uncompressed tars.
fn seal_members(package: &mut [u8]) {
    let mut at = MAGIC.len();
    while let Some(header) = package.get(at..at + HEADER_BYTES) {
        let digits = header[48..58]
            .iter()
            .take_while(|byte| byte.is_ascii_digit());
        let size = digits.fold(0_usize, |size, digit| size * 10 + usize::from(digit - b'0'));
        at += HEADER_BYTES;
        let end = at.saturating_add(size).min(package.len());
        if let Some(member) = package.get_mut(at..end) {
            seal(member);
        }
        at = end + size % 2;
    }
}
