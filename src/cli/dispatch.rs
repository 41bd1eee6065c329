//! From the command line to an exit code: one call per verb.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Read as _;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser as _;

use crate::cli::args::{CommandLine, PolicyFile, RunFlags, Schema, Verb, VoiceFlags};
use crate::cli::bundle::bundle;
use crate::cli::cache::{Cache, cache};
use crate::cli::check::check;
use crate::cli::config;
use crate::cli::demo::demo;
use crate::cli::doctor::doctor;
use crate::cli::exit_code::{FAILED, exit_code};
use crate::cli::fast_args;
use crate::cli::gc::gc;
use crate::cli::log;
use crate::cli::plan;
use crate::cli::print::{Printer, Tone};
use crate::cli::report_target::ReportTarget;
use crate::cli::request::{RequestError, of_exec, of_run};
use crate::cli::schema;
use crate::cli::source::source;
use crate::cli::summary;
use crate::cli::surroundings::Surroundings;
use crate::cli::systemd_scope::enter_scope;
use crate::cli::usage;
use crate::run::execute_in;
use crate::run::host::early::prefork;
use sandbox::prefork::Prefork;
use spec::host_policy::{ForbiddenGrant, HostPolicy};
use spec::outcome::Outcome;
use spec::report::{ErrorReport, Report, WarningReport, with_causes};
use spec::request::{Caller, Request};
use spec::ulid::ulid;
use spec::utc::text_of_milliseconds;
use sys::file::CallError;
use sys::signal::{default_faults, own_dispositions};
use sys::stack;

/// The whole program: does what `words` ask, and says with which code to exit. The first word is the
/// program's own name.
#[must_use]
pub fn dispatch(words: &[OsString]) -> u8 {
    if let Err(error) = settle_process() {
        return failed(error.as_ref());
    }
    if fast_args::asks_for_version(words) {
        let printer = Printer::new(VoiceFlags::default(), &Surroundings::default());
        return document(&printer, fast_args::VERSION);
    }
    let is_run = |word: &OsString| word == "run" || word == "exec";
    // Its namespaces are made while the command line is read. Where no run comes of it, it is
    // dropped at the end.
    let early = words.get(1).is_some_and(is_run).then(prefork).flatten();
    let around = &Surroundings::read();
    let verb = match read(&spelled_out(words), around) {
        Ok(verb) => verb,
        Err(code) => return code,
    };
    match verb {
        Verb::Exec(exec) => one_run(
            &exec.flags.ends(),
            words,
            around,
            early,
            |capture, policy| of_exec(*exec, capture, around, policy),
        ),
        Verb::Run(run) => one_run(
            &run.flags.ends(),
            words,
            around,
            early,
            |capture, policy| of_run(*run, capture, around, policy),
        ),
        Verb::Bundle(asked) => {
            with_policy(asked.voice, &asked.policy, around, |_, policy, printer| {
                bundle(&asked, around, policy, printer)
            })
        }
        Verb::Plan(asked) => plan::plan(*asked, around),
        Verb::Check(asked) => {
            with_policy(asked.voice, &asked.policy, around, |_, policy, printer| {
                check(&asked, around, policy, printer)
            })
        }
        Verb::Doctor(asked) => with_policy(
            asked.voice,
            &asked.policy,
            around,
            |caller, policy, printer| {
                printer.warnings(&enter_scope(caller, words));
                doctor(caller, policy, printer, asked.json)
            },
        ),
        Verb::Demo(asked) => with_policy(
            asked.voice,
            &asked.policy,
            around,
            |caller, policy, printer| {
                printer.warnings(&enter_scope(caller, words));
                demo(caller, policy, printer)
            },
        ),
        Verb::Cache(Cache { what }) => {
            let flags = what.flags();
            with_policy(
                flags.voice,
                &flags.policy,
                around,
                |caller, policy, printer| cache(&what, caller, policy, printer),
            )
        }
        Verb::Source(asked) => {
            let (voice, file) = asked.what.frame();
            with_policy(voice, file, around, |caller, policy, printer| {
                source(&asked.what, around, caller, policy, printer)
            })
        }
        Verb::Gc(asked) => with_policy(asked.voice, &asked.policy, around, gc),
        Verb::Schema(Schema { name }) => {
            let printer = Printer::new(VoiceFlags::default(), around);
            document(&printer, &schema::text(name))
        }
    }
}

/// Signals as this program has them, and room for a stack as large as was ever needed.
fn settle_process() -> Result<(), Box<dyn std::error::Error>> {
    own_dispositions()
        .and_then(|()| default_faults())
        .map_err(|errno| {
            let signals = "SIGCHLD, SIGPIPE, SIGSEGV and SIGBUS";
            CallError::new("sigaction", signals, errno)
        })?;
    Ok(stack::reserve()?)
}

fn failed(error: &dyn std::error::Error) -> u8 {
    let printer = Printer::new(VoiceFlags::default(), &Surroundings::default());
    let problem = with_causes(error);
    printer.line(Tone::Error, &format!("failed: {problem} (host_failed)"));
    FAILED
}

/// `runner help VERB` is `runner VERB --help`, whatever VERB is.
fn spelled_out(words: &[OsString]) -> Cow<'_, [OsString]> {
    let [program, help, verb @ ..] = words else {
        return Cow::Borrowed(words);
    };
    match help == "help" {
        true => Cow::Owned([std::slice::from_ref(program), verb, &["--help".into()]].concat()),
        false => Cow::Borrowed(words),
    }
}

/// Reads the command line; the exit code where it asks for nothing that can be done.
fn read(words: &[OsString], surroundings: &Surroundings) -> Result<Verb, u8> {
    let read = match fast_args::read(words, surroundings) {
        Some(plain) => plain,
        None => {
            CommandLine::try_parse_from(words)
                .map_err(|error| usage::explain(&error, words, surroundings))?
                .verb
        }
    };
    match usage::misread(words, &read) {
        Some(mistake) => Err(usage::refuse(&mistake, words, surroundings)),
        None => Ok(read),
    }
}

/// Prints `text` on standard output; the exit code.
#[must_use]
pub fn document(printer: &Printer, text: &str) -> u8 {
    match printer.document(text) {
        Ok(()) => 0,
        Err(errno) => {
            printer.line(
                Tone::Error,
                &format!("failed: standard output cannot be written: {errno} (output_unwritable)"),
            );
            FAILED
        }
    }
}

/// The flags that frame a run: they are needed before and after the request.
struct Ends {
    voice: VoiceFlags,
    policy: PolicyFile,
    json: Option<OsString>,
}

impl RunFlags {
    fn ends(&self) -> Ends {
        Ends {
            voice: self.voice,
            policy: PolicyFile {
                policy: self.policy_file.policy.clone(),
            },
            json: self.report.json.clone(),
        }
    }
}

fn one_run(
    ends: &Ends,
    words: &[OsString],
    surroundings: &Surroundings,
    early: Option<Prefork>,
    request: impl FnOnce(bool, &HostPolicy) -> Result<Request, RequestError>,
) -> u8 {
    let printer = Printer::new(ends.voice, surroundings);
    if let Err(error) = log::start(ends.voice, &printer, surroundings) {
        return finish(&printer, None, &refused(error));
    }
    let target = match ends.json.as_deref().map(ReportTarget::open).transpose() {
        Ok(target) => target,
        Err(error) => return finish(&printer, None, &refused(error.report())),
    };
    let capture = target.as_ref().is_some_and(ReportTarget::captures);
    let report = match config::load(surroundings, ends.policy.policy.as_deref()) {
        Err(error) => refused(error.report()),
        Ok((policy, forbidden)) => match request(capture, &policy) {
            Err(error) => refused(error.report()),
            Ok(request) => {
                let unscoped = enter_scope(&request.caller, words);
                let mut report = execute_in(early, &request, &policy);
                report.warnings.extend(unscoped);
                report.warnings.extend(forbidden.iter().map(warning));
                report
            }
        },
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

fn with_policy(
    voice: VoiceFlags,
    file: &PolicyFile,
    surroundings: &Surroundings,
    call: impl Fn(&Caller, &HostPolicy, &Printer) -> u8,
) -> u8 {
    let printer = Printer::new(voice, surroundings);
    if let Err(error) = log::start(voice, &printer, surroundings) {
        return finish(&printer, None, &refused(error));
    }
    match config::load(surroundings, file.policy.as_deref()) {
        Ok((policy, forbidden)) => {
            let warnings: Vec<_> = forbidden.iter().map(warning).collect();
            printer.warnings(&warnings);
            call(&surroundings.caller(&policy), &policy, &printer)
        }
        Err(error) => finish(&printer, None, &refused(error.report())),
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
        format!("{origin} states {grant}, which {forbidden_by} denies: it is ignored"),
    )
}

/// The report of a request that never became a run.
pub(super) fn refused(error: ErrorReport) -> Report {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    // Without randomness the name is still a name: nothing on the host is called by it.
    let mut random = [0_u8; 10];
    if std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .is_err()
    {
        random = [0; 10];
    }
    let mut report = Report::new(ulid(now_ms, random), Outcome::Refused);
    report.started_at = text_of_milliseconds(now_ms);
    report.error = Some(error);
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use spec::report::Exit;

    fn around() -> Surroundings {
        Surroundings {
            variables: [("HOME".into(), "/nonexistent".into())].into(),
            working_directory: Some("/here".into()),
            uid: 1000,
        }
    }

    fn printer() -> Printer {
        let quiet = VoiceFlags {
            quiet: true,
            ..VoiceFlags::default()
        };
        Printer::new(quiet, &around())
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
    fn every_example_of_a_help_is_a_line_that_means_something() {
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
        for (given, meant) in [
            (
                &["runner", "help", "exec"][..],
                &["runner", "exec", "--help"][..],
            ),
            (&["runner", "help"], &["runner", "--help"]),
            (&["runner", "run", "help"], &["runner", "run", "help"]),
            (&["runner"], &["runner"]),
        ] {
            assert_eq!(spelled_out(&words(given)).as_ref(), words(meant));
        }
    }
}
