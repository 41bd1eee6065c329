//! The flags of `runner bundle`.

use std::path::PathBuf;

use crate::cli::args::CommonFlags;

/// Enough to write a first manifest.
pub(crate) const BUNDLE_HELP: &str = "\
A manifest.yaml beside a folder `src` that holds main.sh:

  name: hello
  run: [sh, src/main.sh]
  code:
    sources:
      - local: src

Without `code` the bundle is the manifest's own folder. `runner bundle . -o hello.tar.gz` makes it,
`--list` shows what is in it, `runner check .` what is wrong, `runner schema manifest` each key.
What .gitignore or .bundleignore name and what looks like credentials stays out of such a folder, with
a warning; `!NAME` in .bundleignore takes it.

What -o and --lock replace is an earlier bundle or lock file, never a file of another kind.

Examples:
  runner bundle . -o hello.tar.gz
  runner bundle tool.yaml --list
  runner bundle . -o tool.tar.gz --lock manifest.lock

Exit codes: 0 done; 125 refused, failed or wrong usage, and nothing was written.";

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch")]
pub struct Bundle {
    /// A manifest, a folder that holds one, or the name of a code-workspace
    #[arg(value_name = "MANIFEST|DIR|NAME")]
    pub subject: PathBuf,
    /// Write the .tar.gz to this file; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The directory that paths of sources are relative to [default: the working directory if the manifest is in it, else the manifest's folder]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Print the digest of the bundle's contents
    #[arg(long)]
    pub print_digest: bool,
    /// Print each file, its source, and the sources whose file it replaced
    #[arg(long)]
    pub list: bool,
    /// Print the list and the digest as a JSON document
    #[arg(long)]
    pub json: bool,
    /// Write the sources of the bundle to a lock file
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// Refuse if the lock file differs
    #[arg(long, requires = "lock")]
    pub locked: bool,
    /// Refuse references to branches and tags
    #[arg(long)]
    pub require_pin: bool,
    /// What to do with symbolic links [default: keep]
    #[arg(long, value_name = "WHAT")]
    pub symlinks: Option<SymlinksArgument>,
    #[command(flatten)]
    pub common: CommonFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SymlinksArgument {
    /// Relative ones that stay in the bundle; others are refused
    Keep,
    /// Copy what they point to, if that is in the workspace
    Follow,
}
