//! Wrong usage: the message, and the report if `--json` asks for one.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap::CommandFactory as _;

use crate::cli::args::{CommandLine, MessageFlags, Verb};
use crate::cli::context::{ProcessContext, UnreadableVariable};
use crate::cli::docker;
use crate::cli::exit_code::FAILED;
use crate::cli::print::{Printer, Tone};
use crate::cli::report_target::{ReportTarget, TargetError};
use crate::run::refused_report;
use spec::path::{escape, quoted};
use spec::plan_report::PlanReport;
use spec::report::ErrorReport;
use spec::why_report::WhyReport;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    problem: String,
    /// One line each.
    hints: Vec<String>,
}

/// A mistake in a line that clap accepts: docker's `-v SRC:DST`, `--json FILE` without `=`, a program
/// without a name, or a variable with a relative path of a directory.
pub(super) fn find_mistake(
    words: &[OsString],
    verb: &Verb,
    context: &ProcessContext,
) -> Option<Mistake> {
    if let Some((name, value)) = context.relative_directory() {
        let value = escape(value.as_bytes());
        return Some(Mistake {
            problem: format!("the variable {name} is `{value}`, expected an absolute path"),
            hints: vec![format!("set {name}=\"$PWD\"/{}", quoted(&value))],
        });
    }
    if let Some(UnreadableVariable {
        name,
        value,
        problem,
    }) = &context.unreadable_total
    {
        let value = escape(value.as_bytes());
        return Some(Mistake {
            problem: format!("the variable {name} is `{value}`: {problem}"),
            hints: vec![format!("unset {name}")],
        });
    }
    if let Some(volume) = docker::volume(words, verb) {
        return Some(Mistake {
            problem: format!("-v takes no value, so `{volume}` would be run"),
            hints: vec![docker::volume_hint(&volume)],
        });
    }
    let command = match verb {
        Verb::Run(run) => run.command.as_slice(),
        Verb::Plan(plan) if plan.bundle.is_none() => &plan.words,
        Verb::Learn(learn) if learn.bundle.is_none() => &learn.words,
        _ => &[],
    };
    if command.first().is_some_and(|program| program.is_empty()) {
        return Some(Mistake {
            problem: "the program's name is empty".to_owned(),
            hints: vec![format!("see `{} --help`", verb_of(words))],
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
    let error =
        ErrorReport::new("usage", mistake.problem.clone()).with_hint(mistake.hints.join("; "));
    let target = ReportTarget::open(&json)?;
    match words.get(1).and_then(|verb| verb.to_str()) {
        Some("plan") => target.write(&PlanReport::refused(error)),
        Some("why") => target.write(&WhyReport::refused(error)),
        _ => target.write(&refused_report(error)),
    }
}

/// The value of `--json` in a line with a mistake.
///
/// A word of the command must not name the file, which is overwritten. So the search ends at the first
/// word that may belong to the command.
fn json_of(words: &[OsString], context: &ProcessContext) -> Option<OsString> {
    let verb = words.get(1)?.to_str()?;
    if !matches!(verb, "exec" | "run" | "plan" | "why") {
        return None;
    }
    let mut command = CommandLine::command();
    command.build();
    let flags = command.find_subcommand(verb)?;
    let mut json = context.variable("RUNNER_OPT_JSON").map(OsStr::to_owned);
    let mut rest = words.iter().skip(2).peekable();
    while let Some(word) = rest.next().filter(|word| *word != "--") {
        let bytes = word.as_bytes();
        if bytes == b"-" || !bytes.starts_with(b"-") {
            match verb {
                "run" => break,
                _ => continue,
            }
        }
        match bytes.strip_prefix(b"--json") {
            Some([]) => json = Some("-".into()),
            Some([b'=', file @ ..]) => json = Some(OsStr::from_bytes(file).to_owned()),
            _ => (),
        }
        match takes_next_word(flags, bytes) {
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

/// Whether the word after `word`, a flag or several short ones, is a value; `None` for an unknown flag.
fn takes_next_word(verb: &clap::Command, word: &[u8]) -> Option<bool> {
    let word = std::str::from_utf8(word).ok()?;
    let takes_value =
        |flag: &clap::Arg| flag.get_action().takes_values() && !flag.is_require_equals_set();
    if let Some(long) = word.strip_prefix("--") {
        let (name, has_value) = match long.split_once('=') {
            Some((name, _value)) => (name, true),
            None => (long, false),
        };
        let mut flags = verb.get_arguments();
        let flag = flags.find(|flag| flag.get_long() == Some(name))?;
        return Some(takes_value(flag) && !has_value);
    }
    // The first of several short flags that takes a value takes the rest of the word, if there is any.
    let mut letters = word.chars().skip(1);
    while let Some(letter) = letters.next() {
        let mut flags = verb.get_arguments();
        if takes_value(flags.find(|flag| flag.get_short() == Some(letter))?) {
            return Some(letters.next().is_none());
        }
    }
    Some(false)
}

/// Turns the paragraphs of clap into one line and hints.
fn usage_error(text: &str, words: &[OsString], context: &ProcessContext) -> Option<Mistake> {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.split("\n\n");
    let problem = one_line(paragraphs.next()?.strip_prefix("error: ")?);
    let mut hints = Vec::new();
    for paragraph in paragraphs.map(str::trim) {
        if !paragraph.starts_with("Usage: ") && !paragraph.starts_with("For more") {
            let tips = paragraph.split("tip: ").map(one_line);
            hints.extend(tips.filter(|tip| !tip.is_empty()));
        }
    }
    let volume = docker::volume_of_error(words);
    hints.extend(volume.map(|volume| docker::volume_hint(&volume)));
    hints.extend(file_after_json(words).map(|file| json_hint(&file)));
    let flag = problem
        .split(['\'', ' ', '<', '=', '.', '['])
        .find_map(|word| word.strip_prefix("--"));
    let device_problem = flag.and_then(docker::device);
    if device_problem.is_some() {
        hints.clear();
    }
    // The mistake may be in a variable, which the command line does not show.
    let variable = flag.map(|flag| flag.to_ascii_uppercase().replace('-', "_"));
    let variable = variable.map(|name| format!("RUNNER_OPT_{name}"));
    if let Some(name) = variable.filter(|name| context.variable(name).is_some()) {
        hints.push(format!("the variable {name} is set here"));
    }
    if words.get(1).is_some_and(|verb| verb == "run") {
        // clap's `to pass '--flag' as a value, use '-- --flag'`, which would run `--flag`.
        hints.retain(|hint| !hint.starts_with("to pass '"));
    }
    hints.push(format!("see `{} --help`", verb_of(words)));
    let problem = device_problem.unwrap_or(problem);
    Some(Mistake { problem, hints })
}

/// `runner`, and the verbs that the line begins with.
fn verb_of(words: &[OsString]) -> String {
    let words = words.get(1..).unwrap_or_default();
    let verbs = words.iter().take(count_verbs(words).0);
    verbs.fold("runner".to_owned(), |name, verb| {
        format!("{name} {}", verb.to_string_lossy())
    })
}

/// How many verbs `words` begins with, and whether the last one has verbs below it.
pub(super) fn count_verbs(words: &[OsString]) -> (usize, bool) {
    let mut runner = CommandLine::command();
    runner.build();
    let mut verb = &runner;
    let mut count = 0;
    while let Some(below) = words.get(count).and_then(|word| verb.find_subcommand(word)) {
        verb = below;
        count += 1;
    }
    (count, verb.has_subcommands())
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
            ..ProcessContext::default()
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
            (&["run", "-qm", "x", "--json=f", "y"], Some("f")),
            (&["run", "-qmx", "--json=f", "y"], Some("f")),
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
            (&["run", "-qe", "--json=f", "--bogus", "--", "y"], None),
            (&["run", "-qZ", "y", "--json=f"], None),
            (&["run", "--memory", "1x", "-", "--json=f"], None),
            (&["run", "--jsonx=f", "--", "y"], None),
            (&["exec", "--jsonx", "b", "--json=f"], None),
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
            find_mistake(&words, &verb, &ProcessContext::default())
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
    fn a_program_without_a_name_is_a_mistake() {
        let problem = |words: &[&str]| {
            let words = line(words);
            let verb = CommandLine::try_parse_from(&words).expect("read").verb;
            find_mistake(&words, &verb, &ProcessContext::default()).map(|mistake| mistake.problem)
        };
        let expected = Some("the program's name is empty".to_owned());
        assert_eq!(problem(&["run", ""]), expected);
        assert_eq!(problem(&["run", "-q", "--", "", "a"]), expected);
        assert_eq!(problem(&["plan", "--", ""]), expected);
        assert_eq!(problem(&["run", "--", "a", ""]), None);
        assert_eq!(problem(&["plan", "b", "--", ""]), None);
        assert_eq!(problem(&["exec", "b", "--", ""]), None);
    }

    #[test]
    fn wrong_usage_is_one_line_and_hints() {
        let mistake_in = |words: &[&str]| {
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
            } = mistake_in(words).expect("an error");
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
        assert_eq!(mistake_in(&[]), None);
        let Mistake { hints, .. } = mistake_in(&["source", "list", "--bogus"]).expect("an error");
        let last = hints.last().map(String::as_str);
        assert_eq!(last, Some("see `runner source list --help`"));
        let of_the_command = &["run", "--bogus", "--", "docker", "run", "-v", "a:/b"];
        let Mistake { hints, .. } = mistake_in(of_the_command).expect("an error");
        assert_eq!(hints, ["see `runner run --help`"]);
        let mut context = context(None);
        let name = "RUNNER_OPT_VERBOSE";
        context.variables.insert(name.into(), "x".into());
        let words = line(&["run", "y"]);
        let error = "error: invalid value 'x' for '--verbose...': is no number";
        let mistake = usage_error(error, &words, &context).expect("an error");
        assert!(mistake.hints[0].contains(name), "{mistake:?}");
    }
}
