//! The files of a bundle, unpacked or not: its tree, and the first bytes of each file.

use std::cell::RefCell;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{Mode, OFlags};

use crate::run::error::RunError;
use crate::run::inputs::loaded_manifest::{document_names, parse_documents};
use crate::run::interruptible;
use archive::{Entry, OpenedArchive, Surveyed, Tree, UnpackLimits, survey_directory};
use bundler::manifests::{ParsedDocument, format_of, parse_named};
use reader::{Documents, SurveyTask};
use spec::document::{self, TEXT_BYTES_MAX};
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;
use sys::file::open_beneath;

/// Size of a document and one byte more, by which a longer one is recognized.
const DOCUMENT_READ_BYTES: u64 = TEXT_BYTES_MAX as u64 + 1;

pub(in crate::run) trait BundleFiles {
    fn tree(&self) -> &Tree;

    /// The first `bytes_max` bytes of a file, or all of a shorter one.
    ///
    /// # Errors
    /// Why it cannot be read, as the end of a sentence.
    fn head(&self, path: &RelPath, bytes_max: u64) -> Result<Vec<u8>, String>;

    /// A whole manifest or block document.
    ///
    /// # Errors
    /// As [`BundleFiles::head`]; also if it is larger than 1 MiB.
    fn document(&self, path: &RelPath) -> Result<Vec<u8>, String> {
        let text = self.head(path, DOCUMENT_READ_BYTES)?;
        if text.len() > TEXT_BYTES_MAX {
            return Err("is larger than 1 MiB".to_owned());
        }
        Ok(text)
    }

    /// As [`BundleFiles::document`], parsed in a process without rights.
    ///
    /// # Errors
    /// As [`BundleFiles::document`].
    fn parse(&self, path: &RelPath) -> Result<ParsedDocument, String> {
        Ok(parse_named(&self.document(path)?, path.as_bytes()))
    }
}

#[derive(Debug)]
pub(in crate::run) struct UnpackedFiles<'run> {
    pub(in crate::run) tree: &'run Tree,
    pub(in crate::run) root: BorrowedFd<'run>,
    /// Those that the reader of the bundle parsed. They need not agree with the files, nor do the
    /// files with the archive: both are what that process says, and what a stranger wrote decides.
    pub(in crate::run) documents: &'run Documents,
}

impl BundleFiles for UnpackedFiles<'_> {
    fn tree(&self) -> &Tree {
        self.tree
    }

    fn head(&self, path: &RelPath, bytes_max: u64) -> Result<Vec<u8>, String> {
        let file = open_beneath(self.root, path.as_bytes(), OFlags::RDONLY, Mode::empty())
            .map_err(|errno| format!("cannot be opened: {errno}"))?;
        let mut bytes = Vec::new();
        std::fs::File::from(file)
            .take(bytes_max)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
        Ok(bytes)
    }

    fn parse(&self, path: &RelPath) -> Result<ParsedDocument, String> {
        match self.documents.get(path) {
            Some(parsed) => Ok(parsed.clone()),
            None => Ok(parse_named(&self.document(path)?, path.as_bytes())),
        }
    }
}

/// The files of a bundle in its reader: parses documents in this process, and keeps them.
pub(in crate::run) struct ParsingFiles<'run> {
    permit: &'run ParsePermit,
    files: &'run dyn BundleFiles,
    documents: RefCell<Documents>,
}

impl<'run> ParsingFiles<'run> {
    pub(in crate::run) fn new(permit: &'run ParsePermit, files: &'run dyn BundleFiles) -> Self {
        Self {
            permit,
            files,
            documents: RefCell::default(),
        }
    }

    pub(in crate::run) fn into_documents(self) -> Documents {
        self.documents.into_inner()
    }
}

impl BundleFiles for ParsingFiles<'_> {
    fn tree(&self) -> &Tree {
        self.files.tree()
    }

    fn head(&self, path: &RelPath, bytes_max: u64) -> Result<Vec<u8>, String> {
        self.files.head(path, bytes_max)
    }

    fn document(&self, path: &RelPath) -> Result<Vec<u8>, String> {
        self.files.document(path)
    }

    fn parse(&self, path: &RelPath) -> Result<ParsedDocument, String> {
        let text = self.document(path)?;
        #[cfg(feature = "planted-bugs")]
        confinement::planted::trigger("documents", &text);
        let parsed = document::parse(self.permit, &text, format_of(path.as_bytes()));
        let mut documents = self.documents.borrow_mut();
        documents.insert(path.clone(), parsed.clone());
        Ok(parsed)
    }
}

/// A bundle that was read and not unpacked.
pub(in crate::run) struct SurveyedBundle {
    pub(in crate::run) surveyed: Surveyed,
    documents: Documents,
    source: OpenedArchive,
    limits: UnpackLimits,
    /// Position of the archive's first byte; `None` if it cannot be read again.
    start: Option<u64>,
}

impl SurveyedBundle {
    /// `has_manifest`: the caller's replaces that of the bundle.
    pub(in crate::run) fn read(
        source: OpenedArchive,
        limits: UnpackLimits,
        has_manifest: bool,
    ) -> Result<Self, RunError> {
        let start = match &source {
            OpenedArchive::File(file) => (&*file).stream_position().ok(),
            OpenedArchive::Directory(_) => Some(0),
        };
        let parse = |permit: &ParsePermit, surveyed: &Surveyed| {
            if has_manifest {
                Documents::default()
            } else {
                parse_documents(permit, surveyed)
            }
        };
        let (surveyed, documents) = survey_source(&source, &limits, &document_names(), &parse)?;
        Ok(Self {
            surveyed,
            documents,
            source,
            limits,
            start,
        })
    }

    fn survey_again(&self, path: &RelPath) -> Option<Surveyed> {
        let name = std::str::from_utf8(path.as_bytes()).ok()?;
        if let OpenedArchive::File(file) = &self.source {
            (&*file).seek(SeekFrom::Start(self.start?)).ok()?;
        }
        let parse = |_: &ParsePermit, _: &Surveyed| Documents::default();
        let again = survey_source(&self.source, &self.limits, &[name], &parse);
        again.ok().map(|(surveyed, _)| surveyed)
    }
}

fn survey_source(
    source: &OpenedArchive,
    limits: &UnpackLimits,
    named: &[&str],
    documents: &dyn Fn(&ParsePermit, &Surveyed) -> Documents,
) -> Result<(Surveyed, Documents), RunError> {
    match source {
        OpenedArchive::File(file) => {
            let task = SurveyTask {
                limits,
                named,
                documents,
            };
            Ok(interruptible::survey(file, &task)?)
        }
        OpenedArchive::Directory(directory) => Ok((
            survey_directory(directory.as_fd(), limits, named)?,
            Documents::default(),
        )),
    }
}

impl BundleFiles for Surveyed {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn head(&self, path: &RelPath, bytes_max: u64) -> Result<Vec<u8>, String> {
        let kept = Self::head(self, path)
            .ok_or_else(|| "was skipped while the bundle was read".to_owned())?;
        let length = usize::try_from(bytes_max).map_or(kept.len(), |max| max.min(kept.len()));
        Ok(kept[..length].to_vec())
    }

    fn document(&self, path: &RelPath) -> Result<Vec<u8>, String> {
        let bytes = match self.tree.get(path) {
            Some(Entry::File { bytes, .. }) => *bytes,
            _ => 0,
        };
        if bytes > TEXT_BYTES_MAX as u64 {
            return Err("is larger than 1 MiB".to_owned());
        }
        let kept = Self::head(self, path).filter(|kept| kept.len() as u64 == bytes);
        kept.map(<[u8]>::to_vec).ok_or_else(|| {
            "cannot be read without unpacking the bundle: give it the extension `.md` or `.yaml`"
                .to_owned()
        })
    }
}

impl BundleFiles for SurveyedBundle {
    fn tree(&self) -> &Tree {
        &self.surveyed.tree
    }

    fn head(&self, path: &RelPath, bytes_max: u64) -> Result<Vec<u8>, String> {
        BundleFiles::head(&self.surveyed, path, bytes_max)
    }

    /// Reads the bundle again for a document that was not kept whole, such as one without an extension.
    fn document(&self, path: &RelPath) -> Result<Vec<u8>, String> {
        self.surveyed
            .document(path)
            .or_else(|problem| self.survey_again(path).ok_or(problem)?.document(path))
    }

    fn parse(&self, path: &RelPath) -> Result<ParsedDocument, String> {
        match self.documents.get(path) {
            Some(parsed) => Ok(parsed.clone()),
            None => Ok(parse_named(&self.document(path)?, path.as_bytes())),
        }
    }
}

/// No files: for a manifest that is not in a bundle yet.
impl BundleFiles for Tree {
    fn tree(&self) -> &Tree {
        self
    }

    fn head(&self, _path: &RelPath, _bytes_max: u64) -> Result<Vec<u8>, String> {
        Err("is in no bundle yet".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    use crate::run::inputs::loaded_manifest::parse_documents;

    #[test]
    fn the_reader_parses_the_manifest_and_what_it_names_and_nobody_parses_them_again() {
        let home = tempfile::tempdir().expect("a directory");
        for (name, text) in [
            ("manifest.yaml", "run: x\nrunner: {file: ./RUNNER.md}\n"),
            ("RUNNER.md", "---\nengine: bash\n---\n"),
            ("CODE.md", "---\nrun: x\n---\n"),
        ] {
            std::fs::write(home.path().join(name), text).expect("written");
        }
        let path = |name: &str| RelPath::parse(name.as_bytes()).expect(name);
        let root = File::open(home.path()).expect("opened");
        let limits = UnpackLimits::default();
        let surveyed = survey_directory(root.as_fd(), &limits, &[]).expect("read");
        let files = |documents| UnpackedFiles {
            tree: &surveyed.tree,
            root: root.as_fd(),
            documents,
        };
        let none = Documents::default();
        let documents = parse_documents(&ParsePermit::for_trusted_text(), &files(&none));
        for (name, is_parsed) in [
            ("manifest.yaml", true),
            ("RUNNER.md", true),
            ("CODE.md", false),
        ] {
            let parsed = documents.get(&path(name));
            assert_eq!(parsed.is_some_and(Result::is_ok), is_parsed, "{name}");
            std::fs::remove_file(home.path().join(name)).expect("removed");
            let again = files(&documents).parse(&path(name));
            assert_eq!(again.is_ok(), is_parsed, "{name}");
        }
    }

    #[test]
    fn a_document_without_an_extension_is_read_from_the_archive_again() {
        let home = tempfile::tempdir().expect("a directory");
        let folder = home.path().join("bundle");
        std::fs::create_dir(&folder).expect("made");
        for (name, bytes) in [("RUNNER", 9), ("LARGE", TEXT_BYTES_MAX + 1)] {
            std::fs::write(folder.join(name), vec![b'#'; bytes]).expect("written");
        }
        let archive = support::bundles::pack(&folder);
        let source = archive::open_archive(&archive).expect("opened");
        let bundle = SurveyedBundle::read(source, UnpackLimits::default(), true).expect("a bundle");
        let path = |name: &str| RelPath::parse(name.as_bytes()).expect(name);
        BundleFiles::head(&bundle, &path("RUNNER"), 1).expect_err("not kept");
        for _ in 0..2 {
            assert_eq!(bundle.document(&path("RUNNER")), Ok(vec![b'#'; 9]));
        }
        let error = bundle.document(&path("LARGE")).expect_err("too large");
        assert_eq!(error, "is larger than 1 MiB");
    }
}
