//! Makes archives byte by byte, right or wrong as asked.

use std::io::Write as _;

/// One header block.
pub(crate) type Block = [u8; 512];

/// A tar that grows.
#[derive(Clone, Default)]
pub(crate) struct Tar(pub(crate) Vec<u8>);

/// A header with everything right: mode 0644, POSIX magic, checksum.
pub(crate) fn header(type_flag: u8, name: &[u8], size: u64) -> Block {
    let mut block = [0; 512];
    let cut = name.len().min(100);
    block[..cut].copy_from_slice(&name[..cut]);
    block[100..108].copy_from_slice(b"0000644\0");
    block[108..116].copy_from_slice(b"0000000\0");
    block[116..124].copy_from_slice(b"0000000\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = type_flag;
    block[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut block);
    block
}

/// Makes the checksum right.
pub(crate) fn seal(block: &mut Block) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// A pax record with the right length.
pub(crate) fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length += 1;
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// `data`, compressed as one gzip member.
pub(crate) fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(data).expect("compressed");
    encoder.finish().expect("finished")
}

impl Tar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Bytes as they are.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Data, filled up to whole blocks.
    pub(crate) fn data(mut self, data: &[u8]) -> Self {
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// A header that `change` may spoil before it gets its checksum.
    pub(crate) fn with(
        self,
        type_flag: u8,
        name: &[u8],
        size: u64,
        change: impl FnOnce(&mut Block),
    ) -> Self {
        let mut block = header(type_flag, name, size);
        change(&mut block);
        seal(&mut block);
        self.raw(&block)
    }

    pub(crate) fn file(self, name: &str, data: &[u8]) -> Self {
        self.raw(&header(b'0', name.as_bytes(), data.len() as u64))
            .data(data)
    }

    pub(crate) fn directory(self, name: &str) -> Self {
        self.raw(&header(b'5', name.as_bytes(), 0))
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.link(b'2', name, target)
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.link(b'1', name, target)
    }

    /// A link of either kind; a target over 100 bytes takes a pax header.
    pub(crate) fn link(self, type_flag: u8, name: &str, target: &str) -> Self {
        if 100 < target.len() {
            return self.pax(&[("linkpath", target.as_bytes())]).raw(&header(
                type_flag,
                name.as_bytes(),
                0,
            ));
        }
        self.with(type_flag, name.as_bytes(), 0, |block| {
            block[157..157 + target.len()].copy_from_slice(target.as_bytes());
        })
    }

    /// An extended header of any type with any data.
    pub(crate) fn extended(self, type_flag: u8, data: &[u8]) -> Self {
        self.raw(&header(type_flag, b"extended", data.len() as u64))
            .data(data)
    }

    pub(crate) fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let data: Vec<u8> = records
            .iter()
            .flat_map(|(key, value)| record(key, value))
            .collect();
        self.extended(b'x', &data)
    }

    /// A file whose name is in a pax header.
    pub(crate) fn pax_file(self, name: &[u8], data: &[u8]) -> Self {
        self.pax(&[("path", name)])
            .raw(&header(b'0', b"short", data.len() as u64))
            .data(data)
    }

    /// The whole tar, with the two zero blocks.
    pub(crate) fn end(self) -> Vec<u8> {
        self.raw(&[0; 1024]).0
    }

    /// The whole tar, compressed.
    pub(crate) fn gz(self) -> Vec<u8> {
        gzip(&self.end())
    }
}
