//! The service of the cases, its repositories, and clients.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use archive::UnpackLimits;
use serde_json::{Value, json};
use sources::Timeouts;
use sources::github::{Client, ClientSettings, FetchedTree, GitHub as _, GitHubError};
use spec::path::RelPath;

use support::skip;

/// A commit that no repository has.
pub const NOWHERE: &str = "00000000000000000000000000000000deadbeef";

/// A running service with a directory of repositories, and a cache for the case.
pub struct Service {
    child: Child,
    /// The service ends when this is closed.
    _input: ChildStdin,
    port: u16,
    tls_port: Option<u16>,
    directory: tempfile::TempDir,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().expect("the service is ours");
        self.child.wait().expect("the service ends");
    }
}

impl Service {
    /// Starts one; `None`, with a skip, if this host has no python3 or no git.
    pub fn start() -> Option<Self> {
        (is_here("python3") && is_here("git")).then(|| Self::started(false))
    }

    /// The same as [`Self::start`], with TLS for `localhost`; [`Self::certificate`] is its authority.
    pub fn start_with_tls() -> Option<Self> {
        let all_here = is_here("python3") && is_here("git") && is_here("openssl");
        all_here.then(|| Self::started(true))
    }

    fn started(with_tls: bool) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let script = directory.path().join("service.py");
        std::fs::write(&script, include_str!("../support/github_server.py")).expect("written");
        let repositories = directory.path().join("repositories");
        std::fs::create_dir(&repositories).expect("made");
        let mut command = Command::new("python3");
        command.arg(&script).arg(&repositories);
        if with_tls {
            make_certificate(directory.path());
            command.arg(directory.path().join("certificate.pem"));
            command.arg(directory.path().join("key.pem"));
        }
        let mut child = git_free(&mut command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let input = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut port = || -> u16 {
            let mut line = String::new();
            output.read_line(&mut line).expect("the port");
            line.trim().parse().expect("a port")
        };
        let port_and_tls = (port(), with_tls.then(&mut port));
        Self {
            child,
            _input: input,
            port: port_and_tls.0,
            tls_port: port_and_tls.1,
            directory,
        }
    }

    pub fn tls_base_url(&self) -> String {
        let port = self.tls_port.expect("started with TLS");
        format!("https://localhost:{port}")
    }

    pub fn certificate(&self) -> PathBuf {
        self.directory.path().join("certificate.pem")
    }

    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn cache(&self) -> PathBuf {
        self.directory.path().join("cache")
    }

    /// Creates an empty repository `owner/name`.
    pub fn repository(&self, name: &str) -> Repository {
        let path = self.directory.path().join("repositories").join(name);
        std::fs::create_dir_all(&path).expect("made");
        let repository = Repository { path };
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    fn control(&self, verb: &str, body: &Value) {
        let url = format!("{}/control/{verb}", self.base_url());
        let answer = ureq::post(&url).send(body.to_string()).expect("controlled");
        assert_eq!(answer.status(), 200);
    }

    /// A fault for the next requests: see `github_server.py`.
    pub fn fault(&self, fault: &Value) {
        self.control("fault", fault);
    }

    /// The same as [`Self::fault`] for all further requests.
    pub fn always(&self, path: &str, mut fault: Value) {
        fault["path"] = json!(path);
        fault["times"] = json!(-1);
        self.fault(&fault);
    }

    /// The same as [`Self::fault`] for `times` requests.
    pub fn times(&self, times: u32, path: &str, mut fault: Value) {
        fault["path"] = json!(path);
        fault["times"] = json!(times);
        self.fault(&fault);
    }

    pub fn demand_token(&self, token: &str) {
        self.control("token", &json!({ "token": token }));
    }

    pub fn forget(&self) {
        self.control("forget", &json!({}));
    }

    pub fn log(&self) -> Vec<Value> {
        let url = format!("{}/control/log", self.base_url());
        let mut answer = ureq::get(&url).call().expect("the log");
        let text = answer.body_mut().read_to_string().expect("text");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Paths of the requests so far.
    pub fn paths(&self) -> Vec<String> {
        let paths = self.log().into_iter();
        paths
            .map(|request| request["path"].as_str().expect("a path").to_owned())
            .collect()
    }

    /// The number of requests with `part` in their path.
    pub fn count(&self, part: &str) -> usize {
        let paths = self.paths();
        paths.iter().filter(|path| path.contains(part)).count()
    }

    /// Settings of a client without a configuration, with long timeouts and short pauses.
    pub fn settings(&self) -> ClientSettings {
        ClientSettings {
            base_url: self.base_url(),
            token: None,
            require_pin: false,
            limits: UnpackLimits::default(),
            cache_directory: self.cache(),
            cache_size_bytes: 1 << 30,
            timeouts: Timeouts {
                first_delay: Duration::from_millis(1),
                ..Timeouts::default()
            },
        }
    }

    /// A client with [`Self::settings`].
    pub fn client(&self) -> Client {
        Client::new(self.settings()).expect("a client")
    }
}

fn is_here(program: &str) -> bool {
    let found = Command::new(program)
        .arg(if program == "openssl" {
            "version"
        } else {
            "--version"
        })
        .stdout(Stdio::null())
        .status();
    let is_here = found.is_ok_and(|status| status.success());
    if !is_here {
        skip(&format!("{program} is not here"));
    }
    is_here
}

/// A self-signed certificate for `localhost`.
fn make_certificate(directory: &Path) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        ])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(directory.join("key.pem"))
        .arg("-out")
        .arg(directory.join("certificate.pem"))
        .stderr(Stdio::null())
        .status()
        .expect("openssl starts");
    assert!(made.success(), "no certificate");
}

/// Removes variables that affect git.
pub fn git_free(command: &mut Command) -> &mut Command {
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env_remove("GIT_DIR")
}

/// A repository that the service serves.
pub struct Repository {
    pub path: PathBuf,
}

impl Repository {
    /// Runs git in it; returns its output.
    pub fn git(&self, words: &[&str]) -> String {
        let done = git_free(Command::new("git").arg("-C").arg(&self.path).args(words))
            .env("GIT_AUTHOR_NAME", "a")
            .env("GIT_AUTHOR_EMAIL", "a@example.org")
            .env("GIT_AUTHOR_DATE", "1700000000 +0000")
            .env("GIT_COMMITTER_NAME", "a")
            .env("GIT_COMMITTER_EMAIL", "a@example.org")
            .env("GIT_COMMITTER_DATE", "1700000000 +0000")
            .output()
            .expect("git starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
        assert!(
            done.status.success(),
            "git {words:?}: {}",
            text(done.stderr)
        );
        text(done.stdout)
    }

    /// Writes a file without committing it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, content).expect("written");
    }

    /// Commits everything; returns the commit.
    pub fn commit(&self) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "a commit"]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Writes `name` and commits; returns the commit.
    pub fn commit_file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        self.write(name, content);
        self.commit()
    }
}

/// Every file of a tree with its contents (`-> TARGET` for links), sorted by path; `x` precedes the
/// path of an executable file.
pub fn files(tree: &FetchedTree) -> Vec<(String, String)> {
    use std::os::fd::AsRawFd as _;
    let root = PathBuf::from(format!("/proc/self/fd/{}/.", tree.directory.as_raw_fd()));
    let mut found = Vec::new();
    list(&root, &root, &mut found);
    found.sort();
    found
}

fn list(root: &Path, directory: &Path, found: &mut Vec<(String, String)>) {
    use std::os::unix::fs::PermissionsExt as _;
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        let name = path
            .strip_prefix(root)
            .expect("inside")
            .display()
            .to_string();
        let status = path.symlink_metadata().expect("there");
        if status.is_dir() {
            list(root, &path, found);
        } else if status.is_symlink() {
            let target = path.read_link().expect("a link");
            found.push((name, format!("-> {}", target.display())));
        } else {
            let mark = match status.permissions().mode() & 0o777 {
                0o644 => "",
                0o755 => "x ",
                other => panic!("{name}: {other:o}"),
            };
            let content = std::fs::read(&path).expect("readable");
            found.push((
                format!("{mark}{name}"),
                String::from_utf8_lossy(&content).into_owned(),
            ));
        }
    }
}

pub fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = expected.iter();
    pairs
        .map(|(name, content)| ((*name).to_owned(), (*content).to_owned()))
        .collect()
}

pub fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

/// The error of fetching all files of `org/repo` at `sha`.
pub fn refused(client: &Client, sha: &str) -> GitHubError {
    client
        .fetch("org/repo", sha, None)
        .expect_err("the fetch fails")
}
