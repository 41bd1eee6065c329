//! Memory shared with the child. The supervisor writes plans into it after the clone, because it
//! unpacks the bundle and reads its manifest in parallel to the child.
//!
//! Both processes have the mapping at the same address, so references into it are valid in both.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A shared anonymous mapping that is filled from its start and never moves.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    size_bytes: usize,
    used_bytes: Cell<usize>,
    /// Lag of this process's monotonic clock behind that of the other process.
    behind_ns: Cell<u64>,
}

/// Slots for published values at the start of the mapping. Order of use: base, overlay, launch, command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Slot {
    Base = 0,
    Launch = 1,
    Overlay = 2,
    Command = 3,
}

/// NUL-terminated strings of an arena, with a null pointer after the last.
#[derive(Debug, Clone, Copy)]
pub struct StringArray<'arena>(&'arena [*const c_char]);

impl StringArray<'_> {
    pub(crate) fn as_ptr(self) -> *const *const c_char {
        self.0.as_ptr()
    }
}

const PUBLISHED_BYTES_MAX: usize = 1024;
pub(crate) const TIMESTAMPS_MAX: usize = 256;
const TIMESTAMPS_AT: usize = 4 * PUBLISHED_BYTES_MAX;
const PLAN_AT: usize = TIMESTAMPS_AT + TIMESTAMPS_MAX * size_of::<u64>();

impl Arena {
    /// Maps `size_bytes` of address space (mmap(2)). Only written pages use memory.
    pub fn new(size_bytes: usize) -> Result<Self, Errno> {
        // SAFETY: a null hint and no MAP_FIXED: the kernel picks an address that nothing uses.
        let address = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                size_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(address.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            base,
            size_bytes,
            used_bytes: Cell::new(PLAN_AT),
            behind_ns: Cell::new(0),
        })
    }

    /// Keeps the mapping from processes that are forked from now on (madvise(2)): one that a stranger's
    /// data has taken over would change the plan.
    pub fn keep_from_later_children(&self) -> Result<(), Errno> {
        let start = self.base.as_ptr().cast();
        // SAFETY: the range is the mapping, which stays as it is in this process.
        unsafe { rustix::mm::madvise(start, self.size_bytes, Advice::LinuxDontFork) }
    }

    /// Copies `items` into the arena. Fails with ENOMEM if it is full.
    pub fn slice<'arena, T: Copy>(&'arena self, items: &[T]) -> Result<&'arena [T], Errno> {
        let align = align_of::<T>();
        let start = self.used_bytes.get().next_multiple_of(align);
        let end = start.checked_add(size_of_val(items)).ok_or(Errno::NOMEM)?;
        if self.size_bytes < end {
            return Err(Errno::NOMEM);
        }
        self.used_bytes.set(end);
        // SAFETY: `start` is at most `size_bytes` (checked above), within the one mapping.
        let target = unsafe { self.base.add(start) }.cast::<T>();
        // SAFETY: the target is aligned, holds `items.len()` values, is not borrowed (the offset only
        // grows while a reference lives), and cannot overlap memory of the caller.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(items).cast(), items.len()) };
        // SAFETY: the values were just written and are not written again while the arena is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(target.as_ptr(), items.len()) })
    }

    /// Copies `bytes` and a terminating NUL. Fails with EINVAL if `bytes` contains a NUL, ENOMEM if
    /// the arena is full.
    pub fn c_string<'arena>(&'arena self, bytes: &[u8]) -> Result<&'arena CStr, Errno> {
        // Two writes, so that no copy of a secret remains on the heap.
        let offset = self.used_bytes.get();
        self.slice(bytes)?;
        self.slice(&[0_u8])?;
        // SAFETY: within the mapping, where `slice` has just put the first piece.
        let start = unsafe { self.base.add(offset) };
        // SAFETY: bytes need no alignment, so the pieces are contiguous from `start` on; they were
        // just written and are not written again while borrowed.
        let all = unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes.len() + 1) };
        CStr::from_bytes_with_nul(all).map_err(|_nul| Errno::INVAL)
    }

    /// Copies strings as the null-terminated array that execve(2) takes.
    pub fn strings(&self, strings: &[impl AsRef<[u8]>]) -> Result<StringArray<'_>, Errno> {
        let mut pointers = Vec::with_capacity(strings.len() + 1);
        for string in strings {
            pointers.push(self.c_string(string.as_ref())?.as_ptr());
        }
        pointers.push(std::ptr::null());
        self.slice(&pointers).map(StringArray)
    }

    /// Overwrites the plan in both processes, because the environment contains secrets, and makes room
    /// for the next one. Published values and timestamps stay. The other process must not read the plan
    /// afterwards.
    pub fn overwrite_plan(&mut self) {
        for offset in PLAN_AT..self.used_bytes.get() {
            // SAFETY: within the mapping, as checked by `slice`.
            let byte = unsafe { self.base.add(offset) };
            // SAFETY: the exclusive borrow excludes references into the mapping; volatile, so that
            // the write is not optimized away.
            unsafe { byte.write_volatile(0) };
        }
        self.used_bytes.set(PLAN_AT);
    }

    /// Stores `value`, which the other process reads with [`Arena::read_published`]. Fails with E2BIG if
    /// it is larger than the slot.
    pub fn publish<'arena, T: Copy + 'arena>(
        &'arena self,
        slot: Slot,
        value: T,
    ) -> Result<(), Errno> {
        if PUBLISHED_BYTES_MAX < size_of::<T>() || PUBLISHED_BYTES_MAX < align_of::<T>() {
            return Err(Errno::TOOBIG);
        }
        // SAFETY: PUBLISHED_BYTES_MAX bytes are reserved for this value, aligned as the
        // page-aligned base; volatile, because the reader is another process.
        unsafe { self.slot::<T>(slot).write_volatile(value) };
        Ok(())
    }

    fn slot<T>(&self, slot: Slot) -> *mut T {
        let offset = slot as usize * PUBLISHED_BYTES_MAX;
        // SAFETY: within the mapping, whose start is reserved for the values.
        unsafe { self.base.add(offset) }.cast::<T>().as_ptr()
    }

    /// Stores the timestamp of step `number`, in nanoseconds of the monotonic clock. Ignores numbers
    /// from `TIMESTAMPS_MAX` on.
    pub fn store_timestamp(&self, number: usize, time_ns: u64) {
        if let Some(timestamp) = self.timestamp_cell(number) {
            timestamp.store(
                time_ns.wrapping_add(self.behind_ns.get()),
                Ordering::Relaxed,
            );
        }
    }

    /// Sets the lag of this process's monotonic clock behind that of the other process.
    pub fn set_clock_behind(&self, behind_ns: u64) {
        self.behind_ns.set(behind_ns);
    }

    /// The last timestamp stored for step `number`, nanoseconds.
    #[must_use]
    pub fn timestamp(&self, number: usize) -> Option<u64> {
        let time_ns = self.timestamp_cell(number)?.load(Ordering::Relaxed);
        (time_ns != 0).then_some(time_ns)
    }

    fn timestamp_cell(&self, number: usize) -> Option<&AtomicU64> {
        if number >= TIMESTAMPS_MAX {
            return None;
        }
        // SAFETY: within the mapping: `number` was checked.
        let cell = unsafe { self.base.add(TIMESTAMPS_AT + number * size_of::<u64>()) };
        // SAFETY: a multiple of eight bytes from the page-aligned start, reserved for timestamps
        // and only accessed as an atomic.
        Some(unsafe { cell.cast::<AtomicU64>().as_ref() })
    }

    /// Returns the value that the other process published.
    ///
    /// # Safety
    /// The other process must have published a value of exactly this type and have sent a message
    /// afterwards.
    pub unsafe fn read_published<'arena, T: Copy + 'arena>(&'arena self, slot: Slot) -> T {
        // SAFETY: the caller guarantees that a `T` was written, and its references point into this
        // mapping, which has the same address in both processes.
        unsafe { self.slot::<T>(slot).read_volatile() }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping and every reference into it borrows `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.size_bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_plan_is_read_back_with_its_references() {
        let arena = Arena::new(1 << 16).expect("mapped");
        let name = arena.c_string(b"name").expect("fits");
        let numbers = arena.slice(&[1_u64, 2, 3]).expect("fits");
        arena.publish(Slot::Base, (name, numbers)).expect("fits");
        arena.publish(Slot::Launch, 7_u64).expect("fits");
        arena.store_timestamp(0, 5);
        arena.store_timestamp(TIMESTAMPS_MAX - 1, 6);
        arena.store_timestamp(TIMESTAMPS_MAX, 7);
        // SAFETY: the very type that was published.
        let (name, numbers): (&CStr, &[u64]) = unsafe { arena.read_published(Slot::Base) };
        assert_eq!((name.to_bytes(), numbers), (&b"name"[..], &[1, 2, 3][..]));
        // SAFETY: the very type that was published.
        assert_eq!(unsafe { arena.read_published::<u64>(Slot::Launch) }, 7);
        let numbers = [0, 1, TIMESTAMPS_MAX - 1, TIMESTAMPS_MAX];
        let timestamps = numbers.map(|number| arena.timestamp(number));
        assert_eq!(timestamps, [Some(5), None, Some(6), None]);
    }

    /// F-12: the plan, which contains the body's environment, is erased; everything else stays.
    #[test]
    fn an_overwritten_plan_is_all_zeros() {
        let mut arena = Arena::new(1 << 16).expect("mapped");
        arena.publish(Slot::Launch, 7_u64).expect("fits");
        arena.store_timestamp(TIMESTAMPS_MAX - 1, 6);
        arena.c_string(b"TOKEN=canary").expect("fits");
        arena.slice(&[u64::MAX; 3]).expect("fits");
        arena.c_string(b"last").expect("fits");
        let plan = PLAN_AT..arena.used_bytes.get();
        let read_plan = |arena: &Arena| -> Vec<u8> {
            let bytes = plan.clone().map(|offset| {
                // SAFETY: within the mapping: the plan ends with its last piece.
                let byte = unsafe { arena.base.add(offset) };
                // SAFETY: the kernel zeroed the whole mapping, so padding is initialized too.
                unsafe { byte.read_volatile() }
            });
            bytes.collect()
        };
        let before = read_plan(&arena);
        assert!(before.windows(12).any(|window| window == b"TOKEN=canary"));
        assert!(before.ends_with(b"last\0"), "{before:?}");
        arena.overwrite_plan();
        assert_eq!(read_plan(&arena), vec![0; plan.len()]);
        assert_eq!(arena.timestamp(TIMESTAMPS_MAX - 1), Some(6));
        // SAFETY: the very type that was published.
        assert_eq!(unsafe { arena.read_published::<u64>(Slot::Launch) }, 7);
    }

    #[test]
    fn a_process_that_is_forked_later_cannot_reach_the_plan() {
        use crate::worker::{Sent, Work, WorkerError, WorkerLimits, run_in_child};
        use spec::parse_permit::ParsePermit;
        let arena = Arena::new(1 << 16).expect("mapped");
        let change = || {
            let limits = WorkerLimits {
                time: None,
                memory_bytes: 64 << 20,
                file_bytes: 0,
                answer_bytes: 100,
            };
            let work = Work {
                confine: &|_keep| Ok(ParsePermit::for_trusted_text()),
                run: &|_permit, _source, _answer| {
                    arena.publish(Slot::Launch, 7_u64).expect("fits");
                    b"changed".to_vec()
                },
            };
            let sent = Sent {
                source: &mut std::io::empty(),
                descriptor: None,
            };
            run_in_child(limits, None, sent, &work)
        };
        assert_eq!(change(), Ok(b"changed".to_vec()));
        arena.publish(Slot::Launch, 1_u64).expect("fits");
        arena.keep_from_later_children().expect("kept");
        assert_eq!(change(), Err(WorkerError::Exited));
        // SAFETY: the very type that was published.
        assert_eq!(unsafe { arena.read_published::<u64>(Slot::Launch) }, 1);
    }

    #[test]
    fn a_full_arena_is_an_error_and_a_nul_is_refused() {
        let arena = Arena::new(8192).expect("mapped");
        assert_eq!(arena.slice(&[0_u8; 8192]), Err(Errno::NOMEM));
        assert_eq!(arena.c_string(b"a\0b"), Err(Errno::INVAL));
    }
}
