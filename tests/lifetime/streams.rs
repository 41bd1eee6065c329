//! The caller's streams: closed, slow, full, and standard input.

use std::io::Read as _;
use std::process::Stdio;

use support::Ground;

/// E-08
#[test]
fn a_reader_that_goes_away_closes_the_body_s_output_and_the_report_is_written() {
    let ground = Ground::new();
    let script = "while echo line; do :; done 2>/dev/null; echo over >&2; exit 5";
    let mut running = ground
        .command(&[
            "run",
            "--",
            "/bin/sh",
            "-c",
            &format!("trap '' PIPE; {script}"),
        ])
        .start();
    let mut reader = running.child.stdout.take().expect("a pipe");
    let mut some = [0; 10];
    reader.read_exact(&mut some).expect("read");
    drop(reader);
    let done = running.done();
    done.assert_exited(5);
    assert!(done.stderr.starts_with("over\n"), "{}", done.stderr);
    assert!(0 < done.report["stdout"]["bytes"].as_u64().expect("a number"));
}

/// E-08: as under a shell, a body that ignores write errors is ended by SIGPIPE.
#[test]
fn a_body_whose_reader_has_gone_gets_sigpipe_as_anywhere() {
    let ground = Ground::new();
    let mut running = ground.command(&["run", "--", "/usr/bin/yes"]).start();
    drop(running.child.stdout.take());
    running.done().assert_outcome("signaled", 141);
}

/// E-08
#[test]
fn a_slow_reader_gets_everything() {
    let ground = Ground::new();
    let script = "head -c 3000000 /dev/zero";
    let mut running = ground
        .command(&["run", "--", "/bin/sh", "-c", script])
        .start();
    let mut reader = running.child.stdout.take().expect("a pipe");
    let reading = std::thread::spawn(move || {
        let mut total = 0;
        let mut part = vec![0; 40_000];
        loop {
            match reader.read(&mut part).expect("read") {
                0 => return total,
                count => total += count,
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    });
    running.done().assert_exited(0);
    assert_eq!(reading.join().expect("joined"), 3_000_000);
}

/// E-08
#[test]
fn a_reader_that_never_reads_does_not_hold_the_run_beyond_its_limit() {
    let ground = Ground::new();
    // Long enough to fill the pipe.
    let flags = ["run", "--timeout=3s", "--grace=100ms", "--", "/usr/bin/yes"];
    let mut running = ground.command(&flags).start();
    let unread = running.child.stdout.take();
    let done = running.done();
    done.assert_outcome("timed_out", 124);
    let dropped = done.report["stdout"]["dropped_bytes"].as_u64();
    assert!(0 < dropped.expect("a number"), "{done:#?}");
    drop(unread);
}

/// E-08: both streams and the messages of the runner go into a pipe that nobody reads.
#[test]
fn a_full_standard_error_does_not_hold_the_runner_for_ever() {
    let ground = Ground::new();
    let flags = [
        "run",
        "--timeout=3s",
        "--grace=100ms",
        "--",
        "/bin/sh",
        "-c",
        "yes; yes >&2",
    ];
    let mut case = ground.command(&flags);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    case.command.stdout(writer.try_clone().expect("a copy"));
    case.command.stderr(writer);
    let mut running = case.start();
    // The started command holds copies of the write end: only the runner's are counted.
    let started = std::time::Instant::now();
    while running.child.try_wait().expect("waited").is_none() {
        if std::time::Duration::from_secs(60) < started.elapsed() {
            drop(reader);
            running.done();
            panic!("the runner waits for a reader of its own words");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(reader);
    running.done().assert_outcome("timed_out", 124);
}

/// E-09
#[test]
fn closed_standard_descriptors_are_replaced_by_dev_null() {
    let ground = Ground::new();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let mut case = ground.command(&[
            "run",
            "--",
            "/bin/sh",
            "-c",
            "echo out; echo err >&2; cat; exit 6",
        ]);
        case.behind(&["/bin/sh", "-c", &format!("exec \"$@\" {closed}"), "sh"]);
        // The report is valid: nothing else was written into it.
        case.done().assert_exited(6);
    }
    let file = ground.write("data", "precious");
    let mut case = ground.command(&["run", "-i", "--", "/bin/sh", "-c", "cat; echo out"]);
    case.behind(&["/bin/sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh"]);
    case.done().assert_exited(0);
    assert_eq!(std::fs::read_to_string(file).expect("read"), "precious");
}

/// `-i`
#[test]
fn standard_input_and_its_end_are_passed_on() {
    let ground = Ground::new();
    let text: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let file = ground.write("input", &text);
    let mut case = ground.command(&["run", "-i", "--", "/bin/cat"]);
    case.command
        .stdin(std::fs::File::open(file).expect("opened"));
    let done = case.done();
    done.assert_exited(0);
    assert!(done.stdout == text);
    let done = ground
        .command(&["run", "-i", "--", "/bin/cat"])
        .stdin("through a pipe")
        .done();
    done.assert_exited(0);
    assert_eq!(done.text(), "through a pipe");
    let done = ground.command(&["run", "-i", "--", "/bin/cat"]).done();
    done.assert_exited(0);
}

/// `-i`: an unread standard input does not delay the end of the run.
#[test]
fn an_open_standard_input_does_not_hold_the_run() {
    let ground = Ground::new();
    let mut case = ground.command(&["run", "-i", "--", "/bin/sh", "-c", "exec <&-; echo x"]);
    case.command.stdin(Stdio::piped());
    let mut running = case.start();
    let open = running.child.stdin.take();
    let done = running.done();
    done.assert_exited(0);
    assert_eq!(done.text(), "x\n");
    drop(open);
}

/// Without `-i` the body reads nothing, and the caller's input remains unread.
#[test]
fn the_body_reads_no_standard_input_by_default() {
    let ground = Ground::new();
    let done = ground
        .command(&["run", "--", "/usr/bin/wc", "-c"])
        .stdin("secret")
        .done();
    done.assert_exited(0);
    assert_eq!(done.text().trim(), "0");
}
