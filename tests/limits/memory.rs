//! Memory: what the limit ends, and what only resembles that.

use crate::back_end::{assert_state, has_groups, limit, one_at_a_time, state, usage};
use support::bodies::c_body;
use support::invariants::living;
use support::{Done, Ground, needs_root, skip};

fn run(flags: &[&str], name: &str, text: &str) -> Done {
    let program = c_body(name, text);
    Ground::new().run(flags, &[program.to_str().expect("plain")])
}

/// Asserts that the body ended because of its memory, and that the report has counted it.
#[track_caller]
fn assert_out_of_memory(done: &Done) {
    done.assert_outcome("out_of_memory", 137);
    assert!(0 < usage(done, "oom_kills"), "{done:#?}");
    assert!(done.stderr.contains("out of memory"), "{}", done.stderr);
    assert_state(done, "memory");
}

/// C-03: one process. Without cgroups its own limit comes first: the allocation fails, and the
/// process is not ended.
#[test]
fn memory_beyond_the_limit_ends_the_body_as_out_of_memory() {
    let _turn = one_at_a_time();
    let text =
        include_str!("../bodies/limits/memory_beyond_the_limit_ends_the_body_as_out_of_memory.c");
    let done = run(&["--memory=48m"], "take-memory", text);
    if has_groups() {
        assert_out_of_memory(&done);
        assert!(40 << 20 < usage(&done, "memory_peak_bytes"), "{done:#?}");
    } else {
        assert_state(&done, "memory");
        if done.outcome() == "exited" {
            done.assert_exited(3);
        } else {
            assert_out_of_memory(&done);
        }
    }
}

/// C-03: a tree in which no single process exceeds the limit.
#[test]
fn memory_counts_for_the_whole_tree() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/memory_counts_for_the_whole_tree.c");
    let done = run(
        &["--memory=64m", "--timeout=20s", "--grace=0s"],
        "tree-memory",
        text,
    );
    if has_groups() {
        // The kernel ends one child, which ends the wait, or all of them, or the first process.
        assert!(0 < usage(&done, "oom_kills"), "{done:#?}");
    } else {
        assert_out_of_memory(&done);
    }
}

/// C-28: which process the kernel ends if the host itself has no memory.
#[test]
fn a_host_out_of_memory_would_end_the_body_before_the_supervisor() {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").expect("readable");
    let done = Ground::new().run(
        &[],
        &[
            "/bin/cat",
            "/proc/1/oom_score_adj",
            "/proc/self/oom_score_adj",
        ],
    );
    done.assert_exited(0);
    let text = done.text();
    let scores: Vec<i32> = text
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    let own: i32 = own.trim().parse().expect("a number");
    assert_eq!(scores.len(), 2);
    assert!(scores.iter().all(|score| own < *score), "{own} {scores:?}");
}

/// C-28: the kernel remembers the least score only if a process with CAP_SYS_RESOURCE set it.
#[test]
fn the_body_of_a_privileged_caller_cannot_lower_its_oom_score() {
    const SYS_RESOURCE: u32 = 24;
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").expect("readable");
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .map(|sets| u64::from_str_radix(sets.trim(), 16).expect("a number"));
    let is_privileged = effective.expect("a line") >> SYS_RESOURCE & 1 == 1;
    let script = "for score in -1000 $1; do echo $score >/proc/self/oom_score_adj; done; \
        cat /proc/self/oom_score_adj";
    let done = Ground::new().run(&[], &["/bin/sh", "-c", script, "sh", own.trim()]);
    done.assert_exited(0);
    let own: i32 = own.trim().parse().expect("a number");
    let score: i32 = done.text().trim().parse().expect("a number");
    if is_privileged {
        assert!(own < score, "{own} {score}");
    } else {
        assert_eq!(own, score);
    }
}

/// C-27
#[test]
fn a_child_out_of_memory_is_counted_and_the_first_process_decides() {
    let _turn = one_at_a_time();
    let text = include_str!(
        "../bodies/limits/a_child_out_of_memory_is_counted_and_the_first_process_decides.c"
    );
    let done = run(&["--memory=48m"], "child-out-of-memory", text);
    if has_groups() {
        done.assert_exited(5);
        assert_eq!(done.text(), "9\n");
        assert_eq!(usage(&done, "oom_kills"), 1, "{done:#?}");
        let told = "warning: 1 process was killed at the memory limit of 48 MiB, \
                    and the command went on; a higher --memory makes room (memory_kills)";
        assert!(done.stderr.contains(told), "{}", done.stderr);
    } else if done.outcome() == "exited" {
        // Refused by its own limit, or detected before by the supervisor, which ends the whole tree.
        done.assert_exited(5);
        assert_eq!(done.text(), "9\n");
    } else {
        assert_out_of_memory(&done);
    }
}

/// C-04: memory that belongs to no process. A descriptor is enough to hold it.
#[test]
fn files_in_memory_count_as_memory() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/files_in_memory_count_as_memory.c");
    // One file may be as large as the disk limit, which is below the memory limit here.
    let done = run(&["--memory=96m", "--disk=32m"], "memfd-one", text);
    done.assert_exited(0);
    assert_eq!(done.text(), "1\n");
    if has_groups() {
        let many = text
            .replace("i < 256", "i < 1024")
            .replace(
                "for (int",
                "for (int n = 0; n < 64; n++, file = memfd_create(\"x\", 0)) for (int",
            )
            .replace("{ printf(\"%d\\n\", errno == EFBIG); return 0; }", "break;");
        let done = run(&["--memory=96m", "--disk=32m"], "memfd-many", &many);
        assert_out_of_memory(&done);
    }
}

/// C-04: the message says where the memory was used.
#[test]
fn out_of_memory_names_files_in_the_writable_space() {
    let _turn = one_at_a_time();
    let script = "head -c 60m /dev/zero >/tmp/file; exec python3 -c 'x = b\"y\" * (200 << 20); print(len(x))'";
    let done = Ground::new().run(&["--memory=96m"], &["/bin/sh", "-c", script]);
    if has_groups() {
        assert_out_of_memory(&done);
        assert!(done.stderr.contains("memory_was_files"), "{}", done.stderr);
    }
}

/// C-04: a full disk is reported as a full disk.
#[test]
fn a_full_disk_is_distinguished_from_out_of_memory() {
    let _turn = one_at_a_time();
    let script = "for d in /tmp /scratch /dev/shm $HOME; do \
        dd if=/dev/zero of=$d/fill bs=64k 2>&1 | grep -c 'No space left'; rm $d/fill; done; exit 0";
    let done = Ground::new().run(&["--memory=64m"], &["/bin/sh", "-c", script]);
    done.assert_exited(0);
    assert_eq!(done.text(), "1\n1\n1\n1\n");
    assert_eq!(usage(&done, "oom_kills"), 0);
}

/// C-05: a cgroup counts their contents. Without one, the kernel gives small pipes to a user who has many.
#[test]
fn pipes_full_of_data_are_bounded() {
    let _turn = one_at_a_time();
    const MEMORY: u64 = 96 << 20;
    let text = include_str!("../bodies/limits/pipes_full_of_data_are_bounded.c");
    let done = run(&["--memory=96m", "--timeout=60s"], "pipes", text);
    if done.outcome() == "out_of_memory" {
        return assert_out_of_memory(&done);
    }
    done.assert_exited(0);
    let held: u64 = done.text().trim().parse().expect("a number");
    println!("{held} bytes in pipes");
    let most = if has_groups() { MEMORY } else { 256 << 20 };
    assert!((1..=most).contains(&held), "{held}");
}

/// C-05: if nothing counts the contents of sockets, each has its own bound, and descriptors are limited.
#[test]
fn sockets_full_of_data_are_bounded() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/sockets_full_of_data_are_bounded.c");
    let program = c_body("sockets", text);
    let program = program.to_str().expect("plain");
    // Without cgroups the remaining sockets stay empty: filled, they would take gigabytes of the host.
    let fill = if has_groups() { "100000" } else { "64" };
    let done = Ground::new().run(&["--memory=96m", "--timeout=60s"], &[program, fill]);
    if has_groups() {
        return assert_out_of_memory(&done);
    }
    done.assert_exited(0);
    let counts: Vec<u64> = done
        .text()
        .split_whitespace()
        .map(|count| count.parse().expect("a number"))
        .collect();
    // Twice the requested size (socket(7)), and the block that filled it.
    let most = std::fs::read_to_string("/proc/sys/net/core/wmem_max").expect("readable");
    let most: u64 = 2 * most.trim().parse::<u64>().expect("a number") + 16_384;
    assert!(
        matches!(counts[..], [sockets, held] if (1..=16_384).contains(&sockets)
            && (1..=most).contains(&held)),
        "{counts:?}, and a buffer has at most {most}"
    );
}

/// A directory on a file system with write-back: files of a tmpfs are memory, which counts.
fn on_a_disk() -> Option<tempfile::TempDir> {
    const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
    let places = [std::env::temp_dir(), "/var/tmp".into()];
    let on_disk = |place: &&std::path::PathBuf| {
        rustix::fs::statfs(place.as_path()).is_ok_and(|about| !IN_MEMORY.contains(&about.f_type))
    };
    let place = places.iter().find(on_disk)?;
    Some(tempfile::tempdir_in(place).expect("a directory"))
}

/// C-06: a false alarm would end every body that reads a large file.
#[test]
fn page_cache_does_not_cause_out_of_memory() {
    let _turn = one_at_a_time();
    let Some(place) = on_a_disk() else {
        return skip("neither TMPDIR nor /var/tmp is on a disk: what is kept there is memory");
    };
    let ground = Ground::new();
    let large = place.path().join("large");
    let file = std::fs::File::create(&large).expect("made");
    file.set_len(384 << 20).expect("set");
    let disk = place.path().join("disk");
    std::fs::create_dir(&disk).expect("made");
    let (large, disk) = (
        large.to_str().expect("plain"),
        disk.to_str().expect("plain"),
    );
    let script = format!(
        "cat {large} >/dev/null && dd if=/dev/zero of={disk}/x bs=1M count=96 2>/dev/null && \
         rm {disk}/x && echo fine"
    );
    let flags = [
        "--memory=48m",
        &format!("--ro={large}"),
        &format!("--rw={disk}"),
    ];
    let done = ground.run(&flags, &["/bin/sh", "-c", &script]);
    done.assert_exited(0);
    assert_eq!(done.text(), "fine\n");
    assert_eq!(usage(&done, "oom_kills"), 0, "{done:#?}");
}

/// C-07. Huge pages, if the host has none to give; existing ones count towards another limit.
#[test]
fn locked_and_huge_memory_is_refused() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/locked_and_huge_memory_is_refused.c");
    let done = run(&["--memory=64m"], "locked", text);
    done.assert_exited(0);
    assert_eq!(done.text(), "0 0 0 0\n");
}

/// C-07
#[test]
fn memory_that_is_populated_at_once_meets_the_limit_too() {
    let _turn = one_at_a_time();
    let text =
        include_str!("../bodies/limits/memory_that_is_populated_at_once_meets_the_limit_too.c");
    let done = run(&["--memory=48m"], "populate", text);
    if has_groups() {
        assert_out_of_memory(&done);
    } else {
        done.assert_exited(3);
    }
}

/// C-08
#[test]
fn endless_recursion_ends_the_body_by_sigsegv() {
    let text = "static volatile int zero;
        static int deeper(int n) { volatile char page[4096]; page[n & 4095] = 1;
            return (zero ? 0 : deeper(n + 1)) + page[n & 4095]; }
        int main(void) { return deeper(0); }";
    let done = run(&["--memory=128m"], "recursion", text);
    done.assert_outcome("signaled", 139);
    assert_eq!(done.report["exit"]["signal"], 11);
    assert_eq!(usage(&done, "oom_kills"), 0);
}

/// C-08: a stack is address space; the number of threads is limited.
#[test]
fn no_more_stacks_of_threads_can_be_had_than_processes() {
    let _turn = one_at_a_time();
    let text =
        include_str!("../bodies/limits/no_more_stacks_of_threads_can_be_had_than_processes.c");
    let done = run(&["--memory=256m", "--pids=1000"], "stacks", text);
    done.assert_exited(0);
    let made: u64 = done.text().trim().parse().expect("a number");
    println!("{made} threads");
    if has_groups() {
        assert_eq!(made, 1_000);
    } else {
        // Without cgroups the address space of a process is limited too, which may come first.
        assert!((2..=1_000).contains(&made), "{made}");
    }
}

/// C-10
#[test]
fn swap_is_part_of_the_memory_limit() {
    if !has_groups() {
        return needs_root("only a group limits what is swapped out");
    }
    let ground = Ground::new();
    let command = ground.command(&[
        "run",
        "--memory=48m",
        "--",
        "/bin/sh",
        "-c",
        "echo up; exec sleep 600",
    ]);
    let mut running = command.start();
    let pid = running.pid();
    let find = || {
        let children = format!("/proc/{pid}/task/{pid}/children");
        let init = std::fs::read_to_string(children).ok()?;
        let init = init.trim().to_owned();
        let body = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children")).ok()?;
        let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", body.trim())).ok()?;
        // Version 1, and version 2 with the controller.
        let of = |prefix: &str| {
            let group = groups.lines().find_map(|line| line.split_once(prefix))?.1;
            Some(group.trim_start_matches('/').to_owned())
        };
        let version_1 = of(":memory:").map(|group| ("/sys/fs/cgroup/memory", group));
        let (root, group) = version_1.or_else(|| Some(("/sys/fs/cgroup", of("0::")?)))?;
        Some(std::path::Path::new(root).join(group))
    };
    // After the exec it is in its group.
    running.until("the body", || !living(ground.marker()).is_empty());
    let group = find().expect("found");
    let number = |name: &str| {
        let text = std::fs::read_to_string(group.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let is_v2 = group.join("memory.max").exists();
    let [(memory, of_memory), (swap, of_swap)] = if is_v2 {
        [("memory.max", 48 << 20), ("memory.swap.max", 0)]
    } else {
        // Memory and swap together.
        let both = "memory.memsw.limit_in_bytes";
        [("memory.limit_in_bytes", 48 << 20), (both, 48 << 20)]
    };
    assert_eq!(number(memory), Some(of_memory), "{}", group.display());
    match number(swap) {
        Some(limit) => assert_eq!(limit, of_swap, "{swap}"),
        // This kernel does not count swap: on a host without swap nothing is missing.
        None => assert!(
            std::fs::read_to_string("/proc/swaps")
                .expect("read")
                .lines()
                .count()
                < 2
        ),
    }
    running.signal(rustix::process::Signal::TERM);
    running.done().assert_outcome("cancelled", 143);
}

/// The report has the used amount.
#[test]
fn the_peak_of_memory_is_at_least_what_was_touched() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/the_peak_of_memory_is_at_least_what_was_touched.c");
    let done = run(&["--memory=96m"], "touch", text);
    done.assert_exited(0);
    let peak = usage(&done, "memory_peak_bytes");
    assert!((40 << 20..=96 << 20).contains(&peak), "{peak}");
    assert_eq!(limit(&done, "memory_bytes"), (Some(96 << 20), "flag"));
}

/// E-13: without cgroups, no limit is silently absent.
#[test]
fn weaker_limits_are_reported_and_can_be_refused() {
    let ground = Ground::new();
    let done = ground.run(
        &["--limits=require", "--memory=64m", "--pids=20"],
        &["/bin/true"],
    );
    if has_groups() {
        done.assert_exited(0);
        for axis in ["memory", "processes"] {
            assert_eq!(state(&done, axis), "enforced");
        }
        ground.run(&["--cpus=0.5"], &["/bin/true"]).assert_exited(0);
        return;
    }
    done.assert_error("refused", "limit_unenforceable");
    let done = ground.run(&["--cpus=0.5"], &["/bin/true"]);
    done.assert_error("refused", "limit_unenforceable");
    assert!(done.stderr.contains("cpu_share"), "{}", done.stderr);
    let done = ground.run(&["--cpus=0.5", "--limits=best-effort"], &["/bin/true"]);
    done.assert_exited(0);
    assert_eq!(state(&done, "cpu_share"), "absent");
    assert_eq!(state(&done, "memory"), "weaker");
}

/// Opens netlink sockets in a loop without reading, and locks single bytes of a file.
const UNCHARGED: &str = include_str!("../bodies/limits/memory_uncharged.c");

/// C-39: limited by descriptors and processes, or not at all and reported; the strict policy allows
/// neither netlink nor unlimited locks.
#[test]
fn unaccounted_memory_is_reported_and_refused_under_strict() {
    let _turn = one_at_a_time();
    for (policy, said, told) in [
        (
            "default",
            "EMFILE after some, lock ok\n",
            &["netlink", "locks", "datagrams"][..],
        ),
        (
            "strict",
            "EAFNOSUPPORT after none, lock ENOLCK\n",
            &["datagrams"],
        ),
    ] {
        let flags = ["--memory=64m", "--syscalls", policy];
        let done = run(&flags, "uncharged", UNCHARGED);
        done.assert_exited(0);
        assert_eq!(done.text(), said, "{policy}");
        let axis = &done.report["enforcement"]["kernel_memory"];
        assert_eq!(axis["state"], "weaker", "{axis}");
        let reason = axis["reason"].as_str().expect("a reason");
        for word in ["netlink", "locks", "datagrams"] {
            assert_eq!(reason.contains(word), told.contains(&word), "{reason}");
        }
    }
}

const FILTERS: &str = include_str!("../bodies/limits/memory_filters.c");

/// C-41: the kernel limits the filters of one process, and the memory limit those of all; the
/// machine code, a small part, is not counted.
#[test]
fn a_body_that_installs_filters_without_end_runs_out_of_memory() {
    let _turn = one_at_a_time();
    let done = run(&["--memory=32m"], "filters", FILTERS);
    done.assert_exited(0);
    let text = done.text();
    let (count, errno) = text.trim().split_once(' ').expect("two words");
    // 32,768 instructions, with four for each filter itself; some belong to the runner's filter.
    let count: u32 = count.parse().expect("a number");
    assert!((1..=131).contains(&count) && errno == "ENOMEM", "{text}");
    if !has_groups() {
        return needs_root("only a group is charged for filters");
    }
    let program = c_body("filters", FILTERS);
    let program = program.to_str().expect("plain");
    let flags = ["--memory=32m", "--nofile=4096", "--pids=500"];
    let done = Ground::new().run(&flags, &[program, "without end"]);
    // The kernel ends one child, which ends the wait, or all of them, or the first process.
    assert!(0 < usage(&done, "oom_kills"), "{done:#?}");
    let processes = usage(&done, "processes_peak");
    assert!(processes < 200, "{processes} processes: {done:#?}");
}
