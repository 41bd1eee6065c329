//! Layers above each other, with a canary tree beside them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use archive::{Compression, LayerView, UnpackError, UnpackLimits, UnpackedLayer, unpack_layer};
use runner_sources::oci::layers::{Kind, Merged};
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;

/// For texts of these tests.
pub(crate) const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

/// The properties of a directory entry that an escape could change.
type Seen = (u32, u32, u32, u64, i64, i64, Vec<u8>);

pub(crate) struct Stack {
    outside: tempfile::TempDir,
    before: BTreeMap<PathBuf, Seen>,
    /// Lowest first.
    pub(crate) roots: Vec<OwnedFd>,
    view: LayerView,
    pub(crate) limits: UnpackLimits,
}

impl Stack {
    pub(crate) fn new() -> Self {
        let outside = tempfile::tempdir().expect("a directory");
        let canary = outside.path().join("canary");
        fs::create_dir_all(canary.join("directory")).expect("made");
        fs::write(canary.join("secret"), b"secret").expect("written");
        fs::write(canary.join("directory/file"), b"canary").expect("written");
        symlink("secret", canary.join("link")).expect("linked");
        let before = snapshot(&canary);
        Self {
            outside,
            before,
            roots: Vec::new(),
            view: LayerView::default(),
            limits: UnpackLimits::default(),
        }
    }

    /// The stack with these layers, each a complete tar.
    pub(crate) fn of(layers: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut stack = Self::new();
        for layer in layers {
            stack.push(&layer).expect("a layer that is taken");
        }
        stack
    }

    pub(crate) fn path(&self, layer: usize) -> PathBuf {
        self.outside.path().join(layer.to_string())
    }

    /// An absolute path into the canary tree.
    pub(crate) fn canary(&self, name: &str) -> String {
        let path = self.outside.path().join("canary").join(name);
        path.to_str().expect("UTF-8").to_owned()
    }

    pub(crate) fn push(&mut self, tar: &[u8]) -> Result<UnpackedLayer, UnpackError> {
        self.push_compressed(tar, Compression::Plain, &|| false)
    }

    pub(crate) fn push_compressed(
        &mut self,
        archive: impl Read + Send,
        compression: Compression,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<UnpackedLayer, UnpackError> {
        let path = self.path(self.roots.len());
        fs::create_dir(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).expect("mode set");
        let root = OwnedFd::from(fs::File::open(&path).expect("opened"));
        let merged = Merged::of_roots(self.roots.iter().map(|root| root.as_fd()));
        let result = unpack_layer(
            &PERMIT,
            archive,
            compression,
            root.as_fd(),
            self.view.clone(),
            &self.limits,
            is_cancelled,
        );
        let result = result.and_then(|unpacked| {
            let below = |path: &RelPath| merged.has(path);
            unpacked
                .hiding
                .write(root.as_fd(), &unpacked.view, &below)?;
            Ok(unpacked)
        });
        self.check(&path, &result);
        match &result {
            Ok(unpacked) => {
                let written = unpacked.view.write();
                assert_eq!(LayerView::read(&written).as_ref(), Some(&unpacked.view));
                self.view = unpacked.view.clone();
                if unpacked.hides_all {
                    self.roots.clear();
                    // The layers below are released; their names remain.
                    for below in 0.. {
                        let below = self.path(below);
                        if below == path || !below.exists() {
                            break;
                        }
                        fs::remove_dir_all(below).expect("removed");
                    }
                    fs::rename(&path, self.path(0)).expect("renamed");
                }
                self.roots.push(root);
            }
            Err(_) => fs::remove_dir_all(&path).expect("removed"),
        }
        result
    }

    /// The canary tree is unchanged, and the layer has only what it may have.
    fn check(&self, layer: &Path, result: &Result<UnpackedLayer, UnpackError>) {
        let canary = self.outside.path().join("canary");
        assert_eq!(snapshot(&canary), self.before, "the canary was touched");
        let names = fs::read_dir(self.outside.path()).expect("listed").count();
        assert_eq!(
            names,
            self.roots.len() + 2,
            "something lies beside the layers"
        );
        let mode = fs::metadata(layer).expect("the layer").mode();
        assert_eq!(mode & 0o7777, 0o751, "the root itself was changed");
        for path in walk(layer) {
            let shown = path.display();
            let status = fs::symlink_metadata(&path).expect("status");
            let kind = status.file_type();
            assert!(
                !kind.is_fifo() && !kind.is_socket() && !kind.is_block_device(),
                "{shown}: a special file"
            );
            if kind.is_char_device() {
                assert_eq!(status.rdev(), 0, "{shown}: a device");
                assert_eq!(status.mode() & 0o7777, 0, "{shown}: a whiteout with rights");
            }
            if !kind.is_symlink() {
                assert_eq!(status.mode() & 0o6000, 0, "{shown}: set-id");
                let attributes = attributes(&path);
                let expected: &[&str] = match attributes.is_empty() {
                    true => &[],
                    false => &["user.overlay.opaque"],
                };
                assert_eq!(attributes, expected, "{shown}");
            }
            if kind.is_dir() {
                assert_eq!(status.mode() & 0o700, 0o700, "{shown}: closed to its owner");
            }
            if kind.is_file() {
                assert_eq!(status.mode() & 0o400, 0o400, "{shown}: closed to its owner");
            }
        }
        if let Err(error) = result {
            assert!(!error.to_string().is_empty());
            assert!(!error.to_string().contains(char::is_control), "{error:?}");
            assert!(error.to_string().len() < 6_000, "{error}");
        }
    }

    pub(crate) fn merged(&self) -> Merged<'_> {
        Merged::of_roots(self.roots.iter().map(|root| root.as_fd()))
    }

    /// What the program reads at `path`, following links: text, `(directory)` or `(nothing)`.
    #[track_caller]
    pub(crate) fn seen(&self, path: &str) -> String {
        let merged = self.merged();
        match merged.kind_of(path.as_bytes()).expect("looked at") {
            None => "(nothing)".to_owned(),
            Some(Kind::Directory) => "(directory)".to_owned(),
            Some(Kind::File { .. }) => {
                let bytes = merged.read_file(path.as_bytes(), 1 << 20).expect("read");
                String::from_utf8(bytes.expect("a file")).expect("text")
            }
        }
    }

    /// Whether `path` exists, also as a link.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = RelPath::parse(path.as_bytes()).expect("a path");
        self.merged().has(&path).expect("looked at")
    }

    /// The names in the uppermost layer with their kinds: `d`, `f`, `l`, `w`, and `o` for an opaque
    /// directory.
    pub(crate) fn top(&self) -> Vec<String> {
        let layer = self.path(self.roots.len() - 1);
        let mut all: Vec<String> = walk(&layer)
            .iter()
            .map(|path| {
                let kind = fs::symlink_metadata(path).expect("status").file_type();
                let letter = match () {
                    () if kind.is_dir() && attributes(path).is_empty() => 'd',
                    () if kind.is_dir() => 'o',
                    () if kind.is_symlink() => 'l',
                    () if kind.is_char_device() => 'w',
                    () => 'f',
                };
                let name = path.strip_prefix(&layer).expect("beneath");
                format!("{letter} {}", name.to_string_lossy())
            })
            .collect();
        all.sort();
        all
    }

    pub(crate) fn mode(&self, path: &str) -> u32 {
        let layer = self.path(self.roots.len() - 1);
        let status = fs::symlink_metadata(layer.join(path)).expect("status");
        status.mode() & 0o7777
    }
}

/// Unpacks one layer over `below`, expects a refusal, and returns its code.
#[track_caller]
pub(crate) fn refused_over(below: &[Vec<u8>], tar: &[u8]) -> &'static str {
    let mut stack = Stack::of(below.iter().cloned());
    let error = stack.push(tar).expect_err("refused");
    assert!(error.is_refusal(), "{error}");
    error.code()
}

/// The same as [`refused_over`] for a single layer.
#[track_caller]
pub(crate) fn refused(tar: &[u8]) -> &'static str {
    refused_over(&[], tar)
}

pub(crate) fn attributes(path: &Path) -> Vec<String> {
    let mut names = vec![0_u8; 4096];
    let count = rustix::fs::llistxattr(path, &mut names).expect("listed");
    let all = names[..count].split(|byte| *byte == 0);
    all.filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        // The attribute that a security module of the host sets on every file.
        .filter(|name| !name.starts_with("security."))
        .collect()
}

/// All entries below `directory`, without following links.
pub(crate) fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).expect("listed") {
            let path = entry.expect("an entry").path();
            if fs::symlink_metadata(&path).expect("status").is_dir() {
                pending.push(path.clone());
            }
            all.push(path);
        }
    }
    all
}

fn snapshot(directory: &Path) -> BTreeMap<PathBuf, Seen> {
    walk(directory)
        .into_iter()
        .map(|path| {
            let status = fs::symlink_metadata(&path).expect("status");
            let contents = match status.file_type() {
                kind if kind.is_file() => fs::read(&path).expect("read"),
                kind if kind.is_symlink() => fs::read_link(&path)
                    .expect("read")
                    .into_os_string()
                    .into_encoded_bytes(),
                _ => Vec::new(),
            };
            let seen = (
                status.mode(),
                status.uid(),
                status.gid(),
                status.nlink(),
                status.mtime(),
                status.mtime_nsec(),
                contents,
            );
            (path, seen)
        })
        .collect()
}
