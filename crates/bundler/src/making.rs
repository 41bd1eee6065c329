//! One bundle, in stages: pinned, composed, written, committed. Each stage consumes the one before.
//!
//! [`locate`](crate::locate::locate) and [`resolve`](crate::resolve::resolve) come first.

use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::error::ComposeError;
use crate::files::FileIdentity;
use crate::gather::{GatherOptions, Gathered, gather};
use crate::hosting::Locked;
use crate::locate::Located;
use crate::locking::{differences_unfetched, lock_of};
use crate::manifests::{Unread, read_host_file};
use crate::output::OutputFile;
use crate::resolve::Resolution;
use crate::runnable::{check_manifest, check_run, read_manifest_of};
use crate::write::{WrittenBundle, content_digest, write};
use sources::github::GitHub;
use spec::digest::Digest;
use spec::host_policy::HostPolicy;
use spec::lock::{Lock, LockDifference, LockError};
use spec::manifest::Manifest;
use spec::path::escape;

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    #[error(transparent)]
    Compose(#[from] ComposeError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{file}: the bundle is not what the lock file says:\n{}", lines(.differences))]
    Drift {
        file: String,
        differences: Vec<LockDifference>,
    },
    #[error("the lock file {0}")]
    LockUnreadable(#[source] Unread),
    #[error("workspace source {id}: `{reference}` names a tag, expected a digest")]
    SourceTag { id: String, reference: String },
    #[error("the resolved manifest cannot be written: {0}")]
    Json(#[from] serde_json::Error),
}

impl MakeError {
    /// Stable.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Compose(error) => error.code(),
            Self::Lock(_) | Self::LockUnreadable(_) => "lock_invalid",
            Self::Drift { .. } => "lock_drift",
            Self::SourceTag { .. } => "source_tag_refused",
            Self::Json(_) => "manifest",
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Compose(error) => return error.hint(),
            Self::Lock(error) => return Some(error.hint()),
            Self::Drift { .. } => "write the lock file anew: leave out --locked",
            Self::LockUnreadable(_) => "write one: leave out --locked",
            Self::SourceTag { .. } => {
                "write its digest behind it, @sha256:…: `runner source inspect` prints it"
            }
            Self::Json(_) => return None,
        };
        Some(hint.to_owned())
    }
}

fn lines(differences: &[LockDifference]) -> String {
    let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// What is done with a lock file.
#[derive(Debug, Clone, Copy)]
pub enum LockUse<'call> {
    Nothing,
    /// It is written.
    Write,
    /// The bundle has to be what it says.
    Hold(&'call Path),
}

/// A lock file that the bundle has to agree with.
#[derive(Debug)]
struct HeldLock<'call> {
    path: &'call Path,
    lock: Lock,
}

impl HeldLock<'_> {
    fn refuse(&self, differences: Vec<LockDifference>) -> Result<(), MakeError> {
        match differences.is_empty() {
            true => Ok(()),
            false => Err(MakeError::Drift {
                file: shown(self.path),
                differences,
            }),
        }
    }
}

/// A resolved manifest whose references are those that its lock file knows.
#[derive(Debug)]
pub struct Pinned<'call> {
    /// What was resolved.
    pub resolution: Resolution,
    manifest: Manifest,
    held: Option<HeldLock<'call>>,
    locks: bool,
}

impl<'call> Pinned<'call> {
    /// Judges the manifest of `resolution`, and what of the lock file can be judged before anything
    /// is fetched. `require_pin`: references to tags are refused.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn of(
        resolution: Resolution,
        policy: &HostPolicy,
        lock: LockUse<'call>,
        require_pin: bool,
    ) -> Result<Self, MakeError> {
        let held = match lock {
            LockUse::Hold(path) => Some(read_lock(path)?),
            LockUse::Nothing | LockUse::Write => None,
        };
        let manifest = read_manifest_of(&resolution)?;
        check_manifest(&resolution, &manifest, &policy.images)?;
        let locks = !matches!(lock, LockUse::Nothing);
        check_pinned(&manifest, locks || require_pin)?;
        if let Some(held) = &held {
            // Before a reference that it does not know is refused alone.
            let differences = differences_unfetched(&held.lock, &manifest, &resolution.layers);
            held.refuse(differences)?;
        }
        Ok(Self {
            resolution,
            manifest,
            held,
            locks,
        })
    }

    /// Lists the files and fetches repositories. The files that are written are no part of it.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn compose<'files>(
        self,
        located: &'files Located,
        github: &dyn GitHub,
        outputs: [&Option<OutputFile>; 2],
        mut options: GatherOptions<'_>,
    ) -> Result<Composed<'call, 'files>, MakeError> {
        for output in outputs.into_iter().flatten() {
            options.exclude.extend(output.replaces()?);
            options.exclude.push(output.identity()?);
        }
        let locked;
        let mut github = github;
        if let Some(HeldLock { path, lock }) = &self.held {
            options.exclude.push(identity_of(path)?);
            locked = Locked { github, lock };
            github = &locked;
        }
        let Resolution {
            layers, manifest, ..
        } = &self.resolution;
        let gathered = gather(layers, Some(manifest), &located.files, github, &options)?;
        Ok(Composed {
            gathered,
            pinned: self,
        })
    }
}

/// All that a bundle consists of, and where to read it.
#[derive(Debug)]
pub struct Composed<'call, 'files> {
    pub gathered: Gathered<'files>,
    pinned: Pinned<'call>,
}

/// Where a bundle goes.
pub enum Destination<'call> {
    File(OutputFile),
    /// With its name for errors. What was written there cannot be taken back.
    Stream(&'call mut dyn Write, &'static str),
    Nowhere,
}

impl std::fmt::Debug for Destination<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::File(_) => "File",
            Self::Stream(_, name) => name,
            Self::Nowhere => "Nowhere",
        })
    }
}

impl Destination<'_> {
    fn is_final(&self) -> bool {
        match self {
            Self::File(file) => file.is_stream(),
            Self::Stream(..) => true,
            Self::Nowhere => false,
        }
    }
}

impl<'files> Composed<'_, 'files> {
    /// Writes the bundle. `wants_digest`: its digest is computed also where it goes nowhere.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn write(
        self,
        mut destination: Destination<'_>,
        wants_digest: bool,
    ) -> Result<Written<'files>, MakeError> {
        let Pinned {
            resolution,
            manifest,
            held,
            locks,
        } = &self.pinned;
        check_run(resolution, manifest, &self.gathered.tree)?;
        if destination.is_final() && held.is_some() {
            // Whoever reads it has it before the exit code.
            self.lock(content_digest(&self.gathered)?)?;
        }
        let bundle = match &mut destination {
            Destination::File(file) => {
                let written = write(&self.gathered, file);
                Some(written.map_err(|error| file.named(error))?)
            }
            Destination::Stream(stream, name) => {
                let written = write(&self.gathered, *stream);
                Some(written.map_err(|error| error.at(name))?)
            }
            Destination::Nowhere => None,
        };
        let digest = match bundle {
            Some(bundle) => Some(bundle.content_digest),
            None if wants_digest || *locks => Some(content_digest(&self.gathered)?),
            None => None,
        };
        let lock = digest.filter(|_| *locks).map(|digest| self.lock(digest));
        Ok(Written {
            bundle,
            digest,
            lock: lock.transpose()?,
            output: match destination {
                Destination::File(file) => Some(file),
                Destination::Stream(..) | Destination::Nowhere => None,
            },
            gathered: self.gathered,
        })
    }

    /// The lock of the bundle, which agrees with the one that is held.
    fn lock(&self, digest: Digest) -> Result<Lock, MakeError> {
        let Pinned {
            resolution,
            manifest,
            held,
            ..
        } = &self.pinned;
        let now = lock_of(manifest, &resolution.layers, &self.gathered, digest);
        if let Some(held) = held {
            held.refuse(held.lock.differences(&now))?;
        }
        Ok(now)
    }
}

/// A bundle that is written, and not yet at its place.
#[derive(Debug)]
pub struct Written<'files> {
    pub gathered: Gathered<'files>,
    /// `None`: it went nowhere.
    pub bundle: Option<WrittenBundle>,
    pub digest: Option<Digest>,
    lock: Option<Lock>,
    output: Option<OutputFile>,
}

impl Written<'_> {
    /// Puts the bundle at its place, and then the lock file, which says what the bundle is: when
    /// nothing can be refused any more.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn commit(&mut self, lock_file: Option<OutputFile>) -> Result<(), MakeError> {
        let lock_file = match (lock_file, &self.lock) {
            (Some(mut file), Some(lock)) => {
                file.fill(lock.to_json()?.as_bytes())?;
                Some(file)
            }
            (file, _) => file,
        };
        if let Some(file) = self.output.take() {
            file.commit()?;
        }
        if let Some(file) = lock_file {
            file.commit()?;
        }
        Ok(())
    }
}

/// What a lock file says is what the bundle gets: no tag that may move.
fn check_pinned(manifest: &Manifest, pins: bool) -> Result<(), MakeError> {
    let mut sources = manifest.workspace_sources.iter();
    match sources.find(|source| source.is_pinned() == Some(false)) {
        Some(source) if pins => Err(MakeError::SourceTag {
            id: escape(source.id.as_bytes()),
            reference: escape(source.reference.as_bytes()),
        }),
        _ => Ok(()),
    }
}

/// The file that is read as the lock file.
fn identity_of(path: &Path) -> Result<FileIdentity, MakeError> {
    FileIdentity::at(path).map_err(|source| {
        MakeError::LockUnreadable(Unread {
            file: shown(path),
            problem: "cannot be looked at",
            source: Some(source),
        })
    })
}

fn read_lock(path: &Path) -> Result<HeldLock<'_>, MakeError> {
    let text = read_host_file(path).map_err(MakeError::LockUnreadable)?;
    let lock = Lock::parse(&text, &shown(path))?;
    Ok(HeldLock { path, lock })
}

fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}
