//! Trusted certificate authorities.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use spec::path::escape_path;
use sys::file::{CallError, Unread, read_regular};

pub(crate) const NO_ROOTS: &str = "no certificate authority is known to this host, so https:// cannot be \
                                   trusted; install ca-certificates, or name a file with SSL_CERT_FILE";
const FILE_BYTES_MAX: usize = 4 << 20;
const FILES_MAX: usize = 64;

/// Unusable certificate file or directory.
#[derive(Debug, thiserror::Error)]
#[error("the certificates in `{file}` cannot be used: {problem}")]
pub(crate) struct RootsError {
    pub file: String,
    pub problem: String,
    #[source]
    pub source: Option<CallError>,
}

/// Loads the certificates of the host: of `SSL_CERT_FILE` and `SSL_CERT_DIR` if set, else the
/// system's. The list may be empty.
#[must_use]
pub(crate) fn load_host_roots() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

/// Loads a PEM file.
///
/// # Errors
/// [`RootsError`]: unreadable, or without a certificate.
pub(crate) fn load_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, RootsError> {
    let refused = |problem: &str, source| RootsError {
        file: escape_path(path),
        problem: problem.to_owned(),
        source,
    };
    let failed = |call: &'static str, errno: Errno| {
        let name = escape_path(path);
        refused("it cannot be read", Some(CallError::new(call, name, errno)))
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file: OwnedFd =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed("open", errno))?;
    let text = read_regular(file, FILE_BYTES_MAX).map_err(|unread| match unread {
        Unread::Stat(errno) => failed("fstat", errno),
        Unread::Read(errno) => failed("read", errno),
        Unread::NotRegular => refused("it is not a regular file", None),
        Unread::TooLarge => refused("it has more than 4 MiB", None),
    })?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| refused(&format!("it is not PEM: {error}"), None))?;
    if found.is_empty() {
        return Err(refused("it has no certificate in PEM", None));
    }
    Ok(found)
}

/// Loads the `*.crt` files of a directory, where Docker keeps the certificates of one registry
/// (`/etc/docker/certs.d/HOST:PORT`). A missing directory gives an empty list.
///
/// # Errors
/// [`RootsError`]: a file is unreadable or has no certificate.
pub(crate) fn load_directory(directory: &Path) -> Result<Vec<CertificateDer<'static>>, RootsError> {
    let failed = |error: &std::io::Error| {
        let name = escape_path(directory);
        let errno = sys::file::errno_of(error);
        RootsError {
            file: name.clone(),
            problem: "the directory cannot be read".to_owned(),
            source: Some(CallError::new("getdents64", name, errno)),
        }
    };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(&error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path: PathBuf = entry.map_err(|error| failed(&error))?.path();
        if path.extension().is_some_and(|extension| extension == "crt") {
            files.push(path);
        }
    }
    files.sort();
    files.truncate(FILES_MAX);
    let mut all = Vec::new();
    for file in files {
        all.extend(load_file(&file)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only TLS parses the content.
    const ONE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    #[test]
    fn the_crt_files_of_a_directory_are_loaded() {
        let ground = tempfile::tempdir().expect("a directory");
        let directory = ground.path().join("r.test:5000");
        assert_eq!(load_directory(&directory).expect("none").len(), 0);
        std::fs::create_dir(&directory).expect("made");
        for (name, text) in [
            ("a.crt", ONE),
            ("b.crt", &ONE.repeat(2)),
            ("client.cert", "x"),
            ("client.key", "x"),
        ] {
            std::fs::write(directory.join(name), text).expect("written");
        }
        assert_eq!(load_directory(&directory).expect("read").len(), 3);
        std::fs::write(directory.join("c.crt"), "x").expect("written");
        let error = load_directory(&directory).expect_err("refused").to_string();
        assert!(error.contains("c.crt") && error.contains("PEM"), "{error}");
    }
}
