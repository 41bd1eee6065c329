//! The program and the arguments that a `run` value selects.

use super::PERMIT;
use spec::detection::{
    BundleView, EntryKind, Interpreter, Interpreters, NodeVersion, ProgramLookup, resolve,
};
use spec::path::RelPath;
use spec::run_form::{Run, RunForm, TextForm, text_form};
use spec::typescript::NpmRegistry;

/// A bundle with the files that the input names: those with names of even length are executable.
struct Files(Vec<RelPath>);

impl BundleView for Files {
    fn kind(&self, path: &RelPath) -> Option<EntryKind> {
        let is_above = |other: &RelPath| {
            let rest = other.as_bytes().strip_prefix(path.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b"/"))
        };
        match self.0.contains(path) {
            true => Some(EntryKind::File {
                executable: path.as_bytes().len().is_multiple_of(2),
            }),
            false => self.0.iter().any(is_above).then_some(EntryKind::Directory),
        }
    }

    fn paths(&self) -> Box<dyn Iterator<Item = &RelPath> + '_> {
        Box::new(self.0.iter())
    }
}

/// The first byte selects what the host has; then lines: the value of `--run`, an argument, and the
/// files of the bundle.
pub(crate) fn check(bytes: &[u8]) {
    let Some((host, text)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let mut lines = text.split('\n');
    let (option, argument) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    let files = Files(
        lines
            .filter_map(|line| RelPath::parse(line.as_bytes()).ok())
            .collect(),
    );
    let run = match Run::from_option(&PERMIT, option) {
        Ok(run) => run,
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control), "{error}");
            return;
        }
    };
    check_written(&run);
    let has = |bit: u8| host & (1 << bit) != 0;
    let host = Interpreters {
        node: has(0).then_some(NodeVersion {
            major: 22,
            minor: if has(1) { 18 } else { 0 },
        }),
        python: has(2),
        python3: has(3),
        bash: has(4),
        tsx: has(5),
        npx: has(6),
        npm_registry: match has(7) {
            true => NpmRegistry::Allowed,
            false => NpmRegistry::Unnamed,
        },
    };
    let arguments = [argument.as_bytes().to_vec()];
    if let Ok(resolved) = resolve(&run, &files, &host, &arguments) {
        check_words(&run, &resolved.argv, argument);
        assert_eq!(
            resolved.lookup == ProgramLookup::AsWritten,
            resolved.argv[0].contains(&b'/')
        );
        let is_shell = resolved.form == RunForm::Shell;
        assert_eq!(
            is_shell,
            resolved.argv.get(1).is_some_and(|word| word == b"-c")
                && resolved.interpreter == Some(Interpreter::Bash)
        );
        check_file(&run, &resolved, &files);
    }
}

/// The same value as JSON selects the same run.
fn check_written(run: &Run) {
    let json = match run {
        Run::Text(text) => serde_json::json!(text),
        Run::Array(words) => serde_json::json!(words),
        Run::File(path) => serde_json::json!({ "file": path }),
        Run::Exec(words) => serde_json::json!({ "exec": words }),
        Run::Shell(text) => serde_json::json!({ "shell": text }),
    };
    assert_eq!(Run::from_json(&PERMIT, &json.to_string()).as_ref(), Ok(run));
}

/// Arguments are unchanged: not split, not joined, not truncated.
fn check_words(run: &Run, argv: &[Vec<u8>], argument: &str) {
    assert_eq!(argv.last().map(Vec::as_slice), Some(argument.as_bytes()));
    let own = &argv[..argv.len() - 1];
    assert!(!own.is_empty() && !own[0].is_empty());
    assert!(own.iter().all(|word| !word.contains(&0)), "a NUL");
    let command = |text: &str| {
        let words: [&[u8]; 4] = [b"bash", b"-c", text.as_bytes(), b"bash"];
        assert!(own.iter().map(Vec::as_slice).eq(words), "{own:?}");
    };
    match run {
        Run::Array(words) | Run::Exec(words) => {
            assert!(
                own.iter()
                    .map(Vec::as_slice)
                    .eq(words.iter().map(String::as_bytes))
            );
        }
        Run::Shell(text) => command(text),
        Run::Text(text) if text_form(text) == TextForm::Shell => command(text),
        Run::Text(_) | Run::File(_) => (),
    }
}

/// The file is in the bundle, and no interpreter reads its name as an option.
fn check_file(run: &Run, resolved: &spec::detection::ResolvedForm, files: &Files) {
    let named = match run {
        Run::File(path) => path,
        Run::Text(text) if text_form(text) == TextForm::Path => text,
        _ => return,
    };
    let word = &resolved.argv[resolved.argv.len() - 2];
    let path = word.strip_prefix(b"./").unwrap_or(word);
    let path = RelPath::parse(path).expect("a path of the bundle");
    assert!(files.0.contains(&path), "{named}: not in the bundle");
    assert!(!word.starts_with(b"-"), "{named}: an option");
    if resolved.interpreter.is_none() {
        assert!(word.contains(&b'/'), "{named}: looked for on the PATH");
    }
}
