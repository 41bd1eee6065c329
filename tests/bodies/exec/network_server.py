import socket
with socket.create_server(('127.0.0.1', 80)) as listener:
    connection, _ = listener.accept()
    connection.sendall(b'served')
    connection.close()
