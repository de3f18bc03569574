//! Deliberate defects, one at a time, for the simulation to find. Without the feature `planted`
//! there are none: the check is constant and compiled away.

#![cfg_attr(not(feature = "planted"), allow(dead_code, unreachable_pub))]

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Defect {
    /// Level `power` acknowledges without a sync.
    AcknowledgesUnsynced = 1,
    /// A failed sync counts as successful.
    IgnoresFailedSync,
    /// Damage in the middle of the last segment is cut off like a torn tail.
    CutsMiddle,
    /// A restored copy continues in the old epoch.
    IgnoresCopy,
    /// Restored records are forgotten when the log is opened again.
    ForgetsFills,
    /// A record's bytes are returned unchecked.
    TrustsBytes,
    /// Damaged records are not counted.
    HidesLosses,
    /// Damage right after a trim mark is mistaken for trimmed records.
    TrimsDamage,
    /// Records derived from inputs that a power loss may have destroyed still count.
    KeepsDerived,
}

impl Defect {
    /// All defects.
    pub const ALL: [Self; 9] = [
        Self::AcknowledgesUnsynced,
        Self::IgnoresFailedSync,
        Self::CutsMiddle,
        Self::IgnoresCopy,
        Self::ForgetsFills,
        Self::TrustsBytes,
        Self::HidesLosses,
        Self::TrimsDamage,
        Self::KeepsDerived,
    ];
}

#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants a defect in all stores of this process, or none.
#[cfg(feature = "planted")]
pub fn plant(defect: Option<Defect>) {
    let number = defect.map_or(0, |defect| defect as u8);
    PLANTED.store(number, std::sync::atomic::Ordering::Relaxed);
}

/// Whether a defect is planted.
#[cfg(feature = "planted")]
pub(crate) fn is(defect: Defect) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == defect as u8
}

/// No defect is planted.
#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_: Defect) -> bool {
    false
}
