//! Tries to reach what a process without rights must not reach.

use std::ffi::{CString, c_long};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use crate::calls;

/// What of the host an attacker knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Surroundings {
    /// Files that belong to others.
    pub files: Vec<PathBuf>,
    /// Directories that belong to others.
    pub directories: Vec<PathBuf>,
    /// Where somebody listens.
    pub address: Option<SocketAddr>,
}

/// 0: not known.
static SUPERVISOR: AtomicU32 = AtomicU32::new(0);

/// Remembers the parent, whose pid an attacker reads in the memory that it has a copy of: afterwards
/// getppid(2) may be refused.
pub fn remember_supervisor() {
    SUPERVISOR.store(parent_id(), Ordering::Relaxed);
}

/// The attempts that succeeded, and what is open in this process.
#[must_use]
pub fn attempts(surroundings: &Surroundings) -> Vec<String> {
    let mut done = Vec::new();
    let mut note = |what: String, has_succeeded: bool| {
        if has_succeeded {
            done.push(what);
        }
    };
    let supervisor = match SUPERVISOR.load(Ordering::Relaxed) {
        0 => parent_id(),
        known => known,
    };
    note(descriptors(), true);
    for path in ["/etc/shadow", "/etc/passwd", "../../../../../etc/passwd"] {
        note(format!("read {path}"), fs::read(path).is_ok());
    }
    for name in ["environ", "mem", "maps"] {
        for process in [supervisor.to_string(), "self".to_owned()] {
            let opened = fs::File::open(format!("/proc/{process}/{name}"));
            let whose = if process == "self" {
                "own"
            } else {
                "supervisor's"
            };
            note(format!("open {whose} {name}"), opened.is_ok());
        }
    }
    for name in ["root", "cwd", "fd"] {
        let listed = fs::read_dir(format!("/proc/{supervisor}/{name}/"));
        note(format!("list supervisor's {name}"), listed.is_ok());
    }
    for path in &surroundings.files {
        let name = shown(path);
        note(format!("read {name}"), fs::read(path).is_ok());
        note(format!("look at {name}"), path.symlink_metadata().is_ok());
        let opened = fs::OpenOptions::new().append(true).open(path);
        note(format!("write {name}"), opened.is_ok());
        note(format!("open {name} by a descriptor"), by_descriptor(path));
        note(format!("remove {name}"), fs::remove_file(path).is_ok());
    }
    for path in &surroundings.directories {
        let name = shown(path);
        let (new, link) = (path.join("planted"), path.join("planted-link"));
        note(format!("list {name}"), fs::read_dir(path).is_ok());
        note(
            format!("create in {name}"),
            fs::write(new, "planted").is_ok(),
        );
        note(format!("link in {name}"), symlink("/etc", link).is_ok());
    }
    if let Some(address) = surroundings.address {
        let connected = TcpStream::connect(address);
        note("connect".to_owned(), connected.is_ok());
    }
    note(
        "listen".to_owned(),
        TcpListener::bind("127.0.0.1:0").is_ok(),
    );
    note("send".to_owned(), UdpSocket::bind("127.0.0.1:0").is_ok());
    let started = Command::new("/proc/self/exe").arg("--version").output();
    note("start a program".to_owned(), started.is_ok());
    note("fork".to_owned(), calls::fork());
    for call in calls::harmless(c_long::from(supervisor.cast_signed())) {
        note(call.0.to_owned(), calls::reaches_the_kernel(call));
    }
    // What an unpacker has.
    let is_filled = fs::write("planted-file", "x").is_ok();
    note("create in its directory".to_owned(), is_filled);
    let _removed = fs::remove_file("planted-file");
    done
}

fn shown(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Whether one of the open descriptors leads to `path`.
fn by_descriptor(path: &Path) -> bool {
    let below = path.as_os_str().as_bytes();
    let climbing = [&b"../../../../../../../../.."[..], below].concat();
    let leads = |path: &[u8]| {
        let path = CString::new(path).unwrap_or_default();
        let mut open = calls::descriptors().into_iter();
        open.any(|(descriptor, _)| calls::opens_beneath(descriptor, &path))
    };
    let name = path.file_name().unwrap_or_default();
    leads(&climbing) || leads(name.as_bytes())
}

/// What is open, by kind.
fn descriptors() -> String {
    let open = calls::descriptors();
    let count = |kind| open.iter().filter(|(_, of)| *of == kind).count();
    let kinds = [
        ("devices", libc::S_IFCHR),
        ("pipes", libc::S_IFIFO),
        ("directories", libc::S_IFDIR),
        ("sockets", libc::S_IFSOCK),
        ("files", libc::S_IFREG),
        ("others", calls::UNKNOWN),
    ];
    let counted = kinds.map(|(name, kind)| (name, count(kind)));
    let listed = counted.iter().filter(|(_, count)| *count > 0);
    let listed: Vec<String> = listed
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    format!("has {}", listed.join(" and "))
}
