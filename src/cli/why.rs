//! `runner why`: which rule decides about a path, a host or a system call.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use clap::ArgGroup;

use crate::cli::args::RunFlags;
use crate::cli::config::{self, ConfigError};
use crate::cli::context::ProcessContext;
use crate::cli::dispatch::warning;
use crate::cli::environment::SecretValues;
use crate::cli::exit_code::FAILED;
use crate::cli::log;
use crate::cli::plan::{Invocation, report_ignored};
use crate::cli::print::{Printer, Tone, columns, escape_hidden};
use crate::cli::report_target::ReportTarget;
use crate::cli::request::build_request;
use crate::run;
use filter::{Arch, default_policy};
use spec::did_you_mean::nearest;
use spec::egress::{EgressHost, EgressRule};
use spec::host_policy::merge;
use spec::report::ErrorReport;
use spec::why_report::{Answer, Operation, Question, SCHEMA_VERSION, Verdict, WhyReport};

pub(crate) const WHY_HELP: &str = "\
It reads what `plan` reads and starts nothing. Without BUNDLE and CMD it answers for any command.
`runner why last` tells how the run that ended last ended, what it was denied, and what to change.
A relative PATH is one of the body's working directory.
--json[=FILE|fd:N] writes the answer as JSON.

Examples:
  runner why --path /etc/shadow
  runner why --path data.csv --op write --ro . -- python3 script.py
  runner why --host pypi.org:443 --allow-net pypi.org tool.tar.gz
  runner why --syscall ptrace --syscalls strict
  runner why last

Exit codes: 0 allowed; 1 denied; 2 it depends on arguments, or only a run can tell; 125 no answer.";

const LABEL_COLUMNS: usize = 10;
const DENIED: u8 = 1;
const DEPENDS: u8 = 2;

// The flags of `plan`, and the question.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "runner why QUESTION [FLAGS] [BUNDLE] [-- ARGS]\n       runner why QUESTION [FLAGS] -- CMD [ARGS]\n       runner why RUN|last"
)]
pub struct Why {
    /// What `exec` takes; without a question, a run of the history or `last`
    pub bundle: Option<PathBuf>,
    #[command(flatten)]
    pub question: QuestionFlags,
    #[command(flatten)]
    pub flags: RunFlags,
    /// With a BUNDLE arguments of the body, else the command of `run`
    #[arg(last = true, value_name = "ARGS|CMD")]
    pub words: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(
    next_help_heading = "The question",
    group = ArgGroup::new("question").args(["path", "host", "syscall"])
)]
pub struct QuestionFlags {
    /// A path, as the body names it
    #[arg(long, value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// What the body does with the path
    #[arg(
        long,
        value_name = "OP",
        default_value = "read",
        conflicts_with_all = ["host", "syscall"]
    )]
    pub op: OperationArgument,
    /// A host name or an address; without a port, 443
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_host)]
    pub host: Option<EgressRule>,
    /// The name of a system call
    #[arg(long, value_name = "NAME", value_parser = parse_syscall)]
    pub syscall: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OperationArgument {
    /// Read a file, or list a directory
    Read,
    /// Write or create a file, or change a directory
    Write,
    /// Execute a program
    Exec,
}

impl OperationArgument {
    const fn operation(self) -> Operation {
        match self {
            Self::Read => Operation::Read,
            Self::Write => Operation::Write,
            Self::Exec => Operation::Execute,
        }
    }
}

fn parse_host(text: &str) -> Result<EgressRule, String> {
    let rule = EgressRule::parse(text).map_err(|error| error.to_string())?;
    match rule.host {
        EgressHost::Below(_) => Err("`*` names many hosts; ask about one of them".to_owned()),
        EgressHost::Name(_) | EgressHost::Address(_) => Ok(rule),
    }
}

fn parse_syscall(name: &str) -> Result<String, String> {
    let mut names = Vec::new();
    for arch in Arch::ALL {
        let policy = default_policy(arch).map_err(|error| error.to_string())?;
        names.extend(policy.calls.into_iter().map(|call| call.name));
    }
    if names.iter().any(|known| known == name) {
        return Ok(name.to_owned());
    }
    let near = nearest(name, names.iter().map(String::as_str));
    let near = near.map(|near| format!("; did you mean `{near}`?"));
    Err(format!("unknown system call{}", near.unwrap_or_default()))
}

impl Why {
    /// The run of the history that it is about, if it asks nothing and has nothing but a name.
    pub(super) fn run(&self) -> Option<&Path> {
        let QuestionFlags {
            path,
            host,
            syscall,
            ..
        } = &self.question;
        let asks = path.is_some() || host.is_some() || syscall.is_some();
        let has_words = !self.words.is_empty();
        self.bundle.as_deref().filter(|_| !asks && !has_words)
    }
}

impl QuestionFlags {
    /// clap accepts at most one of the three.
    fn question(self) -> Option<Question> {
        let operation = self.op.operation();
        let path = self.path.map(|path| Question::Path {
            path: path.into_os_string().into_vec(),
            operation,
        });
        let host = self.host.map(Question::Host);
        path.or(host).or(self.syscall.map(Question::Syscall))
    }
}

/// Prints the answer. Returns the exit code.
pub(crate) fn why(arguments: Why, context: &ProcessContext) -> u8 {
    let messages = arguments.flags.common.messages;
    let printer = Printer::new(messages, context);
    if let Err(error) = log::start(messages, &printer, context) {
        return printer.problem("refused", &error);
    }
    let Why {
        bundle,
        question,
        flags,
        words,
    } = arguments;
    let Some(question) = question.question() else {
        return printer.problem("refused", &no_question());
    };
    let invocation = Invocation {
        bundle,
        flags,
        words,
    };
    let json = invocation.flags.report.json.as_deref();
    let target = match json.map(ReportTarget::open).transpose() {
        Ok(target) => target,
        Err(error) => return printer.problem("refused", &error.report()),
    };
    let report = answer(invocation, &question, context)
        .unwrap_or_else(|error| WhyReport::refused(error.report()));
    if let Some(target) = &target
        && let Err(error) = target.write(&report)
    {
        return printer.failure(&error.report());
    }
    printer.warnings(&report.warnings);
    let Some(answer) = &report.answer else {
        return report
            .error
            .map_or(FAILED, |error| printer.problem("refused", &error));
    };
    if let Some(error) = &report.error {
        let text = format!(
            "warning: the run would not start: {} ({})",
            error.message, error.code
        );
        printer.line(Tone::Warning, &text);
    }
    let code = match answer.verdict {
        Verdict::Allowed => 0,
        Verdict::Denied => DENIED,
        Verdict::Depends => DEPENDS,
    };
    // Standard output gets one document only.
    if matches!(target, Some(ReportTarget::StandardOutput)) {
        return code;
    }
    printer.document(&text(answer, &printer), code)
}

fn no_question() -> ErrorReport {
    ErrorReport::new(
        "usage",
        "found no question; expected --path, --host or --syscall, or a run alone",
    )
    .with_hint("`runner why last` explains the last run")
}

fn answer(
    mut invocation: Invocation,
    question: &Question,
    context: &ProcessContext,
) -> Result<WhyReport, ConfigError> {
    if invocation.bundle.is_none() && invocation.words.is_empty() {
        invocation.words.push("true".into());
    }
    let statements = config::statements(context, invocation.flags.common.policy.as_deref())?;
    let (policy, forbidden) = merge(&statements);
    let report_ignored = report_ignored(&invocation.flags.report);
    let request = build_request(invocation, false, SecretValues::CheckOnly, context, &policy);
    Ok(match request {
        Err(error) => WhyReport::refused(error.report()),
        Ok(request) => {
            let (plan, answer) = run::why(&request, &policy, question);
            WhyReport {
                schema_version: SCHEMA_VERSION,
                answer,
                run: None,
                error: plan.error,
                warnings: forbidden
                    .iter()
                    .map(warning)
                    .chain(report_ignored)
                    .collect(),
            }
        }
    })
}

/// At most five lines.
fn text(answer: &Answer, printer: &Printer) -> String {
    let (verdict, tone) = match answer.verdict {
        Verdict::Allowed => ("allowed", Tone::Good),
        Verdict::Denied => ("denied", Tone::Error),
        Verdict::Depends => ("depends", Tone::Warning),
    };
    let errno = answer.errno.as_ref().map(|errno| format!(", {errno}"));
    let verdict = printer.coloured(tone, verdict);
    let nothing = (answer.verdict == Verdict::Denied).then_some("no flag changes it");
    let rows = [
        ("asked", Some(answer.asked.clone())),
        (
            "answer",
            Some(format!("{verdict}{}", errno.unwrap_or_default())),
        ),
        ("found", Some(answer.found.clone())),
        (
            "rule",
            Some(format!("{} ({})", answer.rule, answer.decided_by)),
        ),
        (
            "change",
            answer.change.clone().or(nothing.map(str::to_owned)),
        ),
    ];
    let line = |(label, value): (&str, Option<String>)| {
        let value = value?;
        // The verdict may have colours, and is no text of others.
        let value = if label == "answer" {
            value
        } else {
            escape_hidden(&value)
        };
        Some(format!("{}{value}\n", columns(label, LABEL_COLUMNS)))
    };
    rows.into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{CommandLine, MessageFlags, Verb};
    use clap::Parser as _;
    use spec::why_report::State;

    fn question(words: &[&str]) -> Result<Question, String> {
        let words = ["runner", "why"].iter().chain(words);
        match CommandLine::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .verb
        {
            Verb::Why(why) => why
                .question
                .question()
                .ok_or_else(|| "no question".to_owned()),
            _ => Err("another verb".to_owned()),
        }
    }

    #[test]
    fn exactly_one_question_is_accepted() {
        let path = |operation| Question::Path {
            path: b"/a".to_vec(),
            operation,
        };
        assert_eq!(question(&["--path", "/a"]), Ok(path(Operation::Read)));
        for operation in Operation::ALL {
            let words = ["--path", "/a", "--op", operation.name(), "--", "x"];
            assert_eq!(question(&words), Ok(path(operation)));
        }
        let host = EgressRule::parse("a.com:80").expect("a host");
        assert_eq!(question(&["--host", "a.com:80"]), Ok(Question::Host(host)));
        let call = Question::Syscall("ptrace".to_owned());
        assert_eq!(question(&["--syscall", "ptrace", "b.tar.gz"]), Ok(call));
        for (words, problem) in [
            (&[][..], "no question"),
            (&["--path", "/a", "--host", "a.com"], "cannot be used with"),
            (&["--host", "a.com", "--op", "read"], "cannot be used with"),
            (&["--host", "*.a.com"], "names many hosts"),
            (&["--host", "http://a.com"], "URL"),
            (&["--syscall", "ptrase"], "did you mean `ptrace`?"),
        ] {
            let error = question(words).expect_err("refused");
            assert!(error.contains(problem), "{words:?}: {error}");
        }
    }

    #[test]
    fn a_name_alone_is_a_run_of_the_history() {
        let run = |words: &[&str]| {
            let words = ["runner", "why"].iter().chain(words);
            match CommandLine::try_parse_from(words)
                .expect("it is parsed")
                .verb
            {
                Verb::Why(why) => why.run().map(Path::to_path_buf),
                _ => None,
            }
        };
        assert_eq!(run(&["last"]), Some("last".into()));
        assert_eq!(run(&["01m8", "-v"]), Some("01m8".into()));
        assert_eq!(run(&["last", "--json"]), Some("last".into()));
        for words in [&[][..], &["last", "--syscall", "ptrace"], &["a", "--", "b"]] {
            assert_eq!(run(words), None, "{words:?}");
        }
    }

    #[test]
    fn an_answer_has_at_most_five_lines_and_no_control_characters() {
        let answer = Answer {
            asked: "read /a".to_owned(),
            verdict: Verdict::Denied,
            errno: Some("ENOENT".to_owned()),
            state: State::Hidden,
            found: "nothing\u{1b}[31m".to_owned(),
            rule: "a rule".to_owned(),
            decided_by: "default".to_owned(),
            change: Some("--ro /a".to_owned()),
        };
        let printer = Printer::new(MessageFlags::default(), &ProcessContext::default());
        let shown = "asked     read /a\nanswer    denied, ENOENT\nfound     nothing\\u{1b}[31m\n\
                     rule      a rule (default)\nchange    --ro /a\n";
        assert_eq!(text(&answer, &printer), shown);
    }
}
