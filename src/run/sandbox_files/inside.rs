//! The commands of a sandbox that pack and unpack files. They say what went wrong in lines on their
//! standard error, of which the last is the error if their exit code is not 0.

use std::ffi::CStr;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;

use archive::UnpackError;
use archive::transfer::pack::{PackTask, pack};
use archive::transfer::place::{Content, LastLink, Place};
use archive::transfer::snapshot::{RestoreError, restore_snapshot};
use archive::transfer::unpack::unpack;
use rustix::io::Errno;
use spec::report::with_causes;

use crate::run::sandbox_files::{
    ARCHIVE, CONTENTS, FOLLOW, NAMED, SNAPSHOT, Skipped, special_entries_warning,
};
use spec::parse_permit::ParsePermit;

const WRITE_BYTES: usize = 64 << 10;

/// Writes a tar of the second word to standard output. The third is its name in the tar, the fourth
/// [`FOLLOW`] or another.
pub(in crate::run) fn send(words: &[&CStr]) -> u8 {
    exit_code(try_send(words))
}

/// Unpacks a tar from standard input to the second word. The third says what is in it, the fourth its name. A
/// snapshot is unpacked to the directories that the further words name.
pub(in crate::run) fn receive(words: &[&CStr]) -> u8 {
    exit_code(try_receive(words))
}

pub(super) fn exit_code(done: Result<(), String>) -> u8 {
    match done {
        Ok(()) => 0,
        Err(problem) => {
            report(&problem);
            1
        }
    }
}

/// Nothing is to be done if nobody reads it.
fn report(line: &str) {
    if let Ok(mut stderr) = stream(rustix::stdio::stderr()) {
        stderr.write_all(format!("{line}\n").as_bytes()).ok();
    }
}

pub(super) fn stream(descriptor: BorrowedFd<'_>) -> Result<File, Errno> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, 3).map(File::from)
}

/// As docker: paths are relative to the root.
pub(super) fn enter_root() -> Result<(), String> {
    rustix::process::chdir(c"/").map_err(|errno| format!("cannot enter `/`: {errno}"))
}

fn try_send(words: &[&CStr]) -> Result<(), String> {
    let [_, path, top, follow] = words else {
        return Err("malformed words".to_owned());
    };
    enter_root()?;
    let output = stream(rustix::stdio::stdout());
    let output = output.map_err(|errno| format!("cannot use the output: {errno}"))?;
    let mut output = BufWriter::with_capacity(WRITE_BYTES, output);
    let task = PackTask {
        path: path.to_bytes(),
        follows_link: follow.to_bytes() == FOLLOW.as_bytes(),
        top: top.to_bytes(),
    };
    let mut tell = |line: String| report(&line);
    let mut skipped = Skipped::new(&mut tell);
    pack(task, &mut output, &mut |path, why| skipped.add(path, why))
        .map_err(|error| with_causes(&error))?;
    skipped.end();
    let flushed = output.flush();
    flushed.map_err(|error| format!("cannot write the files to the other side: {error}"))
}

fn begin_to_receive() -> Result<(ParsePermit, File), String> {
    enter_root()?;
    let permit = confinement::permit_of_command()
        .map_err(|errno| format!("this process is not confined: {errno}"))?;
    let input = stream(rustix::stdio::stdin());
    let input = input.map_err(|errno| format!("cannot use the input: {errno}"))?;
    Ok((permit, input))
}

fn try_receive(words: &[&CStr]) -> Result<(), String> {
    let [_, path, content, name, places @ ..] = words else {
        return Err("malformed words".to_owned());
    };
    if content.to_bytes() == SNAPSHOT.as_bytes() {
        return try_restore(places);
    }
    let content = match content.to_bytes() {
        word if word == NAMED.as_bytes() => Content::Named(name.to_bytes()),
        word if word == CONTENTS.as_bytes() => Content::OfDirectory,
        word if word == ARCHIVE.as_bytes() => Content::OfArchive,
        _ => return Err("malformed words".to_owned()),
    };
    let (permit, input) = begin_to_receive()?;
    let place = Place::find(path.to_bytes(), content, LastLink::Follow)
        .map_err(|error| with_causes(&error))?;
    let limits = place.limits().map_err(|error| with_causes(&error))?;
    let fresh = place.make_fresh().map_err(|error| with_causes(&error))?;
    let unpacked = unpack(&permit, input, fresh.directory(), &limits);
    let skipped = unpacked.map_err(|error| match error {
        UnpackError::TooManyBytes { .. } => format!("{error}, which are free there"),
        error => with_causes(&error),
    })?;
    fresh.place().map_err(|error| with_causes(&error))?;
    if let Some(line) = special_entries_warning(skipped) {
        report(&line);
    }
    Ok(())
}

fn try_restore(paths: &[&CStr]) -> Result<(), String> {
    let (permit, input) = begin_to_receive()?;
    let mut places = Vec::new();
    for path in paths.iter().map(|path| path.to_bytes()) {
        match path {
            // Nothing can be made in the root of an image itself.
            b"/" => places.extend(directories_of_root()?),
            path => places.push(path.to_vec()),
        }
    }
    // All are on the same file system.
    let first = paths.first().ok_or("malformed words")?;
    let first = Place::find(first.to_bytes(), Content::OfArchive, LastLink::Refuse);
    let limits = first.and_then(|place| place.limits());
    let limits = limits.map_err(|error| with_causes(&error))?;
    let places: Vec<&[u8]> = places.iter().map(Vec::as_slice).collect();
    let restored = restore_snapshot(&permit, input, &places, &limits);
    restored.map_err(|error| match error {
        RestoreError::Unpack(UnpackError::TooManyBytes { .. }) => {
            format!("{error}, which are free in the sandbox")
        }
        RestoreError::Delete { errno, .. } if errno == Errno::XDEV => mounted(&error),
        RestoreError::Place(ref place) if place.is_on_another_mount() => mounted(&error),
        error => with_causes(&error),
    })
}

fn mounted(error: &RestoreError) -> String {
    format!("{error}: something is mounted there in this sandbox, where a snapshot changes nothing")
}

fn directories_of_root() -> Result<Vec<Vec<u8>>, String> {
    let failed = |error: std::io::Error| format!("cannot list `/`: {error}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/").map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            found.push([b"/", entry.file_name().as_bytes()].concat());
        }
    }
    Ok(found)
}
