"""A NATS server, and connections that speak its protocol: for scripts/lib/scale_measure.py."""

import contextlib
import json
import os
import pathlib
import selectors
import socket
import subprocess
import time
import urllib.request

STREAM = "runs"
HANG_S = 300
SECOND_NS = 1_000_000_000
# As in crates/worker/src/work.rs.
PULL_S = 5
PULL = json.dumps({"batch": 1, "expires": PULL_S * SECOND_NS, "no_wait": True, "max_bytes": 0}).encode()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_until(is_reached, what):
    until = time.monotonic() + HANG_S
    while not is_reached():
        if time.monotonic() > until:
            raise SystemExit(f"not within {HANG_S} s: {what}")
        time.sleep(0.25)


class Server:
    """A nats-server of its own, and its counters."""

    def __init__(self, directory):
        self.port, self.monitor = free_port(), free_port()
        words = ["-js", "-sd", directory, "-a", "127.0.0.1", "-p", str(self.port), "-m", str(self.monitor)]
        self.process = subprocess.Popen(["nats-server", *words], stderr=subprocess.DEVNULL)
        wait_until(self.listens, "nats-server listens")
        # Not /jsz: once, with a thousand consumers, it did not answer again (2.9.10). What is asked is not counted.
        self.client = Connection(self.port)
        self.asked = dict.fromkeys(("in_msgs", "out_msgs", "in_bytes", "out_bytes"), 0)

    def listens(self):
        try:
            return bool(self.get("varz"))
        except OSError:
            return False

    def get(self, what):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}/{what}", timeout=HANG_S) as answer:
            return json.load(answer)

    def ask(self, what):
        answer = self.client.request(f"$JS.API.{what}")
        self.asked["in_msgs"] += 1
        self.asked["out_msgs"] += 1
        self.asked["out_bytes"] += len(answer)
        return json.loads(answer)

    def results(self):
        return self.ask(f"STREAM.INFO.KV_{STREAM}-runs")["state"]["messages"]

    def in_progress(self):
        return self.ask(f"CONSUMER.INFO.{STREAM}.workers")["num_ack_pending"]

    def stored_bytes(self):
        names = (STREAM, f"{STREAM}-dead", f"KV_{STREAM}-runs", f"OBJ_{STREAM}-files", f"OBJ_{STREAM}-bundles")
        return sum(self.ask(f"STREAM.INFO.{name}")["state"]["bytes"] for name in names)

    def processor_us(self):
        # The clock of another process, as clock_getcpuclockid(3) computes its number.
        return time.clock_gettime_ns((~self.process.pid << 3) | 2) / 1000

    def memory_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmRSS:")[1].split()[0])

    def counts(self):
        """What grows with the work: asking costs the server a fraction of a millisecond."""
        values = self.get("varz")
        counts = {name: values[name] - asked for name, asked in self.asked.items()}
        return counts | {"server_us": self.processor_us()}

    def during(self, act):
        """What `act` adds to the counts."""
        before = self.counts()
        act()
        after = self.counts()
        return {name: after[name] - before[name] for name in before}

    def close(self):
        self.process.kill()
        self.process.wait()


class Connection:
    """The NATS protocol, as far as it is needed here."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.rest, self.number = b"", 0
        self.inbox = f"_INBOX.{os.urandom(11).hex()}"
        options = {"verbose": False, "headers": True, "no_responders": True, "name": "scale"}
        self.send(f"CONNECT {json.dumps(options)}\r\nSUB {self.inbox}.* 1\r\n".encode())

    def send(self, content):
        self.socket.sendall(content)

    def publish(self, subject, content, reply=""):
        self.send(f"PUB {subject} {reply} {len(content)}\r\n".encode() + content + b"\r\n")

    def messages(self):
        """The subjects and contents of what has arrived; waits until something does."""
        received = self.socket.recv(1 << 18)
        if not received:
            raise SystemExit("nats-server has closed the connection")
        self.rest += received
        while (end := self.rest.find(b"\r\n")) >= 0:
            words = self.rest[:end].split()
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            if words[0] == b"-ERR":
                raise SystemExit(f"nats-server: {self.rest[:end].decode()}")
            if words[0] in (b"MSG", b"HMSG"):
                length = int(words[-1])
                if len(self.rest) < end + length + 4:
                    return
                content = self.rest[end + 2 : end + 2 + length]
                self.rest = self.rest[end + length + 4 :]
                yield words[1].decode(), content
            else:
                self.rest = self.rest[end + 2 :]

    def request(self, subject, content=b""):
        self.number += 1
        reply = f"{self.inbox}.{self.number}"
        self.publish(subject, content, reply)
        while True:
            for name, answer in self.messages():
                if name == reply:
                    return answer


class IdleConnection(Connection):
    """Sends what an idle worker with one place sends: it watches for cancelled runs, and asks for a message."""

    def start(self, is_pulling):
        # Not below the other: the server counts an exact subscription alone as somebody who listens.
        subject = self.inbox.replace("INBOX", "INBOX.watch")
        watch = {
            "deliver_subject": subject,
            "deliver_policy": "last_per_subject",
            "ack_policy": "none",
            "max_deliver": 1,
            "filter_subject": f"$KV.{STREAM}-runs.cancel.*",
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": 5 * SECOND_NS,
            "inactive_threshold": HANG_S * SECOND_NS,
            "num_replicas": 1,
            "mem_storage": True,
        }
        bucket = f"KV_{STREAM}-runs"
        body = json.dumps({"stream_name": bucket, "config": watch}).encode()
        self.send(f"SUB {subject} 2\r\n".encode())
        answer = json.loads(self.request(f"$JS.API.CONSUMER.CREATE.{bucket}", body))
        if "error" in answer:
            raise SystemExit(f"nats-server: {answer}")
        self.pulls = 0
        if is_pulling:
            self.pull()

    def pull(self):
        """Each in a subscription of its own, as the package async-nats does."""
        self.pulls += 1
        number, inbox = 2 + self.pulls, f"_INBOX.{self.inbox[7:]}-{self.pulls}"
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.workers"
        head = f"UNSUB {number - 1}\r\n" if self.pulls > 1 else ""
        head += f"SUB {inbox} {number}\r\nPUB {subject} {inbox} {len(PULL)}\r\n"
        self.send(head.encode() + PULL + b"\r\n")

    def receive(self):
        ended = f"-{self.pulls}"
        for name, _content in self.messages():
            if self.pulls and name.endswith(ended):
                self.pull()


@contextlib.contextmanager
def idle_connections(server, count, is_pulling):
    """A function that keeps so many alive for some seconds.

    They begin one after the other, within the time of a request: together, they would cost the server less than workers do,
    as it would wake up once for all of them.
    """
    selector = selectors.DefaultSelector()
    connections = []

    def serve(seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _events in selector.select(left):
                key.data.receive()

    try:
        since = time.monotonic()
        for number in range(count):
            serve(max(0.0001, since + PULL_S * number / count - time.monotonic()))
            connection = IdleConnection(server.port)
            connection.start(is_pulling)
            connections.append(connection)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        yield serve
    finally:
        for connection in connections:
            connection.socket.close()
        selector.close()
