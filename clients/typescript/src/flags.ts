/** The flags of the program, from options. */

import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Milliseconds, or a duration of the program: `90s`, `5m`, `none`. */
export type Time = number | string;
/** Bytes, or a size of the program: `512m`, `1g`. */
export type Size = number | string;

/** What a command and a sandbox have. */
export interface CommandOptions {
  /** Values that the output must not show are for `flags: ["--secret=NAME=env:VARIABLE"]`. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly timeout?: Time;
  /** Ends the command, and rejects with the reason. */
  readonly signal?: AbortSignal;
}

/** The flags of a sandbox. */
export interface SandboxFlags {
  /** Paths of the host that are visible, read-only. */
  readonly ro?: string | readonly string[];
  /** Paths of the host that are visible and writable. */
  readonly rw?: string | readonly string[];
  readonly memory?: Size;
  /** Hosts that may be reached, as HOST or HOST:PORT. */
  readonly net?: readonly string[];
  /** All other flags, each as one word: `--flag=value`. */
  readonly flags?: readonly string[];
  /** The path of the program; else RUNNER_PROGRAM, else `runner` on the PATH. */
  readonly program?: string;
}

export interface RunOptions extends CommandOptions, SandboxFlags {
  readonly input?: string | Uint8Array;
  /** Bytes of each stream that are kept. */
  readonly maxOutput?: Size;
}

export function wordsOf(argv: readonly string[]): readonly string[] {
  if (!Array.isArray(argv)) throw new TypeError('argv is a list of words; for a line of shell: ["sh", "-c", line]');
  if (argv.length === 0) throw new TypeError("argv is empty: it needs a program");
  return argv;
}

export function timeOf(value: Time): string {
  return typeof value === "string" ? value : `${Math.round(value)}ms`;
}

/** The flag of a file with variables, and what closes that file. */
export interface EnvFlags {
  readonly words: readonly string[];
  close(): void;
}

/**
 * The flag of a file with the variables. It has no name and no other user can read it; their values would
 * be visible to every user on a command line.
 */
export function envFlags(env: Readonly<Record<string, string>> = {}): EnvFlags {
  const entries = Object.entries(env);
  if (entries.length === 0) return { words: [], close: () => undefined };
  for (const [name, value] of entries) {
    if (/[=\0]/.test(name) || `${value}`.includes("\0")) {
      throw new TypeError(`env: the name ${JSON.stringify(name)} has a = or a NUL, or its value a NUL`);
    }
  }
  const place = mkdtempSync(join(tmpdir(), "runner-client-"));
  let file: number;
  try {
    file = openSync(join(place, "variables"), "wx+", 0o600);
  } finally {
    // Before it has content: nothing is left, however this process ends.
    rmSync(place, { recursive: true });
  }
  // As `env -0` writes them: a value may have several lines.
  writeFileSync(file, entries.map(([name, value]) => `${name}=${value}\0`).join(""));
  return { words: [`--env-file=/proc/${process.pid}/fd/${file}`], close: () => closeSync(file) };
}

/** Flags that `run` and `sandbox exec` have. */
export function commandFlags({ cwd, timeout }: CommandOptions): string[] {
  const words: string[] = [];
  if (cwd !== undefined) words.push(`--workdir=${cwd}`);
  if (timeout !== undefined) words.push(`--timeout=${timeOf(timeout)}`);
  return words;
}

/** Flags of a sandbox, the caller's own last. */
export function sandboxFlags({ ro = [], rw = [], memory, net = [], flags = [] }: SandboxFlags): string[] {
  for (const flag of flags) {
    if (!flag.startsWith("-") || flag === "--") {
      throw new TypeError(`flags: ${JSON.stringify(flag)} does not begin with -; write --flag=value as one word`);
    }
  }
  const words = [ro].flat().map((path) => `--ro=${path}`);
  words.push(...[rw].flat().map((path) => `--rw=${path}`));
  if (memory !== undefined) words.push(`--memory=${memory}`);
  words.push(...net.map((host) => `--allow-net=${host}`), ...flags);
  return words;
}
