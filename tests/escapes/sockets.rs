//! Sockets: which families exist, and what they reach.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::attempts::{assert_lines, attempt, attempt_with};
use support::{Ground, random};

/// Whether the host's kernel has IPv6: with `ipv6.disable=1` the family does not exist in a sandbox either.
fn has_ipv6() -> bool {
    let socket = std::net::UdpSocket::bind("[::]:0");
    !socket.is_err_and(|error| error.raw_os_error() == Some(libc::EAFNOSUPPORT))
}

/// Tries to reach a stream and a datagram socket of the host by name, through every kind of socket
/// that a body can have.
const REACH: &str = include_str!("../bodies/escapes/sockets_reach.c");

/// B-63: listeners outside are out of reach, even in a mounted directory, also those that start
/// later; a socket that is mounted by name is reachable, and nothing beside it.
#[test]
fn a_socket_of_the_host_in_a_lent_directory_is_out_of_reach() {
    let ground = Ground::new();
    let lent = ground.path("lent");
    std::fs::create_dir(&lent).expect("made");
    let (stream, datagram) = (lent.join("stream"), lent.join("datagram"));
    let listener = UnixListener::bind(&stream).expect("bound");
    listener.set_nonblocking(true).expect("set");
    let receiver = std::os::unix::net::UnixDatagram::bind(&datagram).expect("bound");
    receiver.set_nonblocking(true).expect("set");
    for path in [&stream, &datagram] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, mode).expect("set");
    }
    let text = |path: &std::path::Path| path.to_str().expect("plain").to_owned();
    let (stream, datagram, lent) = (text(&stream), text(&datagram), text(&lent));
    let words = [stream.as_str(), datagram.as_str()];
    let elsewhere = format!("{lent}:{lent}");
    // Landlock with ABI 9 refuses the name, and the filter refuses the socket before.
    let by_name = sys::landlock::abi().is_ok_and(|abi| 9 <= abi);
    let refused = if by_name { "EACCES" } else { "EAFNOSUPPORT" };
    for flags in [
        &["--ro", &lent][..],
        &["--rw", &lent],
        &["--mount", &elsewhere],
        &["--ro", &stream, "--ro", &datagram],
    ] {
        let done = attempt_with(&ground, flags, "reach-names", REACH, &words);
        let expected = format!(
            "stream {refused}
            datagram {refused}
            pair of datagrams {refused}
            raw pair {refused}
            pair ok
            pair to a name EISCONN
            left pair to a name EISCONN
            pair of packets ok
            packets to a name ok"
        );
        assert_lines(&done, &expected);
        assert!(listener.accept().is_err(), "{flags:?}");
        assert!(receiver.recv(&mut [0; 8]).is_err(), "{flags:?}");
        let axis = &done.report["enforcement"]["unix_sockets"];
        assert_eq!(axis["state"], "enforced", "{flags:?}");
        // The filter asks nobody.
        let observed = if by_name { "observed" } else { "partial" };
        let of_calls = &done.report["observation"]["syscalls"];
        assert_eq!(of_calls["state"], observed, "{of_calls}");
    }
    let named = ["--socket", &stream][..].to_vec();
    let done = attempt_with(&ground, &named, "reach-names", REACH, &words);
    assert!(
        done.text().starts_with("stream ok\ndatagram E"),
        "{done:#?}"
    );
    assert!(listener.accept().is_ok() && receiver.recv(&mut [0; 8]).is_err());
    assert_eq!(done.report["observation"]["syscalls"]["state"], "observed");
    let beside = ["--socket", &stream, "--ro", &lent];
    if by_name {
        let done = attempt_with(&ground, &beside, "reach-names", REACH, &words);
        assert!(
            done.text().starts_with("stream ok\ndatagram E"),
            "{done:#?}"
        );
        assert!(listener.accept().is_ok() && receiver.recv(&mut [0; 8]).is_err());
    } else {
        let done = ground.run(&beside, &["/bin/true"]);
        done.assert_error("refused", "socket_beside_directories");
    }
    let accepted = ["--unix-sockets", "--ro", &lent];
    let done = attempt_with(&ground, &accepted, "reach-names", REACH, &words);
    assert!(
        done.text().starts_with("stream ok\ndatagram ok\n"),
        "{done:#?}"
    );
    let axis = &done.report["enforcement"]["unix_sockets"];
    assert_eq!(axis["state"], "weaker", "{axis}");
}

/// B-38 (CVE-2017-7308, CVE-2020-14386, CVE-2021-26708, CVE-2025-21756 …).
#[test]
fn of_all_socket_families_only_the_four_that_are_allowed_exist() {
    let ground = Ground::new();
    let text = include_str!(
        "../bodies/escapes/of_all_socket_families_only_the_four_that_are_allowed_exist.c"
    );
    let (word, six) = if has_ipv6() {
        ("1", "10 1\n10 2\n")
    } else {
        ("0", "")
    };
    assert_lines(
        &attempt_with(&ground, &[], "families", text, &[word]),
        &format!("1 1\n1 2\n1 5\npair 1\n2 1\n2 2\n{six}16 2\n16 3"),
    );
}

/// B-38, H-14: protocols that pass Landlock's TCP rules, and the upper half of the registers.
#[test]
fn other_protocols_of_allowed_families_are_refused() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/other_protocols_of_allowed_families_are_refused.c");
    let refused = "mptcp EPROTONOSUPPORT
        sctp EPROTONOSUPPORT
        ping EPROTONOSUPPORT
        udplite EPROTONOSUPPORT
        raw EPROTONOSUPPORT\n";
    let of_six = if has_ipv6() { "ok" } else { "EAFNOSUPPORT" };
    assert_lines(
        &attempt(&ground, "protocols", text),
        &format!(
            "{refused}tcp ok\nudp ok\n{refused}tcp {of_six}\nudp {of_six}
            packet, high EAFNOSUPPORT\nmptcp, high EPROTONOSUPPORT\nflags EAFNOSUPPORT"
        ),
    );
}

/// B-39 (CVE-2020-15257, CVE-2024-27297): abstract names of the host are in another namespace.
#[test]
fn an_abstract_socket_of_the_host_cannot_be_reached() {
    let ground = Ground::new();
    let name = format!("escape-{}", random());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _listener = UnixListener::bind_addr(&address).expect("bound");
    let text = include_str!("../bodies/escapes/an_abstract_socket_of_the_host_cannot_be_reached.c");
    let done = attempt_with(&ground, &[], "abstract", text, &[&name]);
    let answers = done.text();
    assert!(
        matches!(
            answers.as_str(),
            "connect ECONNREFUSED\nbind ok\n" | "connect EPERM\nbind ok\n"
        ),
        "{answers}"
    );
}

/// H-02, H-13: only the sandbox's own loopback, where no service of the host listens.
#[test]
fn the_host_s_loopback_services_and_the_network_cannot_be_reached() {
    let ground = Ground::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener
        .local_addr()
        .expect("an address")
        .port()
        .to_string();
    let text = include_str!(
        "../bodies/escapes/the_host_s_loopback_services_and_the_network_cannot_be_reached.c"
    );
    let done = attempt_with(&ground, &[], "reach", text, &[&port]);
    let text = done.text();
    let mut lines: Vec<&str> = text.lines().collect();
    // A kernel may give each namespace fallback devices; they are down.
    lines.retain(|line| !line.starts_with("device ") || *line == "device lo");
    assert_eq!(
        lines,
        [
            "loopback ECONNREFUSED",
            "metadata ENETUNREACH",
            "private ENETUNREACH",
            "documentation ENETUNREACH",
            "device lo"
        ]
    );
}

/// B-54 (CVE-2025-38236), H-15.
#[test]
fn flags_that_go_round_the_rules_are_refused_when_sending() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/flags_that_go_round_the_rules_are_refused_when_sending.c");
    assert_lines(
        &attempt(&ground, "send-flags", text),
        "oob EOPNOTSUPP
        oob msg EOPNOTSUPP
        oob mmsg EOPNOTSUPP
        fastopen EOPNOTSUPP
        fastopen msg EOPNOTSUPP
        high EOPNOTSUPP
        plain ok",
    );
}
