//! The ten invariants themselves: each is broken on purpose, and the checker must detect it. A
//! checker that cannot fail proves nothing.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use support::invariants::{Held, watch_memory};
use support::{Case, Done, Ground, Running, has_cgroup, is_root, needs_root, random, skip};

/// How long to wait for what stays broken: shorter than for what the kernel frees later.
const SHORT: Duration = Duration::from_secs(1);

/// A run that does nothing, awaited and not yet checked.
fn ended<'a>(ground: &'a Ground, flags: &[&str]) -> Running<'a> {
    let line = [&["run"], flags, &["--", "/bin/true"]].concat();
    ended_of(ground.command(&line))
}

/// The same, before one of the invariants is broken for which a check waits (I2, I5, I6).
fn ended_and_then_broken(ground: &Ground) -> Running<'_> {
    let case = ground.command(&["run", "--", "/bin/true"]);
    ended_of(case.with_patience(SHORT))
}

fn ended_of(case: Case<'_>) -> Running<'_> {
    let mut running = case.start();
    running.child.wait().expect("waited");
    running
}

/// Asserts that the checker finds this invariant broken, and no other.
#[track_caller]
fn assert_red(running: Running<'_>, invariant: &str, how: &str) -> Done {
    let (done, breaches) = running.finish();
    assert!(!breaches.is_empty(), "{how} is not seen: {done:#?}");
    let named = format!("{invariant}: ");
    let all = breaches.iter().all(|breach| breach.starts_with(&named));
    assert!(all, "{how}: {breaches:#?}");
    done
}

/// Asserts that the checker finds nothing.
#[track_caller]
fn assert_green(running: Running<'_>, how: &str) {
    let (done, breaches) = running.finish();
    assert!(breaches.is_empty(), "{how}: {breaches:#?}\n{done:#?}");
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
}

fn put_back_times(path: &Path, act: impl Fn()) {
    let about = std::fs::metadata(path).expect("there");
    act();
    let file = std::fs::File::open(path).expect("opened");
    let times = std::fs::FileTimes::new()
        .set_accessed(about.accessed().expect("a time"))
        .set_modified(about.modified().expect("a time"));
    file.set_times(times).expect("set");
}

#[test]
fn a_run_that_keeps_to_them_breaks_none() {
    let ground = Ground::new();
    assert_green(ended(&ground, &[]), "a plain run");
}

#[test]
fn the_first_sees_every_kind_of_change_of_the_canary_tree() {
    type Change = fn(&Path);
    let ways: &[(&str, Change)] = &[
        ("other bytes of the same length and time", |tree| {
            let file = tree.join("file");
            put_back_times(&file, || {
                std::fs::write(&file, "canarY").expect("written");
            });
        }),
        ("another mode", |tree| set_mode(&tree.join("file"), 0o666)),
        ("another mode and back", |tree| {
            let mode = std::fs::metadata(tree.join("deep")).expect("there").mode();
            set_mode(&tree.join("deep"), 0o700);
            set_mode(&tree.join("deep"), mode);
        }),
        ("a file that was there for a moment", |tree| {
            std::fs::write(tree.join("deep/new"), "").expect("written");
            std::fs::remove_file(tree.join("deep/new")).expect("removed");
        }),
        ("a new file", |tree| {
            put_back_times(tree, || {
                std::fs::write(tree.join("new"), "").expect("written");
            });
        }),
        ("a removed file", |tree| {
            std::fs::remove_file(tree.join("deep/er/file")).expect("removed");
        }),
        ("a further name of a file, elsewhere", |tree| {
            let elsewhere = tree.parent().expect("the ground").join("name");
            std::fs::hard_link(tree.join("deep/er/file"), elsewhere).expect("linked");
        }),
        ("a link that leads elsewhere", |tree| {
            std::fs::remove_file(tree.join("link")).expect("removed");
            std::os::unix::fs::symlink("deep", tree.join("link")).expect("linked");
        }),
        ("another file with the same contents", |tree| {
            let file = tree.join("deep/er/file");
            put_back_times(&tree.join("deep/er"), || {
                std::fs::write(tree.join("copy"), "canary").expect("written");
                std::fs::rename(tree.join("copy"), &file).expect("renamed");
            });
        }),
    ];
    for (how, break_it) in ways {
        let ground = Ground::new();
        let running = ended(&ground, &[]);
        break_it(&ground.path("canary"));
        assert_red(running, "I1", how);
    }
}

#[test]
fn the_first_sees_extended_attributes_and_access_control_lists() {
    let ground = Ground::new();
    let file = ground.path("canary/file");
    let set = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&file, "user.probe", b"", set).is_err() {
        return skip("this file system has no extended attributes");
    }
    // Version 2; owner, uid 1, group, mask, others: the mode stays what it was.
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 4, 1),
        (4, 4, u32::MAX),
        (16, 4, u32::MAX),
        (32, 4, u32::MAX),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    for (name, value) in [
        ("user.canary", b"gone".as_slice()),
        ("user.new", b""),
        ("system.posix_acl_access", &list),
    ] {
        let ground = Ground::new();
        let file = ground.path("canary/file");
        let running = ended(&ground, &[]);
        rustix::fs::setxattr(&file, name, value, set).expect("set");
        let (_, breaches) = running.finish();
        // A changed time would be detected anyway.
        let seen = breaches.iter().any(|breach| {
            let (was, is) = breach.split_once(", is ").expect("both");
            let extended = |facts: &str| {
                let from = facts.find("extended: ").expect("stated");
                let to = facts.find(", contents").expect("stated");
                facts[from..to].to_owned()
            };
            breach.starts_with("I1: ") && extended(was) != extended(is)
        });
        assert!(seen, "{name}: {breaches:#?}");
    }
}

#[test]
fn the_first_sees_another_owner() {
    if !is_root() {
        return needs_root("only root can give a file away");
    }
    let ground = Ground::new();
    let running = ended(&ground, &[]);
    let (uid, gid) = (rustix::fs::Uid::from_raw(1), rustix::fs::Gid::from_raw(1));
    rustix::fs::chown(ground.path("canary/deep"), Some(uid), Some(gid)).expect("given");
    assert_red(running, "I1", "another owner");
}

/// A process that is killed when the value is dropped.
struct Sleeper(Child);

impl Sleeper {
    fn new(name: &str, value: &str) -> Self {
        let mut command = Command::new("/bin/sleep");
        command.arg("100").env_clear().env(name, value);
        Self(command.stdin(Stdio::null()).spawn().expect("started"))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("waited");
    }
}

#[test]
fn the_second_sees_a_body_and_a_supervisor_that_live() {
    for name in ["RUNNER_TEST_MARKER", "RUNNER_OPT_ENV"] {
        let ground = Ground::new();
        let running = ended_and_then_broken(&ground);
        let value = match name {
            "RUNNER_OPT_ENV" => format!("RUNNER_TEST_MARKER={}", ground.marker()),
            _ => ground.marker().to_owned(),
        };
        let _left = Sleeper::new(name, &value);
        assert_red(running, "I2", name);
    }
}

/// A cgroup that is removed when the value is dropped.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).expect("removed");
    }
}

#[test]
fn the_second_sees_a_process_by_its_cgroup_and_the_fifth_the_cgroup() {
    if !is_root() || !has_cgroup() {
        return needs_root("only root has a cgroup in which others can be made");
    }
    let parent = std::env::var("RUNNER_OPT_CGROUP_PARENT").expect("stated");
    let parent = parent.trim_start_matches('/');
    let hierarchies = ["pids", "unified", ""];
    let places = hierarchies.map(|name| Path::new("/sys/fs/cgroup").join(name).join(parent));
    let Some(place) = places.iter().find(|place| place.is_dir()) else {
        return skip("the cgroup of the tests is nowhere");
    };
    for with_process in [true, false] {
        let ground = Ground::new();
        let running = ended_and_then_broken(&ground);
        let report = running.report();
        let run_id = report["run_id"].as_str().expect("a run");
        let group = Group(place.join(format!("left-{run_id}")));
        std::fs::create_dir(&group.0).expect("made");
        if !with_process {
            assert_red(running, "I5", "a cgroup");
            continue;
        }
        // A process that cleared its environment.
        let left = Sleeper::new("NOTHING", "1");
        std::fs::write(group.0.join("cgroup.procs"), left.0.id().to_string()).expect("moved");
        let (_, breaches) = running.finish();
        let has = |name: &str| breaches.iter().any(|breach| breach.starts_with(name));
        assert!(has("I2: ") && has("I5: "), "{breaches:#?}");
    }
}

/// Runs this test again in its own namespaces, where it may change what belongs to the host.
fn in_namespaces_of_its_own(test: &str, namespaces: &[&str]) {
    let mut command = Command::new("unshare");
    command.args(namespaces);
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .arg(std::env::current_exe().expect("a program"))
        .args(["--exact", test, "--nocapture"])
        .env("RUNNER_TESTS_OWN_NAMESPACES", "1");
    let done = command.output().expect("unshare starts");
    let told = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success(), "{told:#?}");
}

fn is_in_namespaces_of_its_own() -> bool {
    std::env::var_os("RUNNER_TESTS_OWN_NAMESPACES").is_some()
}

fn must(program: &str, words: &[&str]) {
    let status = Command::new(program).args(words).status();
    let status = status.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(status.success(), "{program} {words:?}");
}

#[test]
fn the_third_sees_a_mount() {
    if !is_in_namespaces_of_its_own() {
        return in_namespaces_of_its_own("the_third_sees_a_mount", &["--mount"]);
    }
    let ground = Ground::new();
    let running = ended(&ground, &[]);
    let place = ground.workspace();
    let place = place.to_str().expect("a plain path");
    must("mount", &["-t", "tmpfs", "none", place]);
    assert_red(running, "I3", "a mount");
    let running = ended(&ground, &[]);
    must("umount", &[place]);
    assert_red(running, "I3", "a mount that is gone");
}

#[test]
fn the_fourth_sees_a_scratch_root() {
    let ground = Ground::new();
    let runtime = ground.path("runtime");
    let runtime_text = runtime.to_str().expect("a plain path");
    let mut case = ground.command(&["run", "--", "/bin/true"]);
    case.command
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", runtime_text);
    let running = ended_of(case);
    let run_id = running.report()["run_id"]
        .as_str()
        .expect("a run")
        .to_owned();
    std::fs::create_dir_all(runtime.join("runs").join(&run_id)).expect("made");
    assert_red(running, "I4", "a record");

    let running = ended(&ground, &[]);
    let run_id = running.report()["run_id"]
        .as_str()
        .expect("a run")
        .to_owned();
    let kept = std::env::temp_dir().join(format!("runner-{run_id}"));
    std::fs::create_dir(&kept).expect("made");
    let (_, breaches) = running.finish();
    std::fs::remove_dir(&kept).expect("removed");
    let seen = breaches.iter().all(|breach| breach.starts_with("I4: "));
    assert!(!breaches.is_empty() && seen, "{breaches:#?}");
}

#[test]
fn the_sixth_sees_objects_of_system_v() {
    if !is_in_namespaces_of_its_own() {
        return in_namespaces_of_its_own("the_sixth_sees_objects_of_system_v", &["--ipc"]);
    }
    for (kind, words) in [
        ("-m", ["-M", "4096"]),
        ("-s", ["-S", "1"]),
        ("-q", ["-Q", ""]),
    ] {
        let ground = Ground::new();
        let running = ended_and_then_broken(&ground);
        let words = words.iter().filter(|word| !word.is_empty());
        let made = Command::new("ipcmk").args(words).output().expect("runs");
        let told = String::from_utf8(made.stdout).expect("text");
        let id = told.split_whitespace().last().expect("an identifier");
        let (_, breaches) = running.finish();
        must("ipcrm", &[kind, id]);
        let seen = breaches
            .iter()
            .all(|breach| breach.starts_with("I6: System V"));
        assert!(!breaches.is_empty() && seen, "{kind}: {breaches:#?}");
    }
}

#[test]
fn the_sixth_sees_a_message_queue() {
    if !is_in_namespaces_of_its_own() {
        return in_namespaces_of_its_own("the_sixth_sees_a_message_queue", &["--ipc", "--mount"]);
    }
    let text = include_str!("bodies/invariants/the_sixth_sees_a_message_queue.c");
    let program = support::bodies::c_body("message-queue", text);
    let program = program.to_str().expect("a plain path");
    let name = format!("/left-{}", random());
    let ground = Ground::new();
    let running = ended_and_then_broken(&ground);
    must(program, &[&name]);
    let (_, breaches) = running.finish();
    must(program, &["unlink", &name]);
    let seen = breaches
        .iter()
        .all(|breach| breach.starts_with("I6: message queue"));
    assert!(!breaches.is_empty() && seen, "{breaches:#?}");
}

#[test]
fn the_sixth_sees_an_abstract_socket_that_is_the_run_s_or_nobody_s() {
    let test = "the_sixth_sees_an_abstract_socket_that_is_the_run_s_or_nobody_s";
    if !is_in_namespaces_of_its_own() {
        return in_namespaces_of_its_own(test, &["--net"]);
    }
    let ground = Ground::new();
    let running = ended_and_then_broken(&ground);
    let bind = |name: &str| {
        let address = SocketAddr::from_abstract_name(name).expect("a name");
        UnixListener::bind_addr(&address).expect("bound")
    };
    let left = bind(&format!("of-{}", ground.marker()));
    assert_red(running, "I6", "a socket with the marker");
    drop(left);

    let running = ended(&ground, &[]);
    let of_others = bind(&format!("of-others-{}", random()));
    assert_green(running, "a socket of somebody else's");
    let running = ended_and_then_broken(&ground);
    let (here, there) = UnixStream::pair().expect("a pair");
    let nobodys = bind(&format!("nobodys-{}", random()));
    send_descriptor(&here, nobodys);
    assert_red(running, "I6", "a socket in a message that nobody reads");
    drop((of_others, there));
}

/// Sends the descriptor and closes it.
fn send_descriptor(to: &UnixStream, what: UnixListener) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let descriptors = [what.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let bytes = [std::io::IoSlice::new(b"x")];
    sendmsg(to, &bytes, &mut ancillary, SendFlags::empty()).expect("sent");
}

#[test]
fn the_sixth_sees_rules_and_devices_of_the_host_s_network() {
    let test = "the_sixth_sees_rules_and_devices_of_the_host_s_network";
    if !is_in_namespaces_of_its_own() {
        return in_namespaces_of_its_own(test, &["--net"]);
    }
    let ground = Ground::new();
    let running = ended_and_then_broken(&ground);
    must(
        "ip",
        &[
            "link", "add", "left0", "type", "veth", "peer", "name", "left1",
        ],
    );
    assert_red(running, "I6", "a pair of devices");
    let has_rules = Command::new("nft").args(["list", "ruleset"]).output();
    if !has_rules.is_ok_and(|output| output.status.success()) {
        return skip("nft does not work here (package nftables)");
    }
    let running = ended_and_then_broken(&ground);
    must("nft", &["add", "table", "inet", "left"]);
    assert_red(running, "I6", "a table");
}

#[test]
fn the_sixth_sees_a_network_namespace_that_a_descriptor_keeps() {
    let ground = Ground::new();
    let case = ground.command(&["run", "--", "/bin/sleep", "0.5"]);
    let mut running = case.with_patience(SHORT).start();
    let marker = ground.marker().to_owned();
    let bodies = || support::invariants::living(&marker);
    running.until("the body runs", || !bodies().is_empty());
    let network = format!("/proc/{}/ns/net", bodies().first().expect("one"));
    let _kept = std::fs::File::open(network).expect("opened");
    assert_red(running, "I6", "a kept network namespace");
}

#[test]
fn the_seventh_sees_descriptors_and_memory() {
    let mut child = Command::new("/bin/sh")
        .args([
            "-c",
            "echo ready; read go; exec 5</dev/null 6</dev/null; echo open; read go; \
             text=$(head -c 20000000 /dev/zero | tr '\\0' x); echo full; read go",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let pid = i32::try_from(child.id()).expect("a pid");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut said = || {
        let mut word = String::new();
        stdout.read_line(&mut word).expect("a word");
        Held::by(pid)
    };
    let before = said();
    let mut step = || {
        stdin.write_all(b"\n").expect("written");
        said()
    };
    assert_eq!(before.beyond(before, 0), [""; 0]);
    let opened = step();
    let seen = opened.beyond(before, 4096);
    assert!(
        seen.len() == 1 && seen[0].contains("descriptors"),
        "{seen:?}"
    );
    let full = step();
    let seen = full.beyond(opened, 4096);
    assert!(seen.len() == 1 && seen[0].contains("KiB"), "{seen:?}");
    child.kill().expect("killed");
    child.wait().expect("waited");
}

/// `sh -c TEXT sh RUNNER WORDS…`, whose end is taken for that of the runner.
fn under_a_shell<'a>(ground: &'a Ground, text: &str) -> Case<'a> {
    let case = ground.command(&["run", "--", "/bin/true"]);
    case.through("/bin/sh", &["-c", text, "sh"])
}

#[test]
fn the_eighth_sees_another_exit_code_and_another_report() {
    let ground = Ground::new();
    for text in [r#""$@"; exit 3"#, r#""$@"; kill -9 $$"#, "exit 125"] {
        let running = under_a_shell(&ground, text).start();
        assert_red(running, "I8", text);
    }
    let mut running = ended(&ground, &[]);
    for (name, value) in [
        ("outcome", json!("refused")),
        ("error", json!({ "code": "x", "message": "x" })),
        ("exit", json!(null)),
        ("run_id", json!(7)),
        ("warnings", json!("none")),
    ] {
        let mut report = running.report();
        report[name] = value;
        running.put_report(&report);
        assert_red(running, "I8", name);
        running = ended(&ground, &[]);
    }
    assert_green(running, "the report as it is");
}

#[test]
fn the_ninth_sees_the_secret_wherever_it_is_shown() {
    let ground = Ground::new();
    let secret = ground.canary();
    let variable = format!("GIVEN={secret}");
    let workspace = ground.workspace();
    let workspace = workspace.to_str().expect("a plain path");
    let write = format!("echo $GIVEN >{workspace}/left");
    for (body, place) in [
        ("echo $GIVEN", "standard output"),
        ("echo $GIVEN >&2", "standard error"),
        (write.as_str(), "/work/left"),
    ] {
        let flags = ["run", "-e", &variable, "--rw", workspace];
        let line = [&flags[..], &["--", "/bin/sh", "-c", body]].concat();
        let running = ground.command(&line).start();
        let (_, breaches) = running.finish();
        let seen =
            breaches.len() == 1 && breaches[0].starts_with("I9: ") && breaches[0].contains(place);
        assert!(seen, "{place}: {breaches:#?}");
    }
    // What existed before belongs to the test.
    assert_green(ended(&ground, &[]), "a file of before");
    let running = ended(&ground, &[]);
    let mut report = running.report();
    report["run_id"] = json!(secret);
    running.put_report(&report);
    let (_, breaches) = running.finish();
    let seen = breaches
        .iter()
        .any(|breach| breach == "I9: the secret is in the report");
    assert!(seen, "{breaches:#?}");
    let running = ended(&ground, &[]);
    ground.write("events", secret);
    assert_red(running, "I9", "a file beside the workspace");
}

#[test]
fn the_ninth_sees_the_secret_in_a_command_line() {
    let ground = Ground::new();
    let body = ["run", "--", "/bin/sh", "-c", "sleep 0.4", ground.canary()];
    let running = ground.command(&body).start();
    assert_red(running, "I9", "an argument");
}

#[test]
fn the_tenth_sees_a_supervisor_that_is_too_big() {
    let text = include_str!("bodies/invariants/the_tenth_sees_a_supervisor_that_is_too_big.c");
    let ground = Ground::new();
    let big = support::bodies::c_body("runner", text);
    let case = ground.command(&["run", "--", "/bin/true"]);
    let case = case.through::<&str>(big, &[]);
    assert_red(case.start(), "I10", "80 MiB");
}

#[test]
#[should_panic(expected = "the runner hangs")]
fn the_tenth_sees_a_run_that_does_not_end() {
    let mut child = Command::new("/bin/sleep")
        .arg("100")
        .spawn()
        .expect("started");
    let peak_kib = watch_memory(&mut child, Duration::from_millis(30));
    panic!("it ended by itself at {peak_kib} KiB");
}
