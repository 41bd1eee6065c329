//! `runner`: runs untrusted bundles confined and limited, and reports what happened.
//!
//! # One run
//!
//! [`run::execute`] takes a [`spec::request::Request`] and always returns a [`spec::report::Report`].
//! Its stages are in `src/run/exec.rs`. Start reading there:
//!
//! ```text
//! open inputs  ─▶ Inputs        manifest, archive and workspace are opened, not read
//! acquire      ─▶ Resources     run record, cgroups, uid; released at the end in reverse order
//! prepare      ─▶ Waiting       a child waits in its namespaces and has handed over its tmpfs
//! unpack       ─▶ Unpacked      the bundle is in the tmpfs or in the cache
//! plan         ─▶ Planned       what runs under which limits
//! materialize  ─▶ Materialized  the image and the workspace sources are mounted
//! stage        ─▶ Staged        the inputs are checked and copied
//! launch       ─▶ Running       secrets are revealed; the child has executed the body
//! supervise    ─▶ Ended         the body has ended, and what it used is known
//! sync                          the outputs are copied to the workspace
//! ```
//!
//! The child may be older than the run ([`sandbox::prefork`]): the program clones it before it reads
//! its command line. The child makes its namespaces. The program then publishes to it, in memory that
//! both share ([`sys::arena`]): the base plan, an overlayfs if the bundle comes from the cache, the
//! launch plan. A child that no run takes is killed and leaves nothing behind.
//!
//! [`run::plan()`] makes the same decisions up to the launch, and creates nothing.
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
//! - [`store`]: what is kept for later runs, by one protocol; the cache of unpacked bundles.
//! - [`secrets`]: who may have a secret, the provider of the host, masking.
//! - `confinement`: the rights that a process gives up before it handles what a stranger wrote.
//! - [`reader`]: what strangers wrote, read in a process without rights: archives are unpacked, documents
//!   parsed and validated by JSON Schemas.
//! - [`egress`]: the relay between a sandbox and the network, its parsers and the allowlist.
//! - [`sources`]: clients of github, OCI registries and OCI layouts, and the stores of what they
//!   fetched. Only [`sources::github`] sees the token of github, only [`sources::oci::registry`] the
//!   credentials of a registry.
//! - [`bundler`]: from a manifest to a bundle ([`bundler::bundle()`]), in steps whose types follow each
//!   other: `Resolution` (manifests were read, no source), `Gathered` (what lies where, and how large),
//!   `WrittenBundle` (each file was read once, and had not changed).
//! - [`sandbox`]: runs one command confined and limited: view, Landlock ruleset, seccomp filter,
//!   cgroups, launch, init, supervision.
//!
//! Modules of the program; each names only those above it:
//!
//! - [`plan`] decides what exactly is done. Host facts are arguments, so the same arguments give
//!   the same plan.
//! - [`staging`] copies declared files between the workspace and the scratch root, never through a
//!   link that the body could have made.
//! - [`run`] executes the stages in order: a run ([`run::execute`]), a dry run ([`run::plan()`]), the
//!   facts of a host (`run::verbs::doctor`).
//! - `page` makes a page of a report, from its JSON document to a text.
//! - [`cli`] is the command line. It alone prints messages, decides exit codes and reads environment
//!   variables. Each verb other than `exec` and `run` has a file.
//!
//! `tests/architecture.rs` checks the code against this list.
//!
//! # Invariants
//!
//! - Code that decides has no effects (`PURE` in `tests/architecture.rs`): it uses no file, clock,
//!   process or environment, and no unsafe code.
//! - Between clone and exec nothing is optional and nothing is allocated: everything is laid out
//!   beforehand, and a step that fails ends the child before the body runs.
//! - What was asked for and cannot be enforced here is refused or is a value in the report. It is
//!   never only a line in a log.
//! - A path that a body or an archive can influence is opened beneath a descriptor, and never through
//!   a link: with openat2(2), or without that call one component at a time with `O_NOFOLLOW`.
//! - A process clones while it has one thread: [`run::execute`] and all its callers require that.
//!   The thread that clones a child outlives the run, because the child dies with it. The threads that
//!   unpack have ended before anything is cloned.
//! - A prefork has no data of a run: no id of the host, cgroup, path or stream.
//! - A body reaches a kept tree only through its overlayfs, a read-only mount or a copy, and a kept
//!   tree is never written again. No writable mount holds what is kept for later runs.
//! - Before the root is entered, no path in an image is followed through a link: what is mounted in it
//!   has real directories, made by us, in its uppermost layer, and is reached beneath its descriptor.
//! - A blob is in the store under its digest only after all its bytes were hashed and are on the
//!   disk; a snapshot is unpacked from the bytes that its manifest names, or not at all.
//! - No process that parses what a stranger wrote has rights that a body has not. Exceptions: the fetcher connects to
//!   any host by TCP and UDP, and has the credential of its request; the resolver sends datagrams to any host; a reader
//!   writes to the directory that it fills, for caches and stores as the caller; `runner-server` and `runner-worker`,
//!   which have the rights of their user. `docs/security-model.md` says what a takeover of each gives.
//! - The supervisor copies, counts, hashes, cuts and masks bytes of the body and decodes none: output, declared output
//!   files, names and paths. A reader parses the output document. All is bounded in size.
//! - What a run makes on the host is recorded before it is made, and released in reverse order. The
//!   next start or `runner gc` finds what a killed supervisor left. A failure to release something is
//!   added to the report and hides nothing.
//! - A bundle depends on its resolution alone, not on clock, umask, uid, order of a directory or
//!   locale. Where every reference is a commit, the same sources give the same bytes anywhere.
//! - For every manifest, a file of a workspace is named by a path beneath it and opened without
//!   links. Only the host's configuration names files elsewhere.
//! - A source artifact depends only on its files, on what git says of them and on what was asked for,
//!   and on no clock: the same sources have the same digest anywhere.
//! - Nothing that a repository says is executed: git reads a configuration that this program wrote,
//!   never the repository's.
//! - What is fetched, listed or read for a bundle is bounded beforehand: bytes, entries, depth,
//!   sources, answers, time.
//! - A body reaches other hosts through the relay only. The supervisor decides on a name before the resolver
//!   looks it up, once, and connects to the address that it checked.
//! - No descriptor of the body's network namespace stays open after the run: one would keep the
//!   namespace alive.
//! - A preparation run has no secret, variable or workspace of the caller's, and reaches the host's
//!   indexes only; what it leaves is read as untrusted.
//! - The value of a secret is in the body's environment and in no error, `Debug`, log, lock file,
//!   bundle or argument vector; a token is in a header to its own service.
//! - The only global state is that of the process: its allocator, stack, umask, signal dispositions and
//!   mask, the subscriber of tracing, and whether standard error is stuck.
//! - /proc/self/exe is read only to start the program again in a systemd scope, and for a hint and a test run of
//!   `doctor`. A sandbox is made by a clone, never by a second start.
//!
//! # Public surface
//!
//! The program is [`cli::dispatch::dispatch`]. Other programs start the `runner` binary and read the
//! report (`--json=fd:N`). The other modules are public for the tests. [`define_io`], [`define_runner`]
//! and [`define_sandbox`] are pure functions for a host that composes manifests itself: they make the
//! blocks of the specifications as types.

pub mod cli;
mod page;
pub mod plan;
pub mod run;
pub mod staging;

pub use bundler::define_code::{DefineCode, define_code};
pub use spec::define::{define_io, define_runner, define_sandbox};
