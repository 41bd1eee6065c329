//! The C library's allocator, with a clean exit when it is out of memory, and with memory that children do
//! not get.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::process::exit_now;

/// A constant, because formatting may need memory.
const NO_MEMORY: &[u8] = b"runner: failed: no memory is left for the supervisor: give it more \
    (ulimit -v, ulimit -d, the memory of its cgroup) (host_failed)\n";
const FAILED: i32 = 125;
/// Address space for what [`keep_from_children`] allocates; only written pages use memory. The variables
/// of a process have at most 6 MiB (execve(2)).
const KEPT_BYTES: usize = 64 << 20;

/// The smallest block, and the size that no block is aligned to more than.
const SMALLEST_BYTES: usize = 16;
const PAGE_BYTES: usize = 4096;
/// Up to a block of all bytes.
const CLASSES: usize = ((KEPT_BYTES / SMALLEST_BYTES).ilog2() as usize + 1) * 4;

static KEPT: Region = Region {
    start: AtomicPtr::new(null_mut()),
    used_bytes: AtomicUsize::new(SMALLEST_BYTES),
    freed: [const { AtomicPtr::new(null_mut()) }; CLASSES],
};

thread_local! {
    /// Whether this thread allocates in [`KEPT`].
    static IS_KEPT: Cell<bool> = const { Cell::new(false) };
}

/// Allocator that prints a line and exits with code 125 when an allocation fails. The default of
/// Rust is SIGABRT.
#[derive(Debug)]
pub struct ExitWithoutMemory;

/// Runs `act`, and keeps what it allocates from all processes that are forked later: a parser that is taken
/// over must not find secrets of the caller. They find zeros (madvise(2), MADV_WIPEONFORK), so a child must
/// not use a value that was made here. The memory is overwritten when it is freed.
///
/// Only for a program whose global allocator is [`ExitWithoutMemory`]; for others, this just runs `act`.
pub fn keep_from_children<T>(act: impl FnOnce() -> T) -> T {
    let was_kept = IS_KEPT.replace(true);
    let result = act();
    IS_KEPT.set(was_kept);
    result
}

/// A private mapping that is filled from its start. A freed block is used again for one of its class, so
/// that a process may allocate and free for as long as it likes. Unused bytes are zero.
struct Region {
    /// Null before the first use.
    start: AtomicPtr<u8>,
    /// Changed with the lock held, as the lists.
    used_bytes: AtomicUsize,
    /// The first freed block of each class, which has the address of the next one at its start.
    freed: [AtomicPtr<u8>; CLASSES],
}

/// Blocks of one size: four for each doubling, so that at most a fourth of a block is unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class {
    number: usize,
    bytes: usize,
}

impl Class {
    /// The smallest for `layout`; `None`: there is none so large.
    fn of(layout: Layout) -> Option<Self> {
        let align = layout.align().max(align_of::<*mut u8>());
        let size = layout.size().max(SMALLEST_BYTES);
        let size = size.checked_next_multiple_of(align)?;
        let end = size.checked_next_power_of_two()?;
        let step = end / 8;
        let bytes = size.next_multiple_of(step);
        let doublings = (end / SMALLEST_BYTES).ilog2() as usize;
        // `bytes` is 5 to 8 steps.
        let number = doublings * 4 + bytes / step - 5;
        (number < CLASSES).then_some(Self { number, bytes })
    }

    /// `bytes` is a multiple of the alignment of each layout of the class.
    fn align(self) -> usize {
        PAGE_BYTES.min(1 << self.bytes.trailing_zeros())
    }
}

impl Region {
    fn contains(&self, block: *mut u8) -> bool {
        let start = self.start.load(Ordering::Acquire);
        !start.is_null() && (start.addr()..start.addr() + KEPT_BYTES).contains(&block.addr())
    }

    fn start(&self) -> Result<*mut u8, Errno> {
        let start = self.start.load(Ordering::Acquire);
        if !start.is_null() {
            return Ok(start);
        }
        // SAFETY: a null hint and no MAP_FIXED: the kernel picks an address that nothing uses.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                null_mut(),
                KEPT_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        // SAFETY: the range is the mapping, which stays as it is in this process.
        unsafe { rustix::mm::madvise(mapped, KEPT_BYTES, Advice::LinuxWipeOnFork) }?;
        let new = mapped.cast::<u8>();
        let stored =
            self.start
                .compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        // Another thread was first: the second mapping stays unused.
        Ok(stored.map_or_else(|first| first, |_null| new))
    }

    /// The lock is the first byte of the mapping: a child that was forked while another thread held it
    /// finds it open. Each step of the lists and of the used bytes may be the last one of that thread.
    fn with_lock<T>(&self, act: impl FnOnce() -> T) -> T {
        let first = self.start.load(Ordering::Acquire);
        // SAFETY: whoever has a block, or asks for one, has made the mapping, which stays, and no block
        // has its first byte.
        let is_locked = unsafe { AtomicBool::from_ptr(first.cast()) };
        while is_locked.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        let result = act();
        is_locked.store(false, Ordering::Release);
        result
    }

    /// A block of zeros; null if none is left.
    fn allocate(&self, layout: Layout) -> *mut u8 {
        let (Ok(start), Some(class)) = (self.start(), Class::of(layout)) else {
            return null_mut();
        };
        self.with_lock(|| {
            self.reuse(class)
                .unwrap_or_else(|| self.extend(start, class))
        })
    }

    /// Takes a freed block.
    fn reuse(&self, class: Class) -> Option<*mut u8> {
        let list = &self.freed[class.number];
        let block = list.load(Ordering::Relaxed);
        if block.is_null() {
            return None;
        }
        let link = block.cast::<*mut u8>();
        // SAFETY: `free` has written it there, aligned, and nobody else uses the block; a child finds null.
        let next = unsafe { link.read() };
        // SAFETY: the same.
        unsafe { link.write(null_mut()) };
        list.store(next, Ordering::Relaxed);
        Some(block)
    }

    /// Takes a block of what was never used.
    fn extend(&self, start: *mut u8, class: Class) -> *mut u8 {
        // The start is aligned to a page, and no type of this program to more.
        let used = self.used_bytes.load(Ordering::Relaxed);
        let offset = used.next_multiple_of(class.align());
        let end = offset + class.bytes;
        if KEPT_BYTES < end {
            return null_mut();
        }
        self.used_bytes.store(end, Ordering::Relaxed);
        start.wrapping_add(offset)
    }

    /// Overwrites a block, and keeps it for the next of its class.
    ///
    /// # Safety
    /// `block` was returned for `layout`, and nobody uses it any more.
    unsafe fn free(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is of this size, and the caller owns it.
        unsafe { block.write_bytes(0, layout.size()) };
        std::hint::black_box(block);
        let Some(class) = Class::of(layout) else {
            return;
        };
        self.with_lock(|| {
            let list = &self.freed[class.number];
            // SAFETY: a block has room for a pointer and is aligned to one, and the caller owns it.
            unsafe { block.cast::<*mut u8>().write(list.load(Ordering::Relaxed)) };
            list.store(block, Ordering::Relaxed);
        });
    }
}

fn block_or_exit(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        out_of_memory();
    }
    block
}

#[cold]
fn out_of_memory() -> ! {
    match rustix::io::write(rustix::stdio::stderr(), NO_MEMORY) {
        Ok(_) | Err(_) => exit_now(FAILED),
    }
}

// SAFETY: every block comes from `System` or from `KEPT`, and is freed by it with the same layout.
unsafe impl GlobalAlloc for ExitWithoutMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        block_or_exit(if IS_KEPT.get() {
            KEPT.allocate(layout)
        } else {
            // SAFETY: the caller's contract is the same.
            unsafe { System.alloc(layout) }
        })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        block_or_exit(if IS_KEPT.get() {
            KEPT.allocate(layout)
        } else {
            // SAFETY: the caller's contract is the same.
            unsafe { System.alloc_zeroed(layout) }
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if KEPT.contains(block) {
            // SAFETY: the caller's contract is the same.
            unsafe { KEPT.free(block, layout) };
        } else {
            // SAFETY: the caller's contract is the same.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !KEPT.contains(block) {
            // SAFETY: the caller's contract is the same.
            return block_or_exit(unsafe { System.realloc(block, layout, new_size) });
        }
        // SAFETY: the caller's contract: a valid size for this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let new = block_or_exit(KEPT.allocate(new_layout));
        // SAFETY: two blocks of at least this size, one of which is new.
        unsafe { new.copy_from_nonoverlapping(block, layout.size().min(new_size)) };
        // SAFETY: the caller gives up the old block.
        unsafe { KEPT.free(block, layout) };
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Sent, Work, WorkerError, WorkerLimits, run_in_child};
    use spec::parse_permit::ParsePermit;

    #[global_allocator]
    static ALLOCATOR: ExitWithoutMemory = ExitWithoutMemory;

    /// Whether a child can read `bytes`, and what it finds there.
    fn read_in_child(bytes: &[u8]) -> Result<Vec<u8>, WorkerError> {
        let limits = WorkerLimits {
            time: None,
            memory_bytes: 64 << 20,
            file_bytes: 0,
            answer_bytes: 1 << 20,
        };
        let work = Work {
            confine: &|_keep| Ok(ParsePermit::for_trusted_text()),
            run: &|_permit, _source, _answer| bytes.to_vec(),
        };
        let sent = Sent {
            source: &mut std::io::empty(),
            descriptor: None,
        };
        run_in_child(limits, None, sent, &work)
    }

    #[test]
    fn a_child_has_nothing_of_what_is_kept_from_it() {
        let kept = keep_from_children(|| b"canary-7f3a".to_vec());
        let copy = kept.clone();
        assert_eq!(read_in_child(&kept), Ok(vec![0; 11]));
        assert_eq!(read_in_child(&copy), Ok(b"canary-7f3a".to_vec()));
        // It grows where it is, whoever makes it grow.
        let mut grown = kept;
        grown.resize(100_000, b'x');
        assert_eq!(grown.get(..11), Some(&copy[..]));
        assert_eq!(read_in_child(&grown), Ok(vec![0; 100_000]));
        assert_eq!(keep_from_children(|| keep_from_children(|| 5) + 1), 6);
        assert!(!IS_KEPT.get());
    }

    #[test]
    fn what_is_freed_is_overwritten() {
        use std::os::unix::fs::FileExt as _;
        let memory = std::fs::File::open("/proc/self/mem").expect("this process's own");
        let value = keep_from_children(|| vec![7_u8; 1 << 16]);
        let address = value.as_ptr().addr() as u64;
        let read = || {
            let mut found = vec![1; 1 << 16];
            memory.read_exact_at(&mut found, address).expect("read");
            found
        };
        assert_eq!(read(), value);
        // A second thread of the tests may take the room, and leaves most of it as it is. The first bytes
        // are an address.
        drop(value);
        let found = read();
        assert!(!found.get(size_of::<usize>()..).expect("long").contains(&7));
    }

    #[test]
    fn what_is_freed_is_used_again_whatever_the_order() {
        let used = || KEPT.used_bytes.load(Ordering::Relaxed);
        let blocks = |size: usize| keep_from_children(|| vec![vec![1_u8; size]; 100]);
        for size in [1, 40, 5_000] {
            drop(blocks(size));
        }
        let before = used();
        for round in 0..2_000 {
            for size in [1, 40, 5_000] {
                let mut some = blocks(size);
                // They are zero where they are not used.
                let zeros = keep_from_children(|| vec![0_u8; size]);
                assert!(zeros.iter().all(|byte| *byte == 0));
                some.rotate_left(round % 100);
            }
        }
        // Other threads of the tests allocate, too.
        assert!(used() - before < 1 << 20, "{} bytes more", used() - before);
    }

    #[test]
    fn a_class_has_room_for_its_layouts_and_is_aligned_as_they_are() {
        let mut last = 0;
        for size in (0..5_000).chain([KEPT_BYTES / 2 + 1, KEPT_BYTES]) {
            for align in [1, 8, 16, 64, 4096] {
                let layout = Layout::from_size_align(size, align).expect("a layout");
                let class = Class::of(layout).expect("a class");
                assert!(
                    size <= class.bytes && align <= class.align(),
                    "{layout:?} {class:?}"
                );
            }
            let layout = Layout::from_size_align(size, 1).expect("a layout");
            let class = Class::of(layout).expect("a class");
            assert!(
                class.bytes <= (size.max(16) + 8) * 5 / 4,
                "{size}: {class:?}"
            );
            assert!(last <= class.number, "{size}: {class:?}");
            last = class.number;
        }
    }

    #[test]
    fn blocks_are_aligned_and_more_than_there_is_is_null() {
        for align in [1, 8, 64, 4096] {
            let layout = Layout::from_size_align(10, align).expect("a layout");
            let block = KEPT.allocate(layout);
            assert!(block.addr().is_multiple_of(align) && !block.is_null());
            // SAFETY: just allocated, and not used.
            unsafe { KEPT.free(block, layout) };
        }
        let layout = Layout::from_size_align(KEPT_BYTES + 1, 1).expect("a layout");
        assert!(KEPT.allocate(layout).is_null());
    }
}
