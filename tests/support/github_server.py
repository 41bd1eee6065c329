#!/usr/bin/env python3
"""Serves git repositories the way the REST API of a hosting service does, and fails on request.

    github_server.py DIRECTORY [CERTIFICATE KEY]

DIRECTORY/OWNER/NAME is a repository. The port, on 127.0.0.1, is the first line of standard
output, with a certificate that of TLS is the second; the server ends when its standard input does.

    GET  /repos/O/N
    GET  /repos/O/N/git/refs/{tags,heads}[/PREFIX]   one reference, or all that begin with it
    GET  /repos/O/N/git/tags/SHA
    GET  /repos/O/N/tarball/SHA                      redirects to /archive/O/N/SHA
    POST /control/fault   {"path": REGEX, "times": N, ...}: what happens to the next N requests
    POST /control/token   {"token": TEXT}: whoever does not send it is answered 401
    POST /control/forget  no faults, no token, no log
    GET  /control/log     every request so far: [{"path", "authorization", "host"}]

A fault has one or more of: "status", "headers", "body" or "body_file" (the answer), "stall_s" (seconds before
the head), "stall_body_s" (seconds in the middle of the body), "drip_s" (seconds between pieces of
16 bytes), "cut" (the body ends after so many bytes, and so does the connection), "close" (no
answer at all), "garbage" (no HTTP), "location" (a redirect; {port} is this server's port),
"chunked" or "unsized" (how the end of the body is told).
"""

import functools
import http.server
import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

ROOT = sys.argv[1]
LOCK = threading.Lock()
STATE = {"faults": [], "token": None, "log": []}


def git(repository, *arguments):
    done = subprocess.run(
        ["git", "-C", f"{ROOT}/{repository}", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
    )
    return done.stdout if done.returncode == 0 else None


@functools.cache
def packed(repository, sha, prefix):
    """The archive of a commit, which never changes; `None` where there is no such commit."""
    return git(repository, "archive", "--format=tar.gz", f"--prefix={prefix}/", f"{sha}^{{commit}}")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with LOCK:
            if self.path == "/control/fault":
                STATE["faults"].append(body)
            elif self.path == "/control/token":
                STATE["token"] = body["token"]
            else:
                STATE.update(faults=[], token=None, log=[])
        self.answer(200, b"{}")

    def do_GET(self):
        if self.path == "/control/log":
            with LOCK:
                body = json.dumps(STATE["log"]).encode()
            return self.answer(200, body)
        sent = self.headers.get("Authorization")
        with LOCK:
            STATE["log"].append(
                {"path": self.path, "authorization": sent, "host": self.headers.get("Host")}
            )
            fault = next(
                (f for f in STATE["faults"] if f["times"] and re.search(f["path"], self.path)), {}
            )
            if fault:
                fault["times"] -= 1
            token = STATE["token"]
        time.sleep(fault.get("stall_s", 0))
        if fault.get("close"):
            self.close_connection = True
            return None
        if fault.get("garbage"):
            self.wfile.write(b"no HTTP at all\r\n\r\n")
            self.close_connection = True
            return None
        if "location" in fault:
            location = fault["location"].format(port=self.server.server_port)
            return self.answer(fault.get("status", 302), b"", {"Location": location})
        if "body_file" in fault:
            with open(fault["body_file"], "rb") as file:
                kind = {"Content-Type": "application/x-gzip"}
                return self.answer(200, file.read(), kind, fault)
        if "status" in fault or "body" in fault:
            return self.answer(
                fault.get("status", 200), fault.get("body", "{}").encode(),
                fault.get("headers", {}), fault,
            )
        if token and sent != f"Bearer {token}" and not self.path.startswith("/archive/"):
            return self.answer(401, b'{"message": "Bad credentials"}')
        status, body, headers = self.found(urllib.parse.unquote(self.path.split("?")[0]))
        return self.answer(status, body, {**headers, **fault.get("headers", {})}, fault)

    def found(self, path):
        missing = (404, b'{"message": "Not Found"}', {})
        match = re.fullmatch(r"/(repos|archive)/([^/]+)/([^/]+)(?:/(.+))?", path)
        if not match:
            return missing
        kind, owner, name, rest = match.groups()
        repository, rest = f"{owner}/{name}", rest or ""
        if not os.path.isdir(f"{ROOT}/{repository}"):
            return missing
        if kind == "archive":
            return self.archive(repository, owner, name, rest)
        if not rest:
            return 200, json.dumps({"full_name": repository}).encode(), {}
        if rest.startswith("git/refs/"):
            return self.references(repository, rest.removeprefix("git/")) or missing
        if rest.startswith("git/tags/"):
            return self.tag(repository, rest.removeprefix("git/tags/")) or missing
        if rest.startswith("tarball/"):
            sha = rest.removeprefix("tarball/")
            if self.archive(repository, owner, name, sha)[0] != 200:
                return missing
            # What follows the `?` stands for the credential that such redirects carry.
            return 302, b"", {"Location": f"/archive/{repository}/{sha}?token=canary-of-a-redirect"}
        return missing

    def references(self, repository, wanted):
        listed = git(
            repository, "for-each-ref", "--format=%(refname) %(objecttype) %(objectname)",
            "refs/tags", "refs/heads",
        )
        found = []
        for line in listed.decode().splitlines():
            name, kind, sha = line.split(" ")
            item = {"ref": name, "object": {"type": kind, "sha": sha}}
            if name == wanted:
                return 200, json.dumps(item).encode(), {}
            if name.startswith(wanted):
                found.append(item)
        return (200, json.dumps(found).encode(), {}) if found else None

    def tag(self, repository, sha):
        text = git(repository, "cat-file", "tag", sha)
        if text is None:
            return None
        fields = dict(line.split(" ", 1) for line in text.decode().split("\n\n")[0].splitlines())
        target = {"type": fields["type"], "sha": fields["object"]}
        return 200, json.dumps({"tag": fields["tag"], "sha": sha, "object": target}).encode(), {}

    def archive(self, repository, owner, name, sha):
        body = packed(repository, sha, f"{owner}-{name}-{sha[:7]}")
        if body is None:
            return 404, b"404: Not Found", {"Content-Type": "text/plain"}
        return 200, body, {"Content-Type": "application/x-gzip"}

    def answer(self, status, body, headers=None, fault=None):
        headers, fault = dict(headers or {}), fault or {}
        chunked = fault.get("chunked")
        self.send_response(status)
        headers.setdefault("Content-Type", "application/json; charset=utf-8")
        for name, value in headers.items():
            self.send_header(name, str(value))
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif fault.get("unsized"):
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = fault.get("cut")
        if cut is not None:
            body = body[:cut]
            self.close_connection = True
        half = len(body) // 2 if "stall_body_s" in fault else len(body)
        try:
            if "drip_s" in fault:
                for at in range(0, len(body), 16):
                    self.wfile.write(body[at:at + 16])
                    time.sleep(fault["drip_s"])
            elif chunked:
                for piece in (body[at:at + 1000] for at in range(0, len(body), 1000)):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                if cut is None:
                    self.wfile.write(b"0\r\n\r\n")
            else:
                self.wfile.write(body[:half])
                if half < len(body):
                    self.wfile.flush()
                    time.sleep(fault["stall_body_s"])
                    self.wfile.write(body[half:])
        except OSError:
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def main():
    servers = [Server(("127.0.0.1", 0), Handler)]
    if len(sys.argv) == 4:
        servers.append(Server(("127.0.0.1", 0), Handler))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2], sys.argv[3])
        # The handshake is the thread's, so that one who gives up holds nobody.
        servers[1].socket = context.wrap_socket(
            servers[1].socket, server_side=True, do_handshake_on_connect=False
        )
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
    sys.stdin.read()


main()
