//! One processor for both ends of a latency: a wake-up across two virtual processors would dominate
//! it.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::Error;

/// While it lives, this thread and the threads and processes that it starts share one processor.
pub(crate) struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Pins this thread to the last allowed processor: the first serves most interrupts.
    pub(crate) fn new() -> Result<Self, Error> {
        let failed = |error: nix::Error| Error::io("choosing a processor")(error.into());
        let before = sched_getaffinity(Pid::from_raw(0)).map_err(failed)?;
        let allowed = |cpu: &usize| before.is_set(*cpu).unwrap_or(false);
        let last = (0..CpuSet::count()).rev().find(allowed).unwrap_or(0);
        let mut one = CpuSet::new();
        one.set(last).map_err(failed)?;
        sched_setaffinity(Pid::from_raw(0), &one).map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It was allowed before; at worst the rest of the run stays on one processor.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.before);
    }
}
