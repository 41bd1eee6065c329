"""The outside of the egress tests: two network namespaces that nothing else knows.

    unshare -nm python3 outside.py DIRECTORY             holds the host's namespace, in which runs happen
    unshare -n  python3 outside.py DIRECTORY serve       started by it: the network beyond the host

The host's namespace has one device to the other one, and no address but 198.51.100.1. The other
one answers for every address that there is, so that whatever leaves the host is seen: each first
packet of a connection and each datagram is written to DIRECTORY/log, one JSON text a line, and so
is each question for a name and each connection that a server took.

Both end when their standard input ends.
"""

import ctypes
import hashlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

HOST_V4, PEER_V4 = "198.51.100.1", "198.51.100.2"
HOST_V6, PEER_V6 = "2001:db8:51::1", "2001:db8:51::2"
DIRECTORY = sys.argv[1]
TALK_PORTS = (22, 853, 5432, 7777, 8443, 9000)
LOG = os.open(DIRECTORY + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def log(**event):
    os.write(LOG, json.dumps(event).encode() + b"\n")


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL)


def wait_for_local(address):
    """The kernel makes an address of IPv6 usable in the background, also one without DAD."""
    words = ["ip", "-6", "route", "show", "table", "local", address]
    for _ in range(3000):
        if subprocess.run(words, check=True, capture_output=True).stdout:
            return
        time.sleep(0.01)
    sys.exit(f"{address} never became an address of this host")


def start(target, *arguments):
    threading.Thread(target=target, args=arguments, daemon=True).start()


# --- what leaves the host -------------------------------------------------------------------------


def sniff(device):
    """Writes down first packets of connections, and everything that is no connection."""
    instruction = lambda code, yes, no, k: struct.pack("HBBI", code, yes, no, k)
    protocol = 0xFFFFF000
    filter_ = b"".join(
        [
            instruction(0x28, 0, 0, protocol),
            instruction(0x15, 0, 6, 0x0800),
            instruction(0x30, 0, 0, 9),
            instruction(0x15, 0, 9, 6),
            instruction(0xB1, 0, 0, 0),
            instruction(0x50, 0, 0, 13),
            instruction(0x54, 0, 0, 0x12),
            instruction(0x15, 5, 6, 0x02),
            instruction(0x15, 0, 5, 0x86DD),
            instruction(0x30, 0, 0, 6),
            instruction(0x15, 0, 2, 6),
            instruction(0x30, 0, 0, 53),
            instruction(0x15, 0, 1, 0x02),
            instruction(0x06, 0, 0, 0xFFFF),
            instruction(0x06, 0, 0, 0),
        ]
    )
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    kept = ctypes.create_string_buffer(filter_)
    program = struct.pack("HxxxxxxP", len(filter_) // 8, ctypes.addressof(kept))
    packets.setsockopt(socket.SOL_SOCKET, 26, program)
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    packets.bind((device, 3))

    def forever():
        while True:
            packet, (_, _, kind, _, _) = packets.recvfrom(65536)
            if kind == 4:  # our own
                continue
            note(packet)

    start(forever)


def note(packet):
    if packet[0] >> 4 == 4:
        header, number = (packet[0] & 15) * 4, packet[9]
        to = socket.inet_ntop(socket.AF_INET, packet[16:20])
    else:
        header, number = 40, packet[6]
        to = socket.inet_ntop(socket.AF_INET6, packet[24:40])
    rest = packet[header:]
    if number == 58 and (133 <= rest[0] <= 137 or rest[0] == 143):
        return  # neighbours
    if number == 0:
        return  # groups of a link
    port = struct.unpack("!H", rest[2:4])[0] if number in (6, 17) else None
    protocol = {6: "tcp", 17: "udp"}.get(number, str(number))
    text = rest[8:].decode("latin-1") if number == 17 and port == 9 else None
    log(kind="packet", protocol=protocol, to=to, port=port, text=text)


# --- names ------------------------------------------------------------------------------------------

FIXED = {
    "api.openai.com": ["93.184.216.34"],
    "a.anthropic.com": ["93.184.216.35"],
    "a.b.anthropic.com": ["93.184.216.35"],
    "anthropic.com": ["93.184.216.35"],
    "six.example.com": ["2606:2800:220:1::34"],
    "down.example.com": ["93.184.216.98"],
    "silent.example.com": ["93.184.216.99"],
    "internal.corp.example": ["10.1.2.3"],
}
asked = {}


def addresses_of(name):
    """Names below zone.example say themselves what they resolve to: `v4-10-1-2-3`, `v6-` and 32
    digits; after `then` what is answered to the second question for addresses, and so on."""
    if name in FIXED:
        return FIXED[name]
    rounds = [[]]
    for label in name.removesuffix(".zone.example").split("."):
        if label == "then":
            rounds.append([])
        elif label.startswith("v4-"):
            rounds[-1].append(label[3:].replace("-", "."))
        elif label.startswith("v6-"):
            rounds[-1].append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(label[3:])))
    return rounds[min(asked.get(name, 1), len(rounds)) - 1]


def written(name):
    return b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0"


def attack_in(labels):
    """What the test has put there (`Outside::plant`) for the answer about this name."""
    for label in labels:
        if label.startswith("attack-") and os.path.exists(f"{DIRECTORY}/{label}"):
            with open(f"{DIRECTORY}/{label}", "rb") as file:
                return file.read()
    return b""


def answer_question(message, bytes_max=65535):
    at, labels = 12, []
    while message[at]:
        labels.append(message[at + 1 : at + 1 + message[at]].decode("latin-1"))
        at += 1 + message[at]
    kind = struct.unpack("!H", message[at + 1 : at + 3])[0]
    asked_name = ".".join(labels)
    name = asked_name.lower()
    log(kind="question", name=name, type=kind)
    question = message[12 : at + 5]
    if kind == 1:
        asked[name] = asked.get(name, 0) + 1
    flags, records, owner = 0x8180, [], b"\xc0\x0c"
    if "mute" in labels:
        return None
    if "nx" in labels or ("nx6" in labels and kind == 28):
        flags |= 3
    elif "fail" in labels:
        flags |= 2
    elif "tc" in labels:
        flags |= 0x0200
    else:
        if "cname" in labels:
            name = "internal.corp.example"
            target = written(name)
            records.append(owner + struct.pack("!HHIH", 5, 1, 60, len(target)) + target)
            owner = target
        if not (name in FIXED or name.endswith(".zone.example")):
            flags |= 3
        for address in addresses_of(name) if not flags & 3 else []:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if kind == (28 if ":" in address else 1):
                data = socket.inet_pton(family, address)
                records.append(owner + struct.pack("!HHIH", kind, 1, 60, len(data)) + data)
    after = question + b"".join(records) + attack_in(labels)
    if 12 + len(after) > bytes_max:
        flags, records, after = flags | 0x0200, [], question
    return message[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) + after


def serve_names():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # Hundreds of questions at once, on a machine that has other things to do.
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    server.bind((PEER_V4, 53))

    def forever():
        while True:
            message, sender = server.recvfrom(65536)
            if message.startswith(b"attacker"):
                log(kind="heard", text=message.decode("latin-1"))
                continue
            try:
                answer = answer_question(message, 1232)
            except (IndexError, struct.error):
                log(kind="question", name=None, type=None)
                continue
            if answer is not None:
                server.sendto(answer, sender)

    start(forever)


def serve_names_by_tcp():
    """Of each connection one question is answered. Whoever asked is then heard to the end."""
    listener = socket.create_server((PEER_V4, 53))

    def serve_one(stream, to, port):
        length = stream.exactly(2)
        question = length and stream.exactly(struct.unpack("!H", length)[0])
        answer = question and answer_question(question)
        if answer is None:
            return
        stream.connection.sendall(struct.pack("!H", len(answer)) + answer)
        while stream.more():
            pass
        log(kind="heard", text=stream.kept.decode("latin-1"))

    def forever():
        while True:
            connection, _ = listener.accept()
            start(take, connection, PEER_V4, 53, serve_one, "names")

    start(forever)


# --- connections --------------------------------------------------------------------------------------


class Stream:
    """A connection, read in pieces that the talk needs."""

    def __init__(self, connection):
        self.connection, self.kept = connection, b""

    def more(self):
        piece = self.connection.recv(1 << 18)
        self.kept += piece
        return bool(piece)

    def until(self, end):
        while end not in self.kept:
            if not self.more():
                return None
        line, self.kept = self.kept.split(end, 1)
        return line

    def exactly(self, count):
        while len(self.kept) < count:
            if not self.more():
                return None
        piece, self.kept = self.kept[:count], self.kept[count:]
        return piece

    def rest(self):
        """Everything to the end: how many bytes, and their digest."""
        digest, count = hashlib.sha256(self.kept), len(self.kept)
        while piece := self.connection.recv(1 << 18):
            digest.update(piece)
            count += len(piece)
        return count, digest.hexdigest()


def pattern(count):
    block = bytes(range(256)) * 256
    while count > 0:
        yield block[: min(count, len(block))]
        count -= len(block)


def talk(stream, to, port):
    """One line says what is wanted."""
    connection = stream.connection
    line = stream.until(b"\n")
    if line is None:
        return
    words = line.decode("latin-1").split()
    verb = words[0] if words else ""
    if verb == "who":
        connection.sendall(f"{to} {port}\n".encode())
    elif verb == "echo":
        if stream.kept:
            connection.sendall(stream.kept)
        while piece := connection.recv(1 << 18):
            connection.sendall(piece)
    elif verb == "count":
        connection.sendall("{} {}\n".format(*stream.rest()).encode())
    elif verb == "give":
        for block in pattern(int(words[1])):
            connection.sendall(block)
    elif verb == "both":
        def give():
            for block in pattern(int(words[1])):
                connection.sendall(block)
        giver = threading.Thread(target=give)
        giver.start()
        result = "{} {}\n".format(*stream.rest()).encode()
        giver.join()
        connection.sendall(result)
    elif verb == "drip":
        for _ in range(int(words[1])):
            connection.sendall(b"drop\n")
            time.sleep(float(words[2]))
    elif verb == "close-half":
        connection.shutdown(socket.SHUT_WR)
        log(kind="rest", to=to, port=port, rest=stream.rest())
    elif verb == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif verb == "hold":
        log(kind="holds", to=to, port=port, words=words)
        connection.sendall(b"held\n")
        ended = "end"
        try:
            while connection.recv(1 << 18):
                pass
        except OSError as error:
            ended = type(error).__name__
        log(kind="held", to=to, port=port, words=words, ended=ended)
    else:
        connection.sendall(f"what is {line[:40]!r}?\n".encode())


def greet(stream, to, port):
    """Port 443: records of a handshake, then talk."""
    while True:
        if not stream.kept and not stream.more():
            return
        if stream.kept[0] != 22:
            break
        header = stream.exactly(5)
        if header is None or stream.exactly(struct.unpack("!H", header[3:])[0]) is None:
            return
    talk(stream, to, port)


def answer_requests(stream, to, port):
    """Port 80: HTTP/1.1, as many requests as the other side likes."""
    while (head := stream.until(b"\r\n\r\n")) is not None:
        lines = head.decode("latin-1").split("\r\n")
        fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            fields[name.lower()] = value.strip()
        body = stream.exactly(int(fields.get("content-length", 0))) or b""
        log(kind="request", to=to, line=lines[0], fields=fields, body=len(body))
        path = lines[0].split()[1] if len(lines[0].split()) > 1 else ""
        if path.startswith("/to/"):
            where = path.removeprefix("/to/")
            answer = f"HTTP/1.1 302 Found\r\nLocation: http://{where}/\r\nContent-Length: 0\r\n\r\n"
        else:
            text = f"{to} {port} {fields.get('host')} {lines[0]} {len(body)}\n"
            answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}"
        stream.connection.sendall(answer.encode("latin-1"))
        if fields.get("connection", "").lower() == "close":
            # Nobody should say more; who does is heard.
            stream.connection.shutdown(socket.SHUT_WR)
            count, _ = stream.rest()
            if count:
                log(kind="more", to=to, port=port, bytes=count)
            return


def take(connection, to, port, handler, role):
    # Only a guard: a connection that hangs is the test's, which fails by itself.
    connection.settimeout(120)
    log(kind="connection", role=role, to=to, port=port)
    try:
        handler(Stream(connection), to, port)
    except OSError as error:
        log(kind="broken", role=role, to=to, port=port, error=type(error).__name__)
    finally:
        connection.close()


def listen(port, handler, role):
    for family, everywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((everywhere, port))
        listener.listen(2048)

        def forever(listener=listener):
            while True:
                connection, _ = listener.accept()
                to, port = connection.getsockname()[:2]
                start(take, connection, to, port, handler, role)

        start(forever)


def listen_for_datagrams(port, role):
    for family, everywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        server = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind((everywhere, port))

        def forever(server=server):
            while True:
                text, _ = server.recvfrom(65536)
                log(kind="datagram", role=role, port=port, text=text.decode("latin-1"))

        start(forever)


def serve():
    print("exists", flush=True)
    sys.stdin.readline()
    ip("link", "set", "lo", "up")
    ip("address", "add", PEER_V4 + "/30", "dev", "out0")
    ip("address", "add", PEER_V6 + "/64", "dev", "out0", "nodad")
    ip("link", "set", "out0", "up")
    wait_for_local(PEER_V6)
    # Every address is ours, but for the link to the host.
    ip("route", "add", "local", "default", "dev", "lo", "table", "main")
    ip("-6", "route", "add", "local", "default", "dev", "lo", "table", "main")
    # Nobody answers, and nobody says so.
    ip("route", "add", "blackhole", "93.184.216.99/32")
    sniff("out0")
    serve_names()
    serve_names_by_tcp()
    listen(80, answer_requests, "outside")
    listen(443, greet, "outside")
    for port in TALK_PORTS:
        listen(port, talk, "outside")
    print("serves", flush=True)
    sys.stdin.read()


# --- the host -------------------------------------------------------------------------------------------


def mount_over(path, text):
    """Puts a text in a file's place, for this mount namespace only."""
    source = DIRECTORY + "/" + os.path.basename(path)
    with open(source, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(source, 0o644)
    subprocess.run(["mount", "--bind", source, os.path.realpath(path)], check=True)


def hold():
    server = subprocess.Popen(
        ["unshare", "-n", sys.executable, __file__, DIRECTORY, "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout.readline() == "exists\n"
    ip("link", "set", "lo", "up")
    ip("link", "add", "in0", "type", "veth", "peer", "name", "out0", "netns", str(server.pid))
    ip("address", "add", HOST_V4 + "/30", "dev", "in0")
    ip("address", "add", HOST_V6 + "/64", "dev", "in0", "nodad")
    # Public, and the host's own; never what something is sent from.
    ip("address", "add", "93.184.217.1/32", "dev", "lo")
    ip("address", "add", "2606:2800:221::1/128", "dev", "lo", "nodad", "preferred_lft", "0")
    ip("link", "set", "in0", "up")
    wait_for_local(HOST_V6)
    wait_for_local("2606:2800:221::1")
    server.stdin.write("linked\n")
    server.stdin.flush()
    assert server.stdout.readline() == "serves\n"
    ip("route", "add", "default", "via", PEER_V4)
    ip("-6", "route", "add", "default", "via", PEER_V6)
    mount_over("/etc/resolv.conf", f"nameserver {PEER_V4}\n")
    mount_over("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n93.184.216.34 hosts.example.com\n")
    # Services of the host, for nobody's eyes: on its loopback and on its own addresses.
    listen(7777, talk, "host")
    listen_for_datagrams(7777, "host")
    abstract = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    abstract.bind("\0outside-of-the-egress-tests")
    abstract.listen(16)
    print("ready", flush=True)
    marks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for line in sys.stdin:
        # What has left the host before this datagram is in the log before it.
        marks.sendto(line.strip().encode(), (PEER_V4, 9))
    # The test program has ended. It held the directory in a static, which nobody drops.
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if sys.argv[2:] == ["serve"]:
    serve()
else:
    hold()
