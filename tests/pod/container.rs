//! A container of runc with the settings of a pod, as kubelet and containerd make one.

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};
use support::packages::{has, succeed, tool};
use support::{Ground, is_root, needs_root, random, runner, skip, source_path};

use crate::manifest::{Pod, Volume};
use crate::seccomp;

/// Ids of the host that the ids of a pod are mapped to, from 0.
const FIRST_ID: u32 = 1_000_000;
/// What containerd masks and makes read-only with `procMount: Default`.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The layout of the image, once for this test program.
pub(crate) static IMAGE: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    stripped(&directory.path().join("programs"));
    let mut command = Command::new(source_path("scripts/image"));
    command
        .arg("--output")
        .arg(directory.path().join("image"))
        .arg(directory.path().join("programs"));
    succeed(&mut command).expect("an image");
    directory
});

/// The programs without debug information, which has nine tenths of their bytes.
pub(crate) fn stripped(directory: &Path) {
    std::fs::create_dir(directory).expect("made");
    for name in ["runner", "runner-worker"] {
        let program = Path::new(&runner()).with_file_name(name);
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(directory.join(name)).arg(program);
        succeed(&mut strip).expect("stripped");
    }
}

/// Whether this host can make containers; otherwise prints why not.
pub(crate) fn can_make_containers() -> bool {
    if !is_root() {
        needs_root("a container with the settings of a pod");
        return false;
    }
    let is_there = Path::new("/usr/sbin/runc").exists();
    if !is_there {
        skip("no runc: scripts/test installs it");
    }
    is_there && has("umoci")
}

/// A container that is not started, with a directory for each volume.
pub(crate) struct Container {
    pub(crate) ground: Ground,
    name: String,
    pod: Pod,
    /// The loopback interface of the host is that of the pod.
    pub(crate) shares_network: bool,
    /// Replaces the profile that the pod names.
    pub(crate) filter: Option<Value>,
}

impl Container {
    pub(crate) fn new(pod: Pod) -> Self {
        Self::with_image(pod, &IMAGE.path().join("image"))
    }

    pub(crate) fn with_image(pod: Pod, layout: &Path) -> Self {
        let container = Self {
            ground: Ground::new(),
            name: format!("runner-tests-pod-{}", random()),
            pod,
            shares_network: false,
            filter: None,
        };
        let first = container.first_id().to_string();
        let mut unpack = tool("umoci");
        unpack
            .args(["unpack", "--image"])
            .arg(format!("{}:runner", layout.display()));
        for flag in ["--uid-map", "--gid-map"] {
            unpack.args([flag, &format!("0:{first}:65536")]);
        }
        succeed(unpack.arg(container.ground.path("bundle"))).expect("unpacked");
        let written = container.ground.path("bundle/config.json");
        std::fs::rename(written, container.ground.path("image.json")).expect("renamed");
        let reachable = std::fs::Permissions::from_mode(0o755);
        for path in [".", "bundle"] {
            std::fs::set_permissions(container.ground.path(path), reachable.clone()).expect("set");
        }
        for (volume, mount) in container.pod.mounts() {
            container.provide(volume, &mount);
        }
        container
    }

    fn first_id(&self) -> u32 {
        if self.pod.has_user_namespace() {
            FIRST_ID
        } else {
            0
        }
    }

    /// The directory of a volume on the host.
    pub(crate) fn volume(&self, name: &str) -> PathBuf {
        self.ground.path("volumes").join(name)
    }

    /// Makes a volume as kubelet does: of root and of the group of the pod.
    fn provide(&self, kind: Volume, mount: &Value) {
        let directory = self.volume(mount["name"].as_str().expect("a name"));
        std::fs::create_dir_all(&directory).expect("made");
        let mode = match kind {
            Volume::Empty => 0o2777,
            Volume::Claim => 0o2775,
            Volume::Secret => {
                // Files are links into a directory that kubelet replaces.
                let of_files = directory.join("..data");
                std::fs::create_dir(&of_files).expect("made");
                self.give(&of_files, 0o2755);
                symlink("..data/seed", directory.join("seed")).expect("linked");
                self.put("nkey", "seed", "");
                0o2755
            }
        };
        self.give(&directory, mode);
    }

    /// Writes a file of a volume.
    pub(crate) fn put(&self, volume: &str, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.volume(volume).join(name);
        std::fs::write(&path, contents).expect("written");
        self.give(&path, 0o440);
    }

    fn give(&self, path: &Path, mode: u32) {
        let group = self.first_id() + self.pod.id("fsGroup");
        chown(path, Some(self.first_id()), Some(group)).expect("given");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    }

    /// The container as a command in the foreground, with other arguments if there are some.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let config = self.config(arguments).to_string();
        self.ground.write("bundle/config.json", config);
        let mut command = self.runc("run");
        command.arg("--bundle").arg(self.ground.path("bundle"));
        command.arg(&self.name).stdin(Stdio::null());
        command
    }

    pub(crate) fn runc(&self, verb: &str) -> Command {
        let mut command = tool("/usr/sbin/runc");
        command.arg("--root").arg(self.ground.path("runc"));
        command.arg(verb);
        command
    }

    /// Asks the container to end.
    pub(crate) fn terminate(&self) {
        succeed(self.runc("kill").args([&self.name, "TERM"])).expect("a signal");
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("runc starts")
    }

    fn config(&self, arguments: &[&str]) -> Value {
        let pod = &self.pod;
        assert_eq!(
            pod.security("capabilities"),
            &json!({"drop": ["ALL"]}),
            "the test gives no capabilities"
        );
        assert_eq!(pod.security("runAsNonRoot"), true);
        let path = self.ground.path("image.json");
        let of_image = std::fs::read_to_string(path).expect("a configuration");
        let of_image: Value = serde_json::from_str(&of_image).expect("JSON");
        let process = &of_image["process"];
        let mut environment = vec!["KUBERNETES_SERVICE_HOST=10.0.0.1".to_owned()];
        let variables = process["env"].as_array().expect("a list").iter();
        let variables = variables.map(|one| one.as_str().expect("text").to_owned());
        environment.extend(variables.filter(|one| !one.starts_with("HOME=")));
        environment.extend(pod.environment());
        let mut words = vec![process["args"][0].as_str().expect("text").to_owned()];
        if arguments.is_empty() {
            words.extend(pod.arguments());
        } else {
            words.extend(arguments.iter().map(|word| (*word).to_owned()));
        }
        json!({
            "ociVersion": "1.0.2",
            "hostname": "pod",
            "process": {
                "user": {
                    "uid": pod.id("runAsUser"),
                    "gid": pod.id("runAsGroup"),
                    "additionalGids": [pod.id("fsGroup")],
                },
                "args": words,
                "env": environment,
                "cwd": "/",
                "capabilities": {"bounding": [], "effective": [], "permitted": []},
                "noNewPrivileges": pod.security("allowPrivilegeEscalation") == false,
            },
            "root": {"path": "rootfs", "readonly": pod.security("readOnlyRootFilesystem") == true},
            "mounts": self.mounts(),
            "linux": self.linux(),
        })
    }

    fn mounts(&self) -> Vec<Value> {
        let mount = |target: &str, kind: &str, options: &[&str]| {
            let options = [&["nosuid", "noexec"], options].concat();
            json!({"destination": target, "type": kind, "source": kind, "options": options})
        };
        let mut mounts = vec![
            mount("/proc", "proc", &["nodev"]),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "mode=755", "size=65536k"]}),
            mount("/dev/pts", "devpts", &["newinstance", "ptmxmode=0666"]),
            mount("/dev/mqueue", "mqueue", &["nodev"]),
            mount("/dev/shm", "tmpfs", &["nodev", "mode=1777", "size=64m"]),
            mount("/sys/fs/cgroup", "cgroup", &["nodev", "ro"]),
        ];
        let sys = if self.shares_network {
            json!({"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "ro"]})
        } else {
            mount("/sys", "sysfs", &["nodev", "ro"])
        };
        mounts.insert(5, sys);
        for (_, mount) in self.pod.mounts() {
            let name = mount["name"].as_str().expect("a name");
            let part = mount["subPath"].as_str().unwrap_or_default();
            let access = if mount["readOnly"] == true {
                "ro"
            } else {
                "rw"
            };
            mounts.push(json!({
                "destination": mount["mountPath"],
                "type": "bind",
                "source": self.volume(name).join(part),
                "options": ["bind", "rprivate", access],
            }));
        }
        mounts
    }

    fn linux(&self) -> Value {
        let pod = &self.pod;
        let mut namespaces = vec!["pid", "ipc", "uts", "mount", "cgroup"];
        if !self.shares_network {
            namespaces.push("network");
        }
        if pod.has_user_namespace() {
            namespaces.push("user");
        }
        let namespaces: Vec<Value> = namespaces
            .into_iter()
            .map(|kind| json!({"type": kind}))
            .collect();
        let ids = json!([{"containerID": 0, "hostID": FIRST_ID, "size": 65536}]);
        let maps = if pod.has_user_namespace() {
            ids
        } else {
            json!([])
        };
        let filter = self.filter.clone();
        let filter = filter.unwrap_or_else(|| seccomp::of(pod.security("seccompProfile")));
        let is_masked = pod.security("procMount") != "Unmasked";
        json!({
            "namespaces": namespaces,
            "uidMappings": maps,
            "gidMappings": maps,
            "cgroupsPath": format!("/{}", self.name),
            "resources": {"memory": {"limit": pod.memory()}},
            "seccomp": filter,
            "maskedPaths": if is_masked { &MASKED[..] } else { &[] },
            "readonlyPaths": if is_masked { &READ_ONLY[..] } else { &[] },
        })
    }
}

impl Drop for Container {
    /// A test that failed may have left it running.
    fn drop(&mut self) {
        if self.ground.path("runc").join(&self.name).exists() {
            let mut delete = self.runc("delete");
            succeed(delete.args(["--force", &self.name])).expect("deleted");
        }
    }
}

/// What a process said, for messages.
pub(crate) fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    format!("{}\n{}", output.status, String::from_utf8_lossy(&both))
}
