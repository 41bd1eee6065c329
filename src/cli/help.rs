//! The text below the flags in the help of each verb: examples and exit codes.

macro_rules! after_run {
    ($examples:literal) => {
        concat!(
            "Examples:\n",
            $examples,
            "\n",
            "\
Durations: 300ms 2s 5m 1h. Sizes: 512k 64m 1g (powers of 1024).
Each flag has a variable: RUNNER_OPT_ and its long name, RUNNER_OPT_CPU_TIME=30s for --cpu-time.
For a flag that may be repeated it is a list, separated by commas (--env, --env-file, --label and
--secret: one entry per line). A flag on the command line replaces its variable.

Exit codes: the body's own; 124 out of time; 125 refused, failed or wrong usage; 126 not
executable; 127 not found; 128+n ended by signal n (137 also for out of memory)."
        )
    };
}

pub(super) const EXEC_HELP: &str = after_run!(
    "  runner exec hello.tar.gz
  runner exec --workspace . --inputs @input.json --json=report.json tool.tar.gz -- --verbose
  runner exec -m 512m --timeout 1m --allow-net api.example.com:443 tool.tar.gz
"
);
pub(super) const RUN_HELP: &str = after_run!(
    "  runner run -- ls -l /
  runner run --ro . -w . -- python3 script.py
  runner run -p 8080:80 --rw ./data -- ./server --root data
  runner run --manifest sandbox.yaml -- 'make && ./test'
"
);
pub(super) const DOCTOR_HELP: &str = "\
Examples:
  runner doctor
  runner doctor --json
  runner doctor -q

-q prints only what prevents runs.

Exit codes: 0 everything is enforced, 1 degraded, 2 no body can be run.";
pub(super) const SCHEMA_HELP: &str = "\
Examples:
  runner schema manifest
  runner schema report > report.schema.json";

pub(super) const VERBS_HELP: &str = "\
`runner help VERB` describes a verb, with examples. `runner demo` shows what a body can and cannot
do here, `runner version` prints the version.";

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use crate::cli::args::CommandLine;

    /// Appends the help of `verb` and of its subcommands.
    fn describe(verb: &Command, name: &str, text: &mut String) {
        let help = verb.clone().term_width(100).render_long_help().to_string();
        // clap indents empty lines.
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        text.push_str(&format!(
            "\n## {name}\n\n```text\n{}\n```\n",
            lines.join("\n").trim()
        ));
        let own = verb.get_subcommands();
        for below in own.filter(|below| !below.is_hide_set() && below.get_name() != "help") {
            describe(below, &format!("{name} {}", below.get_name()), text);
        }
    }

    #[test]
    fn the_reference_is_what_help_prints() {
        let mut text =
            "# Command line\n\nWhat `runner help VERB` prints, for each verb. [Flags and \
                        limits](command-line.md) says what they mean together.\n"
                .to_owned();
        let mut command = CommandLine::command();
        command.build();
        describe(&command, "runner", &mut text);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference.md");
        support::golden::assert_golden(path.as_ref(), &text);
    }
}
