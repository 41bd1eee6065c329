//! Sockets: which families exist, and whom one reaches.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::attempts::{assert_lines, attempt, attempt_with};
use support::{Ground, random};

/// Whether the kernel of the host has IPv6 at all: `ipv6.disable=1` leaves the family out, and nobody in
/// a sandbox can get what is not there.
fn has_ipv6() -> bool {
    let socket = std::net::UdpSocket::bind("[::]:0");
    !socket.is_err_and(|error| error.raw_os_error() == Some(libc::EAFNOSUPPORT))
}

/// Tries to reach a listener and a datagram socket of the host by their names, through every kind of
/// socket that a body could have.
const REACH: &str = r#"
static struct sockaddr_un name_of(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strncpy(name.sun_path, path, sizeof name.sun_path - 1);
    return name;
}
int main(int count, char **words) {
    struct sockaddr_un stream = name_of(words[1]), datagram = name_of(words[2]);
    int pair[2], fd = socket(AF_UNIX, SOCK_STREAM, 0), kept = errno;
    try("stream", fd < 0 ? (errno = kept, fd) : connect(fd, (void *)&stream, sizeof stream));
    fd = socket(AF_UNIX, SOCK_DGRAM, 0), kept = errno;
    try("datagram", fd < 0 ? (errno = kept, fd) : sendto(fd, "x", 1, 0, (void *)&datagram, sizeof datagram));
    fd = socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), kept = errno;
    try("pair of datagrams", fd < 0 ? (errno = kept, fd) : sendto(pair[0], "x", 1, 0, (void *)&datagram, sizeof datagram));
    try("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    try("pair to a name", connect(pair[0], (void *)&stream, sizeof stream));
    close(pair[1]);
    try("left pair to a name", connect(pair[0], (void *)&stream, sizeof stream));
    try("pair of packets", socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    try("packets to a name", sendto(pair[0], "x", 1, 0, (void *)&stream, sizeof stream));
    return 0;
}
"#;

/// B-63: what listens outside is out of reach, however its directory is lent, also what begins to
/// listen later; a named socket is not, and nothing beside it.
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
    // Landlock of version 9 refuses the name, and the filter before that the socket.
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
    }
    let named = ["--socket", &stream][..].to_vec();
    let done = attempt_with(&ground, &named, "reach-names", REACH, &words);
    assert!(
        done.text().starts_with("stream ok\ndatagram E"),
        "{done:#?}"
    );
    assert!(listener.accept().is_ok() && receiver.recv(&mut [0; 8]).is_err());
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
    let text = r#"
int main(int count, char **words) {
    int six = atoi(words[1]);
    int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET, SOCK_DCCP, SOCK_PACKET};
    for (int family = 0; family < 64; family++) {
        for (int at = 0; at < 7; at++) {
            errno = 0;
            int fd = socket(family, types[at], 0);
            int answer = errno;
            if (fd >= 0) { printf("%d %d\n", family, types[at]); close(fd); continue; }
            int known = family == 1 || family == 2 || family == 10 || family == 16;
            if (family == 10 && !six && answer == EAFNOSUPPORT) continue;
            if (answer != (known ? EPROTONOSUPPORT : EAFNOSUPPORT))
                printf("%d %d %s\n", family, types[at], strerrorname_np(answer));
        }
        errno = 0;
        if (socket(family, SOCK_STREAM, 77) >= 0) printf("%d with protocol 77\n", family);
        int pair[2];
        errno = 0;
        if (socketpair(family, SOCK_STREAM, 0, pair) == 0) printf("pair %d\n", family);
        else if (errno != EAFNOSUPPORT) printf("pair %d %s\n", family, strerrorname_np(errno));
    }
    return 0;
}
"#;
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

/// B-38, H-14: protocols that pass Landlock's rules on TCP, and the upper half of the registers.
#[test]
fn other_protocols_of_allowed_families_are_refused() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    for (int family = 2; family <= 10; family += 8) {
        try("mptcp", socket(family, SOCK_STREAM, 262));
        try("sctp", socket(family, SOCK_STREAM, 132));
        try("ping", socket(family, SOCK_DGRAM, family == 2 ? 1 : 58));
        try("udplite", socket(family, SOCK_DGRAM, 136));
        try("raw", socket(family, SOCK_RAW, 255));
        try("tcp", socket(family, SOCK_STREAM, 6));
        try("udp", socket(family, SOCK_DGRAM, 17));
    }
    for (int protocol = 1; protocol < 32; protocol++)
        if (socket(AF_NETLINK, SOCK_RAW, protocol) >= 0 || errno != EPROTONOSUPPORT) printf("netlink %d\n", protocol);
    try("packet, high", syscall(SYS_socket, 0x100000011UL, SOCK_RAW, 0));
    try("mptcp, high", syscall(SYS_socket, 0x100000002UL, SOCK_STREAM, 0x100000106UL));
    try("flags", socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return 0;
}
"#;
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

/// B-39 (CVE-2020-15257, CVE-2024-27297): the host's names are another namespace's.
#[test]
fn an_abstract_socket_of_the_host_cannot_be_reached() {
    let ground = Ground::new();
    let name = format!("escape-{}", random());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _listener = UnixListener::bind_addr(&address).expect("bound");
    let text = r#"
int main(int count, char **words) {
    struct sockaddr_un name = {AF_UNIX, ""};
    memcpy(name.sun_path + 1, words[1], strlen(words[1]));
    socklen_t size = sizeof(sa_family_t) + 1 + strlen(words[1]);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    try("connect", connect(fd, (void *)&name, size));
    try("bind", bind(fd, (void *)&name, size));
    return 0;
}
"#;
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

/// H-02, H-13: nothing but the sandbox's own loopback, on which the host's services are not.
#[test]
fn the_host_s_loopback_services_and_the_network_cannot_be_reached() {
    let ground = Ground::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener
        .local_addr()
        .expect("an address")
        .port()
        .to_string();
    let text = r#"
static long reach(const char *address, int port, int type) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &at.sin_addr);
    int fd = socket(AF_INET, type, 0);
    long result = connect(fd, (void *)&at, sizeof at);
    int kept = errno;
    close(fd);
    errno = kept;
    return result;
}
int main(int count, char **words) {
    try("loopback", reach("127.0.0.1", atoi(words[1]), SOCK_STREAM));
    try("metadata", reach("169.254.169.254", 80, SOCK_STREAM));
    try("private", reach("10.0.0.1", 53, SOCK_DGRAM));
    try("documentation", reach("192.0.2.1", 443, SOCK_STREAM));
    struct ifaddr_count { int n; };
    FILE *devices = fopen("/proc/net/dev", "r");
    char line[256];
    while (fgets(line, sizeof line, devices)) {
        char *colon = strchr(line, ':');
        if (colon) { *colon = 0; printf("device %s\n", line + strspn(line, " ")); }
    }
    return 0;
}
"#;
    let done = attempt_with(&ground, &[], "reach", text, &[&port]);
    let text = done.text();
    let mut lines: Vec<&str> = text.lines().collect();
    // A kernel may give each namespace a fallback device or two; they are down.
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
    let text = r#"
int main(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 9;
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct mmsghdr messages = {.msg_hdr = message};
    try("oob", send(pair[0], &byte, 1, MSG_OOB));
    try("oob msg", sendmsg(pair[0], &message, MSG_OOB));
    try("oob mmsg", sendmmsg(pair[0], &messages, 1, MSG_OOB));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(9)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    try("fastopen", sendto(fd, &byte, 1, MSG_FASTOPEN, (void *)&at, sizeof at));
    message.msg_name = &at;
    message.msg_namelen = sizeof at;
    try("fastopen msg", sendmsg(fd, &message, MSG_FASTOPEN));
    try("high", syscall(SYS_sendto, fd, &byte, 1, 0x100000000UL | MSG_FASTOPEN, &at, sizeof at));
    try("plain", send(pair[0], &byte, 1, MSG_NOSIGNAL));
    return 0;
}
"#;
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
