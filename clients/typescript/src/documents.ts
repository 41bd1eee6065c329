// The JSON documents of the program. Written by clients/generate-types from schemas/: do not edit.

/** How a run ended. Each run has one outcome. */
export type Outcome = "exited" | "signaled" | "timed_out" | "cpu_exhausted" | "out_of_memory" | "output_limit" | "cancelled" | "refused" | "failed" | (string & {});

/** How the body's first process ended. */
export interface Exit {
  /** Exit code; `null`: a signal ended it. */
  readonly code: number | null;
  /** Signal that ended it; `null`: it exited. */
  readonly signal: number | null;
  /** Whether the kernel reported a core dump. */
  readonly core_dump: boolean;
  /** Wait status (wait(2)). */
  readonly raw_status: number;
}

/** Commands that ended. */
export interface EndedCommands {
  /** The last 128, in the order of their ends. */
  readonly latest: CommandRecord[];
  /** The number of those that ended earlier. */
  readonly unlisted: number;
}

/** A command of a sandbox that stays. */
export interface CommandRecord {
  /** Its number in the sandbox, from 1. */
  readonly id: number;
  /** The process id of its first process in the sandbox. */
  readonly pid: number;
  /** The program and its arguments, escaped; `…` stands for what is left out beyond 1 KiB. */
  readonly argv: string[];
  /** Whether it was started with --detach. */
  readonly is_detached: boolean;
  /** Its time: --timeout, or `timeout_ms` of the sandbox's manifest if that is less; `null`: no limit. */
  readonly timeout_ms: number | null;
  /** UTC, RFC 3339, to the millisecond. */
  readonly started_at: string;
  /** As `started_at`; `null`: it runs. */
  readonly ended_at: string | null;
  /** `exited`, `signaled`, `timed_out`, `cpu_exhausted` or `out_of_memory`, or `cancelled` by the end of the sandbox; `null`: it runs. */
  readonly outcome: Outcome | null;
  /** How its first process ended; `null`: it runs, or the sandbox ended first. */
  readonly exit: Exit | null;
  /** What its processes used until its first one ended; `null`: it has no cgroup of its own, or runs. */
  readonly usage: Usage | null;
  /** Number of processes and threads that --pids refused; `null`: not counted. */
  readonly refused_forks: number | null;
}

/** Resources that the body used; `null`: this host does not measure it. */
export interface Usage {
  /** Time from the launch to the end of the body. */
  readonly wall_time_ms: number;
  /** CPU time of all processes in user mode. */
  readonly user_time_ms: number | null;
  /** CPU time of all processes in the kernel. */
  readonly system_time_ms: number | null;
  /** Peak memory of all processes, files in memory included. */
  readonly memory_peak_bytes: number | null;
  /** Peak number of processes and threads. */
  readonly processes_peak: number | null;
  /** Growth of the writable directories from the launch to the end. */
  readonly written_bytes: number | null;
  /** Number of processes that were killed because of the memory limit. */
  readonly oom_kills: number | null;
}

/** An error. */
export interface ErrorReport {
  /** Stable error code, in snake case or as in the specifications. */
  readonly code: string;
  /** What was found and what was expected. */
  readonly message: string;
  /** How to fix it. */
  readonly hint: string | null;
}

/** What all processes of the body used; `null`: this host does not measure it. */
export interface UsageSample {
  /** Time since the body was started. */
  readonly at_ms: number;
  /** Memory, files in memory included. */
  readonly memory_bytes: number | null;
  /** CPU time so far. */
  readonly cpu_time_us: number | null;
  /** Number of processes and threads. */
  readonly processes: number | null;
  /** Number of processes that were killed so far because of the memory limit. */
  readonly oom_kills: number | null;
}

/** One limit. */
export interface LimitReport {
  /** Requested value; `null`: none was requested. */
  readonly requested: number | null;
  /** Effective value; `null`: unlimited. */
  readonly effective: number | null;
  /** The mechanism: `cgroup-v1`, `cgroup-v2`, `rlimit`, `tmpfs`, `supervisor`, `poll`, `none`. */
  readonly enforced_by: string;
  /** Source of the effective value: `default`, `flag`, a key of the manifest, `host-policy` … */
  readonly source: string;
  /** All sources of values, the deciding one included. */
  readonly sources: LimitSource[];
}

/** A source of a value for a limit. */
export interface LimitSource {
  /** `default`, `flag` or the key; `host-policy` and `built-in-maximum` are maxima. */
  readonly source: string;
  /** Value in the unit of the limit. */
  readonly value: number;
}

/** How strongly a part of the isolation is enforced. */
export interface Enforcement {
  /** How strongly it is enforced. */
  readonly state: EnforcementState;
  /** Why it is not `enforced`, or what it does not cover. */
  readonly reason: string | null;
}

/** How strongly something is enforced. */
export type EnforcementState = "enforced" | "weaker" | "absent" | (string & {});

/** A built-in system call policy, ordered from loose to strict. Of two stated policies the stricter one applies. */
export type SyscallPolicyName = "default" | "strict" | (string & {});

/** How the body is started. */
export type RunForm = "file" | "exec" | "shell" | (string & {});

/** The process boundary of a run from a bundle. */
export interface RunnerReport {
  /** The effective engine. */
  readonly engine: EngineName;
  /** Id of the named or selected image template; `null` for `subprocess`. */
  readonly image: string | null;
  /** Whether the manifest requests `in-process`, which runs as `subprocess`. */
  readonly downgraded: boolean;
  /** Needs of the body that the run does not satisfy. */
  readonly needs_unsatisfied: UnsatisfiedNeed[];
}

/** An engine. */
export type EngineName = "subprocess" | "sandbox" | (string & {});

/** An entry of `needs` that is not satisfied. */
export interface UnsatisfiedNeed {
  /** `language`, `native`, `npm` or `pip`. */
  readonly kind: string;
  /** The entry, escaped. */
  readonly need: string;
  /** Why it is not satisfied. */
  readonly reason: string;
}

/** The image of a run. */
export interface ImageReport {
  /** Id of its template; `null`: the image of `--image`. */
  readonly id: string | null;
  /** Location: `docker://…` or `oci:DIR`. */
  readonly place: string;
  /** Digest of the manifest; `null`: the image is absent. */
  readonly digest: string | null;
  /** Number of layers, prepared layers included; `null`: the image is absent. */
  readonly layers: number | null;
  /** Where the image was found. */
  readonly found: ImageFound;
  /** Whether the body may write to its root. */
  readonly root: RootKind;
  /** Uid and gid of the body; `null`: the image is absent. */
  readonly user: ImageUserReport | null;
}

/** Where an image was found. */
export type ImageFound = "store" | "pulled" | "absent" | (string & {});

/** Whether the root is writable. */
export type RootKind = "writable" | "read_only" | (string & {});

/** The ids of a body in an image. */
export interface ImageUserReport {
  /** User id. */
  readonly uid: number;
  /** Group id. */
  readonly gid: number;
}

/** A layer of packages in the body's root, which a preparation run installed. */
export interface PreparationReport {
  /** `native`, `npm` or `pip`. */
  readonly kind: string;
  /** Needs of the manifest, escaped; empty: only the package lists of the bundle require it. */
  readonly needs: string[];
  /** Sources of the packages in the host configuration. */
  readonly from: string[];
  /** Hosts that the preparation run may reach. */
  readonly allowed: string[];
  /** Key of the layer in the store: the digest of everything that determines its content. */
  readonly key: string;
  /** Where the layer was found. */
  readonly found: PreparationFound;
  /** Size of all files; `null`: nothing was installed yet. */
  readonly bytes: number | null;
  /** Native packages with their versions, in the order of unpacking. */
  readonly packages: string[];
  /** Native packages with installation scripts. The scripts were not run. */
  readonly scripts_not_run: string[];
  /** Hosts that the preparation run reached. */
  readonly hosts: HostTraffic[];
  /** Denials of the preparation run. */
  readonly denials: Denial[];
  /** Duration of the preparation run; `null`: there was none. */
  readonly duration_ms: number | null;
}

/** Where a prepared layer was found. */
export type PreparationFound = "store" | "made" | "absent" | (string & {});

/** Traffic with one host. */
export interface HostTraffic {
  /** The name, or the address if the egress list has the address. */
  readonly host: string;
  /** TCP ports, ascending; at most 16. */
  readonly ports: number[];
  /** Number of connections. */
  readonly connections: number;
  /** Bytes that the host accepted. */
  readonly sent_bytes: number;
  /** Bytes of the host that the body accepted. */
  readonly received_bytes: number;
}

/** A denied operation of the body. */
export interface Denial {
  /** `net`, `syscall`, `resource`, `file`, `exec`, `signal`. */
  readonly kind: string;
  /** What the body tried to use: `example.org:443`, a path of its view, `SIGTERM to process 1`, or the call with the deciding arguments, such as `socket(17, 3, 0)`. */
  readonly object: string;
  /** What it tried to do with the path; only of `file` and `exec`. */
  readonly operation: PathOperation | null;
  /** The rule that denied it. */
  readonly rule: string;
  /** The error that the body got, such as `EPERM`; not of `net`. */
  readonly errno: string | null;
  /** Why it was denied; only of `net`. */
  readonly reason: DenialReason | null;
  /** `dns`, `tcp`, `udp`, `icmp`, `sctp`, `udplite`, or the number of an IP protocol; only of `net`. */
  readonly protocol: string | null;
  /** Name of the host, if known; only of `net`. */
  readonly host: string | null;
  /** Address, if known; only of `net`. */
  readonly ip: string | null;
  /** Port, if known; only of `net`. */
  readonly port: number | null;
  /** How to fix it. */
  readonly hint: string | null;
  /** `inferred` from what was at the path at the time of the call: the body may not have got this error; `null`: it got it. */
  readonly certainty: Certainty | null;
  /** Number of attempts. */
  readonly count: number;
  /** Time of the first attempt, in milliseconds since the body was started; `null`: unknown. */
  readonly first_ms: number | null;
}

/** What a call does with a path. */
export type PathOperation = "inspect" | "read" | "write" | "create" | "remove" | "execute" | "connect" | (string & {});

/** Why something was denied. */
export type DenialReason = "name-not-allowed" | "port-not-allowed" | "ip-literal" | "resolves-to-private" | "sni-mismatch" | "no-sni" | "not-tls" | "host-mismatch" | "ech" | "port-not-captured" | "proto" | "limit" | (string & {});

/** How sure it is that the body got the error. */
export type Certainty = "inferred" | (string & {});

/** A path that the body would see. */
export interface PlannedPath {
  /** Path inside. */
  readonly path: string;
  /** Type of the entry. */
  readonly what: PlannedEntry;
  /** The path on the host, or the target of a link. */
  readonly from: string | null;
  /** Whether the body may write there. */
  readonly writable: boolean;
  /** Size of a separate tmpfs; other writable directories share the disk limit. */
  readonly size_bytes: number | null;
  /** Source: `fixed`, the flag, the key, or `program`. */
  readonly decided_by: string;
}

/** Type of a path that the body sees. */
export type PlannedEntry = "host" | "image" | "device" | "source" | "tmpfs" | "file" | "link" | "proc" | "devpts" | "mask" | (string & {});

/** The fields of the document, for the schema. One of the body's two output streams. */
export interface StreamReport {
  /** Bytes that the body wrote. */
  readonly bytes: number;
  /** Bytes of these that were dropped. */
  readonly dropped_bytes: number;
  /** The captured text, with U+FFFD for bytes that are not UTF-8; `null`: not captured. */
  readonly text: string | null;
  /** The captured bytes, if they are not UTF-8. */
  readonly text_base64: string | null;
}

/** A file that was staged for the body. */
export interface StagedReport {
  /** The key. Inside, the file is at `/scratch/<key>`. */
  readonly key: string;
  /** Relative to the workspace. */
  readonly path: string;
  /** SHA-256 of the staged bytes. */
  readonly sha256: string;
  /** Size. */
  readonly bytes: number;
}

/** A declared output file after the run. */
export interface SyncedReport {
  /** The key. Inside, the file is at `/scratch/<key>`. */
  readonly key: string;
  /** Relative to the workspace, with tokens replaced. */
  readonly path: string;
  /** The result. */
  readonly state: SyncState;
  /** SHA-256 of the written bytes; `null`: not `synced`. */
  readonly sha256: string | null;
  /** Size; `null`: not `synced`. */
  readonly bytes: number | null;
  /** Why it is `failed`; `null`: it is not. */
  readonly error: ErrorReport | null;
}

/** The result for a declared output file. */
export type SyncState = "synced" | "missing" | "failed" | "skipped" | (string & {});

/** The kinds of denials, and whether they were observed. */
export interface Observation {
  /** Connections, datagrams and DNS queries: denials of kind `net`. */
  readonly network: KindObservation;
  /** Calls that the filter refuses: denials of kind `syscall`. */
  readonly syscalls: KindObservation;
  /** Processes beyond their limit: denials of kind `resource`. */
  readonly resources: KindObservation;
  /** Files that the body does not see, sees read-only or cannot execute: denials of kind `file` and `exec`. Observed with `--trace`. */
  readonly files: KindObservation;
  /** Signals to process 1, which is the runner's: denials of kind `signal`. Observed with `--trace`. */
  readonly signals: KindObservation;
}

/** Whether denials of one kind were observed. */
export interface KindObservation {
  /** Whether `denials` lists them. */
  readonly state: ObservationState;
  /** Why the state is not `observed`. */
  readonly reason: string | null;
  /** Number of denials of this kind that `denials` does not list, because it has too many others. */
  readonly beyond: number;
}

/** Whether denials of one kind were observed. */
export type ObservationState = "observed" | "partial" | "not_observed" | (string & {});

/** The network of a run. */
export interface EgressReport {
  /** How connections are redirected to the relay. */
  readonly capture: EgressCapture;
  /** The effective egress list: manifest and `--allow-net`, limited by the host policy. */
  readonly allowed: string[];
  /** Reached hosts, in the order in which their first connections ended. */
  readonly hosts: HostTraffic[];
  /** Allowed hosts that could not be reached. They are not denials. */
  readonly unreachable: UnreachableHost[];
  /** Number of failed attempts that `unreachable` does not list. */
  readonly unreachable_beyond: number;
  /** Number of denials that `denials` does not list. */
  readonly denials_beyond: number;
  /** Number of DNS queries that were dropped because a buffer was full. */
  readonly lost_questions: number;
  /** Number of denied datagrams that are not reported because a buffer was full. */
  readonly lost_datagrams: number;
  /** Published ports (`--publish`). */
  readonly published: PublishedReport[];
}

/** How connections of the body are redirected to the relay. */
export type EgressCapture = "tproxy" | "anyip" | "none" | (string & {});

/** An allowed host that could not be reached. */
export interface UnreachableHost {
  /** The name, or the address if the egress list has the address. */
  readonly host: string;
  /** TCP port. */
  readonly port: number;
  /** The cause for the last tried address. */
  readonly cause: UnreachableCause;
  /** Number of attempts. */
  readonly count: number;
}

/** Why an allowed host could not be reached. */
export type UnreachableCause = "no-address" | "no-name-server" | "refused" | "no-route" | "timed-out" | (string & {});

/** A published port. */
export interface PublishedReport {
  /** Port on 127.0.0.1 of the host. */
  readonly host_port: number;
  /** Port on the body's loopback. */
  readonly body_port: number;
  /** Number of connections that were forwarded to the body; a connection that the body did not accept was reset. */
  readonly connections: number;
}

/** The bundle. */
export interface BundleReport {
  /** `name` of the manifest. */
  readonly name: string | null;
  /** `version` of the manifest. */
  readonly version: string | null;
  /** SHA-256 of the canonical tar: the bundle's identity. */
  readonly content_digest: string;
  /** SHA-256 of the archive; `null`: the bundle is a directory. */
  readonly archive_digest: string | null;
  /** Size of all files. */
  readonly bytes: number;
  /** Number of files, directories and links. */
  readonly entries: number;
  /** What the cache of bundles did. */
  readonly cache: BundleCacheReport;
  /** Commits of its files, as the bundle states them. */
  readonly sources: SourceCommit[];
}

/** What the cache of bundles did. */
export interface BundleCacheReport {
  /** Where the tree was found. */
  readonly found: CacheFound;
  /** Why the cache was `off`, or why the tree was not kept or not found by its file's identity: `flag`, `policy`, `directory`, `stdin`, `small`, `too_large`, `full`, `unsafe`, `unusable`, `others_may_write`, `others_may_replace`, `young`, `untrusted`. */
  readonly reason: string | null;
  /** How the body sees the tree. */
  readonly view: BundleView;
}

/** Where the tree of a bundle was found. */
export type CacheFound = "identity" | "digest" | "miss" | "off" | (string & {});

/** How the body sees the tree of its bundle. */
export type BundleView = "overlayfs" | "copy" | "own" | (string & {});

/** A reference of a source, and the commit that it named when the bundle was made. */
export interface SourceCommit {
  /** `owner/name`. */
  readonly repository: string;
  /** Commit, tag or branch, as the manifest has it. */
  readonly reference: string;
  /** The commit, 40 hexadecimal digits. */
  readonly sha: string;
}

/** A workspace source. */
export interface WorkspaceSourceReport {
  /** Id in the manifest. */
  readonly id: string;
  /** Reference in the manifest. */
  readonly reference: string;
  /** Digest of the OCI manifest, also of a tag; `null`: the source is absent. */
  readonly digest: string | null;
  /** Mount point inside. */
  readonly mount_path: string;
  /** Mounted directory of the source; `null`: the whole source. */
  readonly subpath: string | null;
  /** Whether the body may write there. Changes are removed with the run. */
  readonly writable: boolean;
  /** How the body sees the source; `null`: it is left out. */
  readonly view: SourceView | null;
  /** Where the source was found. */
  readonly found: SourceFound;
}

/** How the body sees a workspace source. */
export type SourceView = "read_only" | "overlayfs" | "copy" | (string & {});

/** Where a workspace source was found. */
export type SourceFound = "store" | "pulled" | "absent" | (string & {});

/** A secret whose value the body received. */
export interface SecretReport {
  /** Name of the variable with the value. */
  readonly variable: string;
  /** `vault SLUG` or `oauth ID` of the manifest, `env:NAME` or `file:PATH` of the caller. */
  readonly reference: string;
  /** Source of the value: `caller`, `directory`, `environment` or `command`. */
  readonly provider: string;
  /** What granted it. */
  readonly granted_by: string;
}

/** A warning. */
export interface WarningReport {
  /** Stable warning code. */
  readonly code: string;
  /** Message for people. */
  readonly message: string;
}

/** A sandbox, as its supervisor describes it. */
export interface SandboxState {
  /** The name. */
  readonly name: SandboxName;
  /** The id of its run: lower-case ULID. */
  readonly run_id: string;
  /** When it was created, in seconds since 1970. */
  readonly start_unix_s: number;
  /** Whether its processes are stopped. */
  readonly is_paused: boolean;
  /** The labels of `create`. */
  readonly labels: Labels;
  /** How long it has lived, without pauses. */
  readonly run_time_ms: number;
  /** After this time it ends, except for pauses; `null`: it has no time limit. */
  readonly ends_in_ms: number | null;
  /** Its --idle-timeout; `null`: none. */
  readonly idle_timeout_ms: number | null;
  /** The commands that run, by their ids. */
  readonly commands: CommandRecord[];
  /** The commands that ended. */
  readonly ended: EndedCommands;
}

/** The name of a sandbox, which is that of its control socket. */
export type SandboxName = string;

/** By their names. */
export type Labels = Record<string, string>;

/** A sandbox whose supervisor does not answer: the host has stopped it, or is overloaded. */
export interface UnresponsiveSandbox {
  /** The name. */
  readonly name: SandboxName;
  /** The id of its run: lower-case ULID. */
  readonly run_id: string;
}

/** The JSON document about one run. */
export interface Report {
  /** `SCHEMA_VERSION`. */
  readonly schema_version: string;
  /** Lower-case ULID. */
  readonly run_id: string;
  /** Version of the runner. */
  readonly runner_version: string;
  /** Start of the run: UTC, RFC 3339, to the millisecond. */
  readonly started_at: string;
  /** How the run ended. */
  readonly outcome: Outcome;
  /** How the body's first process ended; `null`: it never ran. */
  readonly exit: Exit | null;
  /** The commands of a sandbox that stays, which has no body; `null` for any other run. */
  readonly commands: EndedCommands | null;
  /** The signal to the runner that cancelled the run; `null`: the outcome is not `cancelled`. */
  readonly cancelled_by: number | null;
  /** Why the outcome is `refused` or `failed`; `null`: it is neither. */
  readonly error: ErrorReport | null;
  /** Wall time of each phase by its name, in order, milliseconds: `prepare`, `unpack`, `plan`, `sources`, `stage`, `launch`, `body`, `sync`, `clean`. */
  readonly timings_ms: Record<string, number>;
  /** Resources that the body used. */
  readonly usage: Usage;
  /** `usage` over time, for the page; `null` without `--report` or without a cgroup. */
  readonly samples: UsageSample[] | null;
  /** Each limit by its name, which ends with its unit. */
  readonly limits: Record<string, LimitReport>;
  /** How strongly each part of the isolation is enforced, by its name: `user_namespace`, `landlock`, `seccomp`, `memory` … */
  readonly enforcement: Record<string, Enforcement>;
  /** Name of the cgroup back end: `v2`, `v2-scope`, `v1`, `none`. */
  readonly cgroup_backend: string;
  /** The system call policy; `null`: it was not decided. */
  readonly syscall_policy: SyscallPolicyName | null;
  /** The form of `run`; `null` for `runner run`. */
  readonly run_form: RunForm | null;
  /** The argument vector of the body. */
  readonly argv: string[];
  /** Host directories that are visible for a program outside the system directories. */
  readonly bound_programs: string[];
  /** Engine, image and needs; `null` for `runner run`. */
  readonly runner: RunnerReport | null;
  /** The image of the body's root; `null`: the body uses the host's programs. */
  readonly image: ImageReport | null;
  /** Packages that are installed before the body is started, in order. */
  readonly preparation: PreparationReport[];
  /** The paths visible to the body, parents first, for the page; `null` without `--report`. */
  readonly view: PlannedPath[] | null;
  /** The body's standard output. */
  readonly stdout: StreamReport;
  /** The body's standard error. */
  readonly stderr: StreamReport;
  /** Files staged in, by key. */
  readonly inputs: StagedReport[];
  /** Files synced out, by key. */
  readonly outputs: SyncedReport[];
  /** The structured output of the body. */
  readonly output: unknown;
  /** Denied operations of the body. */
  readonly denials: Denial[];
  /** Which kinds of denials were observed. */
  readonly observation: Observation;
  /** The network. */
  readonly egress: EgressReport;
  /** The bundle; `null` for `runner run`. */
  readonly bundle: BundleReport | null;
  /** Workspace sources, in the order of the manifest. */
  readonly workspace_sources: WorkspaceSourceReport[];
  /** Path of the copy of the scratch root that `--keep` made. */
  readonly kept: string | null;
  /** Secrets whose values the body received, without the values. */
  readonly secrets: SecretReport[];
  /** Warnings. */
  readonly warnings: WarningReport[];
}

/** What `runner sandbox ls --json` prints. */
export interface SandboxListing {
  /** The sandboxes of this user, by name. */
  readonly sandboxes: SandboxState[];
  /** Those whose supervisors did not answer in 5 s, by name. */
  readonly unresponsive: UnresponsiveSandbox[];
}

/** What `runner sandbox exec --json` writes: how the command ended, which its exit code alone does not tell. */
export interface CommandResult {
  /** Its number in the sandbox; `null`: it was not started. */
  readonly id: number | null;
  /** `exited`, `signaled`, `timed_out`, `cpu_exhausted` or `out_of_memory`; `cancelled`: the sandbox ended first; `failed`: the program could not be started; `refused`: nothing was tried; `null`: it runs, started with --detach. */
  readonly outcome: Outcome | null;
  /** How its first process ended. */
  readonly exit: Exit | null;
  /** What its processes used until its first one ended; `null`: this host does not measure it. */
  readonly usage: Usage | null;
  /** Number of processes and threads that --pids refused; `null`: not counted. */
  readonly refused_forks: number | null;
  /** Why it was not started. */
  readonly error: ErrorReport | null;
}
