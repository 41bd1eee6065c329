//! The caller's request: parsed flags and variables, before any file is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{Limit, LimitValues, UNLIMITED};
use crate::network::NetworkOptions;
use crate::oci::reference::Place;
use crate::secret::Secret;
use crate::syscall_policy::SyscallPolicyName;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Bundle(BundleArgument),
    /// `runner run -- CMD ARGS…`: argv, not empty.
    Command(Vec<Vec<u8>>),
    /// `runner sandbox create`: no command; they come later.
    Sandbox,
}

/// Where the bundle comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleArgument {
    Stdin,
    Path(PathBuf),
}

/// Options of `exec` that replace or add to parts of the bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleOptions {
    pub manifest: Option<PathBuf>,
    /// `--run VALUE`: a string, or JSON for an array or an object.
    pub run: Option<String>,
    pub workspace: Option<PathBuf>,
    pub inputs: Option<InputsArgument>,
    /// `--in KEY=PATH`, in order.
    pub input_files: Vec<(String, String)>,
    /// `--out KEY=PATH`, in order.
    pub output_files: Vec<(String, String)>,
    /// `--out-dir DIR`: destination of outputs instead of the workspace; absolute.
    pub output_directory: Option<PathBuf>,
    pub arguments: Vec<Vec<u8>>,
    pub keep: bool,
    pub no_cache: bool,
    pub no_trust_mtime: bool,
}

/// The value of `--inputs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputsArgument {
    Text(String),
    File(PathBuf),
}

/// One entry of the view: `--ro`, `--rw`, `--mount`, `--tmpfs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewEntry {
    Bind {
        /// Absolute path on the host.
        source: PathBuf,
        target: PathBuf,
        writable: bool,
    },
    Tmpfs {
        target: PathBuf,
        /// `None`: only the disk limit of the run applies.
        size_bytes: Option<u64>,
    },
}

/// `-e K=V`. The command line has resolved `-e K` and `--env-file`.
pub type EnvironmentEntry = (Vec<u8>, Vec<u8>);

/// `--secret NAME=REF`, resolved by the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenSecret {
    pub variable: Vec<u8>,
    /// REF, escaped: `env:NAME` or `file:PATH`.
    pub reference: String,
    pub value: Secret,
}

/// The limits on the command line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitOptions {
    pub values: LimitValues,
    pub grace: Option<Duration>,
    pub mode: LimitsMode,
    pub on_output_limit: OnOutputLimit,
}

impl LimitOptions {
    /// `--timeout`; [`Duration::MAX`] is `none`.
    #[must_use]
    pub fn wall_time(&self) -> Option<Duration> {
        let stated = self.values.get(Limit::WallTime)?;
        Some(match stated {
            UNLIMITED => Duration::MAX,
            stated => Duration::from_millis(stated),
        })
    }
}

/// What to do with a limit that this host cannot enforce fully.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LimitsMode {
    /// Run with weaker enforcement and report it; refuse limits that cannot be enforced at all.
    #[default]
    Stated,
    /// Refuse weaker enforcement too.
    Require,
    BestEffort,
}

/// What happens when a stream reaches its limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnOutputLimit {
    #[default]
    Drop,
    Kill,
}

/// How the body's standard streams are connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent flags, each with a name"
)]
pub struct StreamOptions {
    /// `-i`: pass on the caller's standard input.
    pub interactive: bool,
    /// `-t`: give the body its own pseudo-terminal.
    pub terminal: bool,
    /// Put the body's output into the report instead of passing it on.
    pub capture: bool,
    /// `--record-output`: keep the start of the body's output in the history.
    pub record: bool,
    /// `--stats`: show what the run uses while it goes on.
    pub stats: bool,
}

/// What a bundle's own manifest may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    Egress,
    Secrets,
    Env,
    Mounts,
    Sources,
    Outputs,
    Policy,
}

impl Grant {
    /// In the order of messages and plans.
    pub const ALL: [Self; 7] = [
        Self::Egress,
        Self::Secrets,
        Self::Env,
        Self::Mounts,
        Self::Sources,
        Self::Outputs,
        Self::Policy,
    ];

    /// The name in `--grant`, `grants` and `deny_grants`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Secrets => "secrets",
            Self::Env => "env",
            Self::Mounts => "mounts",
            Self::Sources => "sources",
            Self::Outputs => "outputs",
            Self::Policy => "policy",
        }
    }
}

/// A set of grants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a set of independent grants, each with a name"
)]
pub struct Grants {
    pub egress: bool,
    pub secrets: bool,
    pub env: bool,
    pub mounts: bool,
    pub sources: bool,
    /// Destinations that are executed later (`.git/hooks`, shell start-up files).
    pub outputs: bool,
    /// `sandbox.policy`, and `approval` other than `auto`.
    pub policy: bool,
}

impl Grants {
    const fn field(&mut self, grant: Grant) -> &mut bool {
        match grant {
            Grant::Egress => &mut self.egress,
            Grant::Secrets => &mut self.secrets,
            Grant::Env => &mut self.env,
            Grant::Mounts => &mut self.mounts,
            Grant::Sources => &mut self.sources,
            Grant::Outputs => &mut self.outputs,
            Grant::Policy => &mut self.policy,
        }
    }

    pub(crate) const fn has(mut self, grant: Grant) -> bool {
        *self.field(grant)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Grant> {
        Grant::ALL.into_iter().filter(move |grant| self.has(*grant))
    }
}

impl FromIterator<Grant> for Grants {
    fn from_iter<Items: IntoIterator<Item = Grant>>(items: Items) -> Self {
        let mut set = Self::default();
        for grant in items {
            *set.field(grant) = true;
        }
        set
    }
}

/// `--image`, `--allow-tags`, `--insecure`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OciOptions {
    pub image: Option<Place>,
    pub allow_tags: bool,
    pub insecure: bool,
}

/// A request for one run.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent flags, each with a name"
)]
pub struct Request {
    pub subject: Subject,
    pub bundle: BundleOptions,
    /// Entries of the view besides the system directories.
    pub view: Vec<ViewEntry>,
    /// `-w`: absolute path inside.
    pub workdir: Option<PathBuf>,
    /// In order; a later entry replaces an earlier one of the same name.
    pub environment: Vec<EnvironmentEntry>,
    /// `--secret`, in order; a later entry replaces an earlier one of the same name.
    pub secrets: Vec<GivenSecret>,
    pub network: NetworkOptions,
    pub limits: LimitOptions,
    pub streams: StreamOptions,
    /// `--report`: the report has the view of the body and samples of its use.
    pub is_detailed: bool,
    /// `--trace`: look at the paths that the body uses.
    pub is_traced: bool,
    pub stop_signal: i32,
    pub strict: bool,
    /// `--syscalls`. A stricter host policy wins.
    pub syscalls: Option<SyscallPolicyName>,
    /// `--unix-sockets`: also with directories of the host in the view.
    pub unix_sockets: bool,
    /// `--socket`: unix sockets of the host that the body may connect to. Each is also a target in
    /// `view`.
    pub sockets: Vec<PathBuf>,
    pub grants: Grants,
    pub oci: OciOptions,
    pub caller: Caller,
}

impl Request {
    /// The default of `stop_signal`.
    pub const SIGTERM: i32 = 15;

    /// A request with default options and captured output.
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
            is_detailed: false,
            is_traced: false,
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

/// The environment of the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// The caller's PATH, searched for programs that the fixed PATH inside does not have.
    pub path: Vec<u8>,
    /// Absolute; `None`: the directory is gone.
    pub working_directory: Option<PathBuf>,
    /// All variables of the caller. Only named ones are passed on. Shared, since a copy would lie where
    /// processes that are forked find it.
    pub environment: Arc<[EnvironmentEntry]>,
    pub home: Option<PathBuf>,
    pub temporary_directory: PathBuf,
    /// Where run records are stored: see `sandbox::records`.
    pub runtime_directory: Option<PathBuf>,
    pub cache_directory: PathBuf,
    /// Where the history of runs is.
    pub history_directory: PathBuf,
    /// Directories of the configuration files and of fetched sources. No output may change them.
    pub directories_without_outputs: Vec<PathBuf>,
    /// `RUNNER_OPT_CACHE_DIRECTORY`: where unpacked bundles are cached. It overrides the policy.
    pub bundle_cache_directory: Option<PathBuf>,
    /// `RUNNER_OPT_OCI_DIRECTORY`: where registry artifacts are cached. It overrides the policy.
    pub oci_directory: Option<PathBuf>,
    /// `DOCKER_CONFIG`, else `.docker` of the home: where registry credentials are.
    pub docker_config: Option<PathBuf>,
    /// `cgroup_parent` or `RUNNER_OPT_CGROUP_PARENT`.
    pub cgroup_parent: Option<String>,
    /// Whether this process was already started again through systemd-run, to prevent a loop.
    pub in_delegated_scope: bool,
    /// What `runner serve` allows all sandboxes and runs of this user together.
    pub totals: Totals,
}

/// The most that the sandboxes and runs of a user may be or use together; beyond it no further one starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// `RUNNER_OPT_MAX_SANDBOXES`.
    pub sandboxes: Option<usize>,
    /// `RUNNER_OPT_MAX_MEMORY`, the sum of the limits.
    pub memory_bytes: Option<u64>,
    /// `RUNNER_OPT_MAX_CPUS`, the sum of the limits in thousandths of a processor.
    pub cpu_millis: Option<u64>,
}
