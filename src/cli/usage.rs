//! Wrong usage: the message, and the report if `--json` asks for one.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap::CommandFactory as _;

use crate::cli::args::{CommandLine, MessageFlags, Verb};
use crate::cli::context::ProcessContext;
use crate::cli::dispatch::refused;
use crate::cli::docker;
use crate::cli::exit_code::FAILED;
use crate::cli::print::{Printer, Tone};
use crate::cli::report_target::{ReportTarget, TargetError};
use spec::path::escape;
use spec::plan_report::PlanReport;
use spec::report::ErrorReport;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    problem: String,
    /// One line each.
    hints: Vec<String>,
}

/// A mistake in a line that clap accepts but its author meant differently.
pub(super) fn misread(words: &[OsString], verb: &Verb) -> Option<Mistake> {
    if let Some(volume) = docker::volume(words, verb) {
        return Some(Mistake {
            problem: format!("-v takes no value, so `{volume}` would be run"),
            hints: vec![docker::volume_hint(&volume)],
        });
    }
    let Verb::Run(run) = verb else {
        return None;
    };
    let flag = words.len().checked_sub(run.command.len() + 1)?;
    let file = file_after_json(words.get(flag..flag + 2)?)?;
    Some(Mistake {
        problem: format!("--json takes a value only after `=`, so `{file}` would be run"),
        hints: vec![json_hint(&file)],
    })
}

/// The word after `--json`, escaped, if it looks like a file for the report.
fn file_after_json(words: &[OsString]) -> Option<String> {
    let at = words
        .iter()
        .take_while(|word| *word != "--")
        .position(|word| word == "--json")?;
    let file = words.get(at + 1)?.as_bytes();
    file.ends_with(b".json").then(|| escape(file))
}

fn json_hint(file: &str) -> String {
    format!("to write the report to a file: --json={file}")
}

/// Prints the error of clap, or the help. Returns the exit code.
pub(super) fn explain(error: &clap::Error, words: &[OsString], context: &ProcessContext) -> u8 {
    let text = error.render().to_string();
    let printer = Printer::new(MessageFlags::default(), context);
    if !error.use_stderr() {
        return printer.document(&text, 0);
    }
    match usage_error(&text, words, context) {
        Some(mistake) => refuse(&mistake, words, context),
        // Without a verb clap prints the help instead of an error.
        None => {
            printer.usage(&text);
            FAILED
        }
    }
}

/// Prints a mistake, and writes a report if the line asks for one. Returns the exit code.
pub(super) fn refuse(mistake: &Mistake, words: &[OsString], context: &ProcessContext) -> u8 {
    let printer = Printer::new(MessageFlags::default(), context);
    if let Err(error) = write_report(mistake, words, context) {
        printer.failure(&error.report());
    }
    printer.line(
        Tone::Error,
        &format!("refused: {} (usage)", mistake.problem),
    );
    for hint in &mistake.hints {
        printer.line(Tone::Hint, &format!("hint: {hint}"));
    }
    FAILED
}

fn write_report(
    mistake: &Mistake,
    words: &[OsString],
    context: &ProcessContext,
) -> Result<(), TargetError> {
    let Some(json) = json_of(words, context) else {
        return Ok(());
    };
    let error = ErrorReport {
        code: "usage".to_owned(),
        message: mistake.problem.clone(),
        hint: Some(mistake.hints.join("; ")),
    };
    let target = ReportTarget::open(&json)?;
    if words.get(1).is_some_and(|verb| verb == "plan") {
        target.write(&PlanReport::refused(error))
    } else {
        target.write(&refused(error))
    }
}

/// The value of `--json` in a line with a mistake. A word of the command must not name a file that is
/// overwritten: the search ends at the first word of the command, or if a word is ambiguous.
fn json_of(words: &[OsString], context: &ProcessContext) -> Option<OsString> {
    let verb = words.get(1)?.to_str()?;
    if !matches!(verb, "exec" | "run" | "plan") {
        return None;
    }
    let mut known = CommandLine::command();
    known.build();
    let known = known.find_subcommand(verb)?;
    let mut json = context.variable("RUNNER_OPT_JSON").map(OsStr::to_owned);
    let mut rest = words.iter().skip(2).peekable();
    while let Some(word) = rest.next().filter(|word| *word != "--") {
        let bytes = word.as_bytes();
        if let Some(file) = bytes.strip_prefix(b"--json") {
            match file.strip_prefix(b"=") {
                Some(file) => json = Some(OsStr::from_bytes(file).to_owned()),
                None if file.is_empty() => json = Some("-".into()),
                None => (),
            }
            continue;
        }
        if !bytes.starts_with(b"-") {
            match verb {
                "run" => break,
                _ => continue,
            }
        }
        match takes_next_word(known, bytes) {
            Some(true) => drop(rest.next()),
            Some(false) => (),
            // After an unknown flag the next word may be its value or the command.
            None => {
                let is_flag = |next: &&OsString| next.as_bytes().starts_with(b"-");
                if !rest.peek().is_some_and(is_flag) {
                    break;
                }
            }
        }
    }
    json
}

/// Whether the word after a flag is its value; `None` for an unknown flag.
fn takes_next_word(verb: &clap::Command, flag: &[u8]) -> Option<bool> {
    let flag = std::str::from_utf8(flag).ok()?;
    let known = match flag.strip_prefix("--") {
        Some(long) => {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            let is_it = |argument: &&clap::Arg| {
                let others = argument.get_all_aliases().unwrap_or_default();
                argument.get_long() == Some(name) || others.contains(&name)
            };
            (verb.get_arguments().find(is_it)?, value.is_some())
        }
        // `-m1g` includes its value. Of several short flags in one word, only the last may take one.
        None => {
            let mut letters = flag.chars().skip(1);
            let first = letters.next()?;
            let is_it = |argument: &&clap::Arg| argument.get_short() == Some(first);
            (verb.get_arguments().find(is_it)?, letters.next().is_some())
        }
    };
    let (argument, has_value) = known;
    let takes = argument.get_action().takes_values() && !argument.is_require_equals_set();
    Some(takes && !has_value)
}

/// Turns the paragraphs of clap into one line and hints.
fn usage_error(text: &str, words: &[OsString], context: &ProcessContext) -> Option<Mistake> {
    let in_one = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.split("\n\n");
    let problem = in_one(paragraphs.next()?.strip_prefix("error: ")?);
    let mut hints = Vec::new();
    for paragraph in paragraphs.map(str::trim) {
        if !paragraph.starts_with("Usage: ") && !paragraph.starts_with("For more") {
            let tips = paragraph.split("tip: ").map(in_one);
            hints.extend(tips.filter(|tip| !tip.is_empty()));
        }
    }
    let volume = docker::volume_of_error(words);
    hints.extend(volume.map(|volume| docker::volume_hint(&volume)));
    hints.extend(file_after_json(words).map(|file| json_hint(&file)));
    let flag = problem
        .split(['\'', ' ', '<', '='])
        .find_map(|word| word.strip_prefix("--"));
    let device = flag.and_then(docker::device);
    if device.is_some() {
        hints.clear();
    }
    // The mistake may be in a variable, which the command line does not show.
    let variable = flag.map(|flag| flag.to_ascii_uppercase().replace('-', "_"));
    let variable = variable.map(|name| format!("RUNNER_OPT_{name}"));
    if let Some(name) = variable.filter(|name| context.variable(name).is_some()) {
        hints.push(format!("the variable {name} is set here"));
    }
    let known = CommandLine::command();
    let verb = words.get(1).and_then(|word| word.to_str());
    let verb = verb.filter(|verb| known.find_subcommand(verb).is_some());
    let command = verb.map_or_else(|| "runner".to_owned(), |verb| format!("runner {verb}"));
    hints.push(format!("see `{command} --help`"));
    let problem = device.unwrap_or(problem);
    Some(Mistake { problem, hints })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn context(json: Option<&str>) -> ProcessContext {
        let json = json.map(|json| ("RUNNER_OPT_JSON".into(), json.into()));
        ProcessContext {
            variables: [("HOME".into(), "/nonexistent".into())]
                .into_iter()
                .chain(json)
                .collect(),
            working_directory: Some("/here".into()),
            uid: 1000,
        }
    }

    fn line(words: &[&str]) -> Vec<OsString> {
        [&["runner"], words]
            .concat()
            .into_iter()
            .map(OsString::from)
            .collect()
    }

    #[test]
    fn a_report_of_a_mistake_goes_where_a_flag_before_the_command_says() {
        for (words, expected) in [
            (&["run", "--json", "--bogus", "--", "x"][..], Some("-")),
            (&["run", "--json=f", "--bogus", "--", "x"], Some("f")),
            (&["run", "--bogus", "--json=f", "--", "x"], Some("f")),
            (&["run", "--memory", "x", "--json=f", "y"], Some("f")),
            (&["run", "-m", "x", "--json=f", "y"], Some("f")),
            (&["run", "-mx", "--json=f", "y"], Some("f")),
            (&["run", "--json=f"], Some("f")),
            (&["exec", "--json=f"], Some("f")),
            (&["exec", "a", "b", "--json=f"], Some("f")),
            (&["plan", "a", "b", "--json=f"], Some("f")),
            // After the first word of the command, or after a word that may be one.
            (&["run", "--memory", "1x", "y", "--json=f"], None),
            (&["run", "--bogus", "y", "--json=f"], None),
            (&["run", "--bogus", "--", "--json=f"], None),
            (&["exec", "--bogus", "b", "--json=f"], None),
            (&["run", "-e", "--json=f", "--bogus", "--", "y"], None),
            (&["run", "--jsonx=f", "--", "y"], None),
            (&["bundle", "--json=f"], None),
            (&["--json=f"], None),
        ] {
            let found = json_of(&line(words), &context(None));
            assert_eq!(found.as_deref(), expected.map(OsStr::new), "{words:?}");
        }
        let words = line(&["run", "--bogus", "--", "y"]);
        let found = json_of(&words, &context(Some("g")));
        assert_eq!(found.as_deref(), Some(OsStr::new("g")));
    }

    #[test]
    fn a_file_after_json_is_distinguished_from_a_command() {
        let read = |words: &[&str]| {
            let words = line(words);
            let verb = CommandLine::try_parse_from(&words).expect("read").verb;
            misread(&words, &verb)
        };
        for words in [
            &["run", "--json", "r.json", "--", "x"][..],
            &["run", "--json", "r.json", "x"],
            &["run", "-q", "--json", "out/r.json"],
        ] {
            let mistake = read(words).expect("a mistake");
            assert!(mistake.hints[0].contains("--json="), "{mistake:?}");
        }
        for words in [
            &["run", "--json", "x"][..],
            &["run", "--json", "grep", "--", "x.json"],
            &["run", "--json", "--", "x.json"],
            &["run", "--json", "x", "y", "--", "z"],
            &["run", "--json=r.json", "x"],
            &["run", "x", "--json", "r.json"],
            &["plan", "--json", "manifest.json"],
            &["exec", "--json", "b"],
        ] {
            assert_eq!(read(words), None, "{words:?}");
        }
    }

    #[test]
    fn wrong_usage_is_one_line_and_hints() {
        let told = |words: &[&str]| {
            let words = [&["runner"], words].concat();
            let error = CommandLine::try_parse_from(&words).expect_err("wrong");
            let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            usage_error(&error.render().to_string(), &words, &context(None))
        };
        for (words, problem, hint) in [
            (
                &["bundle", ".", "--lsit"][..],
                "unexpected argument '--lsit' found",
                Some("a similar argument exists: '--list'"),
            ),
            (
                &["bundel"],
                "unrecognized subcommand 'bundel'",
                Some("a similar subcommand exists: 'bundle'"),
            ),
            (
                &["check"],
                "the following required arguments were not provided: <MANIFEST|DIR|NAME>",
                None,
            ),
            (
                &["bundle", ".", "--symlinks", "folow"],
                "invalid value 'folow' for '--symlinks <WHAT>' [possible values: keep, follow]",
                Some("a similar value exists: 'follow'"),
            ),
        ] {
            let Mistake {
                problem: found,
                hints,
            } = told(words).expect("an error");
            assert_eq!(found, problem);
            let mut hints = hints.iter().map(String::as_str);
            if hint.is_some() {
                assert_eq!(hints.next(), hint, "{words:?}");
            }
            let last = hints.next().expect("where to read more");
            let verb = if words[0] == "bundel" { "" } else { words[0] };
            let command = format!("runner {verb}");
            let expected = format!("see `{} --help`", command.trim_end());
            assert_eq!(last, expected);
            assert_eq!(hints.next(), None, "{words:?}");
        }
        assert_eq!(told(&[]), None);
    }
}
