//! Deliberate defects, one at a time, for the simulation to find. Without the feature `planted`
//! there are none: the check is constant and compiled away.

#![cfg_attr(not(feature = "planted"), allow(dead_code, unreachable_pub))]

/// A defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Defect {
    /// Subscriber: elements that wait for room in the log's queue count as read, so they are
    /// dropped when they are retried.
    PassesParked = 1,
    /// Subscriber: elements are acknowledged when they are queued.
    AcknowledgesQueued,
    /// Subscriber: elements fetched from the origin are restored under the numbers before theirs.
    RestoresShifted,
    /// Origin: a stream trimmed beyond a subscriber's position continues after the first kept
    /// element.
    ResumesPastTrim,
    /// Origin: a subscriber's earlier epochs are ignored, so a rollback sends everything again.
    IgnoresEarlier,
    /// Origin: a schema is announced after the elements written by it.
    AnnouncesLate,
    /// Origin: elements fetched from a subscriber are restored under the numbers before theirs.
    PutsBackShifted,
    /// Origin: elements for a fetch are sent under the numbers before theirs.
    AnswersShifted,
}

impl Defect {
    /// All defects.
    pub const ALL: [Self; 8] = [
        Self::PassesParked,
        Self::AcknowledgesQueued,
        Self::RestoresShifted,
        Self::ResumesPastTrim,
        Self::IgnoresEarlier,
        Self::AnnouncesLate,
        Self::PutsBackShifted,
        Self::AnswersShifted,
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
