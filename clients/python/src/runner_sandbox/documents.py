"""The JSON documents of the program. Written by clients/generate-types from schemas/: do not edit."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict


class Exit(TypedDict):
    """How the body's first process ended."""

    code: Optional[int]
    """Exit code; `null`: a signal ended it."""
    signal: Optional[int]
    """Signal that ended it; `null`: it exited."""
    core_dump: bool
    """Whether the kernel reported a core dump."""
    raw_status: int
    """Wait status (wait(2))."""


class EndedCommands(TypedDict):
    """Commands that ended."""

    latest: List[CommandRecord]
    """The last 128, in the order of their ends."""
    unlisted: int
    """The number of those that ended earlier."""


class CommandRecord(TypedDict):
    """A command of a sandbox that stays."""

    id: int
    """Its number in the sandbox, from 1."""
    pid: int
    """The process id of its first process in the sandbox."""
    argv: List[str]
    """The program and its arguments, escaped; `…` stands for what is left out beyond 1 KiB."""
    is_detached: bool
    """Whether it was started with --detach."""
    timeout_ms: Optional[int]
    """Its time: --timeout, or `timeout_ms` of the sandbox's manifest if that is less; `null`: no limit."""
    started_at: str
    """UTC, RFC 3339, to the millisecond."""
    ended_at: Optional[str]
    """As `started_at`; `null`: it runs."""
    outcome: Optional[str]
    """`exited`, `signaled`, `timed_out`, `cpu_exhausted` or `out_of_memory`, or `cancelled` by the end of the sandbox; `null`: it runs."""
    exit: Optional[Exit]
    """How its first process ended; `null`: it runs, or the sandbox ended first."""
    usage: Optional[Usage]
    """What its processes used until its first one ended; `null`: it has no cgroup of its own, or runs."""
    refused_forks: Optional[int]
    """Number of processes and threads that --pids refused; `null`: not counted."""


class Usage(TypedDict):
    """Resources that the body used; `null`: this host does not measure it."""

    wall_time_ms: int
    """Time from the launch to the end of the body."""
    user_time_ms: Optional[int]
    """CPU time of all processes in user mode."""
    system_time_ms: Optional[int]
    """CPU time of all processes in the kernel."""
    memory_peak_bytes: Optional[int]
    """Peak memory of all processes, files in memory included."""
    processes_peak: Optional[int]
    """Peak number of processes and threads."""
    written_bytes: Optional[int]
    """Growth of the writable directories from the launch to the end."""
    oom_kills: Optional[int]
    """Number of processes that were killed because of the memory limit."""


class ErrorReport(TypedDict):
    """An error."""

    code: str
    """Stable error code, in snake case or as in the specifications."""
    message: str
    """What was found and what was expected."""
    hint: Optional[str]
    """How to fix it."""


class UsageSample(TypedDict):
    """What all processes of the body used; `null`: this host does not measure it."""

    at_ms: int
    """Time since the body was started."""
    memory_bytes: Optional[int]
    """Memory, files in memory included."""
    cpu_time_us: Optional[int]
    """CPU time so far."""
    processes: Optional[int]
    """Number of processes and threads."""
    oom_kills: Optional[int]
    """Number of processes that were killed so far because of the memory limit."""


class LimitReport(TypedDict):
    """One limit."""

    requested: Optional[int]
    """Requested value; `null`: none was requested."""
    effective: Optional[int]
    """Effective value; `null`: unlimited."""
    enforced_by: str
    """The mechanism: `cgroup-v1`, `cgroup-v2`, `rlimit`, `tmpfs`, `supervisor`, `poll`, `none`."""
    source: str
    """Source of the effective value: `default`, `flag`, a key of the manifest, `host-policy` …"""
    sources: List[LimitSource]
    """All sources of values, the deciding one included."""


class LimitSource(TypedDict):
    """A source of a value for a limit."""

    source: str
    """`default`, `flag` or the key; `host-policy` and `built-in-maximum` are maxima."""
    value: int
    """Value in the unit of the limit."""


class Enforcement(TypedDict):
    """How strongly a part of the isolation is enforced."""

    state: str
    """How strongly it is enforced. Known values: enforced, weaker, absent."""
    reason: Optional[str]
    """Why it is not `enforced`, or what it does not cover."""


class RunnerReport(TypedDict):
    """The process boundary of a run from a bundle."""

    engine: str
    """The effective engine. Known values: subprocess, sandbox."""
    image: Optional[str]
    """Id of the named or selected image template; `null` for `subprocess`."""
    downgraded: bool
    """Whether the manifest requests `in-process`, which runs as `subprocess`."""
    needs_unsatisfied: List[UnsatisfiedNeed]
    """Needs of the body that the run does not satisfy."""


class UnsatisfiedNeed(TypedDict):
    """An entry of `needs` that is not satisfied."""

    kind: str
    """`language`, `native`, `npm` or `pip`."""
    need: str
    """The entry, escaped."""
    reason: str
    """Why it is not satisfied."""


class ImageReport(TypedDict):
    """The image of a run."""

    id: Optional[str]
    """Id of its template; `null`: the image of `--image`."""
    place: str
    """Location: `docker://…` or `oci:DIR`."""
    digest: Optional[str]
    """Digest of the manifest; `null`: the image is absent."""
    layers: Optional[int]
    """Number of layers, prepared layers included; `null`: the image is absent."""
    found: str
    """Where the image was found. Known values: store, pulled, absent."""
    root: str
    """Whether the body may write to its root. Known values: writable, read_only."""
    user: Optional[ImageUserReport]
    """Uid and gid of the body; `null`: the image is absent."""


class ImageUserReport(TypedDict):
    """The ids of a body in an image."""

    uid: int
    """User id."""
    gid: int
    """Group id."""


PreparationReport = TypedDict(
    "PreparationReport",
    {
        "kind": "str",
        "needs": "List[str]",
        "from": "List[str]",
        "allowed": "List[str]",
        "key": "str",
        "found": "str",
        "bytes": "Optional[int]",
        "packages": "List[str]",
        "scripts_not_run": "List[str]",
        "hosts": "List[HostTraffic]",
        "denials": "List[Denial]",
        "duration_ms": "Optional[int]",
    },
)
"""A layer of packages in the body's root, which a preparation run installed."""


class HostTraffic(TypedDict):
    """Traffic with one host."""

    host: str
    """The name, or the address if the egress list has the address."""
    ports: List[int]
    """TCP ports, ascending; at most 16."""
    connections: int
    """Number of connections."""
    sent_bytes: int
    """Bytes that the host accepted."""
    received_bytes: int
    """Bytes of the host that the body accepted."""


class Denial(TypedDict):
    """A denied operation of the body."""

    kind: str
    """`net`, `syscall`, `resource`, `file`, `exec`, `signal`."""
    object: str
    """What the body tried to use: `example.org:443`, a path of its view, `SIGTERM to process 1`, or the call with the deciding arguments, such as `socket(17, 3, 0)`."""
    operation: Optional[str]
    """What it tried to do with the path; only of `file` and `exec`."""
    rule: str
    """The rule that denied it."""
    errno: Optional[str]
    """The error that the body got, such as `EPERM`; not of `net`."""
    reason: Optional[str]
    """Why it was denied; only of `net`."""
    protocol: Optional[str]
    """`dns`, `tcp`, `udp`, `icmp`, `sctp`, `udplite`, or the number of an IP protocol; only of `net`."""
    host: Optional[str]
    """Name of the host, if known; only of `net`."""
    ip: Optional[str]
    """Address, if known; only of `net`."""
    port: Optional[int]
    """Port, if known; only of `net`."""
    hint: Optional[str]
    """How to fix it."""
    certainty: Optional[str]
    """`inferred` from what was at the path at the time of the call: the body may not have got this error; `null`: it got it."""
    count: int
    """Number of attempts."""
    first_ms: Optional[int]
    """Time of the first attempt, in milliseconds since the body was started; `null`: unknown."""


PlannedPath = TypedDict(
    "PlannedPath",
    {
        "path": "str",
        "what": "str",
        "from": "Optional[str]",
        "writable": "bool",
        "size_bytes": "Optional[int]",
        "decided_by": "str",
    },
)
"""A path that the body would see."""


class StreamReport(TypedDict):
    """The fields of the document, for the schema. One of the body's two output streams."""

    bytes: int
    """Bytes that the body wrote."""
    dropped_bytes: int
    """Bytes of these that were dropped."""
    text: Optional[str]
    """The captured text, with U+FFFD for bytes that are not UTF-8; `null`: not captured."""
    text_base64: Optional[str]
    """The captured bytes, if they are not UTF-8."""


class StagedReport(TypedDict):
    """A file that was staged for the body."""

    key: str
    """The key. Inside, the file is at `/scratch/<key>`."""
    path: str
    """Relative to the workspace."""
    sha256: str
    """SHA-256 of the staged bytes."""
    bytes: int
    """Size."""


class SyncedReport(TypedDict):
    """A declared output file after the run."""

    key: str
    """The key. Inside, the file is at `/scratch/<key>`."""
    path: str
    """Relative to the workspace, with tokens replaced."""
    state: str
    """The result. Known values: synced, missing, failed, skipped."""
    sha256: Optional[str]
    """SHA-256 of the written bytes; `null`: not `synced`."""
    bytes: Optional[int]
    """Size; `null`: not `synced`."""
    error: Optional[ErrorReport]
    """Why it is `failed`; `null`: it is not."""


class Observation(TypedDict):
    """The kinds of denials, and whether they were observed."""

    network: KindObservation
    """Connections, datagrams and DNS queries: denials of kind `net`."""
    syscalls: KindObservation
    """Calls that the filter refuses: denials of kind `syscall`."""
    resources: KindObservation
    """Processes beyond their limit: denials of kind `resource`."""
    files: KindObservation
    """Files that the body does not see, sees read-only or cannot execute: denials of kind `file` and `exec`. Observed with `--trace`."""
    signals: KindObservation
    """Signals to process 1, which is the runner's: denials of kind `signal`. Observed with `--trace`."""


class KindObservation(TypedDict):
    """Whether denials of one kind were observed."""

    state: str
    """Whether `denials` lists them. Known values: observed, partial, not_observed."""
    reason: Optional[str]
    """Why the state is not `observed`."""
    beyond: int
    """Number of denials of this kind that `denials` does not list, because it has too many others."""


class EgressReport(TypedDict):
    """The network of a run."""

    capture: str
    """How connections are redirected to the relay. Known values: tproxy, anyip, none."""
    allowed: List[str]
    """The effective egress list: manifest and `--allow-net`, limited by the host policy."""
    hosts: List[HostTraffic]
    """Reached hosts, in the order in which their first connections ended."""
    unreachable: List[UnreachableHost]
    """Allowed hosts that could not be reached. They are not denials."""
    unreachable_beyond: int
    """Number of failed attempts that `unreachable` does not list."""
    denials_beyond: int
    """Number of denials that `denials` does not list."""
    lost_questions: int
    """Number of DNS queries that were dropped because a buffer was full."""
    lost_datagrams: int
    """Number of denied datagrams that are not reported because a buffer was full."""
    published: List[PublishedReport]
    """Published ports (`--publish`)."""


class UnreachableHost(TypedDict):
    """An allowed host that could not be reached."""

    host: str
    """The name, or the address if the egress list has the address."""
    port: int
    """TCP port."""
    cause: str
    """The cause for the last tried address. Known values: no-address, no-name-server, refused, no-route, timed-out."""
    count: int
    """Number of attempts."""


class PublishedReport(TypedDict):
    """A published port."""

    host_port: int
    """Port on 127.0.0.1 of the host."""
    body_port: int
    """Port on the body's loopback."""
    connections: int
    """Number of connections that were forwarded to the body; a connection that the body did not accept was reset."""


class BundleReport(TypedDict):
    """The bundle."""

    name: Optional[str]
    """`name` of the manifest."""
    version: Optional[str]
    """`version` of the manifest."""
    content_digest: str
    """SHA-256 of the canonical tar: the bundle's identity."""
    archive_digest: Optional[str]
    """SHA-256 of the archive; `null`: the bundle is a directory."""
    bytes: int
    """Size of all files."""
    entries: int
    """Number of files, directories and links."""
    cache: BundleCacheReport
    """What the cache of bundles did."""
    sources: List[SourceCommit]
    """Commits of its files, as the bundle states them."""


class BundleCacheReport(TypedDict):
    """What the cache of bundles did."""

    found: str
    """Where the tree was found. Known values: identity, digest, miss, off."""
    reason: Optional[str]
    """Why the cache was `off`, or why the tree was not kept or not found by its file's identity: `flag`, `policy`, `directory`, `stdin`, `small`, `too_large`, `full`, `unsafe`, `unusable`, `others_may_write`, `others_may_replace`, `young`, `untrusted`."""
    view: str
    """How the body sees the tree. Known values: overlayfs, copy, own."""


class SourceCommit(TypedDict):
    """A reference of a source, and the commit that it named when the bundle was made."""

    repository: str
    """`owner/name`."""
    reference: str
    """Commit, tag or branch, as the manifest has it."""
    sha: str
    """The commit, 40 hexadecimal digits."""


class WorkspaceSourceReport(TypedDict):
    """A workspace source."""

    id: str
    """Id in the manifest."""
    reference: str
    """Reference in the manifest."""
    digest: Optional[str]
    """Digest of the OCI manifest, also of a tag; `null`: the source is absent."""
    mount_path: str
    """Mount point inside."""
    subpath: Optional[str]
    """Mounted directory of the source; `null`: the whole source."""
    writable: bool
    """Whether the body may write there. Changes are removed with the run."""
    view: Optional[str]
    """How the body sees the source; `null`: it is left out."""
    found: str
    """Where the source was found. Known values: store, pulled, absent."""


class SecretReport(TypedDict):
    """A secret whose value the body received."""

    variable: str
    """Name of the variable with the value."""
    reference: str
    """`vault SLUG` or `oauth ID` of the manifest, `env:NAME` or `file:PATH` of the caller."""
    provider: str
    """Source of the value: `caller`, `directory`, `environment` or `command`."""
    granted_by: str
    """What granted it."""


class WarningReport(TypedDict):
    """A warning."""

    code: str
    """Stable warning code."""
    message: str
    """Message for people."""


class SandboxState(TypedDict):
    """A sandbox, as its supervisor describes it."""

    name: str
    """The name."""
    run_id: str
    """The id of its run: lower-case ULID."""
    start_unix_s: int
    """When it was created, in seconds since 1970."""
    is_paused: bool
    """Whether its processes are stopped."""
    labels: Dict[str, str]
    """The labels of `create`."""
    run_time_ms: int
    """How long it has lived, without pauses."""
    ends_in_ms: Optional[int]
    """After this time it ends, except for pauses; `null`: it has no time limit."""
    idle_timeout_ms: Optional[int]
    """Its --idle-timeout; `null`: none."""
    commands: List[CommandRecord]
    """The commands that run, by their ids."""
    ended: EndedCommands
    """The commands that ended."""


class UnresponsiveSandbox(TypedDict):
    """A sandbox whose supervisor does not answer: the host has stopped it, or is overloaded."""

    name: str
    """The name."""
    run_id: str
    """The id of its run: lower-case ULID."""


class Report(TypedDict):
    """The JSON document about one run."""

    schema_version: str
    """`SCHEMA_VERSION`."""
    run_id: str
    """Lower-case ULID."""
    runner_version: str
    """Version of the runner."""
    started_at: str
    """Start of the run: UTC, RFC 3339, to the millisecond."""
    outcome: str
    """How the run ended. Known values: exited, signaled, timed_out, cpu_exhausted, out_of_memory, output_limit, cancelled, refused, failed."""
    exit: Optional[Exit]
    """How the body's first process ended; `null`: it never ran."""
    commands: Optional[EndedCommands]
    """The commands of a sandbox that stays, which has no body; `null` for any other run."""
    cancelled_by: Optional[int]
    """The signal to the runner that cancelled the run; `null`: the outcome is not `cancelled`."""
    error: Optional[ErrorReport]
    """Why the outcome is `refused` or `failed`; `null`: it is neither."""
    timings_ms: Dict[str, float]
    """Wall time of each phase by its name, in order, milliseconds: `prepare`, `unpack`, `plan`, `sources`, `stage`, `launch`, `body`, `sync`, `clean`."""
    usage: Usage
    """Resources that the body used."""
    samples: Optional[List[UsageSample]]
    """`usage` over time, for the page; `null` without `--report` or without a cgroup."""
    limits: Dict[str, LimitReport]
    """Each limit by its name, which ends with its unit."""
    enforcement: Dict[str, Enforcement]
    """How strongly each part of the isolation is enforced, by its name: `user_namespace`, `landlock`, `seccomp`, `memory` …"""
    cgroup_backend: str
    """Name of the cgroup back end: `v2`, `v2-scope`, `v1`, `none`."""
    syscall_policy: Optional[str]
    """The system call policy; `null`: it was not decided."""
    run_form: Optional[str]
    """The form of `run`; `null` for `runner run`."""
    argv: List[str]
    """The argument vector of the body."""
    bound_programs: List[str]
    """Host directories that are visible for a program outside the system directories."""
    runner: Optional[RunnerReport]
    """Engine, image and needs; `null` for `runner run`."""
    image: Optional[ImageReport]
    """The image of the body's root; `null`: the body uses the host's programs."""
    preparation: List[PreparationReport]
    """Packages that are installed before the body is started, in order."""
    view: Optional[List[PlannedPath]]
    """The paths visible to the body, parents first, for the page; `null` without `--report`."""
    stdout: StreamReport
    """The body's standard output."""
    stderr: StreamReport
    """The body's standard error."""
    inputs: List[StagedReport]
    """Files staged in, by key."""
    outputs: List[SyncedReport]
    """Files synced out, by key."""
    output: Any
    """The structured output of the body."""
    denials: List[Denial]
    """Denied operations of the body."""
    observation: Observation
    """Which kinds of denials were observed."""
    egress: EgressReport
    """The network."""
    bundle: Optional[BundleReport]
    """The bundle; `null` for `runner run`."""
    workspace_sources: List[WorkspaceSourceReport]
    """Workspace sources, in the order of the manifest."""
    kept: Optional[str]
    """Path of the copy of the scratch root that `--keep` made."""
    secrets: List[SecretReport]
    """Secrets whose values the body received, without the values."""
    warnings: List[WarningReport]
    """Warnings."""


class SandboxListing(TypedDict):
    """What `runner sandbox ls --json` prints."""

    sandboxes: List[SandboxState]
    """The sandboxes of this user, by name."""
    unresponsive: List[UnresponsiveSandbox]
    """Those whose supervisors did not answer in 5 s, by name."""


class CommandResult(TypedDict):
    """What `runner sandbox exec --json` writes: how the command ended, which its exit code alone does not tell."""

    id: Optional[int]
    """Its number in the sandbox; `null`: it was not started."""
    outcome: Optional[str]
    """`exited`, `signaled`, `timed_out`, `cpu_exhausted` or `out_of_memory`; `cancelled`: the sandbox ended first; `failed`: the program could not be started; `refused`: nothing was tried; `null`: it runs, started with --detach."""
    exit: Optional[Exit]
    """How its first process ended."""
    usage: Optional[Usage]
    """What its processes used until its first one ended; `null`: this host does not measure it."""
    refused_forks: Optional[int]
    """Number of processes and threads that --pids refused; `null`: not counted."""
    error: Optional[ErrorReport]
    """Why it was not started."""
