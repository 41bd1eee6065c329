//! Archives that are too much, or just not yet: made block by block, since no tar makes such ones.

use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;

const MANIFEST: &[u8] = br#"{"name":"hostile","run":["/bin/true"]}"#;
/// What one file of the bomb unpacks to: seventeen of them are more than the limit of 1 GiB.
const ZEROS: usize = 64 << 20;
const FILES_OF_ZEROS: usize = 17;
/// Of the archive of many entries; they take turns, so that nothing comes in the order of names,
/// which would let the digest of the contents be made at once.
const DIRECTORIES: usize = 50;
/// The limit, without the root, the manifest and the directories.
const FILES: usize = 99_998 - DIRECTORIES;
/// Names of this length fill what an archive's names may take, 120 bytes for each entry.
const NAME_BYTES: usize = 115;

/// Writes both.
pub(crate) fn plant(bomb: PathBuf, entries: PathBuf) {
    std::fs::write(bomb, gzip_bomb()).unwrap();
    std::fs::write(entries, very_many_entries()).unwrap();
}

/// A member of gzip for each header and each file: to a reader they are one stream, and the zeros
/// are compressed once.
fn gzip_bomb() -> Vec<u8> {
    let zeros = gzip(&vec![0; ZEROS]);
    let mut bomb = gzip(&file(b"manifest.json", MANIFEST));
    for number in 0..FILES_OF_ZEROS {
        bomb.extend(gzip(&header(
            b'0',
            format!("zeros{number}").as_bytes(),
            ZEROS,
        )));
        bomb.extend(&zeros);
    }
    bomb.extend(gzip(&[0; 1024]));
    bomb
}

/// Empty files, each with a header of pax for its name.
fn very_many_entries() -> Vec<u8> {
    let mut tar = file(b"manifest.json", MANIFEST);
    for number in 0..FILES {
        let directory = number % DIRECTORIES;
        let name = format!("{directory:02}/{number:0width$}", width = NAME_BYTES - 3);
        // The length counts itself: three digits.
        let record = format!("{} path={name}\n", NAME_BYTES + 10);
        tar.extend(header(b'x', b"name", record.len()));
        tar.extend(padded(record.as_bytes()));
        tar.extend(header(b'0', b"short", 0));
    }
    tar.extend([0; 1024]);
    gzip(&tar)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn file(name: &[u8], contents: &[u8]) -> Vec<u8> {
    let mut whole = header(b'0', name, contents.len()).to_vec();
    whole.extend(padded(contents));
    whole
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut whole = bytes.to_vec();
    whole.resize(bytes.len().next_multiple_of(512), 0);
    whole
}

fn header(kind: u8, name: &[u8], size: usize) -> [u8; 512] {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(b"0000644\0");
    block[108..116].copy_from_slice(b"0000000\0");
    block[116..124].copy_from_slice(b"0000000\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}
