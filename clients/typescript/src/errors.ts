import type { Result } from "./result.js";

/**
 * `runner` refused, failed, or is not there: no result of a command exists.
 *
 * `code` keeps its meaning between versions; `reason` and `hint` are for people.
 */
export class RunnerError extends Error {
  override readonly name = "RunnerError";

  constructor(
    readonly code: string,
    readonly reason: string,
    readonly hint: string | null = null,
  ) {
    super(`${reason} (${code})${hint === null ? "" : `\nhint: ${hint}`}`);
  }
}

/** `Result.check` found another end than exit code 0. */
export class CommandError extends Error {
  override readonly name = "CommandError";

  constructor(readonly result: Result) {
    super(result.describe());
  }
}
