//! A command with a terminal.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::host::Host;
use support::invariants::eventually;
use support::screen;

#[test]
fn a_command_with_a_terminal_has_it_as_its_controlling_one() {
    let host = Host::new();
    host.create("one", &[]);
    let (screen, shown) = screen::open();
    let mut child = host
        .command(&[
            "sandbox", "exec", "-t", "one", "--", "sh", "-c",
            "tty; test -t 0 && test -t 1 && test -t 2 && echo all; ps -o tpgid= 2>/dev/null; echo $TERM; : > /dev/tty",
        ])
        .env("TERM", "xterm-test")
        .stdout(screen)
        .stderr(Stdio::inherit())
        .spawn()
        .expect("started");
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    let shown = shown.join().expect("read");
    assert!(
        shown.contains("/dev/pts/0") && shown.contains("all"),
        "{shown}"
    );
    assert!(shown.contains("xterm-test"), "{shown}");
}

#[test]
fn a_terminal_has_the_size_of_the_caller_s_whenever_that_changes() {
    let host = Host::new();
    host.create("one", &[]);
    let (screen, shown) = screen::open_live();
    let size = |rows, columns| rustix::termios::Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let set = |size| rustix::termios::tcsetwinsize(&screen, size).expect("set");
    set(size(31, 97));
    let text = "stty size; trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done";
    let duplicate = || screen.try_clone().expect("duplicated");
    let mut child = host
        .command(&["sandbox", "exec", "-it", "one", "--", "sh", "-c", text])
        .stdin(duplicate())
        .stdout(duplicate())
        .spawn()
        .expect("started");
    shown.until("31 97");
    shown.until("ready");
    set(size(40, 120));
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // The terminal is not the controlling one of the test.
    kill_process(pid.expect("a pid"), Signal::WINCH).expect("sent");
    shown.until("40 120");
    let id = host.list()[0]["commands"][0]["id"].to_string();
    assert_eq!(host.say(&["sandbox", "kill", "one", &id]).code, 0);
    assert_eq!(child.wait().expect("ended").code(), Some(137));
    drop(screen);
    shown.join();
}

#[test]
fn the_id_of_a_command_is_written_as_soon_as_it_runs() {
    let host = Host::new();
    host.create("one", &[]);
    let file = host.ground.path("id");
    let flag = format!("--id-file={}", file.display());
    let mut child = host
        .command(&["sandbox", "exec", &flag, "one", "--", "sleep", "1000"])
        .spawn()
        .expect("started");
    let id = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("the id is there", || id() == "1\n");
    assert_eq!(host.list()[0]["commands"][0]["id"], 1);
    assert_eq!(host.say(&["sandbox", "kill", "one", id().trim()]).code, 0);
    assert_eq!(child.wait().expect("ended").code(), Some(137));
    // Nothing is written for what does not run, and nothing runs if it cannot be written.
    std::fs::remove_file(&file).expect("removed");
    let said = host.say(&["sandbox", "exec", &flag, "one", "--", "nosuch"]);
    assert_eq!((said.code, file.exists()), (127, false), "{said:?}");
    for value in ["fd:1", "fd:99", "/nosuch/id", ""] {
        let flag = format!("--id-file={value}");
        let said = host.say(&["sandbox", "exec", &flag, "one", "--", "true"]);
        assert_eq!(said.code, 125, "{said:?}");
    }
    assert_eq!(
        host.list()[0]["ended"]["latest"].as_array().map(Vec::len),
        Some(1)
    );
}
