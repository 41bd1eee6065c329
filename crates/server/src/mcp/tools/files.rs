//! `read_file`, `write_file` and `list_files`: small scripts that `runner sandbox exec` runs, so that the
//! kernel resolves every path in the view of the sandbox, and nothing of it lies on the host.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::CallToolResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Context;
use super::processes::refusal;
use crate::mcp::answer::{Answer, Refusal};
use crate::mcp::call::{Call, Ended};
use crate::mcp::handler::Server;
use crate::mcp::text::{Part, whole_characters};

const READ: &str = include_str!("read.sh");
const WRITE: &str = include_str!("write.sh");
const LIST: &str = include_str!("list.sh");

/// Bytes of a file that are read at once: if the call says nothing, and at most.
const READ_BYTES: u64 = 64 << 10;
const READ_BYTES_MAX: u64 = 256 << 10;
/// Most bytes that are written at once.
const WRITE_BYTES_MAX: usize = 4 << 20;
/// Entries of a list: if the call says nothing, and at most.
const ENTRIES: usize = 1000;
const ENTRIES_MAX: usize = 10_000;
/// Most bytes of a list.
const LIST_BYTES_MAX: usize = 1 << 20;
const DEPTH_MAX: u32 = 16;
/// The line with the size of a file.
const SIZE_LINE_BYTES: usize = 32;
/// Time of a script.
const TIMEOUT: &str = "--timeout=60s";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct ReadArguments {
    /// The path in the sandbox
    path: String,
    /// The first byte, from 0 [default: 0]
    offset: Option<u64>,
    /// Most bytes: 1 to 262144 [default: 65536]
    limit: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp) struct ReadDocument {
    /// The bytes, in `encoding`
    content: String,
    encoding: Encoding,
    /// The first byte of `content`
    offset: u64,
    /// Where to go on; null: `content` reaches the end of the file
    next_offset: Option<u64>,
    /// Bytes of the whole file
    size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct WriteArguments {
    /// The path in the sandbox
    path: String,
    /// What the file contains then, at most 4 MiB
    content: String,
    /// How `content` is written [default: utf-8]
    encoding: Option<Encoding>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp) struct WriteDocument {
    /// The path in the sandbox
    path: String,
    /// Bytes that were written
    size: usize,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct ListArguments {
    /// The directory in the sandbox [default: the one that the sandbox was created in]
    path: Option<String>,
    /// Levels of directories: 1 to 16 [default: 1]
    depth: Option<u32>,
    /// Most entries: 1 to 10000 [default: 1000]
    limit: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp) struct ListDocument {
    /// The entries, by their paths
    entries: Vec<Entry>,
    /// Whether there are more
    truncated: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
struct Entry {
    /// The path from the directory; U+FFFD stands for bytes that are not UTF-8
    path: String,
    kind: Kind,
    /// Whether `path` is the whole name as it is
    exact: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Directory,
    File,
    Link,
    Other,
}

pub(super) async fn read(
    server: &Server,
    arguments: ReadArguments,
    context: &Context,
) -> Result<CallToolResult, Refusal> {
    let offset = arguments.offset.unwrap_or_default();
    let limit = bounded(
        "limit",
        arguments.limit.unwrap_or(READ_BYTES),
        READ_BYTES_MAX,
    )?;
    let first = offset.saturating_add(1).to_string();
    let words = [&*plain_path(&arguments.path)?, &first, &limit.to_string()];
    let mut call = script(server, READ, &words, &[]);
    let bytes_max = SIZE_LINE_BYTES.saturating_add(usize::try_from(limit)?);
    call.part = Part::Start(bytes_max);
    let ended = run(server, call, &arguments.path, context).await?;
    let (size, bytes) = size_and_bytes(&ended.stdout.into_start(), limit)?;
    if bytes.is_empty() && offset < size {
        return Err(Refusal(format!("{}: cannot be read", arguments.path)));
    }
    let document = part_of_file(bytes, offset, size);
    let end = document.next_offset.unwrap_or(size);
    let answer = Answer {
        summary: format!(
            "bytes {offset} to {end} of {size}, {}",
            match document.encoding {
                Encoding::Utf8 => "UTF-8",
                Encoding::Base64 => "not text: in base64",
            }
        ),
        texts: vec![document.content.clone()],
        notes: Vec::new(),
        document,
        is_error: false,
    };
    answer.into_result()
}

/// What [`READ`] printed.
fn size_and_bytes(printed: &[u8], limit: u64) -> Result<(u64, Vec<u8>), Refusal> {
    let wrong = || Refusal("the shell of the sandbox printed no size of the file".to_owned());
    let line = printed.iter().take(SIZE_LINE_BYTES);
    let end = line.into_iter().position(|byte| *byte == b'\n');
    let end = end.ok_or_else(wrong)?;
    let size = std::str::from_utf8(&printed[..end]).ok();
    let size = size.and_then(|size| size.parse().ok()).ok_or_else(wrong)?;
    let mut bytes = printed[end + 1..].to_vec();
    bytes.truncate(usize::try_from(limit)?);
    Ok((size, bytes))
}

/// As text if it is text, without a character at its end that goes on behind it.
fn part_of_file(mut bytes: Vec<u8>, offset: u64, size: u64) -> ReadDocument {
    let end = offset.saturating_add(bytes.len() as u64);
    let whole = whole_characters(&bytes);
    let is_text = whole > 0 && !bytes[..whole].contains(&0);
    if is_text && end < size && std::str::from_utf8(&bytes[..whole]).is_ok() {
        bytes.truncate(whole);
    }
    let end = offset.saturating_add(bytes.len() as u64);
    let (encoding, content) = match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => (Encoding::Utf8, text),
        Ok(text) => (Encoding::Base64, STANDARD.encode(text)),
        Err(error) => (Encoding::Base64, STANDARD.encode(error.as_bytes())),
    };
    ReadDocument {
        content,
        encoding,
        offset,
        next_offset: (end < size).then_some(end),
        size,
    }
}

pub(super) async fn write(
    server: &Server,
    arguments: WriteArguments,
    context: &Context,
) -> Result<CallToolResult, Refusal> {
    let WriteArguments {
        path,
        content,
        encoding,
    } = arguments;
    let bytes = match encoding.unwrap_or(Encoding::Utf8) {
        Encoding::Utf8 => content.into_bytes(),
        Encoding::Base64 => STANDARD
            .decode(content)
            .map_err(|error| Refusal(format!("`content` is not base64: {error}")))?,
    };
    let size = bytes.len();
    if size > WRITE_BYTES_MAX {
        return Err(Refusal(format!(
            "`content` has {size} bytes; expected at most {WRITE_BYTES_MAX}"
        )));
    }
    let words = [&*plain_path(&path)?, &size.to_string()];
    let mut call = script(server, WRITE, &words, &["--interactive"]);
    call.input = bytes;
    run(server, call, &path, context).await?;
    let answer = Answer {
        summary: format!("wrote {size} bytes to {path}"),
        texts: Vec::new(),
        notes: Vec::new(),
        document: WriteDocument { path, size },
        is_error: false,
    };
    answer.into_result()
}

pub(super) async fn list(
    server: &Server,
    arguments: ListArguments,
    context: &Context,
) -> Result<CallToolResult, Refusal> {
    let path = arguments.path.unwrap_or_else(|| ".".to_owned());
    let depth = bounded(
        "depth",
        arguments.depth.unwrap_or(1).into(),
        DEPTH_MAX.into(),
    )?;
    let limit = arguments.limit.unwrap_or(ENTRIES);
    let limit = bounded("limit", limit as u64, ENTRIES_MAX as u64)?;
    let words = [&*plain_path(&path)?, &depth.to_string()];
    let mut call = script(server, LIST, &words, &[]);
    call.part = Part::Start(LIST_BYTES_MAX);
    let mut done = server.execute_in_sandbox(call, context).await?;
    // 1: a part cannot be read.
    let is_partial = done.ended.code == 1;
    if is_partial {
        done.ended.code = 0;
    }
    let ended = finish(done.ended, done.gone, &path)?;
    let mut notes = Vec::new();
    if is_partial {
        notes.push(format!(
            "some directories cannot be read: {}",
            ended.stderr.show().text.trim_end()
        ));
    }
    let is_cut = ended.stdout.total() > LIST_BYTES_MAX as u64;
    let mut entries = entries(&ended.stdout.into_start());
    let truncated = is_cut || entries.len() as u64 > limit;
    entries.truncate(usize::try_from(limit)?);
    if truncated {
        notes.push("there are more entries than these".to_owned());
    }
    let lines: String = entries.iter().map(line).collect();
    let answer = Answer {
        summary: format!("{} entries", entries.len()),
        texts: vec![lines],
        notes,
        document: ListDocument { entries, truncated },
        is_error: false,
    };
    answer.into_result()
}

/// What [`LIST`] printed, sorted. A last entry that was cut is left out.
fn entries(printed: &[u8]) -> Vec<Entry> {
    let end = printed.iter().rposition(|byte| *byte == 0);
    let whole = &printed[..end.unwrap_or_default()];
    let entry = |bytes: &[u8]| {
        let (kind, name) = bytes.split_first()?;
        let kind = match kind {
            b'd' => Kind::Directory,
            b'f' => Kind::File,
            b'l' => Kind::Link,
            _ => Kind::Other,
        };
        let name = name.strip_prefix(b"./").unwrap_or(name);
        Some(Entry {
            path: String::from_utf8_lossy(name).into_owned(),
            kind,
            exact: std::str::from_utf8(name).is_ok(),
        })
    };
    let mut entries: Vec<Entry> = whole.split(|byte| *byte == 0).filter_map(entry).collect();
    entries.sort_by(|left, right| left.path.cmp(&right.path));
    entries
}

/// As `ls -p` shows it. A name with a line break stays on one line.
fn line(entry: &Entry) -> String {
    let mark = match entry.kind {
        Kind::Directory => "/",
        Kind::Link => "@",
        Kind::File => "",
        Kind::Other => "=",
    };
    format!("{}{mark}\n", companion::escape_line(&entry.path))
}

fn bounded(name: &str, value: u64, max: u64) -> Result<u64, Refusal> {
    match value {
        1.. if value <= max => Ok(value),
        _ => Err(Refusal(format!("`{name}` is {value}; expected 1 to {max}"))),
    }
}

/// A path that no program takes for a flag.
fn plain_path(path: &str) -> Result<String, Refusal> {
    match path.as_bytes() {
        [] => Err(Refusal("`path` is empty; expected a path".to_owned())),
        [b'/', ..] => Ok(path.to_owned()),
        _ => Ok(format!("./{path}")),
    }
}

/// `sh -c TEXT sh WORDS…` in the sandbox.
fn script<'call>(server: &Server, text: &str, words: &[&str], flags: &[&str]) -> Call<'call> {
    let flags = [&["-q", TIMEOUT], flags].concat();
    let flags: Vec<_> = flags.into_iter().map(Into::into).collect();
    let program = [&["sh", "-c", text, "sh"], words].concat();
    Call::new(server.sandbox().exec_words(&flags, &program))
}

async fn run(
    server: &Server,
    call: Call<'_>,
    path: &str,
    context: &Context,
) -> Result<Ended, Refusal> {
    let done = server.execute_in_sandbox(call, context).await?;
    finish(done.ended, done.gone, path)
}

fn finish(ended: Ended, gone: Option<&str>, path: &str) -> Result<Ended, Refusal> {
    match ended.code {
        0 => Ok(ended),
        _ => {
            let Refusal(why) = refusal(ended, gone);
            Err(Refusal(format!("{path}: {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_file_is_text_or_base64_and_says_where_it_goes_on() {
        let text = "a€b".as_bytes();
        for (bytes, size, content, next) in [
            (text, 5, "a€b", None),
            // The euro sign has three bytes.
            (&text[..3], 5, "a", Some(1)),
            (&text[..4], 5, "a€", Some(4)),
        ] {
            let part = part_of_file(bytes.to_vec(), 0, size);
            assert_eq!(part.encoding, Encoding::Utf8);
            assert_eq!((&*part.content, part.next_offset), (content, next));
        }
        let binary = part_of_file(b"a\0b".to_vec(), 7, 20);
        assert_eq!(binary.encoding, Encoding::Base64);
        assert_eq!((&*binary.content, binary.next_offset), ("YQBi", Some(10)));
        // At its end a file that cuts a character is no text.
        let cut = part_of_file(text[..3].to_vec(), 0, 3);
        assert_eq!((cut.encoding, cut.next_offset), (Encoding::Base64, None));
        // From within a character on.
        let within = part_of_file(text[2..4].to_vec(), 2, 5);
        assert_eq!(
            (within.encoding, within.next_offset),
            (Encoding::Base64, Some(4))
        );
        let empty = part_of_file(Vec::new(), 0, 0);
        assert_eq!((empty.encoding, empty.next_offset), (Encoding::Utf8, None));
    }

    #[test]
    fn the_size_is_a_line_of_its_own() {
        let read = |printed: &[u8]| size_and_bytes(printed, 3).ok();
        assert_eq!(read(b"5\nabc"), Some((5, b"abc".to_vec())));
        assert_eq!(read(b"5\nabcde"), Some((5, b"abc".to_vec())));
        for wrong in [&b""[..], b"5", b"x\na", b"\n", b"-1\n", &[b'1'; 64]] {
            assert_eq!(read(wrong), None);
        }
    }

    #[test]
    fn entries_have_hostile_names() {
        let printed = b"f./b\nf./c\0d./a\0l./\x1b[2J\0o./\xff\0f./cut";
        let entries = entries(printed);
        let shown: String = entries.iter().map(line).collect();
        assert_eq!(shown, "\\u{1b}[2J@\na/\nb\\u{a}f./c\n\u{fffd}=\n");
        assert!(entries[..3].iter().all(|entry| entry.exact) && !entries[3].exact);
        assert_eq!(entries[2].path, "b\nf./c");
    }

    #[test]
    fn no_path_is_a_flag() {
        for (path, plain) in [("-n", "./-n"), ("-", "./-"), ("/a", "/a"), ("a b", "./a b")] {
            assert_eq!(plain_path(path).expect("a path"), plain);
        }
        assert!(plain_path("").is_err());
    }
}
