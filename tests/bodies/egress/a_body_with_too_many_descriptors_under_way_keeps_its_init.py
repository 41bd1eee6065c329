import array
many = array.array('i', [0] * 253)
kept = []
try:
    while True:
        kept.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        for _ in range(5):
            kept[-1][0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)])
except OSError as error:
    say('too many', told(error))
with socket.create_server(('127.0.0.1', 8080)) as listener:
    connection, _ = listener.accept()
    say('came over it', len(connection.recv(9)))
    for one, other in kept:
        one.close()
        other.close()
    while not (piece := (connection := listener.accept()[0]).recv(9)):
        pass
    connection.sendall(piece)
    connection.close()
