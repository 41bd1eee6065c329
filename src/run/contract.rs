//! The I/O contract: input and output documents, validated against their schemas, and declared files.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;

use crate::run::error::{RunError, mismatches};
use crate::run::interruptible::Interruptible;
use crate::staging::{InputFile, OutputFile};
use reader::{Question, Refused, judge};
use sandbox::view::SCRATCH;
use spec::io::contract::{DOCUMENT_MEMORY_MAX, read_document};
use spec::io::fs_root::{declare_fs_root, inject_fs_root};
use spec::io::{FileEntry, IoBlocks};
use spec::path::{RelPath, escape};
use spec::report::{SyncState, SyncedReport};
use spec::request::{BundleOptions, InputsArgument};
use spec::tokens::{TokenPath, TokenValues};
use sys::file::{Unread, open_beneath, read_regular};

/// Maximum size of an output document.
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// Memory that an output document always gets, besides full streams of the default size.
const BESIDE_FULL_STREAMS: usize = 12 << 20;

/// What ends a wait: the time limit, or a signal.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitLimit<'run> {
    /// The remaining wall time.
    pub time: Option<Duration>,
    /// Descriptor of the signals that cancel a run; `None` if they end this process.
    pub signals: Option<BorrowedFd<'run>>,
}

impl<'run> WaitLimit<'run> {
    /// Reads `file` within this limit.
    pub(super) fn reader(self, file: File) -> Interruptible<'run> {
        Interruptible::new(file, self.signals).within(self.time)
    }

    fn validate(self, questions: &[Question<'_>]) -> Result<(), Refused> {
        judge(questions, self.time, self.signals)
    }
}

/// Maximum number of reasons for undelivered outputs in one message.
const REASONS_SHOWN_MAX: usize = 4;

/// The inputs and outputs of a run, resolved before the launch.
#[derive(Debug, Default)]
pub struct IoContract {
    /// The input document, as the body reads it.
    pub input: Option<Vec<u8>>,
    /// The schema that the body's output document has to satisfy.
    pub outputs: Option<Value>,
    pub input_files: Vec<InputFile>,
    pub output_files: Vec<OutputFile>,
    /// Keys of output files without which a body that exits with 0 has failed.
    pub required_outputs: Vec<String>,
}

/// Resolves the contract and checks what can be checked before launch.
///
/// # Errors
/// [`RunError`]: an unusable schema, inputs that do not satisfy it, or a path that leaves the
/// workspace.
pub fn resolve(
    io: &IoBlocks,
    options: &BundleOptions,
    tokens: TokenValues<'_>,
    outputs_granted: bool,
    wait_limit: WaitLimit<'_>,
) -> Result<IoContract, RunError> {
    let mut input_files = Vec::new();
    for declared in declared_files(&io.input_files, "--in", &options.input_files)? {
        let path = resolve_path(&declared.path, tokens, &declared.source)?;
        let key = declared.key;
        input_files.push(InputFile { key, path });
    }
    let required = io.output_files.iter().filter(|file| file.required);
    let required_outputs = required.map(|file| file.key.to_string()).collect();
    let mut output_files = Vec::new();
    for declared in declared_files(&io.output_files, "--out", &options.output_files)? {
        let path = resolve_path(&declared.path, tokens, &declared.source)?;
        output_files.push(OutputFile {
            key: declared.key,
            path,
            granted: outputs_granted,
        });
    }
    let has_files = !input_files.is_empty() || !output_files.is_empty();
    let input = resolve_input(io, options, has_files, wait_limit)?;
    Ok(IoContract {
        input,
        outputs: io.outputs.clone(),
        input_files,
        output_files,
        required_outputs,
    })
}

/// A file to stage or to sync, declared by manifest or flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredFile {
    /// Its name in the scratch directory.
    pub key: String,
    /// Path in the workspace, with unexpanded tokens.
    pub path: TokenPath,
    /// JSON Pointer of the manifest's entry, or the flag with its value.
    pub source: String,
}

/// The files of a block and of its flag. The flag replaces the manifest's entry of the same key.
///
/// # Errors
/// [`RunError::Token`] for a path of the flag.
pub(crate) fn declared_files(
    entries: &[FileEntry],
    flag: &str,
    of_flag: &[(String, String)],
) -> Result<Vec<DeclaredFile>, RunError> {
    let mut files: Vec<DeclaredFile> = entries
        .iter()
        .map(|entry| DeclaredFile {
            key: entry.key.to_string(),
            path: entry.path.clone(),
            source: entry.source.clone(),
        })
        .collect();
    for (key, text) in of_flag {
        let source = format!("{flag} {}", escape(text.as_bytes()));
        let path = match TokenPath::parse(text) {
            Ok(path) => path,
            Err(error) => {
                return Err(RunError::Token {
                    place: source,
                    error,
                });
            }
        };
        let key = key.clone();
        files.retain(|known| known.key != key);
        files.push(DeclaredFile { key, path, source });
    }
    Ok(files)
}

fn resolve_path(
    path: &TokenPath,
    tokens: TokenValues<'_>,
    place: &str,
) -> Result<RelPath, RunError> {
    path.resolve(tokens).map_err(|error| RunError::Token {
        place: place.to_owned(),
        error,
    })
}

/// Reads the file of `--inputs @FILE`, which may be a pipe; `-` is standard input. A FIFO that never
/// had a writer counts as empty.
fn read_inputs(path: &Path, wait_limit: WaitLimit<'_>) -> Result<Vec<u8>, RunError> {
    let refused = |problem: String| RunError::Argument {
        code: "inputs_unreadable",
        what: "--inputs file",
        object: escape(path.as_os_str().as_bytes()),
        problem,
        hint: None,
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = match path.as_os_str().as_bytes() {
        b"-" => rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3),
        _ => rustix::fs::open(path, flags, Mode::empty()),
    };
    let file = opened.map_err(|errno| refused(format!("cannot be opened: {errno}")))?;
    let mut text = vec![0; 4096];
    // poll(2) would block on a FIFO that never had a writer; a non-blocking read returns its end.
    let first = match path.as_os_str().as_bytes() {
        b"-" => Err(Errno::AGAIN),
        _ => rustix::io::read(&file, &mut text[..]),
    };
    let has_ended = matches!(first, Ok(0));
    text.truncate(match first {
        Ok(count) => count,
        Err(Errno::AGAIN | Errno::INTR) => 0,
        Err(errno) => return Err(refused(format!("cannot be read: {errno}"))),
    });
    let mut source = wait_limit.reader(File::from(file));
    let read = if has_ended {
        Ok(0)
    } else {
        source
            .by_ref()
            .take(DOCUMENT_BYTES_MAX as u64 + 1)
            .read_to_end(&mut text)
    };
    source.check("reading the inputs")?;
    match read {
        Err(error) => Err(refused(format!("cannot be read: {error}"))),
        Ok(_) => Ok(text),
    }
}

fn resolve_input(
    io: &IoBlocks,
    options: &BundleOptions,
    has_files: bool,
    wait_limit: WaitLimit<'_>,
) -> Result<Option<Vec<u8>>, RunError> {
    let document = match &options.inputs {
        None => None,
        Some(InputsArgument::Text(text)) => {
            Some(read_document(text.as_bytes(), DOCUMENT_MEMORY_MAX)?)
        }
        Some(InputsArgument::File(path)) => {
            let text = read_inputs(path, wait_limit)?;
            Some(read_document(&text, DOCUMENT_MEMORY_MAX)?)
        }
    };
    let outputs = io.outputs.as_ref().map(|schema| Question {
        block: "outputs",
        schema,
        document: None,
    });
    if document.is_none() && io.inputs.is_none() && !has_files {
        wait_limit.validate(outputs.as_slice())?;
        return Ok(None);
    }
    let mut value = document.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let mut schema = io.inputs.clone();
    if has_files {
        // Before validation, which must see the document of the body.
        inject_fs_root(&mut value, SCRATCH)?;
        if let Some(schema) = &mut schema {
            declare_fs_root(schema)?;
        }
    }
    let inputs = schema.as_ref().map(|schema| Question {
        block: "inputs",
        schema,
        document: Some(&value),
    });
    let questions: Vec<Question<'_>> = inputs.into_iter().chain(outputs).collect();
    wait_limit.validate(&questions)?;
    let text = serde_json::to_vec(&value)
        .map_err(|_unserializable| RunError::host("write the inputs as JSON")(Errno::INVAL))?;
    Ok(Some(text))
}

/// Writes the input document to `/runner/input.json`. The body's file ids must be assumed.
///
/// # Errors
/// [`RunError::Host`].
pub(crate) fn write_input(space: BorrowedFd<'_>, text: &[u8]) -> Result<(), RunError> {
    let mode = Mode::from_raw_mode(0o444);
    write_new(space, b"runner/input.json", mode, text)
        .map_err(RunError::host("write /runner/input.json"))
}

/// Creates a file in the writable space. The body's file ids must be assumed.
///
/// # Errors
/// The errno of openat2(2) or write(2).
pub(super) fn write_new(
    space: BorrowedFd<'_>,
    path: &[u8],
    mode: Mode,
    bytes: &[u8],
) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = open_beneath(space, path, flags, mode)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rustix::io::write(&file, rest)?;
        rest = &rest[count..];
    }
    Ok(())
}

/// Opens the directory `path` of the writable space and creates missing parents. The body's file
/// ids must be assumed.
///
/// # Errors
/// The errno of openat2(2) or mkdirat(2); ELOOP if a component is a link.
pub(super) fn make_directories(space: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut above = open_beneath(space, b".", flags, Mode::empty())?;
    for name in path.split('/') {
        match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => (),
            Err(errno) => return Err(errno),
        }
        above = open_beneath(above.as_fd(), name.as_bytes(), flags, Mode::empty())?;
    }
    Ok(above)
}

/// Reads the output document: the file that the body wrote, else its whole stdout if that is one
/// JSON value. The body's file ids must be assumed.
///
/// `captured_bytes` of output are already in memory. The document gets the rest of
/// [`DOCUMENT_MEMORY_MAX`], but at least what remains beside full streams of the default size.
///
/// # Errors
/// [`RunError::Output`] with `invalid-output` for a document that cannot be read or is not JSON.
pub(crate) fn read_output(
    space: BorrowedFd<'_>,
    stdout: Option<&[u8]>,
    captured_bytes: usize,
) -> Result<Option<Value>, RunError> {
    let memory_max = DOCUMENT_MEMORY_MAX
        .saturating_sub(captured_bytes)
        .max(BESIDE_FULL_STREAMS);
    let invalid = |problem: String| RunError::Output {
        code: "invalid-output",
        message: format!("the body's output document {problem}"),
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = match open_beneath(space, b"runner/out/output.json", flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => {
            return Ok(stdout.and_then(|text| read_document(text, memory_max).ok()));
        }
        Err(errno) => return Err(invalid(format!("cannot be opened: {errno}"))),
    };
    let text = read_regular(file, DOCUMENT_BYTES_MAX).map_err(|unread| {
        invalid(match unread {
            Unread::Stat(errno) | Unread::Read(errno) => format!("cannot be read: {errno}"),
            Unread::NotRegular => "is not a regular file".to_owned(),
            Unread::TooLarge => "is larger than 16 MiB".to_owned(),
        })
    })?;
    read_document(&text, memory_max.saturating_sub(text.len()))
        .map(Some)
        .map_err(|error| invalid(format!("is not JSON: {error}")))
}

/// Validates the output of a body that exited with 0.
///
/// # Errors
/// [`RunError::Output`]: `missing-output` or `invalid-output`.
pub(crate) fn check_output(
    schema: Option<&Value>,
    output: Option<&Value>,
    wait_limit: WaitLimit<'_>,
) -> Result<(), RunError> {
    let Some(schema) = schema else {
        return Ok(());
    };
    let Some(output) = output else {
        return Err(RunError::Output {
            code: "missing-output",
            message: "the body wrote no output document to $RUNNER_OUTPUT, and its stdout is not \
                      one JSON value"
                .to_owned(),
        });
    };
    let invalid = |why: String| RunError::Output {
        code: "invalid-output",
        message: format!("the output does not satisfy `outputs`: {why}"),
    };
    let question = Question {
        block: "outputs",
        schema,
        document: Some(output),
    };
    wait_limit
        .validate(&[question])
        .map_err(|refused| match refused {
            Refused::Document(found) => invalid(mismatches(&found)),
            Refused::Schema { error, .. } => invalid(error.to_string()),
            other => other.into(),
        })
}

/// Checks that a body that exited with 0 made each required file and that it was delivered.
///
/// # Errors
/// [`RunError::Output`]: `missing-artifact`, with every required key that the body did not make.
/// [`RunError::Undelivered`] if all were made and one could not be written to the workspace.
pub fn check_files(required: &[String], synced: &[SyncedReport]) -> Result<(), RunError> {
    let mut missing = Vec::new();
    let mut undelivered = Vec::new();
    for file in synced.iter().filter(|file| required.contains(&file.key)) {
        match (file.state, &file.error) {
            (SyncState::Missing, _) => {
                missing.push(format!("/staging/{}", escape(file.key.as_bytes())));
            }
            (SyncState::Failed, Some(error)) => undelivered.push(error),
            _ => (),
        }
    }
    if !missing.is_empty() {
        return Err(RunError::Output {
            code: "missing-artifact",
            message: format!(
                "the body did not make {}, which `outputsFiles` requires",
                missing.join(", ")
            ),
        });
    }
    let Some(first) = undelivered.first() else {
        return Ok(());
    };
    let hint = first.hint.clone();
    let count = undelivered.len();
    // If none could be written, the first reason applies to all.
    let mut reasons: Vec<&str> = undelivered.iter().map(|error| &*error.message).collect();
    reasons.dedup();
    let what = match count {
        1 => "a required output was not delivered".to_owned(),
        _ => format!("{count} required outputs were not delivered"),
    };
    let shown = reasons.len().min(REASONS_SHOWN_MAX);
    let more = match reasons.len() - shown {
        0 => String::new(),
        more => format!("; and {more} more, with their reasons in the report"),
    };
    let reasons = reasons[..shown].join("; ");
    Err(RunError::Undelivered {
        message: format!("{what}: {reasons}{more}"),
        hint,
    })
}

/// Opens a directory of the writable space.
///
/// # Errors
/// [`RunError::Host`].
pub fn open_directory(space: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, RunError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    open_beneath(space.as_fd(), name.as_bytes(), flags, Mode::empty())
        .map_err(RunError::host(format!("open {name} of the writable space")))
}

/// Checks the paths of output files before the launch, so that the body does not run in vain.
pub(super) fn check_destinations(outputs: &[OutputFile]) -> Result<(), RunError> {
    crate::staging::check_outputs(outputs)?;
    for output in outputs.iter().filter(|output| !output.granted) {
        crate::staging::check_destination(&output.path)?;
    }
    Ok(())
}
