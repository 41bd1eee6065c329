//! Applies the shell and the working directory of the manifest's `sandbox.config` to a run form.

use sandbox::view::BUNDLE;
use spec::detection::ResolvedForm;
use spec::run_form::{Run, RunForm, bundle_path};
use spec::sandbox_block::Shell;

/// Replaces `bash` with `shell` in the shell form. Other forms are unchanged.
#[must_use]
pub(crate) fn with_shell(mut run: ResolvedForm, shell: Shell) -> ResolvedForm {
    if run.form != RunForm::Shell {
        return run;
    }
    let path = shell.path();
    let name = path.rsplit('/').next().unwrap_or(path);
    // argv is `bash -c TEXT [bash ARGUMENTS…]`: the word after the text is `$0`.
    for (index, word) in [(0, path), (3, name)] {
        if let Some(slot) = run.argv.get_mut(index) {
            *slot = word.into();
        }
    }
    run.warnings
        .retain(|warning| warning.code != "interpreter_missing");
    run
}

/// Makes the path of the bundle's file absolute, for a run that starts in `directory`. The exec form
/// and the text of a shell are unchanged.
#[must_use]
pub(crate) fn with_directory(
    mut resolved_form: ResolvedForm,
    run: &Run,
    directory: &[u8],
) -> ResolvedForm {
    let (Run::Text(text) | Run::File(text)) = run else {
        return resolved_form;
    };
    let Ok(path) = bundle_path(text) else {
        return resolved_form;
    };
    if directory == BUNDLE.as_bytes() || resolved_form.form == RunForm::Shell {
        return resolved_form;
    }
    let absolute = |path: &[u8]| [BUNDLE.as_bytes(), b"/", path].concat();
    let file = resolved_form.argv.iter_mut().find(|word| {
        let word = word.as_slice();
        word.strip_prefix(b"./").unwrap_or(word) == path.as_bytes()
    });
    if let Some(word) = file {
        *word = absolute(path.as_bytes());
    }
    // The bundle's own `tsx`.
    if let Some(program) = resolved_form.argv.first_mut()
        && program.starts_with(b"node_modules/")
    {
        *program = absolute(program);
    }
    resolved_form
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::detection::{Interpreter, ProgramLookup};
    use spec::report::WarningReport;

    fn resolved_form(form: RunForm, words: &[&str]) -> ResolvedForm {
        ResolvedForm {
            form,
            argv: words.iter().map(|&word| word.into()).collect(),
            lookup: ProgramLookup::Path,
            interpreter: Some(Interpreter::Bash),
            warnings: vec![WarningReport::new("interpreter_missing", "no bash")],
        }
    }

    fn words(run: &ResolvedForm) -> Vec<String> {
        run.argv
            .iter()
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect()
    }

    #[test]
    fn the_shell_form_is_started_by_the_shell_that_was_named() {
        let run = with_shell(
            resolved_form(RunForm::Shell, &["bash", "-c", "a | b", "bash", "x"]),
            Shell::Sh,
        );
        assert_eq!(words(&run), ["/bin/sh", "-c", "a | b", "sh", "x"]);
        assert!(run.warnings.is_empty());
        let run = with_shell(
            resolved_form(RunForm::Shell, &["bash", "-c", "a | b"]),
            Shell::Bash,
        );
        assert_eq!(words(&run), ["/bin/bash", "-c", "a | b"]);
        let run = with_shell(resolved_form(RunForm::File, &["bash", "x.sh"]), Shell::Sh);
        assert_eq!(words(&run), ["bash", "x.sh"]);
    }

    #[test]
    fn a_file_of_the_bundle_is_found_from_another_directory() {
        let file = Run::Text("./src/x.py".to_owned());
        for (form, before, after) in [
            (
                RunForm::File,
                &["python3", "src/x.py", "src/x.py"][..],
                &["python3", "/bundle/src/x.py", "src/x.py"][..],
            ),
            (RunForm::Exec, &["./src/x.py"], &["/bundle/src/x.py"]),
            (
                RunForm::File,
                &["node_modules/.bin/tsx", "src/x.py"],
                &["/bundle/node_modules/.bin/tsx", "/bundle/src/x.py"],
            ),
        ] {
            let run = with_directory(resolved_form(form, before), &file, b"/bundle/data");
            assert_eq!(words(&run), after);
            let run = with_directory(resolved_form(form, before), &file, b"/bundle");
            assert_eq!(words(&run), before);
        }
        let verbatim = Run::Exec(vec!["./x".to_owned()]);
        let run = with_directory(
            resolved_form(RunForm::Exec, &["./x"]),
            &verbatim,
            b"/bundle/data",
        );
        assert_eq!(words(&run), ["./x"]);
    }
}
