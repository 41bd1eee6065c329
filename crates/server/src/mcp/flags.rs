//! The command line of `runner mcp`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use companion::flags::NoFlags;

const HELP: &str = "\
FLAGS are those of `runner sandbox create`, without --name. The sandbox is created before the
protocol starts, and removed when standard input ends or at SIGTERM, SIGINT or SIGHUP. If the
server is killed, --idle-timeout ends it [default: 1h].

Examples:
  runner mcp --rw . -m 2g
  runner mcp --bundles ./tools --image oci:./debian --allow-net pypi.org

Exit codes: 0 standard input ended; 125 wrong usage, or the sandbox could not be created; 128 + n
signal n ended the server.";

/// Offer a sandbox to an agent as tools of the Model Context Protocol, on standard input and output
#[derive(Debug, clap::Parser)]
#[command(
    name = "mcp",
    bin_name = "runner mcp",
    after_help = HELP,
    override_usage = "runner mcp [--bundles DIR] [FLAGS]",
    max_term_width = 100
)]
pub(crate) struct Flags {
    /// Offer the tool `run_bundle` for the bundles below this directory; before all other flags
    #[arg(long, value_name = "DIR")]
    pub(super) bundles: Option<PathBuf>,
    /// Flags of `runner sandbox create`
    #[arg(
        value_name = "FLAGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(super) of_create: Vec<OsString>,
}

/// Flags of `create` that neither `exec` nor `why` has; each has a value.
const OF_CREATE_ALONE: [&str; 4] = [
    "--idle-timeout",
    "--label",
    "--label-file",
    "--pause-after-idle",
];

/// Flags that mean something else for a bundle, or name the only file of a report.
const NOT_WITH_BUNDLES: [&str; 5] = ["--manifest", "--run", "--json", "--report", "--events"];

impl Flags {
    /// Those of a sandbox that was created with these words.
    pub(crate) const fn of_template(of_create: Vec<OsString>) -> Self {
        Self {
            bundles: None,
            of_create,
        }
    }

    /// Reads the words after `mcp`.
    ///
    /// # Errors
    /// [`NoFlags`].
    pub(super) fn parse(words: &[OsString]) -> Result<Self, NoFlags> {
        let flags: Self = companion::flags::parse("mcp", words)?;
        let refused = |message: String| Err(NoFlags::Mistake(message));
        if flags.has("--name") {
            return refused(
                "--name cannot be used: each server names its sandbox itself".to_owned(),
            );
        }
        if let Some(own) = ["--bundles", "--help", "-h"]
            .into_iter()
            .find(|own| flags.has(own))
        {
            return refused(format!("{own} must be the first flag of `runner mcp`"));
        }
        let conflict = NOT_WITH_BUNDLES.iter().find(|flag| flags.has(flag));
        if let (Some(flag), Some(_)) = (conflict, &flags.bundles) {
            return refused(format!(
                "{flag} cannot be used with --bundles: it would be that of the sandbox and of each \
                 bundle"
            ));
        }
        Ok(flags)
    }

    /// Whether a word is this flag. `create` accepts no value that begins with `-`, but after `=`.
    fn has(&self, flag: &str) -> bool {
        let is_flag = |word: &OsString| name_of(word) == flag.as_bytes();
        self.of_create.iter().any(is_flag)
    }

    /// The flags for another verb than `create`.
    pub(super) fn of_run(&self) -> Vec<OsString> {
        let mut kept = Vec::new();
        let mut words = self.of_create.iter();
        while let Some(word) = words.next() {
            let name = name_of(word);
            if OF_CREATE_ALONE.iter().all(|flag| flag.as_bytes() != name) {
                kept.push(word.clone());
            } else if name.len() == word.len() {
                // Its value.
                words.next();
            }
        }
        kept
    }
}

/// The part before `=` of a long flag.
fn name_of(word: &OsStr) -> &[u8] {
    let word = word.as_encoded_bytes();
    word.split(|byte| *byte == b'=').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Flags, NoFlags> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Flags::parse(&words)
    }

    #[test]
    fn flags_of_create_are_kept_verbatim() {
        let words = ["--rw", ".", "-m", "1g", "--idle-timeout=2s", "--nonsense"];
        let flags = parse(&[&["--bundles", "tools"], &words[..]].concat()).expect("flags");
        assert_eq!(flags.of_create, words);
        assert_eq!(flags.bundles, Some("tools".into()));
        assert_eq!(flags.of_run(), ["--rw", ".", "-m", "1g", "--nonsense"]);
        let flags = parse(&[
            "--idle-timeout",
            "2s",
            "--pause-after-idle",
            "1s",
            "--ro",
            "/a",
        ]);
        assert_eq!(flags.expect("flags").of_run(), ["--ro", "/a"]);
        assert!(parse(&[]).expect("no flags").of_create.is_empty());
    }

    #[test]
    fn what_cannot_be_used_is_refused_and_named() {
        for (words, problem) in [
            (&["--rw", ".", "--name", "x"][..], "--name cannot be used"),
            (&["--name=x"], "--name cannot be used"),
            (
                &["--rw", ".", "--bundles", "x"],
                "--bundles must be the first",
            ),
            (&["--rw", ".", "--help"], "--help must be the first"),
            (
                &["--bundles", "x", "--json=a"],
                "--json cannot be used with",
            ),
            (&["--bundles"], "a value is required"),
        ] {
            let error = parse(words).expect_err("refused");
            let named = matches!(&error, NoFlags::Mistake(text) if text.contains(problem));
            assert!(named, "{words:?}: {error:?}");
        }
        let help = parse(&["--help"]).expect_err("help");
        let usage = "Usage: runner mcp [--bundles DIR] [FLAGS]";
        assert!(matches!(help, NoFlags::Help(text) if text.contains(usage)));
    }
}
