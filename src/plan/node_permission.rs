//! The provider `node-permission`: Node's permission flags for exactly the paths of the view.
//!
//! They add a stricter layer inside the sandbox: no child process, no worker, no native addon, no WASI,
//! and no file outside the paths of the view.

use std::os::unix::ffi::OsStrExt as _;

use sandbox::view::{BUNDLE, HOME, INPUT, SCRATCH};
use spec::detection::{Interpreter, NodeVersion, ResolvedForm};
use spec::path::escape;
use spec::request::ViewEntry;
use spec::run_form::RunForm;

/// What Node may read and write, besides writable mounts.
const WRITABLE: [&str; 5] = [BUNDLE, SCRATCH, "/tmp", HOME, "/runner/out"];
/// Options of Node that an exec array may use: none changes what the body may do.
const HARMLESS: [&str; 8] = [
    "--enable-source-maps",
    "--no-deprecation",
    "--no-warnings",
    "--trace-deprecation",
    "--trace-uncaught",
    "--trace-warnings",
    "--unhandled-rejections=strict",
    "--input-type=module",
];
/// Options that take the next word.
const HARMLESS_WITH_VALUE: [&str; 7] = [
    "-e",
    "--eval",
    "-p",
    "--print",
    "-r",
    "--require",
    "--import",
];

/// Why this provider cannot run a body. The message continues "`node-permission`".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NodePermissionError {
    #[error("runs Node only, and `run` starts {found}")]
    OtherProgram { found: String },
    #[error(
        "cannot run TypeScript through `tsx`, which starts a child process; \
         Node {found} does not run this file by itself"
    )]
    Tsx { found: String },
    #[error("needs Node {WANTED}, and no `node` was found")]
    NoNode,
    /// `node` is a script of a version manager.
    #[error("needs Node {WANTED}, and {path} is a script, which the flags would not reach")]
    Script { path: String },
    #[error("needs Node {WANTED}, and {path} {problem}")]
    NoVersion { path: String, problem: String },
    #[error("needs Node {WANTED}, and {path} is {found}")]
    TooOld { path: String, found: String },
    #[error("does not pass the option {option} on to Node: it could lift the permissions")]
    Option { option: String },
    #[error("cannot pass the mount point {target} to Node, which treats `*` and `,` specially")]
    Target { target: String },
}

/// The versions that have a permission model.
const WANTED: &str = "22.13 or later (or 20, 21, with the experimental flag)";

impl NodePermissionError {
    #[must_use]
    pub(crate) const fn hint(&self) -> &'static str {
        match self {
            Self::OtherProgram { .. } => {
                "write `run: FILE.js` or `run: [node, …]`, or use `provider: local`"
            }
            Self::Tsx { .. } => {
                "use Node 22.18 or later, which strips types itself, or compile the file before \
                 bundling, or use `provider: local`"
            }
            Self::NoNode | Self::Script { .. } | Self::NoVersion { .. } | Self::TooOld { .. } => {
                "install such a Node, or use `provider: local`, whose sandbox does not depend on it"
            }
            Self::Option { .. } => "leave the option out, or use `provider: local`",
            Self::Target { .. } => "mount at another place, such as /data",
        }
    }
}

/// The flag that turns the permission model on: `--permission` from 22.13 (and 23.5) on.
#[must_use]
pub(crate) const fn flag(version: NodeVersion) -> Option<&'static str> {
    match (version.major, version.minor) {
        (..20, _) => None,
        (20 | 21, _) | (22, ..13) | (23, ..5) => Some("--experimental-permission"),
        _ => Some("--permission"),
    }
}

/// The flags for the bundle, the scratch files, the input document, the body's writable directories
/// and each mount of the view.
///
/// # Errors
/// [`NodePermissionError::Target`].
pub(crate) fn flags(
    model: &str,
    version: NodeVersion,
    view: &[ViewEntry],
) -> Result<Vec<Vec<u8>>, NodePermissionError> {
    let mut read: Vec<&[u8]> = vec![INPUT.as_bytes()];
    let mut writable_paths: Vec<&[u8]> = WRITABLE.iter().map(|path| path.as_bytes()).collect();
    for entry in view {
        let (target, writable) = match entry {
            ViewEntry::Bind {
                target, writable, ..
            } => (target, *writable),
            ViewEntry::Tmpfs { target, .. } => (target, true),
        };
        let bytes = target.as_os_str().as_bytes();
        if bytes.iter().any(|byte| matches!(byte, b'*' | b',')) {
            return Err(NodePermissionError::Target {
                target: escape(bytes),
            });
        }
        if writable {
            writable_paths.push(bytes);
        } else {
            read.push(bytes);
        }
    }
    let mut flags = vec![model.into()];
    for path in writable_paths.iter().chain(&read) {
        flags.push([&b"--allow-fs-read="[..], path].concat());
    }
    for path in writable_paths {
        flags.push([&b"--allow-fs-write="[..], path].concat());
    }
    // Since Node 25 the model covers the network, which the sandbox controls already.
    if version.major >= 25 {
        flags.push(b"--allow-net".to_vec());
    }
    Ok(flags)
}

/// Inserts Node's permission flags directly after the program.
///
/// # Errors
/// [`NodePermissionError`]: another program than Node, a version without a permission model, an
/// option that could lift the permissions.
pub(crate) fn restrict(
    mut run: ResolvedForm,
    path: &str,
    version: NodeVersion,
    view: &[ViewEntry],
) -> Result<ResolvedForm, NodePermissionError> {
    let shown = format!("{}.{}", version.major, version.minor);
    match (run.form, run.interpreter) {
        (RunForm::File, Some(Interpreter::Node)) => (),
        (RunForm::File, Some(Interpreter::Tsx | Interpreter::Npx)) => {
            let file = run.argv.iter().position(|word| is_plain_typescript(word));
            let Some(file) = file.filter(|_| version.strips_types()) else {
                return Err(NodePermissionError::Tsx { found: shown });
            };
            run.argv.splice(..file, [b"node".to_vec()]);
            run.interpreter = Some(Interpreter::Node);
        }
        (RunForm::Exec, None) if run.argv.first().is_some_and(|name| name == b"node") => {
            check_options(&run.argv[1..])?;
        }
        (form, _) => {
            let program = run.argv.first().map_or(&b""[..], Vec::as_slice);
            let found = match form {
                RunForm::Shell => "a shell".to_owned(),
                RunForm::File | RunForm::Exec => escape(program),
            };
            return Err(NodePermissionError::OtherProgram { found });
        }
    }
    let Some(model) = flag(version) else {
        return Err(NodePermissionError::TooOld {
            path: path.to_owned(),
            found: shown,
        });
    };
    run.argv.splice(1..1, flags(model, version, view)?);
    Ok(run)
}

fn is_plain_typescript(word: &[u8]) -> bool {
    word.ends_with(b".ts") || word.ends_with(b".mts")
}

/// Node reads options up to the program, and also after `-e CODE`.
fn check_options(words: &[Vec<u8>]) -> Result<(), NodePermissionError> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !word.starts_with(b"-") || word == b"-" || word == b"--" {
            return Ok(());
        }
        let is_in = |list: &[&str]| list.iter().any(|option| option.as_bytes() == word);
        if is_in(&HARMLESS_WITH_VALUE) {
            // Node reads a value that looks like an option as one.
            match words.next() {
                Some(value) if value.starts_with(b"-") => return Err(refused(value)),
                _ => continue,
            }
        }
        if !is_in(&HARMLESS) {
            return Err(refused(word));
        }
    }
    Ok(())
}

fn refused(option: &[u8]) -> NodePermissionError {
    NodePermissionError::Option {
        option: escape(option),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::detection::ProgramLookup;

    const NODE_20: NodeVersion = NodeVersion {
        major: 20,
        minor: 20,
    };
    const NODE_22: NodeVersion = NodeVersion {
        major: 22,
        minor: 18,
    };

    fn run(form: RunForm, interpreter: Option<Interpreter>, words: &[&str]) -> ResolvedForm {
        ResolvedForm {
            form,
            argv: words.iter().map(|&word| word.into()).collect(),
            lookup: ProgramLookup::Path,
            interpreter,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_flag_is_the_one_that_the_version_knows() {
        for (text, expected) in [
            ("v18.20.8", None),
            ("v19.9.0", None),
            ("v20.0.0", Some("--experimental-permission")),
            ("v21.7.3", Some("--experimental-permission")),
            ("v22.12.0", Some("--experimental-permission")),
            ("v22.13.0", Some("--permission")),
            ("v23.4.0", Some("--experimental-permission")),
            ("v23.5.0", Some("--permission")),
            ("v24.0.0", Some("--permission")),
            ("v25.1.0", Some("--permission")),
        ] {
            let version = NodeVersion::parse(text).expect(text);
            assert_eq!(flag(version), expected, "{text}");
        }
    }

    #[test]
    fn the_flags_name_what_the_view_gives_and_nothing_else() {
        let view = [
            ViewEntry::Bind {
                source: "/host/a".into(),
                target: "/data".into(),
                writable: false,
            },
            ViewEntry::Bind {
                source: "/host/b".into(),
                target: "/work".into(),
                writable: true,
            },
        ];
        let done = restrict(
            run(
                RunForm::File,
                Some(Interpreter::Node),
                &["node", "x.js", "-v"],
            ),
            "/usr/bin/node",
            NODE_22,
            &view,
        )
        .expect("restricted");
        let words: Vec<String> = done
            .argv
            .iter()
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let expected = [
            "node",
            "--permission",
            "--allow-fs-read=/bundle",
            "--allow-fs-read=/scratch",
            "--allow-fs-read=/tmp",
            "--allow-fs-read=/home/runner",
            "--allow-fs-read=/runner/out",
            "--allow-fs-read=/work",
            "--allow-fs-read=/runner/input.json",
            "--allow-fs-read=/data",
            "--allow-fs-write=/bundle",
            "--allow-fs-write=/scratch",
            "--allow-fs-write=/tmp",
            "--allow-fs-write=/home/runner",
            "--allow-fs-write=/runner/out",
            "--allow-fs-write=/work",
            "x.js",
            "-v",
        ];
        assert_eq!(words, expected);
        for target in ["/a*", "/a,b"] {
            let view = [ViewEntry::Tmpfs {
                target: target.into(),
                size_bytes: None,
            }];
            assert!(flags("--permission", NODE_22, &view).is_err(), "{target}");
        }
    }

    #[test]
    fn the_network_stays_the_sandbox_s_own_matter() {
        let net = b"--allow-net".to_vec();
        for (major, expected) in [(20, false), (24, false), (25, true)] {
            let version = NodeVersion { major, minor: 0 };
            let flags = flags("--permission", version, &[]).expect("flags");
            assert_eq!(flags.contains(&net), expected, "{major}");
        }
    }

    #[test]
    fn only_node_is_run() {
        let restricted = |run: ResolvedForm, version| restrict(run, "/usr/bin/node", version, &[]);
        for (form, interpreter, words) in [
            (
                RunForm::File,
                Some(Interpreter::Python),
                &["python3", "x.py"][..],
            ),
            (RunForm::File, Some(Interpreter::Bash), &["bash", "x.sh"]),
            (
                RunForm::Shell,
                Some(Interpreter::Bash),
                &["bash", "-c", "node x.js"],
            ),
            (RunForm::Exec, None, &["/usr/bin/node", "x.js"]),
            (RunForm::Exec, None, &["./node", "x.js"]),
            (RunForm::Exec, None, &["npm", "start"]),
        ] {
            assert!(
                matches!(
                    restricted(run(form, interpreter, words), NODE_22),
                    Err(NodePermissionError::OtherProgram { .. })
                ),
                "{words:?}"
            );
        }
        let too_old = NodeVersion {
            major: 18,
            minor: 20,
        };
        let error = restricted(run(RunForm::Exec, None, &["node", "x.js"]), too_old)
            .expect_err("no permission model");
        let text = error.to_string();
        assert!(text.contains("18.20") && text.contains("22.13"), "{text}");
    }

    #[test]
    fn typescript_runs_where_node_strips_types_itself() {
        for words in [
            &["tsx", "x.ts"][..],
            &["npx", "--yes", "tsx", "x.mts", "-v"],
        ] {
            let interpreter = if words.len() == 2 {
                Interpreter::Tsx
            } else {
                Interpreter::Npx
            };
            let asked = run(RunForm::File, Some(interpreter), words);
            let done = restrict(asked.clone(), "/n", NODE_22, &[]).expect("stripped");
            assert_eq!(done.argv[0], b"node");
            assert_eq!(done.argv[1], b"--permission");
            assert!(!done.argv.contains(&b"tsx".to_vec()));
            assert!(matches!(
                restrict(asked, "/n", NODE_20, &[]),
                Err(NodePermissionError::Tsx { .. })
            ));
        }
        let jsx = run(RunForm::File, Some(Interpreter::Tsx), &["tsx", "x.tsx"]);
        assert!(restrict(jsx, "/n", NODE_22, &[]).is_err());
    }

    #[test]
    fn an_option_that_could_lift_the_permissions_is_not_passed_on() {
        for words in [
            &["node", "x.js", "--allow-child-process"][..],
            &["node", "--no-warnings", "-r", "./a.js", "x.js"],
            &["node", "-e", "1"],
            &["node", "--", "--allow-worker"],
            &["node", "-", "--allow-worker"],
            &["node"],
        ] {
            let asked = run(RunForm::Exec, None, words);
            assert!(restrict(asked, "/n", NODE_22, &[]).is_ok(), "{words:?}");
        }
        for words in [
            &["node", "--allow-child-process", "x.js"][..],
            &["node", "--allow_child_process", "x.js"],
            &["node", "--no-permission", "x.js"],
            &["node", "-e", "1", "--allow-worker"],
            &["node", "-e", "--allow-worker"],
            &["node", "--no-warnings", "--allow-addons", "x.js"],
            &["node", "--env-file=.env", "x.js"],
            &["node", "--experimental-default-config-file", "x.js"],
            &["node", "--expose-internals", "x.js"],
        ] {
            let asked = run(RunForm::Exec, None, words);
            assert!(
                matches!(
                    restrict(asked, "/n", NODE_22, &[]),
                    Err(NodePermissionError::Option { .. })
                ),
                "{words:?}"
            );
        }
    }
}
