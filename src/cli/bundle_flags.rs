//! The flags of `runner bundle`.

use std::path::PathBuf;

use crate::cli::args::{PolicyFile, VoiceFlags, with_variable};

/// What `runner bundle --help` says besides its flags: enough to write a first manifest.
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

/// Make a bundle of a manifest and its sources.
#[derive(Debug, clap::Args)]
// Each is one flag of the command line.
#[expect(clippy::struct_excessive_bools, reason = "flags that are given or not")]
#[command(mut_args = with_variable)]
pub struct Bundle {
    /// A manifest, a folder that holds one, or the name of a code-workspace
    #[arg(value_name = "MANIFEST|DIR|NAME")]
    pub subject: PathBuf,
    /// Write the .tar.gz there; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What paths of sources are relative to [default: the working directory where the manifest lies beneath it, else the manifest's folder]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Print the digest of the bundle's contents
    #[arg(long)]
    pub print_digest: bool,
    /// Print each file, its source, and whose it replaced
    #[arg(long)]
    pub list: bool,
    /// Print what is asked for as a JSON document
    #[arg(long)]
    pub json: bool,
    /// Write what the bundle is made of there
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// Refuse where that file says anything else
    #[arg(long, requires = "lock")]
    pub locked: bool,
    /// Refuse references to branches and tags
    #[arg(long)]
    pub require_pin: bool,
    /// What becomes of symbolic links [default: keep]
    #[arg(long, value_name = "WHAT")]
    pub symlinks: Option<SymlinksArgument>,
    /// How to speak.
    #[command(flatten)]
    pub voice: VoiceFlags,
    /// Configuration.
    #[command(flatten)]
    pub policy: PolicyFile,
}

/// The value of `--symlinks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SymlinksArgument {
    /// Relative ones that stay in the bundle; others are refused
    Keep,
    /// Copy what they point to, where that lies in the workspace
    Follow,
}
