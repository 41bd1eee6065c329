/** Run untrusted commands confined by the program `runner`. */

export * from "./documents.js";
export { CommandError, RunnerError } from "./errors.js";
export type { CommandOptions, RunOptions, SandboxFlags, Size, Time } from "./flags.js";
export { Result, printable } from "./result.js";
export { execBundle, run, type BundleOptions } from "./run.js";
export { Command, Forwarding, Sandbox, type CreateOptions, type RunInOptions, type Running, type WaitOptions } from "./sandbox.js";
export { VERSION } from "./version.js";
