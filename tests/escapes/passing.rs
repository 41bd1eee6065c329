//! Descriptors that a body passes over a named socket: without a shared directory, nobody can
//! receive them; with one, they do not change synced outputs.

use std::io::{IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::attempts::{assert_lines, case, program};
use support::Ground;

/// `NAME=PATH…`: binds a socket at each path, and checks that it exists.
const BIND: &str = include_str!("../bodies/escapes/passing_bind.c");

/// B-40: sockets at every writable path; an output that is one is refused, and none exists on the host.
#[test]
fn a_socket_that_the_body_binds_is_nowhere_on_the_host() {
    let ground = Ground::new();
    let places = [
        "/scratch/out",
        "/scratch/other",
        "/runner/out/socket",
        "/bundle/socket",
        "/tmp/socket",
        "/dev/shm/socket",
        "/home/runner/socket",
    ];
    let workspace = ground.workspace();
    let flags = [
        "--workspace",
        workspace.to_str().expect("a plain path"),
        "--out",
        "out=found/out",
    ];
    let done = case(&ground, &flags, &program("bind-sockets", BIND), &places).done();
    done.assert_exited(0);
    let bound = places.map(|place| format!("{place} ok"));
    assert_lines(&done, &bound.join("\n"));
    let output = &done.report["outputs"][0];
    assert_eq!(output["state"], "failed", "{done:#?}");
    assert_eq!(output["error"]["code"], "output_not_regular");
    assert!(!workspace.join("found/out").exists());
    let on_the_host = places.iter().find(|place| Path::new(place).exists());
    assert_eq!(on_the_host, None);
}

/// Writes the output, and passes a descriptor of it to the listener at the path.
const HAND_OUT: &str = include_str!("../bodies/escapes/passing_hand_out.c");

/// The descriptor that the next connection passes.
fn received(listener: &UnixListener) -> OwnedFd {
    let (connection, _) = listener.accept().expect("a connection");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(&connection, &mut parts, &mut ancillary, RecvFlags::empty()).expect("received");
    let mut messages = ancillary.drain();
    let Some(RecvAncillaryMessage::ScmRights(mut descriptors)) = messages.next() else {
        panic!("no descriptor came");
    };
    descriptors.next().expect("one")
}

/// B-40, B-41 (CVE-2024-27297): a descriptor of an output cannot change it once it is synced. A
/// body shares with other processes only a directory that the caller passes.
#[test]
fn a_descriptor_that_was_handed_out_does_not_reach_the_synced_output() {
    let ground = Ground::new();
    let lent = ground.path("lent");
    std::fs::create_dir(&lent).expect("made");
    let socket = lent.join("socket");
    let listener = UnixListener::bind(&socket).expect("bound");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&socket, open).expect("set");
    let hand_out = program("hand-out", HAND_OUT);
    let workspace = ground.workspace();
    let [workspace, lent, socket] =
        [&workspace, &lent, &socket].map(|path| path.to_str().expect("a plain path"));
    let outputs = ["--workspace", workspace, "--out", "out=out"];
    let done = case(&ground, &outputs, &hand_out, &[socket]).done();
    done.assert_exited(0);
    assert_lines(&done, "connect ENOENT");

    let flags = [&outputs[..], &["--rw", lent]].concat();
    let done = case(&ground, &flags, &hand_out, &[socket]).done();
    done.assert_exited(0);
    assert!(done.text().starts_with("connect E"), "{done:#?}");

    let flags = [&flags[..], &["--unix-sockets"]].concat();
    let done = case(&ground, &flags, &hand_out, &[socket]).done();
    done.assert_exited(0);
    let synced = || std::fs::read_to_string(ground.path("work/out")).expect("synced");
    assert_eq!(synced(), "good");
    if done.text() == "connect EACCES\n" {
        // A kernel whose Landlock supports such sockets.
        return;
    }
    assert_lines(&done, "connect ok\nsend ok");
    let mut taken = std::fs::File::from(received(&listener));
    taken.rewind().expect("sought");
    taken.write_all(b"evil").expect("written");
    taken.rewind().expect("sought");
    let mut text = String::new();
    taken.read_to_string(&mut text).expect("read");
    assert_eq!((text.as_str(), synced().as_str()), ("evil", "good"));
}
