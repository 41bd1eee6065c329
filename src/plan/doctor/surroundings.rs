//! What surrounds this process: the kernel, a filter, a container, WSL.

/// The profile in the source tree for containers that start runs.
const PROFILE: &str = "packaging/kubernetes/seccomp.json";

/// What surrounds this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// The release of the kernel (uname(2)).
    pub release: String,
    /// The number of seccomp filters of this process, all from outside; `None`: the kernel does not report
    /// it (before Linux 5.9).
    pub seccomp_filters: Option<u32>,
    /// unshare(2) with invalid flags, which the kernel refuses with EINVAL. The error is the errno if it is
    /// another one: a filter returned it.
    pub user_namespace_call: Result<(), String>,
    /// The kind of the container, such as `docker`, `podman`, `kubernetes` or `lxc`.
    pub container: Option<String>,
    /// Mounts cover parts of /proc, so that the kernel refuses a proc in a new user namespace.
    pub has_masked_proc: bool,
}

/// Whether this mountinfo (proc(5)) has mounts that cover parts of /proc. One on an empty directory covers
/// nothing.
#[must_use]
pub(crate) fn has_masked_proc(mountinfo: &str) -> bool {
    const EMPTY: &str = "/proc/sys/fs/binfmt_misc";
    let mut targets = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    targets.any(|target| target.starts_with("/proc/") && target != EMPTY)
}

/// A control of the host that blocks something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Its name and state, such as `user.max_user_namespaces is 0`.
    pub why: String,
    /// The command that lifts it, or the change that somebody else has to make.
    pub mend: String,
}

impl Surroundings {
    /// Version of WSL, the Windows Subsystem for Linux. That of version 1 is no Linux kernel.
    fn wsl(&self) -> Option<u32> {
        if self.release.ends_with("-Microsoft") {
            Some(1)
        } else {
            self.release.contains("microsoft").then_some(2)
        }
    }

    /// Version 1 of WSL, which has no namespaces.
    pub(super) fn wsl_1(&self) -> Option<Control> {
        (self.wsl() == Some(1)).then(|| Control {
            why: "WSL 1 has no Linux kernel".to_owned(),
            mend: "wsl.exe --set-version \"$WSL_DISTRO_NAME\" 2".to_owned(),
        })
    }

    /// Whether this is version 2 of WSL, which starts no systemd by default.
    pub(super) fn is_wsl_2(&self) -> bool {
        self.wsl() == Some(2)
    }

    /// Whether the kernel is of version `since`, such as `5.12`, or later.
    pub(super) fn has_version(&self, since: &str) -> bool {
        version(&self.release) >= version(since)
    }

    /// The filter that refuses `calls`.
    pub(super) fn filter(&self, calls: &str) -> Control {
        let count = match self.seccomp_filters {
            None | Some(0) => "a filter".to_owned(),
            Some(1) => "a seccomp filter".to_owned(),
            Some(count) => format!("one of {count} seccomp filters"),
        };
        let of = match &self.container {
            Some(container) => format!(" of the {container} container"),
            None => String::new(),
        };
        // What the filter hides is found only when it is gone: here it is said at once.
        let proc = self.masked_proc();
        let mend = match self.container.as_deref() {
            Some(engine @ ("docker" | "podman")) => {
                let proc = if self.has_masked_proc {
                    unmasking(engine)
                } else {
                    String::new()
                };
                format!(
                    "{engine} run --security-opt seccomp={PROFILE} {proc}… # allows {calls}; \
                     seccomp=unconfined allows every call"
                )
            }
            Some("kubernetes") => {
                let proc = proc.map_or_else(String::new, |proc| format!("; {}", proc.mend));
                format!(
                    "set securityContext.seccompProfile.type of the container to Localhost, with a \
                     profile that allows {calls} ({PROFILE}), or to Unconfined{proc}"
                )
            }
            Some(_) => format!("allow {calls} in the filter of the container"),
            None => format!(
                "start runner outside of the program that set the filter; a systemd unit sets one by \
                 RestrictNamespaces= or SystemCallFilter=, which has to allow {calls}"
            ),
        };
        Control {
            why: format!("{count}{of} refuses {calls}"),
            mend,
        }
    }

    /// The AppArmor profile or the container that confines this process.
    pub(super) fn profile(&self, label: &str) -> Control {
        let mend = match self.container.as_deref() {
            Some(engine @ ("docker" | "podman")) => {
                format!("{engine} run --security-opt apparmor=unconfined …")
            }
            _ => format!(
                "allow `userns,` and `mount,` in the AppArmor profile `{label}`, and load it again"
            ),
        };
        Control {
            why: format!("the AppArmor profile `{label}` confines this process"),
            mend,
        }
    }

    /// The mounts that cover parts of /proc, if there are any.
    pub(super) fn masked_proc(&self) -> Option<Control> {
        let (of, mend) = match self.container.as_deref() {
            Some(engine @ ("docker" | "podman")) => (
                format!(" of the {engine} container"),
                format!("{engine} run {}…", unmasking(engine)),
            ),
            Some("kubernetes") => (
                " of the kubernetes container".to_owned(),
                "set hostUsers of the pod to false and securityContext.procMount of the container to \
                 Unmasked"
                    .to_owned(),
            ),
            Some(container) => (
                format!(" of the {container} container"),
                "start runner outside of the container, or in one that masks nothing in /proc"
                    .to_owned(),
            ),
            None => (
                String::new(),
                "unmount what is mounted below /proc".to_owned(),
            ),
        };
        self.has_masked_proc.then(|| Control {
            why: format!("parts of /proc{of} are masked, so that a run cannot mount its own"),
            mend,
        })
    }

    /// A container that confines this process in a way that is not known.
    pub(super) fn unknown_container(&self) -> Option<Control> {
        self.container.as_ref().map(|container| Control {
            why: format!("the {container} container does not allow them"),
            mend: "start runner outside of the container".to_owned(),
        })
    }
}

/// The option of an engine by which nothing in /proc is masked.
fn unmasking(engine: &str) -> String {
    let value = match engine {
        "podman" => "unmask=ALL",
        _ => "systempaths=unconfined",
    };
    format!("--security-opt {value} ")
}

/// The first two numbers of a release.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|sign: char| !sign.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::plan::doctor) fn bare() -> Surroundings {
        Surroundings {
            release: "6.12.9-amd64".to_owned(),
            seccomp_filters: Some(0),
            user_namespace_call: Ok(()),
            container: None,
            has_masked_proc: false,
        }
    }

    #[test]
    fn proc_is_masked_by_a_mount_on_a_part_of_it_that_is_not_empty() {
        for (target, expected) in [
            ("/proc", false),
            ("/proc/sys", true),
            ("/proc/kcore", true),
            ("/proc/sys/fs/binfmt_misc", false),
            ("/procedures/x", false),
        ] {
            let mountinfo = format!(
                "22 1 0:20 / / rw - ext4 /dev/a rw\n23 22 0:21 /x {target} rw - proc proc rw\n"
            );
            assert_eq!(has_masked_proc(&mountinfo), expected, "{target}");
        }
    }

    #[test]
    fn the_release_tells_wsl_and_the_version() {
        for (release, wsl, since, is_later) in [
            ("6.12.9-amd64", None, "5.12", true),
            ("5.4.0-150-generic", None, "5.12", false),
            ("5.12", None, "5.12", true),
            ("4.4.0-19041-Microsoft", Some(1), "5.2", false),
            ("5.15.153.1-microsoft-standard-WSL2", Some(2), "5.12", true),
            ("unknown", None, "5.2", false),
        ] {
            let surroundings = Surroundings {
                release: release.to_owned(),
                ..bare()
            };
            assert_eq!(surroundings.wsl(), wsl, "{release}");
            assert_eq!(surroundings.has_version(since), is_later, "{release}");
        }
    }
}
