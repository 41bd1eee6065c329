"""Runs `RUNNER run FLAGS... -- CMD...` as a later command of a sandbox that stays.

The first argument says how: `verbs` of the command line, or the `api` of a server of its own. The report of
the sandbox becomes that of the command: how it ended is known here alone.
"""
import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

how, runner, _run, *words = sys.argv[1:]
end = words.index("--")
flags, command = words[:end], words[end + 1 :]
[report] = [word.removeprefix("--json=") for word in flags if word.startswith("--json=")]
name = f"later-{os.getpid()}"


class Verbs:
    def create(self):
        created = subprocess.run([runner, "sandbox", "create", "--name", name, *flags], stdout=subprocess.DEVNULL)
        if created.returncode != 0:
            sys.exit(created.returncode)
        subprocess.run([runner, "sandbox", "exec", name, "true"], stderr=subprocess.DEVNULL)

    def execute(self):
        return subprocess.run([runner, "sandbox", "exec", name, *command]).returncode

    def remove(self):
        subprocess.run([runner, "sandbox", "rm", "-f", name], stdout=subprocess.DEVNULL, check=True)


class Api:
    def create(self):
        self.directory = tempfile.mkdtemp()
        # The uid of a body must be able to enter it.
        os.chmod(self.directory, 0o711)
        socket = os.path.join(self.directory, "api.sock")
        environment = {**os.environ, "TMPDIR": self.directory}
        self.server = subprocess.Popen(
            [runner, "serve", "--socket", socket], env=environment, stderr=subprocess.DEVNULL
        )
        self.connection = Connection(socket)
        while not self.connection.is_open():
            assert self.server.poll() is None, "the server has ended"
            time.sleep(0.005)
        status, document = self.call("POST", "/v1/sandboxes", {"name": name, "flags": flags})
        if status != 201:
            print(document, file=sys.stderr)
            self.stop()
            sys.exit(125)
        self.start(["true"])

    def start(self, argv):
        wanted = {"argv": argv, "max_output_bytes": 8 << 20}
        return self.call("POST", f"/v1/sandboxes/{name}/commands", wanted)

    def execute(self):
        status, document = self.start(command)
        if status != 200:
            print(document, file=sys.stderr)
            codes = {"program_not_found": 127, "program_not_executable": 126}
            return codes.get(document["error"]["code"], 125)
        for stream, output in (sys.stdout, document["stdout"]), (sys.stderr, document["stderr"]):
            assert not output["truncated"], output
            is_text = "text" in output
            stream.buffer.write(output["text"].encode() if is_text else base64.b64decode(output["base64"]))
        return document["exit_code"]

    def remove(self):
        status, document = self.call("DELETE", f"/v1/sandboxes/{name}?force=true")
        assert status == 204, document
        self.stop()

    def stop(self):
        self.connection.close()
        self.server.terminate()
        assert self.server.wait() == 0
        shutil.rmtree(self.directory)

    def call(self, method, path, document=None):
        body = None if document is None else json.dumps(document)
        self.connection.request(method, path, body=body)
        answer = self.connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("runner")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def is_open(self):
        try:
            self.connect()
        except OSError:
            self.close()
        return self.sock is not None


sandbox = {"verbs": Verbs, "api": Api}[how]()
sandbox.create()
code = sandbox.execute()
sandbox.remove()
with open(report) as file:
    document = json.load(file)
if 125 <= code <= 127:
    error = {"code": "not_started", "message": "not started", "hint": None}
    document |= {"outcome": "failed", "exit": None, "error": error}
elif code > 128:
    document |= {"outcome": "signaled", "exit": {"code": None, "signal": code - 128, "core_dump": False, "raw_status": code - 128}}
else:
    document |= {"exit": {"code": code, "signal": None, "core_dump": False, "raw_status": code << 8}}
with open(report, "w") as file:
    json.dump(document, file)
sys.exit(code)
