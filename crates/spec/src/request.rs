//! What the caller asks for: flags and variables after reading, before any file is opened.

use std::path::PathBuf;
use std::time::Duration;

use crate::network::NetworkOptions;
use crate::oci::reference::Place;
use crate::secret::Secret;
use crate::syscall_policy::SyscallPolicyName;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// `runner exec BUNDLE`.
    Bundle(BundleArgument),
    /// `runner run -- CMD ARGS…`: argv, never empty.
    Command(Vec<Vec<u8>>),
}

/// Where the bundle comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleArgument {
    /// `-`: the archive is read from standard input.
    Stdin,
    /// A path to an archive or to a directory.
    Path(PathBuf),
}

/// `--manifest FILE`, `--run VALUE` and what else replaces parts of the bundle's own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleOptions {
    /// `--manifest FILE`.
    pub manifest: Option<PathBuf>,
    /// `--run VALUE`: a string, or JSON for an array or an object.
    pub run: Option<String>,
    /// `--workspace DIR`.
    pub workspace: Option<PathBuf>,
    /// `--inputs JSON|@FILE`.
    pub inputs: Option<InputsArgument>,
    /// `--in KEY=PATH`, in order.
    pub input_files: Vec<(String, String)>,
    /// `--out KEY=PATH`, in order.
    pub output_files: Vec<(String, String)>,
    /// `--out-dir DIR`: where outputs go instead of the workspace; absolute.
    pub output_directory: Option<PathBuf>,
    /// Appended after `--` of `exec`.
    pub arguments: Vec<Vec<u8>>,
    /// `--keep`.
    pub keep: bool,
    /// `--no-cache`.
    pub no_cache: bool,
    /// `--no-trust-mtime`.
    pub no_trust_mtime: bool,
}

/// The value of `--inputs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputsArgument {
    /// The JSON text itself.
    Text(String),
    /// `@FILE`.
    File(PathBuf),
}

/// One entry of the view: `--ro`, `--rw`, `--mount`, `--tmpfs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewEntry {
    /// A path of the host appears inside.
    Bind {
        /// On the host; absolute (the command line makes it so).
        source: PathBuf,
        target: PathBuf,
        /// Whether the body may write there.
        writable: bool,
    },
    /// A private, empty, writable directory.
    Tmpfs {
        target: PathBuf,
        /// `None`: counted only against the disk limit of the run.
        size_bytes: Option<u64>,
    },
}

/// `-e K=V`, with `-e K` and `--env-file` already resolved by the command line.
pub type EnvironmentEntry = (Vec<u8>, Vec<u8>);

/// `--secret NAME=REF`, resolved by the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenSecret {
    pub variable: Vec<u8>,
    /// REF, escaped: `env:NAME` or `file:PATH`.
    pub reference: String,
    /// What it stands for.
    pub value: Secret,
}

/// The limits as stated on the command line; `None` where nothing was said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitOptions {
    /// `--memory`.
    pub memory_bytes: Option<u64>,
    /// `--cpus`, in processors.
    pub cpus: Option<f64>,
    /// `--cpu-time`.
    pub cpu_time: Option<Duration>,
    /// `--timeout`; [`Duration::MAX`] is `none`.
    pub wall_time: Option<Duration>,
    /// `--grace`.
    pub grace: Option<Duration>,
    /// `--pids`.
    pub processes: Option<u64>,
    /// `--nofile`, of each process.
    pub open_files: Option<u64>,
    /// `--disk`.
    pub disk_bytes: Option<u64>,
    /// Inodes in the writable space; no flag states them, preparation runs do.
    pub disk_inodes: Option<u64>,
    /// `--max-output`, per stream.
    pub output_bytes: Option<u64>,
    /// `--limits`.
    pub mode: LimitsMode,
    /// `--on-output-limit`.
    pub on_output_limit: OnOutputLimit,
}

/// What to do with a limit that this host cannot hold fully.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LimitsMode {
    /// Weaker runs and is reported, absent is refused.
    #[default]
    Stated,
    /// Weaker is refused too.
    Require,
    BestEffort,
}

/// What happens when a stream reaches its limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnOutputLimit {
    /// The rest is counted and thrown away.
    #[default]
    Drop,
    /// The run ends as `output_limit`.
    Kill,
}

/// Where the body's standard streams go and come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// `-i`: the caller's standard input is passed on.
    pub interactive: bool,
    /// `-t`: the body has a pseudo-terminal of its own.
    pub terminal: bool,
    /// The body's output is inside the report instead of being passed on.
    pub capture: bool,
}

/// What `--grant` names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a set of independent grants, each with a name"
)]
pub struct Grants {
    /// `egress`.
    pub egress: bool,
    /// `secrets`.
    pub secrets: bool,
    /// `env`.
    pub env: bool,
    /// `mounts`.
    pub mounts: bool,
    /// `sources`.
    pub sources: bool,
    /// `outputs`: destinations that are code later (`.git/hooks`, shell start-up files).
    pub outputs: bool,
    /// `policy`: `sandbox.policy` and `approval` other than `auto`.
    pub policy: bool,
}

/// `--image`, `--allow-tags`, `--insecure`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OciOptions {
    /// Where the root file system of an `engine: sandbox` comes from; the directory of a layout is
    /// absolute.
    pub image: Option<Place>,
    /// Whether a tag may say which artifact is meant.
    pub allow_tags: bool,
    /// Whether registries may be spoken to without TLS.
    pub insecure: bool,
}

/// Everything that the caller asked for one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub subject: Subject,
    pub bundle: BundleOptions,
    /// What is visible besides the system directories.
    pub view: Vec<ViewEntry>,
    /// `-w`: absolute, inside.
    pub workdir: Option<PathBuf>,
    /// In order; a later entry replaces an earlier one of the same name.
    pub environment: Vec<EnvironmentEntry>,
    /// `--secret`, in order; a later entry replaces an earlier one of the same name.
    pub secrets: Vec<GivenSecret>,
    pub network: NetworkOptions,
    pub limits: LimitOptions,
    pub streams: StreamOptions,
    /// `--stop-signal`, a signal number; SIGTERM where nothing was said.
    pub stop_signal: i32,
    /// `--strict`.
    pub strict: bool,
    /// `--syscalls`; a host policy that states a stricter one holds.
    pub syscalls: Option<SyscallPolicyName>,
    /// `--unix-sockets`: also where directories of the host are lent.
    pub unix_sockets: bool,
    /// `--socket`: unix sockets of the host that the body may connect to. Each stands in `view` too,
    /// as a target.
    pub sockets: Vec<PathBuf>,
    /// `--grant`.
    pub grants: Grants,
    pub oci: OciOptions,
    /// The caller's facts that the run needs and only the command line may read.
    pub caller: Caller,
}

impl Request {
    /// Signal number of SIGTERM on Linux.
    const SIGTERM: i32 = 15;

    /// A request that asks for nothing but its subject: no input, output captured.
    #[must_use]
    pub fn captured(subject: Subject, caller: Caller) -> Self {
        Self {
            subject,
            bundle: BundleOptions::default(),
            view: Vec::new(),
            workdir: None,
            environment: Vec::new(),
            secrets: Vec::new(),
            network: NetworkOptions::default(),
            limits: LimitOptions::default(),
            streams: StreamOptions {
                capture: true,
                ..StreamOptions::default()
            },
            stop_signal: Self::SIGTERM,
            strict: false,
            syscalls: None,
            unix_sockets: false,
            sockets: Vec::new(),
            grants: Grants::default(),
            oci: OciOptions::default(),
            caller,
        }
    }
}

/// What the command line read of its own surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// The caller's PATH, for programs that the fixed PATH inside does not have.
    pub path: Vec<u8>,
    /// The caller's working directory, absolute; `None` where it is gone.
    pub working_directory: Option<PathBuf>,
    /// All of the caller's variables: of these only what is named passes.
    pub environment: Vec<EnvironmentEntry>,
    /// The caller's home, if it is known.
    pub home: Option<PathBuf>,
    /// Where `--keep` leaves its copy; absolute.
    pub temporary_directory: PathBuf,
    /// Where records of runs lie: see `sandbox::records`.
    pub runtime_directory: Option<PathBuf>,
    /// Where what is worth keeping lies, where it does not lie in memory; absolute.
    pub cache_directory: PathBuf,
    /// `RUNNER_OPT_CACHE_DIRECTORY`: where unpacked bundles are kept, before what the policy says.
    pub bundle_cache_directory: Option<PathBuf>,
    /// `RUNNER_OPT_OCI_DIRECTORY`: where artifacts from registries are kept, before what the policy
    /// says.
    pub oci_directory: Option<PathBuf>,
    /// `DOCKER_CONFIG`, else `.docker` of the home: where the credentials of registries are.
    pub docker_config: Option<PathBuf>,
    /// `cgroup_parent` or `RUNNER_OPT_CGROUP_PARENT`.
    pub cgroup_parent: Option<String>,
    /// Set when the process was started again through systemd-run, so that it happens once.
    pub in_delegated_scope: bool,
}
