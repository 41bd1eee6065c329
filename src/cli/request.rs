//! Makes a [`Request`] of flags and the process context.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt};
use std::path::{Path, PathBuf};

use crate::cli::args::{
    BundleFlags, LimitFlags, LimitsArgument, OnOutputLimitArgument, RunFlags, SyscallsArgument,
};
use crate::cli::context::ProcessContext;
use crate::cli::environment::{self, EnvironmentError, SecretValues};
use crate::cli::images;
use crate::cli::network::NetworkError;
use crate::cli::plan::Invocation;
use crate::cli::view;
use spec::host_config::{HostPath, WrittenFlags};
use spec::host_policy::{HostPolicy, names, union};
use spec::limits::{Limit, UNLIMITED};
use spec::oci::reference::ReferenceError;
use spec::path::{escape, escape_path};
use spec::report::ErrorReport;
use spec::request::{
    BundleArgument, BundleOptions, Grants, InputsArgument, LimitOptions, LimitsMode, OnOutputLimit,
    Request, StreamOptions, Subject,
};
use spec::syscall_policy::SyscallPolicyName;
use sys::allocator::keep_from_children;

/// Directory of the bundle inside, to which the `--workdir` of `exec` is relative.
const BUNDLE_INSIDE: &str = "/bundle";
/// What to do about a flag that the host policy denies.
const DENIED_HINT: &str = "omit the flag, or have the administrator change /etc/runner/config.yaml or the file of --policy";

/// Why the flags make no request. `flag` is the long name; `found` is escaped.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("--{flag} `{found}`: expected {expected}")]
    Flag {
        flag: &'static str,
        found: String,
        expected: &'static str,
    },
    #[error("--{flag} `{found}` is relative, and the working directory no longer exists")]
    NoWorkingDirectory { flag: &'static str, found: String },
    #[error("the bundle is read from standard input, so --interactive cannot use it")]
    StandardInputTwice,
    #[error("--{flag} needs a bundle; `runner run` has none")]
    NeedsBundle { flag: &'static str },
    #[error("--{flag} is for a single command: `sandbox create` starts none")]
    OfOneCommand { flag: &'static str },
    #[error("--{flag} grants {grant}, which the host policy denies (deny_grants)")]
    GrantForbidden {
        flag: &'static str,
        /// As in `deny_grants`.
        grant: &'static str,
    },
    #[error("--syscalls {requested} is looser than the host policy (`syscalls: {of_host}`)")]
    LooserSyscalls {
        requested: &'static str,
        of_host: &'static str,
    },
    #[error("--image: {0}")]
    Image(#[from] ReferenceError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

impl RequestError {
    #[must_use]
    pub fn report(&self) -> ErrorReport {
        let (code, hint) = match self {
            Self::Flag { .. } | Self::NeedsBundle { .. } | Self::StandardInputTwice => {
                ("usage", Some("--help lists every flag".to_owned()))
            }
            Self::OfOneCommand { flag } => {
                let is_of_exec = matches!(*flag, "interactive" | "tty");
                let hint = format!("give it to the command: runner sandbox exec --{flag}");
                ("usage", is_of_exec.then_some(hint))
            }
            Self::Image(error) => ("usage", error.hint()),
            Self::Network(error) => ("usage", Some(error.hint())),
            Self::NoWorkingDirectory { .. } => ("usage", Some("give an absolute path".to_owned())),
            Self::LooserSyscalls { .. } => ("syscalls_forbidden", Some(DENIED_HINT.to_owned())),
            Self::GrantForbidden { .. } => ("grant_forbidden", Some(DENIED_HINT.to_owned())),
            Self::Environment(error) => match error {
                EnvironmentError::NotSet { name } => (
                    "env_not_set",
                    Some(format!("export it, or give a value: -e {name}=…")),
                ),
                EnvironmentError::Name { .. }
                | EnvironmentError::Value { .. }
                | EnvironmentError::Line { .. } => ("env_invalid", None),
                EnvironmentError::Unreadable { .. } | EnvironmentError::TooLarge { .. } => {
                    ("env_unreadable", None)
                }
                EnvironmentError::NoReference
                | EnvironmentError::Reference { .. }
                | EnvironmentError::SecretNotSet { .. } => ("secret_unresolved", None),
            },
        };
        ErrorReport::of(code, self, hint)
    }
}

/// The request of an invocation of `exec`, `run` or `plan`. `capture`: the report contains the body's
/// output.
///
/// # Errors
/// The first invalid flag.
pub(crate) fn build_request(
    invocation: Invocation,
    capture: bool,
    secret_values: SecretValues,
    context: &ProcessContext,
    policy: &HostPolicy,
) -> Result<Request, RequestError> {
    let Invocation {
        bundle,
        mut flags,
        words,
    } = invocation;
    add_flags(&mut flags, &policy.flags);
    let words: Vec<_> = words.into_iter().map(OsStringExt::into_vec).collect();
    let (subject, arguments) = match bundle {
        None if flags.bundle.run.is_some() => {
            return Err(RequestError::NeedsBundle { flag: "run" });
        }
        // Of `sandbox create`: clap requires the command of the others.
        None if words.is_empty() => (Subject::Sandbox, Vec::new()),
        None => (Subject::Command(words), Vec::new()),
        Some(path) if path.as_os_str() != "-" => {
            (Subject::Bundle(BundleArgument::Path(path)), words)
        }
        Some(_) if flags.process.interactive => return Err(RequestError::StandardInputTwice),
        Some(_) if flags.bundle.inputs.as_deref() == Some(OsStr::new("@-")) => {
            return Err(RequestError::Flag {
                flag: "inputs",
                found: "@-".to_owned(),
                expected: "a JSON text or @FILE: the bundle is read from standard input",
            });
        }
        Some(_) => (Subject::Bundle(BundleArgument::Stdin), words),
    };
    let mut limits = limit_options(&flags.limits);
    let mut capture = capture;
    if matches!(subject, Subject::Sandbox) {
        check_staying(&flags)?;
        // Nothing writes, and its supervisor leaves the caller's output.
        capture = true;
        let lifetime = limits.values.get(Limit::WallTime).unwrap_or(UNLIMITED);
        limits.values.set(Limit::WallTime, lifetime);
    }
    let grants = flags.policy.grant.iter().copied();
    let grants = grants.fold(Grants::default(), union);
    check_denied(&flags, grants, policy)?;
    let view = view::entries(&flags.view, context)?;
    let publish_file = flags.network.publish_file.as_deref();
    let publish_file = publish_file.map(|path| absolute("publish-file", path, context));
    let workdir = flags.view.workdir.as_deref().map(|directory| {
        let path = match subject {
            Subject::Bundle(_) => Path::new(BUNDLE_INSIDE).join(directory),
            Subject::Command(_) | Subject::Sandbox => absolute("workdir", directory, context)?,
        };
        Ok::<_, RequestError>(view::normalize(&path))
    });
    Ok(Request {
        subject,
        view,
        workdir: workdir.transpose()?,
        environment: keep_from_children(|| environment::resolve(&flags.environment, context))?,
        secrets: keep_from_children(|| {
            environment::resolve_secrets(&flags.environment, secret_values, context)
        })?,
        network: flags.network.options(publish_file.transpose()?)?,
        limits,
        streams: StreamOptions {
            interactive: flags.process.interactive,
            terminal: flags.process.tty,
            capture,
            record: flags.report.record_output,
            stats: flags.report.stats,
        },
        is_detailed: flags.report.report.is_some(),
        is_traced: flags.report.trace,
        stop_signal: flags.process.stop_signal.unwrap_or(libc::SIGTERM),
        strict: flags.policy.strict,
        syscalls: syscall_policy(flags.policy.syscalls, policy)?,
        unix_sockets: flags.policy.unix_sockets,
        sockets: view::sockets(&flags.view, context)?,
        grants,
        oci: images::options(flags.oci, context, policy)?,
        bundle: BundleOptions {
            arguments,
            ..bundle_options(flags.bundle, context)?
        },
        caller: context.caller(policy),
    })
}

/// Adds the flags of the configuration, as if they were typed.
fn add_flags(flags: &mut RunFlags, of_policy: &WrittenFlags) {
    let WrittenFlags { ro, rw, allow_net } = of_policy;
    let paths = |paths: &[HostPath]| {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.0.clone().into()).collect();
        paths
    };
    flags.view.ro.extend(paths(ro));
    flags.view.rw.extend(paths(rw));
    let hosts = allow_net.iter().map(ToString::to_string);
    flags.network.allow_net.extend(hosts);
}

/// `--syscalls`, which must not be looser than the host policy.
fn syscall_policy(
    requested: Option<SyscallsArgument>,
    policy: &HostPolicy,
) -> Result<Option<SyscallPolicyName>, RequestError> {
    let requested = requested.map(|requested| match requested {
        SyscallsArgument::Default => SyscallPolicyName::Default,
        SyscallsArgument::Strict => SyscallPolicyName::Strict,
    });
    match requested {
        Some(requested) if requested < policy.syscalls => Err(RequestError::LooserSyscalls {
            requested: requested.name(),
            of_host: policy.syscalls.name(),
        }),
        _ => Ok(requested),
    }
}

/// Refuses flags that grant what the host policy denies.
fn check_denied(flags: &RunFlags, grants: Grants, policy: &HostPolicy) -> Result<(), RequestError> {
    let denied: Vec<&'static str> = names(policy.deny_grants).collect();
    let view = &flags.view;
    let passes_variables = flags
        .environment
        .env
        .iter()
        .any(|entry| !entry.as_bytes().contains(&b'='));
    for (flag, grant, is_set) in [
        ("allow-net", "egress", !flags.network.allow_net.is_empty()),
        ("secret", "secrets", !flags.environment.secret.is_empty()),
        ("env", "env", passes_variables),
        ("ro", "mounts", !view.ro.is_empty()),
        ("rw", "mounts", !view.rw.is_empty()),
        ("socket", "mounts", !view.socket.is_empty()),
        ("mount", "mounts", !view.mount.is_empty()),
        ("image", "sources", flags.oci.image.is_some()),
        ("allow-tags", "sources", flags.oci.allow_tags),
        ("insecure", "sources", flags.oci.insecure),
    ] {
        if is_set && denied.contains(&grant) {
            return Err(RequestError::GrantForbidden { flag, grant });
        }
    }
    match names(grants).find(|name| denied.contains(name)) {
        Some(grant) => Err(RequestError::GrantForbidden {
            flag: "grant",
            grant,
        }),
        None => Ok(()),
    }
}

fn bundle_options(
    flags: BundleFlags,
    context: &ProcessContext,
) -> Result<BundleOptions, RequestError> {
    Ok(BundleOptions {
        manifest: flags.manifest,
        run: flags.run,
        workspace: flags
            .workspace
            .map(|path| absolute("workspace", &path, context))
            .transpose()?,
        inputs: flags.inputs.map(parse_inputs).transpose()?,
        input_files: parse_pairs("in", &flags.input_files)?,
        output_files: parse_pairs("out", &flags.output_files)?,
        output_directory: flags
            .out_dir
            .map(|path| absolute("out-dir", &path, context))
            .transpose()?,
        arguments: Vec::new(),
        keep: flags.keep,
        no_cache: flags.no_cache,
        no_trust_mtime: flags.no_trust_mtime,
    })
}

fn parse_inputs(value: OsString) -> Result<InputsArgument, RequestError> {
    let malformed = |found: &OsStr| RequestError::Flag {
        flag: "inputs",
        found: escape(found.as_bytes()),
        expected: "a JSON text, @FILE, or @- for standard input",
    };
    match value.as_bytes().strip_prefix(b"@") {
        Some(b"") => Err(malformed(&value)),
        Some(file) => Ok(InputsArgument::File(PathBuf::from(OsStr::from_bytes(file)))),
        None => value
            .into_string()
            .map(InputsArgument::Text)
            .map_err(|bytes| malformed(&bytes)),
    }
}

fn parse_pairs(
    flag: &'static str,
    values: &[String],
) -> Result<Vec<(String, String)>, RequestError> {
    values
        .iter()
        .map(|text| match text.split_once('=') {
            Some((key, path)) if !key.is_empty() && !path.is_empty() => {
                Ok((key.to_owned(), path.to_owned()))
            }
            _ => Err(RequestError::Flag {
                flag,
                found: escape(text.as_bytes()),
                expected: "KEY=PATH, PATH relative to the workspace",
            }),
        })
        .collect()
}

/// Refuses flags of one command for `sandbox create`.
fn check_staying(flags: &RunFlags) -> Result<(), RequestError> {
    let of_one_command = [
        (flags.process.interactive, "interactive"),
        (flags.process.tty, "tty"),
        (flags.report.stats, "stats"),
        (flags.report.record_output, "record-output"),
    ];
    if let Some((_, flag)) = of_one_command.into_iter().find(|(is_set, _)| *is_set) {
        return Err(RequestError::OfOneCommand { flag });
    }
    if flags.report.json.as_deref() == Some(OsStr::new("-")) {
        return Err(RequestError::Flag {
            flag: "json",
            found: "-".to_owned(),
            expected: "a file: the report comes when the sandbox has ended",
        });
    }
    Ok(())
}

fn limit_options(flags: &LimitFlags) -> LimitOptions {
    LimitOptions {
        values: flags.values.0,
        grace: flags.grace,
        mode: match flags.limits {
            None => LimitsMode::Stated,
            Some(LimitsArgument::Require) => LimitsMode::Require,
            Some(LimitsArgument::BestEffort) => LimitsMode::BestEffort,
        },
        on_output_limit: match flags.on_output_limit {
            None | Some(OnOutputLimitArgument::Drop) => OnOutputLimit::Drop,
            Some(OnOutputLimitArgument::Kill) => OnOutputLimit::Kill,
        },
    }
}

/// A path of the host, absolute. The kernel resolves `..` in it.
pub(super) fn absolute(
    flag: &'static str,
    path: &Path,
    context: &ProcessContext,
) -> Result<PathBuf, RequestError> {
    let found = || escape_path(path);
    if path.as_os_str().is_empty() {
        return Err(RequestError::Flag {
            flag,
            found: found(),
            expected: "a path",
        });
    }
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    match &context.working_directory {
        Some(directory) => Ok(directory.join(path)),
        None => Err(RequestError::NoWorkingDirectory {
            flag,
            found: found(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{self, CommandLine, Verb};
    use clap::{CommandFactory as _, Parser as _};
    use spec::egress::EgressRule;
    use spec::host_policy::grants_named;
    use spec::limits::{Limit, UNLIMITED};
    use spec::network::{AddedHost, CaptureChoice, NetworkOptions, PublishedPort};
    use spec::oci::reference::Place;
    use spec::request::{OciOptions, ViewEntry};
    use std::time::Duration;

    fn context(variables: &[(&str, &str)]) -> ProcessContext {
        ProcessContext {
            variables: variables
                .iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value)))
                .collect(),
            working_directory: Some(PathBuf::from("/here")),
            uid: 1000,
            ..ProcessContext::default()
        }
    }

    fn request_of(
        words: &[&str],
        variables: &[(&str, &str)],
        policy: &HostPolicy,
    ) -> Result<Request, RequestError> {
        let context = context(variables);
        let words: Vec<OsString> = ["runner"].iter().chain(words).map(OsString::from).collect();
        let line = args::parse(&words, &context.variables).expect("parses");
        let invocation = match line.verb {
            Verb::Exec(exec) => Invocation::from(*exec),
            Verb::Run(run) => Invocation::from(*run),
            other => panic!("{other:?} makes no request"),
        };
        build_request(invocation, false, SecretValues::Read, &context, policy)
    }

    fn request(words: &[&str]) -> Request {
        request_of(words, &[], &HostPolicy::default()).expect("a request")
    }

    /// A request without flags, for comparison field by field.
    fn plain(subject: Subject) -> Request {
        Request {
            subject,
            bundle: BundleOptions::default(),
            view: Vec::new(),
            workdir: None,
            environment: Vec::new(),
            secrets: Vec::new(),
            network: NetworkOptions::default(),
            limits: LimitOptions::default(),
            streams: StreamOptions::default(),
            is_detailed: false,
            is_traced: false,
            stop_signal: 15,
            strict: false,
            syscalls: None,
            unix_sockets: false,
            sockets: Vec::new(),
            grants: Grants::default(),
            oci: OciOptions::default(),
            caller: context(&[]).caller(&HostPolicy::default()),
        }
    }

    fn command(words: &[&str]) -> Subject {
        Subject::Command(words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }

    fn bind(source: &str, target: &str, writable: bool) -> ViewEntry {
        ViewEntry::Bind {
            source: source.into(),
            target: target.into(),
            writable,
        }
    }

    #[test]
    fn the_first_word_that_is_no_flag_ends_the_flags_of_run() {
        for (words, argv) in [
            (&["run", "true"][..], &["true"][..]),
            (&["run", "--", "true"], &["true"]),
            (
                &["run", "ls", "-l", "--memory", "5m"],
                &["ls", "-l", "--memory", "5m"],
            ),
            (&["run", "--", "ls", "--", "-l"], &["ls", "--", "-l"]),
            (&["run", "ls", "--", "-l"], &["ls", "--", "-l"]),
            (&["run", "--json", "sh"], &["sh"]),
            (&["run", "sh", "--help"], &["sh", "--help"]),
            (&["run", "--", "-x"], &["-x"]),
        ] {
            assert_eq!(request(words).subject, command(argv), "{words:?}");
        }
    }

    /// Asserts that the flags change a plain request as `change` does, and nothing else.
    fn assert_changes(flags: &[&str], change: impl Fn(&mut Request)) {
        let mut expected = plain(command(&["x"]));
        change(&mut expected);
        let words = [&["run"], flags, &["x"]].concat();
        assert_eq!(request(&words), expected, "{flags:?}");
    }

    #[test]
    fn every_limit_lands_in_its_field() {
        for (flags, limit, value) in [
            (&["-m", "512m"][..], Limit::Memory, 512 << 20),
            (&["--cpus", "1.5"], Limit::Cpus, 1_500),
            (&["--cpu-time", "30s"], Limit::CpuTime, 30_000),
            (&["--timeout", "30s"], Limit::WallTime, 30_000),
            (&["--timeout", "none"], Limit::WallTime, UNLIMITED),
            (&["--pids", "7"], Limit::Processes, 7),
            (&["--nofile", "64"], Limit::OpenFiles, 64),
            (&["--disk=1g"], Limit::Disk, 1 << 30),
            (&["--max-output", "0"], Limit::Output, 0),
            // A later flag replaces an earlier one of its kind.
            (&["-m", "1g", "-m", "64k"], Limit::Memory, 65_536),
        ] {
            assert_changes(flags, |r| r.limits.values.set(limit, value));
        }
        assert_changes(&[], |_| ());
        assert_changes(&["--grace", "0s"], |r| {
            r.limits.grace = Some(Duration::ZERO)
        });
        assert_changes(&["--limits=require"], |r| {
            r.limits.mode = LimitsMode::Require
        });
        assert_changes(&["--limits=best-effort"], |r| {
            r.limits.mode = LimitsMode::BestEffort
        });
        assert_changes(&["--on-output-limit=kill"], |r| {
            r.limits.on_output_limit = OnOutputLimit::Kill;
        });
    }

    #[test]
    fn every_path_lands_in_its_field() {
        assert_changes(&["--ro", "/a", "--rw", "b/../c"], |r| {
            r.view = vec![
                bind("/a", "/a", false),
                bind("/here/b/../c", "/here/c", true),
            ];
        });
        assert_changes(&["--mount", "d:/data:ro", "--mount", "/e:/f"], |r| {
            r.view = vec![bind("/here/d", "/data", false), bind("/e", "/f", true)];
        });
        assert_changes(&["--tmpfs", "/c:64k", "--tmpfs", "/d"], |r| {
            r.view = [("/c", Some(65_536)), ("/d", None)]
                .map(|(target, size_bytes)| ViewEntry::Tmpfs {
                    target: target.into(),
                    size_bytes,
                })
                .to_vec();
        });
        assert_changes(&["-w", "sub/./x"], |r| {
            r.workdir = Some("/here/sub/x".into())
        });
        assert_changes(
            &[
                "--workspace",
                "w",
                "--in",
                "k=p=q",
                "--out",
                "o=x/y",
                "--out-dir",
                "d",
                "--keep",
            ],
            |r| {
                r.bundle.output_directory = Some("/here/d".into());
                r.bundle.workspace = Some("/here/w".into());
                r.bundle.input_files = vec![("k".to_owned(), "p=q".to_owned())];
                r.bundle.output_files = vec![("o".to_owned(), "x/y".to_owned())];
                r.bundle.keep = true;
            },
        );
        assert_changes(&["--inputs", "{\"a\":1}"], |r| {
            r.bundle.inputs = Some(InputsArgument::Text("{\"a\":1}".to_owned()));
        });
        assert_changes(&["--inputs", "@f.json"], |r| {
            r.bundle.inputs = Some(InputsArgument::File("f.json".into()));
        });
        assert_changes(&["--manifest", "m.yaml"], |r| {
            r.bundle.manifest = Some("m.yaml".into())
        });
    }

    #[test]
    fn every_other_flag_lands_in_its_field() {
        assert_changes(&["-i", "-t"], |r| {
            r.streams.interactive = true;
            r.streams.terminal = true;
        });
        assert_changes(&["--stop-signal", "INT"], |r| r.stop_signal = 2);
        assert_changes(&["--strict"], |r| r.strict = true);
        for (word, name) in [
            ("default", SyscallPolicyName::Default),
            ("strict", SyscallPolicyName::Strict),
        ] {
            assert_changes(&["--syscalls", word], |r| r.syscalls = Some(name));
        }
        assert_changes(&["--grant", "egress,env"], |r| {
            r.grants.egress = true;
            r.grants.env = true;
        });
        for (image, parsed) in [
            ("oci:a:b", "oci:/here/a:b"),
            ("docker://r.test/a:b", "docker://r.test/a:b"),
        ] {
            assert_changes(&["--image", image], |r| {
                r.oci.image = Some(Place::parse(parsed).expect(parsed));
            });
        }
        assert_changes(&["--allow-tags", "--insecure"], |r| {
            r.oci.allow_tags = true;
            r.oci.insecure = true;
        });
        assert_changes(&["--grant", "all"], |r| {
            r.grants = grants_named("all").expect("a name");
        });
        assert_changes(&["--allow-net", "a:443,b", "--allow-net", "c"], |r| {
            r.network.allow = ["a:443", "b", "c"]
                .map(|rule| EgressRule::parse(rule).expect(rule))
                .to_vec();
        });
        assert_changes(&["--publish-file", "ports"], |r| {
            r.network.publish_file = Some("/here/ports".into());
        });
        assert_changes(&["--rm"], |_same| ());
        assert_changes(&["--publish", "8080:80,8081:81"], |r| {
            r.network.publish = ["8080:80", "8081:81"]
                .map(|ports| PublishedPort::parse(ports).expect(ports))
                .to_vec();
        });
        assert_changes(&["--add-host", "a:::1", "--add-host", "b:10.0.0.1"], |r| {
            r.network.added_hosts = ["a:::1", "b:10.0.0.1"]
                .map(|host| AddedHost::parse(host).expect(host))
                .to_vec();
        });
        assert_changes(&["--report-denials"], |r| r.network.report_denials = true);
        assert_changes(&["--egress-capture=anyip"], |r| {
            r.network.capture = CaptureChoice::AnyIp;
        });
        assert_changes(&["--egress-capture", "tproxy"], |r| {
            r.network.capture = CaptureChoice::Tproxy;
        });
        assert_changes(&["-e", "A=1,2", "-e", "B=3"], |r| {
            r.environment = [("A", "1,2"), ("B", "3")]
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .to_vec();
        });
        // Flags of messages and of the report are not part of the request.
        assert_changes(&["-q", "-v", "--color=never", "--json=f"], |_| ());
    }

    #[test]
    fn a_bundle_has_a_path_and_arguments_after_two_dashes() {
        let request = request(&[
            "exec", "b.tar.gz", "--run", "x.py", "-w", "src", "--", "-v", "--", "a",
        ]);
        let path = BundleArgument::Path("b.tar.gz".into());
        assert_eq!(request.subject, Subject::Bundle(path));
        assert_eq!(request.bundle.run.as_deref(), Some("x.py"));
        assert_eq!(
            request.bundle.arguments,
            [b"-v".to_vec(), b"--".to_vec(), b"a".to_vec()]
        );
        assert_eq!(request.workdir, Some("/bundle/src".into()));
        let stdin = self::request(&["exec", "-"]).subject;
        assert_eq!(stdin, Subject::Bundle(BundleArgument::Stdin));
    }

    #[test]
    fn lists_are_read_from_variables_unless_the_flag_is_there() {
        let variables = [
            ("RUNNER_OPT_RO", "/a,/b"),
            ("RUNNER_OPT_ENV", "A=1,2\nB"),
            ("RUNNER_OPT_GRANT", "env,secrets"),
            ("RUNNER_OPT_ALLOW_NET", "a.com,*.b.com:443"),
            ("RUNNER_OPT_PUBLISH", "8080:80"),
            ("RUNNER_OPT_ADD_HOST", "a.com:10.0.0.1,b.com:[::1]"),
            ("B", "from here"),
        ];
        let policy = HostPolicy::default();
        let read = request_of(&["run", "x"], &variables, &policy).expect("a request");
        assert_eq!(
            read.view,
            [bind("/a", "/a", false), bind("/b", "/b", false)]
        );
        assert_eq!(
            read.environment,
            [
                (b"A".to_vec(), b"1,2".to_vec()),
                (b"B".to_vec(), b"from here".to_vec())
            ]
        );
        assert!(read.grants.env && read.grants.secrets);
        let network = &read.network;
        assert_eq!((network.allow.len(), network.publish.len()), (2, 1));
        assert_eq!(network.added_hosts.len(), 2);
        let flags = ["run", "--ro", "/c", "-e", "C=3", "x"];
        let read = request_of(&flags, &variables, &policy).expect("a request");
        assert_eq!(read.view, [bind("/c", "/c", false)]);
        assert_eq!(read.environment, [(b"C".to_vec(), b"3".to_vec())]);
        let misspelt = [("RUNNER_OPT_MEMROY".into(), "64m".into())].into();
        let words = ["runner", "run", "x"].map(OsString::from);
        let error = args::parse(&words, &misspelt).expect_err("no flag");
        let error = error.to_string();
        assert!(
            error.contains("RUNNER_OPT_MEMROY belongs to no flag"),
            "{error}"
        );
        assert!(error.contains("tip: a similar variable exists: 'RUNNER_OPT_MEMORY'"));
        let not_text = [("RUNNER_OPT_GRANT".into(), OsString::from_vec(vec![0xff]))].into();
        let error = args::parse(&words, &not_text).expect_err("not UTF-8");
        assert!(error.to_string().contains("RUNNER_OPT_GRANT is not UTF-8"));
    }

    #[test]
    fn every_repeatable_flag_has_a_variable() {
        fn check(verb: &clap::Command, words: &[OsString], count: &mut usize) {
            for inner in verb.get_subcommands() {
                let words = [words, &[OsString::from(inner.get_name())]].concat();
                check(inner, &words, count);
            }
            let lists = verb.get_arguments().filter(|flag| {
                matches!(flag.get_action(), clap::ArgAction::Append)
                    && flag.get_long().is_some()
                    && flag.get_env().is_none()
            });
            for flag in lists {
                let long = flag.get_long().expect("a flag");
                let name = format!("RUNNER_OPT_{}", long.to_uppercase().replace('-', "_"));
                // No list takes it: an entry that is read is refused, or ends in the parsed verb.
                let variables = [(name.into(), "\u{1f980}".into())].into();
                let places = verb.get_positionals().filter(|place| !place.is_last_set());
                let flags = verb.get_arguments().filter(|flag| flag.is_required_set());
                let flags = flags.filter(|flag| !flag.is_positional());
                let groups = verb.get_groups().filter(|group| group.is_required_set());
                let required = groups.filter_map(|group| group.get_args().next());
                let required: Vec<OsString> = required
                    .chain(flags.map(clap::Arg::get_id))
                    .map(|id| format!("--{id}=x").into())
                    .collect();
                let places = vec!["x".into(); places.count()];
                let line = [words, &required, &places].concat();
                let parsed = format!("{:?}", args::parse(&line, &variables));
                assert!(parsed.contains('\u{1f980}'), "{line:?} --{long}: {parsed}");
                *count += 1;
            }
        }
        let mut count = 0;
        let mut command = CommandLine::command();
        command.build();
        check(&command, &["runner".into()], &mut count);
        assert!(count > 40, "{count}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_code() {
        for (words, code, part) in [
            (&["run", "--mount", "/a", "x"][..], "usage", "--mount `/a`"),
            (&["run", "--mount", "/a:b", "x"], "usage", "DST absolute"),
            (&["run", "--mount", "/a:/b:rx", "x"], "usage", "--mount"),
            (&["run", "--mount", ":/b", "x"], "usage", "--mount"),
            (&["run", "--tmpfs", "c", "x"], "usage", "--tmpfs"),
            (&["run", "--tmpfs", "/c:0", "x"], "usage", "--tmpfs"),
            (&["run", "--tmpfs", "/c:big", "x"], "usage", "--tmpfs"),
            (&["run", "--in", "k", "x"], "usage", "KEY=PATH"),
            (&["run", "--out", "=p", "x"], "usage", "KEY=PATH"),
            (&["run", "--inputs", "@", "x"], "usage", "@FILE"),
            (&["run", "--run", "y", "x"], "usage", "needs a bundle"),
            (&["exec", "-", "-i"], "usage", "standard input"),
            (&["exec", "-", "--inputs", "@-"], "usage", "--inputs `@-`"),
            (&["run", "--image", "debian", "x"], "usage", "`docker://`"),
            (
                &["run", "--allow-net", "http://a", "x"],
                "usage",
                "--allow-net `http://a`: this is a URL",
            ),
            (&["run", "--publish", "1", "x"], "usage", "HOST_PORT:"),
            (&["run", "--publish", "1:1,1:2", "x"], "usage", "is taken"),
            (&["run", "--add-host", "a", "x"], "usage", "HOST:IP"),
            (
                &["run", "-e", "NOT_SET_HERE", "x"],
                "env_not_set",
                "NOT_SET_HERE",
            ),
            (&["run", "-e", "=1", "x"], "env_invalid", "is empty"),
            (
                &["run", "--env-file", "/nonexistent", "x"],
                "env_unreadable",
                "/nonexistent",
            ),
            (
                &["run", "--secret", "K=v", "x"],
                "secret_unresolved",
                "env:VAR",
            ),
        ] {
            let error = request_of(words, &[], &HostPolicy::default()).expect_err("refused");
            let report = error.report();
            assert_eq!(report.code, code, "{words:?}");
            assert!(
                report.message.contains(part),
                "{words:?}: {}",
                report.message
            );
        }
    }

    #[test]
    fn a_flag_cannot_grant_what_the_host_policy_denies() {
        let policy = HostPolicy {
            deny_grants: grants_named("all").expect("a name"),
            ..HostPolicy::default()
        };
        for words in [
            &["run", "--grant", "outputs", "x"][..],
            &["run", "--allow-net", "a", "x"],
            &["run", "--secret", "A=env:A", "x"],
            &["run", "-e", "A", "x"],
            &["run", "--ro", "/a", "x"],
            &["run", "--rw", "/a", "x"],
            &["run", "--mount", "/a:/b", "x"],
            &["run", "--image", "oci:/a", "x"],
            &["run", "--allow-tags", "x"],
            &["run", "--insecure", "x"],
        ] {
            let error = request_of(words, &[("A", "1")], &policy).expect_err("refused");
            assert_eq!(error.report().code, "grant_forbidden", "{words:?}");
        }
        // A variable with a value of its own passes none of the caller's on.
        let own = request_of(&["run", "-e", "A=1", "x"], &[], &policy);
        assert_eq!(own.expect("a request").environment.len(), 1);
    }

    #[test]
    fn a_flag_tightens_the_system_call_policy_of_the_host_and_never_loosens_it() {
        use SyscallPolicyName::{Default, Strict};
        for (of_host, words, expected) in [
            (Default, &["run", "x"][..], Ok(None)),
            (
                Default,
                &["run", "--syscalls=strict", "x"],
                Ok(Some(Strict)),
            ),
            (
                Default,
                &["run", "--syscalls=default", "x"],
                Ok(Some(Default)),
            ),
            (Strict, &["run", "x"], Ok(None)),
            (Strict, &["run", "--syscalls=strict", "x"], Ok(Some(Strict))),
            (
                Strict,
                &["exec", "--syscalls=default", "x"],
                Err("syscalls_forbidden"),
            ),
        ] {
            let policy = HostPolicy {
                syscalls: of_host,
                ..HostPolicy::default()
            };
            let found = request_of(words, &[], &policy);
            let found = found.map(|request| request.syscalls);
            let found = found.map_err(|error| error.report().code);
            assert_eq!(found, expected.map_err(str::to_owned), "{words:?}");
        }
    }

    #[test]
    fn clap_refuses_what_is_no_flag_and_no_value() {
        for words in [
            &["run"][..],
            &["run", "--memroy", "5m", "x"],
            &["run", "-m", "0", "x"],
            &["run", "-m", "1.5g", "x"],
            &["run", "--timeout", "5", "x"],
            &["run", "--timeout", "0s", "x"],
            &["run", "--cpus", "0", "x"],
            &["run", "--cpus", "nan", "x"],
            &["run", "--cpus", "1e3", "x"],
            &["run", "--cpus", "-1", "x"],
            &["run", "--pids", "0", "x"],
            &["run", "--stop-signal", "65", "x"],
            &["run", "--grant", "everything", "x"],
            &["run", "--limits=some", "x"],
            &["run", "--egress-capture", "nft", "x"],
            &["exec"],
            &["exec", "a", "b"],
            &["schema"],
            &["bundle"],
            &["check"],
        ] {
            let line = CommandLine::try_parse_from([&["runner"], words].concat());
            assert!(line.is_err(), "{words:?}");
        }
    }
}
