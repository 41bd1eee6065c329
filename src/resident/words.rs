//! Requests and reports as they go between the caller and a supervisor.

use crate::resident::wire::{Garbled, Item, Out, Wire, wire_enum, wire_struct};
use crate::spec::captured::StreamReport;
use crate::spec::digest::Digest;
use crate::spec::egress::EgressRule;
use crate::spec::egress_report::{
    EgressCapture, EgressReport, HostTraffic, PublishedReport, UnreachableCause, UnreachableHost,
};
use crate::spec::host_name::HostName;
use crate::spec::image_report::{ImageFound, ImageReport, ImageUserReport, RootKind};
use crate::spec::manifest::SourceCommit;
use crate::spec::network::{AddedHost, CaptureChoice, NetworkOptions, PublishedPort};
use crate::spec::oci::reference::{Place, Reference, Which};
use crate::spec::outcome::Outcome;
use crate::spec::preparation_report::{PreparationFound, PreparationReport};
use crate::spec::report::{
    BundleCacheReport, BundleReport, BundleView, CacheFound, Denial, Enforcement, EnforcementState,
    ErrorReport, Exit, LimitReport, RUNNER_VERSION, Report, RunForm, SCHEMA_VERSION, SecretReport,
    StagedReport, StepEnd, SyncState, SyncedReport, Timing, Usage, WarningReport,
};
use crate::spec::request::{
    BundleArgument, BundleOptions, Caller, GivenSecret, Grants, InputsArgument, LimitOptions,
    LimitsMode, OciOptions, OnOutputLimit, Request, StreamOptions, Subject, ViewEntry,
};
use crate::spec::runner_report::{EngineName, RunnerReport, UnsatisfiedNeed};
use crate::spec::syscall_policy::SyscallPolicyName;
use crate::spec::workspace_source_report::{SourceFound, SourceView, WorkspaceSourceReport};

wire_struct!(Request {
    subject,
    bundle,
    view,
    workdir,
    environment,
    secrets,
    network,
    limits,
    streams,
    stop_signal,
    strict,
    syscalls,
    unix_sockets,
    sockets,
    grants,
    oci,
    caller,
});
wire_struct!(OciOptions {
    image,
    allow_tags,
    insecure
});
wire_enum!(Place { 0 => Registry(reference), 1 => Layout { directory, which } });
wire_enum!(Which { 0 => Digest(digest), 1 => Tag(tag), 2 => Unnamed });
wire_enum!(Subject { 0 => Bundle(argument), 1 => Command(argv) });
wire_enum!(BundleArgument { 0 => Stdin, 1 => Path(path) });
wire_struct!(BundleOptions {
    manifest,
    run,
    workspace,
    inputs,
    input_files,
    output_files,
    output_directory,
    arguments,
    keep,
    no_cache,
    no_trust_mtime,
});
wire_enum!(InputsArgument { 0 => Text(text), 1 => File(path) });
wire_enum!(ViewEntry {
    0 => Bind { source, target, writable },
    1 => Tmpfs { target, size_bytes },
});
wire_struct!(GivenSecret {
    variable,
    reference,
    value
});
wire_struct!(NetworkOptions {
    allow,
    publish,
    publish_file,
    added_hosts,
    report_denials,
    capture
});
wire_struct!(PublishedPort {
    host_port,
    body_port
});
wire_struct!(AddedHost { name, address });
wire_enum!(CaptureChoice { 0 => Auto, 1 => Tproxy, 2 => AnyIp });
wire_struct!(LimitOptions {
    memory_bytes,
    cpus,
    cpu_time,
    wall_time,
    grace,
    processes,
    open_files,
    disk_bytes,
    disk_inodes,
    output_bytes,
    mode,
    on_output_limit,
});
wire_enum!(LimitsMode { 0 => Stated, 1 => Require, 2 => BestEffort });
wire_enum!(OnOutputLimit { 0 => Drop, 1 => Kill });
wire_struct!(StreamOptions {
    interactive,
    terminal,
    capture
});
wire_struct!(Grants {
    egress,
    secrets,
    env,
    mounts,
    sources,
    outputs,
    policy
});
wire_struct!(Caller {
    path,
    working_directory,
    environment,
    home,
    temporary_directory,
    runtime_directory,
    cache_directory,
    bundle_cache_directory,
    oci_directory,
    docker_config,
    cgroup_parent,
    in_delegated_scope,
});

wire_struct!(Report {
    schema_version,
    run_id,
    runner_version,
    started_at,
    outcome,
    exit,
    cancelled_by,
    error,
    timings,
    steps,
    usage,
    limits,
    enforcement,
    cgroup_backend,
    syscall_policy,
    stdout,
    stderr,
    inputs,
    outputs,
    output,
    denials,
    egress,
    bundle,
    workspace_sources,
    preparation,
    run_form,
    argv,
    bound_programs,
    runner,
    image,
    kept,
    secrets,
    warnings,
});
wire_struct!(PreparationReport {
    kind,
    needs,
    from,
    allowed,
    key,
    found,
    bytes,
    packages,
    scripts_not_run,
    hosts,
    denials,
    duration_ms,
});
wire_enum!(PreparationFound { 0 => Store, 1 => Made, 2 => Absent });
wire_struct!(ImageReport {
    id,
    place,
    digest,
    layers,
    found,
    root,
    user
});
wire_enum!(ImageFound { 0 => Store, 1 => Pulled, 2 => Absent });
wire_enum!(RootKind { 0 => Writable, 1 => ReadOnly });
wire_struct!(ImageUserReport { uid, gid });
wire_enum!(SyscallPolicyName { 0 => Default, 1 => Strict });
wire_enum!(Outcome {
    0 => Exited, 1 => Signaled, 2 => TimedOut, 3 => CpuExhausted, 4 => OutOfMemory,
    5 => OutputLimit, 6 => Cancelled, 7 => Refused, 8 => Failed,
});
wire_struct!(Exit {
    code,
    signal,
    core_dump,
    raw_status
});
wire_struct!(ErrorReport {
    code,
    message,
    hint
});
wire_struct!(Timing { phase, duration_us });
wire_struct!(Usage {
    wall_time_ms,
    user_time_ms,
    system_time_ms,
    memory_peak_bytes,
    processes_peak,
    written_bytes,
    oom_kills,
});
wire_struct!(LimitReport {
    name,
    requested,
    effective,
    enforced_by,
    source
});
wire_struct!(Enforcement {
    axis,
    state,
    reason
});
wire_enum!(EnforcementState { 0 => Enforced, 1 => Weaker, 2 => Absent });
wire_struct!(StreamReport {
    bytes,
    dropped_bytes,
    captured
});
wire_struct!(StagedReport {
    key,
    path,
    sha256,
    bytes
});
wire_struct!(SyncedReport {
    key,
    path,
    state,
    sha256,
    bytes,
    error
});
wire_enum!(SyncState { 0 => Synced, 1 => Missing, 2 => Failed, 3 => Skipped });
wire_struct!(Denial {
    kind,
    object,
    rule,
    reason,
    protocol,
    host,
    ip,
    port,
    hint,
    count,
    first_ms
});
wire_struct!(EgressReport {
    capture,
    allowed,
    hosts,
    unreachable,
    unreachable_beyond,
    denials_beyond,
    lost_questions,
    lost_datagrams,
    published,
});
wire_enum!(EgressCapture { 0 => Tproxy, 1 => AnyIp, 2 => None });
wire_struct!(HostTraffic {
    host,
    connections,
    sent_bytes,
    received_bytes
});
wire_struct!(UnreachableHost {
    host,
    port,
    cause,
    count
});
wire_enum!(UnreachableCause {
    0 => NoAddress, 1 => NoNameServer, 2 => Refused, 3 => NoRoute, 4 => TimedOut,
});
wire_struct!(PublishedReport {
    host_port,
    body_port,
    connections
});
wire_struct!(BundleReport {
    name,
    version,
    content_digest,
    archive_digest,
    bytes,
    entries,
    cache,
    sources
});
wire_struct!(SourceCommit {
    repository,
    reference,
    sha
});
wire_struct!(BundleCacheReport {
    found,
    reason,
    view
});
wire_enum!(CacheFound { 0 => Identity, 1 => Digest, 2 => Miss, 3 => Off });
wire_enum!(BundleView { 0 => Overlayfs, 1 => Copy, 2 => Own });
wire_struct!(WorkspaceSourceReport {
    id,
    reference,
    digest,
    mount_path,
    subpath,
    writable,
    view,
    found
});
wire_enum!(SourceView { 0 => ReadOnly, 1 => Overlayfs, 2 => Copy });
wire_enum!(SourceFound { 0 => Store, 1 => Pulled, 2 => Absent });
wire_enum!(RunForm { 0 => File, 1 => Exec, 2 => Shell });
wire_struct!(RunnerReport {
    engine,
    image,
    downgraded,
    needs_unsatisfied
});
wire_enum!(EngineName { 0 => Subprocess, 1 => Sandbox });
wire_struct!(UnsatisfiedNeed { kind, need, reason });
wire_struct!(SecretReport {
    variable,
    reference,
    provider,
    granted_by
});
wire_struct!(WarningReport { code, message });

/// Every name that stands in a report as a constant of the program.
const NAMES: &[&str] = &[
    SCHEMA_VERSION,
    RUNNER_VERSION,
    // Phases.
    "prepare",
    "unpack",
    "sources",
    "plan",
    "stage",
    "launch",
    "body",
    "sync",
    "clean",
    // Limits.
    "memory_bytes",
    "wall_time_ms",
    "cpu_time_ms",
    "cpu_millis",
    "processes",
    "open_files",
    "disk_bytes",
    "disk_inodes",
    "output_bytes",
    "grace_ms",
    // What enforces them.
    "cgroup-v1",
    "cgroup-v2",
    "rlimit",
    "tmpfs",
    "supervisor",
    "poll",
    "none",
    // Needs.
    "language",
    "native",
    "npm",
    "pip",
    // Why the cache did not have a bundle.
    "flag",
    "policy",
    "directory",
    "stdin",
    "small",
    "too_large",
    "full",
    "unsafe",
    "unusable",
    "others_may_write",
    "others_may_replace",
    "young",
    "untrusted",
];

impl Wire for StepEnd {
    fn put(&self, out: Out<'_>) {
        let Self { act, at_us } = self;
        act.clone().into_owned().put(out);
        at_us.put(out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        Ok(Self {
            act: String::take(from)?.into(),
            at_us: u64::take(from)?,
        })
    }
}
impl Item for StepEnd {}

impl Wire for &'static str {
    fn put(&self, out: Out<'_>) {
        (*self).to_owned().put(out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        let name = String::take(from)?;
        let known = NAMES.iter().find(|known| **known == name);
        known.copied().ok_or(Garbled { what: "a name" })
    }
}

/// What has one written form goes as that.
macro_rules! as_text {
    ($type:ty, $parse:expr) => {
        impl Wire for $type {
            fn put(&self, out: Out<'_>) {
                self.to_string().put(out);
            }
            fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
                let what = stringify!($type);
                let text = String::take(from)?;
                $parse(&text).ok_or(Garbled { what })
            }
        }
        impl Item for $type {}
    };
}
as_text!(Digest, Digest::parse);
as_text!(Reference, |text: &str| Reference::parse(text).ok());
as_text!(EgressRule, |text: &str| EgressRule::parse(text).ok());
as_text!(HostName, |text: &str| HostName::parse(text.as_bytes()).ok());
as_text!(serde_json::Value, |text: &str| serde_json::from_str(text)
    .ok());
