//! Which connections are allowed and denied, by name, port and first bytes.

use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use spec::network::Capture;

use crate::ground::{
    Ground, Plan, answer, ask, connect, dial, enter, exchange, hello, is_reset, question,
};

#[test]
fn an_allowed_name_is_reached_if_the_first_bytes_name_it() {
    if !enter("decisions::an_allowed_name_is_reached_if_the_first_bytes_name_it") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let request = b"GET / HTTP/1.1\r\nHost: api.openai.com\r\n\r\n";
    let hello = hello(&["api.openai.com"], false);
    let sent = hello.clone();
    let (secure, plain, raw) = ground.act(move || {
        let mut secure = dial("API.openai.com", 443);
        // First single bytes, then the rest at once.
        for byte in &sent[..40] {
            secure.write_all(&[*byte]).expect("written");
        }
        secure.write_all(&sent[40..]).expect("written");
        let mut back = vec![0; sent.len()];
        secure.read_exact(&mut back).expect("echoed");
        let plain = exchange(&mut dial("a.anthropic.com", 8080), b"anything");
        let raw = exchange(&mut dial("api.openai.com", 80), request);
        (back, plain, raw)
    });
    assert!(secure == hello);
    assert_eq!(plain, b"anything");
    assert_eq!(raw, request);
    assert_eq!(
        ground.outside.dialled(),
        [
            "93.184.216.34:443",
            "93.184.216.34:8080",
            "93.184.216.34:80"
        ]
    );
    assert_eq!(ground.outside.all_asked(), 0, "the hosts file knows them");
    let outcome = ground.finish();
    assert_eq!(outcome.denials.distinct().count(), 0);
    let mut traffic: Vec<(&str, u64, u64, u64)> = outcome
        .report
        .hosts
        .iter()
        .map(|host| {
            let bytes = (host.sent_bytes, host.received_bytes);
            (host.host.as_str(), host.connections, bytes.0, bytes.1)
        })
        .collect();
    traffic.sort_unstable();
    let both = (hello.len() + request.len()) as u64;
    assert_eq!(
        traffic,
        [
            ("a.anthropic.com", 1, 8, 8),
            ("api.openai.com", 2, both, both)
        ]
    );
}

#[test]
fn literals_other_ports_and_other_names_are_reset_and_nothing_is_dialled() {
    if !enter("decisions::literals_other_ports_and_other_names_are_reset_and_nothing_is_dialled") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    ground.act(|| {
        for to in [
            "93.184.216.34:443",
            "169.254.169.254:80",
            "[fd00:ec2::254]:80",
            "[::ffff:169.254.169.254]:80",
            "198.18.0.200:443",
            "198.51.100.1:8080",
        ] {
            assert!(is_reset(&mut connect(to)), "{to}");
        }
        assert!(is_reset(&mut dial("db.example", 443)));
        for (host, code) in [
            ("evil.com", 3),
            ("anthropic.com", 3),
            ("evilanthropic.com", 3),
            ("api.openai.com.evil.com", 3),
            ("a.b.anthropic.com", 0),
        ] {
            assert_eq!(ask(host).0, code, "{host}");
        }
    });
    assert_eq!(ground.outside.dialled(), [""; 0]);
    assert_eq!(
        ground.denials(),
        [
            "tcp 93.184.216.34:443 ip-literal x1",
            "tcp 169.254.169.254:80 ip-literal x2",
            "tcp fd00:ec2::254:80 ip-literal x1",
            "tcp 198.18.0.200:443 ip-literal x1",
            "tcp 198.51.100.1:8080 ip-literal x1",
            "tcp db.example:443 port-not-allowed x1",
            "dns evil.com name-not-allowed x1",
            "dns anthropic.com name-not-allowed x1",
            "dns evilanthropic.com name-not-allowed x1",
            "dns api.openai.com.evil.com name-not-allowed x1",
        ]
    );
}

#[test]
fn first_bytes_that_name_another_host_or_none_are_denied() {
    if !enter("decisions::first_bytes_that_name_another_host_or_none_are_denied") {
        return;
    }
    let mut ground = Ground::new(Plan {
        refuse_ech: true,
        ..Plan::default()
    });
    ground.act(|| {
        let request = |head: &str| head.replace('|', "\r\n").into_bytes();
        for (port, bytes) in [
            (443, hello(&["evil.com"], false)),
            (443, hello(&[], false)),
            (443, hello(&["93.184.216.34"], false)),
            (443, hello(&["api.openai.com", "evil.com"], false)),
            (443, hello(&["api.openai.com\0.evil.com"], false)),
            (443, hello(&["api.openai.com"], true)),
            (443, b"SSH-2.0-x\r\n".to_vec()),
            (80, request("GET / HTTP/1.1|Host: evil.com||")),
            (
                80,
                request("GET / HTTP/1.1|Host: api.openai.com|Host: evil.com||"),
            ),
            (
                80,
                request("GET http://evil.com/ HTTP/1.1|Host: api.openai.com||"),
            ),
            (80, request("GET / HTTP/1.1|Host : api.openai.com||")),
            (80, b"raw\n".to_vec()),
        ] {
            let mut stream = dial("api.openai.com", port);
            stream.write_all(&bytes).expect("written");
            assert!(is_reset(&mut stream), "{port} {bytes:?}");
        }
    });
    assert_eq!(ground.outside.dialled(), [""; 0]);
    assert_eq!(
        ground.denials(),
        [
            "tcp api.openai.com:443 sni-mismatch x4",
            "tcp api.openai.com:443 no-sni x1",
            "tcp api.openai.com:443 ech x1",
            "tcp api.openai.com:443 not-tls x1",
            "tcp api.openai.com:80 host-mismatch x5",
        ]
    );
}

#[test]
fn a_silent_connection_on_443_is_closed_at_its_timeout() {
    if !enter("decisions::a_silent_connection_on_443_is_closed_at_its_timeout") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let silent = ground.body.start(|| {
        let mut silent = dial("api.openai.com", 443);
        silent.write_all(&[22, 3]).expect("written");
        is_reset(&mut silent)
    });
    ground.until(|ground| ground.has_deadline());
    ground.skip(Duration::from_millis(4_500));
    for _ in 0..20 {
        ground.act(|| ());
    }
    assert!(silent.try_recv().is_err(), "there is still time");
    ground.skip(Duration::from_secs(1));
    assert!(ground.wait(&silent));
    assert_eq!(ground.denials(), ["tcp api.openai.com:443 not-tls x1"]);
}

#[test]
fn dns_queries_are_answered_over_udp_and_tcp_at_every_address() {
    if !enter("decisions::dns_queries_are_answered_over_udp_and_tcp_at_every_address") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    ground.act(|| {
        let mut seen = Vec::new();
        for server in ["8.8.8.8:53", "169.254.169.253:53", "[2001:4860::8888]:53"] {
            let mut stream = connect(server);
            // Two queries at once, the second one in two parts.
            for (name, kind, cut) in [("api.openai.com", 1, 0), ("evil.com", 16, 7)] {
                let message = question(name, kind);
                let length = u16::try_from(message.len()).expect("short");
                let framed = [&length.to_be_bytes(), message.as_slice()].concat();
                stream.write_all(&framed[..cut]).expect("written");
                stream.write_all(&framed[cut..]).expect("written");
            }
            for _ in 0..2 {
                let mut length = [0; 2];
                stream.read_exact(&mut length).expect("answered");
                let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut message).expect("answered");
                seen.push(answer(&message));
            }
        }
        let (_, address) = ask("api.openai.com");
        assert_eq!(seen, [[(0, address), (3, None)]; 3].concat());
        let socket = UdpSocket::bind("[::]:0").expect("bound");
        socket.connect("[2001:4860::8888]:53").expect("connected");
        for (kind, code) in [(28, 0), (65, 0), (64, 0), (16, 0), (255, 0)] {
            socket
                .send(&question("api.openai.com", kind))
                .expect("sent");
            let mut buffer = [0; 512];
            let read = socket.recv(&mut buffer).expect("answered");
            assert_eq!(answer(&buffer[..read]), (code, None), "{kind}");
        }
        // A malformed message is refused and affects no other query.
        let mut long = connect("8.8.8.8:53");
        long.write_all(&[0xff; 4]).expect("written");
        assert!(is_reset(&mut long));
        let mut strange = question("a", 1);
        strange[13] = b'\n';
        socket.send(&strange).expect("sent");
        let mut buffer = [0; 512];
        let read = socket.recv(&mut buffer).expect("answered");
        assert_eq!(answer(&buffer[..read]), (3, None));
    });
    assert_eq!(ground.outside.all_asked(), 0, "nothing is forwarded");
    assert_eq!(
        ground.denials(),
        [
            "dns evil.com name-not-allowed x3",
            "dns \\x0a name-not-allowed x1"
        ]
    );
}

#[test]
fn packets_without_a_listener_get_the_same_decisions_as_connections() {
    if !enter("decisions::packets_without_a_listener_get_the_same_decisions_as_connections") {
        return;
    }
    let (ours, log) = UnixDatagram::pair().expect("a pair");
    log.set_nonblocking(true).expect("set");
    let mut ground = Ground::new(Plan {
        log: Some(log.into()),
        ..Plan::default()
    });
    let synthetic = ground.act(|| ask("api.openai.com").1.expect("an address"));
    let packet = |protocol: u8, to: std::net::Ipv4Addr, port: u16| {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        packet[9] = protocol;
        packet[16..20].copy_from_slice(&to.octets());
        packet[22..24].copy_from_slice(&port.to_be_bytes());
        packet[33] = 0x02;
        packet
    };
    for (protocol, to, port) in [
        (6, synthetic, 22),
        (6, synthetic, 443),
        (6, [8, 8, 8, 8].into(), 25),
        (6, [127, 0, 0, 1].into(), 25),
        (17, [8, 8, 8, 8].into(), 53),
        (17, [8, 8, 8, 8].into(), 443),
        (17, synthetic, 443),
        (132, [8, 8, 8, 8].into(), 1),
        (47, [8, 8, 8, 8].into(), 0),
    ] {
        ours.send(&packet(protocol, to, port)).expect("sent");
    }
    ours.send(b"nothing").expect("sent");
    ground.act(|| ask("evil.com"));
    let mut denials = ground.denials();
    denials.sort();
    assert_eq!(
        denials,
        [
            "47 8.8.8.8 proto x1",
            "dns evil.com name-not-allowed x1",
            "sctp 8.8.8.8:1 proto x1",
            "tcp 8.8.8.8:25 ip-literal x1",
            "tcp api.openai.com:22 port-not-captured x1",
            "udp 8.8.8.8:443 proto x1",
            "udp api.openai.com:443 proto x1",
        ]
    );
}

#[test]
fn missing_log_messages_are_counted() {
    if !enter("decisions::missing_log_messages_are_counted") {
        return;
    }
    let (ours, log) = UnixDatagram::pair().expect("a pair");
    log.set_nonblocking(true).expect("set");
    let ground = Ground::new(Plan {
        log: Some(log.into()),
        capture: Capture::Tproxy,
        ..Plan::default()
    });
    let message = |sequence: u32| {
        let mut packet = vec![0; 28];
        packet[0] = 0x45;
        packet[9] = 17;
        packet[16..20].copy_from_slice(&[8, 8, 8, 8]);
        packet[22..24].copy_from_slice(&443_u16.to_be_bytes());
        let attributes = [
            &8_u16.to_ne_bytes()[..],
            &12_u16.to_ne_bytes(),
            &sequence.to_be_bytes(),
            &32_u16.to_ne_bytes(),
            &9_u16.to_ne_bytes(),
            &packet,
        ]
        .concat();
        let length = u32::try_from(20 + attributes.len()).expect("short");
        let header = [
            &length.to_ne_bytes()[..],
            &0x400_u16.to_ne_bytes(),
            &[0; 10],
            &[0; 4],
        ];
        [header.concat(), attributes].concat()
    };
    for sequence in [0, 1, 5, 6] {
        ours.send(&message(sequence)).expect("sent");
    }
    let outcome = ground.finish();
    assert_eq!(crate::ground::shown(&outcome), ["udp 8.8.8.8:443 proto x4"]);
    assert_eq!(outcome.report.lost_datagrams, 3);
}
