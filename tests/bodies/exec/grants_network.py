import errno, socket, threading
server = socket.create_server(('127.0.0.1', 0))
def serve():
    peer, _ = server.accept()
    peer.sendall(b'hello')
    peer.close()
threading.Thread(target=serve).start()
print('loopback', socket.create_connection(server.getsockname()).recv(9).decode())
for family, host in (socket.AF_INET, '8.8.8.8'), (socket.AF_INET6, '2001:4860:4860::8888'):
    try:
        socket.socket(family).connect((host, 53))
    except OSError as error:
        print(errno.errorcode[error.errno])
try:
    socket.getaddrinfo('example.com', 80)
except socket.gaierror:
    print('no name')
