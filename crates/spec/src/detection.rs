//! Resolves a `run` value to an argument vector: file, exec or shell.
//!
//! The bundle and the host's interpreters are arguments: tests need no files.

use crate::did_you_mean::difference;
use crate::path::{RelPath, quoted as shell_word};
use crate::report::WarningReport;
use crate::run_form::{Run, RunError, RunForm, TextForm, bundle_path, text_form};
use crate::typescript::{NpmRegistry, TsxLack, select_typescript};

const NAMES_LISTED_MAX: usize = 10;
const NAMES_COMPARED_MAX: usize = 10_000;
pub(super) const BUNDLED_TSX: &str = "node_modules/.bin/tsx";

/// Kind of a bundle path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File {
        executable: bool,
    },
    Directory,
    /// A symbolic link that stays inside the bundle.
    Link,
}

/// The files of a bundle.
pub trait BundleView {
    fn kind(&self, path: &RelPath) -> Option<EntryKind>;

    fn paths(&self) -> Box<dyn Iterator<Item = &RelPath> + '_>;
}

/// A version of Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeVersion {
    pub major: u32,
    pub minor: u32,
}

impl NodeVersion {
    /// Parses the output of `node --version`: `v22.18.0`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().strip_prefix('v')?.split('.');
        Some(Self {
            major: parts.next()?.parse().ok()?,
            minor: parts.next()?.parse().ok()?,
        })
    }

    /// Whether it runs TypeScript without a flag: from 22.18, 23.6 and 24 on.
    #[must_use]
    pub const fn strips_types(self) -> bool {
        match self.major {
            22 => self.minor >= 18,
            23 => self.minor >= 6,
            major => major >= 24,
        }
    }
}

/// The interpreters on the fixed PATH of the body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a set of independent facts, each with a name"
)]
pub struct Interpreters {
    pub node: Option<NodeVersion>,
    pub python: bool,
    pub python3: bool,
    pub bash: bool,
    pub tsx: bool,
    pub npx: bool,
    pub npm_registry: NpmRegistry,
}

/// The interpreter of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpreter {
    Node,
    /// `tsx` of the bundle or the host.
    Tsx,
    Npx,
    Python,
    Bash,
}

/// How `argv[0]` is found inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramLookup {
    Path,
    /// In `/bundle/node_modules/.bin`, then on the fixed PATH of the body.
    BundleThenPath,
    /// It is a path: absolute inside, or relative to `/bundle`.
    AsWritten,
}

/// A resolved `run` value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedForm {
    pub form: RunForm,
    /// Never empty.
    pub argv: Vec<Vec<u8>>,
    pub lookup: ProgramLookup,
    pub interpreter: Option<Interpreter>,
    pub warnings: Vec<WarningReport>,
}

/// Why a `run` value cannot be executed with this bundle on this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunFormError {
    #[error("no `run` names the program to start")]
    Missing {
        /// Executables and scripts at the top of the bundle, escaped.
        candidates: Vec<String>,
    },
    #[error("{0}")]
    Invalid(#[from] RunError),
    #[error("`run` names `{path}`, which {what}")]
    TargetMissing {
        path: String,
        what: &'static str,
        near: Vec<String>,
    },
    #[error("`run` names `{path}`, which is not executable and has no known extension")]
    UnknownExtension {
        path: String,
        near: Option<&'static str>,
    },
    #[error("`{path}` is TypeScript, and no program is available that runs it: {}", lack.why())]
    NeedsTsx {
        path: String,
        /// Why `tsx` cannot be downloaded.
        lack: TsxLack,
    },
}

const KNOWN_EXTENSIONS: [&str; 8] = ["ts", "tsx", "mts", "js", "mjs", "cjs", "py", "sh"];

impl RunFormError {
    /// Stable name of the problem.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "run_missing",
            Self::Invalid(error) => error.code(),
            Self::TargetMissing { .. } => "run_target_missing",
            Self::UnknownExtension { .. } => "run_unknown_extension",
            Self::NeedsTsx { .. } => "run_needs_tsx",
        }
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing { candidates } if candidates.is_empty() => {
                "write `run: PROGRAM` in the manifest or give `--run PROGRAM`".to_owned()
            }
            Self::Missing { candidates } => format!(
                "give `--run` one of {}, or write `run:` in the manifest",
                candidates.join(", ")
            ),
            Self::Invalid(error) => return error.hint(),
            Self::TargetMissing { path, near, .. } => {
                let program = format!("for a program of the host write `run: [\"{path}\"]`");
                match near.as_slice() {
                    [] if path.contains('/') => {
                        "name a file by its path from the top of the bundle".to_owned()
                    }
                    [] => program,
                    near if path.contains(['.', '/']) => {
                        format!("did you mean {}?", near.join(" or "))
                    }
                    near => format!("did you mean {}? {program}", near.join(" or ")),
                }
            }
            Self::UnknownExtension {
                near: Some(near), ..
            } => format!("extensions are lower case: rename it to end in `.{near}`"),
            Self::UnknownExtension { path, near: None } => format!(
                "make it executable (chmod +x) before packing, or name its interpreter: \
                 `run: [INTERPRETER, \"{path}\"]`"
            ),
            Self::NeedsTsx { lack, .. } => lack.hint(),
        })
    }
}

/// The error of a bundle without a `run` value.
#[must_use]
pub fn missing(bundle: &dyn BundleView) -> RunFormError {
    let mut candidates: Vec<String> = bundle
        .paths()
        .filter(|path| path.parent().is_none())
        .filter(|path| match bundle.kind(path) {
            Some(EntryKind::File { executable: true }) => true,
            Some(EntryKind::File { .. }) => {
                extension(path).is_some_and(|found| KNOWN_EXTENSIONS.contains(&found))
            }
            _ => false,
        })
        .map(ToString::to_string)
        .collect();
    candidates.sort();
    candidates.truncate(NAMES_LISTED_MAX);
    RunFormError::Missing { candidates }
}

/// Resolves `run` to an argument vector, followed by `arguments`.
pub fn resolve(
    run: &Run,
    bundle: &dyn BundleView,
    host: &Interpreters,
    arguments: &[Vec<u8>],
) -> Result<ResolvedForm, RunFormError> {
    match run.clone().checked()? {
        Run::Text(text) => match text_form(&text) {
            TextForm::Shell => Ok(resolve_shell(&text, bundle, host, arguments, true)),
            TextForm::Path => resolve_file(&text, bundle, host, arguments),
        },
        Run::Shell(text) => Ok(resolve_shell(&text, bundle, host, arguments, false)),
        Run::File(path) => resolve_file(&path, bundle, host, arguments),
        Run::Array(words) | Run::Exec(words) => Ok(resolve_exec(&words, host, arguments)),
    }
}

/// Checks that the file named by `run` is in the bundle.
pub fn check_target(run: &Run, bundle: &dyn BundleView) -> Result<(), RunFormError> {
    let everything = Interpreters {
        node: None,
        python: true,
        python3: true,
        bash: true,
        tsx: true,
        npx: true,
        npm_registry: NpmRegistry::Allowed,
    };
    resolve(run, bundle, &everything, &[]).map(|_| ())
}

fn resolve_exec(words: &[String], host: &Interpreters, arguments: &[Vec<u8>]) -> ResolvedForm {
    let mut argv: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_bytes()).collect();
    argv.extend_from_slice(arguments);
    let program = words.first().map_or("", String::as_str);
    let mut warnings = Vec::new();
    if program == "python" && !host.python && host.python3 {
        warnings.push(WarningReport::new(
            "interpreter_missing",
            "this host has no `python`; write `python3`",
        ));
    }
    let lookup = if program.contains('/') {
        ProgramLookup::AsWritten
    } else {
        ProgramLookup::BundleThenPath
    };
    ResolvedForm {
        form: RunForm::Exec,
        argv,
        lookup,
        interpreter: None,
        warnings,
    }
}

fn resolve_shell(
    text: &str,
    bundle: &dyn BundleView,
    host: &Interpreters,
    arguments: &[Vec<u8>],
    is_guessed: bool,
) -> ResolvedForm {
    let mut argv = vec![b"bash".to_vec(), b"-c".to_vec(), text.as_bytes().to_vec()];
    if !arguments.is_empty() {
        argv.push(b"bash".to_vec());
        argv.extend_from_slice(arguments);
    }
    let mut warnings = Vec::new();
    if is_guessed && let Some(explicit) = looks_like_a_file(text, bundle) {
        warnings.push(WarningReport::new(
            "run_ambiguous",
            format!("`run` is read as a shell command; for a file write {explicit}"),
        ));
    }
    if !host.bash {
        warnings.push(not_on_path("bash"));
    }
    ResolvedForm {
        form: RunForm::Shell,
        argv,
        lookup: ProgramLookup::Path,
        interpreter: Some(Interpreter::Bash),
        warnings,
    }
}

/// The explicit form of a command that looks like a file: `my tool.ts`, `tool.ts -v`.
fn looks_like_a_file(text: &str, bundle: &dyn BundleView) -> Option<String> {
    let quoted = |word: &str| serde_json::Value::from(word).to_string();
    if bundle_path(text).is_ok_and(|path| is_file(bundle, &path)) {
        return Some(format!("`run: {{file: {}}}`", quoted(text)));
    }
    let mut words = text.split_ascii_whitespace();
    let first = words.next()?;
    let path = bundle_path(first).ok()?;
    let is_known = extension(&path).is_some_and(|found| KNOWN_EXTENSIONS.contains(&found));
    // `./tool.sh -v` is a shell command that starts a file of the working directory.
    if !is_known || first.starts_with("./") {
        return None;
    }
    let interpreter = match extension(&path)? {
        "py" => "python3",
        "sh" => "bash",
        "js" | "mjs" | "cjs" => "node",
        _ => "tsx",
    };
    if text
        .split_ascii_whitespace()
        .any(|word| shell_word(word) != word)
    {
        let command = quoted(&format!("{interpreter} {text}"));
        return Some(format!("`run: {{shell: {command}}}`"));
    }
    let words: Vec<String> = [interpreter, first]
        .into_iter()
        .chain(words)
        .map(quoted)
        .collect();
    Some(format!("`run: [{}]`", words.join(", ")))
}

fn resolve_file(
    text: &str,
    bundle: &dyn BundleView,
    host: &Interpreters,
    arguments: &[Vec<u8>],
) -> Result<ResolvedForm, RunFormError> {
    let path = bundle_path(text)?;
    let kind = match bundle.kind(&path) {
        Some(EntryKind::Directory) => {
            return Err(RunFormError::TargetMissing {
                path: path.to_string(),
                what: "is a directory",
                near: near_paths(&path, bundle),
            });
        }
        Some(kind) => kind,
        None => {
            return Err(RunFormError::TargetMissing {
                path: path.to_string(),
                what: "is not in the bundle",
                near: near_paths(&path, bundle),
            });
        }
    };
    let mut warnings = Vec::new();
    let (words, interpreter): (Vec<&str>, Option<Interpreter>) = match extension(&path) {
        Some(found @ ("ts" | "tsx" | "mts")) => {
            let (words, interpreter) =
                select_typescript(found, bundle, host).map_err(|lack| RunFormError::NeedsTsx {
                    path: path.to_string(),
                    lack,
                })?;
            (words, Some(interpreter))
        }
        Some("js" | "mjs" | "cjs") => {
            if host.node.is_none() {
                warnings.push(not_on_path("node"));
            }
            (vec!["node"], Some(Interpreter::Node))
        }
        Some("py") => {
            if !host.python && !host.python3 {
                warnings.push(not_on_path("python3"));
            }
            let program = if host.python { "python" } else { "python3" };
            (vec![program], Some(Interpreter::Python))
        }
        Some("sh") => {
            if !host.bash {
                warnings.push(not_on_path("bash"));
            }
            (vec!["bash"], Some(Interpreter::Bash))
        }
        found => {
            if kind == (EntryKind::File { executable: false }) {
                return Err(RunFormError::UnknownExtension {
                    path: path.to_string(),
                    near: found.and_then(lower_case_extension),
                });
            }
            (Vec::new(), None)
        }
    };
    let mut argv: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    argv.push(as_argument(&path, interpreter.is_none()));
    argv.extend_from_slice(arguments);
    let lookup = if argv[0].contains(&b'/') {
        ProgramLookup::AsWritten
    } else {
        ProgramLookup::Path
    };
    Ok(ResolvedForm {
        form: if interpreter.is_some() {
            RunForm::File
        } else {
            RunForm::Exec
        },
        argv,
        lookup,
        interpreter,
        warnings,
    })
}

pub(super) fn is_file(bundle: &dyn BundleView, path: &RelPath) -> bool {
    matches!(
        bundle.kind(path),
        Some(EntryKind::File { .. } | EntryKind::Link)
    )
}

/// The path as a word of argv. A leading `./` keeps it from being an option or a program of PATH.
fn as_argument(path: &RelPath, is_program: bool) -> Vec<u8> {
    let bytes = path.as_bytes();
    if is_program || bytes.starts_with(b"-") {
        [b"./", bytes].concat()
    } else {
        bytes.to_vec()
    }
}

fn not_on_path(program: &str) -> WarningReport {
    WarningReport::new(
        "interpreter_missing",
        format!("this host has no `{program}` on the PATH of the body"),
    )
}

/// The part after the last dot of the file name. A leading dot does not count.
fn extension(path: &RelPath) -> Option<&str> {
    let name = str::from_utf8(path.file_name()).ok()?;
    match name.rsplit_once('.') {
        Some(("", _)) | None => None,
        Some((_, extension)) => Some(extension),
    }
}

fn lower_case_extension(found: &str) -> Option<&'static str> {
    KNOWN_EXTENSIONS
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(found))
}

/// The three best matches for a missing file: same name in another folder, another extension, or a
/// similar name.
fn near_paths(missing: &RelPath, bundle: &dyn BundleView) -> Vec<String> {
    let missing_name = String::from_utf8_lossy(missing.file_name()).into_owned();
    let missing_stem = stem(&missing_name).to_owned();
    let mut near: Vec<(usize, String)> = bundle
        .paths()
        .take(NAMES_COMPARED_MAX)
        .filter(|path| is_file(bundle, path))
        .filter_map(|path| {
            let name = String::from_utf8_lossy(path.file_name());
            let rank = if name == missing_name.as_str() {
                0
            } else if name.eq_ignore_ascii_case(&missing_name) {
                1
            } else if stem(&name) == missing_stem {
                2
            } else {
                2 + difference(&missing_name, &name)?
            };
            Some((rank, path.to_string()))
        })
        .collect();
    near.sort();
    near.into_iter()
        .take(3)
        .map(|(_, path)| format!("`{path}`"))
        .collect()
}

fn stem(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_permit::PERMIT;

    use std::collections::BTreeMap;

    struct Files(BTreeMap<RelPath, EntryKind>);

    impl BundleView for Files {
        fn kind(&self, path: &RelPath) -> Option<EntryKind> {
            self.0.get(path).copied()
        }

        fn paths(&self) -> Box<dyn Iterator<Item = &RelPath> + '_> {
            Box::new(self.0.keys())
        }
    }

    const PLAIN: EntryKind = EntryKind::File { executable: false };
    const EXECUTABLE: EntryKind = EntryKind::File { executable: true };

    fn bundle(entries: &[(&str, EntryKind)]) -> Files {
        Files(
            entries
                .iter()
                .map(|(path, kind)| (RelPath::parse(path.as_bytes()).expect("a path"), *kind))
                .collect(),
        )
    }

    fn everything() -> Files {
        bundle(&[
            ("tool.ts", PLAIN),
            ("tool.tsx", PLAIN),
            ("tool.mts", PLAIN),
            ("x.js", PLAIN),
            ("x.mjs", PLAIN),
            ("x.cjs", PLAIN),
            ("x.py", PLAIN),
            ("x.sh", EXECUTABLE),
            ("-x.py", PLAIN),
            ("my tool.ts", PLAIN),
            ("tool.TS", PLAIN),
            ("Makefile", PLAIN),
            ("bin", EntryKind::Directory),
            ("bin/tool", EXECUTABLE),
            ("bin/link", EntryKind::Link),
            ("src/index.ts", PLAIN),
        ])
    }

    fn host() -> Interpreters {
        Interpreters {
            node: NodeVersion::parse("v22.18.0\n"),
            python: true,
            python3: true,
            bash: true,
            tsx: false,
            npx: true,
            npm_registry: NpmRegistry::Unnamed,
        }
    }

    fn words(resolved: &ResolvedForm) -> Vec<String> {
        resolved
            .argv
            .iter()
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect()
    }

    fn resolve_text(text: &str) -> Result<ResolvedForm, RunFormError> {
        let run = Run::from_option(&PERMIT, text)?;
        resolve(&run, &everything(), &host(), &[b"A 1".to_vec()])
    }

    #[test]
    fn each_form_of_run_has_its_argument_vector() {
        use RunForm::{Exec, File, Shell};
        for (run, form, argv) in [
            ("tool.ts", File, &["node", "tool.ts", "A 1"][..]),
            ("tool.mts", File, &["node", "tool.mts", "A 1"]),
            ("./src/index.ts", File, &["node", "src/index.ts", "A 1"]),
            ("x.js", File, &["node", "x.js", "A 1"]),
            ("x.mjs", File, &["node", "x.mjs", "A 1"]),
            ("x.cjs", File, &["node", "x.cjs", "A 1"]),
            ("x.py", File, &["python", "x.py", "A 1"]),
            ("x.sh", File, &["bash", "x.sh", "A 1"]),
            ("-x.py", File, &["python", "./-x.py", "A 1"]),
            (
                r#"["python","-m","m"]"#,
                Exec,
                &["python", "-m", "m", "A 1"],
            ),
            (r#"["*.py"]"#, Exec, &["*.py", "A 1"]),
            ("bin/tool", Exec, &["./bin/tool", "A 1"]),
            ("bin/link", Exec, &["./bin/link", "A 1"]),
            (
                "npm run build && node d.js",
                Shell,
                &["bash", "-c", "npm run build && node d.js", "bash", "A 1"],
            ),
            ("a|b", Shell, &["bash", "-c", "a|b", "bash", "A 1"]),
            ("a;b", Shell, &["bash", "-c", "a;b", "bash", "A 1"]),
            ("a>b", Shell, &["bash", "-c", "a>b", "bash", "A 1"]),
            ("a<b", Shell, &["bash", "-c", "a<b", "bash", "A 1"]),
            ("`x`", Shell, &["bash", "-c", "`x`", "bash", "A 1"]),
            ("$(x)", Shell, &["bash", "-c", "$(x)", "bash", "A 1"]),
            ("a||b", Shell, &["bash", "-c", "a||b", "bash", "A 1"]),
            ("${X}", Shell, &["bash", "-c", "${X}", "bash", "A 1"]),
            ("a&", Shell, &["bash", "-c", "a&", "bash", "A 1"]),
            ("a\nb", Shell, &["bash", "-c", "a\nb", "bash", "A 1"]),
            (
                "tail -f /dev/null",
                Shell,
                &["bash", "-c", "tail -f /dev/null", "bash", "A 1"],
            ),
            (
                r#"{"file":"my tool.ts"}"#,
                File,
                &["node", "my tool.ts", "A 1"],
            ),
            (r#"{"file":"bin/tool"}"#, Exec, &["./bin/tool", "A 1"]),
            (r#"{"exec":["x.py"]}"#, Exec, &["x.py", "A 1"]),
            (r#"{"exec":["a|b","c d"]}"#, Exec, &["a|b", "c d", "A 1"]),
            (
                r#"{"shell":"x.py"}"#,
                Shell,
                &["bash", "-c", "x.py", "bash", "A 1"],
            ),
        ] {
            let resolved = resolve_text(run).unwrap_or_else(|error| panic!("{run}: {error}"));
            assert_eq!(
                (resolved.form, words(&resolved)),
                (form, argv.iter().map(|word| (*word).to_owned()).collect()),
                "{run}"
            );
            assert_eq!(resolved.warnings, [], "{run}");
        }
    }

    #[test]
    fn a_shell_command_without_arguments_is_bash_c_and_the_text() {
        let resolved = resolve(&Run::Shell("ls".to_owned()), &everything(), &host(), &[]);
        assert_eq!(words(&resolved.expect("resolved")), ["bash", "-c", "ls"]);
    }

    #[test]
    fn an_invalid_run_is_refused_with_a_hint() {
        for (run, code, hint) in [
            ("/x.py", "run_invalid", "inside the bundle"),
            ("../x.py", "run_invalid", "inside the bundle"),
            ("a/../../x.py", "run_invalid", "inside the bundle"),
            ("[]", "run_invalid", "name a program"),
            (r#"[""]"#, "run_invalid", "name a program"),
            (r#""my tool.ts""#, "run_invalid", r#"{file: "my tool.ts"}"#),
            ("tool.TS", "run_unknown_extension", "`.ts`"),
            ("Makefile", "run_unknown_extension", "chmod +x"),
            ("bin", "run_target_missing", "run: [\"bin\"]"),
            ("index.ts", "run_target_missing", "`src/index.ts`"),
            ("X.py", "run_target_missing", "`x.py`"),
            ("tol.ts", "run_target_missing", "`tool.ts`"),
            ("make", "run_target_missing", "run: [\"make\"]"),
            ("a/gone", "run_target_missing", "from the top of the bundle"),
            ("tool.tsx", "run_needs_tsx", "tsx"),
            (r#"{"file":"gone.py"}"#, "run_target_missing", "gone.py"),
        ] {
            let error = resolve_text(run).expect_err(run);
            assert_eq!(error.code(), code, "{run}: {error}");
            let found = error.hint().expect(run);
            assert!(found.contains(hint), "{run}: {found}");
        }
    }

    #[test]
    fn a_command_that_may_be_a_file_is_a_shell_command_with_a_warning() {
        for (run, explicit) in [
            ("my tool.ts", r#"`run: {file: "my tool.ts"}`"#),
            ("tool.ts --flag", r#"`run: ["tsx", "tool.ts", "--flag"]`"#),
            ("x.py a b", r#"`run: ["python3", "x.py", "a", "b"]`"#),
            ("x.py a | wc", r#"`run: {shell: "python3 x.py a | wc"}`"#),
            ("x.py 'a b'", r#"`run: {shell: "python3 x.py 'a b'"}`"#),
        ] {
            let resolved = resolve_text(run).expect(run);
            assert_eq!(resolved.form, RunForm::Shell);
            assert_eq!(resolved.warnings[0].code, "run_ambiguous", "{run}");
            assert!(
                resolved.warnings[0].message.contains(explicit),
                "{:?}",
                resolved.warnings
            );
        }
        for run in ["./x.sh a", "python x.py", r#"{"shell":"tool.ts --flag"}"#] {
            assert_eq!(resolve_text(run).expect(run).warnings, [], "{run}");
        }
    }

    #[test]
    fn typescript_is_run_by_node_or_tsx_or_npx() {
        let script = Run::Text("tool.ts".to_owned());
        let markup = Run::Text("tool.tsx".to_owned());
        let with = |change: fn(&mut Interpreters)| {
            let mut host = host();
            change(&mut host);
            host
        };
        let argv = |run: &Run, host: &Interpreters| {
            resolve(run, &everything(), host, &[]).map(|resolved| words(&resolved))
        };
        let old = |host: &mut Interpreters| host.node = NodeVersion::parse("v22.17.1");
        assert_eq!(
            argv(&script, &with(|host| host.tsx = true)),
            Ok(vec!["tsx".to_owned(), "tool.ts".to_owned()])
        );
        assert_eq!(
            argv(&script, &with(old)).map_err(|error| error.code()),
            Err("run_needs_tsx")
        );
        let registry = with(|host| {
            host.node = NodeVersion::parse("v20.1.0");
            host.npm_registry = NpmRegistry::Allowed;
        });
        assert_eq!(
            argv(&script, &registry),
            Ok(["npx", "--yes", "tsx", "tool.ts"]
                .map(str::to_owned)
                .to_vec())
        );
        assert_eq!(
            argv(
                &markup,
                &with(|host| host.npm_registry = NpmRegistry::Allowed)
            ),
            Ok(["npx", "--yes", "tsx", "tool.tsx"]
                .map(str::to_owned)
                .to_vec())
        );
        for (version, strips) in [
            ("v22.18.0", true),
            ("v23.5.0", false),
            ("v23.6.0", true),
            ("v24.0.0", true),
            ("v18.20.0", false),
        ] {
            let version = NodeVersion::parse(version).expect(version);
            assert_eq!(version.strips_types(), strips, "{version:?}");
        }
        let bundled = bundle(&[("tool.tsx", PLAIN), (BUNDLED_TSX, EntryKind::Link)]);
        let resolved = resolve(&markup, &bundled, &host(), &[]).expect("resolved");
        assert_eq!(words(&resolved), [BUNDLED_TSX, "tool.tsx"]);
        assert_eq!(resolved.lookup, ProgramLookup::AsWritten);
    }

    #[test]
    fn python_falls_back_to_python3_for_a_file_and_is_a_warning_for_a_program() {
        let mut host = host();
        host.python = false;
        let script = Run::Text("x.py".to_owned());
        let resolved = resolve(&script, &everything(), &host, &[]).expect("resolved");
        assert_eq!(words(&resolved), ["python3", "x.py"]);
        let program = Run::Array(vec!["python".to_owned()]);
        let resolved = resolve(&program, &everything(), &host, &[]).expect("resolved");
        assert_eq!(words(&resolved), ["python"]);
        assert_eq!(resolved.lookup, ProgramLookup::BundleThenPath);
        assert_eq!(resolved.warnings[0].code, "interpreter_missing");
    }

    #[test]
    fn without_run_the_programs_at_the_top_are_listed() {
        let error = missing(&everything());
        assert_eq!(error.code(), "run_missing");
        let hint = error.hint().expect("a hint");
        assert!(hint.contains("tool.ts") && hint.contains("x.sh"), "{hint}");
        assert!(
            !hint.contains("Makefile") && !hint.contains("bin/tool"),
            "{hint}"
        );
        assert_eq!(
            missing(&bundle(&[])).hint().expect("a hint"),
            "write `run: PROGRAM` in the manifest or give `--run PROGRAM`"
        );
    }
}
