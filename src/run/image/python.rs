//! Which Python packages an image has, by the names of their metadata: nothing of it is started.

use crate::run::error::RunError;
use crate::run::image::OpenedImage;
use spec::needs::pip;

/// A directory with more names is not believed to hold anything.
const NAMES_MAX: usize = 20_000;
/// Longest name of a version that is repeated.
const VERSION_BYTES_MAX: usize = 64;

impl OpenedImage {
    /// Names and versions of the packages that its `python3` finds: of the first on its PATH, where
    /// only one version of Python lies beside that. Of several nobody knows which one it is.
    ///
    /// # Errors
    /// [`RunError`] where it cannot be read.
    pub(crate) fn python_packages(&self) -> Result<Vec<(String, String)>, RunError> {
        let Some(prefix) = self.prefix_of("python3")? else {
            return Ok(Vec::new());
        };
        let library = [&prefix[..], b"/lib"].concat();
        let mut versions = self.directories_in(&library)?;
        versions.retain(|name| name.starts_with(b"python3."));
        let [version] = &versions[..] else {
            return Ok(Vec::new());
        };
        let mut places = vec![[&library[..], b"/", &version[..], b"/site-packages"].concat()];
        if prefix == b"/usr" {
            // As Debian has it.
            places.push(b"/usr/lib/python3/dist-packages".to_vec());
            places.push([&b"/usr/local/lib/"[..], &version[..], b"/dist-packages"].concat());
        }
        let mut packages = Vec::new();
        for place in places {
            for name in self.directories_in(&place)? {
                let found = std::str::from_utf8(&name).ok().and_then(pip::of_dist_info);
                if let Some((name, version)) = found
                    && version.len() <= VERSION_BYTES_MAX
                {
                    packages.push((name, version.to_owned()));
                }
            }
        }
        Ok(packages)
    }

    /// The directory above the first directory of programs that has `name`, which is called `bin`.
    fn prefix_of(&self, name: &str) -> Result<Option<Vec<u8>>, RunError> {
        for directory in self.path().split(|byte| *byte == b':') {
            if self.has_program_in(directory, name)? {
                return Ok(directory.strip_suffix(b"/bin").map(<[u8]>::to_vec));
            }
        }
        Ok(None)
    }

    fn directories_in(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, RunError> {
        let found = self.image.directories_in(path, NAMES_MAX);
        found.map_err(|error| self.unreadable(&error))
    }
}
