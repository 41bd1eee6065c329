import errno, os, socket, struct, sys, threading, time

SYNTHETIC = "198.18."


def say(label, *result):
    print(f"{label}: {' '.join(str(part) for part in result)}", flush=True)


def told(error):
    """What an error says to a body; the three ways in which a reset shows are one."""
    if isinstance(error, socket.gaierror):
        names = {-2: "no such name", -3: "try again", -5: "no address"}
        return names.get(error.errno, error.errno)
    if isinstance(error, TimeoutError):
        return "silence"
    if error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ECONNREFUSED, errno.ENOTCONN):
        return "reset"
    return errno.errorcode.get(error.errno, repr(error))


def receive(connection):
    """Everything to the end."""
    pieces = []
    while piece := connection.recv(1 << 18):
        pieces.append(piece)
    return b"".join(pieces)


def dial(host, port, send=b"who\n", patience=30, pieces=None):
    """What the other side answers to these bytes."""
    try:
        with socket.create_connection((host, port), patience) as connection:
            for piece in pieces or [send]:
                if piece:
                    connection.sendall(piece)
                if pieces:
                    time.sleep(0.002)
            answer = receive(connection) if send != b"" else connection.recv(100)
            return answer.decode("latin-1").strip() or "closed"
    except OSError as error:
        return told(error)


def resolve(name):
    try:
        found = socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)
        return " ".join(sorted({entry[4][0] for entry in found}))
    except OSError as error:
        return told(error)


def labels_of(name):
    labels = name.encode("latin-1").split(b".") if isinstance(name, str) else name
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def question(name, kind=1, number=0x1234, name_class=1):
    return struct.pack("!HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels_of(name) + struct.pack("!HH", kind, name_class)


def read_answer(message):
    """`code` and the addresses."""
    code, answers = message[3] & 15, struct.unpack("!H", message[6:8])[0]
    names = {0: "ok", 1: "malformed", 2: "failed", 3: "no such name", 4: "not implemented", 5: "refused"}
    words = [names.get(code, code)]
    if answers:
        words.append(socket.inet_ntoa(message[-4:]) if answers == 1 else f"{answers} answers")
    return " ".join(words)


def send_question(message, server="198.18.0.1", patience=5):
    """A datagram to a name server, and what it says. The answer comes from where it was sent to."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asker:
        asker.settimeout(patience)
        try:
            asker.connect((server, 53))
            asker.send(message)
            return read_answer(asker.recv(65536))
        except OSError as error:
            return told(error)


def ask(name, kind=1, server="198.18.0.1", patience=5):
    return send_question(question(name, kind), server, patience)


def extension(kind, content):
    return struct.pack("!HH", kind, len(content)) + content


def server_name(*names):
    entries = b"".join(struct.pack("!BH", 0, len(name)) + name for name in names)
    return extension(0, struct.pack("!H", len(entries)) + entries)


def handshake(extensions):
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + struct.pack("!H", len(extensions)) + extensions
    return b"\1" + len(body).to_bytes(3, "big") + body


def record(content):
    return b"\x16\3\1" + struct.pack("!H", len(content)) + content


def hello(*names, more=b""):
    """A ClientHello that names these servers."""
    names = [name.encode() if isinstance(name, str) else name for name in names]
    versions = extension(43, b"\2\3\4")
    return record(handshake((server_name(*names) if names else b"") + versions + more))


print("#", os.readlink("/proc/self/ns/net"), flush=True)
