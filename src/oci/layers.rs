//! Layers of images (stand-in until the real one is merged): `oci:DIR` with `config.json` and
//! `layers/0`, `layers/1` … as plain directories, lowest first.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};

use crate::spec::digest::Digest;
use crate::spec::oci::image_config::ImageConfig;
use crate::spec::report::WarningReport;

/// A layer that nobody removes meanwhile.
#[derive(Debug)]
pub struct HeldLayer {
    /// Free of links.
    pub path: PathBuf,
    /// Its root.
    pub root: OwnedFd,
}

/// An image that is there.
#[derive(Debug)]
pub struct Image {
    /// Of its manifest.
    pub digest: Digest,
    /// Its config.
    pub config: ImageConfig,
    /// Lowest first.
    pub layers: Vec<HeldLayer>,
    /// Whether nothing was fetched.
    pub cached: bool,
    /// What a person should know.
    pub warnings: Vec<WarningReport>,
}

/// What lies at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file, and whether somebody may execute it.
    File {
        /// Any of the three bits.
        executable: bool,
    },
}

/// Opens the stand-in.
///
/// # Errors
/// What is missing.
pub fn stand_in(directory: &Path) -> Result<Image, String> {
    let read = |name: &str| {
        let path = directory.join(name);
        std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let json = |bytes: &[u8]| {
        serde_json::from_slice::<serde_json::Value>(bytes).map_err(|error| error.to_string())
    };
    let blob = |descriptor: &serde_json::Value| {
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        format!("blobs/{}", digest.replace(':', "/"))
    };
    let index = json(&read("index.json")?)?;
    let bytes = read(&blob(&index["manifests"][0]))?;
    let digest = Digest::of(&bytes);
    let manifest = json(&bytes)?;
    let config = ImageConfig::parse(&read(&blob(&manifest["config"]))?);
    let config = config.map_err(|error| error.to_string())?;
    let mut layers = Vec::new();
    for (index, layer) in manifest["layers"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let path = directory.join(format!("unpacked-{index}"));
        if !path.exists() {
            std::fs::create_dir(&path).map_err(|error| error.to_string())?;
            let done = std::process::Command::new("tar")
                .args(["--no-same-owner", "-xf"])
                .arg(directory.join(blob(layer)))
                .arg("-C")
                .arg(&path)
                .status();
            done.map_err(|error| error.to_string())?;
        }
        let path = path.canonicalize().map_err(|error| error.to_string())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| e.to_string())?;
        layers.push(HeldLayer { path, root });
    }
    Ok(Image {
        digest,
        config,
        layers,
        cached: true,
        warnings: Vec::new(),
    })
}

impl Image {
    fn resolve(&self, path: &[u8]) -> Option<(usize, Vec<u8>, rustix::fs::Stat)> {
        let mut rest: Vec<Vec<u8>> = path
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
            .rev()
            .map(<[u8]>::to_vec)
            .collect();
        let mut here: Vec<Vec<u8>> = Vec::new();
        let mut hops = 0;
        let mut found = None;
        while let Some(part) = rest.pop() {
            if part == b"." {
                continue;
            }
            if part == b".." {
                here.pop();
                continue;
            }
            here.push(part);
            let at = here.join(&b'/');
            let (layer, status) = self.look(&at)?;
            let kind = FileType::from_raw_mode(status.st_mode);
            if kind == FileType::Symlink {
                hops += 1;
                if 40 < hops {
                    return None;
                }
                let target =
                    rustix::fs::readlinkat(&self.layers[layer].root, &at[..], Vec::new()).ok()?;
                let target = target.into_bytes();
                here.pop();
                if target.starts_with(b"/") {
                    here.clear();
                }
                for part in target.split(|byte| *byte == b'/').rev() {
                    if !part.is_empty() {
                        rest.push(part.to_vec());
                    }
                }
                continue;
            }
            found = Some((layer, at, status));
        }
        found
    }

    fn look(&self, path: &[u8]) -> Option<(usize, rustix::fs::Stat)> {
        self.layers
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, layer)| {
                let status =
                    rustix::fs::statat(&layer.root, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                (FileType::from_raw_mode(status.st_mode) != FileType::CharacterDevice)
                    .then_some((index, status))
            })
    }

    /// The bytes of a file; `None` where there is none.
    ///
    /// # Errors
    /// What went wrong.
    pub fn read_file(&self, path: &[u8], bytes_max: u64) -> Result<Option<Vec<u8>>, String> {
        use std::io::Read as _;
        let Some((layer, at, status)) = self.resolve(path) else {
            return Ok(None);
        };
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let root = &self.layers[layer].root;
        let file = rustix::fs::openat2(root, &at[..], flags, Mode::empty(), resolve)
            .map_err(|errno| errno.to_string())?;
        let mut bytes = Vec::new();
        std::fs::File::from(file)
            .take(bytes_max)
            .read_to_end(&mut bytes)
            .map_err(|error| error.to_string())?;
        Ok(Some(bytes))
    }

    /// What lies at `path`, links resolved.
    ///
    /// # Errors
    /// What went wrong.
    pub fn kind_of(&self, path: &[u8]) -> Result<Option<Kind>, String> {
        Ok(self.resolve(path).and_then(|(_, _, status)| {
            match FileType::from_raw_mode(status.st_mode) {
                FileType::Directory => Some(Kind::Directory),
                FileType::RegularFile => Some(Kind::File {
                    executable: status.st_mode & 0o111 != 0,
                }),
                _ => None,
            }
        }))
    }
}
