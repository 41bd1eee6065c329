//! Selects the image that becomes the body's root, and reads its contents.

pub(super) mod finding;
mod node;
mod python;
pub(super) mod root;

use rustix::fs::{AtFlags, FileType};

use crate::plan::environment;
use crate::run::error::RunError;
use crate::run::image::finding::{Access, find};
use crate::run::planning::needs::installed;
use crate::run::planning::programs::interpreters;
use sandbox::image_user::ImageUser;
use sources::oci::layers::{Image, Kind, LockedLayer, LookupError};
use spec::detection::{Interpreters, NodeVersion};
use spec::host_policy::HostPolicy;
use spec::image::SelectedTemplate;
use spec::image_report::{ImageFound, ImageReport, ImageUserReport, RootKind};
use spec::oci::reference::Place;
use spec::parse_permit::ParsePermit;
use spec::path::escape;
use spec::report::{WarningReport, with_causes};
use spec::request::Request;
use spec::run_form::Run;
use spec::typescript::NpmRegistry;

/// Maximum size of `etc/passwd` or `etc/group`; a larger one is refused.
const NAMES_BYTES_MAX: u64 = 1 << 20;
/// Maximum size read of a package list.
const PACKAGES_BYTES_MAX: u64 = 64 << 20;
const PACKAGES: &[u8] = b"var/lib/dpkg/status";
/// Maximum number of directories in the root: each gets a Landlock rule.
const NAMES_IN_ROOT_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestedImage {
    /// The template that names it; `None` if `--image` does.
    pub(super) id: Option<String>,
    pub(super) place: Place,
}

#[derive(Debug)]
pub(super) struct SelectedImage {
    pub(super) requested: RequestedImage,
    /// `None` in a plan if it is not in the store.
    pub(super) opened: Option<OpenedImage>,
}

/// An image whose layers are in the store.
#[derive(Debug)]
pub(super) struct OpenedImage {
    pub(super) image: Image,
    pub(super) user: ImageUser,
    passwd: Vec<u8>,
    pub(super) group: Vec<u8>,
    pub(super) top: Vec<Vec<u8>>,
}

/// The requested image; `None` to use the host's programs.
///
/// # Errors
/// [`RunError::Argument`]: the template names no image.
pub(super) fn requested(
    request: &Request,
    picked: Option<&SelectedTemplate>,
    policy: &HostPolicy,
) -> Result<Option<RequestedImage>, RunError> {
    if let Some(place) = &request.oci.image {
        let place = place.clone();
        return Ok(Some(RequestedImage { id: None, place }));
    }
    let Some(picked) = picked else {
        return Ok(None);
    };
    let id = escape(picked.id.as_bytes());
    let Some(source) = &picked.source else {
        return Err(RunError::Argument {
            code: "image_source_missing",
            what: "image",
            object: id.clone(),
            problem: "has no root file system on this host: its template has no `source`"
                .to_owned(),
            hint: Some(format!(
                "add `images: [{{id: {id}, …, source: docker://… or oci:DIR}}]` to the host \
                 configuration, or name an image with --image"
            )),
        });
    };
    let registry = policy.oci.default_registry.as_deref();
    let place = Place::parse_with(source, registry).map_err(|error| RunError::Argument {
        code: "image_source_invalid",
        what: "image",
        object: id,
        problem: format!("has an invalid `source` in the host configuration: {error}"),
        hint: error.hint(),
    })?;
    Ok(Some(RequestedImage {
        id: Some(picked.id.clone()),
        place,
    }))
}

/// Finds the image and reads what a run needs of it.
///
/// # Errors
/// [`RunError`]: it cannot be obtained, or no body can run in it.
pub(super) fn open(
    requested: RequestedImage,
    access: Access<'_>,
    request: &Request,
    policy: &HostPolicy,
) -> Result<SelectedImage, RunError> {
    let opened = match find(&requested.place, access, request, policy)? {
        Some(image) => Some(OpenedImage::read(image)?),
        None => None,
    };
    Ok(SelectedImage { requested, opened })
}

fn refused(code: &'static str, object: &str, problem: impl Into<String>) -> RunError {
    RunError::Argument {
        code,
        what: "image",
        object: object.to_owned(),
        problem: problem.into(),
        hint: None,
    }
}

impl SelectedImage {
    pub(super) fn warnings(&self) -> impl Iterator<Item = WarningReport> + '_ {
        let opened = self.opened.iter();
        opened.flat_map(|opened| opened.image.warnings.iter().cloned())
    }

    /// As [`OpenedImage::interpreters`]; a missing image is assumed to have all.
    pub(super) fn interpreters(
        &self,
        run: &Run,
        npm_registry: NpmRegistry,
    ) -> Result<Interpreters, RunError> {
        match &self.opened {
            Some(opened) => opened.interpreters(run, npm_registry),
            None => Ok(Interpreters {
                node: Some(NodeVersion { major: 0, minor: 0 }),
                python: true,
                python3: true,
                bash: true,
                tsx: true,
                npx: true,
                npm_registry,
            }),
        }
    }

    #[must_use]
    pub(super) fn report(&self) -> ImageReport {
        let user = self.opened.as_ref().map(|opened| ImageUserReport {
            uid: opened.user.uid,
            gid: opened.user.gid,
        });
        ImageReport {
            id: self.requested.id.clone(),
            place: self.requested.place.to_string(),
            digest: self.opened.as_ref().map(|opened| opened.image.digest),
            layers: self
                .opened
                .as_ref()
                .map(|opened| u64::try_from(opened.image.layers.len()).unwrap_or(u64::MAX)),
            found: match &self.opened {
                None => ImageFound::Absent,
                Some(opened) if opened.image.cached => ImageFound::Store,
                Some(_) => ImageFound::Pulled,
            },
            root: RootKind::Writable,
            user,
        }
    }
}

impl OpenedImage {
    fn read(image: Image) -> Result<Self, RunError> {
        let shown = image.digest.to_string();
        let names = |path: &[u8]| {
            let text = image.read_file(path, NAMES_BYTES_MAX);
            text.map(Option::unwrap_or_default)
                .map_err(|error| unreadable(&shown, &error))
        };
        let (passwd, group) = (names(b"etc/passwd")?, names(b"etc/group")?);
        let words = image.config.user.as_ref();
        let find =
            |permit: &ParsePermit, passwd: &[u8]| ImageUser::find(permit, words, passwd, &group);
        let found = reader::parse_with(&passwd, &find);
        let malformed = "the answer of their reader is malformed".to_owned();
        let user = match found {
            Ok(found) if ImageUser::is_possible(&found) => Ok(found?),
            Ok(_) => Err(malformed),
            Err(reason) => Err(reason),
        };
        let user = user.map_err(|reason| {
            let problem = format!("its users cannot be read: {reason}");
            refused("image_unreadable", &shown, problem)
        })?;
        let top = directories_in_root(&image)?;
        Ok(Self {
            image,
            user,
            passwd,
            group,
            top,
        })
    }

    /// Adds layers on top, lowest first.
    pub(super) fn add_layers(&mut self, layers: Vec<LockedLayer>) -> Result<(), RunError> {
        self.image.layers.extend(layers);
        self.top = directories_in_root(&self.image)?;
        Ok(())
    }

    #[must_use]
    pub(super) fn working_directory(&self) -> Option<Vec<u8>> {
        self.image.config.working_directory.clone()
    }

    /// PATH of its config, or the default.
    #[must_use]
    pub(super) fn path(&self) -> &[u8] {
        let of_config = self.image.config.variable(b"PATH");
        of_config.unwrap_or(environment::PATH.as_bytes())
    }

    pub(super) fn has_program(&self, name: &str) -> Result<bool, RunError> {
        for directory in self.path().split(|byte| *byte == b':') {
            if self.has_program_in(directory, name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_program_in(&self, directory: &[u8], name: &str) -> Result<bool, RunError> {
        let path = [directory, b"/", name.as_bytes()].concat();
        let found = self.image.kind_of(&path);
        let found = found.map_err(|error| self.unreadable(&error))?;
        Ok(found == Some(Kind::File { executable: true }))
    }

    /// Names of the Debian packages that are installed in it.
    pub(super) fn packages(&self) -> Result<Vec<String>, RunError> {
        let status = self.image.read_file(PACKAGES, PACKAGES_BYTES_MAX);
        let status = status.map_err(|error| self.unreadable(&error))?;
        reader::parse_with(&status.unwrap_or_default(), &|_permit, text| {
            installed(text)
        })
        .map_err(|reason| {
            let shown = self.image.digest.to_string();
            let problem = format!("{}: {reason}", escape(PACKAGES));
            refused("image_unreadable", &shown, problem)
        })
    }

    /// The interpreters in the image that `run` may need. The version of Node is `NODE_VERSION` of
    /// the config: nothing of the image is executed.
    pub(super) fn interpreters(
        &self,
        run: &Run,
        npm_registry: NpmRegistry,
    ) -> Result<Interpreters, RunError> {
        let candidates = interpreters::candidates_for(run);
        let has = |name: &str| -> Result<bool, RunError> {
            Ok(candidates.contains(&name) && self.has_program(name)?)
        };
        let unknown = NodeVersion { major: 0, minor: 0 };
        let node = if has("node")? {
            let version = self.image.config.variable(b"NODE_VERSION");
            let version = version.and_then(|text| std::str::from_utf8(text).ok());
            let version = version
                .and_then(|text| NodeVersion::parse(&format!("v{}", text.trim_start_matches('v'))));
            Some(version.unwrap_or(unknown))
        } else {
            None
        };
        Ok(Interpreters {
            node,
            python: has("python")?,
            python3: has("python3")?,
            bash: has("bash")?,
            tsx: has("tsx")?,
            npx: has("npx")?,
            npm_registry,
        })
    }

    fn unreadable(&self, error: &LookupError) -> RunError {
        unreadable(&self.image.digest.to_string(), error)
    }
}

fn unreadable(shown: &str, error: &LookupError) -> RunError {
    refused("image_unreadable", shown, with_causes(error))
}

/// The directories in the root, without links.
fn directories_in_root(image: &Image) -> Result<Vec<Vec<u8>>, RunError> {
    let shown = image.digest.to_string();
    let mut names = std::collections::BTreeSet::new();
    for layer in &image.layers {
        let listed = rustix::fs::Dir::read_from(&layer.root)
            .map_err(RunError::host("list a layer of the image"))?;
        for entry in listed {
            let entry = entry.map_err(RunError::host("list a layer of the image"))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.insert(name.to_vec());
            }
            if names.len() > NAMES_IN_ROOT_MAX {
                let problem = format!("has more than {NAMES_IN_ROOT_MAX} entries in its root");
                return Err(refused("image_root_too_wide", &shown, problem));
            }
        }
    }
    let is_directory = |name: &Vec<u8>| {
        // The topmost layer with the name decides; it may have a link or a whiteout.
        let found = image.layers.iter().rev().find_map(|layer| {
            rustix::fs::statat(&layer.root, &name[..], AtFlags::SYMLINK_NOFOLLOW).ok()
        });
        found.is_some_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
    };
    Ok(names.into_iter().filter(is_directory).collect())
}
