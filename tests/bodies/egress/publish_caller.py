import socket, sys, threading, time, hashlib
def echo(port, text, host='127.0.0.1', patience=60):
    '''What comes back; a connection that is reset is tried again until then.'''
    ends = time.monotonic() + patience
    while True:
        try:
            with socket.create_connection((host, port), 20) as connection:
                connection.sendall(text)
                connection.shutdown(socket.SHUT_WR)
                pieces = []
                while piece := connection.recv(1 << 18):
                    pieces.append(piece)
                if pieces or not patience:
                    return b''.join(pieces)
        except OSError as error:
            if ends < time.monotonic():
                return type(error).__name__
        time.sleep(0.05)
