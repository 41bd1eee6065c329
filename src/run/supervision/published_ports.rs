//! Listens at the published ports of the host, and reports them before the body starts.

use std::ffi::OsStr;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::run::error::RunError;
use egress::relay::Published;
use spec::network::{NetworkOptions, PublishedPort};
use spec::path::{escape, escape_path};
use sys::process;
use sys::trusted_links::{self, Unopened};

/// Listens at the published ports of the host.
///
/// # Errors
/// [`RunError::Argument`] for an unavailable port.
pub(in crate::run) fn publish(ports: &[PublishedPort]) -> Result<Vec<Published>, RunError> {
    ports.iter().map(|port| listen(*port)).collect()
}

fn listen(port: PublishedPort) -> Result<Published, RunError> {
    let refused = |errno| RunError::Argument {
        code: "port_unavailable",
        what: "--publish",
        object: port.to_string(),
        problem: format!("cannot listen at 127.0.0.1:{}: {errno}", port.host_port),
        hint: Some(match errno {
            Errno::ADDRINUSE => "something listens there already: choose another port".to_owned(),
            Errno::ACCESS => "choose a port from 1024 on".to_owned(),
            _ => "choose another port".to_owned(),
        }),
    };
    let failed = |error: std::io::Error| refused(sys::file::errno_of(&error));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.host_port)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let host_port = listener.local_addr().map_err(failed)?.port();
    Ok(Published {
        listener: listener.into(),
        host_port,
        body_port: port.body_port,
    })
}

/// Reports the published ports before the body starts: those that the kernel chose as events, all in
/// the file of `--publish-file`.
///
/// # Errors
/// [`RunError::Argument`] for a file that cannot be written.
pub(in crate::run) fn report_ports(
    published: &[Published],
    options: &NetworkOptions,
) -> Result<(), RunError> {
    let mut text = String::new();
    for (requested, bound) in options.publish.iter().zip(published) {
        let ports = PublishedPort {
            host_port: bound.host_port,
            body_port: bound.body_port,
        };
        if requested.host_port == 0 {
            let (host, body) = (ports.host_port, ports.body_port);
            tracing::info!("127.0.0.1:{host} leads to port {body} of the body");
        }
        text.push_str(&format!("{ports}\n"));
    }
    let Some(path) = &options.publish_file else {
        return Ok(());
    };
    write_atomically(path, text.as_bytes()).map_err(|unopened| unwritable(path, unopened))
}

/// Checks the file of `--publish-file` without writing it.
///
/// # Errors
/// As [`report_ports`].
pub(in crate::run) fn check_file(options: &NetworkOptions) -> Result<(), RunError> {
    let Some(path) = &options.publish_file else {
        return Ok(());
    };
    let access = Access::WRITE_OK | Access::EXEC_OK;
    open_directory_of(path)
        .and_then(|(directory, _)| {
            rustix::fs::accessat(&directory, ".", access, AtFlags::EACCESS)?;
            Ok(())
        })
        .map_err(|unopened| unwritable(path, unopened))
}

fn unwritable(path: &Path, unopened: Unopened) -> RunError {
    let (problem, hint) = match unopened {
        Unopened::Link { link, uid } => (
            format!(
                "the link `{}` on the way belongs to uid {uid}",
                escape(&link)
            ),
            "name the directory itself",
        ),
        Unopened::Call(errno) => (
            format!("cannot be written: {errno}"),
            "name a file in a writable directory",
        ),
    };
    RunError::Argument {
        code: "publish_file_unwritable",
        what: "--publish-file",
        object: escape_path(path),
        problem,
        hint: Some(hint.to_owned()),
    }
}

/// The directory and the name of a file that may be written or replaced. Follows no link of another
/// user.
fn open_directory_of(path: &Path) -> Result<(OwnedFd, &OsStr), Unopened> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::ISDIR.into());
    };
    let parent = trusted_links::open(parent.as_os_str().as_bytes())?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(&parent, ".", flags, Mode::empty())?;
    match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink => Ok((directory, name)),
            FileType::Directory => Err(Errno::ISDIR.into()),
            _ => Err(Errno::EXIST.into()),
        },
        Err(Errno::NOENT) => Ok((directory, name)),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes a file atomically, so that a waiting reader never sees a part. Replaces an existing file or
/// link.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Unopened> {
    let (directory, name) = open_directory_of(path)?;
    let temporary = format!(".ports-{}.tmp", process::random_digits()?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, &*temporary, flags, Mode::from_raw_mode(0o666))?;
    let written = std::fs::File::from(file).write_all(bytes);
    written
        .map_err(|error| sys::file::errno_of(&error))
        .and_then(|()| rustix::fs::renameat(&directory, &*temporary, &directory, name))
        .map_err(|errno| {
            // The errno of the write is the cause, not that of the removal.
            match rustix::fs::unlinkat(&directory, &*temporary, AtFlags::empty()) {
                Ok(()) | Err(_) => errno.into(),
            }
        })
}
