//! `runner`: runs untrusted bundles confined and limited, and reports what happened.
//!
//! # One run
//!
//! [`run::execute`] takes a [`spec::request::Request`] and returns a [`spec::report::Report`], whatever
//! happens in between. `src/run/exec.rs` has its stages, and is the place to start reading:
//!
//! ```text
//! open inputs  ─▶ Inputs        manifest, archive and workspace are opened, not read
//! acquire      ─▶ Resources     run record, cgroups, uid; released at the end in reverse order
//! prepare      ─▶ Waiting       a child waits in its namespaces and has handed over its tmpfs
//! unpack       ─▶ Unpacked      the bundle lies in the tmpfs, or in the cache
//! plan         ─▶ Planned       what runs under which limits
//! materialize  ─▶ Materialized  the image and the workspace sources are mounted
//! stage        ─▶ Staged        the inputs are judged and copied
//! launch       ─▶ Running       secrets are revealed; the child has executed the body
//! supervise    ─▶ Ended         the body has ended, and what it used is known
//! sync                          the outputs are copied to the workspace
//! ```
//!
//! The child can be preforked ([`sandbox::prefork`]): the program starts it before it reads its command
//! line. The child creates its namespaces. The parent then publishes to it in shared memory
//! ([`sys::arena`]), in this order: the base plan, an overlayfs if the bundle comes from the cache, the
//! launch plan. A child that no run uses is killed and leaves nothing on the host.
//!
//! [`run::plan()`] decides the same up to the launch, and creates nothing.
//!
//! # Crates and modules
//!
//! The crates are in `crates/`; the header of each describes it. From the bottom:
//!
//! - [`spec`]: the types of the specifications, of requests and of reports, and how they are read and
//!   written as text. No effects.
//! - `filter`: system call policies, read from YAML and compiled to seccomp programs.
//! - [`sys`]: one module for each primitive of the Linux kernel. All raw system calls.
//! - [`archive`]: untrusted archives to a tree beneath an open directory, and back. One reader for
//!   bundles, snapshots of sources, layers of images and Debian packages.
//! - [`store`]: stores of trees and blobs that outlive a run; the cache of unpacked bundles.
//! - [`secrets`]: which program may get a secret, the provider of the host, masking.
//! - [`reader`]: validates documents against JSON Schemas in a separate process.
//! - [`egress`]: the relay between a sandbox and the network, its parsers and the allowlist.
//! - [`sources`]: clients of GitHub, OCI registries and OCI layouts, and the stores of fetched
//!   sources. Only [`sources::github`] sees the GitHub token, only [`sources::oci::registry`] the
//!   credentials of a registry.
//! - [`bundler`]: from a manifest to a bundle ([`bundler::bundle()`]), in steps whose types follow each
//!   other: `Resolution` (manifests were read, no source), `Gathered` (what lies where, and how large),
//!   `WrittenBundle` (each file was read once, and had not changed).
//! - [`sandbox`]: runs one command confined and limited: view, Landlock ruleset, seccomp filter, cgroups,
//!   launch, init, supervision.
//!
//! Modules of the program; each uses only those above it:
//!
//! - [`plan`] decides what a run will do. Host facts are arguments, so the same arguments give
//!   the same plan.
//! - [`staging`] moves declared files between the workspace and the scratch root, never through a
//!   link that the body could have created.
//! - [`run`] runs the stages in order: a run ([`run::execute`]), a dry run ([`run::plan()`]), the check
//!   of a host ([`run::doctor`]).
//! - [`cli`] is the command line. Only it writes to standard output and standard error, decides exit
//!   codes and reads environment variables. Each verb other than a run has its own file.
//!
//! `tests/architecture.rs` checks these dependencies.
//!
//! # Invariants
//!
//! - The deciding modules (`PURE` in `tests/architecture.rs`) are pure: no file, clock, process or
//!   environment, and no unsafe code.
//! - Between clone and exec nothing is optional and nothing is allocated: everything is prepared
//!   before, and a step that fails ends the child before the body runs.
//! - A requested restriction that the host cannot enforce is refused, or is a value in the report. It
//!   is never only a line in a log.
//! - A path that a body or an archive can influence is opened beneath a descriptor, with
//!   openat2(2), and never through a link.
//! - A process clones while it has one thread: [`run::execute`] and all that calls it ask for that.
//!   The thread that clones a child outlives the run, since the child dies with it. The threads of an
//!   unpacking have ended before anything is cloned, and so has the thread that resolved a name, unless
//!   no answer came in time: then it ends with getaddrinfo(3).
//! - A prefork has no data of a run: no id of the host, group, path or stream.
//! - A body reaches a kept tree through its overlayfs, a read-only mount or a copy only, and a tree is
//!   never written again. No writable mount holds what is kept for later runs.
//! - Before the root is entered, no path in an image is walked through a link: each mount point
//!   in it consists of real directories in the uppermost layer, made by the program, and is reached beneath its descriptor.
//! - A blob is in the store under its digest only after all its bytes are hashed and on disk; a
//!   snapshot is unpacked only from the bytes that its manifest names.
//! - The supervisor reads nothing that the body wrote, except the declared output document and the
//!   declared output files, bounded in size.
//! - A resource on the host is recorded before it is created. Resources are released in reverse order;
//!   the next start or `runner gc` finds those of a killed supervisor. A failed release is added to
//!   the report and hides no other error.
//! - A bundle depends only on its resolution, not on clock, umask, uid, directory order or
//!   locale. Where every reference is a commit, the same sources give the same bytes anywhere.
//! - A file of a workspace is named by a path beneath it and opened without links, for every
//!   manifest. Files elsewhere are named by the host's configuration only.
//! - A source artifact depends only on its files, their git metadata and the request, and on no
//!   clock: the same sources have the same digest anywhere.
//! - No command from a repository is executed: git reads a configuration that this program wrote,
//!   never that of the repository.
//! - Fetching, listing and reading for a bundle are bounded in advance: bytes, entries,
//!   depth, sources, answers, time.
//! - A body reaches other hosts through the relay only. The relay decides on a name before it resolves
//!   it, resolves it once, and connects to the address that it checked.
//! - No descriptor of the body's network namespace stays open after the run: an open
//!   descriptor keeps the namespace alive.
//! - A preparation run has no secret, variable or workspace of the caller, and reaches only the
//!   package indexes of the host; its output is read as untrusted.
//! - The value of a secret is in the body's environment and in no error, `Debug`, log, lock file,
//!   bundle or argument vector; a token is in a header to its own service.
//! - There is no global state, and no program is found through /proc/self/exe.
//!
//! # Public surface
//!
//! The program is [`cli::dispatch::dispatch`]. Other programs start the `runner` binary and read the
//! report (`--json=fd:N`); the other modules are public for the tests. [`define_io`], [`define_runner`]
//! and [`define_sandbox`] are the blocks of the specifications as types: pure functions, for a host that
//! composes manifests itself.

pub mod cli;
pub mod plan;
pub mod run;
pub mod staging;

pub use bundler::define_code::{DefineCode, define_code};
pub use spec::define::{define_io, define_runner, define_sandbox};
