//! Environment variables, working directory and uid of this process. Only this file reads the
//! environment, and clap the variables of the flags in [`crate::cli::args`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use spec::host_policy::HostPolicy;
use spec::request::{Caller, Totals};
use spec::state_directory::state_directory;
use spec::units::{parse_cpus, parse_size_bytes};
use sys::allocator::keep_from_children;

/// Directory of run records of uid 0.
const RUNTIME_DIRECTORY_OF_ROOT: &str = "/run/runner";
/// Directory of what uid 0 keeps: under `sudo` the home may be another user's.
const CACHE_DIRECTORY_OF_ROOT: &str = "/var/cache/runner";
/// The variables of the flags' prefix that have no flag.
pub(super) const VARIABLES_WITHOUT_FLAG: [&str; 9] = [
    "RUNNER_OPT_CACHE_DIRECTORY",
    "RUNNER_OPT_CGROUP_PARENT",
    "RUNNER_OPT_IN_DELEGATED_SCOPE",
    "RUNNER_OPT_MAX_CPUS",
    "RUNNER_OPT_MAX_MEMORY",
    "RUNNER_OPT_MAX_SANDBOXES",
    "RUNNER_OPT_OCI_DIRECTORY",
    "RUNNER_OPT_RUNTIME_DIRECTORY",
    "RUNNER_OPT_STATE_DIRECTORY",
];
/// The variables of the flags' prefix that name a directory and have no flag.
const DIRECTORY_VARIABLES: [&str; 4] = [
    "RUNNER_OPT_CACHE_DIRECTORY",
    "RUNNER_OPT_OCI_DIRECTORY",
    "RUNNER_OPT_RUNTIME_DIRECTORY",
    "RUNNER_OPT_STATE_DIRECTORY",
];
const HOST_CONFIG: &str = "/etc/runner/config.yaml";

#[derive(Clone, Default)]
pub struct ProcessContext {
    pub variables: BTreeMap<OsString, OsString>,
    /// The absolute path; `None`: it no longer exists.
    pub working_directory: Option<PathBuf>,
    pub uid: u32,
    /// What `runner serve` allows all sandboxes and runs together.
    pub(super) totals: Totals,
    /// The variable of a total that cannot be read: the command line is refused.
    pub(super) unreadable_total: Option<UnreadableVariable>,
}

/// A variable whose value cannot be read.
#[derive(Clone)]
pub(super) struct UnreadableVariable {
    pub(super) name: &'static str,
    pub(super) value: OsString,
    pub(super) problem: String,
}

/// Shows names of variables only: values may be secrets.
impl std::fmt::Debug for ProcessContext {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ProcessContext")
            .field("variables", &self.variables.keys())
            .field("working_directory", &self.working_directory)
            .field("uid", &self.uid)
            .finish()
    }
}

impl ProcessContext {
    /// The working directory is that of getcwd(2), without links.
    #[must_use]
    pub fn read() -> Self {
        let read = Self {
            variables: keep_from_children(|| std::env::vars_os().collect()),
            working_directory: std::env::current_dir()
                .ok()
                .filter(|directory| directory.is_absolute()),
            uid: rustix::process::geteuid().as_raw(),
            ..Self::default()
        };
        match read.read_totals() {
            Ok(totals) => Self { totals, ..read },
            Err(unreadable) => Self {
                unreadable_total: Some(unreadable),
                ..read
            },
        }
    }

    /// A variable that is set and not empty.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// The first variable of a directory whose value is not an absolute path, with that value.
    #[must_use]
    pub(crate) fn relative_directory(&self) -> Option<(&'static str, &OsStr)> {
        let values = DIRECTORY_VARIABLES.iter();
        let mut values = values.filter_map(|name| Some((*name, self.variable(name)?)));
        values.find(|(_, value)| Path::new(value).is_relative())
    }

    fn read_totals(&self) -> Result<Totals, UnreadableVariable> {
        Ok(Totals {
            sandboxes: self.read_variable("RUNNER_OPT_MAX_SANDBOXES", |text| {
                text.parse().map_err(|_none| "expected a number".to_owned())
            })?,
            memory_bytes: self.read_variable("RUNNER_OPT_MAX_MEMORY", |text| {
                parse_size_bytes(text).map_err(|error| error.to_string())
            })?,
            cpu_millis: self.read_variable("RUNNER_OPT_MAX_CPUS", parse_cpus)?,
        })
    }

    fn read_variable<Value>(
        &self,
        name: &'static str,
        read: impl Fn(&str) -> Result<Value, String>,
    ) -> Result<Option<Value>, UnreadableVariable> {
        let Some(value) = self.variable(name) else {
            return Ok(None);
        };
        let read = read(value.to_str().unwrap_or_default());
        read.map(Some).map_err(|problem| UnreadableVariable {
            name,
            value: value.to_owned(),
            problem,
        })
    }

    /// The configuration files that are read if they exist, earliest first.
    ///
    /// The user's file is not read for uid 0: under `sudo` the home may be another user's, whose file
    /// must not control a run of root.
    #[must_use]
    pub(crate) fn config_files(&self) -> Vec<PathBuf> {
        let mut files = vec![PathBuf::from(HOST_CONFIG)];
        if self.uid != 0 {
            let directory = self.absolute("XDG_CONFIG_HOME").or_else(|| {
                let home = self.absolute("HOME")?;
                Some(home.join(".config"))
            });
            files.extend(directory.map(|directory| directory.join("runner/config.yaml")));
        }
        files
    }

    /// The default directory of fetched sources and unpacked bundles: `runner` in the user's cache
    /// directory (XDG base directory specification), or a directory of this uid in /tmp if there is no
    /// home.
    #[must_use]
    pub fn cache_directory(&self) -> PathBuf {
        if self.uid == 0 {
            return PathBuf::from(CACHE_DIRECTORY_OF_ROOT);
        }
        self.absolute("XDG_CACHE_HOME")
            .or_else(|| Some(self.absolute("HOME")?.join(".cache")))
            .map_or_else(
                || PathBuf::from(format!("/tmp/runner-{}/cache", self.uid)),
                |directory| directory.join("runner"),
            )
    }

    /// Where the history of runs is: `history` in `RUNNER_OPT_STATE_DIRECTORY`, else in `runner` in the
    /// user's state directory (XDG base directory specification), or a directory of this uid in /tmp if
    /// there is no home.
    #[must_use]
    pub(crate) fn history_directory(&self) -> PathBuf {
        state_directory(self.uid, |name| self.absolute(name)).join("history")
    }

    #[must_use]
    pub fn caller(&self, policy: &HostPolicy) -> Caller {
        let runtime_directory = self
            .absolute("RUNNER_OPT_RUNTIME_DIRECTORY")
            .or_else(|| policy.runtime_directory.clone())
            .or_else(|| match self.uid {
                0 => Some(PathBuf::from(RUNTIME_DIRECTORY_OF_ROOT)),
                // A job of Slurm has the variable of the session that queued it, on another machine.
                _ => self
                    .absolute("XDG_RUNTIME_DIR")
                    .filter(|directory| directory.is_dir())
                    .map(|directory| directory.join("runner")),
            });
        let cgroup_parent = self
            .variable("RUNNER_OPT_CGROUP_PARENT")
            .map(|parent| parent.to_string_lossy().into_owned())
            .or_else(|| policy.cgroup_parent.clone());
        let mut directories_without_outputs = vec![self.cache_directory()];
        for file in self.config_files() {
            directories_without_outputs.extend(file.parent().map(Path::to_owned));
        }
        Caller {
            path: self
                .variable("PATH")
                .map(|path| path.as_bytes().to_vec())
                .unwrap_or_default(),
            working_directory: self.working_directory.clone(),
            environment: keep_from_children(|| {
                let variables = self.variables.iter();
                variables
                    .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                    .collect()
            }),
            home: self.absolute("HOME"),
            temporary_directory: self.absolute("TMPDIR").unwrap_or_else(|| "/tmp".into()),
            runtime_directory,
            cache_directory: self.cache_directory(),
            history_directory: self.history_directory(),
            directories_without_outputs,
            bundle_cache_directory: self.absolute("RUNNER_OPT_CACHE_DIRECTORY"),
            oci_directory: self.absolute("RUNNER_OPT_OCI_DIRECTORY"),
            docker_config: self
                .absolute("DOCKER_CONFIG")
                .or_else(|| Some(self.absolute("HOME")?.join(".docker"))),
            cgroup_parent,
            in_delegated_scope: self.variable("RUNNER_OPT_IN_DELEGATED_SCOPE").is_some(),
            totals: self.totals,
        }
    }

    /// An absolute path in a variable. The XDG base directory specification says to ignore relative
    /// ones.
    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(uid: u32, variables: &[(&str, &str)]) -> ProcessContext {
        ProcessContext {
            variables: variables
                .iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value)))
                .collect(),
            uid,
            ..ProcessContext::default()
        }
    }

    #[test]
    fn the_users_file_is_read_for_users_and_not_for_root() {
        let home = [("HOME", "/home/u")];
        assert_eq!(
            with(1000, &home).config_files(),
            [
                PathBuf::from("/etc/runner/config.yaml"),
                PathBuf::from("/home/u/.config/runner/config.yaml")
            ]
        );
        let elsewhere = [("HOME", "/home/u"), ("XDG_CONFIG_HOME", "/c")];
        assert_eq!(
            with(1000, &elsewhere).config_files()[1],
            PathBuf::from("/c/runner/config.yaml")
        );
        let relative = [("HOME", "/home/u"), ("XDG_CONFIG_HOME", "c")];
        assert_eq!(
            with(1000, &relative).config_files()[1],
            PathBuf::from("/home/u/.config/runner/config.yaml")
        );
        assert_eq!(with(0, &elsewhere).config_files().len(), 1);
        assert_eq!(
            with(0, &home).cache_directory(),
            Path::new("/var/cache/runner")
        );
        let caller = with(1000, &home).caller(&HostPolicy::default());
        assert_eq!(
            caller.directories_without_outputs,
            [
                PathBuf::from("/home/u/.cache/runner"),
                PathBuf::from("/etc/runner"),
                PathBuf::from("/home/u/.config/runner")
            ]
        );
    }

    #[test]
    fn a_variable_goes_before_the_policy_and_the_policy_before_the_default() {
        let mut policy = HostPolicy::default();
        let directory =
            |context: ProcessContext, policy: &HostPolicy| context.caller(policy).runtime_directory;
        let xdg = [("XDG_RUNTIME_DIR", "/proc/self")];
        assert_eq!(
            directory(with(0, &xdg), &policy),
            Some("/run/runner".into())
        );
        assert_eq!(
            directory(with(1000, &xdg), &policy),
            Some("/proc/self/runner".into())
        );
        assert_eq!(directory(with(1000, &[]), &policy), None);
        let of_another_machine = [("XDG_RUNTIME_DIR", "/run/user/of/nobody")];
        assert_eq!(directory(with(1000, &of_another_machine), &policy), None);
        policy.runtime_directory = Some("/policy".into());
        assert_eq!(directory(with(1000, &xdg), &policy), Some("/policy".into()));
        let stated = [("RUNNER_OPT_RUNTIME_DIRECTORY", "/stated")];
        assert_eq!(directory(with(0, &stated), &policy), Some("/stated".into()));
        policy.cgroup_parent = Some("/a".to_owned());
        let docker = |variables: &[(&str, &str)]| with(0, variables).caller(&policy).docker_config;
        assert_eq!(docker(&[("HOME", "/h")]), Some("/h/.docker".into()));
        let stated = [("HOME", "/h"), ("DOCKER_CONFIG", "/d")];
        assert_eq!(docker(&stated), Some("/d".into()));
        assert_eq!(docker(&[]), None);
        let parent = [("RUNNER_OPT_CGROUP_PARENT", "/b")];
        assert_eq!(
            with(0, &[]).caller(&policy).cgroup_parent.as_deref(),
            Some("/a")
        );
        assert_eq!(
            with(0, &parent).caller(&policy).cgroup_parent.as_deref(),
            Some("/b")
        );
    }

    #[test]
    fn values_of_variables_do_not_show_in_debug_output() {
        let text = format!("{:?}", with(0, &[("TOKEN", "canary-7f3a")]));
        assert!(text.contains("TOKEN") && !text.contains("canary"), "{text}");
    }
}
