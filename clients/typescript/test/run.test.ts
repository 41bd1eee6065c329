/** One command: options, ends, refusals, hostile output; the program itself. */

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { chmod, mkdir, mkdtemp, readFile, readdir, readlink, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { CommandError, RunnerError, Sandbox, VERSION, execBundle, printable, run, type RunOptions } from "../src/index.js";
import { findProgram } from "../src/program.js";

let place: string;
before(async () => void (place = await mkdtemp(join(tmpdir(), "clients-"))));
after(() => rm(place, { recursive: true }));

const shell = (line: string): string[] => ["sh", "-c", line];

function withCode(code: string): (error: unknown) => boolean {
  return (error) => error instanceof RunnerError && error.code === code;
}

test("a command is confined, and its output returned apart", async () => {
  const result = await run(shell("echo out; echo err >&2; ls /root /home; exit 3"));
  assert.deepEqual([result.outcome, result.exitCode, result.signal, result.ok], ["exited", 3, null, false]);
  assert.ok(result.text.startsWith("out\n"));
  assert.ok(result.errorText.startsWith("err\n"));
  assert.equal(result.report?.limits["memory_bytes"]?.effective, 256 << 20);
});

test("options are the flags of the program", async () => {
  await mkdir(join(place, "read"));
  await mkdir(join(place, "write"));
  await writeFile(join(place, "read/in"), "text");
  const result = await run(shell('cat in; echo "$NAME" > ../write/out; echo x > in'), {
    ro: join(place, "read"),
    rw: [join(place, "write")],
    memory: 100 << 20,
    timeout: 20_000,
    env: { NAME: "a value\nof two lines" },
    cwd: join(place, "read"),
    net: ["example.org:443"],
    flags: ["--pids=40"],
  });
  assert.equal(result.text, "text");
  assert.equal(await readFile(join(place, "write/out"), "utf8"), "a value\nof two lines\n");
  assert.equal(await readFile(join(place, "read/in"), "utf8"), "text");
  const limits = result.report?.limits;
  assert.equal(limits?.["memory_bytes"]?.effective, 100 << 20);
  assert.equal(limits?.["wall_time_ms"]?.effective, 20_000);
  assert.equal(limits?.["processes"]?.effective, 40);
  assert.deepEqual(result.report?.egress.allowed, ["example.org:443"]);
});

test("words of a command are never flags, and no shell reads them", async () => {
  const result = await run(["printf", "%s|", "--memory=1m", "--", "$(id)", "a b", "; true", "--json", "*"]);
  assert.equal(result.text, "--memory=1m|--|$(id)|a b|; true|--json|*|");
  await assert.rejects(run(["--help"]), withCode("program_not_found"));
});

test("words that would end the flags, and a line instead of words, are refused", async () => {
  for (const flags of [["true"], ["--"], ["--memory", "1m"], [""]]) {
    await assert.rejects(run(["true"], { flags }), /--flag=value/);
  }
  await assert.rejects(run("ls -l" as unknown as string[]), TypeError);
  await assert.rejects(run([]), TypeError);
});

test("input arrives as a whole, and need not be read", async () => {
  const text = Buffer.alloc(1_000_000, Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)));
  assert.ok((await run(["cat"], { input: text })).stdout.equals(text));
  assert.ok((await run(["true"], { input: text })).ok);
  assert.equal((await run(["cat"])).stdout.length, 0);
});

test("denials are listed", async () => {
  const result = await run(["unshare", "-m", "true"]);
  const denials = result.denials.filter(({ kind }) => kind === "syscall");
  assert.deepEqual(denials.map(({ rule, errno }) => [rule, errno]), [["unshare", "EPERM"]]);
  assert.match(result.describe(), /denied: syscall unshare/);
});

test("each end is told apart", async () => {
  const cases: [string[], RunOptions, string, number, number | null][] = [
    [["sleep", "60"], { timeout: 200 }, "timed_out", 124, 15],
    [["sleep", "60"], { timeout: "200ms" }, "timed_out", 124, 15],
    [shell("kill -USR1 $$"), {}, "signaled", 138, 10],
    [shell("exit 125"), {}, "exited", 125, null],
  ];
  for (const [argv, options, ...end] of cases) {
    const result = await run(argv, options);
    assert.deepEqual([result.outcome, result.exitCode, result.signal], end);
    assert.throws(() => result.check(), (error) => error instanceof CommandError && error.result === result);
  }
});

test("a refusal is an error with code, reason and hint", async () => {
  const cases: [string[], RunOptions, string][] = [
    [["no-such-program"], {}, "program_not_found"],
    [["true"], { ro: "/no/such/directory" }, "mount_source_missing"],
    [["true"], { memory: "plenty" }, "usage"],
    [["true"], { flags: ["--no-such-flag"] }, "usage"],
    [["true"], { flags: ["--json=/dev/null"] }, "no_report"],
  ];
  for (const [argv, options, code] of cases) {
    await assert.rejects(run(argv, options), (error) => {
      assert.ok(error instanceof RunnerError);
      assert.deepEqual([error.code, error.reason !== "", !!error.hint], [code, true, true]);
      assert.ok(error.message.includes(`(${code})\nhint: `));
      return true;
    });
  }
});

test("hostile output comes as bytes, and is printed escaped", async () => {
  const hostile = Buffer.from("\x1b]0;owned\x07\x1b[31mred\u202e\r\n\0end", "utf8");
  const bytes = Buffer.concat([hostile, Buffer.from([0xff, 0xfe, 0x9b])]);
  const result = await run(shell("cat; exit 1"), { input: bytes });
  assert.ok(result.stdout.equals(bytes));
  for (const text of [printable(bytes), result.describe()]) assert.doesNotMatch(text, /(?!\n)\p{C}/u);
  assert.ok(result.describe().includes("\\x1b]0;owned\\x07"));
  assert.ok(result.describe().includes("\\u{202e}"));
});

test("fifty megabytes are cut by the program, and counted", async () => {
  const result = await run(["head", "-c", "50000000", "/dev/zero"]);
  assert.deepEqual([result.stdout.length, result.stdoutDropped], [16 << 20, 50_000_000 - (16 << 20)]);
});

test("a bundle gets its input and arguments", async () => {
  const bundle = join(place, "bundle");
  await mkdir(bundle);
  const manifest = "name: doubled\nrun: main.py\ninputs: {type: object, required: [n]}\noutputs: {type: object}\n";
  await writeFile(join(bundle, "manifest.yaml"), manifest);
  await writeFile(
    join(bundle, "main.py"),
    "import json, sys\nn = json.load(sys.stdin)['n']\njson.dump({'doubled': 2 * n, 'words': sys.argv[1:]}, sys.stdout)\n",
  );
  const result = await execBundle(bundle, ["--flag", "a b"], { inputs: { n: 21 } });
  assert.deepEqual(result.check().report?.output, { doubled: 42, words: ["--flag", "a b"] });
  await assert.rejects(execBundle(bundle, [], { inputs: { m: 1 } }), RunnerError);
  await assert.rejects(execBundle(join(place, "missing.tar.gz")), RunnerError);
});

test("an abort ends the command and rejects with its reason", async () => {
  const reason = new Error("no longer wanted");
  await assert.rejects(run(["sleep", "1000"], { signal: AbortSignal.abort(reason) }), reason);
  const stop = new AbortController();
  const running = run(["sleep", "1000"], { signal: stop.signal });
  // Whenever it comes: before the start, or while the command runs.
  setTimeout(() => stop.abort(reason), 300);
  await assert.rejects(running, reason);
});

async function writeProgram(name: string, text: string): Promise<string> {
  const path = join(place, name);
  await writeFile(path, `#!/bin/sh\n${text}\n`);
  await chmod(path, 0o755);
  return path;
}

test("a missing program says what to do", async () => {
  for (const program of [join(place, "missing"), "no-such-runner", place]) {
    for (const call of [() => run(["true"], { program }), () => Sandbox.create({ program }), () => Sandbox.open("x", { program })]) {
      await assert.rejects(call, (error) => withCode("runner_missing")(error) && /install runner/.test(String(error)));
    }
  }
});

test("another version and another program are refused", async () => {
  for (const said of ["runner 0.2.0", "runner 1.1.0", "gitlab-runner 17.0", "runner", "runner 0.1.0 more"]) {
    const program = await writeProgram("runner", `echo "$@" >> ${place}/log\nprintf '%s\\n' '${said}'`);
    await rm(join(place, "log"), { force: true });
    await assert.rejects(run(["true"], { program }), (error) => {
      return withCode("runner_version")(error) && String(error).includes(`(${VERSION}) needs runner 0.1`);
    });
    assert.equal(await readFile(join(place, "log"), "utf8"), "--version\n");
    await rm(program);
  }
  const later = "case $1 in --version) echo runner 0.1.99;; *) echo '{\"schema_version\":\"3.0\"}';; esac";
  await assert.rejects(run(["true"], { program: await writeProgram("later", later) }), /schema version 3.0/);
});

/** The processes of the host with this text on their command lines. */
async function processesThatShow(text: string): Promise<string[]> {
  const processes = (await readdir("/proc")).filter((name) => /^[0-9]+$/.test(name));
  const shows = async (pid: string): Promise<boolean> => {
    try {
      return (await readFile(`/proc/${pid}/cmdline`)).includes(text);
    } catch {
      // It has ended.
      return false;
    }
  };
  const shown = await Promise.all(processes.map(shows));
  return processes.filter((_pid, index) => shown[index]);
}

test("values of variables are on no command line, and nothing of them is left", async () => {
  const log = join(place, "calls");
  const real = (await findProgram()).path;
  const program = await writeProgram("recording", `cat /proc/$$/cmdline >> '${log}'\nexec '${real}' "$@"`);
  const canary = randomBytes(16).toString("hex");
  const env = { CANARY: `${canary}\nof two lines` };
  const show = shell('echo "$CANARY"');
  const shown = `${canary}\nof two lines\n`;
  assert.equal((await run(show, { env, program })).text, shown);
  await assert.rejects(execBundle("no-such-bundle", [], { env, program }), RunnerError);
  {
    await using box = await Sandbox.create({ env, program });
    assert.equal((await box.run(show)).text, shown);
    // Of the supervisor, too.
    assert.deepEqual(await processesThatShow(canary), []);
  }
  {
    await using box = await Sandbox.create({ program });
    assert.equal((await box.run(show, { env })).text, shown);
    assert.equal((await (await box.start(show, { env })).wait()).text, shown);
  }
  const calls = await readFile(log, "latin1");
  for (const verb of ["run", "exec", "sandbox\0create", "sandbox\0exec"]) {
    assert.ok(calls.includes(`\0${verb}\0--env-file=`), verb);
  }
  assert.ok(!calls.includes(canary));
  const open = await Promise.all((await readdir("/proc/self/fd")).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => "")));
  assert.deepEqual(open.filter((path) => path.includes("runner-client-")), []);
});

test("a variable does not become another one", async () => {
  for (const env of [{ A: "b\0C=d" }, { "A\0B": "c" }, { "A=B": "c" }]) {
    await assert.rejects(run(["env"], { env }), /env: the name/);
  }
});

test("variables that change how the program prints do not count", async (context) => {
  const variables = { JSON: "/dev/null", VERBOSE: "2", COLOR: "always", DETACH: "true", TTY: "true", MEMORY: "77m" };
  for (const [name, value] of Object.entries(variables)) process.env[`RUNNER_OPT_${name}`] = value;
  process.env["RUNNER_LOG"] = "trace";
  context.after(() => {
    for (const name of Object.keys(variables)) delete process.env[`RUNNER_OPT_${name}`];
    delete process.env["RUNNER_LOG"];
  });
  const result = await run(["echo", "text"]);
  assert.deepEqual([result.text, result.errorText], ["text\n", ""]);
  assert.equal(result.report?.limits["memory_bytes"]?.effective, 77 << 20);
});
