//! From what the user typed to what the program needs: flags and surroundings make a request.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt};
use std::path::{Path, PathBuf};

use crate::cli::args::{
    BundleFlags, EnvironmentFlags, Exec, LimitFlags, LimitsArgument, OnOutputLimitArgument, Run,
    RunFlags,
};
use crate::cli::environment;
use crate::cli::environment::EnvironmentError;
use crate::cli::images;
use crate::cli::network::NetworkError;
use crate::cli::plan::Plan;
use crate::cli::surroundings::Surroundings;
use crate::cli::syscalls::{self, LooserSyscalls};
use crate::cli::view;
use spec::did_you_mean::nearest;
use spec::host_policy::{GRANT_NAMES, HostPolicy, grants_named, names, union};
use spec::oci::reference::ReferenceError;
use spec::path::escape;
use spec::report::{ErrorReport, with_causes};
use spec::request::{
    BundleArgument, BundleOptions, GivenSecret, Grants, InputsArgument, LimitOptions, LimitsMode,
    OnOutputLimit, Request, StreamOptions, Subject,
};

/// Where a bundle lies inside, for a relative `--workdir` of `exec`.
const BUNDLE_INSIDE: &str = "/bundle";

/// Why what was typed makes no request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The value of a flag is malformed.
    #[error("--{flag} `{found}`: expected {expected}")]
    Flag {
        /// The long name.
        flag: &'static str,
        /// The value, escaped.
        found: String,
        /// What would have been accepted.
        expected: &'static str,
    },
    /// An unknown grant (only a variable gets here: clap checks the flag).
    #[error("unknown grant `{found}`")]
    UnknownGrant {
        /// The value, escaped.
        found: String,
    },
    /// A variable of the list flags that is not UTF-8.
    #[error("the variable {name} is not UTF-8")]
    Variable {
        /// Its name.
        name: String,
    },
    /// A relative path, and the working directory is gone.
    #[error("--{flag} `{found}` is relative, and the working directory no longer exists")]
    NoWorkingDirectory {
        /// The long name.
        flag: &'static str,
        /// The path, escaped.
        found: String,
    },
    /// Standard input is wanted twice.
    #[error("the bundle is read from standard input, so --interactive cannot have it")]
    StandardInputTwice,
    /// A flag that replaces a part of a bundle, and there is none.
    #[error("--{flag} needs a bundle; `runner run` has none")]
    NeedsBundle {
        /// The long name.
        flag: &'static str,
    },
    /// A flag grants what the host policy denies.
    #[error("--{flag} grants {grant}, which the host policy denies (deny_grants)")]
    GrantForbidden {
        /// The long name.
        flag: &'static str,
        /// As `deny_grants` names it.
        grant: &'static str,
    },
    /// `--syscalls` asks for a looser policy than the host's.
    #[error(transparent)]
    Syscalls(#[from] LooserSyscalls),
    /// `--image`.
    #[error("--image: {0}")]
    Image(#[from] ReferenceError),
    /// A flag about the network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A variable or a secret.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

impl RequestError {
    /// The error as the report has it.
    #[must_use]
    pub fn report(&self) -> ErrorReport {
        let (code, hint) = match self {
            Self::Flag { .. } | Self::NeedsBundle { .. } | Self::StandardInputTwice => (
                "usage",
                Some("`runner exec --help` lists every flag".to_owned()),
            ),
            Self::UnknownGrant { found } => (
                "usage",
                Some(match nearest(found, GRANT_NAMES) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => format!("known: {}, all", GRANT_NAMES.join(", ")),
                }),
            ),
            Self::Image(error) => ("usage", error.hint()),
            Self::Network(error) => ("usage", Some(error.hint())),
            Self::Variable { .. } => ("usage", Some("unset it, or use the flag".to_owned())),
            Self::NoWorkingDirectory { .. } => ("usage", Some("give an absolute path".to_owned())),
            Self::Syscalls(_) => ("syscalls_forbidden", Some(LooserSyscalls::HINT.to_owned())),
            Self::GrantForbidden { .. } => (
                "grant_forbidden",
                Some("leave the flag out, or ask whoever keeps /etc/runner/config.yaml".to_owned()),
            ),
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
                EnvironmentError::Reference { .. } | EnvironmentError::SecretNotSet { .. } => {
                    ("secret_unresolved", None)
                }
            },
        };
        ErrorReport {
            code: code.to_owned(),
            message: with_causes(self),
            hint,
        }
    }
}

/// The request of `runner exec`.
///
/// # Errors
/// The first flag that makes no sense.
pub(crate) fn of_exec(
    exec: Exec,
    capture: bool,
    surroundings: &Surroundings,
    policy: &HostPolicy,
) -> Result<Request, RequestError> {
    let make = Making {
        capture,
        surroundings,
        policy,
        secrets: environment::resolve_secrets,
    };
    make.exec(exec)
}

/// The request of `runner run`.
///
/// # Errors
/// The first flag that makes no sense.
pub fn of_run(
    run: Run,
    capture: bool,
    surroundings: &Surroundings,
    policy: &HostPolicy,
) -> Result<Request, RequestError> {
    let make = Making {
        capture,
        surroundings,
        policy,
        secrets: environment::resolve_secrets,
    };
    make.run(run)
}

/// The request of `runner plan`: that of `exec` or of `run`, without the values of secrets.
///
/// # Errors
/// The first flag that makes no sense.
pub(crate) fn of_plan(
    plan: Plan,
    surroundings: &Surroundings,
    policy: &HostPolicy,
) -> Result<Request, RequestError> {
    let Plan {
        bundle,
        flags,
        words,
    } = plan;
    let make = Making {
        capture: false,
        surroundings,
        policy,
        secrets: environment::name_secrets,
    };
    match bundle {
        Some(bundle) => make.exec(Exec {
            bundle,
            flags,
            arguments: words,
        }),
        None => make.run(Run {
            flags,
            command: words,
        }),
    }
}

/// Makes requests of flags.
struct Making<'call> {
    capture: bool,
    surroundings: &'call Surroundings,
    policy: &'call HostPolicy,
    /// What `--secret` gives: names and values, or names alone.
    secrets: SecretsOf,
}

type SecretsOf = fn(&EnvironmentFlags, &Surroundings) -> Result<Vec<GivenSecret>, EnvironmentError>;

impl Making<'_> {
    fn exec(&self, exec: Exec) -> Result<Request, RequestError> {
        let bundle = match exec.bundle.as_os_str().as_bytes() {
            b"-" if exec.flags.process.interactive => return Err(RequestError::StandardInputTwice),
            b"-" => BundleArgument::Stdin,
            _ => BundleArgument::Path(exec.bundle),
        };
        let arguments = exec
            .arguments
            .into_iter()
            .map(OsStringExt::into_vec)
            .collect();
        let workdir = |given: &Path| Ok(view::normal(&Path::new(BUNDLE_INSIDE).join(given)));
        let mut request = self.of_flags(Subject::Bundle(bundle), exec.flags, &workdir)?;
        request.bundle.arguments = arguments;
        Ok(request)
    }

    fn run(&self, run: Run) -> Result<Request, RequestError> {
        if run.flags.bundle.run.is_some() {
            return Err(RequestError::NeedsBundle { flag: "run" });
        }
        let argv = run.command.into_iter().map(OsStringExt::into_vec).collect();
        let workdir = |given: &Path| {
            Ok(view::normal(&absolute(
                "workdir",
                given,
                self.surroundings,
            )?))
        };
        self.of_flags(Subject::Command(argv), run.flags, &workdir)
    }

    fn of_flags(
        &self,
        subject: Subject,
        mut flags: RunFlags,
        workdir: &dyn Fn(&Path) -> Result<PathBuf, RequestError>,
    ) -> Result<Request, RequestError> {
        flags
            .fill_lists(&self.surroundings.variables)
            .map_err(|name| RequestError::Variable { name })?;
        let grants = grants(&flags.policy.grant)?;
        forbid(&flags, grants, self.policy)?;
        Ok(Request {
            subject,
            view: view::view(&flags.view, self.surroundings)?,
            workdir: flags.view.workdir.as_deref().map(workdir).transpose()?,
            environment: environment::resolve(&flags.environment, self.surroundings)?,
            secrets: (self.secrets)(&flags.environment, self.surroundings)?,
            network: flags
                .network
                .read_in(|path| absolute("publish-file", path, self.surroundings))?,
            limits: limits(&flags.limits),
            streams: StreamOptions {
                interactive: flags.process.interactive,
                terminal: flags.process.tty,
                capture: self.capture,
            },
            stop_signal: flags.process.stop_signal.unwrap_or(libc::SIGTERM),
            strict: flags.policy.strict,
            syscalls: syscalls::read(flags.policy.syscalls, self.policy)?,
            unix_sockets: flags.policy.unix_sockets,
            sockets: view::sockets(&flags.view, self.surroundings)?,
            grants,
            oci: images::read(flags.oci, self.surroundings, self.policy)?,
            bundle: bundle(flags.bundle, self.surroundings)?,
            caller: self.surroundings.caller(self.policy),
        })
    }
}

fn grants(given: &[String]) -> Result<Grants, RequestError> {
    given.iter().try_fold(Grants::default(), |sum, name| {
        let more = grants_named(name).ok_or_else(|| RequestError::UnknownGrant {
            found: escape(name.as_bytes()),
        })?;
        Ok(union(sum, more))
    })
}

/// Refuses the flags that grant what the host policy denies.
fn forbid(flags: &RunFlags, grants: Grants, policy: &HostPolicy) -> Result<(), RequestError> {
    let denied: Vec<&'static str> = names(policy.deny_grants).collect();
    let view = &flags.view;
    let passed_on = flags
        .environment
        .env
        .iter()
        .any(|entry| !entry.as_bytes().contains(&b'='));
    for (flag, grant, given) in [
        ("allow-net", "egress", !flags.network.allow_net.is_empty()),
        ("secret", "secrets", !flags.environment.secret.is_empty()),
        ("env", "env", passed_on),
        ("ro", "mounts", !view.ro.is_empty()),
        ("rw", "mounts", !view.rw.is_empty()),
        ("socket", "mounts", !view.socket.is_empty()),
        ("mount", "mounts", !view.mount.is_empty()),
        ("image", "sources", flags.oci.image.is_some()),
        ("allow-tags", "sources", flags.oci.allow_tags),
        ("insecure", "sources", flags.oci.insecure),
    ] {
        if given && denied.contains(&grant) {
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

fn bundle(flags: BundleFlags, surroundings: &Surroundings) -> Result<BundleOptions, RequestError> {
    Ok(BundleOptions {
        manifest: flags.manifest,
        run: flags.run,
        workspace: flags
            .workspace
            .map(|path| absolute("workspace", &path, surroundings))
            .transpose()?,
        inputs: flags.inputs.map(inputs).transpose()?,
        input_files: pairs("in", &flags.input_files)?,
        output_files: pairs("out", &flags.output_files)?,
        output_directory: flags
            .out_dir
            .map(|path| absolute("out-dir", &path, surroundings))
            .transpose()?,
        arguments: Vec::new(),
        keep: flags.keep,
        no_cache: flags.no_cache,
        no_trust_mtime: flags.no_trust_mtime,
    })
}

fn inputs(given: OsString) -> Result<InputsArgument, RequestError> {
    let malformed = |found: &OsStr| RequestError::Flag {
        flag: "inputs",
        found: escape(found.as_bytes()),
        expected: "a JSON text, @FILE, or @- for standard input",
    };
    match given.as_bytes().strip_prefix(b"@") {
        Some(b"") => Err(malformed(&given)),
        Some(file) => Ok(InputsArgument::File(PathBuf::from(OsStr::from_bytes(file)))),
        None => given
            .into_string()
            .map(InputsArgument::Text)
            .map_err(|bytes| malformed(&bytes)),
    }
}

fn pairs(flag: &'static str, given: &[String]) -> Result<Vec<(String, String)>, RequestError> {
    given
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

fn limits(flags: &LimitFlags) -> LimitOptions {
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

/// A path of the host, absolute; `..` stays for the kernel to resolve.
pub(super) fn absolute(
    flag: &'static str,
    path: &Path,
    surroundings: &Surroundings,
) -> Result<PathBuf, RequestError> {
    let found = || escape(path.as_os_str().as_bytes());
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
    match &surroundings.working_directory {
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
    use crate::cli::args::{CommandLine, Verb};
    use clap::Parser as _;
    use spec::egress::EgressRule;
    use spec::limits::{Limit, UNLIMITED};
    use spec::network::{AddedHost, CaptureChoice, NetworkOptions, PublishedPort};
    use spec::oci::reference::Place;
    use spec::request::{OciOptions, ViewEntry};
    use spec::syscall_policy::SyscallPolicyName;
    use std::time::Duration;

    fn surroundings(variables: &[(&str, &str)]) -> Surroundings {
        Surroundings {
            variables: variables
                .iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value)))
                .collect(),
            working_directory: Some(PathBuf::from("/here")),
            uid: 1000,
        }
    }

    fn request_of(
        words: &[&str],
        variables: &[(&str, &str)],
        policy: &HostPolicy,
    ) -> Result<Request, RequestError> {
        let line = CommandLine::try_parse_from([&["runner"], words].concat()).expect("parses");
        let around = surroundings(variables);
        match line.verb {
            Verb::Exec(exec) => of_exec(*exec, false, &around, policy),
            Verb::Run(run) => of_run(*run, false, &around, policy),
            other => panic!("{other:?} makes no request"),
        }
    }

    fn request(words: &[&str]) -> Request {
        request_of(words, &[], &HostPolicy::default()).expect("a request")
    }

    /// A request in which nothing was said, for comparison field by field.
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
            stop_signal: 15,
            strict: false,
            syscalls: None,
            unix_sockets: false,
            sockets: Vec::new(),
            grants: Grants::default(),
            oci: OciOptions::default(),
            caller: surroundings(&[]).caller(&HostPolicy::default()),
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

    /// Asserts that the flags before `x` change a plain request as said, and nothing else.
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
        for (image, place) in [
            ("oci:a:b", "oci:/here/a:b"),
            ("docker://r.test/a:b", "docker://r.test/a:b"),
        ] {
            assert_changes(&["--image", image], |r| {
                r.oci.image = Some(Place::parse(place).expect(place));
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
        // How to speak and where to write is not part of the request.
        assert_changes(&["-q", "-v", "--color=never", "--json=f"], |_| ());
    }

    #[test]
    fn a_bundle_has_a_place_and_arguments_after_two_dashes() {
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
        let wrong = [("RUNNER_OPT_GRANT", "secret")];
        let error = request_of(&["run", "x"], &wrong, &policy).expect_err("no grant");
        assert_eq!(
            error.report().hint.as_deref(),
            Some("did you mean `secrets`?")
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_code() {
        for (words, code, says) in [
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
            (&["run", "--image", "debian", "x"], "usage", "`docker://`"),
            (
                &["run", "--allow-net", "http://a", "x"],
                "usage",
                "--allow-net `http://a`: this is a URL",
            ),
            (&["run", "--publish", "1", "x"], "usage", "HOST_PORT:"),
            (&["run", "--publish", "1:1,1:2", "x"], "usage", "already"),
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
                report.message.contains(says),
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
        // A value of the caller's own passes nothing on.
        let own = request_of(&["run", "-e", "A=1", "x"], &[], &policy);
        assert_eq!(own.expect("a request").environment.len(), 1);
    }

    #[test]
    fn a_flag_tightens_the_system_call_policy_of_the_host_and_never_loosens_it() {
        use SyscallPolicyName::{Default, Strict};
        for (held, words, asked) in [
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
                syscalls: held,
                ..HostPolicy::default()
            };
            let found = request_of(words, &[], &policy);
            let found = found.map(|request| request.syscalls);
            let found = found.map_err(|error| error.report().code);
            assert_eq!(found, asked.map_err(str::to_owned), "{words:?}");
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
