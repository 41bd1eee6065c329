//! Archives for `unpack`: the listed members, written byte by byte.

use std::io::Write as _;

use serde_json::{Map, Value};

use crate::ground::{base64, content, mode_of, text};
use crate::vector::Damage;

type Block = [u8; 512];

/// The archive of `members`, with the stated damage.
pub(crate) fn build(members: &[Map<String, Value>], damage: &Damage) -> Vec<u8> {
    let mut tar = Vec::new();
    for member in members {
        add(&mut tar, member);
    }
    tar.extend([0; 1024]);
    if damage.uncompressed {
        return tar;
    }
    let gzip = |data: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(data).expect("compressed");
        encoder.finish().expect("finished")
    };
    let mut archive = gzip(&tar);
    if damage.twice {
        archive.extend(gzip(&tar));
    }
    archive.extend(damage.trailing.as_bytes());
    archive.truncate(archive.len() - damage.truncate);
    archive
}

fn add(tar: &mut Vec<u8>, member: &Map<String, Value>) {
    let of = |key: &str| member.get(key).map(text);
    let target = of("to").unwrap_or_default();
    if let Some(name) = of("file") {
        let spec = Value::Object(member.clone());
        let data = content(&spec);
        tar.extend(header(b'0', name, mode_of(&spec), data.len(), target));
        pad(tar, &data);
    } else if let Some(name) = of("directory") {
        tar.extend(header(b'5', &format!("{name}/"), 0o755, 0, target));
    } else if let Some(name) = of("symlink") {
        tar.extend(header(b'2', name, 0o777, 0, target));
    } else if let Some(name) = of("hardlink") {
        tar.extend(header(b'1', name, 0o644, 0, target));
    } else if let Some(kind) = of("type") {
        tar.extend(header(
            kind.as_bytes()[0],
            text(&member["member"]),
            0o644,
            0,
            target,
        ));
    } else if let Some(Value::Object(records)) = member.get("pax") {
        let mut data = Vec::new();
        for (key, value) in records {
            match key.strip_suffix("_base64") {
                Some(key) => record(&mut data, key, &base64(text(value))),
                None => record(&mut data, key, text(value).as_bytes()),
            }
        }
        tar.extend(header(b'x', "PaxHeader", 0o644, data.len(), ""));
        pad(tar, &data);
    } else {
        panic!("no member: {member:?}");
    }
}

fn header(kind: u8, name: &str, mode: u32, bytes: usize, target: &str) -> Block {
    assert!(name.len() <= 100 && target.len() <= 100, "use pax: {name}");
    let mut block = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\x000000000\0");
    put(124, format!("{bytes:011o}\x0000000000000\0").as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, target.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn record(data: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length += 1;
    }
    data.extend(format!("{length} {key}=").as_bytes());
    data.extend(value);
    data.push(b'\n');
}

fn pad(tar: &mut Vec<u8>, data: &[u8]) {
    tar.extend(data);
    tar.resize(tar.len().next_multiple_of(512), 0);
}
