//! Resource limits (setrlimit(2)) of the body's processes; each counts per process.

use rustix::io::Errno;

use crate::error::SandboxError;
use crate::steps::ResourceLimit;
use spec::limits::{Coverage, Limit, LimitValues};
use sys::rlimit::{self, resource};

/// A resource that counts against the caller's uid too (user_namespaces(7)). A body gets a part of the
/// caller's limit, and at most `most`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedForCaller {
    pub(crate) resource: u32,
    most: u64,
}

const LOCKED_MEMORY: CountedForCaller = CountedForCaller {
    resource: resource::LOCKED_MEMORY,
    most: 8 << 20,
};
pub(crate) const PENDING_SIGNALS: CountedForCaller = CountedForCaller {
    resource: resource::PENDING_SIGNALS,
    most: 16_384,
};
/// One body gets this part of the caller's limit.
const CALLERS_PART: u64 = 8;
/// Largest page size of the supported processors.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// The body's part of the limit that this process has. Allocates nothing.
pub(crate) fn part_of_callers(counted: CountedForCaller) -> Result<u64, Errno> {
    Ok(counted
        .most
        .min(rlimit::soft(counted.resource)? / CALLERS_PART))
}

/// Builds the resource limits for the limits `values` of a run.
///
/// `file_bytes`: the size of the writable space, if the body can write files nowhere else.
///
/// # Errors
/// [`SandboxError::Supervisor`] if the caller's limits cannot be read.
pub fn of(
    coverage: &[Coverage],
    values: &LimitValues,
    file_bytes: Option<u64>,
) -> Result<Vec<ResourceLimit>, SandboxError> {
    let limit = |resource, value| ResourceLimit { resource, value };
    let mut list = Vec::new();
    for counted in [LOCKED_MEMORY, PENDING_SIGNALS] {
        let part = part_of_callers(counted)
            .map_err(SandboxError::supervisor("read", "the resource limits"))?;
        list.push(limit(counted.resource, part));
    }
    // The tmpfs limits the stored bytes; this limits the size of sparse files. One page more, so
    // that a write into a full tmpfs returns ENOSPC instead of raising SIGXFSZ.
    let space = file_bytes.map(|bytes| bytes.saturating_add(PAGE_BYTES_MAX));
    let file_size = values.get(Limit::FileSize).into_iter().chain(space).min();
    list.extend(file_size.map(|bytes| limit(resource::FILE_SIZE, bytes)));
    let enforced_by = |limit: Limit| {
        let axis = coverage.iter().find(|row| Some(row.axis) == limit.axis());
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
    Ok(list)
}
