//! The process that speaks to a registry: which rights it has, and how its end is reported.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use runner_sources::oci::error::OciError;
use runner_sources::oci::origin::Origin as _;
use spec::oci::reference::Which;

use crate::scripted::{Ending, Reply, Scripted, Way, registry};

fn status(pid: i32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_start_matches(':').trim().replace('\t', " "))
}

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

/// Calls `meanwhile` with the pid of the fetcher that waits for an answer which never comes, and returns
/// the error of the client.
fn while_waiting(ending: &Arc<Ending>, meanwhile: impl FnOnce(i32)) -> OciError {
    let service = Scripted::start(|_, _| Reply::of(200).way(Way::Silence));
    let mut connection = service.connection();
    connection.observer = Arc::clone(ending) as _;
    let (sender, receiver) = std::sync::mpsc::channel();
    let address = service.address();
    let client = std::thread::spawn(move || {
        sender.send(rustix::thread::gettid()).expect("told");
        let which = Which::Tag("v1".to_owned());
        let registry = registry(&address, connection);
        registry.manifest(&which).expect_err("no answer")
    });
    let thread = receiver.recv().expect("a thread").as_raw_nonzero();
    let children = format!("/proc/self/task/{thread}/children");
    until("a request", || {
        (service.count("GET", "/manifests/") > 0).then_some(())
    });
    let listed = fs::read_to_string(&children).expect("listed");
    let fetcher = listed.trim().parse().expect("one child");
    meanwhile(fetcher);
    let error = client.join().expect("ended");
    assert!(!fs::exists(format!("/proc/{fetcher}")).expect("looked"));
    error
}

///
#[test]
fn the_process_that_speaks_to_a_registry_has_no_rights() {
    let ending = Arc::new(Ending::default());
    let error = while_waiting(&ending, |fetcher| {
        for (key, expected) in [
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
            ("Threads", "1"),
            ("CapEff", "0000000000000000"),
            ("CapPrm", "0000000000000000"),
            ("CapInh", "0000000000000000"),
            ("CapAmb", "0000000000000000"),
        ] {
            assert_eq!(status(fetcher, key).as_deref(), Some(expected), "{key}");
        }
        let uid = match geteuid().as_raw() {
            0 => 65534,
            uid => uid,
        };
        let uids = [uid.to_string().as_str(); 4].join(" ");
        assert_eq!(status(fetcher, "Uid"), Some(uids));
        if geteuid().is_root() {
            for name in ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"] {
                let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
                assert_eq!(of(&fetcher.to_string()), of("self"), "{name}");
            }
            assert_eq!(status(fetcher, "Groups").as_deref(), Some(""));
            let root = fs::read_dir(format!("/proc/{fetcher}/root")).expect("listed");
            assert_eq!(root.count(), 0, "its root is empty");
            // Standard streams, the link, the end of its answer, the connection.
            let open = fs::read_dir(format!("/proc/{fetcher}/fd")).expect("listed");
            assert_eq!(open.count(), 6);
        }
        ending.wanted.store(true, Ordering::SeqCst);
    });
    assert!(matches!(error, OciError::Cancelled { .. }), "{error}");
}

///
#[test]
fn a_fetcher_that_is_killed_is_reported_and_leaves_nothing() {
    let error = while_waiting(&Arc::new(Ending::default()), |fetcher| {
        let pid = Pid::from_raw(fetcher).expect("a pid");
        kill_process(pid, Signal::KILL).expect("killed");
    });
    let text = error.to_string();
    assert_eq!(error.code(), "registry_unusable", "{text}");
    assert!(
        text.contains("/manifests/v1") && text.contains("the fetcher ended without an answer"),
        "{text}"
    );
}
