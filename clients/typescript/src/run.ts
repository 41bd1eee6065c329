/** One command, confined by `runner run` or `runner exec`. */

import { isAbsolute } from "node:path";

import type { Report, StreamReport } from "./documents.js";
import { RunnerError } from "./errors.js";
import { commandFlags, sandboxFlags, wordsOf, type RunOptions } from "./flags.js";
import { findProgram, refusal, type Done } from "./program.js";
import { Result } from "./result.js";

export interface BundleOptions extends Omit<RunOptions, "input" | "cwd"> {
  /** The structured input, a value for JSON. */
  readonly inputs?: unknown;
  /** Where declared input files come from and output files go back to. */
  readonly workspace?: string;
}

/**
 * Runs a command confined, as `runner run` does, and removes everything after it.
 *
 * Without options it sees the system directories read-only, has no network, 256 MiB of memory and 10
 * minutes, and its environment is empty. Rejects with `RunnerError` if the command was refused or could
 * not be started.
 */
export async function run(argv: readonly string[], options: RunOptions = {}): Promise<Result> {
  const words = wordsOf(argv);
  const own = flagsOf(options);
  if (options.input !== undefined) own.push("--interactive");
  const program = await findProgram(options.program);
  const { env, input, signal } = options;
  return resultOf(words, await program.call(["run", ...own, "--", ...words], { env, input, signal }));
}

/** Runs a bundle, as `runner exec` does. Its structured output is `result.report.output`. */
export async function execBundle(
  bundle: string,
  args: readonly string[] = [],
  options: BundleOptions = {},
): Promise<Result> {
  const own = flagsOf(options);
  if (options.workspace !== undefined) own.push(`--workspace=${options.workspace}`);
  const input = options.inputs === undefined ? undefined : JSON.stringify(options.inputs);
  if (input !== undefined) own.push("--inputs=@-");
  // Never a flag, nor `-`, which is standard input.
  const named = isAbsolute(bundle) ? bundle : `./${bundle}`;
  const program = await findProgram(options.program);
  const { env, signal } = options;
  const done = await program.call(["exec", ...own, named, "--", ...args], { env, input, signal });
  return resultOf([bundle, ...args], done);
}

function flagsOf(options: RunOptions): string[] {
  const own = ["--quiet", "--json", ...sandboxFlags(options), ...commandFlags(options)];
  if (options.maxOutput !== undefined) own.push(`--max-output=${options.maxOutput}`);
  return own;
}

function resultOf(argv: readonly string[], done: Done): Result {
  const report = reportOf(done);
  if (report.error !== null) throw new RunnerError(report.error.code, report.error.message, report.error.hint);
  return new Result({
    argv,
    outcome: report.outcome,
    exitCode: done.code,
    signal: report.exit?.signal ?? null,
    stdout: captured(report.stdout),
    stderr: captured(report.stderr),
    stdoutDropped: report.stdout.dropped_bytes,
    stderrDropped: report.stderr.dropped_bytes,
    report,
  });
}

function reportOf(done: Done): Report {
  const text = done.stdout.kept.toString("utf8");
  let report: Partial<Report> | null;
  try {
    report = JSON.parse(text) as Partial<Report> | null;
  } catch {
    report = null;
  }
  const version = report?.schema_version;
  if (typeof version !== "string") {
    if (done.code === 125 && text === "") throw refusal(done.code, done.stderr.kept);
    throw new RunnerError(
      "no_report",
      `runner ended with code ${done.code} and printed no report`,
      "`flags` must not change where the report goes (--json)",
    );
  }
  if (!version.startsWith("2.")) {
    throw new RunnerError("runner_version", `the report has schema version ${version}; this client reads 2`);
  }
  return report as Report;
}

function captured(stream: StreamReport): Buffer {
  return stream.text_base64 === null
    ? Buffer.from(stream.text ?? "", "utf8")
    : Buffer.from(stream.text_base64, "base64");
}
