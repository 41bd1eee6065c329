"""An editor: asks a language server, over its standard streams, about files.

    client.py DIRECTORY SERVER… <REQUESTS

A request is a line of JSON: {"file": NAME} for the diagnostics of a file of the directory, with {"line": N,
"character": N} (from 0) for the completions there as well. Prints one line of JSON for each: the messages of the
diagnostics with their lines, and the labels of the completions.
"""

import json
import pathlib
import subprocess
import sys

directory = pathlib.Path(sys.argv[1]).resolve()
server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
diagnostics = {}
last_id = 0


def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    server.stdin.flush()


def receive():
    """The next message of the server; its requests are answered."""
    length = 0
    while (line := server.stdout.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if not length:
        sys.exit("the server ended")
    message = json.loads(server.stdout.read(length))
    if "method" in message and "id" in message:
        items = message["params"].get("items", []) if message["method"] == "workspace/configuration" else []
        result = [{} for _ in items] if items else None
        send({"id": message["id"], "result": result})
    if message.get("method") == "textDocument/publishDiagnostics":
        found = message["params"]
        diagnostics[found["uri"]] = found["diagnostics"]
    return message


def ask(method, params):
    global last_id
    last_id += 1
    send({"id": last_id, "method": method, "params": params})
    while True:
        message = receive()
        if message.get("id") == last_id and "method" not in message:
            return message.get("result")


ask("initialize", {"processId": None, "rootUri": directory.as_uri(), "capabilities": {}})
send({"method": "initialized", "params": {}})
for request in map(json.loads, sys.stdin):
    path = directory / request["file"]
    document = {"uri": path.as_uri()}
    text = path.read_text()
    opened = {**document, "languageId": "yaml", "version": 1, "text": text}
    send({"method": "textDocument/didOpen", "params": {"textDocument": opened}})
    while document["uri"] not in diagnostics:
        receive()
    answer = {
        "diagnostics": [
            [found["range"]["start"]["line"], found["message"]] for found in diagnostics[document["uri"]]
        ]
    }
    if "line" in request:
        position = {key: request[key] for key in ("line", "character")}
        found = ask("textDocument/completion", {"textDocument": document, "position": position})
        answer["completions"] = [item["label"] for item in found["items"]]
    print(json.dumps(answer))
ask("shutdown", None)
send({"method": "exit"})
sys.exit(server.wait())
