//! Preparation runs: what `needs` asks for and neither image nor bundle has is installed once, in a
//! run of its own, and kept as a layer.
//!
//! A preparation run is a run like any other: the same supervisor, a sandbox of its own with limits
//! and an egress list of its own, no secrets, no variables of the caller's, no workspace. What it
//! leaves is read as what a stranger left, after its last process has ended.

mod error;
mod failure;
mod harvest;
mod nested;

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Instant;

use crate::bundle::Entry;
use crate::cache::{OnShelf, Shelf};
use crate::kernel::file::{Unread, read_regular};
use crate::oci::store::Store;
use crate::plan::preparation::{self, Ground, Kind, Lists, Missing, Step};
use crate::run::Run;
use crate::run::artifacts::UntilSignal;
use crate::run::error::RunError;
pub use crate::run::preparation::error::PreparationProblem;
use crate::run::preparation::harvest::{Harvest, Note, Root};
pub(super) use crate::run::preparation::nested::Preparing;
use crate::run::subject::BundleFiles;
use crate::spec::path::{RelPath, escape};
use crate::spec::preparation::PreparationPolicy;
use crate::spec::preparation_report::{PreparationFound, PreparationReport};
use crate::spec::report::{Report, WarningReport};

/// A longer list of packages is refused.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// Longer certificates or keys of the host are refused.
const HOST_FILE_BYTES_MAX: usize = 4 << 20;

/// A layer of packages, in use while this lives.
#[derive(Debug)]
pub(super) struct PreparedLayer {
    /// What it holds.
    pub(super) kind: Kind,
    /// Where.
    pub(super) tree: OnShelf,
}

/// What the packages are installed on.
#[derive(Clone, Copy)]
pub(super) struct Below<'run> {
    /// Digest of the image's manifest.
    pub(super) digest: &'run str,
    /// The image's architecture, as OCI names it.
    pub(super) architecture: &'run str,
    /// Its root.
    pub(super) root: Root<'run>,
}

/// The bundle's own lists.
///
/// # Errors
/// [`RunError::Argument`] for one that cannot be read.
pub(super) fn lists(bundle: &dyn BundleFiles) -> Result<Lists, RunError> {
    let read = |name: &str| -> Result<Option<Vec<u8>>, RunError> {
        let refused = |problem: String| RunError::Argument {
            code: "needs_list_unreadable",
            what: "the bundle's",
            object: name.to_owned(),
            problem,
            hint: None,
        };
        let Ok(path) = RelPath::parse(name.as_bytes()) else {
            return Ok(None);
        };
        if !matches!(bundle.tree().get(&path), Some(Entry::File { .. })) {
            return Ok(None);
        }
        let bytes = bundle.head(&path, LIST_BYTES_MAX + 1).map_err(refused)?;
        match u64::try_from(bytes.len()) {
            Ok(length) if length <= LIST_BYTES_MAX => Ok(Some(bytes)),
            _ => Err(refused("is larger than 16 MiB".to_owned())),
        }
    };
    let has_modules =
        RelPath::parse(b"node_modules").is_ok_and(|modules| bundle.tree().get(&modules).is_some());
    let npm = match has_modules {
        true => None,
        false => read("package.json")?.zip(read("package-lock.json")?),
    };
    Ok(Lists {
        npm,
        pip: read("requirements.txt")?,
    })
}

/// What has to be installed, in order.
///
/// # Errors
/// [`RunError::Preparation`], [`RunError::Argument`] for a file of the host configuration.
pub(super) fn steps(
    missing: &Missing,
    lists: &Lists,
    below: &Below<'_>,
    policy: &PreparationPolicy,
) -> Result<Vec<Step>, RunError> {
    let keys = policy
        .apt
        .as_ref()
        .and_then(|apt| apt.trusted_keys.as_deref());
    let ground = Ground {
        image: below.digest.to_owned(),
        architecture: below.architecture.to_owned(),
        certificates: host_file(policy.ca_file.as_deref(), "preparation.ca_file")?,
        keys: host_file(keys, "preparation.apt.trusted_keys")?,
    };
    let steps = preparation::steps(missing, lists, &ground, policy);
    Ok(steps.map_err(PreparationProblem::from)?)
}

/// What a person should know of lists that nobody says where to install from.
pub(super) fn warnings(lists: &Lists, policy: &PreparationPolicy) -> Vec<WarningReport> {
    let left_out = preparation::not_installed(lists, policy);
    left_out
        .into_iter()
        .map(|(kind, list)| {
            let message = format!(
                "nothing of the bundle's {list} is installed: the host configuration does not say \
                 where from; it has to say `{}`",
                kind.policy_key()
            );
            WarningReport::new("list_not_installed", message)
        })
        .collect()
}

/// What the report says of a step before anything is done.
#[must_use]
pub(super) fn planned(step: &Step) -> PreparationReport {
    let shown = |texts: &[String]| texts.iter().map(|text| escape(text.as_bytes())).collect();
    PreparationReport {
        kind: step.kind.word(),
        needs: shown(&step.needs),
        from: shown(&step.from),
        key: step.key,
        found: PreparationFound::Absent,
        bytes: None,
        packages: Vec::new(),
        scripts_not_run: Vec::new(),
        hosts: Vec::new(),
        denials: Vec::new(),
        duration_ms: None,
    }
}

impl Run<'_> {
    /// The layers of `steps`, lowest first: out of `store`, or made now. Each step is told to the
    /// report, also the one that fails.
    ///
    /// # Errors
    /// [`RunError::Preparation`], [`RunError::Cancelled`]; nothing of a step that failed is kept.
    pub(super) fn prepare(
        &self,
        steps: &[Step],
        below: &Below<'_>,
        store: &Store,
        signals: BorrowedFd<'_>,
        report: &mut Report,
    ) -> Result<Vec<PreparedLayer>, RunError> {
        let mut layers: Vec<PreparedLayer> = Vec::new();
        if steps.is_empty() {
            return Ok(layers);
        }
        let until = UntilSignal::new(signals)?;
        let shelf = store.prepared().map_err(PreparationProblem::from)?;
        for step in steps {
            let mut row = planned(step);
            let made = self.layer(step, (below, &layers), (store, &shelf), &until, &mut row);
            warn(&row, report);
            report.preparation.push(row);
            let tree = match (made, until.cancelled_by()) {
                (Ok(tree), _) => tree,
                (Err(_), Some(signal)) => return Err(RunError::Cancelled { signal }),
                (Err(error), None) => return Err(error),
            };
            layers.push(PreparedLayer {
                kind: step.kind,
                tree,
            });
        }
        Ok(layers)
    }

    /// The layer of one step. Of several processes that want the same one makes it, and the others
    /// wait for it.
    fn layer(
        &self,
        step: &Step,
        (below, layers): (&Below<'_>, &[PreparedLayer]),
        (store, shelf): (&Store, &Shelf),
        until: &UntilSignal,
        row: &mut PreparationReport,
    ) -> Result<OnShelf, RunError> {
        if let Some(tree) = held(shelf, step, row)? {
            return Ok(tree);
        }
        let digits = step.key.to_string();
        let name = format!("prepared-{}", digits.trim_start_matches("sha256:"));
        let claim = store
            .claim(&name, until)
            .map_err(PreparationProblem::from)?;
        if let Some(tree) = held(shelf, step, row)? {
            return Ok(tree);
        }
        let building = shelf.begin().map_err(PreparationProblem::from)?;
        let started = Instant::now();
        let harvest = Harvest::new(step.kind, building.tree(), below.root, self.policy);
        let done = self.run_step(step, (below, layers), &harvest, row);
        row.duration_ms = u64::try_from(started.elapsed().as_millis()).ok();
        done?;
        let note = harvest.finish(step)?;
        let bytes = serde_json::to_vec(&note).unwrap_or_default();
        let tree = shelf
            .keep(building, &step.key, note.bytes, note.disk_bytes, &bytes)
            .map_err(PreparationProblem::from)?;
        store.settle().map_err(PreparationProblem::from)?;
        drop(claim);
        tell(note, PreparationFound::Made, row);
        Ok(tree)
    }
}

/// The layer, where it was made before.
fn held(
    shelf: &Shelf,
    step: &Step,
    row: &mut PreparationReport,
) -> Result<Option<OnShelf>, RunError> {
    let Some(tree) = shelf.held(&step.key).map_err(PreparationProblem::from)? else {
        return Ok(None);
    };
    let note = tree.note().map_err(PreparationProblem::from)?;
    let note: Note = serde_json::from_slice(&note).unwrap_or_default();
    tell(note, PreparationFound::Store, row);
    Ok(Some(tree))
}

fn tell(note: Note, found: PreparationFound, row: &mut PreparationReport) {
    row.found = found;
    row.bytes = Some(note.bytes);
    row.packages = note.packages;
    row.scripts_not_run = note.scripts_not_run;
}

fn warn(row: &PreparationReport, report: &mut Report) {
    if !row.scripts_not_run.is_empty() {
        let message = format!(
            "the installation scripts of these packages were not run: {}",
            row.scripts_not_run.join(", ")
        );
        report
            .warnings
            .push(WarningReport::new("package_scripts_not_run", message));
    }
}

/// A file that the host configuration names.
fn host_file(path: Option<&Path>, key: &'static str) -> Result<Option<Vec<u8>>, RunError> {
    let Some(path) = path else { return Ok(None) };
    let refused = |problem: String| RunError::Argument {
        code: "preparation_file_unreadable",
        what: key,
        object: escape(path.as_os_str().as_encoded_bytes()),
        problem,
        hint: Some("mend the host configuration".to_owned()),
    };
    let file =
        std::fs::File::open(path).map_err(|error| refused(format!("cannot be opened: {error}")))?;
    let bytes = read_regular(file.into(), HOST_FILE_BYTES_MAX).map_err(|unread| {
        refused(match unread {
            Unread::Stat(errno) | Unread::Read(errno) => format!("cannot be read: {errno}"),
            Unread::NotRegular => "is not a regular file".to_owned(),
            Unread::TooLarge => "is larger than 4 MiB".to_owned(),
        })
    })?;
    Ok(Some(bytes))
}
