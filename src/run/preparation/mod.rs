//! Preparation runs install packages of `needs` that neither the image nor the bundle has, and store
//! them as a layer.
//!
//! A preparation run is an ordinary run: the same supervisor, a sandbox with its own limits and
//! egress list, without secrets, variables of the caller or a workspace. Its result is read as
//! untrusted input after its last process has ended.

pub(super) mod error;
mod failure;
mod harvest;
mod lists;
pub(super) mod nested;

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};

use crate::plan::preparation::{self, InstallContext, Kind, Lists, NODE_MODULES, PYTHON, Step};
use crate::run::error::RunError;
use crate::run::fetching::artifacts::FetchObserver;
use crate::run::fetching::progress::ProgressStep;
use crate::run::image::SelectedImage;
use crate::run::image::finding::{Access, fetch_result};
use crate::run::preparation::error::PreparationProblem;
use crate::run::preparation::harvest::{Harvest, Note, Root};
use crate::run::preparation::lists::read_lists;
use crate::run::preparation::nested::{Nested, run_step};
use crate::run::refusals::Refusals;
use crate::run::unpacking::bundle_files::BundleFiles;
use sources::oci::layers::LockedLayer;
use sources::oci::observer::Observer as _;
use sources::oci::opening::open_store;
use sources::oci::store::Store;
use spec::host_policy::HostPolicy;
use spec::path::{escape, escape_path};
use spec::preparation::PreparationPolicy;
use spec::preparation_report::{PreparationFound, PreparationReport};
use spec::report::WarningReport;
use spec::request::{EnvironmentEntry, Request};
use spec::runner_report::{EngineName, RunnerReport, UnsatisfiedNeed};
use store::{Label, StoreDirectory};
use sys::file::{Unread, read_regular};

/// Maximum size of the host's certificates or keys.
const HOST_FILE_BYTES_MAX: usize = 4 << 20;

/// The installed packages, or in a plan those that would be installed.
#[derive(Debug, Default)]
pub(super) struct PreparedPackages {
    /// Each kind, in order.
    pub(super) rows: Vec<PreparationReport>,
    pub(super) warnings: Vec<WarningReport>,
}

impl PreparedPackages {
    /// Directories of the root that contain programs of packages.
    pub(super) fn program_directories(&self) -> Vec<Vec<u8>> {
        let mut directories = Vec::new();
        if self.has(Kind::Npm) {
            directories.push(format!("{NODE_MODULES}/.bin").into_bytes());
        }
        if self.has(Kind::Pip) {
            directories.push(format!("{PYTHON}/bin").into_bytes());
        }
        directories
    }

    /// Variables that the body needs to find its packages.
    pub(super) fn environment(&self) -> Vec<EnvironmentEntry> {
        if self.has(Kind::Pip) {
            vec![(b"PYTHONUSERBASE".to_vec(), PYTHON.into())]
        } else {
            Vec::new()
        }
    }

    fn has(&self, kind: Kind) -> bool {
        self.rows.iter().any(|row| row.kind == kind.word())
    }
}

/// Installs the unmet needs of `runner` and the lists of the bundle as layers over the image. In a
/// plan, reports them instead. Installed needs count as met.
///
/// # Errors
/// [`RunError::Cancelled`]. [`RunError::Preparation`] and unreadable files of the bundle or the host,
/// unless `refusals` collects them.
pub(super) fn prepare_packages(
    request: &Request,
    policy: &HostPolicy,
    image: &mut SelectedImage,
    access: Access<'_>,
    bundle: &dyn BundleFiles,
    runner: &mut RunnerReport,
    refusals: &mut Refusals,
) -> Result<PreparedPackages, RunError> {
    let mut packages = PreparedPackages::default();
    if runner.engine != EngineName::Sandbox {
        return Ok(packages);
    }
    let planned = read_lists(bundle, access).and_then(|lists| {
        packages.warnings = warn_of_lists(&lists, &policy.preparation);
        let needs = &runner.needs_unsatisfied;
        steps(needs, &lists, image, request, &policy.preparation)
    });
    let Some(steps) = refusals.check(planned)? else {
        return Ok(packages);
    };
    let kinds = Kind::ALL.map(Kind::word);
    runner
        .needs_unsatisfied
        .retain(|need| !kinds.contains(&need.kind));
    match access {
        Access::StoreOnly => packages.rows.extend(steps.iter().map(planned_row)),
        Access::Fetch { signals } => {
            let preparer = Preparer { request, policy };
            let prepared = preparer.prepare(&steps, image, signals, &mut packages.rows);
            if refusals.check(prepared)?.is_none() {
                return Ok(packages);
            }
        }
    }
    packages
        .warnings
        .extend(packages.rows.iter().flat_map(warn_of_scripts));
    Ok(packages)
}

fn steps(
    needs: &[UnsatisfiedNeed],
    lists: &Lists,
    image: &SelectedImage,
    request: &Request,
    policy: &PreparationPolicy,
) -> Result<Vec<Step>, RunError> {
    let keys = policy
        .apt
        .as_ref()
        .and_then(|apt| apt.trusted_keys.as_deref());
    let digest = image.opened.as_ref().map(|opened| opened.image.digest);
    let context = InstallContext {
        image: digest.map(|digest| digest.to_string()).unwrap_or_default(),
        architecture: std::env::consts::ARCH.to_owned(),
        certificates: read_host_file(policy.ca_file.as_deref(), "preparation.ca_file")?,
        keys: read_host_file(keys, "preparation.apt.trusted_keys")?,
        added_hosts: request.network.added_hosts.clone(),
    };
    let steps = preparation::steps(needs, lists, &context, policy);
    Ok(steps.map_err(PreparationProblem::from)?)
}

fn warn_of_lists(lists: &Lists, policy: &PreparationPolicy) -> Vec<WarningReport> {
    let left_out = preparation::not_installed(lists, policy);
    left_out
        .into_iter()
        .map(|(kind, list)| {
            let message = format!(
                "nothing of the bundle's {list} is installed: the host configuration names no index; \
                 set `{}`",
                kind.policy_key()
            );
            WarningReport::new("list_not_installed", message)
        })
        .collect()
}

fn warn_of_scripts(row: &PreparationReport) -> Option<WarningReport> {
    let names = &row.scripts_not_run;
    (!names.is_empty()).then(|| {
        let message = format!(
            "the installation scripts of these packages were not run: {}",
            names.join(", ")
        );
        WarningReport::new("package_scripts_not_run", message)
    })
}

/// The report's row of a step before it starts.
fn planned_row(step: &Step) -> PreparationReport {
    let shown = |texts: &[String]| texts.iter().map(|text| escape(text.as_bytes())).collect();
    PreparationReport {
        kind: step.kind.word(),
        needs: shown(&step.needs),
        from: shown(&step.from),
        allowed: step.reach.iter().map(ToString::to_string).collect(),
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

fn step_name(step: &Step) -> String {
    let needs: Vec<String> = step
        .needs
        .iter()
        .map(|need| escape(need.as_bytes()))
        .collect();
    if needs.is_empty() {
        format!("{} packages that the bundle lists", step.kind.word())
    } else {
        format!("{} packages {}", step.kind.word(), needs.join(", "))
    }
}

#[derive(Clone, Copy)]
struct Preparer<'run> {
    request: &'run Request,
    policy: &'run HostPolicy,
}

struct Base<'run> {
    image: &'run SelectedImage,
    /// The previous step, which installed packages of the distribution.
    native: Option<&'run Step>,
}

impl Preparer<'_> {
    /// Adds the layers of `steps` to `image`, from the store or newly created.
    fn prepare(
        self,
        steps: &[Step],
        image: &mut SelectedImage,
        signals: BorrowedFd<'_>,
        rows: &mut Vec<PreparationReport>,
    ) -> Result<(), RunError> {
        if steps.is_empty() {
            return Ok(());
        }
        let store = open_store(&self.request.caller, self.policy);
        let store = store.map_err(PreparationProblem::from)?;
        let mut layers = Vec::new();
        for step in steps {
            let mut row = planned_row(step);
            let observer = FetchObserver::new(signals, ProgressStep::start(step_name(step)))?;
            let native = steps.first().filter(|first| {
                // The lowest layer is the base of the others.
                first.kind == Kind::Native && step.kind != Kind::Native
            });
            let base = Base { image, native };
            let result = self.make_layer(step, &base, &store, &observer, &mut row);
            match (result, observer.cancelled_by()) {
                (Ok(tree), _) => layers.push(tree),
                (Err(_), Some(signal)) => return Err(RunError::Cancelled { signal }),
                (Err(error), None) => return Err(error),
            }
            rows.push(row);
        }
        match &mut image.opened {
            Some(opened) => opened.add_layers(layers),
            None => Ok(()),
        }
    }

    /// Finds or makes the layer of one step. If several processes need it, one makes it and the others
    /// wait.
    fn make_layer(
        self,
        step: &Step,
        base: &Base<'_>,
        store: &Store,
        observer: &FetchObserver,
        row: &mut PreparationReport,
    ) -> Result<LockedLayer, RunError> {
        let layers = store.prepared().map_err(PreparationProblem::from)?;
        let find = |row: &mut PreparationReport| {
            let tree = find_layer(&layers, step, row)?;
            if tree.is_some() {
                observer.step.succeed(fetch_result(true));
            }
            Ok::<_, RunError>(tree)
        };
        if let Some(tree) = find(row)? {
            return Ok(tree);
        }
        let name = format!("prepared-{}", step.key.hexadecimal());
        let _claim = store
            .claim(&name, observer)
            .map_err(PreparationProblem::from)?;
        if let Some(tree) = find(row)? {
            return Ok(tree);
        }
        let building = layers.begin().map_err(PreparationProblem::from)?;
        let started = Instant::now();
        let note = {
            let opened = base
                .image
                .opened
                .as_ref()
                .ok_or_else(|| RunError::host("open the image")(rustix::io::Errno::NOENT))?;
            let view = opened.image.view().map_err(PreparationProblem::from)?;
            let merged = opened.image.merged();
            let root = Root {
                view: &view,
                below: &|path| merged.has(path),
            };
            let is_cancelled = || observer.is_cancelled();
            let harvest =
                Harvest::new(step.kind, building.tree(), root, self.policy, &is_cancelled);
            // Claimed again, for the nested run.
            let native = base.native.map(|native| layers.find(&native.key));
            let native = native.transpose().map_err(PreparationProblem::from)?;
            let nested = Nested {
                request: self.request,
                policy: self.policy,
                place: base.image.requested.place.at(opened.image.digest),
                base: native.flatten(),
            };
            run_step(step, nested, &harvest, &observer.step, row)?;
            harvest.finish(step)?
        };
        row.duration_ms = u64::try_from(started.elapsed().as_millis()).ok();
        let bytes = serde_json::to_vec(&note).unwrap_or_default();
        let label = Label {
            bytes: note.bytes,
            disk_bytes: note.disk_bytes,
            note: &bytes,
            is_verified_on_use: false,
        };
        let tree = layers
            .publish(building, &step.key, label)
            .map_err(PreparationProblem::from)?;
        store
            .enforce_size_limit()
            .map_err(PreparationProblem::from)?;
        fill_row(note, PreparationFound::Made, row);
        observer.step.succeed("installed");
        Ok(tree)
    }
}

fn find_layer(
    layers: &StoreDirectory,
    step: &Step,
    row: &mut PreparationReport,
) -> Result<Option<LockedLayer>, RunError> {
    let Some(tree) = layers.find(&step.key).map_err(PreparationProblem::from)? else {
        return Ok(None);
    };
    let note = tree.note().map_err(PreparationProblem::from)?;
    let note: Note = serde_json::from_slice(&note).unwrap_or_default();
    fill_row(note, PreparationFound::Store, row);
    Ok(Some(tree))
}

fn fill_row(note: Note, found: PreparationFound, row: &mut PreparationReport) {
    row.found = found;
    row.bytes = Some(note.bytes);
    row.packages = note.packages;
    row.scripts_not_run = note.scripts_not_run;
}

fn read_host_file(path: Option<&Path>, key: &'static str) -> Result<Option<Vec<u8>>, RunError> {
    let Some(path) = path else { return Ok(None) };
    let refused = |problem: String| RunError::Argument {
        code: "preparation_file_unreadable",
        what: key,
        object: escape_path(path),
        problem,
        hint: Some("fix the host configuration".to_owned()),
    };
    // O_NONBLOCK: opening a FIFO would block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| refused(format!("cannot be opened: {errno}")))?;
    let bytes = read_regular(file, HOST_FILE_BYTES_MAX).map_err(|unread| {
        refused(match unread {
            Unread::Stat(errno) | Unread::Read(errno) => format!("cannot be read: {errno}"),
            Unread::NotRegular => "is not a regular file".to_owned(),
            Unread::TooLarge => "is larger than 4 MiB".to_owned(),
        })
    })?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_in_the_place_of_a_file_of_the_host_is_refused_without_waiting() {
        let directory = tempfile::tempdir().expect("a directory");
        let fifo = directory.path().join("fifo");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, Mode::RUSR, 0).expect("made");
        let error = read_host_file(Some(&fifo), "preparation.ca_file").expect_err("refused");
        assert!(
            error.to_string().contains("is not a regular file"),
            "{error}"
        );
    }
}
