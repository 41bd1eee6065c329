import hashlib
block = bytes(range(256)) * 256
def digest(count):
    sum, left = hashlib.sha256(), count
    while left > 0:
        sum.update(block[:left])
        left -= len(block)
    return sum.hexdigest()
def open_talk(line, port=9000):
    connection = socket.create_connection((name, port), 60)
    connection.sendall(line.encode() + b'\n')
    return connection
def give(connection, count):
    while count > 0:
        connection.sendall(block[:count])
        count -= len(block)
    connection.shutdown(socket.SHUT_WR)
def take(connection, count=None):
    sum, taken = hashlib.sha256(), 0
    while count is None or taken < count:
        piece = connection.recv(1 << 18 if count is None else min(1 << 18, count - taken))
        if not piece:
            break
        sum.update(piece)
        taken += len(piece)
    return taken, sum.hexdigest()
