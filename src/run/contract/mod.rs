//! Resolves the I/O contract. Consumes the manifest's I/O blocks and the flags, returns the validated
//! input document and the declared files.

pub(super) mod space;

use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;

use crate::run::error::RunError;
use crate::run::interruptible::{Interruptible, WaitLimit};
use crate::staging::{InputFile, OutputFile};
use reader::{Question, judge, parse_json};
use sandbox::view::SCRATCH;
use spec::io::contract::{DOCUMENT_BYTES_MAX, DOCUMENT_MEMORY_MAX};
use spec::io::fs_root::{declare_fs_root, inject_fs_root};
use spec::io::{FileEntry, IoBlocks};
use spec::path::{RelPath, escape, escape_path};
use spec::request::{BundleOptions, InputsArgument};
use spec::tokens::{TokenPath, TokenValues};

#[derive(Debug, Default)]
pub(super) struct IoContract {
    pub(super) input: Option<Vec<u8>>,
    /// The schema that the body's output document has to satisfy.
    pub(super) outputs: Option<Value>,
    pub(super) input_files: Vec<InputFile>,
    pub(super) output_files: Vec<OutputFile>,
    /// Keys of output files without which a body that exits with 0 has failed.
    pub(super) required_outputs: Vec<String>,
}

/// Resolves the contract and checks what can be checked before launch.
///
/// # Errors
/// [`RunError`]: an unusable schema, inputs that do not satisfy it, or a path that leaves the
/// workspace.
pub(super) fn resolve(
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
pub(super) struct DeclaredFile {
    /// Its name in the scratch directory.
    pub(super) key: String,
    /// Path in the workspace, with unexpanded tokens.
    pub(super) path: TokenPath,
    /// JSON Pointer of the manifest's entry, or the flag with its value.
    pub(super) source: String,
}

/// The files of a block and of its flag. The flag replaces the manifest's entry of the same key.
///
/// # Errors
/// [`RunError::Token`] for a path of the flag.
pub(super) fn declared_files(
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
        object: escape_path(path),
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
    let mut source = Interruptible::new(File::from(file), wait_limit);
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
        Some(InputsArgument::Text(text)) => Some(parse_json(
            &mut text.as_bytes(),
            DOCUMENT_MEMORY_MAX,
            wait_limit,
        )?),
        Some(InputsArgument::File(path)) => {
            let text = read_inputs(path, wait_limit)?;
            Some(parse_json(&mut &*text, DOCUMENT_MEMORY_MAX, wait_limit)?)
        }
    };
    let outputs = io.outputs.as_ref().map(|schema| Question {
        block: "outputs",
        schema,
        document: None,
    });
    if document.is_none() && io.inputs.is_none() && !has_files {
        judge(outputs.as_slice(), wait_limit)?;
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
    judge(&questions, wait_limit)?;
    let text = serde_json::to_vec(&value)
        .map_err(|_unserializable| RunError::host("write the inputs as JSON")(Errno::INVAL))?;
    Ok(Some(text))
}
