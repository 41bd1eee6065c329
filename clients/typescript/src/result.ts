import type { Denial, Outcome, Report } from "./documents.js";
import { CommandError } from "./errors.js";

const TAIL_BYTES = 2000;

/** Output as text that is safe on a terminal: escape sequences and the like as `\x1b`. */
export function printable(output: Buffer | string): string {
  const text = typeof output === "string" ? output : output.toString("utf8");
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (char) => {
    if (char === "\n" || char === "\t") return char;
    const code = char.codePointAt(0) ?? 0;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
  });
}

/** The end of a command, and its output as it is: hostile bytes. */
export class Result {
  /** The program and its arguments. */
  readonly argv: readonly string[];
  /** `exited`, `signaled`, `timed_out`, `out_of_memory` … as in the report. */
  readonly outcome: Outcome;
  /** As of `runner`: that of the command, 124 after its timeout, 128 + n after signal n. */
  readonly exitCode: number;
  /** The signal that ended the command. */
  readonly signal: number | null;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** Bytes beyond `maxOutput` that were dropped. */
  readonly stdoutDropped: number;
  readonly stderrDropped: number;
  /** The report; `null` for commands of a `Sandbox`, which has one for all of them. */
  readonly report: Report | null;

  constructor(parts: Pick<Result, Exclude<keyof Result, "ok" | "text" | "errorText" | "denials" | "check" | "describe">>) {
    this.argv = parts.argv;
    this.outcome = parts.outcome;
    this.exitCode = parts.exitCode;
    this.signal = parts.signal;
    this.stdout = parts.stdout;
    this.stderr = parts.stderr;
    this.stdoutDropped = parts.stdoutDropped;
    this.stderrDropped = parts.stderrDropped;
    this.report = parts.report;
  }

  /** Whether the command exited with code 0. */
  get ok(): boolean {
    return this.outcome === "exited" && this.exitCode === 0;
  }

  /** Standard output as text. May contain escape sequences. */
  get text(): string {
    return this.stdout.toString("utf8");
  }

  /** Standard error, as `text`. */
  get errorText(): string {
    return this.stderr.toString("utf8");
  }

  /** What the command tried and was denied; empty for commands of a `Sandbox`. */
  get denials(): readonly Denial[] {
    return this.report?.denials ?? [];
  }

  /** Returns itself if the command exited with code 0, else throws `CommandError`. */
  check(): this {
    if (!this.ok) throw new CommandError(this);
    return this;
  }

  /** The command, its end and the tails of its output, safe on a terminal. */
  describe(): string {
    const lines = [`${this.argv.map(quote).join(" ")}: ${this.outcome}, exit code ${this.exitCode}`];
    for (const [name, output] of [["stdout", this.stdout], ["stderr", this.stderr]] as const) {
      if (output.length === 0) continue;
      const cut = output.length > TAIL_BYTES ? "… " : "";
      lines.push(`${name}: ${cut}${printable(output.subarray(-TAIL_BYTES))}`.trimEnd());
    }
    for (const { kind, object, rule, count, hint } of this.denials) {
      lines.push(`denied: ${kind} ${object} (${rule}, ${count} times)${hint === null ? "" : `; ${hint}`}`);
    }
    return lines.join("\n");
  }
}

function quote(word: string): string {
  const shown = printable(word);
  return /^[^\s"]+$/.test(shown) ? shown : JSON.stringify(shown);
}
