import ctypes, subprocess, fcntl
libc = ctypes.CDLL(None, use_errno=True)
def attempt(label, action):
    try:
        result = action()
        say(label, 'succeeded', result)
    except OSError as error:
        say(label, 'failed')
    except subprocess.CalledProcessError:
        say(label, 'failed')
    except FileNotFoundError:
        say(label, 'failed')
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), 'refused')
    return result
def program(*words):
    subprocess.run(words, check=True, capture_output=True, timeout=20)
def write(path, text):
    with open(path, 'w') as file:
        file.write(text)
def device(request, flags):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, request, struct.pack('16sh14x', b'lo', flags))
def netlink(kind, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as route:
        route.settimeout(5)
        route.send(struct.pack('=IHHII', 16 + len(body), kind, 0x605, 1, 0) + body)
        answer = route.recv(65536)
        kind, = struct.unpack('=H', answer[4:6])
        number, = struct.unpack('=i', answer[16:20])
        if kind == 2 and number < 0:
            raise OSError(-number, 'refused')
def supervisors():
    return [int(pid) for pid in os.listdir('/proc') if pid.isdigit() and int(pid) != os.getpid()]
attempts = (
    ('ip link set lo down', lambda: program('ip', 'link', 'set', 'lo', 'down')),
    ('ip route add', lambda: program('ip', 'route', 'add', '8.0.0.0/8', 'dev', 'lo')),
    ('ip link add', lambda: program('ip', 'link', 'add', 'x0', 'type', 'dummy')),
    ('ip netns add', lambda: program('ip', 'netns', 'add', 'other')),
    ('nft flush', lambda: program('nft', 'flush', 'ruleset')),
    ('lo down', lambda: device(0x8914, 0)),
    ('netlink, link', lambda: netlink(16, struct.pack('=BxHiII', 0, 0, 1, 0, 1))),
    ('netlink, route', lambda: netlink(24, struct.pack('=BBBBBBBBI', 2, 8, 0, 0, 254, 3, 0, 1, 0) + struct.pack('=HHI', 8, 1, 8))),
    ('netlink, rule', lambda: netlink(32, struct.pack('=BBBBBBBBI', 2, 0, 0, 0, 254, 3, 0, 1, 0))),
    ('netfilter', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)),
    ('sysctl', lambda: write('/proc/sys/net/ipv4/ip_unprivileged_port_start', '0')),
    ('sysctl of local routes', lambda: write('/proc/sys/net/ipv4/conf/all/route_localnet', '1')),
    ('setns of the parent', lambda: call(308, os.open('/proc/1/ns/net', os.O_RDONLY), 0)),
    ('setns of its own', lambda: call(308, os.open('/proc/self/ns/net', os.O_RDONLY), 0x40000000)),
    ('unshare, user', lambda: call(272, 0x10000000)),
    ('unshare, network', lambda: call(272, 0x40000000)),
    ('unshare, both', lambda: call(272, 0x50000000)),
    ('clone3, network', lambda: call(435, struct.pack('=11Q', 0x50000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88)),
    ('clone, network', lambda: call(56, 0x50000011, 0, 0, 0, 0)),
    ('ptrace', lambda: call(101, 16, 1, 0, 0)),
    ('process_vm_readv', lambda: call(310, 1, bytes(16), 1, bytes(16), 1, 0)),
    ('pidfd_getfd', lambda: call(438, call(434, 1, 0), 3, 0)),
    ('perf_event_open', lambda: call(298, bytes(128), 0, -1, -1, 0)),
    ('bpf', lambda: call(321, 0, bytes(128), 128)),
    ('IP_TRANSPARENT', lambda: socket.socket().setsockopt(socket.IPPROTO_IP, 19, 1)),
    ('SO_MARK', lambda: socket.socket().setsockopt(socket.SOL_SOCKET, 36, 1)),
    ('SO_BINDTODEVICE, none', lambda: socket.socket().setsockopt(socket.SOL_SOCKET, 25, b'in0\0')),
    ('a foreign source', lambda: socket.socket(socket.AF_INET6).setsockopt(socket.IPPROTO_IPV6, 75, 1)),
    ('x32', lambda: call(0x40000000 + 41, 2, 1, 0)),
    ('setuid', lambda: os.setuid(0)),
    ('setresgid', lambda: os.setresgid(0, 0, 0)),
    ('CAP_NET_ADMIN', lambda: write('/proc/self/uid_map', '0 0 1')),
)
for label, action in attempts:
    attempt(label, action)
say('others in sight', len(supervisors()))
say('devices', *sorted(name for _, name in socket.if_nameindex()))
