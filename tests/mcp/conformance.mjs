// Runs the official conformance suite against a server. The suite sends no token, so that a proxy adds it; all
// else passes as it is. Arguments: the program of the suite, the port of the server, its token, a directory
// for results. Prints a document: for each scenario the status and name of each check.

import { spawn } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import http from "node:http";
import path from "node:path";

const [suite, port, token, results] = process.argv.slice(2);

const proxy = http.createServer((request, response) => {
  const own = `:${proxy.address().port}`;
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  for (const name of ["host", "origin"]) headers[name] = headers[name]?.replace(own, `:${port}`);
  if (headers.origin === undefined) delete headers.origin;
  const { method, url } = request;
  const passed = http.request({ host: "127.0.0.1", port, method, path: url, headers, setHost: false }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
    answer.on("error", () => response.destroy());
  });
  passed.on("error", () => response.destroy());
  response.on("close", () => passed.destroy());
  request.pipe(passed);
});

await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${proxy.address().port}/mcp`;
const words = [suite, "server", "--url", url, "--suite", "all", "--output-dir", results];
const run = spawn(process.execPath, words, { stdio: ["ignore", "ignore", "inherit"] });
await new Promise((resolve) => run.on("close", resolve));
proxy.close();
proxy.closeAllConnections();

const scenarios = {};
for (const directory of readdirSync(results)) {
  const checks = JSON.parse(readFileSync(path.join(results, directory, "checks.json"), "utf8"));
  // `server-NAME-TIME`.
  const name = directory.replace(/^server-/, "").replace(/-\d{4}-\d\d-\d\dT.*$/, "");
  const judged = checks.filter((check) => check.status !== "INFO");
  scenarios[name] = judged.map(({ status, id, errorMessage }) => [`${status} ${id}`, errorMessage ?? ""]);
}
console.log(JSON.stringify(scenarios));
