# Sends `attack` to the relay on `way`. The attacker answers on every socket that the relay has, also here:
ear = socket.create_connection(("198.18.0.1", 53), 30)


def framed(message):
    return struct.pack("!H", len(message)) + message


def send(to, message):
    connection = socket.create_connection(to, 30)
    connection.sendall(message)
    return connection


# The relay has accepted it.
ear.sendall(framed(question("unlisted.example")))
(length,) = struct.unpack("!H", ear.recv(2, socket.MSG_WAITALL))
ear.recv(length, socket.MSG_WAITALL)

address = socket.gethostbyname(name)
kept = None
if way == "datagram":
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(attack, ("198.18.0.1", 53))
elif way == "stream":
    ear.sendall(framed(attack))
elif way == "hello":
    kept = send((name, 443), hello(name, more=extension(21, attack)))
elif way == "head":
    kept = send((name, 80), b"GET / HTTP/1.1\r\nHost: " + name.encode() + b"\r\nX: " + attack + b"\r\n\r\n")
elif way == "socks":
    kept = send(("127.0.0.1", 3), b"\5\1\0" + attack)
elif way == "tunnel":
    kept = send(("127.0.0.1", 3), b"CONNECT " + attack + b" HTTP/1.1\r\n\r\n")

heard = b""
try:
    while not heard.endswith(b"\n") and (piece := ear.recv(65536)):
        heard += piece
except OSError:
    pass
say("heard", heard.decode("latin-1").strip())
say("then", dial(address, 9000, patience=0.2) in ("reset", "silence", "closed"))
