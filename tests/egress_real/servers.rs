//! Real servers beyond the host: nginx for every name, and git's CGI program behind it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use crate::published;
use support::network::{Outside, Who};
use support::packages::has;
use support::{certificates, skip};

/// The names that nginx serves, below `compat.test`. No case allows `denied`, which nginx also serves.
const NAMES: [&str; 6] = ["web", "other", "denied", "git", "index", "packages"];
/// The address of all of them.
pub(crate) const ADDRESS: &str = "93.184.216.50";

/// The programs of the system, without version managers of the caller.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

static SERVERS: LazyLock<Option<Servers>> = LazyLock::new(Servers::start);

/// The network beyond the host with its servers. They end with this process.
pub(crate) struct Servers {
    pub(crate) outside: &'static Outside,
    directory: PathBuf,
    /// The script. Closing its standard input ends the servers.
    _started: Child,
}

impl Servers {
    /// The servers of this test process; `None`, with a printed skip, if they are unavailable.
    pub(crate) fn get() -> Option<&'static Self> {
        if SERVERS.is_none() {
            skip("no servers beyond the host: see the first skip");
        }
        SERVERS.as_ref()
    }

    fn start() -> Option<Self> {
        let outside = Outside::get()?;
        let here = Path::new("/usr/sbin/nginx").exists();
        if !here {
            skip("no /usr/sbin/nginx: scripts/test installs it");
        }
        let all = ["python3", "git", "npm", "openssl", "ip", "unshare", "sh"];
        if !here || !all.iter().all(|name| has(name)) {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("servers-").tempdir();
        // The script removes it.
        let directory = directory.expect("a directory").keep();
        populate(&directory);
        let script = directory.join("start.sh");
        // The owner of the host's namespace may connect a veth pair to it.
        let who = if support::is_root() {
            Who::Caller
        } else {
            Who::AloneAsRoot
        };
        let mut started = outside
            .command(who, "sh".as_ref(), &directory)
            .arg(&script)
            .arg(ADDRESS)
            .args(NAMES)
            .env("PATH", SYSTEM_PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("nsenter starts");
        let mut said = String::new();
        BufReader::new(started.stdout.take().expect("a pipe"))
            .read_line(&mut said)
            .expect("read");
        assert_eq!(said, "ready\n", "the servers do not come up");
        Some(Self {
            outside,
            directory,
            _started: started,
        })
    }

    /// A file of the servers.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The certificate authority of the servers, as a path.
    pub(crate) fn authority(&self) -> String {
        let path = self.path("ca.pem");
        path.to_str().expect("a plain path").to_owned()
    }

    /// The requests to nginx so far: `HOST PATH` each.
    pub(crate) fn asked(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("asked")).expect("readable");
        text.lines().map(str::to_owned).collect()
    }

    /// Runs a program on the host, without the runner.
    pub(crate) fn on_the_host(&self, program: &str) -> Command {
        let who = Who::Caller;
        let mut command = self.outside.command(who, program.as_ref(), &self.directory);
        command.env("PATH", SYSTEM_PATH);
        command
    }
}

fn populate(directory: &Path) {
    let plain = directory.to_str().expect("a plain path");
    published::web(directory);
    published::index(directory);
    published::packages(directory);
    published::repository(directory);
    let full = |name: &&str| format!("{name}.compat.test");
    let (others, named): (Vec<&str>, Vec<&str>) = NAMES
        .iter()
        .partition(|name| ["other", "denied"].contains(name));
    let others: Vec<String> = others.iter().map(full).collect();
    let named: Vec<String> = named.iter().map(full).collect();
    certificates::make(directory, &[("web", &named), ("other", &others)]);
    let files = [
        ("nginx.conf", include_str!("servers/nginx.conf")),
        ("behind.py", include_str!("servers/behind.py")),
        ("start.sh", include_str!("servers/start.sh")),
    ];
    for (name, text) in files {
        let text = text.replace("DIRECTORY", plain);
        std::fs::write(directory.join(name), text).expect("written");
    }
    // Requests that no case has made yet.
    std::fs::write(directory.join("asked"), "").expect("written");
}
