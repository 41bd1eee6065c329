//! The host's side of one case: the targets of the attack, and its evidence.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The poll interval of servers that wait for the end of the scene.
const GLANCE: Duration = Duration::from_millis(10);

pub struct Scene {
    ground: tempfile::TempDir,
    /// A home directory for tools that pass one to the body.
    home: tempfile::TempDir,
    /// Files elsewhere that belong to the scene.
    others: Vec<tempfile::NamedTempFile>,
    secret: String,
    /// A marker in the arguments of every body of this scene.
    pub mark: String,
    victim: Child,
    ports: [u16; 2],
    is_over: Arc<AtomicBool>,
    servers: Vec<JoinHandle<()>>,
}

impl Scene {
    /// Creates the scene. `hostile` is the program, which is copied onto the ground.
    pub fn new(hostile: &Path) -> Self {
        // Outside /tmp, which tools replace: an ordinary working directory.
        let ground = open_directory("/var/tmp");
        let secret = format!("secret-{}", support::random());
        support::bodies::copy_program(hostile, &ground.path().join("hostile"));
        std::fs::write(ground.path().join("canary"), &secret).expect("written");
        let mut home = PathBuf::from(std::env::var_os("HOME").expect("a home"));
        if !home.is_dir() {
            home = ground.path().to_owned();
        }
        let others = [Path::new("/tmp"), Path::new("/dev/shm"), &home].map(|place| {
            let mut file = tempfile::Builder::new()
                .prefix("matrix-")
                .tempfile_in(place)
                .expect("a file");
            file.write_all(secret.as_bytes()).expect("written");
            let open = std::fs::Permissions::from_mode(0o644);
            file.as_file().set_permissions(open).expect("set");
            file
        });
        let victim = start_victim(&ground.path().join("hostile"), &secret);
        let mut scene = Self {
            ground,
            home: open_directory("/dev/shm"),
            others: others.into(),
            secret,
            mark: format!("mark={}", support::random()),
            victim,
            ports: [0; 2],
            is_over: Arc::new(AtomicBool::new(false)),
            servers: Vec::new(),
        };
        scene.serve();
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.ground.path().join(name)
    }

    /// A directory that can be a body's home, outside /tmp and /var/tmp.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The secret in the caller's environment.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    fn serve(&mut self) {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
        self.ports = [
            tcp.local_addr().expect("an address").port(),
            udp.local_addr().expect("an address").port(),
        ];
        let by_path = UnixListener::bind(self.path("socket")).expect("a socket");
        let everybody = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(self.path("socket"), everybody).expect("set");
        let name = SocketAddr::from_abstract_name(self.mark.as_bytes()).expect("a name");
        let by_name = UnixListener::bind_addr(&name).expect("a socket");
        tcp.set_nonblocking(true).expect("set");
        udp.set_nonblocking(true).expect("set");
        for listener in [&by_path, &by_name] {
            listener.set_nonblocking(true).expect("set");
        }
        let (is_over, secret) = (self.is_over.clone(), self.secret.clone());
        // The body itself says whether the answer arrived.
        let tell = move |mut stream: Box<dyn std::io::Write>| {
            stream.write_all(secret.as_bytes()).unwrap_or_default();
        };
        let secret = self.secret.clone();
        self.servers.push(std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                if let Ok((stream, _)) = tcp.accept() {
                    tell(Box::new(stream));
                }
                for listener in [&by_path, &by_name] {
                    if let Ok((stream, _)) = listener.accept() {
                        tell(Box::new(stream));
                    }
                }
                let mut text = [0; 64];
                if let Ok((_, from)) = udp.recv_from(&mut text) {
                    udp.send_to(secret.as_bytes(), from).unwrap_or_default();
                }
                std::thread::sleep(GLANCE);
            }
        }));
    }

    /// The variables of a body, as `NAME=VALUE`.
    pub fn words(&self) -> Vec<String> {
        let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
        let inode = |path: &Path| {
            std::fs::metadata(path).map_or_else(|_| String::new(), |found| found.ino().to_string())
        };
        let space = |kind: &str| {
            text(&std::fs::read_link(format!("/proc/self/ns/{kind}")).expect("a namespace"))
        };
        let [tcp, udp] = self.ports;
        [
            ("terces", backwards(&self.secret)),
            ("canary", text(&self.path("canary"))),
            ("canary_inode", inode(self.ground.path())),
            ("in_tmp", text(self.others[0].path())),
            ("in_shm", text(self.others[1].path())),
            ("in_home", text(self.others[2].path())),
            ("in_run", an_entry_of_run()),
            ("in_var", "/var/lib/dpkg/status".to_owned()),
            ("etc_inode", inode(Path::new("/etc/passwd"))),
            ("victim", self.victim.id().to_string()),
            ("key", key_of(&self.secret)),
            ("tcp", tcp.to_string()),
            ("udp", udp.to_string()),
            ("abstract", self.mark.clone()),
            ("socket", text(&self.path("socket"))),
            ("host_name", host_name()),
            ("ipc_space", space("ipc")),
            ("net_space", space("net")),
            ("device", a_device()),
            ("disk", a_disk()),
            ("group", a_group()),
            ("processes", "200".to_owned()),
            ("memory_mib", "160".to_owned()),
            ("disk_mib", "96".to_owned()),
            ("output_mib", "4".to_owned()),
            ("sleep_ms", "2000".to_owned()),
            ("cpu_ms", "1300".to_owned()),
            ("descriptors", "17000".to_owned()),
        ]
        .map(|(name, value)| format!("{name}={value}"))
        .into_iter()
        .chain([self.mark.clone()])
        .collect()
    }

    pub fn canary_changed(&self) -> bool {
        std::fs::read(self.path("canary")).expect("readable") != self.secret.as_bytes()
    }

    /// Restores what a body changed.
    pub fn mend(&mut self) {
        self.end_bodies();
        std::fs::write(self.path("canary"), &self.secret).expect("written");
        if self.victim_ended_within(Duration::ZERO) {
            self.victim = start_victim(&self.path("hostile"), &self.secret);
        }
    }

    pub fn victim_ended_within(&mut self, patience: Duration) -> bool {
        let started = Instant::now();
        while self.victim.try_wait().expect("waited").is_none() {
            if patience <= started.elapsed() {
                return false;
            }
            std::thread::sleep(GLANCE);
        }
        true
    }

    /// Pids of living bodies of this scene.
    pub fn bodies(&self) -> Vec<i32> {
        let entries = std::fs::read_dir("/proc").expect("readable");
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| {
                let read = |name| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
                let is_ours = read("cmdline")
                    .split(|byte| *byte == 0)
                    .any(|word| word == self.mark.as_bytes());
                // The tools have the marker in their arguments too; zombies do not count.
                is_ours && read("comm").starts_with(b"hostile") && is_alive(&read("stat"))
            })
            .collect()
    }

    /// Whether bodies still live after a timeout.
    pub fn bodies_stay(&self, patience: Duration) -> bool {
        let started = Instant::now();
        while !self.bodies().is_empty() {
            if patience < started.elapsed() {
                return true;
            }
            std::thread::sleep(GLANCE);
        }
        false
    }

    /// Kills the bodies that no tool ended.
    pub fn end_bodies(&self) {
        for pid in self.bodies() {
            let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
            // It may have ended by itself in the meantime.
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap_or_default();
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.end_bodies();
        self.is_over.store(true, Ordering::Relaxed);
        for server in self.servers.drain(..) {
            server.join().expect("the servers end");
        }
        drop(self.victim.stdin.take());
        self.victim.wait().expect("waited");
    }
}

/// A directory that everybody may read.
fn open_directory(place: &str) -> tempfile::TempDir {
    let directory = tempfile::Builder::new()
        .prefix("matrix-")
        .tempdir_in(place)
        .expect("a directory");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).expect("set");
    directory
}

/// Its name must not be the secret, which bodies look for in arguments.
fn key_of(secret: &str) -> String {
    format!("key-{}", backwards(secret))
}

fn backwards(text: &str) -> String {
    text.chars().rev().collect()
}

fn start_victim(hostile: &Path, secret: &str) -> Child {
    let mut victim = Command::new(hostile)
        .arg("victim")
        .args([
            format!("terces={}", backwards(secret)),
            format!("key={}", key_of(secret)),
            secret.to_owned(),
        ])
        .env("VICTIM", secret)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the victim starts");
    let mut line = String::new();
    let stdout = victim.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("read");
    assert_eq!(line, "ready\n");
    victim
}

fn is_alive(stat: &[u8]) -> bool {
    let stat = String::from_utf8_lossy(stat);
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some(None | Some('Z' | 'X')))
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("readable");
    name.trim().to_owned()
}

/// A path in the host's /run that no sandbox creates itself.
fn an_entry_of_run() -> String {
    const MADE: &[&str] = &[
        "firejail", "lock", "runner", "shm", "systemd", "user", "runc", "crun",
    ];
    let entries = std::fs::read_dir("/run").expect("readable");
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !MADE.contains(&name.as_str()))
        .collect();
    names.sort();
    format!("/run/{}", names.first().map_or("nothing", String::as_str))
}

fn a_device() -> String {
    let table = std::fs::read_to_string("/proc/net/dev").expect("readable");
    let names = table.lines().filter_map(|line| line.split_once(':'));
    names
        .map(|(name, _)| name.trim())
        .find(|name| *name != "lo")
        .unwrap_or("none")
        .to_owned()
}

fn a_disk() -> String {
    let table = std::fs::read_to_string("/proc/partitions").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| line.split_whitespace().nth(3))
        .map(|name| format!("/dev/{name}"))
        .find(|path| Path::new(path).exists())
        .unwrap_or_else(|| "/dev/none".to_owned())
}

fn a_group() -> String {
    let places = [
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/memory/cgroup.procs",
    ];
    let there = places.iter().find(|path| Path::new(path).exists());
    (*there.unwrap_or(&places[0])).to_owned()
}
