//! The program's allocator: one region that is only ever filled, then the C library's.
//!
//! A launch makes about a thousand small values, 70 KiB in all, and ends. Finding each a place that
//! can be used again costs a quarter of its instructions in user mode; here a place is an addition.
//! What is given back is used again only where it was the last; the rest is held until the process
//! ends, and is `REGION_BYTES` at most. Programs that run longer fill the region once and then
//! live with the C library's allocator.
//!
//! Where there is no memory the process ends here, with a line and the exit code of a host that failed.
//! Rust's own end is SIGABRT and a line of another kind; nothing in between can be relied upon,
//! because most of what allocates has no way to say that it could not.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::process::exit_now;

/// Address space of the region; a page costs memory once it is written.
const REGION_BYTES: usize = 1 << 20;
/// Larger blocks are the C library's.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Larger blocks of zeros are the C library's too: it knows which memory is fresh.
const ZEROED_BYTES_MAX: usize = 4 << 10;
/// Alignment of the region.
const PAGE_BYTES: usize = 4 << 10;
/// What is said where there is no memory: nothing can be formatted then.
const NO_MEMORY: &[u8] = b"runner: failed: no memory is left for the supervisor: give it more \
    (ulimit -v, ulimit -d, the memory of its cgroup) (host_failed)\n";
/// The exit code of a host that failed.
const FAILED: i32 = 125;

/// The allocator; one static of it is the program's.
#[derive(Debug)]
pub struct Heap {
    /// The region; null before the first block. Mapped, so that it lies at a random address.
    base: AtomicPtr<u8>,
    /// Bytes of it in use. Whoever moves it has what lies between.
    used: AtomicUsize,
}

impl Heap {
    /// An allocator that has mapped nothing yet.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a static cannot be made by Default"
    )]
    pub const fn new() -> Self {
        Self {
            base: AtomicPtr::new(null_mut()),
            used: AtomicUsize::new(0),
        }
    }

    /// A block of the region; `None` where the C library has to give one.
    fn take(&self, layout: Layout) -> Option<*mut u8> {
        if BLOCK_BYTES_MAX < layout.size() || PAGE_BYTES < layout.align() {
            return None;
        }
        let base = self.base()?;
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let from = used.next_multiple_of(layout.align());
            let end = from + layout.size();
            if REGION_BYTES < end {
                return None;
            }
            match self.move_end(used, end) {
                Ok(_) => return Some(base.wrapping_add(from)),
                Err(now) => used = now,
            }
        }
    }

    /// The region, mapped where this is the first block; `None` where it cannot be had.
    fn base(&self) -> Option<*mut u8> {
        let base = self.base.load(Ordering::Acquire);
        if !base.is_null() {
            return Some(base);
        }
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a null hint and no MAP_FIXED: the kernel picks an address that nothing uses.
        let mapped = unsafe { mmap_anonymous(null_mut(), REGION_BYTES, access, kind) };
        let mapped = mapped.ok()?.cast::<u8>();
        let (won, lost) = (Ordering::AcqRel, Ordering::Acquire);
        match self.base.compare_exchange(null_mut(), mapped, won, lost) {
            Ok(_) => Some(mapped),
            Err(other) => {
                // SAFETY: mapped above by this thread, and known to nobody else.
                let unmapped = unsafe { munmap(mapped.cast(), REGION_BYTES) };
                // It cannot fail; if it did, address space would be lost and nothing else.
                debug_assert!(unmapped.is_ok(), "{unmapped:?}");
                Some(other)
            }
        }
    }

    fn move_end(&self, from: usize, to: usize) -> Result<usize, usize> {
        // Release: what the last owner wrote there comes before what the next one writes.
        self.used
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
    }

    /// Where `block` begins in the region; `None` where it is the C library's.
    fn place(&self, block: *mut u8) -> Option<usize> {
        let base = self.base.load(Ordering::Acquire).addr();
        let from = block.addr().wrapping_sub(base);
        (base != 0 && from < REGION_BYTES).then_some(from)
    }

    /// Makes the last block of the region end elsewhere; `false` where it is not the last.
    fn resize_last(&self, from: usize, size: usize, new_size: usize) -> bool {
        from + new_size <= REGION_BYTES && self.move_end(from + size, from + new_size).is_ok()
    }
}

/// The block; where there is none, the end.
fn given(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        out_of_memory();
    }
    block
}

#[cold]
fn out_of_memory() -> ! {
    match rustix::io::write(rustix::stdio::stderr(), NO_MEMORY) {
        // Where standard error takes nothing the code has to be enough.
        Ok(_) | Err(_) => exit_now(FAILED),
    }
}

// SAFETY: a block of the region is what one successful exchange of `used` has put behind the end,
// so no two overlap; it is aligned, because the region is aligned to pages and `from` to the
// layout. The end moves back over the last block only when its owner gives it back. Every other
// block comes from the C library and goes back there: `place` tells them apart by address.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout).unwrap_or_else(|| {
            // SAFETY: the caller's contract is the same.
            given(unsafe { System.alloc(layout) })
        })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let small = (layout.size() <= ZEROED_BYTES_MAX).then_some(layout);
        let Some(block) = small.and_then(|layout| self.take(layout)) else {
            // SAFETY: the caller's contract is the same.
            return given(unsafe { System.alloc_zeroed(layout) });
        };
        // SAFETY: the block was just taken, and is as large as the layout says.
        unsafe { block.write_bytes(0, layout.size()) };
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match self.place(block) {
            Some(from) => {
                self.resize_last(from, layout.size(), 0);
            }
            // SAFETY: not of the region, so `System` gave it, with this layout.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Some(from) = self.place(block) else {
            // SAFETY: not of the region, so `System` gave it, with this layout.
            return given(unsafe { System.realloc(block, layout, new_size) });
        };
        let fits = new_size <= BLOCK_BYTES_MAX && self.resize_last(from, layout.size(), new_size);
        if fits || new_size <= layout.size() {
            return block;
        }
        // SAFETY: the caller vouches that the size, rounded up to the alignment, is no overflow.
        let wanted = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the layout has a size, as the new size is larger than the old one.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: two different blocks, both at least as large as the old size.
            unsafe { moved.copy_from_nonoverlapping(block, layout.size()) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("a layout")
    }

    fn make(heap: &Heap, size: usize, align: usize) -> *mut u8 {
        // SAFETY: the size is not zero.
        let block = unsafe { heap.alloc(layout(size, align)) };
        assert!(!block.is_null() && block.addr().is_multiple_of(align));
        block
    }

    #[test]
    fn blocks_are_aligned_do_not_overlap_and_the_last_is_used_again() {
        let heap = Heap::new();
        let mut taken = Vec::new();
        for (size, align) in [(1, 1), (8, 8), (3, 1), (4096, 4096), (64, 64), (1, 2)] {
            let block = make(&heap, size, align);
            assert!(heap.place(block).is_some());
            taken.push(block.addr()..block.addr() + size);
        }
        taken.sort_by_key(|range| range.start);
        assert!(taken.windows(2).all(|two| two[0].end <= two[1].start));
        let last = make(&heap, 100, 1);
        // SAFETY: of this heap, with this layout.
        unsafe { heap.dealloc(last, layout(100, 1)) };
        assert_eq!(make(&heap, 50, 1), last);
    }

    #[test]
    fn what_grows_keeps_its_bytes_wherever_it_goes() {
        let heap = Heap::new();
        let mut block = make(&heap, 16, 8);
        // SAFETY: 16 bytes of ours.
        unsafe { block.write_bytes(7, 16) };
        let mut size = 16;
        // In place; past another block; then to the C library, and in there; then back to less.
        for (new_size, other) in [(32, 0), (64, 8), (100_000, 0), (200_000, 0), (16, 0)] {
            if other != 0 {
                make(&heap, other, 8);
            }
            // SAFETY: of this heap, with this layout.
            block = unsafe { heap.realloc(block, layout(size, 8), new_size) };
            // SAFETY: the first 16 bytes were written and kept.
            let kept = unsafe { std::slice::from_raw_parts(block, 16) };
            assert_eq!(kept, [7; 16], "{new_size}");
            assert_eq!(heap.place(block).is_some(), size < 64, "{new_size}");
            size = new_size;
        }
        // SAFETY: of this heap, with this layout.
        unsafe { heap.dealloc(block, layout(size, 8)) };
    }

    #[test]
    fn zeros_are_zeros_where_something_stood_before() {
        let heap = Heap::new();
        let before = make(&heap, 64, 8);
        // SAFETY: 64 bytes of ours.
        unsafe { before.write_bytes(0xff, 64) };
        // SAFETY: of this heap, with this layout.
        unsafe { heap.dealloc(before, layout(64, 8)) };
        // SAFETY: the size is not zero.
        let block = unsafe { heap.alloc_zeroed(layout(64, 8)) };
        assert_eq!(block, before);
        // SAFETY: 64 bytes of ours.
        assert_eq!(unsafe { std::slice::from_raw_parts(block, 64) }, [0; 64]);
    }

    #[test]
    fn a_full_region_is_no_end() {
        let heap = Heap::new();
        let blocks: Vec<*mut u8> = (0..40).map(|_| make(&heap, BLOCK_BYTES_MAX, 8)).collect();
        let of_the_region = blocks.iter().filter(|block| heap.place(**block).is_some());
        assert_eq!(of_the_region.count(), REGION_BYTES / BLOCK_BYTES_MAX);
        for block in blocks {
            // SAFETY: of this heap, with this layout.
            unsafe { heap.dealloc(block, layout(BLOCK_BYTES_MAX, 8)) };
        }
    }

    #[test]
    fn threads_never_get_the_same_place() {
        let heap = Heap::new();
        let work = |mark: u8| {
            for round in 1..2_000_usize {
                let size = round % 97 + 1;
                let block = make(&heap, size, 8);
                // SAFETY: a block of ours of this size.
                unsafe { block.write_bytes(mark, size) };
                std::hint::spin_loop();
                // SAFETY: written above.
                let found = unsafe { std::slice::from_raw_parts(block, size) };
                assert!(found.iter().all(|byte| *byte == mark));
                // SAFETY: of this heap, with this layout.
                unsafe { heap.dealloc(block, layout(size, 8)) };
            }
        };
        std::thread::scope(|scope| {
            for mark in 1..5 {
                let work = &work;
                scope.spawn(move || work(mark));
            }
        });
    }
}
