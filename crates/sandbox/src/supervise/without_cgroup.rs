//! Samples the processes of the run's pid namespace, instead of a cgroup.
//!
//! Sampling is weaker than a cgroup, which the report states: it misses peaks between two samples,
//! counts tmpfs memory only while it is mapped (the tmpfs has its own limit), and loses the CPU time
//! of a child whose parent ignores SIGCHLD when the child ends.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use sys::proc;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// An upper bound in which shared pages count per process, or the exact sum if that bound exceeds
    /// the limit.
    pub memory_bytes: u64,
    /// CPU time of live and reaped processes, including init. Never decreases.
    pub cpu_time_us: u64,
    /// Including init, without threads.
    pub processes: u64,
}

/// Samples the processes of one /proc, which must be that of the run's pid namespace.
#[derive(Debug)]
pub(crate) struct Sampler<'proc> {
    proc: BorrowedFd<'proc>,
    memory_limit_bytes: Option<u64>,
    page_bytes: u64,
    ticks_per_second: u64,
    cpu_ticks_seen: u64,
}

impl<'proc> Sampler<'proc> {
    #[must_use]
    pub(crate) fn new(proc: BorrowedFd<'proc>, memory_limit_bytes: Option<u64>) -> Self {
        Self {
            proc,
            memory_limit_bytes,
            page_bytes: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
            ticks_per_second: rustix::param::clock_ticks_per_second().max(1),
            cpu_ticks_seen: 0,
        }
    }

    /// Takes a sample. Reads two small files per process, and a third one if the sum exceeds the
    /// memory limit. A process that ends meanwhile is no error. After init's death the sample is
    /// empty except for the CPU time.
    pub(crate) fn sample(&mut self) -> Result<Sample, Errno> {
        let ids = proc::process_ids(self.proc)?;
        let mut sample = Sample {
            processes: u64::try_from(ids.len()).unwrap_or(u64::MAX),
            ..Sample::default()
        };
        let mut cpu_ticks: u64 = 0;
        for id in &ids {
            let Some(ticks) = proc::cpu_ticks(self.proc, *id)? else {
                continue;
            };
            cpu_ticks = cpu_ticks.saturating_add(ticks);
            let pages = proc::resident_pages(self.proc, *id)?;
            let bytes = pages.unwrap_or(0).saturating_mul(self.page_bytes);
            sample.memory_bytes = sample.memory_bytes.saturating_add(bytes);
        }
        if self
            .memory_limit_bytes
            .is_some_and(|limit| sample.memory_bytes > limit)
        {
            sample.memory_bytes = self.exact_memory_bytes(&ids)?;
        }
        // An ended process counts until its parent reaps it. If the parent ignores SIGCHLD, its time
        // is lost, so keep the maximum.
        self.cpu_ticks_seen = self.cpu_ticks_seen.max(cpu_ticks);
        sample.cpu_time_us = self.cpu_ticks_seen.saturating_mul(1_000_000) / self.ticks_per_second;
        Ok(sample)
    }

    fn exact_memory_bytes(&self, ids: &[u32]) -> Result<u64, Errno> {
        let mut total: u64 = 0;
        for id in ids {
            let bytes = match proc::proportional_bytes(self.proc, *id) {
                // The smaps of a non-dumpable process are not readable, but its size is.
                Err(Errno::ACCESS | Errno::PERM) => proc::unbacked_bytes(self.proc, *id),
                other => other,
            };
            total = total.saturating_add(bytes?.unwrap_or(0));
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::path::Path;

    use super::*;

    fn process(proc: &Path, id: u32, ticks: u64, pages: u64, pss_kilobytes: u64) {
        let directory = proc.join(id.to_string());
        std::fs::create_dir_all(&directory).expect("made");
        let stat = format!("{id} (x) S 0 0 0 0 -1 0 0 0 0 0 {ticks} 1 2 3 20 0 1 0 0\n");
        std::fs::write(directory.join("stat"), stat).expect("written");
        std::fs::write(directory.join("statm"), format!("900 {pages} 1 1 0 1 0\n"))
            .expect("written");
        let rollup = format!("head\nRss: 9 kB\nPss: {pss_kilobytes} kB\n");
        std::fs::write(directory.join("smaps_rollup"), rollup).expect("written");
    }

    #[test]
    fn a_tree_is_summed_and_measured_exactly_only_above_its_limit() {
        let proc = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(proc.path().join("sys")).expect("made");
        process(proc.path(), 1, 10, 100, 40);
        process(proc.path(), 2, 20, 200, 60);
        let opened = std::fs::File::open(proc.path()).expect("opened");
        let mut sampler = Sampler::new(opened.as_fd(), Some(300 * 4096));
        let sample = sampler.sample().expect("sampled");
        assert_eq!(sample.memory_bytes, 300 * sampler.page_bytes);
        assert_eq!(
            sample.cpu_time_us,
            42 * 1_000_000 / sampler.ticks_per_second
        );
        sampler.memory_limit_bytes = Some(1);
        let sample = sampler.sample().expect("sampled");
        assert_eq!(sample.memory_bytes, 100 * 1024);
    }

    #[test]
    fn the_time_of_an_unreaped_child_is_not_subtracted() {
        let proc = tempfile::tempdir().expect("a directory");
        process(proc.path(), 1, 10, 1, 1);
        process(proc.path(), 2, 90, 1, 1);
        let opened = std::fs::File::open(proc.path()).expect("opened");
        let mut sampler = Sampler::new(opened.as_fd(), None);
        let before = sampler.sample().expect("sampled").cpu_time_us;
        std::fs::remove_dir_all(proc.path().join("2")).expect("removed");
        let after = sampler.sample().expect("sampled").cpu_time_us;
        assert_eq!(after, before);
    }

    #[test]
    fn the_real_proc_is_read_while_processes_come_and_go() {
        let opened = std::fs::File::open("/proc").expect("opened");
        let mut sampler = Sampler::new(opened.as_fd(), Some(1));
        let children: Vec<_> = (0..8)
            .map(|_| std::process::Command::new("true").spawn().expect("started"))
            .collect();
        let sample = sampler.sample().expect("sampled");
        assert!(sample.memory_bytes > 0 && sample.cpu_time_us > 0);
        for mut child in children {
            child.wait().expect("waited for");
        }
    }
}
