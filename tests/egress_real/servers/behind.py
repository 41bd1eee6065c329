"""What stands behind the web server, on loopback: git's own `git http-backend`, as a CGI
program, and `/length`, which answers with the size and the digest of what was sent.

usage: behind.py DIRECTORY-OF-REPOSITORIES PORT
Makes a file `behind.ready` when it listens.
"""

import hashlib
import http.server
import os
import subprocess
import sys
import urllib.parse

REPOSITORIES, PORT = os.path.abspath(sys.argv[1]), int(sys.argv[2])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/length":
            text = "%d %s\n" % (len(sent), hashlib.sha256(sent).hexdigest())
            self.answer(200, {"Content-Type": "text/plain"}, text.encode())
        else:
            self.git(sent)

    do_POST = do_PUT = do_GET

    def git(self, sent):
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": REPOSITORIES,
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": urllib.parse.unquote(path),
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type") or "",
            "CONTENT_LENGTH": str(len(sent)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            "REMOTE_ADDR": "127.0.0.1",
            # A push without a name is refused.
            "REMOTE_USER": "somebody",
            "GIT_COMMITTER_NAME": "somebody",
            "GIT_COMMITTER_EMAIL": "somebody@compat.test",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=sent, env=environment, stdout=subprocess.PIPE
        )
        if done.returncode != 0:
            about = (done.returncode, path, len(sent), sent[:80], done.stdout[:300])
            print("git http-backend:", *about, file=sys.stderr, flush=True)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(fields.pop("Status", "200").split()[0])
        self.answer(status, fields, body)

    def answer(self, status, fields, body):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


server = Server(("127.0.0.1", PORT), Handler)
open("behind.ready", "x").close()
server.serve_forever()
