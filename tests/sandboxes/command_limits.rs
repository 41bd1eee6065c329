//! Limits of one command: a cgroup of its own, below that of the sandbox.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::host::{Host, Said, said};
use rustix::process::{Signal, kill_process};
use support::invariants::{eventually, living};
use support::{has_cgroup, is_root, skip};

const NO_GROUP: &str = "a limit of one command needs a cgroup";

/// Forks on and on, and says when the first fork is refused.
const BOMB: &str = "\
import os, time
told = False
while True:
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except OSError:
        if not told:
            print('refused', flush=True)
        told = True
";

/// Uses processor time on and on.
const BURN: &str = "while :; do :; done";

fn create(host: &Host, flags: &[&str]) {
    let marker = format!("RUNNER_TEST_MARKER={}", host.ground.marker());
    host.create("one", &[&["-e", &marker][..], flags].concat());
}

/// Runs a command with these flags. Returns what it said, and the content of its --json.
fn measured(host: &Host, flags: &[&str], command: &[&str]) -> (Said, Value) {
    let file = host.ground.path("end.json");
    let json = format!("--json={}", file.display());
    let words = [
        &["sandbox", "exec", "--usage", &json],
        flags,
        &["one", "--"],
        command,
    ]
    .concat();
    let said = host.say(&words);
    let text = std::fs::read(&file).expect("written");
    (said, serde_json::from_slice(&text).expect("a document"))
}

/// Starts a command with these flags, and waits for its first line.
fn start(host: &Host, flags: &[&str], command: &[&str]) -> (Child, String) {
    let words = [&["sandbox", "exec"], flags, &["one", "--"], command].concat();
    let mut child = host
        .command(&words)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let line = lines.next().expect("a line").expect("read");
    (child, line)
}

/// Directories of the only sandbox, by hierarchy.
fn groups_of(run_id: &str) -> Vec<PathBuf> {
    let parent = std::env::var("RUNNER_OPT_CGROUP_PARENT").expect("set");
    let parent = parent.trim_start_matches('/');
    let top = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(top).expect("mounted").flatten();
    let hierarchies = hierarchies.map(|entry| entry.path());
    let groups = hierarchies.chain([top.to_owned()]);
    let groups = groups.map(|path| path.join(parent).join(format!("runner-{run_id}")));
    groups.filter(|path| path.is_dir()).collect()
}

fn run_id(host: &Host) -> String {
    host.list()[0]["run_id"].as_str().expect("an id").to_owned()
}

/// The groups of single commands.
fn leaves(run_id: &str) -> Vec<PathBuf> {
    let entries = groups_of(run_id)
        .into_iter()
        .flat_map(|group| std::fs::read_dir(group).into_iter().flatten().flatten());
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("command-"))
    };
    entries.map(|entry| entry.path()).filter(named).collect()
}

fn processes(group: &Path) -> usize {
    let text = std::fs::read_to_string(group.join("cgroup.procs"));
    text.map_or(0, |text| text.lines().count())
}

/// B-73: The second command needs as many processes as are left in the sandbox beside those of the bomb.
#[test]
fn a_fork_bomb_fills_its_own_limit_and_hinders_no_other_command() {
    if !has_cgroup() {
        return skip(NO_GROUP);
    }
    let host = Host::new();
    create(&host, &["--pids", "100"]);
    let (mut bomb, line) = start(&host, &["--pids", "16"], &["python3", "-c", BOMB]);
    assert_eq!(line, "refused");
    let text = "for i in $(seq 60); do sleep 1000 & all=\"$all $!\"; done; echo all; kill -9 $all";
    let other = host.shell("one", text);
    assert_eq!((other.code, &*other.stdout), (0, "all\n"), "{other:?}");
    assert_eq!(host.say(&["sandbox", "kill", "one", "1"]).code, 0);
    assert_eq!(bomb.wait().expect("ended").code(), Some(137));
    let once = "import os, time\ntry:\n    while True:\n        if os.fork() == 0:\n            \
                time.sleep(1000)\nexcept OSError:\n    pass\n";
    let (said, end) = measured(&host, &["--pids", "16"], &["python3", "-c", once]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains("--pids refused 1 process"), "{said:?}");
    assert_eq!(end["outcome"], "exited", "{end}");
    assert_eq!(end["refused_forks"], 1, "{end}");
    let peak = end["usage"]["processes_peak"].as_u64();
    assert!(peak.is_none_or(|peak| peak == 16), "{end}");
}

/// B-73: The kernel kills in the cgroup whose limit was reached.
#[test]
fn a_command_that_uses_up_its_memory_is_ended_alone() {
    if !has_cgroup() {
        return skip(NO_GROUP);
    }
    let host = Host::new();
    let report = host.ground.path("report.json");
    let json = format!("--json={}", report.display());
    create(&host, &["-m", "256m", &json]);
    let (mut other, line) = start(&host, &[], &["sh", "-c", "echo up; exec sleep 1000"]);
    assert_eq!(line, "up");
    let hog = ["python3", "-c", "x = bytearray(1 << 30)"];
    let (said, end) = measured(&host, &["-m", "48m"], &hog);
    assert_eq!(said.code, 137, "{said:?}");
    assert!(said.stderr.contains("out of memory"), "{said:?}");
    assert!(said.stderr.contains("48 MiB; --memory"), "{said:?}");
    assert_eq!(end["outcome"], "out_of_memory", "{end}");
    assert_eq!(end["exit"]["signal"], 9, "{end}");
    assert!(end["usage"]["oom_kills"].as_u64() >= Some(1), "{end}");
    let peak = end["usage"]["memory_peak_bytes"].as_u64();
    assert!(peak.is_none_or(|peak| peak <= 48 << 20), "{end}");
    let record = &host.list()[0]["ended"]["latest"][0];
    assert_eq!(record["outcome"], "out_of_memory", "{record}");
    assert_eq!(record["usage"], end["usage"]);
    // The same without the limit fits, and the limit of the sandbox holds for one that asks for more.
    let fits = ["python3", "-c", "x = bytearray(96 << 20)"];
    let (said, end) = measured(&host, &[], &fits);
    assert_eq!((said.code, &end["outcome"]), (0, &Value::from("exited")));
    let peak = end["usage"]["memory_peak_bytes"].as_u64();
    assert!(peak.is_none_or(|peak| peak >= 96 << 20), "{end}");
    let (said, end) = measured(&host, &["-m", "8g"], &hog);
    assert_eq!(said.code, 137, "{said:?}");
    assert_eq!(end["outcome"], "out_of_memory", "{end}");
    assert_eq!(other.try_wait().expect("known"), None);
    assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
    assert_eq!(other.wait().expect("ended").code(), Some(137));
    let text = std::fs::read_to_string(&report).expect("read");
    let report: Value = serde_json::from_str(&text).expect("a report");
    assert!(report["usage"]["oom_kills"].as_u64() >= Some(2), "{report}");
    assert_eq!(report["outcome"], "exited", "{report}");
}

/// B-73: It burns in a session of its own, while the command waits, has ended, or burns itself.
#[test]
fn a_command_that_uses_up_its_cpu_time_is_killed_with_what_has_left_its_session() {
    if !has_cgroup() {
        return skip(NO_GROUP);
    }
    let host = Host::new();
    create(&host, &["--grace", "0s"]);
    let run_id = run_id(&host);
    let elsewhere = format!("setsid sh -c '{BURN}' &");
    for (text, code, outcome) in [
        (BURN.to_owned(), 124, "cpu_exhausted"),
        (format!("{elsewhere} sleep 1000"), 124, "cpu_exhausted"),
        (elsewhere, 0, "exited"),
    ] {
        let command = ["sh", "-c", &*text];
        let (said, end) = measured(&host, &["--cpu-time", "300ms"], &command);
        assert_eq!(
            (said.code, &end["outcome"]),
            (code, &outcome.into()),
            "{said:?}"
        );
        if code == 124 {
            assert!(said.stderr.contains("out of CPU time"), "{said:?}");
            let time = |name: &str| end["usage"][name].as_u64().expect("counted");
            // Each part is rounded down.
            assert!(
                time("user_time_ms") + time("system_time_ms") >= 298,
                "{end}"
            );
        }
        eventually("everything is killed", || {
            living(host.ground.marker()).is_empty()
        });
        eventually("its groups are gone", || leaves(&run_id).is_empty());
    }
    assert_eq!(host.shell("one", "echo on").stdout, "on\n");
}

/// B-74: No file of a cgroup is visible or open, and none can be mounted.
#[test]
fn a_command_cannot_leave_its_cgroup() {
    if !has_cgroup() {
        return skip(NO_GROUP);
    }
    let host = Host::new();
    create(&host, &[]);
    let run_id = run_id(&host);
    let text = "
import ctypes, os, time
libc = ctypes.CDLL(None)
names = {'tasks', 'cgroup.procs', 'cgroup.threads', 'cgroup.subtree_control', 'release_agent'}
seen = [os.path.join(d, f) for d, _, files in os.walk('/') if not d.startswith('/proc')
        for f in names.intersection(files)]
opened = []
for process in filter(str.isdigit, os.listdir('/proc')):
    try:
        for fd in os.listdir(f'/proc/{process}/fd'):
            target = os.readlink(f'/proc/{process}/fd/{fd}')
            if os.path.basename(target) in names:
                opened.append(target)
    except OSError:
        pass
os.makedirs('/tmp/group')
mounted = [kind for kind in (b'cgroup', b'cgroup2')
           if libc.mount(b'none', b'/tmp/group', kind, 0, b'memory') == 0]
CLONE_NEWCGROUP, CLONE_NEWUSER = 0x02000000, 0x10000000
left = [flag for flag in (CLONE_NEWCGROUP, CLONE_NEWUSER) if libc.unshare(flag) == 0]
if os.fork() == 0:
    os.setsid()
    time.sleep(1000)
print(seen, opened, mounted, left, flush=True)
time.sleep(1000)
";
    let flags = ["--pids", "16", "-m", "64m"];
    let (mut child, line) = start(&host, &flags, &["python3", "-c", text]);
    assert_eq!(line, "[] [] [] []");
    let found = leaves(&run_id);
    assert!(!found.is_empty());
    for leaf in found {
        assert_eq!(processes(&leaf), 2, "{}", leaf.display());
    }
    assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
    assert_eq!(child.wait().expect("ended").code(), Some(137));
    assert_eq!(groups_of(&run_id), Vec::<PathBuf>::new());
}

#[test]
fn a_cgroup_is_made_only_when_asked_for_and_stays_while_something_runs_in_it() {
    if !has_cgroup() {
        return skip(NO_GROUP);
    }
    let host = Host::new();
    create(&host, &[]);
    let run_id = run_id(&host);
    let (mut plain, _up) = start(&host, &[], &["sh", "-c", "echo up; exec sleep 1000"]);
    assert_eq!(leaves(&run_id), Vec::<PathBuf>::new());
    let text = "sleep 1000 & echo $!";
    let (said, end) = measured(&host, &[], &["sh", "-c", text]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(end["usage"]["memory_peak_bytes"].is_u64(), "{end}");
    assert!(!leaves(&run_id).is_empty());
    for leaf in leaves(&run_id) {
        assert_eq!(processes(&leaf), 1, "{}", leaf.display());
    }
    let kill = format!("kill -9 {}", said.stdout.trim());
    assert_eq!(host.shell("one", &kill).code, 0);
    eventually("it is removed", || leaves(&run_id).is_empty());
    // One that is not started leaves none either.
    let (said, end) = measured(&host, &["-m", "64m"], &["/no/such/program"]);
    assert_eq!((said.code, &end["outcome"]), (127, &Value::from("failed")));
    eventually("it is removed", || leaves(&run_id).is_empty());
    assert_eq!(plain.try_wait().expect("known"), None);
    assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
    assert_eq!(plain.wait().expect("ended").code(), Some(137));
    assert_eq!(groups_of(&run_id), Vec::<PathBuf>::new());
}

/// E-31: A process is in the cgroup of a command that runs, and in that of one that has ended.
#[test]
fn gc_removes_the_cgroups_of_commands_of_a_killed_supervisor() {
    if !has_cgroup() {
        return skip(NO_GROUP);
    }
    let host = Host::new();
    create(&host, &[]);
    let run_id = run_id(&host);
    let left = [
        "sandbox",
        "exec",
        "-m",
        "64m",
        "one",
        "--",
        "sh",
        "-c",
        "sleep 1000 &",
    ];
    assert_eq!(host.say(&left).code, 0);
    let flags = ["--pids", "16", "--cpus", "0.5"];
    let (mut child, _up) = start(&host, &flags, &["sh", "-c", "echo up; exec sleep 1000"]);
    assert!(!leaves(&run_id).is_empty());
    kill_process(host.supervisor(), Signal::KILL).expect("sent");
    assert_eq!(child.wait().expect("ended").code(), Some(137));
    eventually("nothing is left", || {
        let collected = host.say(&["gc"]);
        assert_eq!(collected.code, 0, "{collected:?}");
        host.files("runs").is_empty()
    });
    assert_eq!(groups_of(&run_id), Vec::<PathBuf>::new());
}

#[test]
fn the_share_of_processors_is_that_of_the_command_or_of_the_sandbox_if_that_is_less() {
    if !has_cgroup() {
        return skip(NO_GROUP);
    }
    for of_sandbox in [&[][..], &["--cpus", "0.5"]] {
        let host = Host::new();
        create(&host, of_sandbox);
        let run_id = run_id(&host);
        for (share, quota) in [("0.25", "25000"), ("2", "200000")] {
            let flags = ["--cpus", share];
            let (mut child, _up) = start(&host, &flags, &["sh", "-c", "echo up; exec sleep 1000"]);
            let found: Vec<String> = leaves(&run_id)
                .iter()
                .flat_map(|leaf| ["cpu.cfs_quota_us", "cpu.max"].map(|file| leaf.join(file)))
                .filter_map(|file| std::fs::read_to_string(file).ok())
                .collect();
            let is_set = found
                .iter()
                .any(|text| text.split(' ').next() == Some(quota))
                || found.iter().any(|text| text.trim() == quota);
            // Version 1 does not store more than the sandbox has.
            let is_above = share == "2" && !of_sandbox.is_empty();
            assert!(is_set || is_above, "{share}: {found:?}");
            assert!(!found.is_empty());
            let id = host.list()[0]["commands"][0]["id"].to_string();
            assert_eq!(host.say(&["sandbox", "kill", "one", &id]).code, 0);
            assert_eq!(child.wait().expect("ended").code(), Some(137));
        }
    }
}

/// Without the group of these tests an ordinary user has none on most hosts; root makes groups there alone.
fn create_without_groups(host: &Host, flags: &[&str]) -> Said {
    let marker = format!("RUNNER_TEST_MARKER={}", host.ground.marker());
    let words = ["sandbox", "create", "--name", "one", "-e", &marker];
    let mut command = host.command(&[&words[..], flags].concat());
    if !is_root() {
        command.env_remove("RUNNER_OPT_CGROUP_PARENT");
    }
    said(command.output().expect("started"))
}

#[test]
fn a_limit_is_refused_where_no_cgroup_enforces_it_and_only_there() {
    let host = Host::new();
    let created = create_without_groups(&host, &[]);
    assert_eq!(created.code, 0, "{created:?}");
    let (said, end) = measured(&host, &[], &["true"]);
    assert_eq!(said.code, 0, "{said:?}");
    let has_group = end["usage"] != Value::Null;
    for flags in [
        ["-m", "64m"],
        ["--pids", "16"],
        ["--cpus", "0.5"],
        ["--cpu-time", "1s"],
    ] {
        let (said, end) = measured(&host, &flags, &["true"]);
        if has_group {
            assert_eq!((said.code, end["outcome"].as_str()), (0, Some("exited")));
            continue;
        }
        assert_eq!(said.code, 125, "{said:?}");
        assert!(said.stderr.contains("(limit_unenforceable)"), "{said:?}");
        assert_eq!(end["outcome"], "refused", "{end}");
        assert_eq!(end["error"]["code"], "limit_unenforceable", "{end}");
    }
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    let manifest = "sandbox: {provider: local, limits: {cpu_ms: 5000}}\n";
    let path = host.ground.write("m.yaml", manifest);
    let created = create_without_groups(&host, &["--manifest", path.to_str().expect("text")]);
    let refused = created.stderr.contains("(limit_unenforceable)");
    assert_eq!(
        (created.code, refused),
        if has_group { (0, false) } else { (125, true) }
    );
}

#[test]
fn a_limit_below_which_no_program_starts_is_wrong_usage() {
    let host = Host::new();
    create(&host, &[]);
    for flags in [["-m", "1k"], ["--pids", "0"], ["--cpu-time", "0s"]] {
        let words = [&["sandbox", "exec"], &flags[..], &["one", "--", "true"]].concat();
        let refused = host.say(&words);
        assert_eq!(refused.code, 125, "{refused:?}");
    }
    // The variables of `run` are those of the sandbox.
    let done = host
        .command(&["sandbox", "exec", "one", "--", "echo", "on"])
        .env("RUNNER_OPT_MEMORY", "1k")
        .output()
        .expect("started");
    assert_eq!(done.stdout, b"on\n");
}
