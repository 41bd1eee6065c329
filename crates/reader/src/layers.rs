//! Unpacks layers of images.
//!
//! The answer is a header, the [`LayerView`], and what the layer hides: for each path `o` (opaque) or `w`
//! (removed), and the path. The length of each part is before it.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::BorrowedFd;

use archive::hiding::Hiding;
use archive::{Compression, LayerView, SEGMENTS_MAX, UnpackError, UnpackLimits, UnpackedLayer};
use confinement::Role;
use serde::{Deserialize, Serialize};
use spec::digest::Digest;
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;
use spec::report::WarningReport;
use sys::worker::WorkerLimits;

use crate::filling::{Feed, fill};
use crate::message::{
    HEADER_BYTES_MAX, Problem, malformed, put_part, read_header, read_warnings, split_part,
    write_header, write_warnings,
};
use crate::unpacking::memory_bytes;

/// The window of a zstd frame, its buffer and what was copied out of it.
pub(crate) const ZSTD_BYTES: u64 = 3 * (128 << 20);

/// A layer, as the reader told it.
#[derive(Debug)]
pub struct Layer {
    /// SHA-256 of the tar (`DiffID`). Nobody else saw the tar: this proves nothing.
    pub diff_id: Digest,
    /// The state of this layer and those below it that the next layer needs.
    pub view: LayerView,
    /// The layer hides all layers below.
    pub hides_all: bool,
    /// What it hides otherwise, which the caller writes.
    pub hiding: Hiding,
    /// Bytes of all files of the archive, including those that a later entry replaced.
    pub bytes: u64,
    pub warnings: Vec<WarningReport>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Header {
    Unpacked {
        diff_id: String,
        hides_all: bool,
        bytes: u64,
        /// Codes and messages.
        warnings: Vec<(String, String)>,
    },
    Problem(Problem),
}

/// Unpacks a layer as [`archive::unpack_layer`] does, into the empty directory `into`. `view` describes the
/// layers below; the view that the next layer gets takes at most `view_bytes_max`. Also returns the digest of
/// the bytes of `feed`.
///
/// # Errors
/// [`Problem`]; `into` then contains some of the entries.
pub fn unpack_layer(
    feed: Feed<'_>,
    compression: Compression,
    into: BorrowedFd<'_>,
    view: LayerView,
    limits: &UnpackLimits,
    view_bytes_max: u64,
) -> Result<(Layer, Digest), Problem> {
    let of_window = match compression {
        Compression::Zstd => ZSTD_BYTES,
        Compression::Plain | Compression::Gzip | Compression::Xz => 0,
    };
    // Two views, each in memory and as it is sent.
    let of_views = view_bytes_max.saturating_mul(8);
    let worker_limits = WorkerLimits {
        time: None,
        memory_bytes: [of_window, of_views]
            .into_iter()
            .fold(memory_bytes(limits), u64::saturating_add),
        file_bytes: limits.unpacked_bytes,
        answer_bytes: usize::try_from(bytes_max(limits, view_bytes_max)).unwrap_or(usize::MAX),
    };
    let view = RefCell::new(view);
    let run = |permit: &ParsePermit, source: File| {
        #[cfg(feature = "planted-bugs")]
        let source = confinement::planted::watch("layers", source);
        let view = view.take();
        let layer =
            archive::unpack_layer(permit, source, compression, into, view, limits, &|| false);
        write(&layer)
    };
    let answer = fill(feed, Role::LayerUnpacker(into), worker_limits, &run)?;
    let layer = read_layer_answer(&answer.bytes, limits, view_bytes_max)?;
    Ok((layer, answer.archive_digest()?))
}

fn bytes_max(limits: &UnpackLimits, view_bytes_max: u64) -> u64 {
    let tree = limits.tree_limits();
    let of_paths = tree.entries.saturating_mul(9);
    [view_bytes_max, of_paths, tree.name_bytes]
        .into_iter()
        .fold(HEADER_BYTES_MAX, u64::saturating_add)
}

fn write(result: &Result<UnpackedLayer, UnpackError>) -> Vec<u8> {
    let layer = match result {
        Ok(layer) => layer,
        Err(error) => return write_header(&Header::Problem(Problem::of(error))),
    };
    let mut bytes = write_header(&Header::Unpacked {
        diff_id: layer.diff_id.to_string(),
        hides_all: layer.hides_all,
        bytes: layer.bytes,
        warnings: write_warnings(&layer.warnings),
    });
    put_part(&layer.view.write(), &mut bytes);
    let Hiding { opaque, whiteouts } = &layer.hiding;
    for (kind, paths) in [(b'o', opaque), (b'w', whiteouts)] {
        for path in paths {
            bytes.push(kind);
            put_part(path.as_bytes(), &mut bytes);
        }
    }
    bytes
}

/// Parses the message of a process that unpacked a layer.
///
/// # Errors
/// The reader's problem; a message that it cannot have written.
pub fn read_layer_answer(
    bytes: &[u8],
    limits: &UnpackLimits,
    view_bytes_max: u64,
) -> Result<Layer, Problem> {
    let (header, rest) = read_header(bytes)?;
    match header {
        Header::Problem(problem) if problem.is_plain() && rest.is_empty() => Err(problem),
        Header::Problem(_) => Err(malformed()),
        Header::Unpacked {
            diff_id,
            hides_all,
            bytes,
            warnings,
        } => {
            let (view, hiding) = split_part(rest).ok_or_else(malformed)?;
            if bytes > limits.unpacked_bytes || view.len() as u64 > view_bytes_max {
                return Err(malformed());
            }
            Ok(Layer {
                diff_id: Digest::parse(&diff_id).ok_or_else(malformed)?,
                view: LayerView::read(view).ok_or_else(malformed)?,
                hides_all,
                hiding: read_hiding(hiding, limits).ok_or_else(malformed)?,
                bytes,
                warnings: read_warnings(warnings)?,
            })
        }
    }
}

fn read_hiding(mut rest: &[u8], limits: &UnpackLimits) -> Option<Hiding> {
    let mut hiding = Hiding::default();
    let mut entries = 0;
    while let Some((kind, after)) = rest.split_first() {
        let (path, after) = split_part(after)?;
        rest = after;
        let path = RelPath::parse(path).ok()?;
        entries += 1;
        if entries > limits.entries || path.segments().count() > SEGMENTS_MAX {
            return None;
        }
        match kind {
            b'o' => hiding.opaque.push(path),
            b'w' => hiding.whiteouts.push(path),
            _ => return None,
        }
    }
    Some(hiding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::Refusal;
    use proptest::prelude::*;

    const VIEW_BYTES_MAX: u64 = 1 << 20;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    fn unpacked() -> UnpackedLayer {
        let view = b"layer view 1\nbin\0lusr/bin\0tmp\0d1777\0";
        UnpackedLayer {
            diff_id: Digest::of(b"tar"),
            view: LayerView::read(view).expect("a view"),
            hides_all: false,
            hiding: Hiding {
                opaque: vec![path("etc")],
                whiteouts: vec![path("usr/share/doc"), path("var")],
            },
            bytes: 7,
            disk_bytes: 0,
            entries: 3,
            files: 1,
            warnings: vec![WarningReport::new("image_left_out", "`dev/x` is left out")],
        }
    }

    fn with_header(header: &str, rest: &[u8]) -> Vec<u8> {
        [&part(header.as_bytes())[..], rest].concat()
    }

    fn part(bytes: &[u8]) -> Vec<u8> {
        let mut written = Vec::new();
        put_part(bytes, &mut written);
        written
    }

    #[test]
    fn what_the_reader_writes_is_read_back() {
        let limits = UnpackLimits::default();
        let found =
            read_layer_answer(&write(&Ok(unpacked())), &limits, VIEW_BYTES_MAX).expect("read");
        let expected = unpacked();
        assert_eq!(found.diff_id, expected.diff_id);
        assert_eq!(found.view, expected.view);
        assert_eq!(found.hiding, expected.hiding);
        assert_eq!((found.bytes, found.hides_all), (7, false));
        assert_eq!(found.warnings, expected.warnings);
        let error = || UnpackError::entry(3, b"a", Refusal::too_many_entries(2));
        let told = read_layer_answer(&write(&Err(error())), &limits, VIEW_BYTES_MAX)
            .expect_err("a problem");
        assert_eq!(told, Problem::of(&error()));
    }

    #[test]
    fn what_a_reader_cannot_have_written_is_malformed() {
        let limits = UnpackLimits {
            entries: 2,
            unpacked_bytes: 100,
            ..UnpackLimits::default()
        };
        let empty = &part(b"layer view 1\n")[..];
        let header = |diff_id: &str, bytes: u64, warning: &str| {
            format!(
                r#"{{"Unpacked":{{"diff_id":"{diff_id}","hides_all":false,"bytes":{bytes},"warnings":[["w","{warning}"]]}}}}"#
            )
        };
        let digest = Digest::of(b"").to_string();
        let good = header(&digest, 100, "good");
        let hides = |paths: &[(u8, &[u8])]| {
            let paths = paths
                .iter()
                .flat_map(|(kind, path)| [&[*kind][..], &part(path)].concat());
            let rest: Vec<u8> = empty.iter().copied().chain(paths).collect();
            with_header(&good, &rest)
        };
        read_layer_answer(&hides(&[(b'o', b"a"), (b'w', b"b/c")]), &limits, 100).expect("a layer");
        let deep = "a/".repeat(SEGMENTS_MAX) + "a";
        let problem = |message: &str| {
            format!(
                r#"{{"Problem":{{"code":"x","message":"{message}","hint":null,"cause":"Host"}}}}"#
            )
        };
        assert_eq!(
            read_layer_answer(&with_header(&problem("said"), b""), &limits, 100)
                .expect_err("said")
                .message,
            "said"
        );
        for bad in [
            Vec::new(),
            vec![0xff; 8],
            with_header("{}", b""),
            with_header(&problem("\\u001b[31m"), b""),
            with_header(&problem("said"), b"x"),
            with_header(&header("md5:0", 1, "good"), empty),
            with_header(&header(&digest, 101, "good"), empty),
            with_header(&header(&digest, 1, "\\u001b"), empty),
            with_header(&good, &empty[..empty.len() - 1]),
            with_header(&good, &part(b"view")),
            with_header(
                &good,
                &part(&[b"layer view 1\n".to_vec(), vec![b'a'; 186], vec![0]].concat()),
            ),
            hides(&[(b'x', b"a")]),
            hides(&[(b'w', b"")]),
            hides(&[(b'w', b"/etc/passwd")]),
            hides(&[(b'w', b"../etc")]),
            hides(&[(b'o', b"a/../../b")]),
            hides(&[(b'o', deep.as_bytes())]),
            hides(&[(b'o', b"a"), (b'w', b"b"), (b'w', b"c")]),
        ] {
            let found = read_layer_answer(&bad, &limits, 100).expect_err("malformed");
            assert_eq!(found.code, "archive_unreadable", "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_message_panics(cut in any::<prop::sample::Index>(), byte: u8) {
            let mut bytes = write(&Ok(unpacked()));
            let index = cut.index(bytes.len());
            bytes[index] = byte;
            let _read = read_layer_answer(&bytes, &UnpackLimits::default(), VIEW_BYTES_MAX);
            bytes.truncate(index);
            let _read = read_layer_answer(&bytes, &UnpackLimits::default(), VIEW_BYTES_MAX);
        }
    }
}
