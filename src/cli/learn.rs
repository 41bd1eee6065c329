//! `runner learn`: runs a command, and writes the smallest policy under which it would do the same.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::cli::args::RunFlags;
use crate::cli::config::{self, ConfigError};
use crate::cli::context::ProcessContext;
use crate::cli::learned_policy::{LearnedHost, LearnedPolicy, Merged};
use crate::cli::plan::Invocation;
use crate::cli::policy_text::{self, NotAdded};
use crate::cli::print::write_all;
use crate::cli::report_file::{self, FileError, Found, ReportFile};
use crate::cli::report_target::{OUTPUT, TargetError};
use crate::cli::request::RequestError;
use crate::run::learning::{Learned, Learning};
use spec::egress::EgressRule;
use spec::egress_report::{HostTraffic, UnreachableHost};
use spec::host_config::{self, WrittenFlags};
use spec::host_policy::{HostPolicy, names};
use spec::network::HostLearning;
use spec::path::{escape, escape_path, quoted};
use spec::report::{ErrorReport, Report, with_causes};
use spec::request::{BundleArgument, Grant, Request, Subject};

/// The verb that a policy of a command is for.
const RUN: &str = "run";

pub(super) const LEARN_HELP: &str = "\
The command or the bundle runs confined. It sees the host read-only besides what `run` or `exec`
shows. What it writes in the working directory is listed and dropped. Files that may hold
credentials stay hidden, and the policy never has them. The flags are those of `run` and `exec`; a
path of --ro or --rw is taken as it is. `runner run --policy FILE -- CMD` or
`runner exec --policy FILE BUNDLE` then runs the same under the policy.

Examples:
  runner learn -o policy.yaml -- make
  runner learn -o policy.yaml --merge --learn-net -- npm ci
  runner learn -o policy.yaml tool.tar.gz -- --verbose

Exit codes: those of `run` and `exec`; 125 also if the policy could not be written.";

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "runner learn -o FILE [FLAGS] -- CMD [ARGS]\n       runner learn -o FILE [FLAGS] BUNDLE [-- ARGS]"
)]
pub struct Learn {
    /// What `exec` takes
    #[arg(required_unless_present = "words")]
    pub bundle: Option<PathBuf>,
    #[command(flatten)]
    pub learn: LearnFlags,
    #[command(flatten)]
    pub flags: RunFlags,
    /// With a BUNDLE arguments of the body, else the command of `run`
    #[arg(last = true, value_name = "ARGS|CMD")]
    pub words: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The policy")]
pub struct LearnFlags {
    /// Write the policy to this file, which must be missing or empty unless --merge is given
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Use the flags that FILE has, and add to them; the rest of its text stays
    #[arg(long)]
    pub merge: bool,
    /// Let the body connect to all public hosts, and record them; of the host it sees only the working directory and what flags show
    #[arg(long)]
    pub learn_net: bool,
}

impl Learn {
    /// The flags of this verb, and the run.
    pub(super) fn into_run(self) -> (LearnFlags, Invocation) {
        let Self {
            bundle,
            learn,
            flags,
            words,
        } = self;
        let invocation = Invocation {
            bundle,
            flags,
            words,
        };
        (learn, invocation)
    }
}

/// The policy that is learned.
pub(super) struct PolicyTarget {
    flags: LearnFlags,
    file: Target,
    /// What the file has, for `--merge`.
    merged: Option<Merged>,
}

enum Target {
    Stream(OwnedFd),
    File(ReportFile),
}

impl PolicyTarget {
    /// Opens the file, before anything runs.
    ///
    /// # Errors
    /// It cannot be written, or not be merged.
    pub(super) fn open(flags: LearnFlags, context: &ProcessContext) -> Result<Self, ErrorReport> {
        let name = flags.output.as_os_str().as_bytes();
        let file = match report_file::open(name) {
            Ok(Found::Stream(fd)) => Target::Stream(fd),
            Ok(Found::File(file)) => Target::File(file),
            Err(error) => return Err(error.at_open(OUTPUT, escape(name)).report()),
        };
        let merged = match &file {
            _ if flags.merge => read_merged(&flags.output, context)?,
            Target::File(file) => {
                let exists = file.has_contents().map_err(FileError::from);
                let exists =
                    exists.map_err(|error| error.at_open(OUTPUT, escape(name)).report())?;
                if exists {
                    return Err(exists_already(name));
                }
                None
            }
            Target::Stream(_) => None,
        };
        Ok(Self {
            flags,
            file,
            merged,
        })
    }

    /// Adds what the run sees while learning.
    ///
    /// # Errors
    /// Nothing can be learned from this run.
    pub(super) fn begin(
        &self,
        request: &mut Request,
        policy: &HostPolicy,
    ) -> Result<Learning, ErrorReport> {
        if let Subject::Bundle(BundleArgument::Path(path)) = &request.subject
            && path
                .symlink_metadata()
                .is_err_and(|error| error.kind() == ErrorKind::NotFound)
        {
            return Err(ErrorReport::new(
                "usage",
                format!("there is no bundle {}", escape_path(path)),
            )
            .with_hint("to learn from a command: runner learn -o FILE -- CMD"));
        }
        let learns_hosts = self.flags.learn_net;
        request.network.report_denials = true;
        request.network.learning = match learns_hosts {
            true => HostLearning::Public,
            false => HostLearning::Closed,
        };
        if learns_hosts && names(policy.deny_grants).any(|name| name == Grant::Egress.name()) {
            let (flag, grant) = ("learn-net", Grant::Egress.name());
            return Err(RequestError::GrantForbidden { flag, grant }.report());
        }
        // What a body sees of the host must not leave it.
        let is_closed = !learns_hosts && request.network.allow.is_empty();
        Learning::begin(request, policy, is_closed).map_err(|error| error.report())
    }

    /// The flags of the file, which the run gets too; its hosts only if hosts are learned.
    pub(super) fn flags_of_run(&self) -> WrittenFlags {
        let merged = self.merged.as_ref();
        let mut flags = merged
            .map(|merged| merged.flags.clone())
            .unwrap_or_default();
        if !self.flags.learn_net {
            flags.allow_net.clear();
        }
        flags
    }

    /// Writes the policy, also of a command that failed. Returns what to say about it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(
        &self,
        learning: Learning,
        request: &Request,
        report: &Report,
    ) -> Result<String, ErrorReport> {
        let working_directory = learning.working_directory();
        let name = self.flags.output.as_os_str().as_bytes();
        let shown = escape(name);
        let Some(Learned {
            paths,
            unseen,
            asked,
        }) = learning.into_learned()
        else {
            return Ok(format!("{shown} is not written: nothing was learned"));
        };
        let (verb, command) = typed(request);
        let denied = report.denials.iter().filter_map(denied_host);
        let unreachable = report.egress.unreachable.iter().map(unreachable_host);
        let denied: Vec<String> = denied.chain(unreachable).collect();
        let hosts: Vec<LearnedHost> = report.egress.hosts.iter().flat_map(learned_hosts).collect();
        let text = LearnedPolicy {
            verb,
            command: &command,
            has_failed: report.exit.as_ref().is_none_or(|exit| exit.code != Some(0)),
            paths: &paths,
            hosts: &hosts,
            asked: &asked,
            learns_hosts: self.flags.learn_net,
            allowed: &request.network.allow,
            denied: &denied,
            unseen,
            // A bundle names paths of the host in full.
            working_directory: working_directory.as_deref().filter(|_| verb == RUN),
            merged: self.merged.as_ref(),
            file: name,
        }
        .render()
        .map_err(|error| not_merged(name, &error))?;
        let mut fill = |fd: BorrowedFd<'_>| Ok(write_all(fd, text.as_bytes())?);
        let written: Result<(), FileError> = match &self.file {
            Target::Stream(fd) => fill(fd.as_fd()),
            Target::File(file) => file.write(&mut fill),
        };
        written.map_err(|error| unwritten(&error.at_write(OUTPUT, shown.clone())))?;
        let counted = [
            (paths.read_only.len(), "read-only"),
            (paths.writable.len(), "writable"),
            (
                paths.omitted.len() + paths.unlisted + denied.len(),
                "left out",
            ),
        ];
        let counted = counted.map(|(count, what)| format!("{count} {what}"));
        Ok(format!("wrote {shown}: {}", counted.join(", ")))
    }
}

fn unwritten(error: &TargetError) -> ErrorReport {
    ErrorReport {
        code: "policy_unwritable".to_owned(),
        message: format!(
            "the policy was learned and not kept: {}",
            with_causes(error)
        ),
        ..error.report()
    }
}

fn denied_host(denial: &spec::report::Denial) -> Option<String> {
    let reason = denial.reason?;
    Some(format!("connect {}: {}", denial.object, reason.row().words))
}

fn unreachable_host(host: &UnreachableHost) -> String {
    let UnreachableHost {
        host, port, cause, ..
    } = host;
    let host = escape(host.as_bytes());
    format!("connect {host}:{port}: {}", cause.in_words())
}

/// A host at each port; never at all ports.
fn learned_hosts(traffic: &HostTraffic) -> impl Iterator<Item = LearnedHost> {
    traffic.ports.iter().filter_map(|port| {
        let text = match traffic.host.contains(':') {
            true => format!("[{}]:{port}", traffic.host),
            false => format!("{}:{port}", traffic.host),
        };
        // A rule of this form allowed it.
        let rule = EgressRule::parse(&text).ok()?;
        Some(LearnedHost {
            rule,
            connections: traffic.connections,
        })
    })
}

/// The verb, and what was typed after its flags.
fn typed(request: &Request) -> (&'static str, Vec<Vec<u8>>) {
    let bundle = match &request.subject {
        Subject::Command(words) => return (RUN, words.clone()),
        Subject::Sandbox => return ("sandbox create", Vec::new()),
        Subject::Bundle(BundleArgument::Path(path)) => path.as_os_str().as_bytes(),
        Subject::Bundle(BundleArgument::Stdin) => b"-",
    };
    let arguments = &request.bundle.arguments;
    let dashes = (!arguments.is_empty()).then(|| b"--".to_vec());
    let words = [bundle.to_vec()].into_iter().chain(dashes);
    ("exec", words.chain(arguments.iter().cloned()).collect())
}

/// The file of `--merge`, which may not exist yet. Something can be added to each of its lists.
fn read_merged(path: &Path, context: &ProcessContext) -> Result<Option<Merged>, ErrorReport> {
    let owner = (context.uid == 0).then_some(0);
    let bytes = config::read_bytes(path, true, owner).map_err(|error| error.report())?;
    let name = path.as_os_str().as_bytes();
    let shown = escape(name);
    let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
        return Ok(None);
    };
    let statement = host_config::parse(&shown, &bytes);
    let statement = statement.map_err(|error| ConfigError::from(error).report())?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    policy_text::check(&text).map_err(|error| not_merged(name, &error))?;
    Ok(Some(Merged {
        text,
        flags: statement.flags,
    }))
}

fn not_merged(name: &[u8], error: &NotAdded) -> ErrorReport {
    ErrorReport::new(
        "policy_not_merged",
        format!("nothing can be added to {}: {error}", escape(name)),
    )
    .with_hint("write each entry of `ro`, `rw` and `allow_net` on a line of its own: - ENTRY")
}

fn exists_already(name: &[u8]) -> ErrorReport {
    let shown = escape(name);
    ErrorReport::new(
        "policy_exists",
        format!("--output={shown} exists, and its contents would be lost"),
    )
    .with_hint(format!(
        "add --merge to keep what it has, or remove it first: rm {}",
        quoted(&shown)
    ))
}
