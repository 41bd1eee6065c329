//! `runner sandbox forward`.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use sys::link::{self, Message};

use crate::authority::{MALFORMED, VERSION, answer, connect};
use crate::host::{Host, Running};
use support::invariants::eventually;
use support::tcp::connections_send_at_once;
use support::{has_cgroup, skip};

/// A process that forwards; it ends with the sandbox.
struct Forwarding(Running);

impl Forwarding {
    fn start(host: &Host, flags: &[&str], ports: &[&str]) -> Self {
        let words = [&["sandbox", "forward"], flags, &["one"], ports].concat();
        Self(host.spawn(&words))
    }

    /// Forwards a free port, and returns its address.
    fn of(host: &Host, port: u16) -> (Self, SocketAddr) {
        let mut forwarding = Self::start(host, &[], &[&format!("0:{port}")]);
        let line = forwarding.line();
        let (address, inside) = line.split_once(" -> ").expect("an arrow");
        assert_eq!(inside, port.to_string());
        let address: SocketAddr = address.parse().expect("an address");
        assert!(address.ip().is_loopback(), "{line}");
        (forwarding, address)
    }

    fn line(&mut self) -> String {
        self.0.lines.next().expect("a line").expect("read")
    }

    /// Waits for its end. Returns exit code and standard error.
    fn end(self) -> (Option<i32>, String) {
        self.0.end()
    }

    /// Ends it. Returns standard error.
    fn kill(mut self) -> String {
        self.0.child.kill().expect("killed");
        let (code, stderr) = self.end();
        assert_eq!(code, None);
        stderr
    }
}

const SERVER: &str = include_str!("../bodies/sandboxes/server.py");

/// Starts a server in the sandbox, and waits until it listens.
fn serve(host: &Host, mode: &str, port: u16) {
    let number = port.to_string();
    let server = ["python3", "-c", SERVER, mode, &number];
    let words = [&["sandbox", "exec", "-d", "one", "--"], &server[..]].concat();
    let started = host.say(&words);
    assert_eq!(started.code, 0, "{started:?}");
    let listens = format!("cat /proc/net/tcp /proc/net/tcp6 | grep -q :{port:04X}");
    eventually("it listens", || host.shell("one", &listens).code == 0);
}

fn one() -> Host {
    let host = Host::new();
    host.create("one", &[]);
    host
}

/// Sends the bytes and the end of the stream. Returns what comes until the end.
fn ask(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(bytes).expect("written");
    stream.shutdown(Shutdown::Write).expect("shut down");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("read");
    answer
}

/// What comes until the end or an error of the connection.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => (),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    bytes
}

#[test]
fn a_server_in_the_sandbox_is_reached_from_the_host() {
    let host = one();
    host.detach(
        "one",
        "cd /scratch && echo hello > page && exec python3 -m http.server --bind 127.0.0.1 8000",
    );
    serve(&host, "http6", 8001);
    let mut forwarding = Forwarding::start(&host, &[], &["0:8000", "[::1]:0:8001"]);
    let addresses = [forwarding.line(), forwarding.line()];
    assert!(addresses[0].starts_with("127.0.0.1:") && addresses[0].ends_with(" -> 8000"));
    assert!(addresses[1].starts_with("[::1]:") && addresses[1].ends_with(" -> 8001"));
    for (line, path) in addresses.iter().zip(["/page", "/"]) {
        let (address, _) = line.split_once(" -> ").expect("an arrow");
        let get = || {
            Command::new("curl")
                .args([
                    "-sS",
                    "-f",
                    "--noproxy",
                    "*",
                    &format!("http://{address}{path}"),
                ])
                .output()
                .expect("curl starts")
        };
        eventually("it answers", || get().status.success());
        let body = String::from_utf8_lossy(&get().stdout).into_owned();
        assert!(
            body == "hello\n" || body.contains("Directory listing"),
            "{body}"
        );
    }
    forwarding.kill();
}

#[test]
fn the_end_of_one_direction_leaves_the_other_open_for_many_at_once() {
    let host = one();
    serve(&host, "count", 8000);
    let (forwarding, address) = Forwarding::of(&host, 8000);
    let open: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(address).expect("connected"))
        .collect();
    let bytes = vec![7; 3 << 20];
    assert_eq!(ask(address, &bytes), b"3145728");
    for (number, mut stream) in open.into_iter().enumerate() {
        stream.write_all(&bytes[..number]).expect("written");
        stream.shutdown(Shutdown::Write).expect("shut down");
        assert_eq!(rest(stream), number.to_string().into_bytes());
    }
    assert_eq!(forwarding.kill(), "");
}

/// A sandbox with a server that echoes, and a connection to it that works.
fn echoing() -> (Host, Forwarding, TcpStream) {
    let host = one();
    serve(&host, "echo", 8000);
    let (forwarding, address) = Forwarding::of(&host, 8000);
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(b"x").expect("written");
    stream.read_exact(&mut [0]).expect("read");
    (host, forwarding, stream)
}

/// A small piece that follows another would wait for its acknowledgement otherwise.
#[test]
fn both_ends_of_a_connection_send_at_once() {
    let (_host, forwarding, stream) = echoing();
    let pid = rustix::process::Pid::from_child(&forwarding.0.child);
    assert_eq!(connections_send_at_once(pid), [true; 2]);
    drop(stream);
    assert_eq!(forwarding.kill(), "");
}

/// a port of the host, with and without a network of the sandbox.
#[test]
fn a_port_of_the_loopback_of_the_host_is_not_reached() {
    let outside = TcpListener::bind("127.0.0.1:0").expect("bound");
    let outside_v6 = TcpListener::bind(("::1", outside.local_addr().expect("bound").port()));
    let port = outside.local_addr().expect("bound").port();
    let host = Host::new();
    for flags in [
        &[][..],
        &["--report-denials"],
        &["--allow-net", "example.com", "-p", "0:9"],
    ] {
        let create = [&["sandbox", "create", "--name", "one"], flags].concat();
        assert_eq!(host.say(&create).code, 0);
        let (forwarding, address) = Forwarding::of(&host, port);
        let stream = TcpStream::connect(address).expect("connected");
        assert_eq!(rest(stream), b"");
        let said = forwarding.kill();
        assert!(said.contains("(no_listener)"), "{flags:?}: {said}");
        assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
    }
    for listener in [Some(outside), outside_v6.ok()].into_iter().flatten() {
        listener.set_nonblocking(true).expect("set");
        let error = listener.accept().expect_err("nobody came");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

///
#[test]
fn a_server_that_floods_or_reads_nothing_holds_up_nobody() {
    let host = one();
    serve(&host, "flood", 8000);
    serve(&host, "echo", 8001);
    let mut forwarding = Forwarding::start(&host, &[], &["0:8000", "0:8001"]);
    let mut address = || -> SocketAddr {
        let line = forwarding.line();
        let (address, _) = line.split_once(" -> ").expect("an arrow");
        address.parse().expect("an address")
    };
    let [flood, echo] = [address(), address()];
    let streams = [(); 8].map(|()| TcpStream::connect(flood).expect("connected"));
    for stream in &streams {
        (&mut &*stream).read_exact(&mut [0]).expect("it writes");
        stream.set_nonblocking(true).expect("set");
        // Until all buffers on the way are full.
        eventually("it takes no more", || {
            let mut stream = stream;
            let mut written = 0;
            let error = loop {
                match stream.write(&[1; 65_536]) {
                    Ok(count) => written += count,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            written == 0
        });
    }
    assert_eq!(ask(echo, b"through"), b"through");
    let status = std::fs::read_to_string(format!("/proc/{}/status", forwarding.0.child.id()));
    let status = status.expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak_kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse().ok());
    assert!(
        peak_kib.is_some_and(|peak_kib: u64| peak_kib < 64 << 10),
        "{status}"
    );
    drop(streams);
    assert_eq!(forwarding.kill(), "");
}

#[test]
fn the_end_of_the_sandbox_ends_the_connections_and_the_forwarding() {
    let (host, forwarding, stream) = echoing();
    let busy = host.say(&["sandbox", "rm", "one"]);
    assert!(
        busy.stderr.contains("(sandbox_busy)"),
        "the server runs: {busy:?}"
    );
    assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
    assert_eq!(rest(stream), b"");
    let (code, stderr) = forwarding.end();
    assert_eq!(code, Some(125));
    assert!(
        stderr.contains("the sandbox one has ended (sandbox_ended)"),
        "{stderr}"
    );
    host.assert_empty();
}

#[test]
fn a_connection_to_a_paused_sandbox_is_refused_until_it_is_resumed() {
    if !has_cgroup() {
        return skip("without a cgroup there may be no freezer");
    }
    let host = one();
    serve(&host, "count", 8000);
    let (forwarding, address) = Forwarding::of(&host, 8000);
    assert_eq!(host.say(&["sandbox", "pause", "one"]).code, 0);
    assert_eq!(rest(TcpStream::connect(address).expect("connected")), b"");
    assert_eq!(host.say(&["sandbox", "resume", "one"]).code, 0);
    assert_eq!(ask(address, b"abc"), b"3");
    let said = forwarding.kill();
    assert_eq!(said.matches("runner: warning: ").count(), 1, "{said}");
    assert!(said.contains("(sandbox_paused)"), "{said}");
}

/// E-34.
#[test]
fn a_connection_resumes_a_sandbox_that_was_paused_by_its_idle_time() {
    if !has_cgroup() {
        return skip("without a cgroup there may be no freezer");
    }
    let host = Host::new();
    host.create("one", &["--pause-after-idle", "1s"]);
    start_in_background(&host, "echo");
    let (forwarding, address) = Forwarding::of(&host, 8000);
    for _twice in 0..2 {
        eventually("it is paused", || host.list()[0]["is_paused"] == true);
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.write_all(b"x").expect("written");
        stream.read_exact(&mut [0]).expect("read");
        assert_eq!(host.list()[0]["is_paused"], false);
    }
    assert_eq!(forwarding.kill(), "");
}

/// Starts a server at port 8000 that is no command.
fn start_in_background(host: &Host, mode: &str) {
    let script = "python3 -c \"$SERVER\" $0 8000 > /dev/null 2>&1 &
        until grep -q :1F40 /proc/net/tcp; do sleep 0.05; done";
    let variable = format!("SERVER={SERVER}");
    let words = [
        "sandbox", "exec", "-e", &variable, "one", "--", "sh", "-c", script, mode,
    ];
    assert_eq!(host.say(&words).code, 0);
}

/// E-34.
#[test]
fn a_sandbox_with_a_connection_is_not_idle() {
    let host = Host::new();
    host.create("one", &["--idle-timeout", "1s", "--grace", "0s"]);
    start_in_background(&host, "echo");
    let (forwarding, address) = Forwarding::of(&host, 8000);
    let stream = TcpStream::connect(address).expect("connected");
    let echo = || {
        let mut stream = &stream;
        stream
            .write_all(b"x")
            .and_then(|()| stream.read_exact(&mut [0]))
    };
    let begin = Instant::now();
    eventually("more than its time has passed", || {
        echo().expect("the sandbox is there");
        begin.elapsed() > Duration::from_millis(2_500)
    });
    drop(stream);
    // The forwarding alone is no use of it.
    let (code, stderr) = forwarding.end();
    assert_eq!(code, Some(125), "{stderr}");
    eventually("nothing is left", || host.files("runs").is_empty());
}

#[test]
fn what_cannot_be_forwarded_is_refused() {
    let host = one();
    let code = |words: &[&str]| {
        let said = host.say(&[&["sandbox", "forward"], words].concat());
        assert_eq!((said.code, &*said.stdout), (125, ""), "{said:?}");
        said.stderr
    };
    for port in [
        "0",
        "65536",
        "-1",
        "x",
        "",
        "8000:",
        "8000:0",
        "1:2:3",
        "999999999999:80",
        "localhost:1:2",
    ] {
        let said = code(&["one", "--", port]);
        assert!(said.contains("(usage)"), "{port}: {said}");
    }
    assert!(code(&["one"]).contains("(usage)"));
    assert!(code(&["other", "0:80"]).contains("(no_sandbox)"));
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = taken.local_addr().expect("bound").port().to_string();
    let said = code(&["one", &port]);
    assert!(
        said.contains("(port_unavailable)") && said.contains(&format!("0:{port}")),
        "{said}"
    );
}

const CONNECT: u32 = 11;
const WAIT: u32 = 12;
const DONE: Option<(u32, i32)> = Some((19, 0));

fn request(host: &Host, kind: u32, values: [i32; 2]) -> OwnedFd {
    let link = connect(host);
    let [port, is_v6] = values;
    let message = Message::with(kind, [VERSION, port, is_v6]);
    link::send(link.as_fd(), message, &[]).expect("sent");
    link
}

///
#[test]
fn connections_of_clients_are_bounded_and_nonsense_about_ports_is_refused() {
    let host = one();
    serve(&host, "echo", 8000);
    for port in [0, -1, 65_536, i32::MIN, i32::MAX] {
        assert_eq!(
            answer(&request(&host, CONNECT, [port, 0])),
            MALFORMED,
            "{port}"
        );
    }
    let connected: Vec<OwnedFd> = (0..64)
        .flat_map(|_| {
            [
                request(&host, CONNECT, [8000, 0]),
                request(&host, WAIT, [0, 0]),
            ]
        })
        .collect();
    for link in &connected {
        assert_eq!(answer(link), DONE);
    }
    let full = Some((20, 10));
    for (kind, port) in [(CONNECT, 8000), (WAIT, 0)] {
        assert_eq!(answer(&request(&host, kind, [port, 0])), full);
    }
    assert_eq!(host.shell("one", "echo on").stdout, "on\n");
    // A client that speaks again, or leaves, has no connection any more.
    link::send(
        connected[0].as_fd(),
        Message::with(CONNECT, [VERSION, 8000, 0]),
        &[],
    )
    .expect("sent");
    assert_eq!(answer(&connected[0]), MALFORMED);
    eventually("there is room", || {
        answer(&request(&host, CONNECT, [8000, 0])) == DONE
    });
    drop(connected);
    assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
}
