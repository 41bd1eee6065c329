// The official client of TypeScript: results are checked against the schemas of the tools, calls are
// cancelled. Arguments: the program `runner` and the flags of `runner mcp`, or the URL of a server and its
// token.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [command, ...flags] = process.argv.slice(2);
const isHttp = command.startsWith("http:");

// Cuts the answer of a call with this text behind its first event, and tells when the rest is asked for: the
// client also asks for that of calls that it has cancelled.
const CUT = "until test -e resumed";
let last, onResume;
const resumed = new Promise((resolve) => (onResume = resolve));
async function cuttingFetch(url, init) {
  const response = await fetch(url, init);
  if (last && new Headers(init.headers).get("last-event-id") === last) onResume();
  if (init.method !== "POST" || !init.body.includes(CUT)) return response;
  const reader = response.body.getReader();
  const first = await reader.read();
  last = /^id: (.*)$/m.exec(new TextDecoder().decode(first.value))[1];
  const cut = new ReadableStream({
    start: (stream) => stream.enqueue(first.value),
    async pull(stream) {
      await reader.cancel();
      stream.error(new TypeError("cut"));
    },
  });
  return new Response(cut, { status: response.status, headers: response.headers });
}

const transport = isHttp
  ? new StreamableHTTPClientTransport(new URL(command), {
      requestInit: { headers: { Authorization: `Bearer ${flags[0]}` } },
      fetch: cuttingFetch,
    })
  : new StdioClientTransport({ command, args: ["mcp", ...flags], env: process.env });
const client = new Client({ name: "test", version: "1.0.0" });
await client.connect(transport);

const { tools } = await client.listTools();
assert.equal(tools.length, 7);
assert.ok(tools.every((tool) => tool.outputSchema.type === "object"));

const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);

const failed = await call("execute_command", { command: ["sh", "-c", "echo out; exit 3"] });
assert.equal(failed.isError, true);
assert.equal(failed.structuredContent.exit_code, 3);
assert.equal(failed.content[1].text, "out\n");

await call("write_file", { path: "a/b", content: "text" });
assert.equal((await call("read_file", { path: "a/b" })).structuredContent.content, "text");
assert.deepEqual((await call("list_files", { depth: 2 })).structuredContent.entries, [
  { path: "a", kind: "directory", exact: true },
  { path: "a/b", kind: "file", exact: true },
]);
const denied = await call("explain_denial", { host: "example.com" });
assert.equal(denied.structuredContent.answer.verdict, "denied");

// Progress resets the timeout of the client.
const slow = await call("execute_command", { command: "sleep 2; echo on" }, {
  timeout: 1800,
  resetTimeoutOnProgress: true,
  onprogress: () => {},
});
assert.equal(slow.structuredContent.stdout, "on\n");

// Cancellation kills the command.
const cancel = new AbortController();
const cancelled = call("execute_command", { command: "touch started; sleep 1000" }, { signal: cancel.signal });
const runs = async (text) => (await call("execute_command", { command: text })).structuredContent.exit_code === 0;
while (!(await runs("test -e started"))) {}
cancel.abort("enough");
await assert.rejects(cancelled, /enough/);
while (await runs("pgrep -x sleep")) {}

// So does the timeout of the client.
await assert.rejects(call("execute_command", { command: "sleep 1000" }, { timeout: 500 }), /timed out/i);
while (await runs("pgrep -x sleep")) {}

const unknown = await call("execute_command", { command: "true", rw: "/" });
assert.match(unknown.content[0].text, /unknown field `rw`/);
await assert.rejects(call("run_bundle", { bundle: "a" }), /unknown tool/);

if (isHttp) {
  // The client gets the answer of a call whose connection broke.
  const cut = call("execute_command", { command: `${CUT}; do sleep 0.02; done; echo on` });
  await resumed;
  await call("write_file", { path: "resumed", content: "" });
  assert.equal((await cut).structuredContent.stdout, "on\n");
  await transport.terminateSession();
}
await client.close();
console.log("used");
