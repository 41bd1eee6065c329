//! A layer of an image, above layers that contain links.

use std::os::fd::AsFd as _;
use std::sync::OnceLock;

use super::PERMIT;
use super::ground::{Ground, Made, seal, stored};
use archive::{Compression, LayerView, UnpackLimits, UnpackedLayer, unpack_layer};
use spec::digest::Digest;
use spec::path::RelPath;

const LIMITS: UnpackLimits = UnpackLimits {
    compressed_bytes: 1 << 20,
    unpacked_bytes: 1 << 20,
    entries: 64,
};
/// The paths of the layers below, and the targets of their links.
const BELOW: [(&str, Option<&str>); 8] = [
    ("usr", None),
    ("usr/lib", None),
    ("lib", Some("usr/lib")),
    ("up", Some("../../../..")),
    ("away", Some("/etc/../../x")),
    ("loop", Some("pool")),
    ("pool", Some("loop")),
    ("d", None),
];

/// The first byte selects whether the checksums of the tar are corrected, and how the rest is
/// compressed. Applying a layer twice has the same result; nothing is written outside, no file has
/// more mode bits than allowed, and the view for the next layer is read back unchanged.
pub(crate) fn check(bytes: &[u8]) {
    let Some((options, rest)) = bytes.split_first() else {
        return;
    };
    let mut rest = rest.to_vec();
    let compression = match (options >> 1) & 7 {
        0..=3 => Compression::Plain,
        4 | 5 => Compression::Gzip,
        6 => Compression::Zstd,
        _ => Compression::Xz,
    };
    let is_tar = matches!(compression, Compression::Plain | Compression::Gzip);
    if options & 1 == 0 && is_tar {
        seal(&mut rest);
    }
    let archive = match compression {
        Compression::Gzip => stored(&rest),
        _ => rest.clone(),
    };
    let (one, other) = (Ground::new(), Ground::new());
    let first = unpack(&one, &archive, compression);
    let second = unpack(&other, &archive, compression);
    let (made, again) = (one.made(), other.made());
    match (first, second) {
        (Ok(first), Ok(second)) => {
            assert_eq!(made, again);
            assert_eq!(first.view, second.view);
            assert_eq!(
                LayerView::read(&first.view.write()).as_ref(),
                Some(&first.view)
            );
            assert_eq!((first.entries, first.files), (second.entries, second.files));
            assert!(made.len() as u64 <= LIMITS.entries);
            if is_tar {
                assert_eq!(first.diff_id, Digest::of(&rest));
            }
        }
        (Err(first), Err(second)) => {
            assert_eq!(first.to_string(), second.to_string());
            assert!(first.is_refusal(), "{first:?}");
            assert!(!first.to_string().contains(char::is_control), "{first}");
        }
        (first, second) => panic!("{first:?}\n{second:?}"),
    }
    for (path, one) in made {
        check_bits(&path, &one);
    }
}

/// The owner can read and remove everything, and no file grants another identity.
fn check_bits(path: &[u8], made: &Made) {
    let fine = match made {
        Made::File { mode, .. } => mode & 0o6000 == 0 && mode & 0o400 != 0,
        Made::Directory { mode } => mode & 0o6000 == 0 && mode & 0o700 == 0o700,
        Made::Link(_) | Made::Whiteout => true,
    };
    assert!(fine, "{}: {made:?}", path.escape_ascii());
}

fn unpack(
    ground: &Ground,
    archive: &[u8],
    compression: Compression,
) -> Result<UnpackedLayer, archive::UnpackError> {
    let is_below = |path: &RelPath| {
        Ok(BELOW
            .iter()
            .any(|(name, _)| name.as_bytes() == path.as_bytes()))
    };
    let root = ground.open();
    let unpacked = unpack_layer(
        &PERMIT,
        archive,
        compression,
        root.as_fd(),
        view().clone(),
        &LIMITS,
        &|| false,
    )?;
    unpacked
        .hiding
        .write(root.as_fd(), &unpacked.view, &is_below)?;
    Ok(unpacked)
}

/// The view of the layers below.
fn view() -> &'static LayerView {
    static VIEW: OnceLock<LayerView> = OnceLock::new();
    VIEW.get_or_init(|| {
        let mut tar = Vec::new();
        for (name, link) in BELOW {
            let mut header = [0; 512];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[100..108].copy_from_slice(b"0000755\0");
            header[124..136].copy_from_slice(b"00000000000\0");
            header[136..148].copy_from_slice(b"00000000000\0");
            header[156] = if link.is_some() { b'2' } else { b'5' };
            let target = link.unwrap_or_default();
            header[157..157 + target.len()].copy_from_slice(target.as_bytes());
            header[257..265].copy_from_slice(b"ustar\x0000");
            tar.extend_from_slice(&header);
        }
        seal(&mut tar);
        tar.extend_from_slice(&[0; 1024]);
        let ground = Ground::new();
        let unpacked = unpack_layer(
            &PERMIT,
            tar.as_slice(),
            Compression::Plain,
            ground.open().as_fd(),
            LayerView::default(),
            &LIMITS,
            &|| false,
        );
        unpacked.expect("a plain layer").view
    })
}
