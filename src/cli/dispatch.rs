//! From the command line to an exit code: one call per verb.

use std::ffi::OsString;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser as _;

use crate::cli::args::{CommandLine, PolicyFile, RunFlags, Schema, Verb, VoiceFlags};
use crate::cli::config;
use crate::cli::exit_code::{FAILED, exit_code};
use crate::cli::fast_args;
use crate::cli::plan;
use crate::cli::print::{Printer, Tone};
use crate::cli::report_target::ReportTarget;
use crate::cli::request::{RequestError, of_exec, of_run};
use crate::cli::run_status::RunStatus;
use crate::cli::schema;
use crate::cli::summary;
use crate::cli::surroundings::Surroundings;
use crate::cli::usage;
use crate::run::progress::ProgressListener;
use spec::host_policy::{ForbiddenGrant, HostPolicy};
use spec::outcome::Outcome;
use spec::plan_report::PlanReport;
use spec::report::{ErrorReport, Report, WarningReport, with_causes};
use spec::request::{Caller, Request};
use spec::ulid::ulid;
use spec::utc::text_of_milliseconds;
use sys::file::CallError;
use sys::signal::{default_faults, own_dispositions};
use sys::stack;

/// Does one run.
pub type Execute<'call> =
    dyn Fn(&Request, &HostPolicy, &Arc<dyn ProgressListener>) -> Report + 'call;

/// What the verbs call. The program passes the rooms below, a test what it likes.
#[derive(Clone, Copy)]
pub struct Engine<'call> {
    /// Before the command line of a run is read: what can be made beside that.
    pub prefork: &'call dyn Fn(),
    /// Before a run: starts this process again where only that gives a run its limits.
    pub enter_scope: &'call dyn Fn(&Caller) -> Option<WarningReport>,
    /// One run: `exec` and `run`. Somebody is told what happens before the body starts.
    pub execute: &'call Execute<'call>,
    /// `plan`.
    pub explain: &'call dyn Fn(&Request, &HostPolicy) -> PlanReport,
    /// `doctor`, as JSON where the flag is `true`; the exit code.
    pub doctor: &'call dyn Fn(&Caller, &HostPolicy, &Printer, bool) -> u8,
    /// `demo`; the exit code.
    pub demo: &'call dyn Fn(&Caller, &HostPolicy, &Printer) -> u8,
    /// `gc`; the exit code.
    pub gc: &'call dyn Fn(&Caller, &HostPolicy, &Printer) -> u8,
}

impl std::fmt::Debug for Engine<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Engine")
    }
}

/// The whole program: reads its surroundings, does what `words` ask, and says with which code to
/// exit. The first word is the program's own name.
#[must_use]
pub fn main(words: &[OsString], engine: &Engine<'_>) -> u8 {
    let failed = |error: &dyn std::error::Error| {
        let printer = Printer::new(VoiceFlags::default(), &Surroundings::default());
        let problem = with_causes(error);
        printer.line(Tone::Error, &format!("failed: {problem} (host_failed)"));
        FAILED
    };
    if let Err(errno) = own_dispositions().and_then(|()| default_faults()) {
        let signals = "SIGCHLD, SIGPIPE, SIGSEGV and SIGBUS";
        return failed(&CallError::new("sigaction", signals, errno));
    }
    if let Err(error) = stack::reserve() {
        return failed(&error);
    }
    if fast_args::asks_for_version(words) {
        let printer = Printer::new(VoiceFlags::default(), &Surroundings::default());
        return document(&printer, fast_args::VERSION);
    }
    if words
        .get(1)
        .is_some_and(|word| word == "run" || word == "exec")
    {
        (engine.prefork)();
    }
    dispatch(words, &Surroundings::read(), engine)
}

/// Does what `words` ask; the first is the program's own name.
pub fn dispatch(words: &[OsString], surroundings: &Surroundings, engine: &Engine<'_>) -> u8 {
    // `runner help VERB` is `runner VERB --help`, whatever VERB is.
    if let [program, help, verb @ ..] = words
        && help == "help"
    {
        let mut asked = vec![program.clone()];
        asked.extend_from_slice(verb);
        asked.push("--help".into());
        return dispatch(&asked, surroundings, engine);
    }
    let read = match fast_args::read(words, surroundings) {
        Some(plain) => plain,
        None => match CommandLine::try_parse_from(words) {
            Ok(line) => line.verb,
            Err(error) => return usage::explain(&error, words, surroundings),
        },
    };
    match usage::misread(words, &read) {
        Some(mistake) => usage::refuse(&mistake, words, surroundings),
        None => verb(read, surroundings, engine),
    }
}

fn verb(verb: Verb, surroundings: &Surroundings, engine: &Engine<'_>) -> u8 {
    match verb {
        Verb::Exec(exec) => one_run(
            &exec.flags.ends(),
            surroundings,
            engine,
            |capture, policy| of_exec(*exec, capture, surroundings, policy),
        ),
        Verb::Run(run) => one_run(
            &run.flags.ends(),
            surroundings,
            engine,
            |capture, policy| of_run(*run, capture, surroundings, policy),
        ),
        Verb::Bundle(bundle) => with_policy(
            bundle.voice,
            &bundle.policy,
            surroundings,
            |_caller, policy, printer| {
                crate::cli::bundle::bundle(&bundle, surroundings, policy, printer)
            },
        ),
        Verb::Plan(words) => plan::plan(*words, surroundings, engine.explain),
        Verb::Check(check) => with_policy(
            check.voice,
            &check.policy,
            surroundings,
            |_caller, policy, printer| {
                crate::cli::check::check(&check, surroundings, policy, printer)
            },
        ),
        Verb::Doctor(doctor) => with_policy(
            doctor.voice,
            &doctor.policy,
            surroundings,
            |caller, policy, printer| {
                enter_scope(engine, caller, printer);
                (engine.doctor)(caller, policy, printer, doctor.json)
            },
        ),
        Verb::Demo(demo) => with_policy(
            demo.voice,
            &demo.policy,
            surroundings,
            |caller, policy, printer| {
                enter_scope(engine, caller, printer);
                (engine.demo)(caller, policy, printer)
            },
        ),
        Verb::Cache(cache) => {
            let flags = cache.what.flags();
            let what = &cache.what;
            with_policy(
                flags.voice,
                &flags.policy,
                surroundings,
                |caller, policy, printer| crate::cli::cache::cache(what, caller, policy, printer),
            )
        }
        Verb::Source(source) => {
            let (voice, policy) = source.what.frame();
            with_policy(voice, policy, surroundings, |caller, policy, printer| {
                crate::cli::source::source(&source.what, surroundings, caller, policy, printer)
            })
        }
        Verb::Gc(gc) => with_policy(gc.voice, &gc.policy, surroundings, engine.gc),
        Verb::Schema(Schema { name }) => {
            let printer = Printer::new(VoiceFlags::default(), surroundings);
            document(&printer, schema::text(name))
        }
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
    surroundings: &Surroundings,
    engine: &Engine<'_>,
    request: impl FnOnce(bool, &HostPolicy) -> Result<Request, RequestError>,
) -> u8 {
    let printer = Printer::new(ends.voice, surroundings);
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
                let listener: Arc<dyn ProgressListener> = Arc::new(RunStatus::new(printer));
                let unscoped = (engine.enter_scope)(&request.caller);
                let mut report = (engine.execute)(&request, &policy, &listener);
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
        let error = error.report();
        printer.line(
            Tone::Error,
            &format!("failed: {} ({})", error.message, error.code),
        );
        return FAILED;
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
    match config::load(surroundings, file.policy.as_deref()) {
        Ok((policy, forbidden)) => {
            for grant in &forbidden {
                let warning = warning(grant);
                let text = format!("warning: {} ({})", warning.message, warning.code);
                printer.line(Tone::Warning, &text);
            }
            call(&surroundings.caller(&policy), &policy, &printer)
        }
        Err(error) => finish(&printer, None, &refused(error.report())),
    }
}

fn enter_scope(engine: &Engine<'_>, caller: &Caller, printer: &Printer) {
    if let Some(warning) = (engine.enter_scope)(caller) {
        let text = format!("warning: {} ({})", warning.message, warning.code);
        printer.line(Tone::Warning, &text);
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
    use spec::request::Subject;
    use std::cell::RefCell;

    fn around() -> Surroundings {
        Surroundings {
            variables: [("HOME".into(), "/nonexistent".into())].into(),
            working_directory: Some("/here".into()),
            uid: 1000,
        }
    }

    /// Runs a line with an engine that gives this report; the code, and the requests it got.
    fn with_report(words: &[&str], report: &Report) -> (u8, Vec<Request>) {
        let seen = RefCell::new(Vec::new());
        let engine = Engine {
            prefork: &|| (),
            enter_scope: &|_caller| None,
            execute: &|request, _policy, _hearing| {
                seen.borrow_mut().push(request.clone());
                report.clone()
            },
            explain: &|request, _policy| {
                seen.borrow_mut().push(request.clone());
                PlanReport::new()
            },
            doctor: &|_caller, _policy, _printer, json| if json { 2 } else { 1 },
            demo: &|_caller, _policy, _printer| 3,
            gc: &|_caller, _policy, _printer| 4,
        };
        let words = [&["runner"], words].concat();
        let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        let code = dispatch(&words, &around(), &engine);
        (code, seen.into_inner())
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
            let (exit, requests) = with_report(
                &["run", "-q", "--", "x"],
                &report(Outcome::Exited, Some(code)),
            );
            assert_eq!(i32::from(exit), code);
            let argv = vec![b"x".to_vec()];
            assert_eq!(requests[0].subject, Subject::Command(argv));
            assert!(!requests[0].streams.capture);
        }
    }

    #[test]
    fn the_signal_that_the_runner_got_is_the_one_of_the_exit_code() {
        let mut cancelled = report(Outcome::Cancelled, Some(0));
        cancelled.cancelled_by = Some(libc::SIGINT);
        assert_eq!(with_report(&["exec", "-q", "b"], &cancelled).0, 130);
    }

    #[test]
    fn a_report_in_a_file_leaves_the_bodys_output_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("r.json");
        let flag = format!("--json={}", file.display());
        let (code, requests) = with_report(&["run", &flag, "x"], &report(Outcome::Exited, Some(9)));
        assert_eq!(code, 9);
        assert!(!requests[0].streams.capture);
        let text = std::fs::read_to_string(file).expect("a report");
        assert!(text.contains("\"outcome\":\"exited\""), "{text}");
    }

    #[test]
    fn a_report_that_cannot_be_written_after_the_run_is_no_success() {
        let done = report(Outcome::Exited, Some(0));
        assert_eq!(with_report(&["run", "--json=/dev/full", "x"], &done).0, 125);
    }

    #[test]
    fn nothing_is_run_where_the_report_or_the_request_is_refused() {
        let done = report(Outcome::Exited, Some(0));
        for words in [
            &["run", "--json=/nonexistent/r", "x"][..],
            &["run", "-e", "=x", "x"],
            &["run", "--policy", "/nonexistent", "x"],
            &["run", "--nonsense", "x"],
        ] {
            let (code, requests) = with_report(words, &done);
            assert_eq!((code, requests.len()), (125, 0), "{words:?}");
        }
    }

    #[test]
    fn each_verb_calls_its_own_room() {
        let done = report(Outcome::Exited, Some(0));
        for (words, code) in [
            (&["doctor"][..], 1),
            (&["doctor", "--json"], 2),
            (&["demo"], 3),
            (&["gc"], 4),
        ] {
            assert_eq!(with_report(words, &done).0, code, "{words:?}");
        }
    }
}
