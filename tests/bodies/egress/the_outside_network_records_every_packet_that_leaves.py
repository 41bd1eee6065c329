import socket
assert socket.gethostbyname('v4-93-184-216-1.zone.example') == '93.184.216.1'
for to in (('93.184.216.1', 9000), ('10.201.2.3', 5432), ('2606:2800:220:9::1', 8443)):
    with socket.create_connection(to, 20) as connection:
        connection.sendall(b'who\n')
        assert connection.recv(99) == '{} {}\n'.format(*to).encode()
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
    sender.sendto(b'x', ('2606:2800:220:9::1', 123))
try:
    socket.create_connection(('93.184.216.1', 9001), 20)
except ConnectionRefusedError:
    print('refused')
