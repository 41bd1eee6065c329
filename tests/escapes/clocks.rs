//! Clocks and CPUs: changes by a body affect only the body.

use super::attempts::{assert_lines, attempt};
use support::{Ground, skip};

/// Clocks and CPU settings of the host's processes.
fn of_the_host() -> (String, String, String) {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let processors = status
        .lines()
        .find(|line| line.starts_with("Cpus_allowed_list:"))
        .expect("a line")
        .to_owned();
    let zone = std::fs::read_link("/proc/self/ns/time")
        .map(|link| link.display().to_string())
        .unwrap_or_default();
    (offsets, processors, zone)
}

/// B-55: offsets of a time namespace, every clock, the time stamp counter, and CPUs outside the body's set.
#[test]
fn clocks_and_processors_of_others_cannot_be_changed() {
    let before = of_the_host();
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/clocks_and_processors_of_others_cannot_be_changed.c");
    let done = attempt(&ground, "clocks", text);
    let text = done.text();
    let mut lines: Vec<&str> = text.lines().collect();
    for name in ["of init", "offsets"] {
        let line = lines
            .iter()
            .position(|line| line.starts_with(name))
            .expect("a line");
        // A kernel without time namespaces, a namespace of another user, or one that is in use.
        let (_, answer) = lines.remove(line).rsplit_once(' ').expect("two words");
        assert!(["ENOENT", "EACCES", "EPERM"].contains(&answer), "{text}");
    }
    assert_eq!(
        lines,
        [
            "namespace EPERM",
            "day EPERM",
            "adjust EPERM",
            "counts 1",
            "all processors ok",
            "more 0",
            "no processor EINVAL",
            "one processor ok",
            "cpuset ENOENT",
            "counter ok",
            "own counter 1",
        ]
    );
    assert_eq!(of_the_host(), before);
}

/// B-55: a body that its cgroup or caller confines to one CPU affects no other run: the next one
/// has the CPUs of the host.
#[test]
fn processor_settings_of_one_body_do_not_affect_the_next() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/processor_settings_of_one_body_do_not_affect_the_next.c");
    let first = attempt(&ground, "processors", text).text();
    for _run in 0..2 {
        assert_lines(&attempt(&ground, "processors", text), &first);
    }
}

/// B-55: without offsets a time namespace hides nothing. No namespace hides the CPU times since
/// boot (`/proc/stat`, the second field of `/proc/uptime`).
#[test]
fn the_body_s_clocks_begin_with_the_run() {
    if !std::path::Path::new("/proc/self/ns/time").exists() {
        skip("this kernel has no time namespaces");
        return;
    }
    let text = include_str!("../bodies/escapes/the_body_s_clocks_begin_with_the_run.c");
    let ground = Ground::new();
    let started = std::time::Instant::now();
    let done = attempt(&ground, "uptime", text);
    // The offsets are whole seconds, so the clocks start with up to one second; sysinfo(2) rounds up.
    let most = started.elapsed().as_secs() + 2;
    let clocks: Vec<u64> = done
        .text()
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(clocks.len(), 3, "{done:#?}");
    assert!(
        clocks.iter().all(|clock| *clock <= most),
        "{clocks:?} {most}"
    );
}
