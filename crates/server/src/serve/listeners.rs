//! The sockets that the server listens on.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream};
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tokio::net::{TcpListener, UnixListener};

use super::flags::Flags;
use spec::path::escape;

/// Where clients connect.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) unix: UnixListener,
    pub(super) tcp: Option<TcpListener>,
    /// Removed at the end; `None` if systemd made the socket.
    pub(super) own: Option<OwnSocket>,
}

/// For the line that says where clients connect.
impl fmt::Display for Listeners {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.own {
            Some(own) => formatter.write_str(&escape(own.path.as_os_str().as_bytes()))?,
            None => formatter.write_str("the socket of systemd")?,
        }
        match self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok()) {
            Some(address) => write!(formatter, " and http://{address}"),
            None => Ok(()),
        }
    }
}

/// A socket that this process made. The lock is held as long as the process lives, so that a socket
/// without a lock is that of a dead server.
#[derive(Debug)]
pub(super) struct OwnSocket {
    path: PathBuf,
    _lock: File,
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        // The next server replaces what is left.
        let _removed = std::fs::remove_file(&self.path);
    }
}

/// The socket that systemd passes (sd_listen_fds(3)).
///
/// # Errors
/// A message: it passes another number of sockets than one, or not a unix socket.
pub(super) fn passed() -> Result<Option<StdUnixListener>, String> {
    let mut sockets = ListenFd::from_env();
    match sockets.len() {
        0 => Ok(None),
        1 => sockets.take_unix_listener(0).map_err(|error| {
            format!(
                "the socket of systemd cannot be used: {error}; its unit needs ListenStream=PATH"
            )
        }),
        count => Err(format!(
            "systemd passes {count} sockets; expected one, of a unit with one ListenStream="
        )),
    }
}

impl Listeners {
    /// # Errors
    /// A message: a socket cannot be used.
    pub(super) fn open(
        flags: &Flags,
        passed: Option<StdUnixListener>,
        has_token: bool,
    ) -> Result<Self, String> {
        let (socket, own) = match (passed, &flags.socket) {
            (Some(_), Some(_)) => {
                return Err("systemd passes a socket; omit --socket".to_owned());
            }
            (Some(socket), None) => (socket, None),
            (None, path) => {
                let path = path.clone().unwrap_or_else(default_socket);
                let (socket, own) = bind(&path)?;
                (socket, Some(own))
            }
        };
        let unix = socket
            .set_nonblocking(true)
            .and_then(|()| UnixListener::from_std(socket))
            .map_err(|error| format!("the unix socket cannot be used: {error}"))?;
        let tcp = match flags.listen {
            Some(address) if has_token => Some(listen(address)?),
            _ => None,
        };
        Ok(Self { unix, tcp, own })
    }
}

/// In the runtime directory, which docs/configuration.md describes.
fn default_socket() -> PathBuf {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let uid = rustix::process::geteuid();
    let directory = absolute("RUNNER_OPT_RUNTIME_DIRECTORY").unwrap_or_else(|| {
        match absolute("XDG_RUNTIME_DIR").filter(|path| path.is_dir()) {
            _ if uid.is_root() => PathBuf::from("/run/runner"),
            Some(directory) => directory.join("runner"),
            None => PathBuf::from(format!("/tmp/runner-{}", uid.as_raw())),
        }
    });
    directory.join("api.sock")
}

fn bind(path: &Path) -> Result<(StdUnixListener, OwnSocket), String> {
    let shown = escape(path.as_os_str().as_bytes());
    let failed =
        |act: &str, error: &dyn std::fmt::Display| format!("{shown}: cannot {act}: {error}");
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = std::fs::metadata(parent).map_err(|error| failed("be made", &error))?;
    let (mode, uid) = (directory.mode(), rustix::process::geteuid().as_raw());
    let is_safe = [0, uid].contains(&directory.uid()) && (mode & 0o022 == 0 || mode & 0o1000 != 0);
    if !is_safe {
        return Err(format!(
            "{shown}: other users may replace this socket: expected a directory of yours that only you may write to"
        ));
    }
    let lock = lock(path).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => format!("{shown}: another `runner serve` listens here"),
        _ => failed("be locked", &error),
    })?;
    replace_dead(path, &shown)?;
    let socket = StdUnixListener::bind(path).map_err(|error| failed("be made", &error))?;
    let own = OwnSocket {
        path: path.to_owned(),
        _lock: lock,
    };
    // Until then others may have it, and get nothing: the uid of each client is checked.
    std::fs::set_permissions(path, Permissions::from_mode(0o600))
        .map_err(|error| failed("be restricted", &error))?;
    Ok((socket, own))
}

/// Locks the file `PATH.lock`, which stays: if it were removed, two servers could each lock one.
fn lock(path: &Path) -> std::io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(no_follow)
        .open(PathBuf::from(name))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(errno @ Errno::WOULDBLOCK) => Err(errno.into()),
        Err(errno) => Err(errno.into()),
        Ok(()) => Ok(file),
    }
}

/// Removes the socket of a server that has died; nothing else.
fn replace_dead(path: &Path, shown: &str) -> Result<(), String> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{shown}: {error}")),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(format!("{shown} is not a socket: it is not replaced"));
        }
        Ok(_) => (),
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)
            .map_err(|error| format!("{shown}: cannot be replaced: {error}")),
        Ok(_) => Err(format!("{shown}: another program listens here")),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    if !address.ip().is_loopback() {
        return Err(format!(
            "--listen {address}: expected a loopback address such as 127.0.0.1:{}; for other hosts put a proxy \
             with TLS before it",
            address.port()
        ));
    }
    let bound = std::net::TcpListener::bind(address).and_then(|socket| {
        socket.set_nonblocking(true)?;
        TcpListener::from_std(socket)
    });
    bound.map_err(|error| format!("--listen {address}: {error}"))
}
