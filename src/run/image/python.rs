//! Finds Python packages of an image by their metadata without executing anything of it.

use crate::run::error::RunError;
use crate::run::image::OpenedImage;

/// Maximum number of names in a directory; a larger one counts as empty.
const NAMES_MAX: usize = 20_000;

impl OpenedImage {
    /// Names of the directories beside the packages of the first `python3` on its PATH, if only one
    /// version of Python is installed beside it; with several the right one is unknown.
    pub(in crate::run) fn beside_python_packages(&self) -> Result<Vec<Vec<u8>>, RunError> {
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
            // Debian's directory.
            places.push(b"/usr/lib/python3/dist-packages".to_vec());
            places.push([&b"/usr/local/lib/"[..], &version[..], b"/dist-packages"].concat());
        }
        let mut names = Vec::new();
        for place in places {
            names.extend(self.directories_in(&place)?);
        }
        Ok(names)
    }

    /// The parent of the first PATH directory that contains `name` and is called `bin`.
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
