//! A pool: reports as of a run of its own, nothing that one run left is there for the next, and
//! whoever dies leaves nothing.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

mod support;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use runner::resident::{Cancel, Passed, Pool, PoolError, PoolOptions};
use runner::spec::outcome::Outcome;
use runner::spec::report::Report;
use runner::spec::request::{Request, Subject};
use runner::spec::syscall_policy::SyscallPolicyName::{Default, Strict};
use serde_json::Value;
use support::invariants::Held;
use support::{Ground, runner};

/// One process is killed at a time: the leftovers of one test must not be another's.
static KILLING: Mutex<()> = Mutex::new(());
const HANG_AFTER: Duration = Duration::from_secs(60);

fn alone() -> MutexGuard<'static, ()> {
    KILLING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn options() -> PoolOptions {
    PoolOptions::new(runner())
}

fn pool() -> Pool {
    Pool::start(&options()).expect("a pool")
}

fn shell(pool: &Pool, script: &str) -> Request {
    let argv = ["/bin/sh", "-c", script].map(|word| word.as_bytes().to_vec());
    Request::captured(Subject::Command(argv.to_vec()), pool.caller().clone())
}

fn text(report: &Report) -> &str {
    assert_eq!(report.outcome, Outcome::Exited, "{:?}", report.error);
    report.stdout.text().expect("text")
}

/// Waits for `held`, or fails: the kernel frees some things later.
fn eventually(what: &str, held: impl Fn() -> bool) {
    let since = Instant::now();
    while !held() {
        assert!(since.elapsed() < HANG_AFTER, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The launcher that was started with this age: its pid, from /proc.
fn launcher_of(age_ms: u128) -> Option<i32> {
    let wanted = format!("--spare-age-max={age_ms}ms");
    processes().into_iter().find_map(|(pid, parent, words)| {
        let ours = i32::try_from(std::process::id()).ok() == Some(parent);
        (ours && words.contains(&wanted)).then_some(pid)
    })
}

/// Pid, parent's pid and command line of every process.
fn processes() -> Vec<(i32, i32, String)> {
    let entries = std::fs::read_dir("/proc").expect("readable");
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let rest = stat.rsplit_once(')')?.1;
            let mut fields = rest.split_whitespace();
            let state = fields.next()?;
            let parent = fields.next()?.parse().ok()?;
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            (state != "Z").then_some((pid, parent, words))
        })
        .collect()
}

fn kill(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("killed");
}

/// `runner gc` finds nothing: every run that was begun has given everything back.
fn nothing_is_left() {
    let gc = || {
        let done = Command::new(runner()).arg("gc").output().expect("run");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    assert_eq!(gc(), "nothing to remove\n");
}

/// The report without what differs from run to run.
fn essence(mut report: Value) -> Value {
    report["run_id"] = Value::Null;
    report["started_at"] = Value::Null;
    let timings = report["timings_ms"].as_object_mut().expect("an object");
    for took in timings.values_mut() {
        *took = Value::Null;
    }
    for name in [
        "wall_time_ms",
        "user_time_ms",
        "system_time_ms",
        "memory_peak_bytes",
        "written_bytes",
    ] {
        let known = report["usage"][name].is_number();
        report["usage"][name] = known.into();
    }
    report
}

#[test]
fn the_report_is_the_one_of_a_run_of_its_own() {
    let ground = Ground::new();
    let pool = pool();
    for script in [
        "echo hello; echo error >&2; exit 3",
        "printf '\\377'; kill -9 $$",
        "dd if=/dev/zero of=/scratch/x bs=1k count=64 2>/dev/null; ls /",
    ] {
        let report = pool.run(&shell(&pool, script)).expect("a report");
        let resident = serde_json::to_value(&report).expect("JSON");
        let file = ground.path("own.json");
        let status = Command::new(runner())
            .args(["run", "--json", "--", "/bin/sh", "-c", script])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(std::fs::File::create(&file).expect("made"))
            .status();
        status.expect("run");
        let own = std::fs::read_to_string(file).expect("a report");
        let own: Value = serde_json::from_str(&own).expect("JSON");
        let (resident, own) = (essence(resident), essence(own));
        for (name, value) in own.as_object().expect("an object") {
            assert_eq!(&resident[name], value, "{name} of {script}");
        }
        assert_eq!(resident, own, "{script}");
    }
}

/// Leaves a trace wherever a body can, and says where it could not.
const LEAVE: &str = r#"
for place in / /tmp /dev/shm /scratch /bundle /home/* "$HOME" /runner /run /var/tmp /etc /dev /proc/self /sys; do
    echo trace-7f3a > "$place/trace-7f3a" 2>/dev/null && echo "left $place"
done
umask 000; ulimit -n 17
hostname trace-7f3a 2>/dev/null
echo trace-7f3a > /proc/sys/kernel/hostname 2>/dev/null
export TRACE=trace-7f3a
(exec -a trace-7f3a sleep 1000) &
command -v python3 >/dev/null && python3 - <<'P'
import ctypes, socket
libc = ctypes.CDLL(None)
print("shm", 0 <= libc.shmget(0x7f3a, 4096, 0o1666))
print("msg", 0 <= libc.msgget(0x7f3a, 0o1666))
libc.syscall(248, b"user", b"trace-7f3a", b"x", 1, -3)
s = socket.socket(socket.AF_UNIX); s.bind("\0trace-7f3a")
t = socket.socket(); t.bind(("127.0.0.1", 7373)); t.listen()
P
true
"#;

/// Says all that it sees, but for the limit of a file's size: that is what the writable space has
/// left while it is still being filled by init, a page more or less. How many links /proc has is the
/// number of the host's processes: it sets the width of a column.
const LOOK: &str = r#"
ls -la / /tmp /dev/shm /scratch /bundle "$HOME" /var/tmp /run 2>&1 | grep -v ' proc$' | sed 's/[A-Z][a-z][a-z] [ 0-9]*:[0-9]*//; s/  */ /g'
env | grep -v ^RUNNER_RUN_ID= | sort; umask; ulimit -a | grep -v '^file'
for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline; echo; done
ls -l /proc/self/fd | awk '{print $9,$10}' | grep -c .
cat /proc/sys/kernel/hostname /proc/sysvipc/shm /proc/sysvipc/msg /proc/sysvipc/sem /proc/self/cgroup
cat /proc/net/unix /proc/net/tcp /proc/net/route 2>&1 | grep -v ' 0000: *$'
grep -c . /proc/self/mounts
cat /proc/keys 2>&1
grep -r "trace-[7]f3a" /tmp /dev/shm /scratch /bundle "$HOME" /var/tmp /run 2>/dev/null
true
"#;

#[test]
fn nothing_that_a_body_leaves_is_there_for_the_next() {
    let mut options = options();
    options.spares = 1;
    let pool = Pool::start(&options).expect("a pool");
    let before = pool.run(&shell(&pool, LOOK)).expect("a report");
    for _ in 0..3 {
        let left = pool.run(&shell(&pool, LEAVE)).expect("a report");
        assert!(
            text(&left).contains("left /tmp"),
            "{:?}",
            left.stdout.text()
        );
        let after = pool.run(&shell(&pool, LOOK)).expect("a report");
        assert!(!text(&after).contains("trace-7f3a"), "{}", text(&after));
        assert_eq!(text(&after), text(&before));
    }
}

#[test]
fn each_request_of_a_pool_chooses_its_system_call_policy_and_the_hosts_bounds_it() {
    const CALL: &str = "chrt --batch 0 true 2>/dev/null; echo $?";
    let ground = Ground::new();
    let strict = ground.write("strict.yaml", "syscalls: strict\n");
    for (policy, holds) in [
        (None, [Default, Strict, Default]),
        (Some(strict), [Strict, Strict, Strict]),
    ] {
        let pool = Pool::start(&PoolOptions {
            policy,
            ..options()
        })
        .expect("a pool");
        for (asked, holds) in [None, Some(Strict), Some(Default)].into_iter().zip(holds) {
            let mut request = shell(&pool, CALL);
            request.syscalls = asked;
            let report = pool.run(&request).expect("a report");
            assert_eq!(report.syscall_policy, Some(holds), "{asked:?}");
            let refused = if holds == Strict { "1\n" } else { "0\n" };
            assert_eq!(text(&report), refused, "{asked:?}");
        }
    }
}

#[test]
fn many_runs_from_many_threads_are_each_answered_their_own() {
    let runs = if support::tier_includes("long") {
        1_000
    } else {
        200
    };
    let mut options = options();
    options.spares = 8;
    options.runs_at_once = 16;
    let pool = Pool::start(&options).expect("a pool");
    let names = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (pool, names) = (&pool, &names);
            scope.spawn(move || {
                for number in 0..runs / 8 {
                    let word = format!("{thread}-{number}");
                    let script = format!("echo {word}; exit {}", number % 7);
                    let report = pool.run(&shell(pool, &script)).expect("a report");
                    assert_eq!(text(&report), format!("{word}\n"));
                    let code = report.exit.and_then(|exit| exit.code);
                    assert_eq!(code, Some(number % 7));
                    assert_eq!(report.warnings, []);
                    let new = names.lock().expect("a set").insert(report.run_id);
                    assert!(new, "a sandbox was used twice");
                }
            });
        }
    });
}

/// The seventh invariant.
#[test]
fn the_launcher_and_its_caller_hold_after_many_runs_what_they_held_before() {
    let runs = if support::tier_includes("long") {
        1_000
    } else {
        40
    };
    let _alone = alone();
    let mut options = options();
    options.spare_age_max = Duration::from_millis(300_004);
    options.spares = 2;
    let pool = Pool::start(&options).expect("a pool");
    let launcher = launcher_of(300_004).expect("a launcher");
    let run = |number: u32| {
        let mut request = shell(&pool, "exit 0");
        match number % 4 {
            0 => request = shell(&pool, "kill -9 $$"),
            1 => request.bundle.workspace = Some("/nonexistent".into()),
            2 => request = shell(&pool, "sleep 1004 & head -c 100000 /dev/zero"),
            _ => (),
        }
        pool.run(&request).expect("a report");
    };
    (0..8).for_each(run);
    // Spares are made and reaped beside the runs: what is held in the quiet is the least of it.
    let least = || {
        let seen = (0..40).map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            Held::by(launcher)
        });
        seen.min_by_key(|held| (held.descriptors, held.memory_kib))
            .expect("looked")
    };
    let before = least();
    (0..runs).for_each(run);
    eventually("the launcher holds more than before", || {
        least().beyond(before, 512).is_empty()
    });
    assert_ne!(before.descriptors, 0);
}

#[test]
fn a_refused_run_takes_nothing_from_the_others() {
    let pool = pool();
    for _ in 0..6 {
        let mut request = shell(&pool, "true");
        request.subject = Subject::Command(vec![b"/nonexistent".to_vec()]);
        let report = pool.run(&request).expect("a report");
        assert_eq!(report.error.expect("an error").code, "program_not_found");
        let mut request = shell(&pool, "true");
        request.bundle.workspace = Some("/nonexistent".into());
        let report = pool.run(&request).expect("a report");
        assert_eq!(report.outcome, Outcome::Refused);
        let report = pool.run(&shell(&pool, "echo well")).expect("a report");
        assert_eq!(text(&report), "well\n");
    }
}

#[test]
fn a_run_with_a_terminal_begins_anew() {
    let pool = pool();
    let mut request = shell(&pool, "test -t 0 && echo a terminal");
    request.streams.terminal = true;
    let report = pool.run(&request).expect("a report");
    assert_eq!(text(&report).trim_end(), "a terminal");
}

#[test]
fn streams_that_are_not_captured_are_the_callers() {
    let pool = pool();
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut request = shell(&pool, "cat; echo out; echo err >&2");
    request.streams.capture = false;
    request.streams.interactive = true;
    let ground = Ground::new();
    let input = std::fs::File::open(ground.write("input", "in\n")).expect("opened");
    let passed = Passed {
        stdin: Some(input.as_fd()),
        stdout: Some(writer.as_fd()),
        stderr: Some(writer.as_fd()),
        cancel: None,
    };
    let report = pool.run_with(&request, &passed).expect("a report");
    assert_eq!(report.outcome, Outcome::Exited);
    drop(writer);
    let mut written = String::new();
    reader.read_to_string(&mut written).expect("read");
    let mut lines: Vec<&str> = written.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "in", "out"]);
}

#[test]
fn a_run_is_cancelled_before_and_after_it_began() {
    let pool = pool();
    let cancel = Cancel::new().expect("made");
    let passed = Passed {
        cancel: Some(&cancel),
        ..Passed::default()
    };
    let request = shell(&pool, "sleep 1000");
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| pool.run_with(&request, &passed));
        eventually("the body runs", || {
            processes()
                .iter()
                .any(|(_, _, words)| words.contains("sleep 1000"))
        });
        cancel.cancel().expect("cancelled");
        running.join().expect("no panic")
    });
    let report = report.expect("a report");
    assert_eq!(report.outcome, Outcome::Cancelled);
    assert_eq!(report.cancelled_by, Some(15));
    let again = pool.run_with(&shell(&pool, "true"), &passed);
    assert!(matches!(again, Err(PoolError::Cancelled)), "{again:?}");
}

#[test]
fn a_sandbox_that_waited_too_long_is_replaced() {
    let mut options = options();
    options.spare_age_max = Duration::from_millis(50);
    let pool = Pool::start(&options).expect("a pool");
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(60));
        let report = pool.run(&shell(&pool, "echo well")).expect("a report");
        assert_eq!(text(&report), "well\n");
    }
}

#[test]
fn not_more_run_at_once_than_were_asked_for() {
    let mut options = options();
    options.runs_at_once = 2;
    let pool = Pool::start(&options).expect("a pool");
    let script = "sleep 0.31073";
    let most = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| pool.run(&shell(&pool, script)).expect("a report")))
            .collect();
        let mut most = 0;
        while runs.iter().any(|run| !run.is_finished()) {
            let now = processes();
            let bodies = now
                .iter()
                .filter(|(_, _, words)| words.starts_with("sleep 0.31073"));
            most = most.max(bodies.count());
        }
        most
    });
    assert!((1..=2).contains(&most), "{most} at once");
}

#[test]
fn a_supervisor_that_is_killed_is_an_error_of_its_run_alone() {
    let _alone = alone();
    let mut options = options();
    options.spare_age_max = Duration::from_millis(300_001);
    let pool = Pool::start(&options).expect("a pool");
    let launcher = launcher_of(300_001).expect("a launcher");
    let request = shell(&pool, "sleep 1001");
    let died = std::thread::scope(|scope| {
        let running = scope.spawn(|| pool.run(&request));
        eventually("the body runs", || {
            body_of(launcher, "sleep 1001").is_some()
        });
        kill(
            body_of(launcher, "sleep 1001").expect("a supervisor"),
            rustix::process::Signal::KILL,
        );
        running.join().expect("no panic")
    });
    assert!(matches!(died, Err(PoolError::SupervisorGone)), "{died:?}");
    let report = pool.run(&shell(&pool, "echo well")).expect("a report");
    assert_eq!(text(&report), "well\n");
    drop(pool);
    assert!(
        !processes()
            .iter()
            .any(|(_, _, words)| words.contains("sleep 1001"))
    );
    nothing_is_left();
}

/// The supervisor below `launcher` whose body's command line contains `words`.
fn body_of(launcher: i32, words: &str) -> Option<i32> {
    let all = processes();
    let parent = |pid: i32| {
        all.iter()
            .find(|(own, ..)| *own == pid)
            .map(|(_, up, _)| *up)
    };
    let mut bodies = all.iter().filter(|(_, _, line)| line.contains(words));
    bodies.find_map(|(pid, ..)| {
        let supervisor = parent(parent(*pid)?)?;
        let supervisor = if parent(supervisor)? == launcher {
            supervisor
        } else {
            parent(supervisor)?
        };
        (parent(supervisor)? == launcher).then_some(supervisor)
    })
}

#[test]
fn where_the_launcher_is_killed_runs_end_and_no_other_begins() {
    let _alone = alone();
    let mut options = options();
    options.spare_age_max = Duration::from_millis(300_002);
    options.spares = 2;
    let pool = Pool::start(&options).expect("a pool");
    let launcher = launcher_of(300_002).expect("a launcher");
    assert_eq!(
        text(&pool.run(&shell(&pool, "echo a")).expect("a report")),
        "a\n"
    );
    kill(launcher, rustix::process::Signal::KILL);
    // What was offered before is good still.
    let mut served = 0;
    let error = loop {
        match pool.run(&shell(&pool, "echo b")) {
            Ok(report) => assert_eq!(text(&report), "b\n"),
            Err(error) => break error,
        }
        served += 1;
        assert!(served <= 3, "more sandboxes than there were");
    };
    assert!(matches!(error, PoolError::LauncherGone), "{error:?}");
    drop(pool);
    eventually("a process of the pool stays", || {
        let marks = |words: &str| words.contains("--spare-age-max=300002ms");
        !processes().iter().any(|(_, _, words)| marks(words))
    });
    nothing_is_left();
}

/// Not a test of its own: the process that the next one kills.
#[test]
fn a_host_that_is_killed() {
    if std::env::var_os("RUNNER_TEST_HOST").is_none() {
        return;
    }
    let mut options = options();
    options.spare_age_max = Duration::from_millis(300_003);
    let pool = Pool::start(&options).expect("a pool");
    drop(pool.run(&shell(&pool, "trap '' TERM; sleep 1003; sleep 1003")));
}

#[test]
fn where_the_host_is_killed_nothing_is_left() {
    let _alone = alone();
    let this = std::env::current_exe().expect("known");
    let mut host = Command::new(this)
        .args(["--exact", "a_host_that_is_killed"])
        .env("RUNNER_TEST_HOST", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let runs = || {
        processes()
            .iter()
            .any(|(_, _, words)| words.starts_with("sleep 1003"))
    };
    eventually("the body runs", runs);
    host.kill().expect("killed");
    host.wait().expect("reaped");
    eventually("the body stays", || !runs());
    eventually("a process of the pool stays", || {
        let marks = |words: &str| words.contains("--spare-age-max=300003ms");
        !processes().iter().any(|(_, _, words)| marks(words))
    });
    nothing_is_left();
}

#[test]
fn another_program_and_a_configuration_that_is_wrong_are_told() {
    let other = Pool::start(&PoolOptions::new("/bin/true"));
    assert!(
        matches!(other, Err(PoolError::OtherProgram { .. })),
        "{other:?}"
    );
    let missing = Pool::start(&PoolOptions::new("/nonexistent/runner"));
    assert!(
        matches!(missing, Err(PoolError::Start { .. })),
        "{missing:?}"
    );
    let mut options = options();
    options.policy = Some(Path::new("/nonexistent.yaml").into());
    let refused = Pool::start(&options);
    assert!(matches!(refused, Err(PoolError::Refused(_))), "{refused:?}");
}
