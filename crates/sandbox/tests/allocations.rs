//! No process of the sandbox allocates between clone and exec.

#![allow(
    unsafe_code,
    clippy::expect_used,
    reason = "an allocator is unsafe code, and a test that cannot run has nothing to say"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

use runner_sandbox::command::{Limit, Sandbox};

/// Kills each process of the sandbox that allocates: in its pid namespace the child is process 1,
/// and the body's first process the next.
struct Watching;

static IS_ARMED: AtomicBool = AtomicBool::new(false);
const OWN_PIDS_MAX: i32 = 2;

// SAFETY: as `System`, to which everything is handed on.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: takes nothing.
        if IS_ARMED.load(Ordering::Relaxed) && unsafe { libc::getpid() } <= OWN_PIDS_MAX {
            // SAFETY: an integer; does not return.
            unsafe { libc::_exit(99) };
        }
        // SAFETY: the caller's guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

#[test]
fn no_process_of_the_sandbox_allocates_before_its_exec() {
    let ground = tempfile::tempdir().expect("made");
    let shown = ground.path().join("shown");
    std::fs::create_dir(&shown).expect("made");
    let mut sandbox = Sandbox::builder()
        .read_only(&shown)
        .runtime_directory(ground.path().join("records"))
        .limit(Limit::Memory, 64 << 20)
        .limit(Limit::WallTime, 10_000);
    if let Ok(parent) = std::env::var("RUNNER_OPT_CGROUP_PARENT") {
        sandbox = sandbox.cgroup_parent(parent);
    }
    // The file system of a container may start with few processes.
    assert!(std::process::id() > OWN_PIDS_MAX.unsigned_abs());
    IS_ARMED.store(true, Ordering::Relaxed);
    let ended = sandbox.run(&["echo", "confined"]);
    IS_ARMED.store(false, Ordering::Relaxed);
    let ended = ended.expect("nothing allocated");
    assert_eq!(ended.stdout, b"confined\n");
}
