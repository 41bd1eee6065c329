//! The commands of a sandbox that pack and unpack files. They say what went wrong in lines on their
//! standard error, of which the last is the error if their exit code is not 0.

use std::ffi::CStr;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::fd::BorrowedFd;

use archive::UnpackError;
use archive::transfer::pack::{PackTask, pack};
use archive::transfer::place::{Content, LastLink, Place};
use archive::transfer::unpack::unpack;
use rustix::io::Errno;
use spec::report::with_causes;

use crate::run::sandbox_files::{ARCHIVE, CONTENTS, FOLLOW, NAMED, Skipped, special_entries};

const WRITE_BYTES: usize = 64 << 10;

/// Writes a tar of the second word to standard output. The third is its name in the tar, the fourth
/// [`FOLLOW`] or another.
pub(in crate::run) fn send(words: &[&CStr]) -> u8 {
    exit_code(try_send(words))
}

/// Unpacks a tar from standard input to the second word. The third says what is in it, the fourth its name.
pub(in crate::run) fn receive(words: &[&CStr]) -> u8 {
    exit_code(try_receive(words))
}

fn exit_code(done: Result<(), String>) -> u8 {
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

fn stream(descriptor: BorrowedFd<'_>) -> Result<File, Errno> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, 3).map(File::from)
}

/// As docker: paths are relative to the root.
fn enter_root() -> Result<(), String> {
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

fn try_receive(words: &[&CStr]) -> Result<(), String> {
    let [_, path, content, name] = words else {
        return Err("malformed words".to_owned());
    };
    let content = match content.to_bytes() {
        word if word == NAMED.as_bytes() => Content::Named(name.to_bytes()),
        word if word == CONTENTS.as_bytes() => Content::OfDirectory,
        word if word == ARCHIVE.as_bytes() => Content::OfArchive,
        _ => return Err("malformed words".to_owned()),
    };
    enter_root()?;
    let permit = confinement::permit_of_command()
        .map_err(|errno| format!("this process is not confined: {errno}"))?;
    let input = stream(rustix::stdio::stdin());
    let input = input.map_err(|errno| format!("cannot use the input: {errno}"))?;
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
    if let Some(line) = special_entries(skipped) {
        report(&line);
    }
    Ok(())
}
