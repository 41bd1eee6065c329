"""An apt repository, an npm registry and a Python index on loopback: files below a directory.

usage: server.py DIRECTORY [CERTIFICATE KEY]
Prints its port. Appends `HOST PATH` of each request to `asked` beside DIRECTORY. Ends when its
standard input does.
"""

import http.server
import os
import ssl
import sys
import threading

DIRECTORY = os.path.abspath(sys.argv[1])
ASKED = os.path.join(os.path.dirname(DIRECTORY), "asked")


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=DIRECTORY)

    def do_GET(self):
        host = self.headers.get("Host", "").partition(":")[0]
        with open(ASKED, "a") as asked:
            asked.write("%s %s\n" % (host, self.path))
        super().do_GET()

    def log_message(self, *_words):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if len(sys.argv) > 2:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[2], sys.argv[3])
    # In the thread of the connection: nobody else waits for a handshake.
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
