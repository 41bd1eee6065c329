//! Three connected networks, as in a run: the body's, in which every address is local; the host's,
//! where the relay runs; and the outside, which the host reaches over a veth link.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use runner_egress::allow::Allowlist;
use runner_egress::dialler::{Dialler, Settings};
use runner_egress::outcome::Outcome;
use runner_egress::relay::{Published, Relay, Rules, Sockets};
use runner_egress::resolver::Resolver;
use spec::egress::EgressRule;
use spec::host_name::HostName;
use spec::network::Capture;
use spec::parse_permit::ParsePermit;
use spec::sources_policy::IpRange;
use sys::namespace;

use crate::outside::Outside;

/// A limit for hangs. Not an assertion about speed.
const HANG_AFTER: Duration = Duration::from_secs(60);
const INSIDE: &str = "RUNNER_RELAY_TESTS_INSIDE";
/// Ports with a listener in the body's network, besides 53.
pub(crate) const PORTS: [u16; 5] = [80, 443, 8080, 8443, 9000];

type Act = Box<dyn FnOnce() + Send>;

/// A network namespace with a thread in it.
#[derive(Clone)]
pub(crate) struct Place(mpsc::Sender<Act>);

impl Place {
    /// Creates a network namespace and runs the commands in it.
    fn new(commands: &str) -> Self {
        let (sender, receiver) = mpsc::channel::<Act>();
        let (made, is_made) = mpsc::channel();
        std::thread::spawn(move || {
            namespace::unshare(namespace::kind::NETWORK).expect("a network of its own");
            made.send(rustix::thread::gettid()).expect("told");
            for act in receiver {
                act();
            }
        });
        is_made.recv().expect("made");
        let place = Self(sender);
        let commands = commands.to_owned();
        place.run(move || shell(&commands));
        place
    }

    /// Runs `act` in the namespace and waits for the result. Threads that it starts are in the
    /// namespace too.
    pub(crate) fn run<R: Send + 'static>(&self, act: impl FnOnce() -> R + Send + 'static) -> R {
        self.start(act).recv().expect("it has come to its end")
    }

    /// Runs `act` in the namespace, in a separate thread.
    pub(crate) fn start<R: Send + 'static>(
        &self,
        act: impl FnOnce() -> R + Send + 'static,
    ) -> mpsc::Receiver<R> {
        let (sender, receiver) = mpsc::channel();
        let act = move || {
            std::thread::spawn(move || drop(sender.send(act())));
        };
        self.0.send(Box::new(act)).expect("the place is there");
        receiver
    }

    /// The id of the thread in the namespace.
    fn thread(&self) -> rustix::thread::Pid {
        let (sender, receiver) = mpsc::channel();
        let act = move || sender.send(rustix::thread::gettid()).expect("waited for");
        self.0.send(Box::new(act)).expect("the place is there");
        receiver.recv().expect("told")
    }
}

fn shell(commands: &str) {
    let output = Command::new("sh")
        .args(["-ec", commands])
        .output()
        .expect("sh is there");
    assert!(
        output.status.success(),
        "{commands}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The kernel makes an IPv6 address usable in the background, also without DAD.
fn wait_for_local(address: &str) {
    let start = Instant::now();
    loop {
        let mut routes = Command::new("ip");
        routes.args(["-6", "route", "show", "table", "local", address]);
        if !routes.output().expect("ip is there").stdout.is_empty() {
            return;
        }
        assert!(start.elapsed() < HANG_AFTER, "{address} is nobody's");
    }
}

/// Runs the calling test again in a namespace where it may create networks. Returns `true` inside.
pub(crate) fn enter(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if Command::new("ip").arg("-V").output().is_err() {
        println!("SKIPPED: there is no ip(8) to lay out networks with");
        assert!(
            std::env::var_os("RUNNER_TESTS_STRICT").is_none_or(|strict| strict != "1"),
            "nothing may be skipped"
        );
        return false;
    }
    let program = std::env::current_exe().expect("our own path");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(program)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare is there");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
    false
}

/// The settings of a test.
pub(crate) struct Plan {
    pub(crate) allowed: Vec<&'static str>,
    pub(crate) private: Vec<&'static str>,
    pub(crate) added: Vec<(&'static str, &'static str)>,
    pub(crate) hosts: &'static str,
    pub(crate) refuse_ech: bool,
    pub(crate) servers: Vec<&'static str>,
    pub(crate) publishes: Option<u16>,
    pub(crate) log: Option<OwnedFd>,
    pub(crate) capture: Capture,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            allowed: vec!["api.openai.com", "*.anthropic.com", "db.example:9000"],
            private: Vec::new(),
            added: Vec::new(),
            hosts: "93.184.216.34 api.openai.com a.anthropic.com db.example\n",
            refuse_ech: false,
            servers: vec!["198.51.100.2:53"],
            publishes: None,
            log: None,
            capture: Capture::AnyIp,
        }
    }
}

/// The three networks and the relay.
pub(crate) struct Ground {
    pub(crate) body: Place,
    pub(crate) outside: Outside,
    /// The three sides of a run's network, here in one process.
    dialler: Dialler,
    relay: Relay,
    resolver: Resolver,
    /// How far the relay's clock is ahead.
    ahead: Duration,
    /// Whether connect requests are answered by sockets of the body's network.
    answers_asks: bool,
}

impl Ground {
    pub(crate) fn new(plan: Plan) -> Self {
        shell(
            "ip link set lo up; ip link add v0 type veth peer name v1; ip link set v0 up; \
             ip addr add 198.51.100.1/30 dev v0; ip route add default via 198.51.100.2; \
             ip -6 addr add 2a00::1/64 dev v0 nodad; ip -6 route add default via 2a00::2",
        );
        let body = Place::new(
            "ip link set lo up; ip route add local default dev lo src 127.0.0.1 table local; \
             ip -6 route add local default dev lo table local",
        );
        let outside = Place::new("ip link set lo up");
        let thread = outside.thread().as_raw_nonzero();
        shell(&format!(
            "ip link set v1 netns /proc/{}/task/{thread}/ns/net",
            std::process::id()
        ));
        outside.run(|| {
            shell(
                "ip link set v1 up; ip addr add 198.51.100.2/30 dev v1; \
                 ip -6 addr add 2a00::2/64 dev v1 nodad; \
                 for a in 93.184.216.34 93.184.216.35 10.1.2.3 169.254.169.254; do \
                 ip addr add $a/32 dev lo; done; ip -6 addr add 2606:2800::34/128 dev lo nodad",
            );
            wait_for_local("2606:2800::34");
            wait_for_local("2a00::2");
        });
        wait_for_local("2a00::1");
        let outside = Outside::start(outside);
        let answers_asks = plan.publishes.is_some();
        let (dialler, relay, resolver) = Self::start_relay(&body, plan);
        Self {
            body,
            outside,
            dialler,
            relay,
            resolver,
            ahead: Duration::ZERO,
            answers_asks,
        }
    }

    fn start_relay(body: &Place, plan: Plan) -> (Dialler, Relay, Resolver) {
        let mut sockets = body.run(|| {
            let tcp = |address: &str, port: u16| {
                let ip: IpAddr = address.parse().expect("an address");
                listener(SocketAddr::new(ip, port))
            };
            let ports = PORTS.iter().chain(&[53]);
            Sockets {
                capture: Capture::AnyIp,
                listeners: ports
                    .flat_map(|port| [tcp("0.0.0.0", *port), tcp("::", *port)])
                    .collect(),
                proxies: vec![tcp("127.0.0.1", 3), tcp("::1", 3)],
                dns: ["0.0.0.0:53", "[::]:53"].map(dns_socket).into(),
                log: None,
            }
        });
        sockets.log = plan.log;
        sockets.capture = plan.capture;
        let published = plan.publishes.map(|port| {
            let door = TcpListener::bind("127.0.0.1:7000").expect("bound");
            door.set_nonblocking(true).expect("set");
            Published {
                listener: door.into(),
                host_port: 7000,
                body_port: port,
            }
        });
        let rules = plan.allowed.iter();
        let rules = rules.map(|rule| EgressRule::parse(rule).expect(rule));
        let ranges = plan.private.iter();
        let added = plan.added.iter();
        let settings = Settings {
            allowed: Allowlist::new(rules.collect()),
            private_ranges: ranges
                .map(|range| IpRange::parse(range).expect(range))
                .collect(),
            added_hosts: added
                .map(|(name, address)| {
                    let name = HostName::parse(name.as_bytes()).expect(name);
                    (name, address.parse().expect(address))
                })
                .collect(),
            hosts: plan.hosts.into(),
            refuse_ech: plan.refuse_ech,
        };
        let servers = plan.servers.iter();
        let servers = servers.map(|server| server.parse().expect(server));
        let published = published.into_iter().collect();
        let (resolver_link, link) = sys::link::pair().expect("a pair");
        let resolver = Resolver::new(
            ParsePermit::for_trusted_text(),
            link,
            servers.collect(),
            [7; 16],
        )
        .expect("a resolver");
        let (dialler, relay) = in_one_process(Some(sockets), published, settings, resolver_link);
        (dialler, relay, resolver)
    }

    fn turn(&mut self) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let now = Instant::now() + self.ahead;
        let patience = match self.relay.deadline() {
            Some(deadline) if deadline <= now => Duration::ZERO,
            _ => Duration::from_millis(2),
        };
        let patience = Timespec::try_from(patience).expect("short");
        let sides = [
            self.relay.as_fd(),
            self.dialler.as_fd(),
            self.resolver.as_fd(),
        ];
        let mut entries = sides.map(|side| PollFd::from_borrowed_fd(side, PollFlags::IN));
        poll(&mut entries, Some(&patience)).expect("polled");
        self.relay.turn(now).expect("turned");
        self.dialler.turn(now).expect("turned");
        self.resolver.turn(now).expect("turned");
        assert_eq!(self.dialler.failure(), None);
        while let Some(request) = self.dialler.next_connect_request() {
            assert!(self.answers_asks, "nothing is published");
            let socket = self.body.run(move || {
                let address: IpAddr = if request.is_v6 {
                    "::1".parse().expect("one")
                } else {
                    Ipv4Addr::LOCALHOST.into()
                };
                let family = if request.is_v6 {
                    rustix::net::AddressFamily::INET6
                } else {
                    rustix::net::AddressFamily::INET
                };
                let socket = rustix::net::socket_with(
                    family,
                    rustix::net::SocketType::STREAM,
                    rustix::net::SocketFlags::NONBLOCK,
                    None,
                )
                .expect("a socket");
                match rustix::net::connect(&socket, &SocketAddr::new(address, request.port)) {
                    Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
                    Err(errno) => Err(errno),
                }
            });
            self.dialler.take_socket(request.id, socket);
        }
    }

    /// Runs the relay until `done` has a result.
    pub(crate) fn wait<R>(&mut self, done: &mpsc::Receiver<R>) -> R {
        let start = Instant::now();
        loop {
            match done.try_recv() {
                Ok(done) => return done,
                Err(mpsc::TryRecvError::Empty) => self.turn(),
                Err(mpsc::TryRecvError::Disconnected) => panic!("the other side failed"),
            }
            assert!(start.elapsed() < HANG_AFTER, "hangs");
        }
    }

    /// Runs `act` in the body's network, and the relay until it returns.
    pub(crate) fn act<R: Send + 'static>(&mut self, act: impl FnOnce() -> R + Send + 'static) -> R {
        let done = self.body.start(act);
        self.wait(&done)
    }

    /// Moves the relay's clock forward.
    pub(crate) fn skip(&mut self, time: Duration) {
        self.ahead += time;
    }

    /// Runs the relay until `is_so` returns true.
    pub(crate) fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            self.turn();
            assert!(start.elapsed() < HANG_AFTER, "hangs");
        }
    }

    pub(crate) fn dialler(&mut self) -> &mut Dialler {
        &mut self.dialler
    }

    /// Whether the relay or the supervisor has something to do at a later time.
    pub(crate) fn has_deadline(&self) -> bool {
        self.relay.deadline().is_some() || self.dialler.deadline().is_some()
    }

    /// Ends the relay and returns its outcome.
    pub(crate) fn finish(self) -> Outcome {
        let outcome = self.relay.finish(Instant::now() + self.ahead);
        self.dialler.read_outcome(&outcome).expect("genuine")
    }

    /// Ends the relay and returns the denials as `proto object reason xN`.
    pub(crate) fn denials(self) -> Vec<String> {
        shown(&self.finish())
    }
}

/// A relay and the supervisor's side of it.
pub(crate) fn in_one_process(
    sockets: Option<Sockets>,
    published: Vec<Published>,
    settings: Settings,
    resolver: OwnedFd,
) -> (Dialler, Relay) {
    let now = Instant::now();
    let (here, there) = sys::link::pair().expect("a pair");
    let rules = Rules {
        allowed: settings.allowed.clone(),
        refuse_ech: settings.refuse_ech,
    };
    let ports = published.iter().map(Published::report).collect();
    let dialler = Dialler::new(here, Some(resolver), ports, settings, now).expect("a dialler");
    let relay = Relay::new(
        ParsePermit::for_trusted_text(),
        sockets,
        published,
        rules,
        there,
        now,
    )
    .expect("a relay");
    (dialler, relay)
}

/// The denials as `proto object reason xN`.
pub(crate) fn shown(outcome: &Outcome) -> Vec<String> {
    let distinct = outcome.denials.distinct();
    distinct
        .map(|(attempt, equal)| {
            let host = attempt.host.clone();
            let address = attempt.address.map(|address| address.to_string());
            let object = host.or(address).unwrap_or_default();
            let port = attempt
                .port
                .map_or(String::new(), |port| format!(":{port}"));
            let reason = attempt.reason.row().code;
            format!(
                "{} {object}{port} {reason} x{}",
                attempt.protocol, equal.count
            )
        })
        .collect()
}

fn listener(address: SocketAddr) -> OwnedFd {
    let family = if address.is_ipv4() {
        rustix::net::AddressFamily::INET
    } else {
        rustix::net::AddressFamily::INET6
    };
    let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, rustix::net::SocketType::STREAM, flags, None)
        .expect("a socket");
    if address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true).expect("set");
    }
    rustix::net::bind(&socket, &address).expect("bound");
    rustix::net::listen(&socket, 4_096).expect("listens");
    socket
}

fn dns_socket(address: &str) -> OwnedFd {
    let address: SocketAddr = address.parse().expect("an address");
    let family = if address.is_ipv4() {
        rustix::net::AddressFamily::INET
    } else {
        rustix::net::AddressFamily::INET6
    };
    let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, rustix::net::SocketType::DGRAM, flags, None)
        .expect("a socket");
    if address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true).expect("set");
        sys::socket::set_packet_info_v6(&socket).expect("set");
        sys::socket::set_free_source_v6(&socket).expect("set");
    } else {
        sys::socket::set_packet_info_v4(&socket).expect("set");
    }
    rustix::net::bind(&socket, &address).expect("bound");
    socket
}

/// A DNS query for one name, as a resolver sends it.
pub(crate) fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut message = vec![0xab, 0xcd, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).expect("short"));
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    message
}

/// Queries a name server; returns the code, and the address if there is one.
pub(crate) fn ask(name: &str) -> (u8, Option<Ipv4Addr>) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
    socket.connect("8.8.8.8:53").expect("connected");
    socket.send(&question(name, 1)).expect("sent");
    socket.set_read_timeout(Some(HANG_AFTER)).expect("set");
    let mut buffer = [0; 512];
    let read = socket.recv(&mut buffer).expect("answered");
    answer(&buffer[..read])
}

/// The code and the address of an answer.
pub(crate) fn answer(message: &[u8]) -> (u8, Option<Ipv4Addr>) {
    let address = (message[7] == 1).then(|| {
        let octets: [u8; 4] = *message.last_chunk().expect("an address");
        Ipv4Addr::from(octets)
    });
    (message[3] & 0x0f, address)
}

/// Resolves the name and dials the address.
pub(crate) fn dial(name: &str, port: u16) -> TcpStream {
    let (_, address) = ask(name);
    let address = address.unwrap_or_else(|| panic!("{name} has no address"));
    connect(&SocketAddr::from((address, port)).to_string())
}

pub(crate) fn connect(to: &str) -> TcpStream {
    let stream = TcpStream::connect(to).expect(to);
    stream.set_read_timeout(Some(HANG_AFTER)).expect("set");
    stream.set_write_timeout(Some(HANG_AFTER)).expect("set");
    stream
}

/// Sends, and reads until as many bytes have returned or the peer has closed.
pub(crate) fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    if stream.write_all(bytes).is_err() {
        return Vec::new();
    }
    let mut back = vec![0; bytes.len()];
    let mut read = 0;
    while read < back.len() {
        match stream.read(&mut back[read..]) {
            Ok(0) | Err(_) => break,
            Ok(more) => read += more,
        }
    }
    back.truncate(read);
    back
}

/// Whether the stream was reset without data.
pub(crate) fn is_reset(stream: &mut TcpStream) -> bool {
    let read = stream.read_exact(&mut [0; 1]);
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

/// A ClientHello with these names, with or without an encrypted inner ClientHello.
pub(crate) fn hello(names: &[&str], has_encrypted: bool) -> Vec<u8> {
    let sized = |bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).expect("short");
        [&length.to_be_bytes(), bytes].concat()
    };
    let mut extensions = Vec::new();
    if !names.is_empty() {
        let list: Vec<u8> = names
            .iter()
            .flat_map(|name| [vec![0], sized(name.as_bytes())].concat())
            .collect();
        extensions.extend([vec![0, 0], sized(&sized(&list))].concat());
    }
    if has_encrypted {
        extensions.extend([vec![0xfe, 0x0d], sized(&[0; 8])].concat());
    }
    let body = [
        vec![3, 3],
        vec![9; 32],
        vec![0],
        sized(&[0x13, 0x01]),
        vec![1, 0],
        sized(&extensions),
    ]
    .concat();
    let length = u32::try_from(body.len()).expect("short").to_be_bytes();
    let message = [&[1], &length[1..], body.as_slice()].concat();
    [vec![22, 3, 1], sized(&message)].concat()
}
