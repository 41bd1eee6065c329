//! Finds npm packages of an image without executing anything of it.

use crate::run::error::RunError;
use crate::run::image::OpenedImage;
use crate::run::planning::needs::PACKAGE_JSON_BYTES_MAX;

/// Maximum number of directories of `NODE_PATH`.
const DIRECTORIES_MAX: usize = 16;

impl OpenedImage {
    /// The package.json of a package, where Node looks besides the bundle: in `/node_modules`, and
    /// in the directories of the config's `NODE_PATH`. Packages of `npm install --global` are in
    /// neither: their programs are found, but `import` does not find them.
    pub(in crate::run) fn node_package(&self, name: &str) -> Result<Option<Vec<u8>>, RunError> {
        let of_config = self.image.config.variable(b"NODE_PATH").unwrap_or_default();
        let named = of_config.split(|byte| *byte == b':');
        let named = named
            .filter(|path| path.starts_with(b"/"))
            .take(DIRECTORIES_MAX);
        for directory in [&b"/node_modules"[..]].into_iter().chain(named) {
            let file = [directory, b"/", name.as_bytes(), b"/package.json"].concat();
            let text = self.image.read_file(&file, PACKAGE_JSON_BYTES_MAX);
            if let Some(text) = text.map_err(|error| self.unreadable(&error))? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }
}
