/** A sandbox that stays from one command to the next. */

import type { ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmod, lstat, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { isAbsolute, join } from "node:path";
import { PassThrough, type Readable, type Writable } from "node:stream";
import { finished } from "node:stream/promises";

import type { CommandRecord, CommandResult, Denial, Report, SandboxListing, SandboxState } from "./documents.js";
import { RunnerError } from "./errors.js";
import { commandFlags, sandboxFlags, timeOf, wordsOf, type CommandOptions, type SandboxFlags, type Time } from "./flags.js";
import { askToEnd, collect, findProgram, refusal, type CallOptions, type Done, type Program } from "./program.js";
import { Result } from "./result.js";

const OUTPUT_MAX = 16 << 20;
const READ_MAX = 64 << 20;
const STDERR_TAIL = 8 << 10;

export interface CreateOptions extends CommandOptions, SandboxFlags {
  readonly name?: string;
  /** A file of `snapshot`, whose files the sandbox gets. */
  readonly snapshot?: string;
  /** Ends the sandbox if no command runs or comes for this time. */
  readonly idleTimeout?: Time;
}

export interface RunInOptions extends CommandOptions {
  readonly input?: string | Uint8Array;
  /** Bytes of each stream that are kept; 16 MiB. */
  readonly maxOutput?: number;
}

export interface WaitOptions {
  readonly signal?: AbortSignal;
}

/** A command of `Sandbox.spawn`. Its streams must be read, else it waits. */
export interface Running {
  readonly stdin: Writable;
  readonly stdout: Readable;
  /** At its end the program may add a line of its own. */
  readonly stderr: Readable;
  /** Its end, without the output. */
  readonly ended: Promise<Result>;
  /**
   * Sends a signal to its process group; the second one that asks for the end is SIGKILL. Without a
   * signal: SIGTERM, and SIGKILL after two seconds.
   */
  kill(signal?: NodeJS.Signals): void;
}

/**
 * A sandbox of `runner sandbox`; `await using` removes it at the end of the block.
 *
 * A process that is ended by a signal cannot remove its sandbox: `idleTimeout` ends it then.
 */
export class Sandbox implements AsyncDisposable {
  /** The report of the whole sandbox: once it has ended, if `create` made it. */
  report: Report | null = null;
  #directory: string | null = null;
  #isRemoved = false;

  private constructor(
    readonly name: string,
    /** @internal */
    readonly program: Program,
  ) {}

  /** Creates a sandbox. Limits are those of all commands together, `timeout` that of the sandbox. */
  static async create(options: CreateOptions = {}): Promise<Sandbox> {
    const own = [...sandboxFlags(options), ...commandFlags(options)];
    if (options.idleTimeout !== undefined) own.push(`--idle-timeout=${timeOf(options.idleTimeout)}`);
    const program = await findProgram(options.program);
    const sandbox = new Sandbox(options.name ?? `node-${randomBytes(8).toString("hex")}`, program);
    sandbox.#directory = await mkdtemp(join(tmpdir(), "runner-client-"));
    const flags = [`--name=${sandbox.name}`, `--json=${join(sandbox.#directory, "report.json")}`];
    const { snapshot } = options;
    const words = ["sandbox", snapshot === undefined ? "create" : "restore", ...flags, ...own];
    if (snapshot !== undefined) words.push("--", hostPath(snapshot));
    // A sandbox of that name may be there, which is not for us to remove.
    const other = options.name === undefined ? null : await sandbox.state();
    try {
      const { env, signal } = options;
      const done = await program.call(words, { env, limit: 1 << 16, signal });
      if (done.code !== 0) throw await sandbox.#creationError(done);
    } catch (error) {
      // It may have started before an abort.
      const state = isAborted(error) ? await sandbox.state() : null;
      if (state !== null && state.run_id !== other?.run_id) await sandbox.remove({ force: true });
      await sandbox.#forget();
      throw error;
    }
    return sandbox;
  }

  /** A sandbox that exists. */
  static async open(name: string, options: Pick<SandboxFlags, "program"> = {}): Promise<Sandbox> {
    return new Sandbox(name, await findProgram(options.program));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.remove({ force: true });
  }

  /** What all commands tried and were denied: once the sandbox has ended, if `create` made it. */
  get denials(): readonly Denial[] {
    return this.report?.denials ?? [];
  }

  /** Runs a command to its end. Rejects with `RunnerError` if it could not be started or the sandbox ended. */
  async run(argv: readonly string[], options: RunInOptions = {}): Promise<Result> {
    const running = this.#spawn(argv, options, options.input !== undefined);
    const limit = options.maxOutput ?? OUTPUT_MAX;
    const stdout = collect(running.stdout, limit);
    const stderr = collect(running.stderr, limit);
    running.stdin.end(options.input);
    const ended = await running.ended;
    await finished(running.stderr);
    let errors = stderr.kept;
    // The line that the program itself has written last.
    const line = LIMIT_LINES.get(ended.outcome);
    const at = line !== undefined && stderr.dropped === 0 ? errors.lastIndexOf(line) : -1;
    if (at >= 0) errors = errors.subarray(0, at);
    return new Result({
      ...ended,
      stdout: stdout.kept,
      stderr: errors,
      stdoutDropped: stdout.dropped,
      stderrDropped: stderr.dropped,
    });
  }

  /** Starts a command with streams; its input must be ended if it reads it. */
  spawn(argv: readonly string[], options: CommandOptions = {}): Running {
    return this.#spawn(argv, options, true);
  }

  #spawn(argv: readonly string[], options: CommandOptions, hasInput: boolean): Running {
    const words = wordsOf(argv);
    const [child, result] = this.#execute(words, options, hasInput ? ["--interactive"] : [], hasInput);
    const stderr = new PassThrough();
    child.stderr?.pipe(stderr);
    const ended = result.then((result) => endOf(words, result.code, result));
    // Whoever reads the streams alone gets no unhandled rejection.
    ended.catch(() => undefined);
    return {
      stdin: child.stdin ?? new PassThrough().end(),
      stdout: child.stdout ?? new PassThrough().end(),
      stderr,
      ended,
      kill: (signal) => void (signal === undefined ? askToEnd(child) : child.kill(signal)),
    };
  }

  /** Starts a command that outlives this process, and resolves once it runs. */
  async start(argv: readonly string[], options: CommandOptions = {}): Promise<Command> {
    const words = wordsOf(argv);
    const [, result] = this.#execute(words, options, ["--detach"], false);
    const { id } = await result;
    if (id === null) throw new TypeError("the command runs, and has no number");
    return new Command(this, id, words);
  }

  /** Executes `exec`, which writes how the command ended to a descriptor that the command does not have. */
  #execute(
    argv: readonly string[],
    options: CommandOptions,
    own: readonly string[],
    hasInput: boolean,
  ): [ChildProcess, Promise<CommandResult & { readonly code: number }>] {
    const flags = ["--json=fd:3", "--quiet", ...own, ...commandFlags(options)];
    const words = ["sandbox", "exec", ...flags, "--", this.name, ...argv];
    const { env, signal } = options;
    const [child, ended] = this.program.spawn(words, hasInput, { env, signal, hasChannel: true });
    const document = collect((child.stdio?.[3] ?? null) as Readable | null, Infinity);
    let tail = Buffer.alloc(0);
    child.stderr?.on("data", (chunk: Buffer) => (tail = Buffer.concat([tail, chunk]).subarray(-STDERR_TAIL)));
    const result = ended.then(async (code) => {
      const text = document.kept.toString("utf8");
      // Wrong usage, or the program was killed.
      if (text === "") throw refusal(code, tail);
      const result = JSON.parse(text) as CommandResult;
      const { error } = result;
      if (error !== null) throw new RunnerError(error.code, error.message, error.hint);
      if (result.outcome === "cancelled") throw await this.endedError();
      return { ...result, code };
    });
    return [child, result];
  }

  /** Writes a file, whose directory must exist, as a whole or not at all. */
  async write(path: string, content: string | Uint8Array, { mode = 0o644 } = {}): Promise<void> {
    const at = path.lastIndexOf("/");
    const name = path.slice(at + 1);
    if (["", ".", ".."].includes(name)) {
      throw new TypeError(`${JSON.stringify(path)} does not end with the name of a file`);
    }
    await inTemporaryDirectory(async (place) => {
      const file = join(place, name);
      await writeFile(file, content);
      await chmod(file, mode);
      // With a slash at its end the directory must exist.
      await this.call("cp", ["--", file, `${this.name}:${path.slice(0, Math.max(at, 0))}/`]);
    });
  }

  /** The content of a file; links are followed in the sandbox. */
  async read(path: string, { maxSize = READ_MAX } = {}): Promise<Buffer> {
    return inTemporaryDirectory(async (place) => {
      const file = join(place, "file");
      await this.call("cp", ["--follow-link", "--", `${this.name}:${path}`, file]);
      const found = await lstat(file);
      const shown = JSON.stringify(path);
      if (!found.isFile()) throw new RunnerError("not_a_file", `${shown} is a directory`, "copyOut copies it");
      if (found.size > maxSize) {
        const reason = `${shown} has ${found.size} bytes; maxSize is ${maxSize}`;
        throw new RunnerError("file_too_large", reason, "pass a larger maxSize, or use copyOut");
      }
      return readFile(file);
    });
  }

  /** Copies a file or a directory of the host, as `docker cp` does. */
  async copyIn(source: string, destination: string): Promise<void> {
    await this.call("cp", ["--", hostPath(source), `${this.name}:${destination}`]);
  }

  /** Copies a file or a directory to the host, as `docker cp` does. */
  async copyOut(source: string, destination: string): Promise<void> {
    await this.call("cp", ["--", `${this.name}:${source}`, hostPath(destination)]);
  }

  /** Writes the files of the sandbox to a tar, as a whole or not at all; processes are not kept. */
  async snapshot(file: string): Promise<void> {
    await this.call("snapshot", ["--", this.name, hostPath(file)]);
  }

  /**
   * Listens at a port of 127.0.0.1 of the host, and connects to a port of the sandbox; 0 is any free one.
   *
   * `await using` closes it at the end of the block. Every user of the host can connect.
   */
  async forward(port: number, hostPort = 0, { signal }: WaitOptions = {}): Promise<Forwarding> {
    const words = ["sandbox", "forward", "--", this.name, `${hostPort}:${port}`];
    const [child, ended] = this.program.spawn(words, false, { signal, isApart: true });
    const stderr = collect(child.stderr, STDERR_TAIL);
    // An abort later on only ends it.
    ended.catch(() => undefined);
    const line = await Promise.race([firstLine(child.stdout), ended]);
    if (typeof line === "number") throw refusal(line, stderr.kept);
    return new Forwarding(line, child, ended);
  }

  /** Freezes all processes. */
  async pause(): Promise<void> {
    await this.call("pause", ["--", this.name]);
  }

  /** Lets them go on. */
  async resume(): Promise<void> {
    await this.call("resume", ["--", this.name]);
  }

  /**
   * Ends the sandbox, deletes its private files, and reads its report.
   *
   * Refused while a command runs, without `force`. One that has ended already is no error.
   */
  async remove({ force = false } = {}): Promise<void> {
    if (this.#isRemoved) return;
    const words = ["sandbox", "rm", "--quiet", ...(force ? ["--force"] : []), "--", this.name];
    const done = await this.program.call(words, { isApart: true });
    if (done.code !== 0) {
      const error = refusal(done.code, done.stderr.kept);
      if (error.code !== "no_sandbox") throw error;
    }
    this.report = await this.#readReport();
    await this.#forget();
  }

  /** The sandbox and its commands as `runner sandbox ls` lists them; `null`: it has ended. */
  async state(): Promise<SandboxState | null> {
    const done = await this.program.call(["sandbox", "ls", "--json", "--", this.name]);
    if (done.code !== 0) {
      const error = refusal(done.code, done.stderr.kept);
      if (error.code === "no_sandbox" || error.code === "sandbox_ending") return null;
      throw error;
    }
    const listing = JSON.parse(done.stdout.kept.toString("utf8")) as SandboxListing;
    if (listing.unresponsive.length > 0) {
      throw new RunnerError("sandbox_unresponsive", `the supervisor of ${this.name} does not answer`);
    }
    return listing.sandboxes[0] ?? null;
  }

  /** The commands that run, and the last that have ended. */
  async commandRecords(): Promise<readonly CommandRecord[]> {
    const state = await this.state();
    if (state !== null) return [...state.commands, ...state.ended.latest];
    const report = this.report ?? (await this.#readReport());
    if (!report?.commands) throw await this.endedError();
    return report.commands.latest;
  }

  /** @internal */
  async call(verb: string, words: readonly string[], options: CallOptions = {}): Promise<Done> {
    return this.program.check(["sandbox", verb, ...words], options);
  }

  /** @internal */
  async endedError(): Promise<RunnerError> {
    const report = this.report ?? (await this.#readReport());
    const why = report === null ? "" : `: ${report.outcome}`;
    return new RunnerError("sandbox_ended", `the sandbox ${this.name} has ended${why}`);
  }

  async #readReport(): Promise<Report | null> {
    if (this.#directory === null) return null;
    try {
      const text = await readFile(join(this.#directory, "report.json"), "utf8");
      return text === "" ? null : (JSON.parse(text) as Report);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
      throw error;
    }
  }

  async #creationError(done: Done): Promise<RunnerError> {
    const error = (await this.#readReport())?.error;
    return error ? new RunnerError(error.code, error.message, error.hint) : refusal(done.code, done.stderr.kept);
  }

  async #forget(): Promise<void> {
    this.#isRemoved = true;
    const directory = this.#directory;
    this.#directory = null;
    if (directory !== null) await rm(directory, { recursive: true, force: true });
  }
}

/** A command that `Sandbox.start` has started. */
export class Command {
  constructor(
    readonly sandbox: Sandbox,
    readonly id: number,
    readonly argv: readonly string[],
  ) {}

  /** Standard output and error so far; the sandbox keeps the last 128 KiB of each. */
  async logs(): Promise<{ readonly stdout: Buffer; readonly stderr: Buffer }> {
    const done = await this.sandbox.call("logs", ["--quiet", "--", this.sandbox.name, `${this.id}`]);
    return { stdout: done.stdout.kept, stderr: done.stderr.kept };
  }

  /** Waits for its end; the output is that of `logs`. An abort of `signal` ends the waiting alone. */
  async wait({ signal }: WaitOptions = {}): Promise<Result> {
    const words = ["sandbox", "logs", "--follow", "--", this.sandbox.name, `${this.id}`];
    await this.sandbox.program.call(words, { limit: 0, signal });
    const record = (await this.sandbox.commandRecords()).find(({ id }) => id === this.id);
    if (record === undefined || record.outcome === null) {
      // No log to wait for: more commands than the sandbox keeps output of.
      await this.logs();
      throw new RunnerError("no_record", `the sandbox ${this.sandbox.name} does not list command ${this.id}`);
    }
    if (record.outcome === "cancelled") throw await this.sandbox.endedError();
    return new Result({ ...endOf(this.argv, codeOf(record), record), ...(await this.logs()) });
  }

  /** Sends a signal to its process group; KILL goes to everything that it has started. */
  async kill(signal = "KILL"): Promise<void> {
    await this.sandbox.call("kill", [`--signal=${signal}`, "--", this.sandbox.name, `${this.id}`]);
  }
}

/** A port of the host that `Sandbox.forward` has opened; `await using` closes it at the end of the block. */
export class Forwarding implements AsyncDisposable {
  /** The address at which it listens. */
  readonly host: string;
  readonly port: number;
  readonly #child: ChildProcess;
  readonly #ended: Promise<number>;

  /** @internal */
  constructor(
    line: string,
    child: ChildProcess,
    ended: Promise<number>,
  ) {
    this.#child = child;
    this.#ended = ended;
    const [address = ""] = line.split(" ");
    const at = address.lastIndexOf(":");
    this.host = address.slice(0, at);
    this.port = Number(address.slice(at + 1));
  }

  /** Closes the port and its connections. */
  async close(): Promise<void> {
    askToEnd(this.#child);
    await this.#ended.catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Rejects never; without a line it stays pending. */
function firstLine(stream: Readable | null): Promise<string> {
  return new Promise((resolve) => {
    let text = "";
    stream?.on("data", (chunk: Buffer) => {
      text += chunk.toString("utf8");
      if (text.includes("\n")) resolve(text);
    });
  });
}

/** Whether the program did not say itself why it ended. */
function isAborted(error: unknown): boolean {
  return !(error instanceof RunnerError) || error.code === "unknown";
}

async function inTemporaryDirectory<T>(act: (place: string) => Promise<T>): Promise<T> {
  const place = await mkdtemp(join(tmpdir(), "runner-client-"));
  try {
    return await act(place);
  } finally {
    await rm(place, { recursive: true, force: true });
  }
}

/** Absolute, so that it is no flag and no NAME:PATH; what its end means stays. */
function hostPath(path: string): string {
  return isAbsolute(path) ? path : `${process.cwd()}/${path}`;
}

function endOf(argv: readonly string[], exitCode: number, end: Pick<CommandRecord, "outcome" | "exit">): Result {
  if (end.outcome === null) throw new TypeError("the command has not ended");
  return new Result({
    argv,
    outcome: end.outcome,
    exitCode,
    signal: end.exit?.signal ?? null,
    stdout: Buffer.alloc(0),
    stderr: Buffer.alloc(0),
    stdoutDropped: 0,
    stderrDropped: 0,
    report: null,
  });
}

/** The start of the line that the program writes last if a limit ended the command. */
const LIMIT_LINES: ReadonlyMap<string, string> = new Map([
  ["timed_out", "runner: timed out: "],
  ["cpu_exhausted", "runner: out of CPU time: "],
  ["out_of_memory", "runner: out of memory: "],
]);

/** The exit code of `runner sandbox exec` for a command that has ended. */
function codeOf({ outcome, exit }: CommandRecord): number {
  if (outcome === "timed_out" || outcome === "cpu_exhausted") return 124;
  if (exit === null || outcome === "cancelled") return 137;
  return exit.code ?? 128 + (exit.signal ?? 0);
}
