//! Terminals: the caller's is out of reach, the body's own is one, and the caller's is restored.

use std::path::Path;

use super::attempts::{case, program};
use support::{Done, Ground, skip};

/// Starts its arguments on a new terminal, as leader of its session, in a mode without echo and
/// lines so that pushed bytes count as waiting input; passes on what is written there; then says
/// how many bytes wait to be read, and whether the terminal's settings are as before.
const HARNESS: &str = r#"
import fcntl, os, pty, select, struct, sys, termios, threading
steps = sys.argv[1]
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
settings = termios.tcgetattr(slave)
if "cooked" not in steps:
    settings[3] &= ~(termios.ICANON | termios.ECHO)
termios.tcsetattr(slave, termios.TCSANOW, settings)
before = termios.tcgetattr(slave)
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(slave, fd)
    os.closerange(3, 64)
    os.execvp(sys.argv[2], sys.argv[2:])
seen = b""
ended = None
while True:
    ready, _, _ = select.select([master], [], [], 0.1)
    if ready:
        seen += os.read(master, 65536)
        if "resize" in steps and b"33 77" in seen:
            steps = ""
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    elif ended is not None:
        break
    if ended is None:
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            ended = os.waitstatus_to_exitcode(status)
waiting = struct.unpack("I", fcntl.ioctl(slave, termios.FIONREAD, b"\0\0\0\0"))[0]
same = termios.tcgetattr(slave) == before
sys.stdout.write(seen.decode("utf-8", "replace").replace("\r\n", "\n"))
sys.stdout.write("pushed %d\nrestored %s\n" % (waiting, same))
sys.exit(ended if ended >= 0 else 128 - ended)
"#;

const PUSH: &str = r#"
static void push(const char *where, int fd) {
    char line[64];
    char byte = 'x';
    if (fd < 0) { printf("%s absent %s\n", where, strerrorname_np(errno)); fflush(stdout); return; }
    snprintf(line, sizeof line, "%s sti", where);
    try(line, ioctl(fd, TIOCSTI, &byte));
    snprintf(line, sizeof line, "%s high", where);
    try(line, syscall(SYS_ioctl, fd, 0x100005412UL, &byte));
    snprintf(line, sizeof line, "%s highest", where);
    try(line, syscall(SYS_ioctl, fd, 0xffffffff00005412UL, &byte));
    char paste[] = {3, 0};
    snprintf(line, sizeof line, "%s linux", where);
    try(line, ioctl(fd, TIOCLINUX, paste));
    snprintf(line, sizeof line, "%s linux high", where);
    try(line, syscall(SYS_ioctl, fd, 0x10000541cUL, paste));
}
int main(void) {
    push("0", 0);
    push("1", 1);
    push("2", 2);
    push("tty", open("/dev/tty", O_RDWR));
    printf("controlling %s\n", ioctl(0, TIOCSCTTY, 1) ? strerrorname_np(errno) : "ok");
    return 0;
}
"#;

fn python() -> Option<&'static str> {
    ["/usr/bin/python3", "/usr/local/bin/python3"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

/// Runs it on a terminal; `None` after a skip.
fn on_a_terminal(
    ground: &Ground,
    steps: &str,
    flags: &[&str],
    program: &Path,
    words: &[&str],
) -> Option<Done> {
    let Some(python) = python() else {
        skip("the terminal's harness needs python3");
        return None;
    };
    let started = case(ground, flags, program, words);
    // I10 would measure the harness.
    let done = started
        .through(python, &["-c", HARNESS, steps])
        .without("I10")
        .done();
    Some(done)
}

fn pushed_at(where_: &str) -> String {
    ["sti", "high", "highest", "linux", "linux high"]
        .map(|how| format!("{where_} {how} EPERM\n"))
        .concat()
}

/// B-20 (CVE-2017-5226), B-21 (CVE-2019-10063), B-22 (CVE-2023-28100).
#[test]
fn no_byte_is_pushed_into_the_caller_s_terminal() {
    for flags in [&[][..], &["-i"]] {
        let ground = Ground::new();
        let push = program("push", PUSH);
        let Some(done) = on_a_terminal(&ground, "", flags, &push, &[]) else {
            return;
        };
        done.assert_exited(0);
        let three = ["0", "1", "2"].map(pushed_at).concat();
        let text = done.text();
        let (body, harness) = text.split_once("controlling ").expect("the last line");
        assert_eq!(body, format!("{three}tty absent ENXIO\n"));
        assert!(!harness.starts_with("ok"), "{text}");
        assert!(harness.ends_with("\npushed 0\nrestored True\n"), "{text}");
    }
}

/// B-20 … B-22 with a terminal of the body's own.
#[test]
fn no_byte_is_pushed_into_the_body_s_own_terminal_either() {
    let ground = Ground::new();
    let push = program("push", PUSH);
    let Some(done) = on_a_terminal(&ground, "", &["-t"], &push, &[]) else {
        return;
    };
    done.assert_exited(0);
    let text = done.text().replace('\r', "");
    let four = ["0", "1", "2", "tty"].map(pushed_at).concat();
    assert!(text.starts_with(&four), "{text}");
    assert!(text.ends_with("pushed 0\nrestored True\n"), "{text}");
}

/// B-20, B-23.
#[test]
fn the_body_s_terminal_is_its_own_and_works() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    struct stat mine, controlling;
    char *name = ttyname(0);
    printf("name %s\n", name ? name : strerrorname_np(errno));
    printf("all %d\n", isatty(0) && isatty(1) && isatty(2));
    int tty = open("/dev/tty", O_RDWR);
    printf("tty %s\n", tty < 0 ? strerrorname_np(errno) : "ok");
    printf("session %d\n", tcgetsid(tty) == getpid() && tcgetpgrp(tty) == getpid());
    fstat(0, &mine);
    stat(name, &controlling);
    printf("same %d\n", mine.st_rdev == controlling.st_rdev && mine.st_ino == controlling.st_ino);
    printf("group %d\n", tcsetpgrp(tty, getpgrp()));
    struct termios raw;
    tcgetattr(0, &raw);
    cfmakeraw(&raw);
    printf("raw %d\n", tcsetattr(0, TCSANOW, &raw));
    return 0;
}
"#;
    let own = program("own-terminal", text);
    let Some(done) = on_a_terminal(&ground, "cooked", &["-t", "-i"], &own, &[]) else {
        return;
    };
    done.assert_exited(0);
    // It leaves its own terminal raw, and the caller's is restored all the same.
    let text = done.text().replace('\r', "");
    let expected = "name /dev/pts/0\nall 1\ntty ok\nsession 1\nsame 1\ngroup 0\nraw 0\n\
        pushed 0\nrestored True\n";
    assert_eq!(text, expected);
}

/// B-23.
#[test]
fn the_window_size_follows_the_caller_s_terminal() {
    let ground = Ground::new();
    let text = r#"
static volatile int changed;
static void note(int signal) { changed++; }
static void size(void) {
    struct winsize now;
    ioctl(0, TIOCGWINSZ, &now);
    printf("%d %d\n", now.ws_row, now.ws_col);
    fflush(stdout);
}
int main(void) {
    signal(SIGWINCH, note);
    size();
    for (int turn = 0; turn < 2000 && !changed; turn++) usleep(20000);
    size();
    return 0;
}
"#;
    let sizes = program("window-size", text);
    let Some(done) = on_a_terminal(&ground, "resize", &["-t"], &sizes, &[]) else {
        return;
    };
    done.assert_exited(0);
    assert_eq!(
        done.text().replace('\r', ""),
        "33 77\n40 100\npushed 0\nrestored True\n"
    );
}

/// B-23: however the body ends.
#[test]
fn the_caller_s_terminal_is_restored_after_a_body_that_was_killed() {
    let ground = Ground::new();
    let text = "int main(void) { kill(getpid(), SIGKILL); for (;;) pause(); }";
    let killed = program("killed", text);
    let Some(done) = on_a_terminal(&ground, "cooked", &["-t", "-i"], &killed, &[]) else {
        return;
    };
    done.assert_outcome("signaled", 137);
    assert!(
        done.text().ends_with("pushed 0\nrestored True\n"),
        "{done:#?}"
    );
}

/// B-23: without `-t` the body's escape sequences arrive as they are, since the output is its
/// own; it still has no terminal whose mode it could change.
#[test]
fn without_a_terminal_of_its_own_the_body_changes_no_mode() {
    let ground = Ground::new();
    let text = r#"
int main(void) {
    struct termios raw;
    for (int fd = 0; fd < 3; fd++) {
        char name[8];
        snprintf(name, sizeof name, "%d", fd);
        try(name, tcgetattr(fd, &raw));
        memset(&raw, 0, sizeof raw);
        try(name, tcsetattr(fd, TCSANOW, &raw));
    }
    return 0;
}
"#;
    let modes = program("modes", text);
    let Some(done) = on_a_terminal(&ground, "cooked", &["-i"], &modes, &[]) else {
        return;
    };
    done.assert_exited(0);
    assert_eq!(
        done.text(),
        "0 ENOTTY\n0 ENOTTY\n1 ENOTTY\n1 ENOTTY\n2 ENOTTY\n2 ENOTTY\npushed 0\nrestored True\n"
    );
}
