/** Finds the program, checks its version, and executes it: never through a shell. */

import { spawn, type ChildProcess } from "node:child_process";
import { constants } from "node:fs";
import { access, stat } from "node:fs/promises";
import { delimiter, join, resolve } from "node:path";
import type { Readable } from "node:stream";

import { RunnerError } from "./errors.js";
import { envFlags } from "./flags.js";
import { VERSION } from "./version.js";

// Variables of the caller that change how the program prints.
const FORM_VARIABLES = [
  "RUNNER_LOG",
  ..."COLOR DETACH FOLLOW FOLLOW_LINK INTERACTIVE JSON LOG_FORMAT QUIET STATS TTY VERBOSE"
    .split(" ")
    .map((name) => `RUNNER_OPT_${name}`),
];
// The end of what the program prints when it refuses.
const REFUSAL = /runner: (?:refused|failed): ([^\n]*) \(([A-Za-z0-9_-]+)\)\n(?:runner: hint: ([^\n]*)\n)?$/;
// How long a command may take to end after each request.
const GRACE_MS = 2000;

/** A stream that was read to its end; of what is beyond the limit only the size is kept. */
export class Output {
  readonly #chunks: Buffer[] = [];
  #size = 0;
  dropped = 0;

  constructor(readonly limit: number) {}

  add(chunk: Buffer): void {
    const kept = chunk.subarray(0, Math.max(this.limit - this.#size, 0));
    if (kept.length > 0) this.#chunks.push(kept);
    this.#size += kept.length;
    this.dropped += chunk.length - kept.length;
  }

  get kept(): Buffer {
    return Buffer.concat(this.#chunks);
  }
}

/** An execution of the program that has ended. */
export interface Done {
  readonly code: number;
  readonly stdout: Output;
  readonly stderr: Output;
}

export interface CallOptions {
  /** Variables of the command, not of the program. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly input?: string | Uint8Array | undefined;
  readonly limit?: number;
  readonly signal?: AbortSignal | undefined;
  /** In a session of its own, where it gets no signal from the terminal. */
  readonly isApart?: boolean;
  /** It has a descriptor 3, `child.stdio[3]`. */
  readonly hasChannel?: boolean;
}

/** The error that the program has printed last. */
export function refusal(code: number, stderr: Buffer): RunnerError {
  const found = code === 125 ? REFUSAL.exec(stderr.toString("utf8")) : null;
  if (found === null) {
    const printed = JSON.stringify(stderr.subarray(-500).toString("utf8"));
    return new RunnerError("unknown", `runner ended with code ${code} and printed ${printed}`);
  }
  return new RunnerError(found[2] ?? "", found[1] ?? "", found[3] ?? null);
}

/** The program, found and of a version that this client drives. */
export class Program {
  constructor(readonly path: string) {}

  /** Starts it. An abort of `signal` asks it to end, twice, and then kills it. */
  spawn(
    words: readonly string[],
    hasInput: boolean,
    { env, signal, isApart = false, hasChannel = false }: CallOptions = {},
  ): [ChildProcess, Promise<number>] {
    signal?.throwIfAborted();
    const flags = envFlags(env);
    const verbEnd = words[0] === "sandbox" ? 2 : 1;
    const variables = Object.entries(process.env).filter(([name]) => !FORM_VARIABLES.includes(name));
    let child: ChildProcess;
    try {
      child = spawn(this.path, [...words.slice(0, verbEnd), ...flags.words, ...words.slice(verbEnd)], {
        env: Object.fromEntries(variables),
        detached: isApart,
        stdio: [hasInput ? "pipe" : "ignore", "pipe", "pipe", ...(hasChannel ? ["pipe" as const] : [])],
      });
    } catch (error) {
      flags.close();
      throw error;
    }
    // A command need not read its input.
    child.stdin?.on("error", () => undefined);
    const stop = (): void => askToEnd(child);
    signal?.addEventListener("abort", stop, { once: true });
    const ended = new Promise<number>((resolve, reject) => {
      child.on("error", (error) => reject(new RunnerError("runner_missing", `${this.path}: ${error.message}`)));
      child.on("close", (code) => resolve(code ?? 128));
    });
    const settled = ended.finally(() => {
      flags.close();
      signal?.removeEventListener("abort", stop);
    });
    const code = settled.then((code) => {
      signal?.throwIfAborted();
      return code;
    });
    return [child, code];
  }

  /** Executes it to its end. */
  async call(words: readonly string[], options: CallOptions = {}): Promise<Done> {
    const { input, limit = Infinity } = options;
    const [child, ended] = this.spawn(words, input !== undefined, options);
    const stdout = collect(child.stdout, limit);
    const stderr = collect(child.stderr, limit);
    child.stdin?.end(input);
    return { code: await ended, stdout, stderr };
  }

  /** As `call`; a code other than 0 is an error. */
  async check(words: readonly string[], options: CallOptions = {}): Promise<Done> {
    const done = await this.call(words, options);
    if (done.code !== 0) throw refusal(done.code, done.stderr.kept);
    return done;
  }
}

export function collect(stream: Readable | null, limit: number): Output {
  const output = new Output(limit);
  stream?.on("data", (chunk: Buffer) => output.add(chunk));
  return output;
}

/** Asks the program to end, twice; the second signal kills the command. Then it is killed itself. */
export function askToEnd(child: ChildProcess): void {
  const steps = ["SIGTERM", "SIGTERM", "SIGKILL"] as const;
  const next = (index: number): void => {
    const step = steps[index];
    if (step === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill(step);
    const timer = setTimeout(next, GRACE_MS, index + 1);
    child.once("exit", () => clearTimeout(timer));
  };
  next(0);
}

const checked = new Map<string, Promise<Program>>();

/** Rejects with `RunnerError` `runner_missing` or `runner_version`. */
export async function findProgram(path?: string): Promise<Program> {
  const asked = path ?? process.env["RUNNER_PROGRAM"] ?? "runner";
  const found = await locate(asked);
  if (found === null) {
    throw new RunnerError(
      "runner_missing",
      `the program ${JSON.stringify(asked)} was not found or is not executable`,
      "install runner and put it on the PATH, or set RUNNER_PROGRAM to its path",
    );
  }
  const { ino, mtimeMs } = await stat(found);
  const key = `${ino} ${mtimeMs} ${found}`;
  const known = checked.get(key) ?? checkVersion(new Program(found));
  checked.set(key, known);
  return known;
}

async function locate(asked: string): Promise<string | null> {
  const directories = asked.includes("/") ? [""] : (process.env["PATH"] ?? "").split(delimiter).filter(Boolean);
  for (const directory of directories) {
    const path = resolve(join(directory, asked));
    try {
      await access(path, constants.X_OK);
      if ((await stat(path)).isFile()) return path;
    } catch {
      // The next one.
    }
  }
  return null;
}

async function checkVersion(program: Program): Promise<Program> {
  const done = await program.call(["--version"], { limit: 1000 });
  const said = done.stdout.kept.toString("utf8");
  const wanted = VERSION.slice(0, VERSION.lastIndexOf("."));
  if (/^runner (\d+\.\d+)\.[\w.+-]+\n$/.exec(said)?.[1] !== wanted) {
    throw new RunnerError(
      "runner_version",
      `${program.path} --version prints ${JSON.stringify(said.slice(0, 100))}; this client (${VERSION}) needs runner ${wanted}`,
      `install runner ${wanted}, or the version of this client that belongs to the program`,
    );
  }
  return program;
}
