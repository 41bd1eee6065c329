//! Runs the verb of the command line and returns an exit code.

use std::borrow::Cow;
use std::ffi::OsString;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser as _;

use crate::cli::args::{CommandLine, CommonFlags, MessageFlags, Schema, Verb};
use crate::cli::bundle::bundle;
use crate::cli::cache::{Cache, cache};
use crate::cli::check::check;
use crate::cli::config;
use crate::cli::context::ProcessContext;
use crate::cli::demo::demo;
use crate::cli::doctor::doctor;
use crate::cli::environment::SecretValues;
use crate::cli::exit_code::exit_code;
use crate::cli::fast_args;
use crate::cli::gc::gc;
use crate::cli::log;
use crate::cli::output::OutputFlags;
use crate::cli::plan::{self, Invocation};
use crate::cli::print::Printer;
use crate::cli::report_target::ReportTarget;
use crate::cli::request::build_request;
use crate::cli::schema;
use crate::cli::source::source;
use crate::cli::summary;
use crate::cli::systemd_scope::enter_scope;
use crate::cli::usage;
use crate::run::early::prefork;
use crate::run::{execute_in, random_bytes};
use sandbox::prefork::Prefork;
use spec::host_policy::{ForbiddenGrant, HostPolicy};
use spec::outcome::Outcome;
use spec::report::{ErrorReport, Report, WarningReport, with_causes};
use spec::request::Caller;
use spec::ulid::ulid;
use spec::utc::text_of_milliseconds;
use sys::file::CallError;
use sys::signal::{default_faults, own_dispositions};
use sys::stack;

/// The whole program. `words` is the argument vector, with the program's name first. Returns the exit
/// code.
#[must_use]
pub fn dispatch(words: &[OsString]) -> u8 {
    if let Err(error) = set_up_process() {
        return failed(error.as_ref());
    }
    if fast_args::asks_for_version(words) {
        let printer = Printer::new(MessageFlags::default(), &ProcessContext::default());
        return printer.document(fast_args::VERSION, 0);
    }
    let is_run = |word: &OsString| word == "run" || word == "exec";
    // It makes its namespaces while the command line is read. Drop kills it if no run takes it.
    let prefork = words.get(1).is_some_and(is_run).then(prefork).flatten();
    let context = &ProcessContext::read();
    let verb = match read(&expand_help(words), context) {
        Ok(verb) => verb,
        Err(code) => return code,
    };
    match verb {
        Verb::Exec(exec) => run_body((*exec).into(), words, context, prefork),
        Verb::Run(run) => run_body((*run).into(), words, context, prefork),
        Verb::Plan(invocation) => plan::plan(*invocation, context),
        Verb::Bundle(args) => with_policy(&args.common, context, |_, policy, printer| {
            bundle(&args, context, policy, printer)
        }),
        Verb::Check(args) => with_policy(&args.output.common, context, |_, policy, printer| {
            check(&args, context, policy, printer)
        }),
        Verb::Doctor(OutputFlags { json, common }) => {
            with_policy(&common, context, |caller, policy, printer| {
                printer.warnings(&enter_scope(caller, words));
                doctor(caller, policy, printer, json)
            })
        }
        Verb::Demo(common) => with_policy(&common, context, |caller, policy, printer| {
            printer.warnings(&enter_scope(caller, words));
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
        Verb::Gc(common) => with_policy(&common, context, gc),
        Verb::Schema(Schema { name }) => {
            let printer = Printer::new(MessageFlags::default(), context);
            printer.document(&schema::text(name), 0)
        }
    }
}

/// Sets signal dispositions and reserves the stack.
fn set_up_process() -> Result<(), Box<dyn std::error::Error>> {
    own_dispositions()
        .and_then(|()| default_faults())
        .map_err(|errno| {
            let signals = "SIGCHLD, SIGPIPE, SIGSEGV and SIGBUS";
            CallError::new("sigaction", signals, errno)
        })?;
    Ok(stack::reserve()?)
}

fn failed(error: &dyn std::error::Error) -> u8 {
    let printer = Printer::new(MessageFlags::default(), &ProcessContext::default());
    printer.failure(&ErrorReport {
        code: "host_failed".to_owned(),
        message: with_causes(error),
        hint: None,
    })
}

/// Turns `runner help VERB` into `runner VERB --help`.
fn expand_help(words: &[OsString]) -> Cow<'_, [OsString]> {
    match words {
        [program, help, verb @ ..] if help == "help" => {
            Cow::Owned([std::slice::from_ref(program), verb, &["--help".into()]].concat())
        }
        _ => Cow::Borrowed(words),
    }
}

/// Reads the command line. The error is the exit code, after the help or the mistake is printed.
fn read(words: &[OsString], context: &ProcessContext) -> Result<Verb, u8> {
    let verb = match fast_args::read(words, context) {
        Some(verb) => verb,
        None => {
            CommandLine::try_parse_from(words)
                .map_err(|error| usage::explain(&error, words, context))?
                .verb
        }
    };
    match usage::misread(words, &verb) {
        Some(mistake) => Err(usage::refuse(&mistake, words, context)),
        None => Ok(verb),
    }
}

/// `exec` and `run`.
fn run_body(
    invocation: Invocation,
    words: &[OsString],
    context: &ProcessContext,
    prefork: Option<Prefork>,
) -> u8 {
    let common = &invocation.flags.common;
    let printer = Printer::new(common.messages, context);
    if let Err(error) = log::start(common.messages, &printer, context) {
        return printer.problem("refused", &error);
    }
    let json = invocation.flags.report.json.as_deref();
    let target = match json.map(ReportTarget::open).transpose() {
        Ok(target) => target,
        Err(error) => return printer.problem("refused", &error.report()),
    };
    let capture = target.as_ref().is_some_and(ReportTarget::captures);
    let report = match config::load(context, common.policy.as_deref()) {
        Err(error) => refused(error.report()),
        Ok((policy, forbidden)) => {
            match build_request(invocation, capture, SecretValues::Read, context, &policy) {
                Err(error) => refused(error.report()),
                Ok(request) => {
                    let no_scope = enter_scope(&request.caller, words);
                    let mut report = execute_in(prefork, &request, &policy);
                    report.warnings.extend(no_scope);
                    report.warnings.extend(forbidden.iter().map(warning));
                    report
                }
            }
        }
    };
    finish(&printer, target.as_ref(), &report)
}

fn finish(printer: &Printer, target: Option<&ReportTarget>, report: &Report) -> u8 {
    let written = target.map_or(Ok(()), |target| target.write(report));
    summary::print(printer, report);
    if let Err(error) = written {
        return printer.failure(&error.report());
    }
    let code = report.error.as_ref().map(|error| error.code.as_str());
    exit_code(report.outcome, report.exit, code, report.cancelled_by)
}

/// Calls `verb` with the configuration loaded.
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
        format!("{origin}: the grant {grant} is ignored: {forbidden_by} denies it"),
    )
}

/// The report of an invocation that was refused before a run.
pub(super) fn refused(error: ErrorReport) -> Report {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    // Without randomness the id may not be unique, but nothing on the host is named by it.
    let random = random_bytes().unwrap_or_default();
    let mut report = Report::new(ulid(now_ms, random), Outcome::Refused);
    report.started_at = text_of_milliseconds(now_ms);
    report.error = Some(error);
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit_code::FAILED;
    use clap::CommandFactory as _;
    use spec::report::Exit;

    fn context() -> ProcessContext {
        ProcessContext {
            variables: [("HOME".into(), "/nonexistent".into())].into(),
            working_directory: Some("/here".into()),
            uid: 1000,
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
        let mut left = vec![&command];
        let mut count = 0;
        while let Some(verb) = left.pop() {
            left.extend(verb.get_subcommands());
            let help = verb.get_after_help().map(ToString::to_string);
            for line in help.unwrap_or_default().lines() {
                let Some(example) = line.strip_prefix("  runner ") else {
                    continue;
                };
                let words = example.split_whitespace().take_while(|word| *word != ">");
                let read = CommandLine::try_parse_from(["runner"].into_iter().chain(words));
                assert!(read.is_ok(), "{line}: {read:?}");
                assert!(example.starts_with(verb.get_name()) || example.contains(verb.get_name()));
                count += 1;
            }
        }
        assert!(20 <= count, "{count}");
    }

    #[test]
    fn the_bodys_own_code_passes_through() {
        for code in [0, 1, 42, 255] {
            let exit = finish(&printer(), None, &report(Outcome::Exited, Some(code)));
            assert_eq!(i32::from(exit), code);
        }
    }

    #[test]
    fn the_signal_that_the_runner_got_is_the_one_of_the_exit_code() {
        let mut cancelled = report(Outcome::Cancelled, Some(0));
        cancelled.cancelled_by = Some(libc::SIGINT);
        assert_eq!(finish(&printer(), None, &cancelled), 130);
    }

    #[test]
    fn a_report_that_cannot_be_written_after_the_run_is_no_success() {
        let full = ReportTarget::open("/dev/full".as_ref()).expect("opened");
        let done = report(Outcome::Exited, Some(0));
        assert_eq!(finish(&printer(), Some(&full), &done), FAILED);
    }

    #[test]
    fn help_in_front_of_a_verb_is_the_verbs_own_help() {
        let words = |words: &[&str]| -> Vec<OsString> { words.iter().map(Into::into).collect() };
        for (typed, meant) in [
            (
                &["runner", "help", "exec"][..],
                &["runner", "exec", "--help"][..],
            ),
            (&["runner", "help"], &["runner", "--help"]),
            (&["runner", "run", "help"], &["runner", "run", "help"]),
            (&["runner"], &["runner"]),
        ] {
            assert_eq!(expand_help(&words(typed)).as_ref(), words(meant));
        }
    }
}
