//! The network that a body finds: it cannot be changed, left, or reached around, by nobody inside.

use support::bodies::c_body;

/// What every body of this module begins with.
const ATTEMPTS: &str = r#"
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
    ('a foreign source', lambda: socket.socket().setsockopt(socket.IPPROTO_IPV6, 75, 1)),
    ('x32', lambda: call(0x40000000 + 41, 2, 1, 0)),
    ('setuid', lambda: os.setuid(0)),
    ('setresgid', lambda: os.setresgid(0, 0, 0)),
    ('CAP_NET_ADMIN', lambda: write('/proc/self/uid_map', '0 0 1')),
)
for label, action in attempts:
    attempt(label, action)
say('others in sight', len(supervisors()))
say('devices', *sorted(name for _, name in socket.if_nameindex()))
"#;

on_both_captures! {
    /// Cases 31 to 34.
    fn the_network_of_a_body_is_changed_and_left_by_nobody_inside(setting) {
        let seen = setting.run(&["api.openai.com"], &format!("{ATTEMPTS}
say('and still', ask('api.openai.com')[:2], dial('8.8.8.8', 443))"));
        let wrong = seen.said.iter().find(|line| line.contains(": succeeded"));
        assert_eq!(wrong, None, "{seen:#?}");
        assert_eq!(seen.said.last().map(String::as_str), Some("and still: ok reset"), "{seen:#?}");
        let devices = seen.said.iter().find(|line| line.starts_with("devices: "));
        assert_eq!(devices.map(String::as_str), Some("devices: lo"));
        assert!(seen.denials.contains(&"tcp ip-literal 8.8.8.8:443 x1".to_owned()));
        assert_eq!(setting.outside.log().packets_to("8.8.8.8"), [""; 0]);
    }

    /// Case 34: socket(2) and socketcall(2) by the 32-bit table.
    fn the_32_bit_table_of_system_calls_has_no_sockets(setting) {
        let text = "int main(int argc, char **argv) {
    int number = argc == 2 ? 359 : 102, result;
    __asm__ volatile(\"int $0x80\" : \"=a\"(result) : \"a\"(number), \"b\"(2), \"c\"(1), \"d\"(0) : \"memory\");
    return 0;
}";
        let program = c_body("sockets-of-32-bit", text);
        let program = program.to_str().expect("plain");
        for more in [&[][..], &["socketcall"]] {
            let words = ["run", "--egress-capture", setting.capture.word(), "--allow-net", "api.openai.com",
                "--", program];
            let words: Vec<&str> = words.iter().chain(more).copied().collect();
            let done = setting.ground.command(&words).inside(setting.outside).done();
            done.assert_outcome("signaled", 128 + 31);
        }
    }

    /// Case 29: the host's unix sockets, by path and by abstract name.
    fn unix_sockets_of_the_host_are_not_reached(setting) {
        let path = setting.ground.path("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        listener.set_nonblocking(true).expect("set");
        let seen = setting.run(&["api.openai.com"], &format!("
for name in ({:?}, '\\0outside-of-the-egress-tests', '/run/dbus/system_bus_socket', '/var/run/nscd/socket',
             '/run/systemd/resolve/io.systemd.Resolve', '/run/docker.sock'):
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(name)
            say('reached', name)
        except OSError:
            pass", path.to_string_lossy()));
        seen.assert_said("");
        assert!(listener.accept().is_err());
        std::fs::remove_file(path).expect("removed");
    }

    /// Case 30: the body has its three streams, and no descriptor of the relay's network.
    fn no_descriptor_of_the_relay_is_inherited(setting) {
        let seen = setting.run(&["api.openai.com"], "
listing = os.open('/proc/self/fd', os.O_RDONLY)
say('descriptors', *sorted(int(number) for number in os.listdir(listing) if int(number) != listing))
for number in range(3, 64):
    try:
        if number != listing:
            os.fstat(number)
            say('open', number, os.readlink(f'/proc/self/fd/{number}'))
    except OSError:
        pass");
        let more: Vec<&String> = seen.said.iter().filter(|line| line.starts_with("open")).collect();
        assert!(more.len() <= 1, "{seen:#?}");
        for line in more {
            assert!(line.contains("/proc/"), "{line}");
        }
    }
}
