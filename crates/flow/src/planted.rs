//! Planted defects, one at a time, for the simulation to find. Without the feature `planted` there
//! are none, and the check compiles to a constant.

#![cfg_attr(not(feature = "planted"), allow(dead_code, unreachable_pub))]

/// A defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Defect {
    /// Elements are acknowledged before they are stored.
    AcknowledgesEarly = 1,
    /// A subscription starts one element too late.
    ResumesTooFar,
    /// Elements of a new epoch are dropped if an earlier epoch had their numbers.
    IgnoresEpoch,
    /// A session that resumes never raises its credit.
    CreditStuck,
    /// Lost numbers are skipped without an event.
    HidesGaps,
    /// A rollback is not reported.
    HidesRollback,
    /// A peer that requests damaged records gets none.
    KeepsRecords,
    /// Lost numbers are skipped while elements before them wait for room in the log's queue.
    LostOvertakes,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::AcknowledgesEarly,
        Self::ResumesTooFar,
        Self::IgnoresEpoch,
        Self::CreditStuck,
        Self::HidesGaps,
        Self::HidesRollback,
        Self::KeepsRecords,
        Self::LostOvertakes,
    ];
}

#[cfg(feature = "planted")]
static PLANTED: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);

/// Plants a defect in all machines of this process, or none.
#[cfg(feature = "planted")]
pub fn plant(defect: Option<Defect>) {
    let number = defect.map_or(0, |defect| defect as u8);
    PLANTED.store(number, core::sync::atomic::Ordering::Relaxed);
}

/// Whether a defect is planted.
#[cfg(feature = "planted")]
pub(crate) fn is(defect: Defect) -> bool {
    PLANTED.load(core::sync::atomic::Ordering::Relaxed) == defect as u8
}

/// No defect is planted.
#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_: Defect) -> bool {
    false
}
