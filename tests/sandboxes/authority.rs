//! Who may ask a supervisor, and what it makes of nonsense.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sys::link::{self, Message};

use crate::host::Host;
use support::invariants::eventually;
use support::{is_root, needs_root};

pub fn connect(host: &Host) -> OwnedFd {
    let [file] = &host.files("sandboxes")[..] else {
        panic!("not one socket");
    };
    connect_with(host, file, SocketFlags::CLOEXEC).expect("connected")
}

/// A connection to the socket `file`; `None`: too many wait already.
pub fn connect_at_once(host: &Host, file: &str) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match connect_with(host, file, flags) {
        Err(Errno::AGAIN) => None,
        connected => Some(connected.expect("connected")),
    }
}

fn connect_with(host: &Host, file: &str, flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let path = host.runtime_directory().join("sandboxes").join(file);
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(&path)?)?;
    Ok(socket)
}

/// The answer: its kind and first value, or `None` if the connection was closed.
pub fn answer(link: &OwnedFd) -> Option<(u32, i32)> {
    let received = link::receive(link.as_fd()).ok()?;
    received.map(|(message, _)| (message.kind, message.values[0]))
}

pub fn document(text: &[u8]) -> OwnedFd {
    let file = memfd_create("x", MemfdFlags::CLOEXEC).expect("made");
    rustix::io::pwrite(&file, text, 0).expect("written");
    file
}

const EXEC: u32 = 1;
const SIGNAL: u32 = 2;
const STATE: u32 = 3;
const STARTED: u32 = 16;
const REFUSED: u32 = 20;
pub const VERSION: i32 = 1;
const OTHER_VERSION: Option<(u32, i32)> = Some((REFUSED, 1));
pub const MALFORMED: Option<(u32, i32)> = Some((REFUSED, 2));

/// A-68.
#[test]
fn nonsense_on_the_control_socket_is_refused_and_the_sandbox_goes_on() {
    let host = Host::new();
    host.create("one", &[]);
    let ask = |kind: u32, version: i32, descriptors: &[BorrowedFd<'_>]| {
        let link = connect(&host);
        link::send(
            link.as_fd(),
            Message::with(kind, [version, 0, 0]),
            descriptors,
        )
        .expect("sent");
        answer(&link)
    };
    let null = std::fs::File::open("/dev/null").expect("opened");
    let directory = std::fs::File::open("/").expect("opened");
    let (pipe, _end) = std::io::pipe().expect("made");
    let streams = [null.as_fd(); 3];
    let with = |document: BorrowedFd<'_>, count: usize| {
        let mut descriptors = vec![document];
        descriptors.extend(&streams[..count]);
        ask(EXEC, VERSION, &descriptors)
    };
    assert_eq!(ask(EXEC, 2, &[]), OTHER_VERSION);
    for kind in [0, 2, 7, 16, u32::MAX] {
        assert_eq!(ask(kind, VERSION, &[]), MALFORMED, "{kind}");
    }
    assert_eq!(ask(EXEC, VERSION, &[]), MALFORMED);
    assert_eq!(ask(STATE, VERSION, &[]), MALFORMED);
    assert_eq!(
        ask(STATE, VERSION, &[null.as_fd()]),
        MALFORMED,
        "not writable"
    );
    let empty = br#"{"argv":[],"environment":[],"working_directory":null,"terminal":null}"#;
    let valid = br#"{"argv":[[116,114,117,101]],"environment":[],"working_directory":null,"terminal":null}"#;
    let unknown = br#"{"action":"x","argv":[[120]],"environment":[],"working_directory":null,"terminal":null}"#;
    let documents: [&[u8]; 6] = [b"", b"{", b"[]", empty, unknown, &[0xff; 100]];
    for text in documents {
        assert_eq!(with(document(text).as_fd(), 3), MALFORMED);
    }
    assert_eq!(
        with(document(valid).as_fd(), 2),
        MALFORMED,
        "a stream is missing"
    );
    let huge = document(b"");
    rustix::fs::ftruncate(&huge, 1 << 40).expect("sparse");
    for file in [huge.as_fd(), pipe.as_fd(), directory.as_fd(), null.as_fd()] {
        assert_eq!(with(file, 3), MALFORMED);
    }
    for file in [pipe.as_fd(), directory.as_fd()] {
        assert_eq!(ask(STATE, VERSION, &[file]), MALFORMED);
    }
    // Neither a client that says nothing nor a message of another length holds up the others.
    let silent = connect(&host);
    let short = connect(&host);
    rustix::net::send(&short, b"abc", rustix::net::SendFlags::empty()).expect("sent");
    assert_eq!(answer(&short), None);
    assert_eq!(host.shell("one", "echo lives").stdout, "lives\n");
    drop(silent);
    assert_eq!(host.list()[0]["commands"], serde_json::json!([]));
}

/// A-68.
#[test]
fn nonsense_of_a_client_whose_command_runs_ends_the_connection_alone() {
    let host = Host::new();
    host.create("one", &[]);
    let null = std::fs::File::open("/dev/null").expect("opened");
    let sleep = br#"{"argv":[[115,108,101,101,112],[57,57]],"environment":[],"working_directory":null,"terminal":null}"#;
    let document = document(sleep);
    let descriptors = [document.as_fd(), null.as_fd(), null.as_fd(), null.as_fd()];
    let link = connect(&host);
    let send = |kind, descriptors: &[BorrowedFd<'_>]| {
        let message = Message::with(kind, [VERSION, 0, 0]);
        link::send(link.as_fd(), message, descriptors).expect("sent");
    };
    send(EXEC, &descriptors);
    assert_eq!(answer(&link), Some((STARTED, 1)));
    let message = Message::with(SIGNAL, [VERSION, 9_999, 0]);
    link::send(link.as_fd(), message, &[]).expect("sent");
    assert_eq!(answer(&link), MALFORMED);
    assert_eq!(answer(&link), None);
    assert_eq!(host.list()[0]["commands"][0]["argv"][0], "sleep");
    let refused = host.say(&["sandbox", "rm", "one"]);
    assert!(refused.stderr.contains("(sandbox_busy)"), "{refused:?}");
}

/// A-68.
#[test]
fn words_that_no_program_can_get_are_refused() {
    let host = Host::new();
    host.create("one", &[]);
    // Longer than execve(2) takes.
    let long = "x".repeat(200_000);
    let done = host.say(&["sandbox", "exec", "one", "--", "env", "true"]);
    assert_eq!(done.code, 0);
    let link = connect(&host);
    let words = serde_json::json!({
        "argv": [b"true", long.as_bytes()],
        "environment": [], "working_directory": null, "terminal": null,
    });
    let document = document(words.to_string().as_bytes());
    let null = std::fs::File::open("/dev/null").expect("opened");
    let descriptors = [document.as_fd(), null.as_fd(), null.as_fd(), null.as_fd()];
    link::send(
        link.as_fd(),
        Message::with(EXEC, [VERSION, 0, 0]),
        &descriptors,
    )
    .expect("sent");
    let (kind, _step) = answer(&link).expect("an answer");
    assert_eq!(kind, 17, "not started");
    assert_eq!(host.shell("one", "true").code, 0);
}

/// A-68.
#[test]
fn the_socket_is_for_its_user_alone() {
    let host = Host::new();
    host.create("one", &[]);
    let directory = host.runtime_directory().join("sandboxes");
    let mode = |path: &std::path::Path| {
        std::fs::symlink_metadata(path)
            .expect("there")
            .permissions()
            .mode()
            & 0o7777
    };
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join(&host.files("sandboxes")[0])), 0o600);
}

/// A-68.
#[test]
fn another_user_is_not_served_even_with_an_open_way_to_the_socket() {
    if !is_root() {
        return needs_root("only root can become another user");
    }
    let host = Host::new();
    host.create("one", &[]);
    let script = "
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
try:
    s.send((3).to_bytes(4, 'little') + (1).to_bytes(4, 'little') + bytes(8))
except BrokenPipeError:
    pass
try:
    print(s.recv(16))
except ConnectionResetError:
    print(b'')
";
    assert_eq!(as_another_user(&host, script), "b''\n");
    eventually("it still serves its user", || {
        host.shell("one", "true").code == 0
    });
}

/// What a script in Python prints that another user runs, with an open way to the only control socket.
pub fn as_another_user(host: &Host, script: &str) -> String {
    let directory = host.runtime_directory().join("sandboxes");
    let socket = directory.join(&host.files("sandboxes")[0]);
    for path in [
        host.ground.path(""),
        host.runtime_directory(),
        directory.clone(),
    ] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
    }
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).expect("set");
    let done = std::process::Command::new("setpriv")
        .args([
            "--reuid",
            "40151",
            "--regid",
            "40151",
            "--clear-groups",
            "/usr/bin/python3",
            "-c",
            script,
        ])
        .arg(&socket)
        .output()
        .expect("started");
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).expect("set");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A-68.
#[test]
fn no_command_reaches_the_control_socket_of_its_own_or_another_sandbox() {
    let host = Host::new();
    host.create("one", &[]);
    let runtime = host.runtime_directory();
    let runtime = runtime.to_str().expect("a plain path");
    let parent = host.ground.path("");
    let parent = parent.to_str().expect("a plain path");
    for flags in [&["--ro", runtime][..], &["--rw", parent]] {
        let words = [&["sandbox", "create", "--name", "two"], flags].concat();
        let refused = host.say(&words);
        assert_eq!(refused.code, 125, "{refused:?}");
    }
    let found = host.shell("one", &format!("ls {runtime}"));
    assert_eq!(found.code, 2, "{found:?}");
}
