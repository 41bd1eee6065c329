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
//! The child may be older than the run ([`sandbox::prefork`]): the program starts one before it reads
//! its command line. It makes its namespaces and then gets, one after the other, what was published to it in
//! the memory that both share ([`sys::arena`]): the base plan, an overlayfs where the bundle
//! comes from the cache, the launch plan. A child that no run takes is killed and has left
//! nothing.
//!
//! [`run::plan()`] is the same up to the launch, and makes nothing.
//!
//! # Crates and modules
//!
//! The parts are crates, in `crates/`; each says in its header what it is. From the bottom:
//!
//! - [`spec`]: the types of the specifications, of requests and of reports, and how they are read and
//!   written as text. No effects.
//! - `filter`: system call policies, read from YAML and compiled to seccomp programs.
//! - [`sys`]: one module for each primitive of the Linux kernel. All raw system calls.
//! - [`archive`]: untrusted archives to a tree beneath an open directory, and back. One reader for
//!   bundles, snapshots of sources, layers of images and Debian packages.
//! - [`store`]: what is kept for later runs, by one protocol; the cache of unpacked bundles.
//! - [`secrets`]: who may have a secret, the provider of the host, masking.
//! - [`reader`]: documents are judged by JSON Schemas in a process of its own.
//! - [`egress`]: the relay between a sandbox and the network, its parsers and the allowlist.
//! - [`sources`]: clients of github, OCI registries and OCI layouts, and the stores of what they
//!   fetched. Only [`sources::github`] sees the token of github, only [`sources::oci::registry`] the
//!   credentials of a registry.
//! - [`bundler`]: from a manifest to a bundle ([`bundler::bundle()`]), in steps whose types follow each
//!   other: `Resolution` (manifests were read, no source), `Gathered` (what lies where, and how large),
//!   `WrittenBundle` (each file was read once, and had not changed).
//! - [`sandbox`]: one command confined and limited: view, Landlock ruleset, seccomp filter, cgroups,
//!   launch, init, supervision.
//!
//! Modules of the program, which name those above them only:
//!
//! - [`plan`] decides what exactly will be done. Host facts are arguments, so the same arguments give
//!   the same plan.
//! - [`staging`] moves declared files between the workspace and the scratch root, never through a
//!   link that the body could have laid.
//! - [`run`] puts the stages in order: a run ([`run::execute`]), what it would be
//!   ([`run::plan()`]), the facts of a host (`run::verbs::doctor`).
//! - [`cli`] speaks to the user. It alone writes to standard output and standard error, decides
//!   exit codes and reads the variables of the environment. One file for each verb that is no run.
//!
//! `tests/architecture.rs` holds the code to this list.
//!
//! # Invariants
//!
//! - What decides touches nothing (`PURE` in `tests/architecture.rs`): no file, clock, process, environment,
//!   and no unsafe code.
//! - Between clone and exec nothing is optional and nothing is allocated: everything was laid out
//!   before, and a step that fails ends the child before the body runs.
//! - What was asked and cannot be enforced here is refused, or stands in the report as a value.
//!   It is never just a line in a log.
//! - A path that a body or an archive can influence is opened beneath a descriptor, with
//!   openat2(2), and never through a link.
//! - A process clones while it has one thread: [`run::execute`] and all that calls it ask for that.
//!   The thread that clones a child outlives the run, since the child dies with it. The threads of an
//!   unpacking have ended before anything is cloned, and so has the thread that resolved a name, unless
//!   no answer came in time: then it ends with getaddrinfo(3).
//! - A prefork has no data of a run: no id of the host, group, path or stream.
//! - A body reaches a kept tree through its overlayfs, a read-only mount or a copy only, and a tree is
//!   never written again. No writable mount holds what is kept for later runs.
//! - Before the root is entered, no path in an image is walked through a link: what is mounted in it
//!   has real directories of ours in its uppermost layer, and is reached beneath its descriptor.
//! - A blob is in the store under its digest only once all its bytes were hashed and are on the
//!   disk; a snapshot is unpacked of the bytes that its manifest names, or not at all.
//! - The supervisor reads nothing that the body wrote, except the declared output document and the
//!   declared output files, bounded in size.
//! - What a run makes on the host is recorded before it is made. It is given back in reverse order;
//!   what a killed supervisor left is found by the next start, or by `runner gc`. A failure to give
//!   something back is added to the report and hides nothing.
//! - A bundle depends on its resolution alone: on no clock, umask, uid, order of a directory or
//!   locale. Where every reference is a commit, the same sources give the same bytes anywhere.
//! - A file of a workspace is named by a path beneath it and opened without links, for every
//!   manifest. Files elsewhere are named by the host's configuration only.
//! - A source artifact depends on its files, on what git says of them and on what was asked for
//!   alone, and on no clock: the same sources have the same digest anywhere.
//! - Nothing that a repository says is executed: git reads a configuration that this program wrote,
//!   never the repository's.
//! - What is fetched, listed or read for a bundle is bounded before it is done: bytes, entries,
//!   depth, sources, answers, time.
//! - A body reaches other hosts through the relay only. The relay decides on a name before it resolves
//!   it, resolves it once, and connects to the address that it checked.
//! - No descriptor of the body's network namespace stays open after the run: one would keep it.
//! - A preparation run has no secret, variable or workspace of the caller's, and reaches the host's
//!   indexes only; what it leaves is read as what a stranger left.
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
