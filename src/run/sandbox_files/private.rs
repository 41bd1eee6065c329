//! The directories that belong to a sandbox alone: what `diff` lists and `snapshot` packs.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::run::Run;
use crate::run::contract::space;
use crate::run::error::RunError;
use crate::run::image::root::UPPER;
use crate::run::planning::resolved::ResolvedRun;
use crate::run::sources::Sources;
use crate::run::staying::StayingSandbox;
use sandbox::control::PrivateDirectory;
use sandbox::launch::{ImageRoot, Launched};
use sandbox::prepare::Prepared;
use sandbox::resources::Resources;
use sandbox::view::HOME;
use spec::sandboxes::PrivatePlace;

/// Those of every sandbox. Not /dev/shm: what is in it is memory that processes share.
const OF_EVERY_SANDBOX: [&str; 3] = ["/tmp", "/scratch", HOME];

impl Run<'_> {
    /// Keeps the upper directories of the image and of the sources, for a sandbox that stays. Must precede the
    /// launch, which covers them in the writable space.
    ///
    /// # Errors
    /// [`RunError::Host`] with the errno of openat2(2).
    pub(in crate::run) fn keep_uppers(
        &self,
        resources: &Resources,
        prepared: &Prepared,
        root: Option<&ImageRoot>,
        resolved: &ResolvedRun,
        sources: &Sources,
    ) -> Result<(), RunError> {
        let Some(staying) = self.staying() else {
            return Ok(());
        };
        let _assumed = self.assume_body_ids(resources)?;
        let (space, image) = (prepared.space(), resolved.image.as_ref());
        let image = image.filter(|_image| root.is_some_and(|root| root.writable));
        if let Some(opened) = image.and_then(|image| image.opened.as_ref()) {
            let layers = opened.image.layers.iter().rev();
            let lowers: Vec<_> = layers.map(|layer| layer.path.as_path()).collect();
            staying.keep(upper(space, b"/", UPPER, &lowers)?);
        }
        for source in &sources.uppers {
            staying.keep(upper(
                space,
                &source.target,
                &source.upper,
                &[&source.lower],
            )?);
        }
        Ok(())
    }

    /// Keeps the directories of a sandbox that was launched, and records its init.
    ///
    /// # Errors
    /// [`RunError::Host`] with the errno of openat2(2); [`RunError::Records`].
    pub(in crate::run) fn keep_sandbox(
        &self,
        staying: &StayingSandbox,
        resources: &mut Resources,
        launched: &Launched,
    ) -> Result<(), RunError> {
        let assumed = self.assume_body_ids(resources)?;
        for path in OF_EVERY_SANDBOX {
            staying.keep(PrivateDirectory {
                place: PrivatePlace {
                    path: path.as_bytes().to_vec(),
                    lowers: None,
                },
                directory: space::open_directory(launched.space.as_fd(), &path[1..])?,
            });
        }
        drop(assumed);
        resources.record.record_init(launched.child.pid())?;
        Ok(())
    }
}

fn upper(
    space: BorrowedFd<'_>,
    path: &[u8],
    upper: &str,
    lowers: &[&Path],
) -> Result<PrivateDirectory, RunError> {
    let lowers = lowers
        .iter()
        .map(|lower| lower.as_os_str().as_bytes().to_vec());
    Ok(PrivateDirectory {
        place: PrivatePlace {
            path: path.to_vec(),
            lowers: Some(lowers.collect()),
        },
        directory: space::open_directory(space, upper)?,
    })
}
