//! Resource limits (setrlimit(2)) of the body's processes; each counts per process.

use crate::steps::ResourceLimit;
use spec::limits::{Coverage, Limit, LimitValues};
use sys::rlimit::resource;

const LOCKED_MEMORY_BYTES: u64 = 8 << 20;
/// Largest page size of the supported processors.
const PAGE_BYTES_MAX: u64 = 64 << 10;
const PENDING_SIGNALS: u64 = 16_384;

/// Builds the resource limits for the limits `values` of a run.
///
/// `file_bytes`: the size of the writable space, if the body can write files nowhere else.
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
    // The tmpfs limits the stored bytes; this limits the size of sparse files. One page more, so
    // that a write into a full tmpfs returns ENOSPC instead of raising SIGXFSZ.
    let space = file_bytes.map(|bytes| bytes.saturating_add(PAGE_BYTES_MAX));
    let file_size = values.get(Limit::FileSize).into_iter().chain(space).min();
    list.extend(file_size.map(|bytes| limit(resource::FILE_SIZE, bytes)));
    let enforced_by = |limit: Limit| {
        let axis = coverage.iter().find(|one| Some(one.axis) == limit.axis());
        axis.map(|axis| axis.enforced_by)
    };
    for run_limit in Limit::ALL {
        let Some(value) = values.get(run_limit) else {
            continue;
        };
        match (run_limit, enforced_by(run_limit)) {
            (Limit::Memory, Some("cgroup-v1" | "cgroup-v2")) => (),
            // RLIMIT_DATA instead of RLIMIT_AS: runtimes reserve far more than they use.
            (Limit::Memory, _) => list.push(limit(resource::DATA, value)),
            // The kernel counts per user namespace since Linux 5.14, so only this run. Init counts
            // as well.
            (Limit::Processes, Some("rlimit")) => {
                list.push(limit(resource::PROCESSES, value.saturating_add(1)));
            }
            // A second line of defense, per process. Whole seconds, rounded up so that it takes
            // effect after the limit of the run.
            (Limit::CpuTime, _) => list.push(limit(resource::CPU, value / 1_000 + 1)),
            (Limit::OpenFiles, _) => list.push(limit(resource::OPEN_FILES, value)),
            // A cgroup, the supervisor or the tmpfs enforces it, or it is handled above.
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
