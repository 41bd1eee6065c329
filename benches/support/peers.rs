//! Who is measured beside us: the floor, and other people's programs where they are installed and
//! work here. Each starts the same body and waits for its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use serde_json::json;

use super::chamber::Chamber;
use super::ground::{Ground, on_path};
use super::report::Report;
use super::rounds::{processor_us, run_once, try_out, wall_us};

/// A name, and the command that launches the body once.
pub struct Peer {
    pub name: &'static str,
    pub command: Command,
    /// Where it is launched, if not here.
    chamber: Option<Rc<Chamber>>,
}

impl Peer {
    pub fn new(name: &'static str, program: &Path, words: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(words);
        Self {
            name,
            command,
            chamber: None,
        }
    }

    /// From just before the start to the end, in microseconds.
    pub fn launch_us(&mut self) -> f64 {
        match &self.chamber {
            Some(chamber) => chamber.within(|| wall_us(&mut self.command)),
            None => wall_us(&mut self.command),
        }
    }

    /// User and system time of all its processes, in microseconds.
    pub fn processor_us(&mut self) -> f64 {
        match &self.chamber {
            Some(chamber) => chamber.within(|| processor_us(&mut self.command)),
            None => processor_us(&mut self.command),
        }
    }
}

/// The namespaces that a run has, the host's /usr, and the usual mounts. No Landlock, no system
/// call filter, no cgroup, no report.
const BWRAP: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/sbin",
    "/sbin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
];

/// Programs and their words; `@BODY` is the body, `@FOLDER` its directory, `@HOME` a directory for
/// what they keep, `@BUNDLE` an OCI bundle with the body, `@UID` the caller. Words after their
/// manuals: each at what it is meant for, with the least that it does for that.
const OTHERS: &[(&str, &str, &[&str])] = &[
    (
        "nsjail",
        "nsjail",
        &[
            "-Mo", "-Q", "-R", "/usr", "-T", "/tmp", "-R", "@BODY", "--", "@BODY",
        ],
    ),
    (
        "nsjail with limits",
        "nsjail",
        &[
            "-Mo",
            "-Q",
            "-R",
            "/usr",
            "-T",
            "/tmp",
            "-R",
            "@BODY",
            "--cgroup_mem_max",
            "268435456",
            "--cgroup_pids_max",
            "512",
            "--cgroup_cpu_ms_per_sec",
            "1000",
            "--seccomp_string",
            "ALLOW { execve, exit_group } DEFAULT ERRNO(1)",
            "--",
            "@BODY",
        ],
    ),
    (
        "minijail",
        "minijail0",
        &[
            "-U", "-m", "-M", "-v", "-p", "-e", "-l", "-n", "--uts", "@BODY",
        ],
    ),
    (
        "landrun",
        "landrun",
        &["--rox", "/usr", "--rox", "@FOLDER", "@BODY"],
    ),
    (
        "firejail",
        "firejail",
        &[
            "--quiet",
            "--noprofile",
            "--net=none",
            "--private-dev",
            "--caps.drop=all",
            "--nonewprivs",
            "--seccomp",
            "@BODY",
        ],
    ),
    (
        "crun",
        "crun",
        &[
            "--root",
            "@HOME/crun",
            "run",
            "--bundle",
            "@BUNDLE",
            "runner-bench-crun",
        ],
    ),
    (
        "crun without cgroup",
        "crun",
        &[
            "--root",
            "@HOME/crun",
            "--cgroup-manager=disabled",
            "run",
            "--bundle",
            "@BUNDLE",
            "runner-bench-crun-bare",
        ],
    ),
    (
        "runc",
        "runc",
        &[
            "--root",
            "@HOME/runc",
            "run",
            "--bundle",
            "@BUNDLE",
            "runner-bench-runc",
        ],
    ),
    (
        "youki",
        "youki",
        &[
            "--root",
            "@HOME/youki",
            "run",
            "--bundle",
            "@BUNDLE",
            "runner-bench-youki",
        ],
    ),
    (
        "gVisor (runsc do)",
        "runsc",
        &["--rootless", "--network=none", "do", "@BODY"],
    ),
    (
        "nono",
        "nono",
        &[
            "run", "--silent", "--read", "/usr", "--read", "@FOLDER", "--", "@BODY",
        ],
    ),
    (
        "hakoniwa",
        "hakoniwa",
        &["run", "--bindmount-ro", "@FOLDER", "--", "@BODY"],
    ),
    ("syd", "syd", &["-p", "immutable", "@BODY"]),
    ("sandbox-runtime", "srt", &["@BODY"]),
];

/// bubblewrap with the same namespaces, running a program of the host; none and a word in the
/// report where it is not there or does not work.
pub fn bwrap(body: &Path, report: &mut Report) -> Option<Peer> {
    let mut peer = Peer::new("bwrap", &installed("bwrap", "bwrap", report)?, BWRAP);
    peer.command
        .arg("--ro-bind")
        .arg(body)
        .args(["/true", "/true"]);
    working(peer, report)
}

/// The floor of `benches/floor/floor.c`, after a look at what its body sees. `form` is `classic` or
/// `dot`.
pub fn floor(ground: &Ground, form: &str, body: &Path) -> Peer {
    let name = match form {
        "classic" => "floor",
        _ => "floor, stacked roots",
    };
    let program = ground.path("floor");
    if !program.exists() {
        ground.compile("floor", include_str!("../floor/floor.c"), &["-static"]);
        ground.compile("check", include_str!("../floor/check.c"), &["-static"]);
        ground.folder("root");
    }
    let command = |body: &Path| {
        let mut command = Command::new(&program);
        command.arg(form).arg(ground.path("root")).arg(body);
        command
    };
    check_floor(&mut command(&ground.path("check")));
    let command = command(body);
    Peer {
        name,
        command,
        chamber: None,
    }
}

/// A floor that confines less than it says would make every ratio to it a lie.
fn check_floor(command: &mut Command) {
    let ran = command.output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    let mut complaint = String::from_utf8_lossy(&ran.stderr).into_owned();
    let seen: BTreeMap<&str, &str> = said
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    for space in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let ours = std::fs::read_link(format!("/proc/self/ns/{space}")).unwrap();
        let theirs = seen.get(space).copied().unwrap_or(ours.to_str().unwrap());
        if Path::new(theirs) == ours {
            complaint += &format!("{space}: not a namespace of its own\n");
        }
    }
    // 13 is EACCES (Landlock), 30 EROFS.
    for (name, wanted) in [
        ("Uid", "1000\t1000\t1000\t1000"),
        ("CapEff", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("write_root", "13"),
        ("write_tmp", "0"),
        ("write_usr", "30"),
        ("sees_host", "0"),
    ] {
        if seen.get(name) != Some(&wanted) {
            complaint += &format!("{name}: {:?} and not {wanted}\n", seen.get(name));
        }
    }
    assert!(
        ran.status.success() && complaint.is_empty(),
        "the floor does not hold: {}\n{complaint}{said}",
        ran.status
    );
}

/// Everybody else who is on the path and works here. Those who are not are named in the report.
pub fn others(ground: &Ground, body: &Path, report: &mut Report) -> Vec<Peer> {
    let mut peers = Vec::new();
    let chamber = on_path("crun").and_then(|_| Chamber::new());
    for (name, program, words) in OTHERS {
        let Some(program) = installed(name, program, report) else {
            continue;
        };
        let words: Vec<String> = words
            .iter()
            .map(|word| put_in(word, ground, body))
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut peer = Peer::new(name, &program, &words);
        if name.starts_with("crun") {
            peer.chamber.clone_from(&chamber);
        }
        peers.extend(working(peer, report));
    }
    peers.extend(isolate(body, report));
    peers
}

/// The box is made once, as its manual says, and stays until the next boot or `--cleanup`.
fn isolate(body: &Path, report: &mut Report) -> Option<Peer> {
    let program = installed("isolate", "isolate", report)?;
    let prepared = try_out(Command::new(&program).args(["--box-id=987", "--init"]));
    if let Err(why) = prepared {
        report.absent("isolate", &why);
        return None;
    }
    let folder = format!("--dir=/bench={}", body.parent()?.display());
    let inside = Path::new("/bench").join(body.file_name()?);
    let words = ["--box-id=987", "--silent", &folder, "--run", "--"];
    let mut peer = Peer::new("isolate (box made before)", &program, &words);
    peer.command.arg(inside);
    working(peer, report)
}

fn installed(name: &str, program: &str, report: &mut Report) -> Option<PathBuf> {
    let found = on_path(program);
    if found.is_none() {
        report.absent(name, &format!("{program} is not on the path"));
    }
    found
}

fn working(mut peer: Peer, report: &mut Report) -> Option<Peer> {
    let tried = match &peer.chamber {
        Some(chamber) => chamber.within(|| try_out(&mut peer.command)),
        None => try_out(&mut peer.command),
    };
    match tried {
        Ok(()) => Some(peer),
        Err(why) => {
            report.absent(peer.name, &format!("does not work here: {why}"));
            None
        }
    }
}

fn put_in(word: &str, ground: &Ground, body: &Path) -> String {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let mut word = word
        .replace("@BODY", &text(body))
        .replace("@FOLDER", &text(body.parent().unwrap()));
    if word.contains("@HOME") {
        word = word.replace("@HOME", &text(&ground.folder("peers")));
    }
    if word == "@BUNDLE" {
        word = text(&oci_bundle(ground, body));
    }
    word
}

/// A bundle for OCI runtimes with the same body, read-only root, the same namespaces and the usual
/// mounts.
pub fn oci_bundle(ground: &Ground, body: &Path) -> PathBuf {
    let bundle = ground.path("oci");
    if bundle.exists() {
        return bundle;
    }
    let root = ground.folder("oci/rootfs");
    for name in ["proc", "dev", "tmp", "usr"] {
        ground.folder(&format!("oci/rootfs/{name}"));
    }
    run_once(Command::new("cp").arg(body).arg(root.join("true")));
    let spaces = ["user", "pid", "network", "ipc", "uts", "mount", "cgroup"];
    let spaces: Vec<_> = spaces.iter().map(|kind| json!({"type": kind})).collect();
    let [uid, gid] = [
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    ];
    // Root in there, as the runtimes write it themselves (`runc spec --rootless`).
    let map = |host: u32| json!([{"containerID": 0, "hostID": host, "size": 1}]);
    let mount = |to: &str, kind: &str, from: &str, options: &[&str]| json!({"destination": to, "type": kind, "source": from, "options": options});
    let plain = ["nosuid", "nodev"];
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["/true"],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": true,
            "capabilities": {},
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "bench",
        "mounts": [
            mount("/proc", "proc", "proc", &[]),
            mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/tmp", "tmpfs", "tmpfs", &plain),
            mount("/usr", "none", "/usr", &["rbind", "ro"]),
        ],
        "linux": {
            "namespaces": spaces,
            "uidMappings": map(uid),
            "gidMappings": map(gid),
            "maskedPaths": ["/proc/keys", "/proc/kallsyms"],
            "readonlyPaths": ["/proc/sys"],
        },
    });
    ground.file("oci/config.json", &config.to_string());
    bundle
}
