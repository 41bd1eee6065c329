//! Reads the command line, runs its verb and returns the exit code.

use std::borrow::Cow;
use std::ffi::OsString;

use crate::cli::args::{self, CommonFlags, MessageFlags, ReportFlags, Verb};
use crate::cli::bundle::bundle;
use crate::cli::cache::{Cache, cache};
use crate::cli::check::check;
use crate::cli::companions::Companion;
use crate::cli::completions::{self, Completions};
use crate::cli::config;
use crate::cli::context::ProcessContext;
use crate::cli::demo::demo;
use crate::cli::doctor::doctor;
use crate::cli::environment::SecretValues;
use crate::cli::events::Events;
use crate::cli::exit_code::exit_code;
use crate::cli::fast_args;
use crate::cli::gc::gc;
use crate::cli::history;
use crate::cli::learn::{LearnFlags, PolicyTarget};
use crate::cli::log;
use crate::cli::output::OutputFlags;
use crate::cli::page_target::PageTarget;
use crate::cli::plan::{self, Invocation};
use crate::cli::print::{Printer, Tone};
use crate::cli::report_target::{REPORT, ReportTarget, TargetError};
use crate::cli::request::build_request;
use crate::cli::sandboxes::{self, Create, Detachment, Sandbox, SandboxVerb, StayFlags};
use crate::cli::schema::{self, Schema};
use crate::cli::source::source;
use crate::cli::summary;
use crate::cli::systemd_scope::enter_scope;
use crate::cli::usage;
use crate::cli::why;
use crate::run::host::early::prefork;
use crate::run::recorder::{RecordFlags, Recorder};
use crate::run::staying::StayingSandbox;
use crate::run::{Followers, execute_last, refused_report};
use sandbox::prefork::Prefork;
use spec::history::AuditPolicy;
use spec::host_policy::{ForbiddenGrant, HostPolicy};
use spec::report::{ErrorReport, Report, WarningReport, with_causes};
use spec::request::Caller;
use sys::detach::Readiness;
use sys::file::CallError;
use sys::signal::own_dispositions;
use sys::stack;
use sys::stdio::open_closed_standard_descriptors;

/// The whole program. `words` is the argument vector, with the program's name first. Returns the exit
/// code.
#[must_use]
pub fn dispatch(words: &[OsString]) -> u8 {
    if let Err(error) = set_up_process() {
        return failed(error.as_ref());
    }
    if fast_args::asks_for_version(words) {
        let printer = plain_printer(&ProcessContext::default());
        return printer.document(fast_args::VERSION, 0);
    }
    match sandboxes::detach_creation(words) {
        Ok(None) => dispatch_verb(words, None),
        Ok(Some(Detachment { readiness, words })) => dispatch_verb(&words, Some(readiness)),
        Err(code) => code,
    }
}

/// `readiness`: this process becomes the supervisor of a sandbox.
fn dispatch_verb(words: &[OsString], readiness: Option<Readiness>) -> u8 {
    let is_run = |word: &OsString| word == "run" || word == "exec";
    // This child makes its namespaces while the command line is read. Dropping it kills it.
    let prefork = words.get(1).is_some_and(is_run).then(prefork).flatten();
    let context = &ProcessContext::read();
    let expanded = expand_help(words);
    let verb = match read(&expanded, context) {
        Ok(verb) => verb,
        Err(code) => return code,
    };
    match verb {
        Verb::Exec(exec) => run_body((*exec).into(), words, context, prefork, Purpose::Run),
        Verb::Run(run) => run_body((*run).into(), words, context, prefork, Purpose::Run),
        Verb::Learn(learn) => {
            let (learn, invocation) = learn.into_run();
            run_body(invocation, words, context, None, Purpose::Learn(learn))
        }
        Verb::Sandbox(Sandbox {
            verb: SandboxVerb::Create(create),
        }) => stay(*create, words, context, readiness),
        Verb::Sandbox(Sandbox {
            verb: SandboxVerb::Restore(restore),
        }) => stay(restore.create, words, context, readiness),
        Verb::Sandbox(Sandbox { verb }) => {
            with_policy(verb.common(), context, |caller, _, printer| {
                sandboxes::sandbox(&verb, context, caller, printer)
            })
        }
        Verb::Plan(invocation) => plan::plan(*invocation, context),
        Verb::Why(arguments) => match arguments.run() {
            Some(run) => with_policy(&arguments.flags.common, context, |caller, _, printer| {
                let json = arguments.flags.report.json.as_deref();
                history::explain(&run.to_string_lossy(), json, caller, printer)
            }),
            None => why::why(*arguments, context),
        },
        Verb::Bundle(args) => with_policy(&args.common, context, |_, policy, printer| {
            bundle(&args, context, policy, printer)
        }),
        Verb::Check(args) => with_policy(&args.output.common, context, |_, policy, printer| {
            check(&args, context, policy, printer)
        }),
        Verb::Doctor(OutputFlags { json, common }) => {
            with_policy(&common, context, |caller, policy, printer| {
                printer.warnings(&enter_scope(caller, words, common.policy.as_deref(), None));
                doctor(caller, policy, printer, json)
            })
        }
        Verb::Demo(common) => with_policy(&common, context, |caller, policy, printer| {
            printer.warnings(&enter_scope(caller, words, common.policy.as_deref(), None));
            demo(caller, policy, printer)
        }),
        Verb::Cache(Cache { verb }) => {
            with_policy(&verb.flags().common, context, |caller, policy, printer| {
                cache(&verb, caller, policy, printer)
            })
        }
        Verb::Source(args) => {
            let verb = &args.verb;
            with_policy(&verb.flags().common, context, |caller, policy, printer| {
                source(verb, context, caller, policy, printer)
            })
        }
        Verb::Ps(args) => with_policy(&args.flags.common, context, |caller, _, printer| {
            history::ps(&args, caller, printer)
        }),
        Verb::Inspect(args) => with_policy(&args.common, context, |caller, _, printer| {
            history::inspect(&args, caller, printer)
        }),
        Verb::Logs(args) => with_policy(&args.common, context, |caller, _, printer| {
            history::logs(&args, caller, printer)
        }),
        Verb::Report(args) => with_policy(&args.common, context, |caller, _, printer| {
            history::report(&args, caller, printer)
        }),
        Verb::Gc(common) => with_policy(&common, context, gc),
        Verb::Mcp(_) | Verb::Serve(_) => {
            Companion::Server.execute(&expanded[1..], &plain_printer(context))
        }
        Verb::Worker(_) | Verb::Submit(_) | Verb::Result(_) => {
            Companion::Worker.execute(&expanded[1..], &plain_printer(context))
        }
        Verb::Completions(Completions { shell }) => {
            plain_printer(context).document(&completions::script(shell), 0)
        }
        Verb::Schema(Schema { name }) => plain_printer(context).document(&schema::text(name), 0),
    }
}

/// Opens closed standard descriptors, sets signal dispositions and reserves the stack.
fn set_up_process() -> Result<(), Box<dyn std::error::Error>> {
    open_closed_standard_descriptors()
        .map_err(|errno| CallError::new("open", "/dev/null", errno))?;
    own_dispositions()
        .map_err(|errno| CallError::new("sigaction", "SIGCHLD, SIGPIPE or SIGXFSZ", errno))?;
    Ok(stack::reserve()?)
}

/// For verbs without flags of their own.
fn plain_printer(context: &ProcessContext) -> Printer {
    Printer::new(MessageFlags::default(), context)
}

fn failed(error: &dyn std::error::Error) -> u8 {
    let printer = plain_printer(&ProcessContext::default());
    printer.failure(&ErrorReport::new("host_failed", with_causes(error)))
}

/// Turns `runner help VERB` into `runner VERB --help`. Drops the words after the verbs, except an
/// unknown verb, which clap reports.
fn expand_help(words: &[OsString]) -> Cow<'_, [OsString]> {
    match words {
        [program, help, rest @ ..] if help == "help" => {
            let program = std::slice::from_ref(program);
            let (depth, has_verbs) = usage::count_verbs(rest);
            let depth = rest.len().min(depth + usize::from(has_verbs));
            Cow::Owned([program, &rest[..depth], &["--help".into()]].concat())
        }
        _ => Cow::Borrowed(words),
    }
}

/// Reads the command line. For a mistake or a request for help, prints it and returns the exit code
/// as the error.
fn read(words: &[OsString], context: &ProcessContext) -> Result<Verb, u8> {
    let verb = match fast_args::read(words, context) {
        Some(verb) => verb,
        None => {
            args::parse(words, &context.variables)
                .map_err(|error| usage::explain(&error, words, context))?
                .verb
        }
    };
    match usage::find_mistake(words, &verb, context) {
        Some(mistake) => Err(usage::refuse(&mistake, words, context)),
        None => Ok(verb),
    }
}

/// What a run is for.
enum Purpose {
    Run,
    Learn(LearnFlags),
    /// `sandbox create`, and whom to tell of its start.
    Stay(StayFlags, Option<Readiness>),
}

/// `sandbox create` and `restore`.
fn stay(
    create: Create,
    words: &[OsString],
    context: &ProcessContext,
    readiness: Option<Readiness>,
) -> u8 {
    let (flags, invocation) = create.into_run();
    // A child that is cloned before its group is known can be in none that is frozen.
    let prefork = None;
    let purpose = Purpose::Stay(flags, readiness);
    run_body(invocation, words, context, prefork, purpose)
}

/// `exec`, `run`, `learn` and `sandbox create`.
fn run_body(
    invocation: Invocation,
    words: &[OsString],
    context: &ProcessContext,
    prefork: Option<Prefork>,
    purpose: Purpose,
) -> u8 {
    let common = &invocation.flags.common;
    let json = invocation.flags.report.json.as_deref();
    let mut printer = Printer::new(common.messages, context);
    if json.is_some_and(ReportTarget::is_standard_output) {
        printer = printer.without_status_line();
    }
    if let Err(error) = log::start(common.messages, &printer, context) {
        return printer.problem("refused", &error);
    }
    let policy_file = common.policy.as_deref();
    let loaded = config::load(context, policy_file);
    let scope_warning = loaded.as_ref().ok().and_then(|(policy, _)| {
        let caller = context.caller(policy);
        enter_scope(&caller, words, policy_file, purpose.readiness())
    });
    let targets = match Targets::open(&invocation.flags.report) {
        Ok(targets) => targets,
        Err(error) => return printer.problem("refused", &error.report()),
    };
    let mut sinks = Sinks {
        targets: Some(&targets),
        has_usage: invocation.flags.report.stats,
        ..Sinks::default()
    };
    let events = match Events::open(invocation.flags.report.events.as_deref()) {
        Ok(events) => events,
        Err(error) => {
            return finish(&printer, sinks, refused_report(error.report()));
        }
    };
    sinks.events = Some(&events);
    let capture = targets.json.as_ref().is_some_and(ReportTarget::captures);
    let audit = loaded
        .as_ref()
        .map_or_else(|_| AuditPolicy::default(), |(policy, _)| policy.audit);
    let wanted = RecordFlags {
        no_record: invocation.flags.report.no_record,
        output: invocation.flags.report.record_output,
    };
    let recorder = match Recorder::open(audit, wanted, context.history_directory()) {
        Ok(recorder) => recorder,
        Err(error) => return finish(&printer, sinks, refused_report(error)),
    };
    sinks.recorder = Some(&recorder);
    let (target, staying) = match purpose.open(context) {
        Ok(opened) => opened,
        Err(error) => return finish(&printer, sinks, refused_report(error)),
    };
    let mut followers = Followers {
        recorder: &recorder,
        events: &events.stream,
        learning: None,
        staying: staying.as_ref(),
    };
    let (policy, forbidden) = match loaded {
        Ok((mut policy, forbidden)) => {
            if let Some(target) = &target {
                policy.flags.extend(&target.flags_of_run());
            }
            (policy, forbidden)
        }
        Err(error) => return finish(&printer, sinks, refused_report(error.report())),
    };
    let request = build_request(invocation, capture, SecretValues::Read, context, &policy);
    let mut request = match request {
        Ok(request) => request,
        Err(error) => return finish(&printer, sinks, refused_report(error.report())),
    };
    let begun = target
        .as_ref()
        .map(|target| target.begin(&mut request, &policy));
    let learning = match begun.transpose() {
        Ok(learning) => learning,
        Err(error) => return finish(&printer, sinks, refused_report(error)),
    };
    followers.learning = learning.as_ref();
    let mut report = execute_last(prefork, &request, &policy, followers);
    report.warnings.extend(scope_warning);
    report.warnings.extend(forbidden.iter().map(warning));
    let learned = target
        .zip(learning)
        .map(|(target, learning)| target.write(learning, &request, &report));
    let code = finish(&printer, sinks, report);
    tell_learned(&printer, learned, code)
}

fn tell_learned(printer: &Printer, learned: Option<Result<String, ErrorReport>>, code: u8) -> u8 {
    match learned {
        None => code,
        Some(Ok(message)) => {
            if !printer.is_quiet() {
                printer.line(Tone::Hint, &message);
            }
            code
        }
        Some(Err(error)) => printer.failure(&error),
    }
}

impl Purpose {
    fn readiness(&self) -> Option<&Readiness> {
        match self {
            Self::Stay(_, readiness) => readiness.as_ref(),
            Self::Run | Self::Learn(_) => None,
        }
    }

    /// The policy to write, or the sandbox.
    fn open(
        self,
        context: &ProcessContext,
    ) -> Result<(Option<PolicyTarget>, Option<StayingSandbox>), ErrorReport> {
        Ok(match self {
            Self::Run => (None, None),
            Self::Learn(flags) => (Some(PolicyTarget::open(flags, context)?), None),
            Self::Stay(flags, readiness) => (None, Some(flags.into_sandbox(readiness)?)),
        })
    }
}

/// Where the report goes, besides the history.
#[derive(Debug, Default)]
struct Targets {
    json: Option<ReportTarget>,
    page: Option<PageTarget>,
}

impl Targets {
    fn open(flags: &ReportFlags) -> Result<Self, TargetError> {
        let page = |file| PageTarget::open(REPORT, file);
        Ok(Self {
            json: flags.json.as_deref().map(ReportTarget::open).transpose()?,
            page: flags.report.as_deref().map(page).transpose()?,
        })
    }

    /// Writes each, also if another one cannot be written.
    fn write(&self, report: &Report) -> Result<(), TargetError> {
        let json = self.json.as_ref().map_or(Ok(()), |json| json.write(report));
        let page = self.page.as_ref().map_or(Ok(()), |page| page.write(report));
        json.and(page)
    }
}

/// What gets the result of a run, besides the terminal.
#[derive(Default, Clone, Copy)]
struct Sinks<'run> {
    targets: Option<&'run Targets>,
    events: Option<&'run Events>,
    recorder: Option<&'run Recorder>,
    /// `--stats`
    has_usage: bool,
}

fn finish(printer: &Printer, sinks: Sinks<'_>, mut report: Report) -> u8 {
    if let Some(events) = sinks.events {
        events.end(&mut report);
    }
    let recorded = sinks
        .recorder
        .map_or(Ok(()), |recorder| recorder.ended(&mut report));
    let report = &report;
    let written = sinks
        .targets
        .map_or(Ok(()), |targets| targets.write(report));
    summary::print(printer, report, sinks.has_usage);
    if let Err(error) = recorded {
        return printer.failure(&error);
    }
    if let Err(error) = written {
        return printer.failure(&error.report());
    }
    let code = report.error.as_ref().map(|error| error.code.as_str());
    exit_code(report.outcome, report.exit, code, report.cancelled_by)
}

/// Loads the configuration and calls `verb`.
fn with_policy(
    common: &CommonFlags,
    context: &ProcessContext,
    verb: impl Fn(&Caller, &HostPolicy, &Printer) -> u8,
) -> u8 {
    let printer = Printer::new(common.messages, context);
    if let Err(error) = log::start(common.messages, &printer, context) {
        return printer.problem("refused", &error);
    }
    match config::load(context, common.policy.as_deref()) {
        Ok((policy, forbidden)) => {
            let warnings: Vec<_> = forbidden.iter().map(warning).collect();
            printer.warnings(&warnings);
            verb(&context.caller(&policy), &policy, &printer)
        }
        Err(error) => printer.problem("refused", &error.report()),
    }
}

pub(super) fn warning(forbidden: &ForbiddenGrant) -> WarningReport {
    let ForbiddenGrant {
        origin,
        grant,
        forbidden_by,
    } = forbidden;
    WarningReport::new(
        "grant_forbidden",
        format!("{origin}: ignoring the grant {grant}: denied by {forbidden_by}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::CommandLine;
    use crate::cli::exit_code::FAILED;
    use clap::{CommandFactory as _, Parser as _};
    use spec::outcome::Outcome;
    use spec::report::Exit;

    fn context() -> ProcessContext {
        ProcessContext {
            variables: [("HOME".into(), "/nonexistent".into())].into(),
            working_directory: Some("/here".into()),
            uid: 1000,
            ..ProcessContext::default()
        }
    }

    fn printer() -> Printer {
        let quiet = MessageFlags {
            quiet: true,
            ..MessageFlags::default()
        };
        Printer::new(quiet, &context())
    }

    fn report(outcome: Outcome, code: Option<i32>) -> Report {
        let mut report = Report::new("id".to_owned(), outcome);
        report.exit = code.map(|code| Exit {
            code: Some(code),
            signal: None,
            core_dump: false,
            raw_status: code << 8,
        });
        report
    }

    #[test]
    fn every_example_of_a_help_is_a_valid_command_line() {
        let mut command = CommandLine::command();
        command.build();
        let mut pending = vec![&command];
        let mut count = 0;
        while let Some(verb) = pending.pop() {
            pending.extend(verb.get_subcommands());
            let help = verb.get_after_help().map(ToString::to_string);
            for line in help.unwrap_or_default().lines() {
                assert!(line.chars().count() <= 100, "clap breaks it: {line}");
                let Some(example) = line.strip_prefix("  runner ") else {
                    continue;
                };
                let words = example.split_whitespace().take_while(|word| *word != ">");
                let read = CommandLine::try_parse_from(["runner"].into_iter().chain(words));
                assert!(read.is_ok(), "{line}: {read:?}");
                assert!(example.contains(verb.get_name()), "{line}");
                count += 1;
            }
        }
        assert!(count >= 20, "{count}");
    }

    #[test]
    fn the_bodys_own_code_passes_through() {
        for code in [0, 1, 42, 255] {
            let exit = finish(
                &printer(),
                Sinks::default(),
                report(Outcome::Exited, Some(code)),
            );
            assert_eq!(i32::from(exit), code);
        }
    }

    #[test]
    fn the_exit_code_of_a_cancelled_run_names_the_signal_that_the_runner_got() {
        let mut cancelled = report(Outcome::Cancelled, Some(0));
        cancelled.cancelled_by = Some(libc::SIGINT);
        assert_eq!(finish(&printer(), Sinks::default(), cancelled), 130);
    }

    #[test]
    fn a_run_whose_report_cannot_be_written_fails() {
        let full = ReportTarget::open("/dev/full".as_ref()).expect("opened");
        let done = report(Outcome::Exited, Some(0));
        let targets = Targets {
            json: Some(full),
            page: None,
        };
        let sinks = Sinks {
            targets: Some(&targets),
            ..Sinks::default()
        };
        assert_eq!(finish(&printer(), sinks, done), FAILED);
    }

    #[test]
    fn help_before_a_verb_is_the_help_of_the_verb() {
        let words = |words: &[&str]| -> Vec<OsString> { words.iter().map(Into::into).collect() };
        for (typed, expanded) in [
            (
                &["runner", "help", "exec"][..],
                &["runner", "exec", "--help"][..],
            ),
            (&["runner", "help"], &["runner", "--help"]),
            (
                &["runner", "help", "source", "build", "x"],
                &["runner", "source", "build", "--help"],
            ),
            (
                &["runner", "help", "run", "--", "echo"],
                &["runner", "run", "--help"],
            ),
            (
                &["runner", "help", "run", "echo"],
                &["runner", "run", "--help"],
            ),
            (
                &["runner", "help", "rnu", "x"],
                &["runner", "rnu", "--help"],
            ),
            (&["runner", "run", "help"], &["runner", "run", "help"]),
            (&["runner"], &["runner"]),
        ] {
            assert_eq!(expand_help(&words(typed)).as_ref(), words(expanded));
        }
    }
}
