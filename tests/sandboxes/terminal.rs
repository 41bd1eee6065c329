//! A command with a terminal.

use std::process::Stdio;

use crate::host::Host;
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
