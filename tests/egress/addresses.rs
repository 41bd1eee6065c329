//! Connections by address, and the addresses of allowed names: the relay dials only public addresses.

/// Addresses such as 10.1.2.3, which no case may reach.
const NEVER: &[&str] = &[
    "10.1.2.3",
    "169.254.169.254",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
    "8.8.8.8",
    "2001:4860:4860::8888",
];

/// Asserts that no forbidden address and no service of the host was reached.
#[track_caller]
fn assert_untouched(setting: &super::runs::Setting) {
    let log = setting.outside.log();
    for address in NEVER {
        assert_eq!(log.packets_to(address), [""; 0], "{address}");
    }
    let of_the_host = |event: &&serde_json::Value| event["role"] == "host";
    assert_eq!(log.events.iter().find(of_the_host), None);
}

on_both_captures! {
    /// Case 9, H-02: the address of an allowed name is not allowed itself.
    fn the_real_address_of_an_allowed_host_is_denied_as_a_literal(setting) {
        let name = "v4-93-184-216-60.zone.example";
        let seen = setting.run(&["v4-93-184-216-60.zone.example"], include_str!("../bodies/egress/the_real_address_of_an_allowed_host_is_denied_as_a_literal.py"));
        seen.assert_said("https: reset\nhttp: reset\nsix: reset\nthe shell: b''");
        seen.assert_denied(&[
            "tcp ip-literal 93.184.216.60:443 x3",
            "tcp ip-literal 93.184.216.60:80 x1",
        ]);
        seen.assert_told("93.184.216.60:443", "an address that is not in network.egress");
        let log = setting.outside.log();
        assert_eq!(log.packets_to("93.184.216.60"), [""; 0]);
        assert_eq!(log.questions_for(name), 0);
    }

    /// Case 10: one metadata service in every notation.
    fn the_metadata_service_is_reached_in_no_form(setting) {
        let seen = setting.run(&["api.openai.com"], "
for address in '169.254.169.254', 'fd00:ec2::254', '::ffff:169.254.169.254', '64:ff9b::a9fe:a9fe', '2852039166', '0xa9fea9fe':
    say(address, dial(address, 80, b'GET / HTTP/1.0\\r\\n\\r\\n'))");
        seen.assert_said("169.254.169.254: reset
            fd00:ec2::254: reset
            ::ffff:169.254.169.254: reset
            64:ff9b::a9fe:a9fe: reset
            2852039166: reset
            0xa9fea9fe: reset");
        seen.assert_denied(&[
            "tcp ip-literal 169.254.169.254:80 x4",
            "tcp ip-literal [fd00:ec2::254]:80 x1",
            "tcp ip-literal [64:ff9b::a9fe:a9fe]:80 x1",
        ]);
        assert_untouched(setting);
    }

    /// Case 10: these addresses are the body's own loopback, where nothing listens.
    fn loopback_in_odd_forms_is_the_bodys_own(setting) {
        let seen = setting.run(&["api.openai.com"], "
for address in '0x7f000001', '2130706433', '127.1', '0', '::1', '::ffff:127.0.0.1', '127.9.9.9':
    say(address, dial(address, 7777))");
        seen.assert_said("0x7f000001: reset
            2130706433: reset
            127.1: reset
            0: reset
            ::1: reset
            ::ffff:127.0.0.1: reset
            127.9.9.9: reset");
        seen.assert_denied(&[]);
        assert_untouched(setting);
    }

    /// Case 11, H-06, H-07.
    fn an_allowed_name_with_a_private_address_is_denied_and_not_dialled(setting) {
        let labels = [
            "v4-10-1-2-3",
            "v4-127-0-0-1",
            "v4-169-254-169-254",
            "v4-0-0-0-0",
            "v4-100-64-0-1",
            "v4-198-18-0-1",
            "v4-168-63-129-16",
            "v4-224-0-0-251",
            "v4-255-255-255-255",
            // Addresses of the host: link-local, public, and those of its peer.
            "v4-198-51-100-1",
            "v4-93-184-217-1",
            "v6-26062800022100000000000000000001",
            "v6-20010db8005100000000000000000001",
            "v6-00000000000000000000000000000001",
            "v6-00000000000000000000000000000000",
            "v6-00000000000000000000ffff0a010203",
            "v6-00000000000000000000ffffa9fea9fe",
            "v6-0064ff9b00000000000000000a010203",
            "v6-20020a01020300000000000000000001",
            "v6-fd000ec2000000000000000000000254",
            "v6-fe800000000000000000000000000001",
            "v6-ff0200000000000000000000000000fb",
            "cname",
        ];
        let names: Vec<String> = labels
            .iter()
            .map(|label| format!("{label}.{}.zone.example", setting.unique))
            .collect();
        let rules: Vec<String> = names.iter().map(|name| format!("{name}:7777")).collect();
        let allowed: Vec<&str> = rules.iter().map(String::as_str).collect();
        let seen = setting.run(&allowed, &format!("
for name in {names:?}:
    say(name, dial(name, 7777))"));
        let said: Vec<String> = names.iter().map(|name| format!("{name}: reset")).collect();
        seen.assert_said(&said.join("\n"));
        let denied: Vec<String> = names
            .iter()
            .map(|name| format!("tcp resolves-to-private {name}:7777 x1"))
            .collect();
        seen.assert_denied(&denied.iter().map(String::as_str).collect::<Vec<_>>());
        assert_untouched(setting);
        let log = setting.outside.log();
        for name in &names {
            assert_ne!(log.questions_for(name), 0, "{name} was never resolved");
        }
    }

    /// Only the host policy opens a private range, and never addresses of the host itself.
    fn a_private_range_is_opened_by_the_host_policy_and_not_for_the_host_itself(setting) {
        let policy = "egress: {private_ranges: [10.77.0.0/16, 198.51.100.0/24, 127.0.0.0/8]}\n";
        let policy = setting.ground.write("policy.yaml", policy);
        let labels = ["v4-10-77-0-1", "v4-10-78-0-1", "v4-198-51-100-1", "v4-127-0-0-1"];
        let names = labels.map(|label| format!("{label}.{}.zone.example", setting.unique));
        let rules = names.each_ref().map(|name| format!("{name}:7777"));
        let mut flags = vec!["--policy", policy.to_str().expect("plain")];
        flags.extend(rules.iter().flat_map(|rule| ["--allow-net", rule.as_str()]));
        let seen = setting.run_with(&flags, &format!("say('all', *[dial(name, 7777) for name in {names:?}])"));
        seen.assert_said("all: 10.77.0.1 7777 reset reset reset");
        let denied = names[1..].iter().map(|name| format!("tcp resolves-to-private {name}:7777 x1"));
        let denied: Vec<String> = denied.collect();
        seen.assert_denied(&denied.iter().map(String::as_str).collect::<Vec<_>>());
        assert_untouched(setting);
    }

    /// Case 12, H-06: the relay dials the address that it checked, for each connection.
    fn a_name_that_changes_its_mind_is_checked_at_every_connection(setting) {
        let name = format!("v4-93-184-216-61.then.v4-10-1-2-3.{}.zone.example", setting.unique);
        let seen = setting.run(&[&format!("{name}:9000")], &format!("
answers = [dial({name:?}, 9000) for _ in range(20)]
say('answered', answers.count('93.184.216.61 9000'))
say('denied', answers.count('reset'))"));
        seen.assert_said("answered: 1\ndenied: 19");
        seen.assert_denied(&[&format!("tcp resolves-to-private {name}:9000 x19")]);
        assert_untouched(setting);
    }

    /// Case 13.
    fn of_a_public_and_a_private_address_only_the_public_one_is_dialled(setting) {
        let unique = &setting.unique;
        let names = [
            format!("v4-10-1-2-3.v4-93-184-216-62.{unique}.zone.example"),
            format!("v4-93-184-216-62.v4-169-254-169-254.{unique}.zone.example"),
            format!("v4-127-0-0-1.v6-26062800022000010000000000000062.{unique}.zone.example"),
        ];
        let rules = names.each_ref().map(|name| format!("{name}:9000"));
        let seen = setting.run(&rules.each_ref().map(String::as_str), &format!("
for name in {names:?}:
    say(*[dial(name, 9000) for _ in range(3)])"));
        seen.assert_said("93.184.216.62 9000: 93.184.216.62 9000 93.184.216.62 9000
            93.184.216.62 9000: 93.184.216.62 9000 93.184.216.62 9000
            2606:2800:220:1::62 9000: 2606:2800:220:1::62 9000 2606:2800:220:1::62 9000");
        seen.assert_denied(&[]);
        assert_untouched(setting);
    }

    /// Case 14, H-09.
    fn a_port_that_the_list_does_not_name_is_denied(setting) {
        let (name, address) = (setting.name(63), setting.public(63));
        let seen = setting.run(&[&format!("{name}:9000")], &format!("
name = {name:?}
say(9000, dial(name, 9000))
for port in 80, 443:
    say(port, dial(name, port, hello(name)))
for port in 1, 22, 9001, 65535:
    say(port, dial(name, port))
say(0, dial(name, 0))"));
        seen.assert_said(&format!("9000: {address} 9000
            80: reset
            443: reset
            1: reset
            22: reset
            9001: reset
            65535: reset
            0: reset"));
        // Without rules of nf_tables, connections to unlisted ports are reported but not captured.
        let denied: Vec<&String> = seen
            .denials
            .iter()
            .filter(|denial| !denial.contains(":0 "))
            .collect();
        let expected: Vec<String> = {
            let mut expected: Vec<String> = [1, 22, 443, 65535, 80, 9001]
                .map(|port| format!("tcp port-not-allowed {name}:{port} x1"))
                .to_vec();
            expected.sort();
            expected
        };
        assert_eq!(denied, expected.iter().collect::<Vec<_>>(), "{seen:#?}");
        let log = setting.outside.log();
        assert_eq!(log.packets_to(&address), ["tcp 9000"]);
    }

    /// Case 15, H-13: loopback and addresses of the host, over TCP and UDP.
    fn services_of_the_host_are_not_reached(setting) {
        let seen = setting.run(&["api.openai.com"], "
for address in '127.0.0.1', '::1', '198.51.100.1', '2001:db8:51::1', '93.184.217.1', '2606:2800:221::1':
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    say(address, dial(address, 7777))
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        for _ in range(2):
            try:
                sender.sendto(b'datagram', (address, 7777))
            except OSError:
                pass
for name in 'outside-of-the-egress-tests', 'runner':
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect('\\0' + name)
            say(name, 'was reached')
        except OSError as error:
            say(name, told(error))");
        seen.assert_said("127.0.0.1: reset
            ::1: reset
            198.51.100.1: reset
            2001:db8:51::1: reset
            93.184.217.1: reset
            2606:2800:221::1: reset
            outside-of-the-egress-tests: reset
            runner: reset");
        assert_untouched(setting);
        for address in ["127.0.0.1", "::1"] {
            let of = seen.denials.iter().find(|denial| denial.contains(&format!(" {address}")));
            assert_eq!(of, None, "the body's own loopback: {seen:#?}");
        }
        for address in ["198.51.100.1", "[2001:db8:51::1]", "93.184.217.1", "[2606:2800:221::1]"] {
            let to = format!("{address}:7777");
            let of = |protocol: &str| {
                let of = |denial: &&String| denial.starts_with(protocol) && denial.contains(&to);
                seen.denials.iter().find(of).cloned()
            };
            assert!(of("tcp").is_some() && of("udp").is_some(), "{to}: {seen:#?}");
        }
    }

    /// Case 16.
    fn addresses_of_the_relay_and_unassigned_addresses_are_denied(setting) {
        let seen = setting.run(&["api.openai.com"], "
name = resolve('api.openai.com')
say('the name', name.startswith(SYNTHETIC))
for address, port in (('198.18.0.1', 1), ('fd00:198:18::1', 1), ('198.18.0.1', 443), ('198.18.77.77', 443),
                      ('198.19.255.255', 443), ('198.18.0.0', 80), ('198.18.0.15', 80), ('198.18.0.2', 443)):
    say(address, port, dial(address, port, hello('api.openai.com')))");
        for line in &seen.said[1..] {
            assert!(line.ends_with("reset"), "{seen:#?}");
        }
        assert_eq!(seen.said.len(), 9);
        for to in ["198.18.0.1:443", "198.18.77.77:443", "198.19.255.255:443", "198.18.0.15:80"] {
            let denied = format!("tcp ip-literal {to} x1");
            assert!(seen.denials.contains(&denied), "{denied}: {seen:#?}");
        }
        assert_untouched(setting);
    }

    /// Case 17: a listener of the body receives only connections of the body itself.
    fn a_listener_of_the_body_receives_only_its_own_connections(setting) {
        let seen = setting.run(&["api.openai.com"], "
listener = socket.socket()
listener.bind(('0.0.0.0', 8443))
listener.listen()
with socket.create_connection(('127.0.0.1', 8443), 5) as mine:
    listener.accept()[0].close()
    say('its own', mine.recv(9))
say('a stranger', dial('8.8.8.8', 8443, b'', patience=1))");
        assert_eq!(seen.said[0], "its own: b''");
        let denied = seen.denials.iter().any(|denial| denial.ends_with(" 8.8.8.8:8443 x1"));
        assert!(denied, "{seen:#?}");
        assert_untouched(setting);
    }

    /// Cases 18 to 20, H-14, H-15.
    fn no_other_way_of_connecting_leads_past_the_list(setting) {
        let seen = setting.run(&["api.openai.com"], "
def attempt(label, action):
    try:
        with socket.socket() as connection:
            connection.settimeout(10)
            result = action(connection)
            say(label, result)
    except OSError as error:
        say(label, told(error))
def fast(connection):
    connection.sendto(b'who\\n', 0x20000000, ('8.8.8.8', 443))
    return connection.recv(9)
def fast_connect(connection):
    connection.setsockopt(socket.IPPROTO_TCP, 30, 1)
    connection.connect(('8.8.8.8', 443))
    connection.send(b'who\\n')
    return connection.recv(9)
def again(connection):
    import ctypes
    connection.connect((resolve('api.openai.com'), 443))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.connect(connection.fileno(), bytes(16), 16):
        return 'no way back'
    connection.connect(('8.8.8.8', 443))
    return connection.recv(9)
def listens(connection):
    connection.bind(('8.8.4.4', 0))
    connection.connect(('8.8.8.8', 443))
    return connection.recv(9)
attempt('fast open', fast)
attempt('fast open connect', fast_connect)
attempt('connected again', again)
attempt('another own address', listens)
try:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    say('mptcp', 'exists')
except OSError as error:
    say('mptcp', told(error))");
        seen.assert_said("fast open: ENOTSUP
            fast open connect: reset
            connected again: reset
            another own address: reset
            mptcp: EPROTONOSUPPORT");
        seen.assert_denied(&["tcp ip-literal 8.8.8.8:443 x3"]);
        assert_untouched(setting);
    }

    /// H-19, and the meaning of a listed address.
    fn an_address_in_the_list_is_reached_at_its_port_only(setting) {
        let allowed = ["93.184.216.64:9000", "[2606:2800:220:1::64]:9000", "10.1.2.3:7777"];
        let seen = setting.run(&allowed, "
for address in '93.184.216.64', '2606:2800:220:1::64', '::ffff:93.184.216.64':
    say(address, dial(address, 9000), dial(address, 7777))
say('private', dial('10.1.2.3', 7777))
listener = socket.create_server(('127.0.0.1', 0))
with socket.create_connection(listener.getsockname()) as mine:
    other = listener.accept()[0]
    other.sendall(b'loopback')
    say('its own', mine.recv(9))");
        seen.assert_said("93.184.216.64: 93.184.216.64 9000 reset
            2606:2800:220:1::64: 2606:2800:220:1::64 9000 reset
            ::ffff:93.184.216.64: 93.184.216.64 9000 reset
            private: reset
            its own: b'loopback'");
        seen.assert_denied(&[
            "tcp port-not-allowed 93.184.216.64:7777 x2",
            "tcp port-not-allowed [2606:2800:220:1::64]:7777 x1",
            "tcp resolves-to-private 10.1.2.3:7777 x1",
        ]);
        assert_untouched(setting);
    }
}
