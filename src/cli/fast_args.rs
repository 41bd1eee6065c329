//! A parser for valid command lines of `exec`, `run`, `sandbox create` and `sandbox exec`, used before clap.
//!
//! clap first builds a description of every flag with its help, which takes a tenth of a launch. This
//! parser returns exactly what clap would return: a test compares both on thousands of command lines.
//! It leaves everything else, including every mistake, to clap, so that only clap reports errors.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::cli::args::{Exec, Run, RunFlags, Verb, flag_variables};
use crate::cli::context::ProcessContext;
use crate::cli::limit_flags::{self, CommandLimitFlags};
use crate::cli::sandboxes::{Create, ExecIn, Sandbox, SandboxVerb};
use spec::host_policy::grants_named;
use spec::limits::Limit;
use spec::units::parse_duration;
use sys::allocator::keep_from_children;
use sys::signal_name::parse_signal;

/// What `runner --version` and `runner version` print.
pub(crate) const VERSION: &str = concat!("runner ", env!("CARGO_PKG_VERSION"), "\n");

#[must_use]
pub(crate) fn asks_for_version(words: &[OsString]) -> bool {
    matches!(words, [_, word] if word == "--version" || word == "-V" || word == "version")
}

/// Reads `words`, with the program's name first. `None`: clap has to read them.
#[must_use]
pub(crate) fn read(words: &[OsString], context: &ProcessContext) -> Option<Verb> {
    let [_program, verb, rest @ ..] = words else {
        return None;
    };
    if flag_variables(&context.variables).next().is_some() {
        return None;
    }
    match verb.to_str()? {
        "exec" => exec(rest).map(|exec| Verb::Exec(Box::new(exec))),
        "run" => run(rest).map(|run| Verb::Run(Box::new(run))),
        "sandbox" => sandbox(rest).map(|verb| Verb::Sandbox(Sandbox { verb })),
        _ => None,
    }
}

fn run(mut rest: &[OsString]) -> Option<Run> {
    let mut flags = RunFlags::default();
    loop {
        let (word, after) = rest.split_first()?;
        if word == "--" {
            rest = after;
            break;
        }
        if !is_flag(word)? {
            break;
        }
        rest = take_flag(&mut flags, word, after)?;
    }
    (!rest.is_empty()).then(|| Run {
        flags,
        command: rest.to_vec(),
    })
}

fn exec(mut rest: &[OsString]) -> Option<Exec> {
    let mut flags = RunFlags::default();
    let mut bundle = None;
    let mut arguments = Vec::new();
    while let Some((word, after)) = rest.split_first() {
        if word == "--" {
            arguments = after.to_vec();
            break;
        }
        if is_flag(word)? {
            rest = take_flag(&mut flags, word, after)?;
        } else if bundle.replace(PathBuf::from(word)).is_some() {
            return None;
        } else {
            rest = after;
        }
    }
    Some(Exec {
        bundle: bundle?,
        flags,
        arguments,
    })
}

fn sandbox(words: &[OsString]) -> Option<SandboxVerb> {
    let (verb, rest) = words.split_first()?;
    match verb.to_str()? {
        "create" => create(rest).map(|create| SandboxVerb::Create(Box::new(create))),
        "exec" => exec_in(rest).map(SandboxVerb::Exec),
        _ => None,
    }
}

fn create(mut rest: &[OsString]) -> Option<Create> {
    let mut flags = RunFlags::default();
    let mut name = None;
    while let Some((word, after)) = rest.split_first() {
        if word == "--" || !is_flag(word)? {
            return None;
        }
        rest = match word == "--name" {
            true => {
                let (value, after) = after.split_first()?;
                let value = value.to_str().filter(|value| !value.is_empty())?;
                name = (!value.starts_with('-')).then(|| Some(value.to_owned()))?;
                after
            }
            false => take_flag(&mut flags, word, after)?,
        };
    }
    Some(Create {
        name,
        idle_timeout: None,
        pause_after_idle: None,
        label: Vec::new(),
        label_file: Vec::new(),
        flags,
    })
}

/// Flags of `run` that `sandbox exec` has, too.
const OF_EXEC_IN: [&str; 15] = [
    "-e",
    "--env",
    "--env-file",
    "-i",
    "--interactive",
    "-t",
    "--tty",
    "-w",
    "--workdir",
    "-q",
    "--quiet",
    "-v",
    "--verbose",
    "--color",
    "--policy",
];

fn exec_in(mut rest: &[OsString]) -> Option<ExecIn> {
    let mut flags = RunFlags::default();
    let mut detach = false;
    let sandbox = loop {
        let (word, after) = rest.split_first()?;
        if !is_flag(word)? {
            rest = after;
            break word.to_str()?.to_owned();
        }
        let name = word.to_str()?.split('=').next()?;
        rest = match word == "-d" || word == "--detach" {
            true => {
                detach = true;
                after
            }
            false if OF_EXEC_IN.contains(&name) => take_flag(&mut flags, word, after)?,
            false => return None,
        };
    };
    let (first, after) = rest.split_first()?;
    let command = match is_flag(first)? {
        true => (first == "--" && !after.is_empty()).then_some(after)?,
        false => rest,
    };
    let (interactive, tty) = (flags.process.interactive, flags.process.tty);
    if detach && (interactive || tty) {
        return None;
    }
    Some(ExecIn {
        interactive,
        tty,
        detach,
        env: flags.environment.env,
        env_file: flags.environment.env_file,
        timeout: None,
        limits: CommandLimitFlags::default(),
        usage: false,
        json: None,
        id_file: None,
        workdir: flags.view.workdir,
        sandbox,
        command: command.to_vec(),
        common: flags.common,
    })
}

/// Whether `word` is a flag and not a value; `None` for an empty word and for `-`.
fn is_flag(word: &OsStr) -> Option<bool> {
    match word.as_bytes() {
        [] | b"-" => None,
        [first, ..] => Some(*first == b'-'),
    }
}

/// Sets the flag `word`. Returns the words after it and its value.
fn take_flag<'line>(
    flags: &mut RunFlags,
    word: &OsStr,
    after: &'line [OsString],
) -> Option<&'line [OsString]> {
    let (name, value) = match word.as_bytes().strip_prefix(b"--") {
        Some(long) => {
            let mut halves = long.splitn(2, |byte| *byte == b'=');
            let name = std::str::from_utf8(halves.next()?).ok()?;
            (name, halves.next().map(OsStr::from_bytes))
        }
        None => (long_name(word)?, None),
    };
    if let Some(switch) = switch(flags, name) {
        *switch = true;
        return value.is_none().then_some(after);
    }
    if name == "verbose" {
        flags.common.messages.verbose = flags.common.messages.verbose.saturating_add(1);
        return value.is_none().then_some(after);
    }
    if name == "json" {
        // Its value follows a `=` or is omitted.
        flags.report.json = Some(value.unwrap_or(OsStr::new("-")).to_owned());
        return (value != Some(OsStr::new(""))).then_some(after);
    }
    let (value, after) = match value {
        Some(value) => (value, after),
        None => {
            let (value, after) = after.split_first()?;
            (!is_flag(value)?).then_some((value.as_os_str(), after))?
        }
    };
    if value.is_empty() {
        return None;
    }
    set_path(flags, name, value).or_else(|| set_text(flags, name, value.to_str()?))?;
    Some(after)
}

/// The long name of a single short flag.
fn long_name(word: &OsStr) -> Option<&'static str> {
    match word.as_bytes() {
        b"-e" => Some("env"),
        b"-i" => Some("interactive"),
        b"-p" => Some("publish"),
        b"-q" => Some("quiet"),
        b"-t" => Some("tty"),
        b"-v" => Some("verbose"),
        b"-w" => Some("workdir"),
        [b'-', short] => {
            let flags = Limit::ALL.into_iter().filter_map(|limit| limit.row().flag);
            let mut named = flags.filter(|flag| flag.short == Some(char::from(*short)));
            named.next().map(|flag| flag.long)
        }
        _ => None,
    }
}

fn switch<'flags>(flags: &'flags mut RunFlags, name: &str) -> Option<&'flags mut bool> {
    match name {
        "allow-tags" => Some(&mut flags.oci.allow_tags),
        "insecure" => Some(&mut flags.oci.insecure),
        "interactive" => Some(&mut flags.process.interactive),
        "keep" => Some(&mut flags.bundle.keep),
        "no-cache" => Some(&mut flags.bundle.no_cache),
        "no-record" => Some(&mut flags.report.no_record),
        "no-trust-mtime" => Some(&mut flags.bundle.no_trust_mtime),
        "quiet" => Some(&mut flags.common.messages.quiet),
        "record-output" => Some(&mut flags.report.record_output),
        "report-denials" => Some(&mut flags.network.report_denials),
        "rm" => Some(&mut flags.process.rm),
        "stats" => Some(&mut flags.report.stats),
        "strict" => Some(&mut flags.policy.strict),
        "unix-sockets" => Some(&mut flags.policy.unix_sockets),
        "trace" => Some(&mut flags.report.trace),
        "tty" => Some(&mut flags.process.tty),
        _ => None,
    }
}

/// Sets a flag whose value need not be UTF-8.
fn set_path(flags: &mut RunFlags, name: &str, value: &OsStr) -> Option<()> {
    match name {
        "env" => flags
            .environment
            .env
            .push(keep_from_children(|| value.to_owned())),
        "env-file" => flags.environment.env_file.push(value.into()),
        "events" => flags.report.events = Some(value.to_owned()),
        "image" => flags.oci.image = Some(value.to_owned()),
        "inputs" => flags.bundle.inputs = Some(value.to_owned()),
        "manifest" => flags.bundle.manifest = Some(value.into()),
        "mount" => flags.view.mount.push(value.to_owned()),
        "out-dir" => flags.bundle.out_dir = Some(value.into()),
        // clap refuses a second one.
        "policy" if flags.common.policy.is_none() => flags.common.policy = Some(value.into()),
        "publish-file" => flags.network.publish_file = Some(value.into()),
        "report" => flags.report.report = Some(value.to_owned()),
        "ro" => flags.view.ro.push(value.into()),
        "socket" => flags.view.socket.push(value.into()),
        "rw" => flags.view.rw.push(value.into()),
        "secret" => flags.environment.secret.push(value.to_owned()),
        "tmpfs" => flags.view.tmpfs.push(value.to_owned()),
        "workdir" => flags.view.workdir = Some(value.into()),
        "workspace" => flags.bundle.workspace = Some(value.into()),
        _ => return None,
    }
    Some(())
}

fn set_text(flags: &mut RunFlags, name: &str, value: &str) -> Option<()> {
    let limits = &mut flags.limits;
    match name {
        "add-host" => extend(&mut flags.network.add_host, value)?,
        "allow-net" => extend(&mut flags.network.allow_net, value)?,
        "color" => flags.common.messages.color = Some(one_of(value)?),
        "egress-capture" => flags.network.egress_capture = Some(one_of(value)?),
        "grace" => limits.grace = Some(parse_duration(value).ok()?),
        "grant" => {
            for name in value.split(',') {
                flags.policy.grant.push(grants_named(name)?);
            }
        }
        "in" => flags.bundle.input_files.push(value.to_owned()),
        "limits" => limits.limits = Some(one_of(value)?),
        "on-output-limit" => limits.on_output_limit = Some(one_of(value)?),
        "log-format" => flags.common.messages.log_format = Some(one_of(value)?),
        "out" => flags.bundle.output_files.push(value.to_owned()),
        "publish" => extend(&mut flags.network.publish, value)?,
        "run" => flags.bundle.run = Some(value.to_owned()),
        "stop-signal" => flags.process.stop_signal = Some(parse_signal(value).ok()?),
        "syscalls" => flags.policy.syscalls = Some(one_of(value)?),
        _ => {
            let limit = Limit::of_flag(name)?;
            let flag = limit.row().flag?;
            limits
                .values
                .0
                .set(limit, limit_flags::parse(flag.value, value).ok()?);
        }
    }
    Some(())
}

/// Appends the entries of a list separated by commas.
fn extend(list: &mut Vec<String>, value: &str) -> Option<()> {
    for entry in value.split(',') {
        list.push((!entry.is_empty()).then(|| entry.to_owned())?);
    }
    Some(())
}

fn one_of<Value: ValueEnum>(value: &str) -> Option<Value> {
    Value::from_str(value, false).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{self, CommandLine};
    use clap::{CommandFactory as _, Parser as _};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Each flag once, with a value that it takes.
    const FLAGS: &[&[&str]] = &[
        &["--add-host", "a.example.com:10.0.0.1,b.example.com:[::1]"],
        &["--allow-net=a.example.com,*.example.com:443"],
        &["--allow-tags"],
        &["--color", "never"],
        &["--cpu-time", "30s"],
        &["--cpus", "1.5"],
        &["--disk=64m"],
        &["--egress-capture", "anyip"],
        &["--env", "A=b=c"],
        &["-e", "A"],
        &["--env-file", "/a/b"],
        &["--events", "fd:3"],
        &["--fsize", "1m"],
        &["--grace", "0s"],
        &["--grant", "env,secrets"],
        &["--image", "oci:/a/b@c"],
        &["--in", "a=b"],
        &["--inputs", "@file"],
        &["--insecure"],
        &["--interactive"],
        &["-i"],
        &["--json"],
        &["--json=fd:3"],
        &["--keep"],
        &["--limits", "best-effort"],
        &["--log-format", "json"],
        &["--manifest", "m.yaml"],
        &["--max-output", "0"],
        &["--memory", "64m"],
        &["-m", "1g"],
        &["--mount", "/a:/b:ro"],
        &["--no-cache"],
        &["--no-record"],
        &["--no-trust-mtime"],
        &["--nofile", "4096"],
        &["--on-output-limit", "kill"],
        &["--out", "a=b"],
        &["--out-dir", "/a"],
        &["--pids", "+7"],
        &["--policy", "p"],
        &["--report", "r.html"],
        &["--publish", "8080:80,8081:81"],
        &["-p", "0:80"],
        &["--publish-file", "/a/b"],
        &["--rm"],
        &["--quiet"],
        &["-q"],
        &["--record-output"],
        &["--report-denials"],
        &["--ro", "/a"],
        &["--run=[\"a\"]"],
        &["--rw", "/a"],
        &["--secret", "A=env:B"],
        &["--socket", "/a"],
        &["--stats"],
        &["--stop-signal", "int"],
        &["--strict"],
        &["--syscalls", "strict"],
        &["--timeout", "2s"],
        &["--tmpfs", "/t:1m"],
        &["--trace"],
        &["--tty"],
        &["-t"],
        &["--unix-sockets"],
        &["--verbose"],
        &["-v"],
        &["--workdir", "/w"],
        &["-w", "/w"],
        &["--workspace", "."],
    ];

    /// Words that are wrong, or that only clap reads.
    const OTHERS: &[&str] = &[
        "--",
        "-",
        "",
        "a",
        "b c",
        "--help",
        "-h",
        "-qv",
        "-m64m",
        "--memory=",
        "--memory=lots",
        "--memory",
        "--quiet=true",
        "--json=",
        "--nofile=8",
        "--pids=0",
        "--limits=hold",
        "--grant=all,none",
        "--allow-net=a,,b",
        "--nonsense",
        "-e=A",
        "run",
        "exec",
    ];

    /// Flags of `sandbox exec`.
    const FLAGS_OF_EXEC_IN: &[&[&str]] = &[
        &["-i"],
        &["--interactive"],
        &["-t"],
        &["--tty"],
        &["-d"],
        &["--detach"],
        &["-e", "A=b=c"],
        &["--env=A"],
        &["--env-file", "/a/b"],
        &["-w", "/w"],
        &["--workdir=/w"],
        &["-q"],
        &["--quiet"],
        &["-v"],
        &["--verbose"],
        &["--color", "never"],
        &["--policy", "p"],
        &["-it"],
        &["--name", "n"],
        &["--memory", "64m"],
        &["--rm"],
        &["--timeout", "2s"],
    ];

    fn words(words: &[&str]) -> Vec<OsString> {
        let words = [&["runner"], words].concat();
        words.into_iter().map(OsString::from).collect()
    }

    fn by_clap(words: &[OsString]) -> Option<String> {
        let line = CommandLine::try_parse_from(words).ok()?;
        Some(format!("{:?}", line.verb))
    }

    fn fast(words: &[OsString]) -> Option<String> {
        read(words, &ProcessContext::default()).map(|verb| format!("{verb:?}"))
    }

    #[test]
    fn every_flag_is_read_here_and_as_clap_reads_it() {
        for flag in FLAGS {
            for verb in ["exec", "run"] {
                let line = words(&[&[verb], *flag, &["body"]].concat());
                let read = fast(&line);
                assert!(read.is_some(), "{line:?}");
                assert_eq!(read, by_clap(&line), "{line:?}");
            }
        }
        let mut command = CommandLine::command();
        command.build();
        for verb in ["exec", "run"] {
            let verb = command.find_subcommand(verb).expect("a verb");
            for long in verb.get_arguments().filter_map(clap::Arg::get_long) {
                let flag = format!("--{long}");
                let same = |word: &&[&str]| word[0].split('=').next() == Some(&flag);
                assert!(long == "help" || FLAGS.iter().any(same), "{flag}");
            }
        }
    }

    #[test]
    fn lines_of_sandboxes_are_read_here_and_as_clap_reads_them() {
        for rest in [
            &["create"][..],
            &[
                "create",
                "--name",
                "a",
                "--rw",
                ".",
                "-m",
                "64m",
                "--timeout=1h",
            ],
            &[
                "create",
                "--name",
                "a",
                "--name",
                "b",
                "--manifest",
                "m.yaml",
            ],
            &["exec", "a", "--", "true"],
            &["exec", "a", "true", "-x", "--", "-e"],
            &["exec", "a", "--", "--", "-x"],
            &[
                "exec", "-i", "-e", "A=1", "--env=B", "-w", "/", "-q", "a", "ls",
            ],
            &["exec", "-d", "a", "--", "sleep", "9"],
        ] {
            let line = words(&[&["sandbox"], rest].concat());
            let read = fast(&line);
            assert!(read.is_some(), "{line:?}");
            assert_eq!(read, by_clap(&line), "{line:?}");
        }
        for rest in [
            &[][..],
            &["create", "a"],
            &["create", "--name"],
            &["create", "--name", "-q"],
            &["create", "--", "a"],
            &["exec"],
            &["exec", "a"],
            &["exec", "a", "--"],
            &["exec", "a", "-e", "A=1", "ls"],
            &["exec", "-d", "-i", "a", "ls"],
            &["exec", "-m", "64m", "a", "ls"],
            &["exec", "--rm", "a", "ls"],
            &["ls"],
        ] {
            let line = words(&[&["sandbox"], rest].concat());
            assert_eq!(fast(&line), None, "{line:?}");
        }
    }

    #[test]
    fn a_line_with_a_mistake_or_a_variable_is_left_to_clap() {
        for wrong in [
            &["run"][..],
            &["run", "--"],
            &["run", "--memory", "lots", "true"],
            &["run", "--memory", "-q", "true"],
            &["run", "--memroy", "5m", "true"],
            &["run", "--policy", "a", "--policy=b", "true"],
            &["exec"],
            &["exec", "a", "b"],
            &["exec", "--help"],
            &["check", "."],
            &[],
        ] {
            assert_eq!(fast(&words(wrong)), None, "{wrong:?}");
        }
        let line = words(&["run", "true"]);
        let mut context = ProcessContext::default();
        for (name, is_read) in [
            ("RUNNER_OPT_CGROUP_PARENT", true),
            ("PATH", true),
            ("RUNNER_OPT_TIMEOUT", false),
        ] {
            context.variables = [(name.into(), "1s".into())].into();
            assert_eq!(read(&line, &context).is_some(), is_read, "{name}");
        }
    }

    #[test]
    fn a_second_policy_replaces_no_first() {
        let policy = |rest: &[&str]| match args::parse(&words(rest), &BTreeMap::new())?.verb {
            Verb::Run(run) => Ok(run.flags.common.policy),
            verb => panic!("{verb:?}"),
        };
        let found: Result<_, clap::Error> = policy(&["run", "--policy", "c,d", "x", "--policy=e"]);
        assert_eq!(found.expect("read"), Some("c,d".into()));
        for line in [
            &["run", "--policy", "a", "--policy=b", "x"][..],
            &["source", "list", "--policy=a", "--policy=b"],
            &["doctor", "--policy=a", "--policy=b"],
        ] {
            let error = policy(line).expect_err("refused").to_string();
            assert!(
                error.contains("'--policy <FILE>' cannot be used multiple times"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_version_is_the_one_that_clap_prints() {
        assert_eq!(CommandLine::command().render_version(), VERSION);
        assert!(asks_for_version(&words(&["--version"])));
        assert!(asks_for_version(&words(&["-V"])));
        for other in [&["--version", "x"][..], &["run", "--version"], &[]] {
            assert!(!asks_for_version(&words(other)), "{other:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn what_is_read_here_is_what_clap_reads(
            verb in prop::sample::select(&["run", "exec"][..]),
            parts in prop::collection::vec(
                prop_oneof![
                    4 => prop::sample::select(FLAGS).prop_map(<[&str]>::to_vec),
                    1 => prop::sample::select(OTHERS).prop_map(|word| vec![word]),
                ],
                0..7,
            ),
        ) {
            let line = words(&[&[verb], &*parts.concat()].concat());
            if let Some(read) = fast(&line) {
                prop_assert_eq!(Some(read), by_clap(&line), "{:?}", line);
            }
        }

        #[test]
        fn what_is_read_here_of_sandboxes_is_what_clap_reads(
            verb in prop::sample::select(&["create", "exec"][..]),
            parts in prop::collection::vec(
                prop_oneof![
                    2 => prop::sample::select(FLAGS).prop_map(<[&str]>::to_vec),
                    3 => prop::sample::select(FLAGS_OF_EXEC_IN).prop_map(<[&str]>::to_vec),
                    2 => prop::sample::select(OTHERS).prop_map(|word| vec![word]),
                ],
                0..7,
            ),
        ) {
            let line = words(&[&["sandbox", verb], &*parts.concat()].concat());
            if let Some(read) = fast(&line) {
                prop_assert_eq!(Some(read), by_clap(&line), "{:?}", line);
            }
        }
    }
}
