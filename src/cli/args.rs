//! Verbs and flags as typed. Opens nothing.
//!
//! Each flag has an environment variable: `RUNNER_OPT_` and the long name in capitals with `_` for `-`.
//! `parse` reads those of repeatable flags, clap the others.
//!
//! Structs of flags have no doc comments: clap would print them as the description of the verb.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Parser as _,
};

use crate::cli::bundle::{BUNDLE_HELP, Bundle};
use crate::cli::cache::Cache;
use crate::cli::check::{CHECK_HELP, Check};
use crate::cli::companions::CompanionWords;
use crate::cli::completions::{COMPLETIONS_HELP, Completions};
use crate::cli::context::VARIABLES_WITHOUT_FLAG;
use crate::cli::help::{DOCTOR_HELP, EXEC_HELP, RUN_HELP, SCHEMA_HELP, VERBS_HELP};
use crate::cli::history::{Inspect, PageOfRun, Ps};
use crate::cli::learn::{LEARN_HELP, Learn};
use crate::cli::limit_flags::{LimitValueFlags, is_of_command};
use crate::cli::network::NetworkFlags;
use crate::cli::output::OutputFlags;
use crate::cli::plan::{Invocation, PLAN_HELP};
use crate::cli::sandboxes::Sandbox;
use crate::cli::schema::Schema;
use crate::cli::source::Source;
use crate::cli::why::{WHY_HELP, Why};
use spec::did_you_mean::nearest;
use spec::host_policy::{GRANT_WORDS, grants_named};
use spec::request::Grants;
use spec::units::parse_duration;
use sys::signal_name::parse_signal;

/// Runs untrusted bundles confined and limited, and reports what happened.
#[derive(Debug, clap::Parser)]
#[command(
    name = "runner",
    version,
    after_help = VERBS_HELP,
    args_override_self = true,
    max_term_width = 100
)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
// Deferred: the flags of other verbs are never built.
#[command(disable_help_subcommand = true, defer = true)]
pub enum Verb {
    /// Run a bundle: unpack it, confine its body, stage and sync its files, report
    #[command(after_help = EXEC_HELP, args_override_self = true)]
    Exec(Box<Exec>),
    /// Run a command of this host, confined the same way, without a bundle
    #[command(after_help = RUN_HELP, args_override_self = true)]
    Run(Box<Run>),
    /// Run a command or a bundle confined, and write the smallest policy that lets it do the same
    #[command(after_help = LEARN_HELP, args_override_self = true)]
    Learn(Box<Learn>),
    /// Create sandboxes that stay, and run commands in them
    #[command(args_override_self = true)]
    Sandbox(Sandbox),
    /// Make a bundle of a manifest and its sources
    #[command(after_help = BUNDLE_HELP, args_override_self = true)]
    Bundle(Box<Bundle>),
    /// Show what `exec` or `run` would do, who decided each part, and whether it would start
    #[command(after_help = PLAN_HELP, args_override_self = true)]
    Plan(Box<Invocation>),
    /// Explain which rule allows or denies a path, a host or a system call, and what changes it
    #[command(after_help = WHY_HELP, args_override_self = true)]
    Why(Box<Why>),
    /// Print all errors of a manifest, its blocks and its references
    #[command(after_help = CHECK_HELP, args_override_self = true)]
    Check(Check),
    /// Show what this host can enforce, and how to fix what it cannot
    #[command(after_help = DOCTOR_HELP)]
    Doctor(OutputFlags),
    /// Run a built-in bundle that tries what is allowed and what is not, and show the result
    #[command(after_help = "Examples:\n  runner demo\n\nExit codes: 0 all as promised; 125 not.")]
    Demo(CommonFlags),
    /// Print a JSON Schema of this program's documents
    #[command(after_help = SCHEMA_HELP)]
    Schema(Schema),
    /// Print the completions of a shell: verbs, flags and their values
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(Completions),
    /// List the runs of this user that go on, with -a also those that ended
    #[command(
        after_help = "Examples:\n  runner ps\n  runner ps -a --json",
        args_override_self = true
    )]
    Ps(Ps),
    /// Print the report of a run of this user, which has ended
    #[command(
        after_help = "Examples:\n  runner inspect\n  runner inspect 01m8bn",
        args_override_self = true
    )]
    Inspect(Inspect),
    /// Print what the body of a run wrote, if --record-output kept it
    #[command(
        after_help = "Examples:\n  runner logs\n  runner logs 01m8bn",
        args_override_self = true
    )]
    Logs(Inspect),
    /// Write the report of a run of this user, which has ended, as a page
    #[command(
        after_help = "Examples:\n  runner report -o report.html\n  runner report 01m8bn -o report.html",
        args_override_self = true
    )]
    Report(PageOfRun),
    /// Remove what killed supervisors left behind; live runs are not affected
    #[command(after_help = "Examples:\n  runner gc\n  runner gc -q")]
    Gc(CommonFlags),
    /// List, remove or verify the unpacked bundles that are kept for the next run
    #[command(args_override_self = true)]
    Cache(Cache),
    /// Build, push, pull and inspect source artifacts, which workspaceSources of a manifest name
    #[command(args_override_self = true)]
    Source(Box<Source>),
    /// Offer a sandbox to an agent as tools of the Model Context Protocol
    Mcp(CompanionWords),
    /// Offer sandboxes that stay over HTTP, on a unix socket
    Serve(CompanionWords),
    /// Take runs from a stream of NATS JetStream, and keep their results
    Worker(CompanionWords),
    /// Submit a run to workers
    Submit(CompanionWords),
    /// Print the report of a run that was submitted
    Result(CompanionWords),
}

#[derive(Debug, clap::Args)]
pub struct Exec {
    /// A .tar.gz, a directory, or - to read the archive from standard input
    pub bundle: PathBuf,
    #[command(flatten)]
    pub flags: RunFlags,
    /// Appended to the body's arguments
    #[arg(last = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct Run {
    #[command(flatten)]
    pub flags: RunFlags,
    /// The program and its arguments; the first word that is not a flag ends the flags
    // No allow_hyphen_values: it would take a misspelt flag for the program.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Adds the variable of a flag. For a switch its value is yes or no.
fn with_variable(flag: Arg) -> Arg {
    let Some(long) = flag.get_long().filter(|_| flag.get_env().is_none()) else {
        return flag;
    };
    let name = variable_of(long);
    match flag.get_action() {
        ArgAction::SetTrue if WITHOUT_VARIABLE.contains(&long) => flag,
        ArgAction::Set if QUESTIONS.contains(&long) || is_of_command(&flag) => flag,
        ArgAction::SetTrue => flag
            .env(name)
            .hide_env_values(true)
            .value_parser(BoolishValueParser::new()),
        ArgAction::Set | ArgAction::Count => flag.env(name).hide_env_values(true),
        ArgAction::Append if long == POLICY => flag.env(name).hide_env_values(true),
        // `parse` reads the variables of lists.
        _ => flag,
    }
}

const VARIABLE_PREFIX: &str = "RUNNER_OPT_";

/// Switches that make sense for one call only, and `--rm`, which has no effect.
const WITHOUT_VARIABLE: [&str; 3] = ["all", "json", "rm"];

/// Values that are others each time: the question of `why`, the name of a sandbox.
const QUESTIONS: [&str; 5] = ["host", "name", "op", "path", "syscall"];

const POLICY: &str = "policy";

// Every flag of `exec` and `run`.
#[derive(Debug, Default, clap::Args)]
pub struct RunFlags {
    #[command(flatten)]
    pub view: ViewFlags,
    #[command(flatten)]
    pub bundle: BundleFlags,
    #[command(flatten)]
    pub oci: OciFlags,
    #[command(flatten)]
    pub environment: EnvironmentFlags,
    #[command(flatten)]
    pub network: NetworkFlags,
    #[command(flatten)]
    pub limits: LimitFlags,
    #[command(flatten)]
    pub process: ProcessFlags,
    #[command(flatten)]
    pub policy: PolicyFlags,
    #[command(flatten)]
    pub report: ReportFlags,
    #[command(flatten)]
    pub common: CommonFlags,
}

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "What the body sees")]
pub struct ViewFlags {
    /// Make a path of the host visible, read-only, at the same path
    #[arg(long, value_name = "PATH")]
    pub ro: Vec<PathBuf>,
    /// Make a path of the host visible and writable, at the same path
    #[arg(long, value_name = "PATH")]
    pub rw: Vec<PathBuf>,
    /// Let the body connect to a unix socket of the host, at the same path
    #[arg(long, value_name = "PATH")]
    pub socket: Vec<PathBuf>,
    /// Make a path of the host visible at another path; writable without :ro
    #[arg(long, value_name = "SRC:DST[:ro]")]
    pub mount: Vec<OsString>,
    /// A private, empty, writable directory
    #[arg(long, value_name = "DST[:SIZE]")]
    pub tmpfs: Vec<OsString>,
    /// The working directory of the body
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
}

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "The bundle")]
pub struct BundleFlags {
    /// Use this manifest instead of the bundle's, or its `sandbox` block for a command; it grants what it asks for
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Replace the manifest's run: a string, or a JSON array or object
    #[arg(long, value_name = "VALUE")]
    pub run: Option<String>,
    /// Where declared input files come from and output files go back to
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// The structured input: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE|@-")]
    pub inputs: Option<OsString>,
    /// Stage a file of the workspace at /scratch/KEY
    #[arg(long = "in", value_name = "KEY=PATH")]
    pub input_files: Vec<String>,
    /// Sync /scratch/KEY to a path of the workspace
    #[arg(long = "out", value_name = "KEY=PATH")]
    pub output_files: Vec<String>,
    /// Put all declared output files into this directory instead of the workspace
    #[arg(long, value_name = "DIR")]
    pub out_dir: Option<PathBuf>,
    /// Keep a copy of the scratch root and print its path
    #[arg(long)]
    pub keep: bool,
    /// Unpack the bundle for this run alone: neither use nor fill the cache
    #[arg(long)]
    pub no_cache: bool,
    /// Hash the archive also if device, inode, size, mtime and ctime are unchanged
    #[arg(long)]
    pub no_trust_mtime: bool,
}

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Images and workspace sources")]
pub struct OciFlags {
    /// The root file system of the body, for engine: sandbox, from a registry or an OCI layout
    #[arg(long, value_name = "docker://REF|oci:DIR")]
    pub image: Option<OsString>,
    /// Accept references by tag; without it only digests are accepted
    #[arg(long)]
    pub allow_tags: bool,
    /// Use plain HTTP for registries
    #[arg(long)]
    pub insecure: bool,
}

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Environment (empty by default)")]
pub struct EnvironmentFlags {
    /// Set a variable; without =VALUE its value is taken from your environment
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// Read NAME=VALUE lines (# starts a comment), or what `env -0` writes; values are taken as they are
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Grant a secret as a variable; REF is env:VAR or file:PATH (one newline at its end is left out)
    #[arg(long, value_name = "NAME=REF")]
    pub secret: Vec<OsString>,
}

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitFlags {
    #[command(flatten)]
    pub values: LimitValueFlags,
    /// Time between the stop signal and SIGKILL; 0s: SIGKILL only
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Which limits are refused [default: stated ones that this host cannot enforce at all]
    #[arg(long, value_name = "MODE")]
    pub limits: Option<LimitsArgument>,
    /// What happens at --max-output [default: drop]
    #[arg(long, value_name = "WHAT")]
    pub on_output_limit: Option<OnOutputLimitArgument>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LimitsArgument {
    /// Also those that this host enforces only weakly
    Require,
    /// None
    BestEffort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnOutputLimitArgument {
    /// Count and discard the rest
    Drop,
    /// End the run
    Kill,
}

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "The process")]
pub struct ProcessFlags {
    /// Pass standard input to the body
    #[arg(short, long)]
    pub interactive: bool,
    /// Give the body a terminal of its own
    #[arg(short, long)]
    pub tty: bool,
    /// Accepted for compatibility with docker, without effect: a run is always removed
    #[arg(long)]
    pub rm: bool,
    /// The signal that asks the body to end, a name or a number [default: SIGTERM]
    #[arg(long, value_name = "SIGNAL", value_parser = parse_signal)]
    pub stop_signal: Option<i32>,
}

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyFlags {
    /// Refuse to run if any layer of the sandbox is missing or old
    #[arg(long)]
    pub strict: bool,
    /// Grant what the bundle's own manifest asks for
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(GRANT_WORDS).try_map(|name| grants_named(&name).ok_or("no grant"))
    )]
    pub grant: Vec<Grants>,
    /// Allow unix sockets also with mounted directories: the body can connect to sockets in them
    #[arg(long)]
    pub unix_sockets: bool,
    /// The system call policy; the host's configuration may require the stricter one
    #[arg(long, value_name = "POLICY")]
    pub syscalls: Option<SyscallsArgument>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SyscallsArgument {
    /// Allow the calls that common programs need
    Default,
    /// Refuse also those that only few programs need
    Strict,
}

// The flags of every verb but `schema`. Flattened last: `mut_args` covers the flags before it.
#[derive(Debug, Default, clap::Args)]
#[command(mut_args = with_variable)]
pub struct CommonFlags {
    #[command(flatten)]
    pub messages: MessageFlags,
    /// One more configuration file; it can tighten the host's, and loosen only what the host's leaves open
    // Appended, so that `parse` sees a second one: `args_override_self` would drop the first.
    #[arg(long, value_name = "FILE", help_heading = "Policy", action = ArgAction::Append)]
    pub policy: Option<PathBuf>,
}

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch")]
pub struct ReportFlags {
    /// Write the report to standard output, with the body's output inside it, to a file, or to an open descriptor
    #[arg(long, value_name = "FILE|fd:N", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub json: Option<OsString>,
    /// Write a line of JSON for each event of the run, while it goes on, to a file or an open descriptor
    #[arg(long, value_name = "FILE|fd:N")]
    pub events: Option<OsString>,
    /// Write the report to a file as a page, which loads nothing and runs no script
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<OsString>,
    /// Do not keep this run in the history that `runner ps` and `runner inspect` show
    #[arg(long)]
    pub no_record: bool,
    /// Keep the first MiB of each output stream in the history, too, for `runner logs`
    #[arg(long)]
    pub record_output: bool,
    /// Show memory, CPU and processes with their limits: a live line on a terminal, and a line at the end
    #[arg(long)]
    pub stats: bool,
    /// Report the files that the body could not use because of its view; calls with paths take longer
    #[arg(long)]
    pub trace: bool,
}

// What is written to standard error.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct MessageFlags {
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
    /// Print details too; twice: also the time of each step of a run
    #[arg(short, long, action = clap::ArgAction::Count, value_parser = verbosity)]
    pub verbose: u8,
    /// Colour messages [default: auto, on a terminal where NO_COLOR is not set]
    #[arg(long, value_name = "WHEN")]
    pub color: Option<ColorArgument>,
    /// Write a log to standard error; RUNNER_LOG sets its level [default: debug]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// A line for each event and each phase
    Text,
    /// The same, each line a JSON document
    Json,
}

/// A number, or yes or no as in the variables of other flags.
fn verbosity(text: &str) -> Result<u8, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "y" | "on" | "t" => Ok(1),
        "false" | "no" | "n" | "off" | "f" | "" => Ok(0),
        number => number
            .parse()
            .map_err(|_error| "is neither a number nor yes or no".to_owned()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorArgument {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The description of the command line.
#[must_use]
pub fn command() -> Command {
    CommandLine::command()
}

/// Reads a command line. A repeatable flag that is not on it gets the entries of its variable, which
/// are separated by commas, or by lines if they can contain a comma.
///
/// # Errors
/// What clap reports, a second `--policy`, a variable that is not UTF-8 where its flag must be, and one
/// that belongs to no flag: with a misspelt name a limit would silently not apply.
pub(crate) fn parse(
    words: &[OsString],
    variables: &BTreeMap<OsString, OsString>,
) -> Result<CommandLine, clap::Error> {
    let mut command = CommandLine::command();
    let matches = command.try_get_matches_from_mut(words)?;
    refuse_unknown_variable(variables)?;
    // The flags of the innermost verb: of `build` for `runner source build`.
    let (mut verb, mut given, mut depth) = (&command, &matches, 1);
    while let Some((name, below)) = given.subcommand() {
        let Some(found) = verb.find_subcommand(name) else {
            break;
        };
        (verb, given, depth) = (found, below, depth + 1);
    }
    let policies = given.try_get_many::<PathBuf>(POLICY).ok().flatten();
    if policies.is_some_and(|files| files.len() > 1) {
        let message = "the argument '--policy <FILE>' cannot be used multiple times\n";
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message));
    }
    let of_variables = words_of_lists(verb, given, variables)?;
    if of_variables.is_empty() {
        return CommandLine::from_arg_matches(&matches);
    }
    let (verbs, rest) = words.split_at(depth);
    CommandLine::try_parse_from(verbs.iter().chain(&of_variables).chain(rest))
}

/// A word `--FLAG=ENTRY` for each entry of the variable of a repeatable flag that is not given.
fn words_of_lists(
    verb: &Command,
    given: &ArgMatches,
    variables: &BTreeMap<OsString, OsString>,
) -> Result<Vec<OsString>, clap::Error> {
    let mut words = Vec::new();
    for flag in verb.get_arguments() {
        let Some(long) = flag.get_long().filter(|_| is_list(flag)) else {
            continue;
        };
        if given.value_source(flag.get_id().as_str()).is_some() {
            continue;
        }
        let name = variable_of(long);
        let taken = flag.get_value_parser().type_id();
        let is_text = taken != TypeId::of::<OsString>() && taken != TypeId::of::<PathBuf>();
        for entry in entries(variables, &name, separator(long)) {
            if is_text && entry.to_str().is_none() {
                let message = format!("the variable {name} is not UTF-8\n");
                return Err(clap::Error::raw(ErrorKind::InvalidUtf8, message));
            }
            let mut word = OsString::from(format!("--{long}="));
            word.push(entry);
            words.push(word);
        }
    }
    Ok(words)
}

/// The variables that set a flag, by their prefix.
pub(super) fn flag_variables(
    variables: &BTreeMap<OsString, OsString>,
) -> impl Iterator<Item = &OsString> {
    variables.keys().filter(|name| {
        name.as_bytes().starts_with(VARIABLE_PREFIX.as_bytes())
            && VARIABLES_WITHOUT_FLAG.iter().all(|known| name != known)
    })
}

fn refuse_unknown_variable(variables: &BTreeMap<OsString, OsString>) -> Result<(), clap::Error> {
    // The description of every verb is built only if there is a variable to look for.
    if flag_variables(variables).next().is_none() {
        return Ok(());
    }
    let mut known: BTreeSet<String> = VARIABLES_WITHOUT_FLAG.map(str::to_owned).into();
    let mut command = CommandLine::command();
    command.build();
    let mut verbs = vec![&command];
    while let Some(verb) = verbs.pop() {
        verbs.extend(verb.get_subcommands());
        let flags = verb.get_arguments();
        let flags = flags.filter(|flag| flag.get_env().is_some() || is_list(flag));
        known.extend(flags.filter_map(Arg::get_long).map(variable_of));
    }
    for name in flag_variables(variables) {
        let name = name.to_string_lossy();
        if known.contains(&*name) {
            continue;
        }
        let near = nearest(&name, known.iter().map(String::as_str));
        let tip = near.map(|near| format!("\n\n  tip: a similar variable exists: '{near}'"));
        let message = format!(
            "the variable {name} belongs to no flag{}\n",
            tip.unwrap_or_default()
        );
        return Err(clap::Error::raw(ErrorKind::UnknownArgument, message));
    }
    Ok(())
}

fn is_list(flag: &Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Append) && flag.get_env().is_none()
}

fn variable_of(long: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", long.to_uppercase().replace('-', "_"))
}

fn separator(long: &str) -> u8 {
    match long {
        "env" | "env-file" | "label" | "secret" => b'\n',
        _ => b',',
    }
}

/// The entries of a variable, without empty ones.
fn entries(
    variables: &BTreeMap<OsString, OsString>,
    name: &str,
    separator: u8,
) -> impl Iterator<Item = OsString> {
    let text = variables.get(OsStr::new(name)).map(OsString::as_os_str);
    text.unwrap_or_default()
        .as_bytes()
        .split(move |byte| *byte == separator)
        .filter(|entry| !entry.is_empty())
        .map(|entry| OsString::from_vec(entry.to_vec()))
}
