//! A target directory beside a canary tree, and the checks after every archive.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use archive::{UnpackError, UnpackLimits, Unpacked};
use spec::parse_permit::ParsePermit;

/// For texts of these tests.
pub(crate) const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

/// The properties of a directory entry that an escape could change.
type Seen = (u32, u32, u32, u64, i64, i64, Vec<u8>);

pub(crate) struct Arena {
    outside: tempfile::TempDir,
    before: BTreeMap<PathBuf, Seen>,
}

/// Records the read bytes, and a failure as an end.
struct Recorded<'copy, Source>(Source, &'copy mut Vec<u8>);

impl<Source: Read> Read for Recorded<'_, Source> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

/// Reading without unpacking finds the same, and refuses the same with the same message.
fn check_survey(archive: &[u8], limits: &UnpackLimits, result: &Result<Unpacked, UnpackError>) {
    let surveyed = archive::survey(&PERMIT, archive, limits, &["manifest.yaml"]);
    match (result, surveyed) {
        (Ok(unpacked), Ok(surveyed)) => {
            assert_eq!(surveyed.tree, unpacked.tree);
            assert_eq!(surveyed.warnings, unpacked.warnings);
            assert_eq!(surveyed.archive_digest, unpacked.archive_digest);
            assert_eq!(surveyed.bytes, unpacked.bytes);
            let digest = surveyed.content_digest;
            assert!(digest.is_none() || digest == Some(unpacked.content_digest));
        }
        (Err(error), Err(other)) if error.is_refusal() => {
            assert_eq!(error.to_string(), other.to_string());
        }
        // Errors of a file system or a source.
        (Err(error), _) if !error.is_refusal() => (),
        (result, surveyed) => panic!("{result:?}\n{surveyed:?}"),
    }
}

/// Inflating ahead, from the first byte on, finds, creates and refuses the same.
fn check_ahead(archive: &[u8], limits: &UnpackLimits, result: &Result<Unpacked, UnpackError>) {
    let arena = Arena::new();
    let target = fs::File::open(arena.target()).expect("opened");
    let mut archive = archive::Hashed::new(archive);
    let ahead = archive::unpack_ahead(&PERMIT, &mut archive, target.as_fd(), limits, 0);
    arena.check(&ahead);
    match (result, ahead) {
        (Ok(unpacked), Ok(ahead)) => {
            assert_eq!(ahead.tree, unpacked.tree);
            assert_eq!(ahead.warnings, unpacked.warnings);
            assert_eq!(Some(archive.digest()), unpacked.archive_digest);
            assert_eq!(ahead.content_digest, unpacked.content_digest);
            let found = archive::canonical::content_digest(&ahead.tree, target.as_fd());
            assert_eq!(found.expect("read back"), ahead.content_digest);
        }
        (Err(error), Err(other)) if error.is_refusal() => {
            assert_eq!(error.to_string(), other.to_string());
            assert_eq!(error.code(), other.code());
        }
        // Errors of a file system or a source.
        (Err(error), _) if !error.is_refusal() => (),
        (result, ahead) => panic!("{result:?}\n{ahead:?}"),
    }
}

impl Arena {
    pub(crate) fn new() -> Self {
        let outside = tempfile::tempdir().expect("a directory");
        let canary = outside.path().join("canary");
        fs::create_dir_all(canary.join("directory")).expect("made");
        fs::write(canary.join("secret"), b"secret").expect("written");
        fs::write(canary.join("directory/file"), b"canary").expect("written");
        symlink("secret", canary.join("link")).expect("linked");
        let mode = |name: &str, mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(canary.join(name), mode).expect("mode set");
        };
        mode("secret", 0o600);
        mode("directory", 0o700);
        fs::create_dir(outside.path().join("target")).expect("made");
        let target = fs::Permissions::from_mode(0o751);
        fs::set_permissions(outside.path().join("target"), target).expect("mode set");
        let before = snapshot(&canary);
        Self { outside, before }
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.outside.path().join("target")
    }

    /// An absolute path into the canary tree.
    pub(crate) fn canary(&self, name: &str) -> String {
        let path = self.outside.path().join("canary").join(name);
        path.to_str().expect("UTF-8").to_owned()
    }

    /// Unpacks and checks the conditions that hold for every archive.
    pub(crate) fn unpack(
        &self,
        archive: impl Read + Send,
        limits: &UnpackLimits,
    ) -> Result<Unpacked, UnpackError> {
        let target = fs::File::open(self.target()).expect("opened");
        let mut copy = Vec::new();
        let archive = Recorded(archive, &mut copy);
        let result = archive::unpack(&PERMIT, archive, target.as_fd(), limits);
        self.check(&result);
        check_survey(&copy, limits, &result);
        check_ahead(&copy, limits, &result);
        result
    }

    /// The canary tree is unchanged, and nothing in the target leads out of it.
    pub(crate) fn check(&self, result: &Result<Unpacked, UnpackError>) {
        let canary = self.outside.path().join("canary");
        assert_eq!(snapshot(&canary), self.before, "the canary was touched");
        let beside: Vec<_> = names(self.outside.path());
        assert_eq!(
            beside,
            ["canary", "target"],
            "something lies beside the target"
        );
        let mode = fs::metadata(self.target()).expect("target").mode();
        assert_eq!(mode & 0o7777, 0o751, "the target itself was changed");
        for path in walk(&self.target()) {
            let status = fs::symlink_metadata(&path).expect("status");
            let file_type = status.file_type();
            assert!(
                !file_type.is_fifo()
                    && !file_type.is_socket()
                    && !file_type.is_char_device()
                    && !file_type.is_block_device(),
                "{}: a special file",
                path.display()
            );
            if file_type.is_symlink() {
                assert!(result.is_ok(), "{}: a link after a refusal", path.display());
                if let Ok(real) = fs::canonicalize(&path) {
                    let target = fs::canonicalize(self.target()).expect("target");
                    assert!(real.starts_with(target), "{}: escapes", path.display());
                }
                continue;
            }
            assert_eq!(status.mode() & 0o7000, 0, "{}: set-id", path.display());
            if file_type.is_file() {
                assert_eq!(status.nlink(), 1, "{}: a hard link", path.display());
            }
        }
        if let Err(error) = result {
            assert!(!error.to_string().is_empty());
            assert!(!error.to_string().contains(char::is_control), "{error:?}");
            assert!(error.to_string().len() < 6_000, "{error}");
        }
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.target().join(name)).expect("a file")
    }

    pub(crate) fn mode(&self, name: &str) -> u32 {
        let status = fs::symlink_metadata(self.target().join(name)).expect("status");
        status.mode() & 0o7777
    }

    /// Names of everything in the target, sorted.
    pub(crate) fn found(&self) -> Vec<String> {
        let target = self.target();
        walk(&target)
            .iter()
            .map(|path| path.strip_prefix(&target).expect("beneath"))
            .map(|path| path.to_string_lossy().into_owned())
            .collect()
    }

    /// Bytes of all files in the target.
    pub(crate) fn bytes(&self) -> u64 {
        walk(&self.target())
            .iter()
            .map(|path| fs::symlink_metadata(path).expect("status"))
            .filter(fs::Metadata::is_file)
            .map(|status| status.len())
            .sum()
    }
}

/// Unpacks with the default limits, expects a refusal, and returns it.
#[track_caller]
pub(crate) fn refused(archive: &[u8], code: &str) -> UnpackError {
    refused_in(&Arena::new(), archive, code)
}

#[track_caller]
pub(crate) fn refused_in(arena: &Arena, archive: &[u8], code: &str) -> UnpackError {
    match arena.unpack(archive, &UnpackLimits::default()) {
        Err(error) => {
            assert_eq!(error.code(), code, "{error}");
            assert!(error.is_refusal(), "{error}");
            error
        }
        Ok(unpacked) => panic!("not refused: {:?}", unpacked.tree),
    }
}

/// Unpacks with the default limits and expects success.
#[track_caller]
pub(crate) fn kept(archive: &[u8]) -> (Arena, Unpacked) {
    let arena = Arena::new();
    match arena.unpack(archive, &UnpackLimits::default()) {
        Ok(unpacked) => (arena, unpacked),
        Err(error) => panic!(
            "{}: {error} {:?}",
            error.code(),
            std::error::Error::source(&error)
        ),
    }
}

/// Everything beneath `directory`, sorted; links are not followed.
pub(crate) fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).expect("readable") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_dir() {
                pending.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .expect("readable")
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| OsStr::to_string_lossy(&name).into_owned())
        .collect();
    names.sort();
    names
}

fn snapshot(directory: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut all = walk(directory);
    all.push(directory.to_owned());
    all.into_iter()
        .map(|path| {
            let status = fs::symlink_metadata(&path).expect("status");
            let contents = match status.file_type() {
                kind if kind.is_file() => fs::read(&path).expect("read"),
                kind if kind.is_symlink() => {
                    let target = fs::read_link(&path).expect("a link");
                    target.into_os_string().into_encoded_bytes()
                }
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

pub(crate) use support::skip as skipped;
