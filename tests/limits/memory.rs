//! Memory: what the limit ends, and what only looks like it.

use crate::back_end::{assert_state, has_groups, limit, one_at_a_time, state, usage};
use crate::support::bodies::c_body;
use crate::support::invariants::living;
use crate::support::{Done, Ground};

fn run(flags: &[&str], name: &str, text: &str) -> Done {
    let program = c_body(name, text);
    Ground::new().run(flags, &[program.to_str().expect("plain")])
}

/// The body ended for want of memory, and the report has counted it.
#[track_caller]
fn assert_out_of_memory(done: &Done) {
    done.assert_outcome("out_of_memory", 137);
    assert!(0 < usage(done, "oom_kills"), "{done:#?}");
    assert!(done.stderr.contains("out of memory"), "{}", done.stderr);
    assert_state(done, "memory");
}

/// C-03: one process. Without groups its own limit comes first: it is told, not ended.
#[test]
fn memory_beyond_the_limit_ends_the_body_as_out_of_memory() {
    let _turn = one_at_a_time();
    let text = "#include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        int main(void) {
            for (;;) {
                char *more = malloc(1 << 20);
                if (!more) { puts(\"refused\"); return 3; }
                memset(more, 1, 1 << 20); __asm__ volatile(\"\" :: \"r\"(more) : \"memory\");
            }
        }";
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

/// C-03: a tree of which no process alone has too much.
#[test]
fn memory_counts_for_the_whole_tree() {
    let _turn = one_at_a_time();
    let text = "#include <stdlib.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            for (int i = 0; i < 6; i++) if (fork() == 0) {
                char *part = malloc(20 << 20);
                if (part) { memset(part, 1, 20 << 20); __asm__ volatile(\"\" :: \"r\"(part) : \"memory\"); }
                for (;;) pause();
            }
            for (;;) wait(0);
        }";
    let done = run(
        &["--memory=64m", "--timeout=2s", "--grace=0s"],
        "tree-memory",
        text,
    );
    if has_groups() {
        // The kernel ends one child, and there is room again: the tree goes on to its deadline,
        // or the first process was chosen.
        assert!(0 < usage(&done, "oom_kills"), "{done:#?}");
    } else {
        assert_out_of_memory(&done);
    }
}

/// C-28: whom the kernel ends where the host itself has no memory left.
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

/// C-27
#[test]
fn a_child_out_of_memory_is_counted_and_the_first_process_decides() {
    let _turn = one_at_a_time();
    let text = "#include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            if (fork() == 0) for (;;) {
                char *more = malloc(1 << 20);
                if (!more) _exit(9);
                memset(more, 1, 1 << 20); __asm__ volatile(\"\" :: \"r\"(more) : \"memory\");
            }
            int status; wait(&status);
            printf(\"%d\\n\", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            return 5;
        }";
    let done = run(&["--memory=48m"], "child-out-of-memory", text);
    if has_groups() {
        done.assert_exited(5);
        assert_eq!(done.text(), "9\n");
        assert_eq!(usage(&done, "oom_kills"), 1, "{done:#?}");
    } else if done.outcome() == "exited" {
        // Refused by its own limit, or seen by the watch before: then the whole tree ends.
        done.assert_exited(5);
        assert_eq!(done.text(), "9\n");
    } else {
        assert_out_of_memory(&done);
    }
}

/// C-04: memory that is no process's own. A descriptor is enough to hold it.
#[test]
fn files_in_memory_count_as_memory() {
    let _turn = one_at_a_time();
    let text = "#include <errno.h>
        #include <signal.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <unistd.h>
        int main(void) {
            static char block[1 << 20];
            memset(block, 1, sizeof block);
            signal(SIGXFSZ, SIG_IGN);
            int file = memfd_create(\"x\", 0);
            for (int i = 0; i < 256; i++)
                if (write(file, block, sizeof block) < 0) { printf(\"%d\\n\", errno == EFBIG); return 0; }
            return 1;
        }";
    // One file may be as large as the disk limit: here that is below the memory limit.
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

/// C-04: a person is told where the memory went.
#[test]
fn memory_that_was_files_in_the_writable_space_is_said_to_have_been() {
    let _turn = one_at_a_time();
    let script = "head -c 60m /dev/zero >/tmp/file; exec python3 -c 'x = b\"y\" * (200 << 20); print(len(x))'";
    let done = Ground::new().run(&["--memory=96m"], &["/bin/sh", "-c", script]);
    if has_groups() {
        assert_out_of_memory(&done);
        assert!(done.stderr.contains("memory_was_files"), "{}", done.stderr);
    }
}

/// C-04: a full disk is a full disk.
#[test]
fn a_full_disk_is_told_as_such_and_is_not_out_of_memory() {
    let _turn = one_at_a_time();
    let script = "for d in /tmp /scratch /dev/shm $HOME; do \
        dd if=/dev/zero of=$d/fill bs=64k 2>&1 | grep -c 'No space left'; rm $d/fill; done; exit 0";
    let done = Ground::new().run(&["--memory=64m"], &["/bin/sh", "-c", script]);
    done.assert_exited(0);
    assert_eq!(done.text(), "1\n1\n1\n1\n");
    assert_eq!(usage(&done, "oom_kills"), 0);
}

/// C-05
#[test]
fn pipes_full_of_data_are_bounded() {
    let _turn = one_at_a_time();
    let text = "#include <fcntl.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(void) {
            static char block[65536]; long held = 0; int ends[2];
            while (pipe2(ends, O_NONBLOCK) == 0) {
                fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
                long count;
                while ((count = write(ends[1], block, sizeof block)) > 0) held += count;
            }
            printf(\"%d\\n\", held <= 256 << 20);
            return 0;
        }";
    let done = run(&["--memory=96m", "--timeout=60s"], "pipes", text);
    if done.outcome() == "out_of_memory" {
        assert_out_of_memory(&done);
    } else {
        done.assert_exited(0);
        assert_eq!(done.text(), "1\n");
    }
}

/// C-06: a false alarm would end every body that reads a large file.
#[test]
fn what_the_kernel_keeps_of_files_is_not_out_of_memory() {
    let _turn = one_at_a_time();
    let ground = Ground::new();
    let large = ground.write("large", "");
    let file = std::fs::File::options()
        .write(true)
        .open(&large)
        .expect("opened");
    file.set_len(384 << 20).expect("set");
    let disk = ground.path("disk");
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

/// C-07
#[test]
fn locked_and_huge_memory_is_refused() {
    let _turn = one_at_a_time();
    let text = "#include <stdio.h>
        #include <sys/mman.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int main(void) {
            size_t size = 32 << 20;
            char *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            int locked = memory != MAP_FAILED && mlock(memory, size) == 0;
            int all = mlockall(MCL_CURRENT | MCL_FUTURE) == 0;
            if (all) munlockall();
            int huge = mmap(0, 2 << 20, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) != MAP_FAILED;
            int secret = syscall(447, 0);
            int large = secret >= 0 && ftruncate(secret, size) == 0
                && mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, secret, 0) != MAP_FAILED;
            printf(\"%d %d %d %d\\n\", locked, all, huge, large);
            return 0;
        }";
    let done = run(&["--memory=64m"], "locked", text);
    done.assert_exited(0);
    assert_eq!(done.text(), "0 0 0 0\n");
}

/// C-07
#[test]
fn memory_that_is_populated_at_once_meets_the_limit_too() {
    let _turn = one_at_a_time();
    let text = "#include <sys/mman.h>
        int main(void) {
            void *memory = mmap(0, 256 << 20, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
            return memory == MAP_FAILED ? 3 : 0;
        }";
    let done = run(&["--memory=48m"], "populate", text);
    if has_groups() {
        assert_out_of_memory(&done);
    } else {
        done.assert_exited(3);
    }
}

/// C-08
#[test]
fn endless_recursion_is_a_fault_of_the_body_s_own() {
    let text = "static volatile int zero;
        static int deeper(int n) { volatile char page[4096]; page[n & 4095] = 1;
            return (zero ? 0 : deeper(n + 1)) + page[n & 4095]; }
        int main(void) { return deeper(0); }";
    let done = run(&["--memory=128m"], "recursion", text);
    done.assert_outcome("signaled", 139);
    assert_eq!(done.report["exit"]["signal"], 11);
    assert_eq!(usage(&done, "oom_kills"), 0);
}

/// C-10
#[test]
fn swap_is_part_of_the_memory_limit() {
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
    if !has_groups() {
        running.until("the body", || !living(ground.marker()).is_empty());
        running.signal(rustix::process::Signal::TERM);
        running.done().assert_outcome("cancelled", 143);
        return;
    }
    let pid = running.pid();
    let find = || {
        let children = format!("/proc/{pid}/task/{pid}/children");
        let init = std::fs::read_to_string(children).ok()?;
        let init = init.trim().to_owned();
        let body = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children")).ok()?;
        let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", body.trim())).ok()?;
        let memory = groups
            .lines()
            .find_map(|line| line.split_once(":memory:"))?
            .1;
        Some(std::path::PathBuf::from(format!(
            "/sys/fs/cgroup/memory{memory}"
        )))
    };
    running.until("the body's group", || {
        find().is_some_and(|path| path.to_string_lossy().contains("/runner-"))
    });
    let group = find().expect("found");
    let number = |name: &str| {
        let text = std::fs::read_to_string(group.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    assert_eq!(number("memory.limit_in_bytes"), Some(48 << 20));
    match number("memory.memsw.limit_in_bytes") {
        Some(with_swap) => assert_eq!(with_swap, 48 << 20),
        // Not counted by this kernel: without swap on the host nothing is missing.
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

/// What was used is what the report says.
#[test]
fn the_peak_of_memory_is_at_least_what_was_touched() {
    let _turn = one_at_a_time();
    let text = "#include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        int main(void) {
            char *memory = malloc(40 << 20); memset(memory, 1, 40 << 20);
            __asm__ volatile(\"\" :: \"r\"(memory) : \"memory\"); usleep(300000);
            return memory[7] == 1 ? 0 : 1; }";
    let done = run(&["--memory=96m"], "touch", text);
    done.assert_exited(0);
    let peak = usage(&done, "memory_peak_bytes");
    assert!((40 << 20..=96 << 20).contains(&peak), "{peak}");
    assert_eq!(limit(&done, "memory_bytes"), (Some(96 << 20), "flag"));
}

/// E-13: where there are no groups nothing is silently unlimited.
#[test]
fn weaker_limits_are_said_and_can_be_refused() {
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
