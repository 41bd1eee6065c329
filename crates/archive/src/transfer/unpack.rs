//! Unpacks the tar of a copy.

use std::io::Read;
use std::os::fd::BorrowedFd;

use crate::compressed::{Compression, decode};
use crate::entries::{Entries, Member};
use crate::entry_rules::{MemberKind, Rules};
use crate::error::UnpackError;
use crate::inflated::Inflated;
use crate::layer::{AnyEntries, add_non_directory, position};
use crate::layer_view::LayerView;
use crate::layer_writer::LayerWriter;
use crate::path_mapping::PathMapping;
use crate::unpack::UnpackLimits;
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;

/// Unpacks `archive`, a tar, into the empty directory `into`. Returns the number of devices and FIFOs that
/// were skipped.
///
/// All files belong to the user of this process. Permission bits are kept except set-user-id and
/// set-group-id; the owner may read every file and change every directory. Times are kept to the second.
/// Links have any target, and nothing is written through one. After an error, `into` contains some of the
/// entries: discard it.
///
/// # Errors
/// The first rule that the archive breaks, also that it ends too early, or a file system error.
pub fn unpack(
    permit: &ParsePermit,
    archive: impl Read + Send,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
) -> Result<u64, UnpackError> {
    let mut source = decode(permit, archive, Compression::Plain, limits.compressed_bytes);
    let source: &mut dyn Inflated = &mut source;
    let mut entries = Entries::new(
        source,
        limits.entry_limits(),
        Rules::Files,
        PathMapping::Unchanged,
    );
    let mut writer = LayerWriter::new(into, LayerView::default(), limits.tree_limits());
    let mut times = Vec::new();
    while let Some(member) = entries.next_member()? {
        if let Some((path, modified_s)) = add(&mut entries, &mut writer, &member)? {
            times.push((path, modified_s));
        }
    }
    // A new entry changes the time of its directory.
    for (path, modified_s) in times.iter().rev() {
        writer.set_directory_time(path, *modified_s)?;
    }
    Ok(writer.left_out())
}

/// Returns a directory and its time.
fn add(
    entries: &mut AnyEntries<'_>,
    writer: &mut LayerWriter<'_>,
    member: &Member,
) -> Result<Option<(RelPath, u64)>, UnpackError> {
    // The root is a directory that exists.
    let Some(path) = &member.path else {
        return Ok(None);
    };
    if member.kind != MemberKind::Directory {
        return add_non_directory(entries, writer, path.clone(), member).map(|()| None);
    }
    writer.add_directory(position(member), path, member.mode)?;
    Ok(member
        .modified_s
        .map(|modified_s| (path.clone(), modified_s)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use crate::canonical::{Fields, header_blocks, padding};

    fn member(name: &[u8], type_flag: u8, link: &[u8], data: &[u8]) -> Vec<u8> {
        let fields = Fields {
            type_flag,
            mode: 0o4751,
            size: data.len() as u64,
            modified_s: 1_000_000_000,
        };
        let blocks = header_blocks(name, fields, link);
        [&blocks, data, padding(data.len() as u64)].concat()
    }

    fn unpacked(members: &[Vec<u8>], with_end: bool, into: &Path) -> Result<u64, String> {
        let mut tar = members.concat();
        if with_end {
            tar.extend_from_slice(&[0; 1024]);
        }
        let permit = ParsePermit::for_trusted_text();
        let directory = File::open(into).expect("opened");
        let limits = UnpackLimits::default();
        unpack(&permit, &*tar, directory.as_fd(), &limits).map_err(|error| error.code().to_owned())
    }

    ///
    #[test]
    fn names_that_lead_out_or_through_a_link_are_refused() {
        let ground = tempfile::tempdir().expect("made");
        let inside = ground.path().join("inside");
        for (name, members) in [
            ("path_parent", vec![member(b"../x", b'0', b"", b"x")]),
            ("path_parent", vec![member(b"a/../../x", b'0', b"", b"x")]),
            (
                "entry_through_link",
                vec![
                    member(b"link", b'2', b"..", b""),
                    member(b"link/x", b'0', b"", b"x"),
                ],
            ),
            (
                "hard_link_missing",
                vec![member(b"a", b'1', b"/etc/passwd", b"")],
            ),
            (
                "hard_link_not_file",
                vec![
                    member(b"link", b'2', b"/etc/passwd", b""),
                    member(b"a", b'1', b"link", b""),
                ],
            ),
        ] {
            fs::create_dir(&inside).expect("made");
            let found = unpacked(&members, true, &inside);
            assert_eq!(found, Err(name.to_owned()));
            fs::remove_dir_all(&inside).expect("removed");
            assert_eq!(fs::read_dir(ground.path()).expect("read").count(), 0);
        }
    }

    ///
    #[test]
    fn a_tar_without_its_end_is_refused() {
        let ground = tempfile::tempdir().expect("made");
        let file = member(b"a", b'0', b"", &[b'x'; 1000]);
        for cut in [600, 1100, 1536] {
            let cut = vec![file[..cut].to_vec()];
            let into = tempfile::tempdir_in(ground.path()).expect("made");
            let found = unpacked(&cut, false, into.path()).expect_err("cut");
            assert!(
                ["tar_truncated", "tar_end_missing"].contains(&&*found),
                "{found}"
            );
        }
    }

    #[test]
    fn special_names_are_names_and_modes_and_times_are_kept() {
        use std::os::unix::fs::MetadataExt as _;
        let ground = tempfile::tempdir().expect("made");
        let into = ground.path();
        symlink("/etc", into.join("outside")).expect("made");
        let members = [
            member(b"d/", b'5', b"", b""),
            member(b"d/.wh.x", b'0', b"", b"x"),
            member(b"d/.wh..wh..opq", b'0', b"", b""),
            member(b"d/a\n\x1b[31m\xff", b'2', b"/nowhere", b""),
            member(b"d/fifo", b'6', b"", b""),
        ];
        assert_eq!(unpacked(&members, true, into), Ok(1));
        let file = fs::metadata(into.join("d/.wh.x")).expect("there");
        assert_eq!((file.mode() & 0o7777, file.mtime()), (0o751, 1_000_000_000));
        assert_eq!(
            fs::metadata(into.join("d")).expect("there").mtime(),
            1_000_000_000
        );
        assert_eq!(fs::read_dir(into.join("d")).expect("read").count(), 3);
    }
}
