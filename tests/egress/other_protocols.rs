//! Traffic that is neither TCP nor DNS.

on_both_captures! {
    /// Case 26, H-10, H-16.
    fn datagrams_are_dropped_and_counted(setting) {
        let seen = setting.run(&["api.openai.com"], "
synthetic = resolve('api.openai.com')
def send(address, port, times=3):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for _ in range(times):
            try:
                sender.sendto(b'datagram', (address, port))
            except OSError as error:
                pass
for address, port in (('8.8.8.8', 443), ('8.8.8.8', 123), ('8.8.8.8', 54), ('224.0.0.251', 5353), ('255.255.255.255', 67),
                      ('10.1.2.3', 7777), ('2001:4860:4860::8888', 443), ('fd00:ec2::254', 80), (synthetic, 443)):
    send(address, port)
    time.sleep(0.05)
# The body's own.
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(('127.0.0.1', 0))
receiver.settimeout(5)
send('127.0.0.1', receiver.getsockname()[1])
say('its own', receiver.recv(99))
time.sleep(0.2)");
        seen.assert_said("its own: b'datagram'");
        let report = &seen.done.report;
        let count = |to: &str, port: u16| -> u64 {
            let of = report["denials"].as_array().into_iter().flatten();
            of.filter(|denial| denial["protocol"] == "udp" && denial["reason"] == "proto")
                .filter(|denial| denial["ip"] == to && denial["port"] == port)
                .filter_map(|denial| denial["count"].as_u64())
                .sum()
        };
        assert_eq!(report["egress"]["lost_datagrams"], 0, "{seen:#?}");
        for (to, port) in [
            ("8.8.8.8", 443),
            ("8.8.8.8", 123),
            ("8.8.8.8", 54),
            ("10.1.2.3", 7777),
            ("2001:4860:4860::8888", 443),
            ("fd00:ec2::254", 80),
        ] {
            assert_eq!(count(to, port), 3, "{to}:{port}: {seen:#?}");
        }
        let log = setting.outside.log();
        for to in ["8.8.8.8", "224.0.0.251", "255.255.255.255", "10.1.2.3", "2001:4860:4860::8888"] {
            assert_eq!(log.packets_to(to), [""; 0], "{to}");
        }
    }

    /// A denied datagram is reported with the name of its address, if it has one.
    fn a_denied_datagram_is_reported_at_the_end(setting) {
        let seen = setting.run(&["api.openai.com"], "
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    try:
        sender.sendto(b'datagram', ('93.184.216.80', 443))
    except OSError as error:
        pass
time.sleep(0.2)");
        seen.assert_denied(&["udp proto 93.184.216.80:443 x1"]);
        let told = seen.done.stderr.lines().next().unwrap_or_default();
        assert!(told.starts_with("runner: denied egress to ") && told.contains("93.184.216.80:443"),
            "{told}");
        assert_eq!(setting.outside.log().packets_to("93.184.216.80"), [""; 0]);
    }

    /// Cases 27 and 28, H-14: other types of sockets cannot be created.
    fn no_other_family_nor_protocol_of_sockets_exists(setting) {
        let seen = setting.run(&["api.openai.com"], include_str!("../bodies/egress/no_other_family_nor_protocol_of_sockets_exists.py"));
        let expected = "sockets: (1, 1, 0) (1, 1, 1) (1, 2, 0) (1, 2, 1) (1, 5, 0) (1, 5, 1) \
                        (2, 1, 0) (2, 1, 6) (2, 2, 0) (2, 2, 17) (10, 1, 0) (10, 1, 6) (10, 2, 0) \
                        (10, 2, 17) (16, 2, 0) (16, 3, 0)";
        let routes_only: Vec<&str> = seen.said[0]
            .split(" (")
            .filter(|entry| !entry.starts_with("1, ") && !entry.starts_with("16, "))
            .collect();
        let routes_expected: Vec<&str> = expected
            .split(" (")
            .filter(|entry| !entry.starts_with("1, ") && !entry.starts_with("16, "))
            .collect();
        assert_eq!(routes_only, routes_expected, "{seen:#?}");
        for entry in seen.said[0].split(" (").filter(|entry| entry.starts_with("16, ")) {
            assert!(entry.ends_with(", 0)"), "NETLINK_ROUTE only: {entry}");
        }
        for line in &seen.said[1..] {
            assert!(line.ends_with(": -1 ENOSYS") || line.ends_with(": -1 EPERM"), "{line}");
        }
        assert_eq!(seen.said.len(), 4);
    }
}
