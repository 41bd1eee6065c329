//! Reads the package lists of a bundle.

use crate::plan::preparation::{Lists, included_names, resolve_included};
use crate::run::error::RunError;
use crate::run::image::finding::Access;
use crate::run::unpacking::bundle_files::BundleFiles;
use archive::Entry;
use spec::path::{RelPath, escape};

/// Maximum size of a package list; a larger one is refused.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of Python package lists.
const LISTS_MAX: usize = 100;

/// The package lists of a bundle. For a bundle that is not unpacked, lists that were not read count
/// as empty.
///
/// # Errors
/// [`RunError::Argument`] with `needs_list_unreadable`.
pub(super) fn read_lists(bundle: &dyn BundleFiles, access: Access<'_>) -> Result<Lists, RunError> {
    let files = Files { bundle, access };
    let has_modules = files.has(&path("node_modules")?);
    let npm = if has_modules {
        None
    } else {
        let package = files.read(&path("package.json")?)?;
        package.zip(files.read(&path("package-lock.json")?)?)
    };
    Ok(Lists {
        npm,
        pip: files.requirements()?,
    })
}

fn path(name: &str) -> Result<RelPath, RunError> {
    RelPath::parse(name.as_bytes()).map_err(|error| refused(name.to_owned(), error.to_string()))
}

fn refused(object: String, problem: String) -> RunError {
    RunError::Argument {
        code: "needs_list_unreadable",
        what: "the bundle's",
        object,
        problem,
        hint: None,
    }
}

type PythonLists = Option<Vec<(RelPath, Vec<u8>)>>;

struct Files<'run> {
    bundle: &'run dyn BundleFiles,
    access: Access<'run>,
}

impl Files<'_> {
    fn has(&self, path: &RelPath) -> bool {
        self.bundle.tree().get(path).is_some()
    }

    /// `None` if the bundle has no such file.
    fn read(&self, path: &RelPath) -> Result<Option<Vec<u8>>, RunError> {
        if !matches!(self.bundle.tree().get(path), Some(Entry::File { .. })) {
            return Ok(None);
        }
        let refused = |problem: String| refused(path.to_string(), problem);
        let bytes = match (self.bundle.head(path, LIST_BYTES_MAX + 1), self.access) {
            (Err(_not_kept), Access::StoreOnly) => return Ok(Some(Vec::new())),
            (bytes, _) => bytes.map_err(refused)?,
        };
        match u64::try_from(bytes.len()) {
            Ok(length) if length <= LIST_BYTES_MAX => Ok(Some(bytes)),
            _ => Err(refused("is larger than 16 MiB".to_owned())),
        }
    }

    /// `requirements.txt` and all lists that it includes, recursively.
    fn requirements(&self) -> Result<PythonLists, RunError> {
        let first = path("requirements.txt")?;
        let Some(text) = self.read(&first)? else {
            return Ok(None);
        };
        let mut all = vec![(first, text)];
        let mut followed = 0;
        while let Some((list, text)) = all.get(followed).cloned() {
            followed += 1;
            let refused = |problem: String| refused(list.to_string(), problem);
            let names = reader::parse_with(&text, &included_names)
                .map_err(|reason| refused(format!("cannot be read: {reason}")))?;
            for name in names {
                let path = resolve_included(&list, &name);
                let path = path.map_err(|error| refused(error.to_string()))?;
                if all.iter().any(|(known, _)| *known == path) {
                    continue;
                }
                let missing = || {
                    let name = escape(path.as_bytes());
                    refused(format!(
                        "names the list {name}, which the bundle does not have"
                    ))
                };
                let text = self.read(&path)?.ok_or_else(missing)?;
                if all.len() >= LISTS_MAX {
                    return Err(refused(format!("names more than {LISTS_MAX} lists")));
                }
                all.push((path, text));
            }
        }
        Ok(Some(all))
    }
}
