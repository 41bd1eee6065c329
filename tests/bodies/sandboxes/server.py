"""Servers in a sandbox: MODE PORT."""

import http.server
import json
import select
import socket
import socketserver
import sys
import time


def count(connection):
    """Answers with the number of bytes once the client has ended."""
    total = 0
    while data := connection.recv(65536):
        total += len(data)
    connection.sendall(b"%d" % total)


def echo(connection):
    """Writes what it reads."""
    while data := connection.recv(65536):
        connection.sendall(data)


def flood(connection):
    """Writes without end, and reads nothing."""
    while True:
        connection.sendall(bytes(65536))


def chunks(data):
    """Splits by the lengths before the chunks."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        size = int(size, 16)
        body, data = body + data[:size], data[size + 2 :]
    return body


def read_request(connection):
    """Head and body, or None at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = [line.split(": ", 1) for line in lines[1:]]
    values = dict(headers)
    if "content-length" in values:
        while len(body) < int(values["content-length"]):
            body += connection.recv(65536)
    if values.get("transfer-encoding") == "chunked":
        while not body.endswith(b"0\r\n\r\n"):
            body += connection.recv(65536)
        body = chunks(body)
    return lines[0], headers, body


ANSWERS = {
    "/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nA: b\r\n\r\n",
    "/closed": b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\nuntil the end",
    "/continue": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 418 Teapot\r\nContent-Length: 2\r\n\r\nhirest",
    "/none": b"HTTP/1.1 204 No Content\r\n\r\nbody",
    "/origin": b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nClear-Site-Data: \"*\"\r\nAlt-Svc: h3=\":1\"\r\n"
    b"Strict-Transport-Security: max-age=9\r\nService-Worker-Allowed: /\r\nWWW-Authenticate: Basic\r\nKeep-Alive: timeout=5\r\n"
    b"Connection: X-Gone\r\nX-Gone: 1\r\nX-Kept: 1\r\nContent-Length: 0\r\n\r\n",
    "/redirect": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n",
    "/redirect-away": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: ../../../other?force=true\r\nContent-Length: 0\r\n\r\n",
    # From here on: no answers.
    "/empty": b"",
    "/garbage": b"SSH-2.0-x\r\n\r\n",
    "/line": b"HTTP/1.1 999999 OK\r\n\r\n",
    "/fold": b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
    "/huge": b"HTTP/1.1 200 OK\r\nA: " + b"a" * (1 << 20) + b"\r\n\r\n",
    "/many": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
    "/both": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "/lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "/length": b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
    "/switch": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    # Bodies that are cut or malformed.
    "/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
    "/chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
    "/size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello",
}


def raw_http(connection):
    """One answer, as the path says."""
    request = read_request(connection)
    if request is None:
        return
    line, headers, body = request
    path = line.split(" ")[1].split("?")[0]
    if path in ANSWERS:
        connection.sendall(ANSWERS[path])
    elif path == "/silent":
        while connection.recv(65536):
            pass
    elif path == "/flood":
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        flood(connection)
    elif path == "/open":
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        has_ended = select.select([connection], [], [], 0.3)[0]
        connection.sendall(b"ended" if has_ended else b"open")
    elif path == "/events":
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        time.sleep(1000)
    elif path == "/upgrade":
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nready")
        echo(connection)
    else:
        text = json.dumps({"line": line, "headers": headers, "body": body.decode()}).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text))
        if not line.startswith("HEAD "):
            connection.sendall(text)


class ServerV6(http.server.HTTPServer):
    address_family = socket.AF_INET6


def main(mode, port):
    if mode == "http6":
        ServerV6(("::1", port), http.server.SimpleHTTPRequestHandler).serve_forever()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            globals()[mode](self.request)

    class Server(socketserver.ThreadingTCPServer):
        request_queue_size = 128
        daemon_threads = True

    Server(("127.0.0.1", port), Handler).serve_forever()


main(sys.argv[1], int(sys.argv[2]))
