//! Debian's `docker-registry` on loopback: a real registry for one test.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::packages::{has, succeed};
use crate::{certificates, random};

/// Settings of a registry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// TLS, with a certificate for 127.0.0.1 and localhost by the registry's own authority.
    pub tls: bool,
    /// With a login: a user and a random password for each registry.
    pub login: bool,
}

/// A running registry. It ends with this value, and with the test process.
#[derive(Debug)]
pub struct Registry {
    directory: PathBuf,
    address: String,
    options: Options,
    password: String,
    /// The script. Closing its standard input ends the registry.
    started: Child,
}

/// A request that the registry answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// `GET`, `HEAD`, `PUT`, …
    pub method: String,
    /// With the query.
    pub path: String,
    /// The status of the answer.
    pub status: u16,
}

impl Registry {
    /// The only user that may log in.
    pub const USER: &str = "somebody";

    /// Starts an empty one on a free port. `None`, with a printed skip, if the host has no
    /// `docker-registry`.
    pub fn start(options: Options) -> Option<Self> {
        if !["docker-registry", "openssl", "perl"]
            .iter()
            .all(|name| has(name))
        {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("registry-").tempdir();
        // The script removes it.
        let directory = directory.expect("a directory").keep();
        let password = random();
        std::fs::write(
            directory.join("config.yml"),
            configuration(&directory, options),
        )
        .expect("written");
        if options.tls {
            let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
            certificates::make(&directory, &[("registry", &names)]);
        }
        if options.login {
            let line = format!("{}:{}\n", Self::USER, hashed(&password));
            std::fs::write(directory.join("htpasswd"), line).expect("written");
        }
        let mut started = Command::new("sh")
            .args(["-c", include_str!("../registry.sh")])
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let mut said = String::new();
        BufReader::new(started.stdout.take().expect("a pipe"))
            .read_line(&mut said)
            .expect("read");
        let address = said.trim_end().to_owned();
        let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
        assert!(!address.is_empty(), "docker-registry does not start: {log}");
        Some(Self {
            directory,
            address,
            options,
            password,
            started,
        })
    }

    /// Its address: `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A reference in it: `127.0.0.1:PORT/NAME`.
    pub fn reference(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// The password of [`Self::USER`].
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The path of its certificate authority.
    pub fn authority(&self) -> String {
        assert!(self.options.tls, "a registry without TLS has none");
        let path = self.directory.join("ca.pem");
        path.to_str().expect("a plain path").to_owned()
    }

    /// A directory with only that authority, as `--cert-dir` of skopeo expects it.
    pub fn certificates(&self) -> String {
        let directory = self.directory.join("certificates");
        std::fs::create_dir_all(&directory).expect("made");
        std::fs::copy(self.authority(), directory.join("ca.crt")).expect("copied");
        directory.to_str().expect("a plain path").to_owned()
    }

    /// Its settings.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Its address as a URL, without a trailing slash.
    pub fn url(&self) -> String {
        let scheme = if self.options.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Writes a `config.json` in `directory` with its login, as `docker login` does.
    pub fn log_in(&self, directory: &Path) {
        let login = format!("{}:{}", Self::USER, self.password);
        let text = format!(
            r#"{{"auths":{{"{}":{{"auth":"{}"}}}}}}"#,
            self.address,
            base64(login.as_bytes())
        );
        std::fs::create_dir_all(directory).expect("made");
        std::fs::write(directory.join("config.json"), text).expect("written");
    }

    /// Writes a `config.json` in `directory` that names a credential helper, and the helper in
    /// `programs`, for the path.
    pub fn log_in_by_helper(&self, directory: &Path, programs: &Path) {
        for made in [directory, programs] {
            std::fs::create_dir_all(made).expect("made");
        }
        let config = format!(r#"{{"credHelpers":{{"{}":"of-a-test"}}}}"#, self.address);
        std::fs::write(directory.join("config.json"), config).expect("written");
        let (address, password) = (&self.address, &self.password);
        let script = format!(
            "#!/bin/sh\nread -r registry\n[ \"$1 $registry\" = 'get {address}' ] || exit 1\n\
             echo '{{\"ServerURL\":\"{address}\",\"Username\":\"{}\",\"Secret\":\"{password}\"}}'\n",
            Self::USER
        );
        let helper = programs.join("docker-credential-of-a-test");
        crate::bodies::write_program(&helper, script);
    }

    /// The answered requests, the oldest first.
    pub fn answered(&self) -> Vec<Answered> {
        let log = std::fs::read_to_string(self.directory.join("log")).expect("readable");
        log.lines().filter_map(answered).collect()
    }

    /// The number of answered requests of this method for paths that contain this text.
    pub fn count(&self, method: &str, part: &str) -> usize {
        let matches = |one: &&Answered| one.method == method && one.path.contains(part);
        self.answered().iter().filter(matches).count()
    }

    /// The file that stores a blob, for tests that damage it. `digest` is `sha256:…`.
    pub fn blob_file(&self, digest: &str) -> PathBuf {
        let hex = digest.strip_prefix("sha256:").expect("a digest");
        let blobs = "storage/docker/registry/v2/blobs/sha256";
        let directory = self.directory.join(blobs).join(&hex[..2]).join(hex);
        directory.join("data")
    }

    /// Ends it; its address then refuses connections.
    pub fn stop(&mut self) {
        drop(self.started.stdin.take());
        self.started.wait().expect("waited");
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}

fn configuration(directory: &Path, options: Options) -> String {
    let directory = directory.to_str().expect("a plain path");
    let mut text = format!(
        "version: 0.1\n\
         log:\n  level: info\n  accesslog:\n    disabled: false\n\
         storage:\n  delete:\n    enabled: true\n  filesystem:\n    rootdirectory: {directory}/storage\n\
         http:\n  addr: 127.0.0.1:0\n  secret: of-a-test\n"
    );
    if options.tls {
        text.push_str(&format!(
            "  tls:\n    certificate: {directory}/registry.pem\n    key: {directory}/registry.key\n"
        ));
    }
    if options.login {
        text.push_str(&format!(
            "auth:\n  htpasswd:\n    realm: registry of a test\n    path: {directory}/htpasswd\n"
        ));
    }
    text
}

/// The password in the form of `htpasswd` files: the registry requires bcrypt. The cost is the lowest.
fn hashed(password: &str) -> String {
    let mut perl = Command::new("perl");
    perl.args(["-e", "print crypt($ARGV[0], q($2y$04$) . $ARGV[1])"]);
    perl.args([password, "abcdefghijklmnopqrstuu"]);
    let line = succeed(&mut perl).expect("perl hashes");
    assert!(
        line.starts_with("$2y$04$"),
        "the C library has no bcrypt: {line}"
    );
    line
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0_usize, |bits, at| {
            bits << 8 | usize::from(*three.get(at).unwrap_or(&0))
        });
        for digit in 0..4 {
            let known = digit <= three.len();
            let index = bits >> (18 - 6 * digit) & 63;
            text.push(if known {
                char::from(DIGITS[index])
            } else {
                '='
            });
        }
    }
    text
}

/// A line of the access log: `… "GET /v2/ HTTP/1.1" 200 …`. Other lines are ignored.
fn answered(line: &str) -> Option<Answered> {
    if line.starts_with("time=") {
        return None;
    }
    let mut quoted = line.split('"').skip(1);
    let (request, after) = (quoted.next()?, quoted.next()?);
    let mut words = request.split(' ');
    Some(Answered {
        method: words.next()?.to_owned(),
        path: words.next()?.to_owned(),
        status: after.split_whitespace().next()?.parse().ok()?,
    })
}
