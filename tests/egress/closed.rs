//! No traffic leaves if no host is allowed, and if the relay does not answer, fails or dies during a run.

use std::time::Duration;

use rustix::process::Signal;

use crate::runs::Setting;
use support::invariants::living;
use support::network::{Outside, PYTHON, Who};
use support::{Ground, Running, random};

/// Looks up names that contain `unique` in every way, and connects to addresses of the local network.
const ASK: &str = r#"
name = f'secret-{unique}.zone.example'
def quietly(action):
    try:
        action()
    except Exception:
        pass
def datagram(host, port, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        asked.sendto(question(name), (host, port))
def stream(host, port):
    with socket.create_connection((host, port), 1) as asked:
        asked.sendall(struct.pack('!H', len(question(name))) + question(name))
def echo(host):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as asked:
        asked.sendto(struct.pack('!BBHHH', 8, 0, 0, 1, 1) + name.encode(), (host, 0))
servers = [line.split()[1] for line in open('/etc/resolv.conf') if line.startswith('nameserver')] if os.path.exists('/etc/resolv.conf') else []
quietly(lambda: socket.getaddrinfo(name, 80))
quietly(lambda: socket.gethostbyname(name))
for server in [*servers, server_outside, *others]:
    for port in (53, 5353, 5355, 853):
        quietly(lambda: datagram(server, port))
for server in [*servers, server_outside]:
    quietly(lambda: stream(server, 53))
for server in others_6:
    quietly(lambda: datagram(server, 53, socket.AF_INET6))
quietly(lambda: echo(server_outside))
print('asked', flush=True)
"#;

/// An outside address that no other case uses.
const SERVER: &str = "93.184.216.240";

/// Further name servers for a body. The control without a sandbox does not use them: its queries
/// leave, and other cases in the same outside network check who receives queries.
const OTHERS: [&[&str]; 2] = [
    &["8.8.8.8", "224.0.0.251", "255.255.255.255", "127.0.0.53"],
    &["ff02::fb", "ff02::1:3", "2001:4860:4860::8888"],
];

fn asking(setting_unique: &str, [others, others_6]: [&[&str]; 2]) -> String {
    format!(
        "{}\nunique = {setting_unique:?}\nserver_outside = {SERVER:?}\nothers = {others:?}\n\
         others_6 = {others_6:?}\n{ASK}",
        crate::runs::PRELUDE
    )
}

/// F-14: with an empty list nothing leaves, neither from the body nor from a resolver on its behalf.
#[test]
fn no_dns_query_leaves_where_no_host_is_allowed() {
    let Some(outside) = Outside::get() else {
        return;
    };
    let ground = Ground::new();
    // The control: without a sandbox, the queries of the same program arrive.
    let bare = format!("b{}", random());
    let status = outside
        .command(Who::Caller, PYTHON.as_ref(), &ground.path(""))
        .args(["-c", &asking(&bare, [&[]; 2])])
        .status();
    assert!(status.expect("started").success());
    outside.until("the question of a program without a sandbox", |log| {
        0 < log.questions_for(&format!("secret-{bare}.zone.example"))
            && !log.packets_to(SERVER).is_empty()
    });
    let heard_of_bare = outside.log().packets_to(SERVER).len();
    for flags in [&[][..], &["--report-denials"]] {
        let unique = format!("u{}", random());
        let text = asking(&unique, OTHERS);
        let words = [&["run"], flags, &["--", PYTHON, "-c", &text]].concat();
        let done = ground.command(&words).inside(outside).done();
        done.assert_exited(0);
        assert!(done.text().ends_with("asked\n"), "{}", done.text());
        let log = outside.log();
        assert_eq!(
            log.questions_for(&format!("secret-{unique}.zone.example")),
            0
        );
        let all = serde_json::to_string(&log.events).expect("JSON");
        assert!(!all.contains(&unique), "{flags:?}: {all}");
        assert_eq!(log.packets_to(SERVER).len(), heard_of_bare, "{flags:?}");
    }
}

/// F-13: if no host is allowed, the local network is unreachable, and listing a metadata service
/// does not open it.
#[test]
fn a_metadata_service_is_not_reached_with_an_empty_list_nor_by_listing_it() {
    let Some(outside) = Outside::get() else {
        return;
    };
    let ground = Ground::new();
    let script = "
for address in '169.254.169.254', 'fd00:ec2::254', '100.100.100.200', '169.254.170.2', 'metadata.google.internal':
    print(address, dial(address, 80, b'GET / HTTP/1.0\\r\\n\\r\\n', 5), flush=True)";
    let text = format!("{}{script}", crate::runs::PRELUDE);
    for flags in [
        &[][..],
        &["--allow-net", "169.254.169.254"],
        &[
            "--allow-net",
            "metadata.google.internal",
            "--add-host",
            "metadata.google.internal:169.254.169.254",
        ],
    ] {
        let words = [&["run"], flags, &["--", PYTHON, "-c", &text]].concat();
        let done = ground.command(&words).inside(outside).done();
        let tried = match done.outcome() {
            "refused" => 0,
            _ => 5,
        };
        assert_eq!(
            done.text().matches("\n").count(),
            tried + tried / 5,
            "{done:#?}"
        );
        assert!(!done.text().contains("HTTP"), "{}", done.text());
        let log = outside.log();
        for address in [
            "169.254.169.254",
            "fd00:ec2::254",
            "100.100.100.200",
            "169.254.170.2",
        ] {
            assert_eq!(log.packets_to(address), [""; 0], "{flags:?}");
        }
    }
}

/// Sends to an allowed host, to a denied host and to a name server, in a loop.
const SEND: &str = "
print('up', flush=True)
def again(action):
    while True:
        try:
            action()
        except OSError:
            pass
        time.sleep(0.02)
def literal():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sent:
        sent.sendto(b'x', (unlisted, 4444))
threading.Thread(target=again, args=(literal,), daemon=True).start()
threading.Thread(target=again, args=(lambda: dial(unlisted, 443, patience=1),), daemon=True).start()
again(lambda: dial(name, 9000, patience=1))";

impl Setting {
    fn sending(&self) -> String {
        let (name, unlisted) = (self.name(241), self.public(242));
        format!("name, unlisted = {name:?}, {unlisted:?}\n{SEND}")
    }

    /// A body that sends all the time, and a receiver that counts.
    fn start_sending(&self) -> Running<'_> {
        let name = self.name(241);
        let listed = format!("{name}:9000");
        let case = self.case(&["--allow-net", &listed], &self.sending());
        let mut running = case.without("I4").without("I5").without("I8").start();
        running.until("the body", || !living(self.ground.marker()).is_empty());
        let allowed = self.public(241);
        self.outside.until("a packet of the body", |log| {
            !log.packets_to(&allowed).is_empty()
        });
        running
    }

    /// The bytes received at the allowed host, and at all other addresses.
    fn heard(&self) -> (usize, usize) {
        let log = self.outside.log();
        (
            log.packets_to(&self.public(241)).len(),
            log.packets_to(&self.public(242)).len(),
        )
    }

    /// Asserts that no more data arrives, once what was in flight has arrived: on a busy host that
    /// takes long. The body sends every 20 ms, so a relay that passes it on is never silent.
    fn assert_falls_silent(&self) {
        let (mut before, _) = self.heard();
        for _period in 0..40 {
            std::thread::sleep(Duration::from_millis(500));
            let (after, elsewhere) = self.heard();
            assert_eq!(elsewhere, 0);
            if after == before {
                return;
            }
            before = after;
        }
        panic!("data arrives all the time");
    }
}

on_both_captures! {
    /// E-26: while the supervisor is stopped, no connection is made.
    fn a_relay_that_does_not_answer_lets_nothing_through(setting) {
        let running = setting.start_sending();
        running.signal(Signal::STOP);
        setting.assert_falls_silent();
        running.signal(Signal::CONT);
        running.signal(Signal::KILL);
        assert_eq!(running.done().code, 137);
    }

    /// E-26: the body and the relay end with the supervisor.
    fn a_supervisor_that_dies_takes_the_network_and_the_body_along(setting) {
        let running = setting.start_sending();
        running.signal(Signal::KILL);
        assert_eq!(running.done().code, 137);
        setting.assert_falls_silent();
    }

    /// E-26: a supervisor that cannot dial ends the run.
    fn a_dialler_that_fails_ends_the_run(setting) {
        let name = format!("{}:9000", setting.name(241));
        let inject = "inject=?epoll_wait,?epoll_pwait,?epoll_pwait2:error=EIO:when=3+";
        let words = ["-o", "/dev/null", "-e", inject];
        let program = setting.program(&setting.sending());
        let capture = setting.capture.word();
        let flags = ["run", "--egress-capture", capture, "--timeout=60s", "--allow-net", &name, "--"];
        let all = [&flags[..], &[PYTHON, "-c", &program]].concat();
        let case = setting.ground.command(&all);
        let case = case.through("/usr/bin/strace", &words).inside(setting.outside);
        let done = case.done();
        assert_eq!((done.outcome(), done.code), ("failed", 125), "{done:#?}");
        setting.assert_falls_silent();
    }
}
