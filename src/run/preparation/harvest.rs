//! Converts the result of a preparation run to a layer, after its last process has ended. Its tree
//! and package archives are untrusted input.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::plan::preparation::{DEBS, Kind, LAYER, NODE_MODULES, PYTHON, Step};
use crate::run::error::RunError;
use crate::run::preparation::error::PreparationProblem;
use archive::deb::Package;
use archive::hiding::ExistsBelow as Below;
use archive::{LayerView, UnpackLimits};
use reader::{PackagesTask, Problem};
use sources::oci::layers::unpack_packages;
use sources::oci::opening::layer_limits;
use spec::host_policy::HostPolicy;
use spec::path::{RelPath, escape};
use store::disk_bytes;
use sys::file::open_beneath;

/// Maximum number of package archives of one run.
const DEBS_MAX: usize = 4_000;

/// The root that packages are installed on; resolves the paths of packages.
#[derive(Clone, Copy)]
pub(super) struct Root<'run> {
    pub(in crate::run) view: &'run LayerView,
    /// Whether something is there.
    pub(super) below: Below<'run>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Note {
    pub(in crate::run) bytes: u64,
    pub(in crate::run) disk_bytes: u64,
    /// Native packages with their versions.
    pub(in crate::run) packages: Vec<String>,
    pub(super) scripts_not_run: Vec<String>,
}

pub(super) struct Harvest<'run> {
    kind: Kind,
    into: BorrowedFd<'run>,
    root: Root<'run>,
    limits: UnpackLimits,
    is_cancelled: &'run dyn Fn() -> bool,
    note: RefCell<Option<Note>>,
}

impl<'run> Harvest<'run> {
    /// Writes to the empty directory `into`; stops reading archives once `is_cancelled`.
    pub(in crate::run) fn new(
        kind: Kind,
        into: BorrowedFd<'run>,
        root: Root<'run>,
        policy: &HostPolicy,
        is_cancelled: &'run dyn Fn() -> bool,
    ) -> Self {
        Self {
            kind,
            into,
            root,
            limits: layer_limits(policy),
            is_cancelled,
            note: RefCell::new(None),
        }
    }

    /// Reads the writable space of a run that succeeded.
    pub(in crate::run) fn read(&self, space: BorrowedFd<'_>) -> Result<(), RunError> {
        let note = match self.kind {
            Kind::Native => self.packages(space)?,
            Kind::Npm => self.tree(space, NODE_MODULES)?,
            Kind::Pip => self.tree(space, PYTHON)?,
        };
        *self.note.borrow_mut() = Some(note);
        Ok(())
    }

    /// The metadata.
    ///
    /// # Errors
    /// [`RunError::Host`] if nothing was converted.
    pub(in crate::run) fn finish(self, step: &Step) -> Result<Note, RunError> {
        let act = || format!("read the result of the preparation of {}", step.kind.word());
        self.note
            .into_inner()
            .ok_or_else(|| RunError::host(act())(Errno::NODATA))
    }

    fn tree(&self, space: BorrowedFd<'_>, expected: &'static str) -> Result<Note, RunError> {
        let kind = self.kind.word();
        let left = open_result(space, LAYER)?;
        let unpacked = archive::unpack_directory_as(left.as_fd(), self.into, &self.limits, None);
        let unpacked = unpacked.map_err(|source| PreparationProblem::Layer {
            kind,
            source: Problem::of(&source),
        })?;
        let inside = expected.trim_start_matches('/').as_bytes();
        let elsewhere = unpacked.tree.iter().map(|(path, _)| path).find(|path| {
            let path = path.as_bytes();
            let below = |path: &[u8], above: &[u8]| {
                path.strip_prefix(above)
                    .is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
            };
            !below(path, inside) && !below(inside, path)
        });
        if let Some(path) = elsewhere {
            return Err(PreparationProblem::Elsewhere {
                kind,
                found: format!("/{}", escape(path.as_bytes())),
                expected,
            }
            .into());
        }
        Ok(Note {
            bytes: unpacked.bytes,
            disk_bytes: disk_bytes(&unpacked.tree),
            ..Note::default()
        })
    }

    fn packages(&self, space: BorrowedFd<'_>) -> Result<Note, RunError> {
        let debs = open_result(space, DEBS)?;
        let names = names(debs.as_fd())?;
        let mut left = names.iter();
        let mut next = || {
            let Some(name) = left.next() else {
                return Ok(None);
            };
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
            let file = open_beneath(debs.as_fd(), name, flags, Mode::empty())?;
            Ok(Some(File::from(file)))
        };
        let task = PackagesTask {
            next: &mut next,
            packages_max: names.len() as u64,
            // An archive of limited size may inflate a thousandfold.
            is_cancelled: self.is_cancelled,
            into: self.into,
            view: self.root.view,
            limits: &self.limits,
        };
        let layer = unpack_packages(task, self.root.below).map_err(|found| {
            let name = found.index.and_then(|index| names.get(index));
            match name {
                Some(name) => PreparationProblem::Deb {
                    file: escape(name),
                    source: found.problem,
                },
                None => PreparationProblem::Layer {
                    kind: self.kind.word(),
                    source: found.problem,
                },
            }
        })?;
        let packages = layer.packages.iter();
        let has_scripts = |package: &&Package| !package.scripts.is_empty();
        Ok(Note {
            bytes: layer.bytes,
            disk_bytes: layer.disk_bytes,
            packages: packages.clone().map(shown).collect(),
            scripts_not_run: packages.filter(has_scripts).map(shown).collect(),
        })
    }
}

fn shown(package: &Package) -> String {
    format!(
        "{} {}",
        escape(package.name.as_bytes()),
        escape(package.version.as_bytes())
    )
}

/// A directory of the scratch root, which the run may have replaced by anything.
fn open_result(space: BorrowedFd<'_>, path: &str) -> Result<std::os::fd::OwnedFd, RunError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let inside = path.trim_start_matches('/').as_bytes();
    open_beneath(space, inside, flags, Mode::empty())
        .map_err(RunError::host(format!("open {path} of the preparation")))
}

/// The archives of apt, sorted by name, which has package and version.
fn names(directory: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, RunError> {
    let failed = || RunError::host("list the packages of the preparation");
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let name = entry.file_name().to_bytes();
        if name.ends_with(b".deb") && RelPath::parse(name).is_ok() {
            names.push(name.to_vec());
        }
        if names.len() > DEBS_MAX {
            return Err(failed()(Errno::TOOBIG));
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::report::with_causes;
    use support::tar::Tar;

    /// A package with `data`, as deb(5) describes it.
    fn package(name: &str, script: &str, data: Tar) -> Vec<u8> {
        let control = format!("Package: {name}\nVersion: 1.0\nArchitecture: all\n");
        let control = Tar::new()
            .file("control", control.as_bytes())
            .file(script, b"");
        let mut bytes = b"!<arch>\n".to_vec();
        for (member, contents) in [
            ("debian-binary", b"2.0\n".to_vec()),
            ("control.tar", control.end()),
            ("data.tar", data.end()),
        ] {
            let size = contents.len();
            let header = format!("{member:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 0);
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend(contents);
        }
        bytes
    }

    /// What is made of these package archives, and the directory of the layer.
    fn harvested(debs: &[(&str, Vec<u8>)]) -> (Result<Option<Note>, RunError>, tempfile::TempDir) {
        let space = tempfile::tempdir().expect("a directory");
        let directory = space.path().join(DEBS.trim_start_matches('/'));
        std::fs::create_dir_all(&directory).expect("made");
        for (name, bytes) in debs {
            std::fs::write(directory.join(name), bytes).expect("written");
        }
        let layer = tempfile::tempdir().expect("a directory");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(layer.path(), mode).expect("set");
        let [space, into] =
            [space.path(), layer.path()].map(|path| File::open(path).expect("opened"));
        let root = Root {
            view: &LayerView::default(),
            below: &|_path| Ok(false),
        };
        let policy = HostPolicy::default();
        let harvest = Harvest::new(Kind::Native, into.as_fd(), root, &policy, &|| false);
        let read = harvest.read(space.as_fd());
        (read.map(|()| harvest.note.take()), layer)
    }

    #[test]
    fn packages_become_a_layer_in_the_order_of_their_names() {
        let data = |name: &str| Tar::new().file(name, b"12345");
        let (note, layer) = harvested(&[
            ("b_1.0_all.deb", package("b", "postinst", data("usr/b"))),
            ("a_1.0_all.deb", package("a", "md5sums", data("usr/a"))),
            ("lock", Vec::new()),
        ]);
        let note = note.expect("read").expect("a note");
        assert_eq!(note.packages, ["a 1.0", "b 1.0"]);
        assert_eq!(note.scripts_not_run, ["b 1.0"]);
        assert_eq!(note.bytes, 10);
        assert_eq!(
            std::fs::read(layer.path().join("usr/b")).expect("read"),
            b"12345"
        );
    }

    ///
    #[test]
    fn a_hostile_package_is_refused_by_its_name() {
        let good = || package("a", "md5sums", Tar::new().file("usr/a", b"a"));
        let climbs = package("b", "md5sums", Tar::new().file("../b", b"b"));
        for (bytes, expected) in [
            (climbs, "../b"),
            (b"PK\x03\x04".to_vec(), "expected a Debian package"),
            (good()[..30].to_vec(), "the package ends in the middle"),
        ] {
            let (read, _layer) = harvested(&[("a.deb", good()), ("b.deb", bytes)]);
            let error = read.expect_err("refused");
            let message = with_causes(&error);
            let name = "the package archive b.deb of `runner.needs.native`";
            assert!(
                message.contains(name) && message.contains(expected),
                "{message}"
            );
        }
    }
}
