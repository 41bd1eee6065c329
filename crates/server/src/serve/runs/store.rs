//! The directories of runs and uploaded bundles, in the state directory.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spec::path::escape;
use spec::state_directory::{SERVED_RUNS, state_directory};
use spec::ulid::unix_time_ms;

use super::known::{Known, Record, RunDirectory};
use crate::serve::access::Access;
use companion::workspace::make_private;

/// Runs that ended and uploaded bundles are removed when they are older.
const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Uploaded bundles of each kind of client.
const BUNDLES_MAX: usize = 32;

/// All runs of this user that came from clients, and uploaded bundles.
#[derive(Debug, Clone)]
pub(super) struct Store {
    directory: PathBuf,
}

impl Store {
    /// # Errors
    /// A message: the directory cannot be made, or is not private.
    pub(super) fn open() -> Result<Self, String> {
        let uid = rustix::process::geteuid().as_raw();
        let above = state_directory(uid, |name| {
            let value = std::env::var_os(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute())
        });
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&above);
        made.map_err(|error| format!("{}: {error}", escape(above.as_os_str().as_bytes())))?;
        let store = Self {
            directory: above.join(SERVED_RUNS),
        };
        make_private(&store.directory)?;
        make_private(&store.runs())?;
        for access in [Access::Owner, Access::Templates] {
            make_private(&store.bundles(access))?;
        }
        Ok(store)
    }

    fn runs(&self) -> PathBuf {
        self.directory.join("runs")
    }

    /// For what is not complete.
    pub(super) fn uploads(&self) -> PathBuf {
        self.directory.join("uploads")
    }

    /// Bundles that clients have uploaded, by the digits of their digests. A client with the token does not find
    /// those of others.
    pub(super) fn bundles(&self, access: Access) -> PathBuf {
        self.directory.join(match access {
            Access::Owner => "bundles",
            Access::Templates | Access::E2b => "bundles-tcp",
        })
    }

    /// The directory of the run `id`, which need not exist.
    pub(super) fn run(&self, id: &str) -> RunDirectory {
        RunDirectory(self.runs().join(id))
    }

    /// The ids of all runs, the newest first.
    fn ids(&self) -> io::Result<Vec<String>> {
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(self.runs())? {
            ids.extend(entry?.file_name().into_string().ok().filter(|id| is_id(id)));
        }
        ids.sort_unstable_by(|left, right| right.cmp(left));
        Ok(ids)
    }

    /// The run `id`, if this client may see it.
    ///
    /// # Errors
    /// Those of reading its files.
    pub(super) fn find(&self, access: Access, id: &str) -> io::Result<Option<Known>> {
        if !is_id(id) {
            return Ok(None);
        }
        let known = Known::read(id, self.run(id))?;
        Ok(known.filter(|known| access == Access::Owner || known.record.is_of(access)))
    }

    /// The runs that this client may see, the newest first. A run that cannot be read, such as one that is removed
    /// meanwhile, is not there.
    ///
    /// # Errors
    /// Those of reading the directory.
    pub(super) fn list(&self, access: Access) -> io::Result<Vec<Known>> {
        let ids = self.ids()?.into_iter();
        let known = ids.filter_map(|id| self.find(access, &id).ok().flatten());
        Ok(known.collect())
    }

    /// The run that such a client has started with this key.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn find_by_key(&self, access: Access, key: &str) -> io::Result<Option<Known>> {
        for id in self.ids()? {
            let record = self.run(&id).record()?;
            let has_key = |record: &Record| {
                record.is_of(access) && record.idempotency_key.as_deref() == Some(key)
            };
            if record.is_some_and(|record| has_key(&record)) {
                return self.find(access, &id);
            }
        }
        Ok(None)
    }

    /// How many runs go on.
    ///
    /// # Errors
    /// Those of reading the directory.
    pub(super) fn live(&self) -> io::Result<usize> {
        let mut count = 0;
        for id in self.ids()? {
            count += usize::from(self.run(&id).is_live()?);
        }
        Ok(count)
    }

    /// Removes the oldest runs that have ended, and bundles that were not used for the longest time, if there are
    /// more than are kept, or if they are too old.
    ///
    /// # Errors
    /// Those of reading and removing.
    pub(super) fn prune(&self, keep_runs: usize) -> io::Result<()> {
        let now = SystemTime::now();
        let oldest = milliseconds(now.checked_sub(AGE_MAX).unwrap_or(UNIX_EPOCH));
        for (index, id) in self.ids()?.iter().enumerate() {
            let is_old = unix_time_ms(id).is_some_and(|time| time < oldest);
            let run = self.run(id);
            if (index >= keep_runs || is_old) && !run.is_live()? {
                remove(std::fs::remove_dir_all(&run.0))?;
            }
        }
        for access in [Access::Owner, Access::Templates] {
            let mut bundles = Vec::new();
            for entry in std::fs::read_dir(self.bundles(access))? {
                let entry = entry?;
                bundles.push((milliseconds(entry.metadata()?.modified()?), entry.path()));
            }
            bundles.sort_unstable_by(|left, right| right.cmp(left));
            for (index, (used, path)) in bundles.iter().enumerate() {
                if index >= BUNDLES_MAX || *used < oldest {
                    remove(std::fs::remove_file(path))?;
                }
            }
        }
        Ok(())
    }
}

/// Another server may remove it, too.
fn remove(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether it can be the id of a run, and so the name of its directory.
fn is_id(text: &str) -> bool {
    text.len() == 26 && unix_time_ms(text).is_some()
}

pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn now_ms() -> u64 {
    milliseconds(SystemTime::now())
}

/// Opens a file below `directory`, of which no part is a link.
///
/// # Errors
/// Those of openat2(2).
pub(super) fn open_beneath(directory: &Path, path: &str) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let directory = rustix::fs::open(directory, flags | OFlags::DIRECTORY, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // A FIFO would be waited for.
    let file = openat2(
        &directory,
        path,
        flags | OFlags::NONBLOCK,
        Mode::empty(),
        resolve,
    )?;
    Ok(File::from(file))
}
