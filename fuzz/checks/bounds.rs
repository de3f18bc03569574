//! The cost limits of one input: memory by a counting allocator, and processor time.
//!
//! A fuzz target runs each input through [`Bound::hold`], and so does the test that replays its
//! corpus. Only the thread that runs the input is measured: its allocations, and its time on a
//! processor, which a busy machine does not lengthen.

// The trait demands unsafe code; every call is handed on as it came.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]
#![allow(dead_code, reason = "some tests read the counters alone")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

/// The maximum cost of one input, by its length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// Bytes held at once, whatever the length.
    pub(crate) bytes: usize,
    /// Bytes held at once for each byte of the input.
    pub(crate) bytes_each: usize,
    /// Processor time, whatever the length.
    pub(crate) time: Duration,
    /// Processor time for each byte of the input.
    pub(crate) time_each: Duration,
}

impl Bound {
    /// A bound on memory with the time that any input may take: thirty times that of the slowest seed
    /// without optimization, 60 ms. It finds work that grows with the square of the input, or faster,
    /// not slow code.
    #[must_use]
    pub(crate) const fn memory(bytes: usize, bytes_each: usize) -> Self {
        Self {
            bytes,
            bytes_each,
            time: Duration::from_secs(2),
            time_each: Duration::from_micros(10),
        }
    }

    /// Runs `work` on an input of `length` bytes.
    ///
    /// # Panics
    /// It costs more.
    pub(crate) fn hold<T>(&self, length: usize, work: impl FnOnce() -> T) -> T {
        let (before, start) = (begin(), processor_time());
        let result = work();
        let bytes = peak().saturating_sub(before);
        let time = processor_time().saturating_sub(start);
        let most = self.bytes + self.bytes_each * length;
        assert!(
            bytes <= most,
            "{length} bytes of input held {bytes} bytes of memory, bound {most}"
        );
        let each = u32::try_from(length).unwrap_or(u32::MAX);
        let longest = self.time + self.time_each * each;
        assert!(
            time <= longest,
            "{length} bytes of input took {time:?} of processor time, bound {longest:?}"
        );
        result
    }
}

/// Time of this thread on a processor; zero if the system does not report it.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// Starts a measurement; returns the bytes that this thread holds.
fn begin() -> usize {
    let held = HELD.get();
    PEAK.set(held);
    usize::try_from(held).unwrap_or_default()
}

fn peak() -> usize {
    usize::try_from(PEAK.get()).unwrap_or_default()
}

/// Number of allocations of this thread.
pub(crate) fn allocations() -> usize {
    CALLS.get()
}

/// The most bytes that this thread held at once during `work`, beyond those it held before.
pub(crate) fn peak_bytes<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = begin();
    let result = work();
    (peak().saturating_sub(before), result)
}

fn count(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

fn count_call() {
    CALLS.set(CALLS.get() + 1);
}

struct Counting;

// SAFETY: all is done by the system's allocator, whose contract is the same.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_call();
        count(layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_call();
        count(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
