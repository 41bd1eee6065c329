/** Sandboxes that stay: their life, commands, streams, files, ends. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, test } from "node:test";

import { RunnerError, Sandbox } from "../src/index.js";

let place: string;
before(async () => void (place = await mkdtemp(join(tmpdir(), "clients-"))));
after(() => rm(place, { recursive: true }));

const shell = (line: string, ...words: string[]): string[] => ["sh", "-c", line, "sh", ...words];

async function isThere(name: string): Promise<boolean> {
  return (await (await Sandbox.open(name)).state()) !== null;
}

function withCode(...codes: string[]): (error: unknown) => boolean {
  return (error) => error instanceof RunnerError && codes.includes(error.code);
}

test("files and processes stay, and the sandbox is removed at the end of the block", async () => {
  let name: string;
  {
    await using box = await Sandbox.create({ memory: "100m" });
    name = box.name;
    (await box.run(shell("echo kept > /scratch/file; sleep 1000 & until pgrep -x sleep; do :; done"))).check();
    assert.equal((await box.run(["cat", "/scratch/file"])).text, "kept\n");
    assert.ok((await box.run(["pkill", "sleep"])).ok);
    await box.start(["sleep", "1000"]);
    assert.ok(await isThere(name));
  }
  assert.ok(!(await isThere(name)));
});

test("it is removed after an error, and its report has the denials of all commands", async () => {
  let box: Sandbox | undefined;
  const work = async (): Promise<void> => {
    await using made = await Sandbox.create();
    box = made;
    await made.run(["unshare", "-m", "true"]);
    assert.deepEqual(made.denials, []);
    throw new Error("in the block");
  };
  await assert.rejects(work(), /in the block/);
  assert.ok(box !== undefined && !(await isThere(box.name)));
  assert.deepEqual(box.denials.map(({ rule }) => rule), ["unshare"]);
});

test("a refused creation leaves nothing, and another sandbox of the name alone", async () => {
  await assert.rejects(Sandbox.create({ name: "refused", ro: join(place, "no") }), withCode("mount_source_missing"));
  assert.ok(!(await isThere("refused")));
  await using box = await Sandbox.create({ name: "twice" });
  await assert.rejects(Sandbox.create({ name: "twice" }), withCode("sandbox_exists"));
  const stop = AbortSignal.abort(new Error("stopped"));
  await assert.rejects(Sandbox.create({ name: "twice", signal: stop }), /stopped/);
  assert.ok(await isThere(box.name));
});

test("commands have variables, directories, input and a time of their own", async () => {
  await using box = await Sandbox.create();
  const input = Buffer.from([0, 0xff]);
  const result = await box.run(shell('pwd; echo "$A"; cat'), { env: { A: "--b\nc" }, cwd: "/tmp", input });
  assert.ok(result.stdout.equals(Buffer.concat([Buffer.from("/tmp\n--b\nc\n"), input])));
  // The last line is the program's own; the command can print the same.
  for (const printed of ["before\n", "runner: timed out: forged\n", "runner: timed out: "]) {
    const late = await box.run(shell('printf %s "$1" >&2; sleep 60', printed), { timeout: 200 });
    assert.deepEqual([late.outcome, late.exitCode, late.errorText], ["timed_out", 124, printed]);
  }
  assert.equal((await box.run(["printf", "%s|", "--", "-x", "$HOME"])).text, "--|-x|$HOME|");
  await assert.rejects(box.run(["--help"]), withCode("program_not_found"));
  assert.equal((await box.run(shell("sleep 1000 & echo started"))).text, "started\n");
});

test("exit codes are the command's own, also where the program uses them", async () => {
  await using box = await Sandbox.create();
  const forged = "runner: refused: there is no sandbox x (no_sandbox)\nrunner: hint: none\n";
  for (const code of [1, 124, 125, 126, 127, 137, 143, 255]) {
    const result = await box.run(shell('printf %s "$1" >&2; exit $2', forged, `${code}`));
    assert.deepEqual([result.outcome, result.exitCode, result.signal], ["exited", code, null]);
    assert.equal(result.errorText, forged);
  }
  const killed = await box.run(shell("kill -TERM $$"));
  assert.deepEqual([killed.outcome, killed.exitCode, killed.signal], ["signaled", 143, 15]);
  // Commands that ended with the same codes are not taken for these.
  for (const [argv, code] of [["no-such-program", "program_not_found"], ["/etc", "program_not_executable"]] as const) {
    await assert.rejects(box.run([argv]), withCode(code));
    await assert.rejects(box.start([argv]), withCode(code));
  }
});

test("of the same command twice at once each caller gets its own end", async () => {
  await using box = await Sandbox.create();
  const end = async (cwd: string): Promise<string> => {
    const ended = box.run(shell("exit 125"), { cwd });
    return ended.then(({ outcome, exitCode }) => `${outcome} ${exitCode}`, (error: RunnerError) => error.code);
  };
  const directories = Array.from({ length: 10 }, () => ["/tmp", "/no/such/directory"]).flat();
  const ends = directories.map((cwd) => (cwd === "/tmp" ? "exited 125" : "command_not_started"));
  assert.deepEqual(await Promise.all(directories.map(end)), ends);
  // Its error is longer than a pipe holds.
  await assert.rejects(box.run([`/${"x".repeat(100_000)}`]), withCode("program_not_executable"));
});

test("a command that ends the sandbox is an error that says so", async () => {
  await using box = await Sandbox.create({ flags: ["--cpu-time=100ms", "--grace=0s"] });
  await assert.rejects(box.run(shell("while :; do :; done")), withCode("sandbox_ended"));
  for (const use of [() => box.run(["true"]), () => box.start(["true"]), () => box.read("/etc/hostname")]) {
    await assert.rejects(use, withCode("no_sandbox", "sandbox_ended"));
  }
  await box.remove();
  assert.equal(box.report?.outcome, "cpu_exhausted");
});

test("output is kept as it is up to the limit", async () => {
  await using box = await Sandbox.create();
  const hostile = Buffer.from([0x1b, 0x5b, 0x32, 0x4a, 0xff, 0xfe, 0, 0x0d]);
  const result = await box.run(shell("cat; printf '\\033]0;x\\007' >&2; exit 9"), { input: hostile });
  assert.ok(result.stdout.equals(hostile));
  assert.equal(result.errorText, "\x1b]0;x\x07");
  const size = 50_000_000;
  const large = await box.run(shell(`head -c ${size} /dev/zero; head -c ${size} /dev/zero >&2`));
  assert.deepEqual([large.stdout.length, large.stdoutDropped], [16 << 20, size - (16 << 20)]);
  assert.deepEqual([large.stderr.length, large.stderrDropped], [16 << 20, size - (16 << 20)]);
});

test("streams: input and output of a command that runs", async () => {
  await using box = await Sandbox.create();
  const running = box.spawn(shell("while read line; do echo \"<$line>\"; done; echo end >&2; exit 3"));
  running.stdout.setEncoding("utf8");
  running.stdin.write("one\n");
  assert.equal((await once(running.stdout, "data"))[0], "<one>\n");
  running.stdin.end("two\n");
  assert.equal(await text(running.stdout), "<two>\n");
  assert.equal(await text(running.stderr), "end\n");
  assert.equal((await running.ended).exitCode, 3);

  const killed = box.spawn(["sleep", "1000"]);
  killed.stdout.resume();
  killed.stderr.resume();
  await waitFor(async () => ((await box.state())?.commands.length ?? 0) > 0);
  killed.kill("SIGINT");
  assert.equal((await killed.ended).signal, 2);
  const missing = box.spawn(["no-such-program"]);
  missing.stdout.resume();
  missing.stderr.resume();
  await assert.rejects(missing.ended, withCode("program_not_found"));
});

async function waitFor(isReady: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (!(await isReady())) {
    assert.ok(Date.now() < deadline, "never came");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test("an abort ends a command, also one that ignores signals, and the sandbox stays", async () => {
  await using box = await Sandbox.create();
  const reason = new Error("no longer wanted");
  for (const line of ["sleep 1000", "trap '' TERM INT; while :; do sleep 0.1; done"]) {
    const stop = new AbortController();
    const running = box.run(shell(`echo > /scratch/ready; ${line}`), { signal: stop.signal });
    await waitFor(async () => ((await box.state())?.commands.length ?? 0) > 0);
    stop.abort(reason);
    await assert.rejects(running, reason);
    await waitFor(async () => (await box.state())?.commands.length === 0);
  }
  assert.ok((await box.run(["true"])).ok);
});

test("a started command is followed and killed", async () => {
  await using box = await Sandbox.create();
  (await box.run(["mkfifo", "/tmp/fifo"])).check();
  const command = await box.start(shell("echo waits; read line < /tmp/fifo; exit 7"));
  await assert.rejects(command.wait({ signal: AbortSignal.timeout(200) }), { name: "TimeoutError" });
  assert.equal((await command.logs()).stdout.toString(), "waits\n");
  await box.run(shell("echo > /tmp/fifo"));
  const result = await command.wait();
  assert.deepEqual([result.outcome, result.exitCode, result.text], ["exited", 7, "waits\n"]);
  const killed = await box.start(["sleep", "1000"]);
  await assert.rejects(box.remove(), withCode("sandbox_busy"));
  await killed.kill("TERM");
  assert.equal((await killed.wait()).signal, 15);
  await assert.rejects(killed.kill(), RunnerError);
});

test("files go in and come out as they are", async () => {
  await using box = await Sandbox.create();
  const content = Buffer.alloc(300_000, Buffer.from([0, 0xff, 0x0a]));
  for (const path of ["/scratch/file", "/scratch/-x", "/scratch/a b:c", "scratch/ü"]) {
    await box.write(path, content);
    assert.ok((await box.read(path)).equals(content));
  }
  await box.write("/scratch/file", "", { mode: 0o755 });
  assert.equal((await box.run(["stat", "-c", "%a %s", "/scratch/file"])).text, "755 0\n");
  await mkdir(join(place, "tree"));
  await writeFile(join(place, "tree/leaf"), "leaf");
  await box.copyIn(join(place, "tree"), "/scratch");
  await box.copyOut("/scratch/tree/.", place);
  assert.equal(await readFile(join(place, "leaf"), "utf8"), "leaf");
});

test("hostile files are no way to the host", async () => {
  await using box = await Sandbox.create();
  await writeFile(join(place, "secret"), "of the host");
  await symlink(join(place, "secret"), join(place, "link"));
  (await box.run(shell('ln -s "$1" /scratch/link; mkdir /scratch/dir', join(place, "secret")))).check();
  for (const path of ["/scratch/link", "/scratch/dir", "/scratch/missing", "/../../etc/shadow"]) {
    await assert.rejects(box.read(path), RunnerError);
  }
  await assert.rejects(box.write("/scratch/dir", "not into it"), RunnerError);
  await assert.rejects(box.write("/scratch/missing/file", ""), RunnerError);
  assert.ok(!(await box.run(["test", "-e", "/scratch/missing"])).ok);
  for (const path of ["/scratch/", "/scratch/..", "", "."]) await assert.rejects(box.write(path, ""), TypeError);
  await box.write("/scratch/large", "x".repeat(2000));
  await assert.rejects(box.read("/scratch/large", { maxSize: 1999 }), withCode("file_too_large"));
});

test("a snapshot becomes another sandbox", async () => {
  await using box = await Sandbox.create();
  await box.write("/scratch/kept", "kept");
  const file = join(place, "files.tar");
  await box.snapshot(file);
  await box.write("/scratch/kept", "later");
  await using other = await Sandbox.create({ snapshot: file });
  assert.equal((await other.read("/scratch/kept")).toString(), "kept");
  await assert.rejects(Sandbox.create({ snapshot: join(place, "missing") }), RunnerError);
});

test("a paused sandbox refuses commands until it is resumed", async () => {
  await using box = await Sandbox.create();
  try {
    await box.pause();
  } catch (error) {
    // There is no cgroup of its own.
    return assert.ok(withCode("sandbox_no_freezer")(error));
  }
  await assert.rejects(box.run(["true"]), withCode("sandbox_paused"));
  await box.resume();
  assert.ok((await box.run(["true"])).ok);
});

test("Ctrl-C with a handler that aborts removes the sandbox", async () => {
  const script = `
    import { Sandbox } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const stop = new AbortController();
    process.once("SIGINT", () => stop.abort(new Error("interrupted")));
    const box = await Sandbox.create({ name: "interrupted-node" });
    console.log("created");
    try {
      await box.run(["sleep", "1000"], { signal: stop.signal });
    } finally {
      await box[Symbol.asyncDispose]();
    }
  `;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  await once(child.stdout, "data");
  const box = await Sandbox.open("interrupted-node");
  await waitFor(async () => ((await box.state())?.commands.length ?? 0) > 0);
  process.kill(-(child.pid ?? 0), "SIGINT");
  const [printed, [code]] = await Promise.all([text(child.stderr), once(child, "exit")]);
  assert.ok(code === 1 && printed.includes("interrupted"), printed);
  assert.equal(await box.state(), null);
});

test("a server in the sandbox is reached until the block ends", async () => {
  await using box = await Sandbox.create();
  const words = ["python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "8000"];
  const server = await box.start(words, { cwd: "/scratch" });
  await box.write("/scratch/page", "hello");
  while (!(await server.logs()).stdout.includes("Serving"));
  let port: number;
  {
    await using forwarding = await box.forward(8000);
    port = forwarding.port;
    assert.equal(forwarding.host, "127.0.0.1");
    assert.equal(await (await fetch(`http://127.0.0.1:${port}/page`)).text(), "hello");
    await assert.rejects(box.forward(8000, port), withCode("port_unavailable"));
  }
  await assert.rejects(once(connect(port, "127.0.0.1"), "connect"), { code: "ECONNREFUSED" });
  const again = await box.forward(8000, port);
  assert.equal(again.port, port);
  await box.remove({ force: true });
  await again.close();
  await again.close();
  await assert.rejects(box.forward(8000), withCode("no_sandbox"));
});

test("an abort ends a forwarding, and none is started after it", async () => {
  await using box = await Sandbox.create();
  const stop = new AbortController();
  const { port } = await box.forward(8000, 0, { signal: stop.signal });
  stop.abort(new Error("stopped"));
  await assert.rejects(box.forward(8000, 0, { signal: stop.signal }), /stopped/);
  const isOpen = async (): Promise<boolean> => {
    const socket = connect(port, "127.0.0.1");
    try {
      await once(socket, "connect");
      return true;
    } catch {
      return false;
    } finally {
      socket.destroy();
    }
  };
  while (await isOpen());
});
