//! What the server and systemd tell each other.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};

use crate::api::{Api, Server, serve};
use crate::host::{Host, said};
use support::invariants::eventually;

/// The server with a passed socket: a shell puts it where sd_listen_fds(3) looks for it.
fn activated(host: &Host, socket: impl Into<OwnedFd>, flags: &[&str]) -> Command {
    let serve = serve(host, flags);
    let mut shell = Command::new("sh");
    shell
        .args([
            "-c",
            "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"",
        ])
        .arg(serve.get_program())
        .args(serve.get_args())
        .stdin(Stdio::from(socket.into()));
    for (name, value) in serve.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    shell
}

#[test]
fn a_socket_that_systemd_passes_is_used_and_stays_and_states_are_told() {
    let host = Host::new();
    let path = host.ground.path("passed.sock");
    let listener = UnixListener::bind(&path).expect("bound");
    let told = host.ground.path("notify");
    let notify = UnixDatagram::bind(&told).expect("bound");
    notify
        .set_read_timeout(Some(std::time::Duration::from_secs(30)))
        .expect("set");
    let child = activated(&host, listener, &["--stop-timeout", "1s"])
        .env("NOTIFY_SOCKET", &told)
        .env("WATCHDOG_USEC", "2000")
        .spawn()
        .expect("started");
    let state = || {
        let mut text = [0; 256];
        let length = notify.recv(&mut text).expect("a state");
        String::from_utf8_lossy(&text[..length])
            .trim_end()
            .to_owned()
    };
    let runtime = host.runtime_directory();
    let server = Server {
        child,
        socket: path.clone(),
        runtime,
    };
    let mut api = Api { server, host };
    eventually("it says that it is ready", || state() == "READY=1");
    eventually("it says that it answers", || state() == "WATCHDOG=1");
    // From here on nobody reads what it says, which the kernel keeps ten messages of.
    api.get("/v1/sandboxes").expect(200);
    api.create("one");
    // The supervisor is not one that systemd knows.
    let supervisor = api.host.supervisor().as_raw_pid();
    let environment = std::fs::read(format!("/proc/{supervisor}/environ")).expect("read");
    let environment = String::from_utf8_lossy(&environment).into_owned();
    for name in ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC"] {
        assert!(
            !environment
                .split('\0')
                .any(|entry| entry.starts_with(&format!("{name}="))),
            "{name}"
        );
    }
    api.server.signal(rustix::process::Signal::TERM);
    eventually("it says that it stops", || state() == "STOPPING=1");
    assert_eq!(api.server.child.wait().expect("ended").code(), Some(0));
    assert!(path.exists(), "it belongs to systemd");
}

#[test]
fn a_descriptor_that_is_no_unix_socket_is_refused() {
    let host = Host::new();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let refused = said(activated(&host, tcp, &[]).output().expect("started"));
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.stderr.contains("ListenStream="), "{refused:?}");
    let unix = UnixListener::bind(host.ground.path("s")).expect("bound");
    let refused = said(
        activated(&host, unix, &["--socket", "/tmp/x"])
            .output()
            .expect("started"),
    );
    assert!(refused.stderr.contains("omit --socket"), "{refused:?}");
}
