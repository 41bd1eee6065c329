/** Milliseconds, or a duration of the program: `90s`, `5m`, `none`. */
export type Time = number | string;
/** Bytes, or a size of the program: `512m`, `1g`. */
export type Size = number | string;

/** What a command and a sandbox have. */
export interface CommandOptions {
  /** Visible in the process list of the host; for secrets: `flags: ["--secret=NAME=env:VARIABLE"]`. */
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

/** Flags that `run` and `sandbox exec` have. */
export function commandFlags({ env, cwd, timeout }: CommandOptions): string[] {
  const words = Object.entries(env ?? {}).map(([name, value]) => `--env=${name}=${value}`);
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
