//! Resource limits (setrlimit(2)) of the body's processes; each counts per process.

use crate::steps::ResourceLimit;
use spec::limits::{Coverage, Limit, LimitValues};
use sys::rlimit::resource;

/// Maximum locked memory.
const LOCKED_MEMORY_BYTES: u64 = 8 << 20;
/// Largest page size of the supported processors.
const PAGE_BYTES_MAX: u64 = 64 << 10;
/// Maximum queued signals and timers.
const PENDING_SIGNALS: u64 = 16_384;

/// The resource limits of the body's processes (setrlimit(2)), for limits with these `values`.
///
/// `file_bytes`: the size of the writable space, where the body writes nothing else.
#[must_use]
pub fn of(
    coverage: &[Coverage],
    values: &LimitValues,
    file_bytes: Option<u64>,
) -> Vec<ResourceLimit> {
    let limit = |resource, value| ResourceLimit { resource, value };
    let mut list = vec![
        // Not 0: with 0 the kernel still starts a `|handler` of core_pattern.
        limit(resource::CORE, 1),
        limit(resource::LOCKED_MEMORY, LOCKED_MEMORY_BYTES),
        limit(resource::PENDING_SIGNALS, PENDING_SIGNALS),
    ];
    // The tmpfs limits what is stored; this limits how large a hole may be made. A page more, so
    // that a write into a full tmpfs is ENOSPC and never SIGXFSZ.
    let of_space = file_bytes.map(|bytes| bytes.saturating_add(PAGE_BYTES_MAX));
    let of_files = values.get(Limit::FileSize).into_iter().chain(of_space);
    list.extend(
        of_files
            .min()
            .map(|bytes| limit(resource::FILE_SIZE, bytes)),
    );
    let enforced_by = |limit: Limit| {
        let covering = coverage.iter().find(|one| Some(one.axis) == limit.axis());
        covering.map(|one| one.enforced_by)
    };
    for of_run in Limit::ALL {
        let Some(value) = values.get(of_run) else {
            continue;
        };
        match (of_run, enforced_by(of_run)) {
            (Limit::Memory, Some("cgroup-v1" | "cgroup-v2")) => (),
            // RLIMIT_DATA and never RLIMIT_AS: runtimes reserve far more than they use.
            (Limit::Memory, _) => list.push(limit(resource::DATA, value)),
            // Counted per user namespace since Linux 5.14: so it covers this run only. Init is
            // one of them.
            (Limit::Processes, Some("rlimit")) => {
                list.push(limit(resource::PROCESSES, value.saturating_add(1)));
            }
            // A second line, per process; whole seconds, rounded up so that it never comes first.
            (Limit::CpuTime, _) => list.push(limit(resource::CPU, value / 1_000 + 1)),
            (Limit::OpenFiles, _) => list.push(limit(resource::OPEN_FILES, value)),
            // Enforced by a cgroup, the supervisor or the tmpfs, or handled above.
            (
                Limit::Processes
                | Limit::Cpus
                | Limit::WallTime
                | Limit::Disk
                | Limit::DiskInodes
                | Limit::FileSize
                | Limit::Output,
                _,
            ) => (),
        }
    }
    list
}
