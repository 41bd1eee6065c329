//! Calls about files that a program inside the sandbox answers: list, stat, remove and move.
//!
//! What it prints comes from a stranger: it is read strictly, and it is data for the client alone.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

use super::body::json;
use super::commands::collect;
use super::error::ApiError;
use super::events::base64;
use super::exec::{self, Wanted};
use super::query::Query;
use super::server::{InSandbox, Server, Shared};
use super::terminal::Reads;
use super::types::{FileEntry, FileKind, FileList};
use super::verbs::words;
use spec::path::escape;
use spec::sandboxes::SandboxName;

/// Kind, mode, size, time, name and target of an entry, of which the last two are any bytes but NUL.
const FORMAT: &str = r"%y\0%m\0%s\0%T@\0%f\0%l\0";
const FIELDS: usize = 6;

/// Most bytes that a program may print: some 50,000 entries.
const PRINTED_BYTES_MAX: usize = 8 << 20;
const MESSAGE_BYTES_MAX: usize = 512;

pub(super) async fn list(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let mut path = Query::parse(request.uri().query(), &["path"])?.path("path")?;
    // A link to a directory is followed, and what is no directory is refused.
    path.push(b'/');
    let entries = find(
        &server,
        &at.name,
        path,
        &["-mindepth", "1", "-maxdepth", "1"],
    )
    .await?;
    Ok(json(StatusCode::OK, &FileList { entries }))
}

pub(super) async fn stat(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let path = Query::parse(request.uri().query(), &["path"])?.path("path")?;
    let entries = find(&server, &at.name, path, &["-maxdepth", "0"]).await?;
    match &entries[..] {
        [entry] => Ok(json(StatusCode::OK, entry)),
        _ => Err(malformed("find")),
    }
}

pub(super) async fn delete(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.uri().query(), &["path", "recursive"])?;
    let path = query.path("path")?;
    if path == b"/" {
        return Err(ApiError::bad_request(
            "path",
            "the root of a sandbox cannot be removed",
        ));
    }
    let how: &[&str] = match query.is_set("recursive")? {
        true => &["-r", "--one-file-system"],
        false => &["-d"],
    };
    run(&server, &at.name, "rm", how, vec![path], &[]).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn rename(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.uri().query(), &["from", "to"])?;
    let paths = vec![query.path("from")?, query.path("to")?];
    run(&server, &at.name, "mv", &["-f", "-T"], paths, &[]).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn find(
    server: &Server,
    name: &SandboxName,
    path: Vec<u8>,
    which: &[&str],
) -> Result<Vec<FileEntry>, ApiError> {
    let after = [which, &["-printf", FORMAT]].concat();
    let printed = run(server, name, "find", &[], vec![path], &after).await?;
    read_entries(&printed).ok_or_else(|| malformed("find"))
}

pub(super) fn malformed(program: &str) -> ApiError {
    ApiError::new(
        StatusCode::BAD_GATEWAY,
        "program_output",
        format!("`{program}` of the sandbox did not print what it should"),
    )
}

/// Runs `program FLAGS -- PATHS AFTER` in the sandbox. `find` has no `--`; a path begins with a slash.
pub(super) async fn run(
    server: &Server,
    name: &SandboxName,
    program: &'static str,
    flags: &[&str],
    paths: Vec<Vec<u8>>,
    after: &[&str],
) -> Result<Vec<u8>, ApiError> {
    let mut argv: Vec<Vec<u8>> = vec![program.into()];
    argv.extend(flags.iter().map(|flag| flag.as_bytes().to_vec()));
    argv.extend((program != "find").then(|| b"--".to_vec()));
    argv.extend(paths);
    argv.extend(after.iter().map(|word| word.as_bytes().to_vec()));
    // Messages in English, whatever language the sandbox has: they decide the status.
    let wanted = Wanted {
        verbs: server.verbs.clone(),
        sandbox: name.clone(),
        flags: words(["--env=LC_ALL=C", "--timeout=60s"]),
        variables: BTreeMap::new(),
        argv,
        reads: Reads::Nothing,
        ends_with_client: false,
        tells_id: false,
    };
    let (pieces, _input) = exec::start(wanted)?;
    let done = collect(pieces, PRINTED_BYTES_MAX).await;
    let done = done.map_err(|error| match error.status {
        StatusCode::UNPROCESSABLE_ENTITY => no_program(program),
        _ => error,
    })?;
    let (stdout, is_cut) = done.stdout.into_bytes();
    let (stderr, _) = done.stderr.into_bytes();
    match done.ended.exit_code {
        0 if is_cut => Err(ApiError::too_large(format!(
            "`{program}` printed more than {PRINTED_BYTES_MAX} bytes"
        ))),
        0 => Ok(stdout),
        124 if done.ended.has_timed_out => {
            Err(ApiError::failed(format!("`{program}` did not end in 60 s")))
        }
        code => Err(failed(program, code, &stderr)),
    }
}

fn no_program(program: &str) -> ApiError {
    ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        "no_program",
        format!("the sandbox has no program `{program}` of GNU, which this call executes in it"),
    )
    .with_hint("files can be read and written without it")
}

/// The error of a program that failed, by its last line.
fn failed(program: &str, code: i32, stderr: &[u8]) -> ApiError {
    let line = stderr
        .trim_ascii_end()
        .rsplit(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let whole = escape(&line[..line.len().min(MESSAGE_BYTES_MAX)]);
    let ends_with = |end: &[u8]| line.ends_with(end);
    let (status, code) = match () {
        () if ends_with(b"No such file or directory") => (StatusCode::NOT_FOUND, "no_file"),
        () if ends_with(b"Permission denied")
            || ends_with(b"Read-only file system")
            || ends_with(b"not permitted") =>
        {
            (StatusCode::FORBIDDEN, "file_denied")
        }
        () if [
            b"Directory not empty".as_slice(),
            b"Not a directory",
            b"Is a directory",
            b"File exists",
        ]
        .iter()
        .any(|end| ends_with(end)) =>
        {
            (StatusCode::CONFLICT, "file_kind")
        }
        // busybox and others know other flags.
        () if code == 1 && (whole.contains("unrecognized") || whole.contains("invalid option")) => {
            return no_program(program);
        }
        () => (StatusCode::UNPROCESSABLE_ENTITY, "file_failed"),
    };
    ApiError::new(status, code, whole)
}

/// Reads what `find` prints; `None` if it has another form.
fn read_entries(printed: &[u8]) -> Option<Vec<FileEntry>> {
    let Some(printed) = printed.strip_suffix(b"\0") else {
        return printed.is_empty().then(Vec::new);
    };
    let fields: Vec<&[u8]> = printed.split(|byte| *byte == 0).collect();
    let chunks = fields.chunks(FIELDS);
    chunks
        .map(|fields| {
            <&[&[u8]; FIELDS]>::try_from(fields)
                .ok()
                .and_then(read_entry)
        })
        .collect()
}

fn read_entry([kind, mode, size, time, name, target]: &[&[u8]; FIELDS]) -> Option<FileEntry> {
    let text = |field: &[u8]| String::from_utf8(field.to_vec()).ok();
    let kind = match *kind {
        b"f" => FileKind::File,
        b"d" => FileKind::Directory,
        b"l" => FileKind::Link,
        [b'a'..=b'z' | b'A'..=b'Z' | b'?'] => FileKind::Other,
        _ => return None,
    };
    let is_octal =
        (1..=4).contains(&mode.len()) && mode.iter().all(|digit| (b'0'..=b'7').contains(digit));
    let (seconds, _fraction) = std::str::from_utf8(time).ok()?.split_once('.')?;
    let named = text(name);
    Some(FileEntry {
        name_base64: named.is_none().then(|| base64(name)),
        name: named,
        kind,
        mode: text(mode).filter(|_| is_octal)?,
        size_bytes: std::str::from_utf8(size).ok()?.parse().ok()?,
        modified_unix_s: seconds.parse().ok()?,
        target: (kind == FileKind::Link).then(|| text(target)).flatten(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_any_name_and_no_other_form() {
        let printed = b"f\x00644\x0012\x001700000000.5\x00a\nb\0\0d\x001777\x004096\x00-1.0\0\xff\0\0l\x00777\x001\x000.0\0l\0/x\0";
        let entries = read_entries(printed).unwrap_or_default();
        let kinds: Vec<FileKind> = entries.iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [FileKind::File, FileKind::Directory, FileKind::Link]);
        assert_eq!(entries[0].name.as_deref(), Some("a\nb"));
        assert_eq!(
            (entries[0].size_bytes, entries[0].modified_unix_s),
            (12, 1_700_000_000)
        );
        assert_eq!(
            (
                entries[1].name.as_deref(),
                entries[1].name_base64.as_deref()
            ),
            (None, Some("/w=="))
        );
        assert_eq!(entries[1].modified_unix_s, -1);
        assert_eq!(entries[2].target.as_deref(), Some("/x"));
        assert_eq!(read_entries(b""), Some(Vec::new()));
        for bad in [
            &b"\0"[..],
            b"f",
            b"f\x00644\x0012\x001.0\0a\0",
            b"f\x00644\x0012\x001.0\0a\0\0f\0",
            b"ff\x00644\x0012\x001.0\0a\0\0",
            b"f\x00948\x0012\x001.0\0a\0\0",
            b"f\x00644\x00-1\x001.0\0a\0\0",
            b"f\x00644\x0012\x001\0a\0\0",
            b"f\x00644\x0012\0x.0\0a\0\0",
        ] {
            assert_eq!(read_entries(bad), None, "{bad:?}");
        }
    }
}
