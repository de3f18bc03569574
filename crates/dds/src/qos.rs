//! Quality of service: what a writer offers and a reader requests (DDS 1.4, clause 2.2.3).
//!
//! Only what both kinds of ends here understand: reliability, durability, history, deadline, and how
//! many samples are kept. Of these the first two and the deadline must fit between both ends; the
//! others are each end's own affair.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DdsError;

/// Samples that a writer keeps unacknowledged, unless said otherwise. Reason: a writer that may have
/// thousands on the way fills the receiver's socket and pays in retransmission (docs/dds.md).
pub const WINDOW_DEFAULT: u32 = 64;
/// How many times the writer's window a reader of this crate keeps. Reason: a reader with less loses
/// samples that it has acknowledged, when it is not emptied for a moment.
pub const READER_FACTOR: u32 = 8;
/// Most samples that either keeps; reason: each takes its size in memory.
pub const SAMPLES_MAX: u32 = 1 << 20;

/// The quality of service of a writer or reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Qos {
    /// Whether lost samples are sent again.
    pub reliability: Reliability,
    /// Whether a reader that comes late gets what was written before.
    pub durability: Durability,
    /// How many samples of the past are kept; 0: all that are not acknowledged.
    #[schemars(range(min = 0, max = 1_048_576))]
    pub keep_last: u32,
    /// Milliseconds within which each next sample is promised or expected; 0: no promise.
    #[schemars(range(min = 0, max = 86_400_000), extend("x-unit" = "milliseconds"))]
    pub deadline_ms: u32,
    /// A writer: samples that may be unacknowledged. A reader: samples that it holds, which must be
    /// well above the writer's; each takes its size in memory, also after it was read. 0: 64 for a
    /// writer, 512 for a reader.
    #[schemars(range(min = 0, max = 1_048_576))]
    pub max_samples: u32,
}

/// Whether lost samples are sent again.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Reliability {
    /// They are not.
    BestEffort,
    /// They are.
    #[default]
    Reliable,
}

/// Whether a reader that comes late gets what was written before.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Durability {
    /// It does not.
    #[default]
    Volatile,
    /// It does, from the memory of a writer that is still there.
    TransientLocal,
}

impl Default for Qos {
    /// Reliable, volatile, everything kept until it is acknowledged.
    fn default() -> Self {
        Self {
            reliability: Reliability::Reliable,
            durability: Durability::Volatile,
            keep_last: 0,
            deadline_ms: 0,
            max_samples: 0,
        }
    }
}

impl Qos {
    /// Of a reliable writer that may have so many samples unacknowledged.
    #[must_use]
    pub fn reliable_writer(window: u32) -> Self {
        Self {
            max_samples: window.clamp(1, SAMPLES_MAX),
            ..Self::default()
        }
    }

    /// Of a reliable reader of writers with that window.
    #[must_use]
    pub fn reliable_reader(window: u32) -> Self {
        Self::reliable_writer(window.saturating_mul(READER_FACTOR).max(256))
    }

    /// The same, best effort.
    #[must_use]
    pub fn best_effort(self) -> Self {
        Self {
            reliability: Reliability::BestEffort,
            ..self
        }
    }

    /// Samples of a writer that may be unacknowledged.
    #[must_use]
    pub fn window(&self) -> u32 {
        match self.max_samples {
            0 => WINDOW_DEFAULT,
            samples => samples,
        }
    }

    /// Samples that a reader holds.
    #[must_use]
    pub fn held(&self) -> u32 {
        match self.max_samples {
            0 => WINDOW_DEFAULT * READER_FACTOR,
            samples => samples,
        }
    }

    /// The deadline, where there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        (self.deadline_ms > 0).then(|| Duration::from_millis(self.deadline_ms.into()))
    }

    /// Checks it.
    ///
    /// # Errors
    /// The first key that makes no sense.
    pub fn check(&self) -> Result<(), DdsError> {
        let above = |key, why: String| Err(DdsError::Qos { key, why });
        if self.max_samples > SAMPLES_MAX {
            return above("max_samples", format!("it is above {SAMPLES_MAX}"));
        }
        if self.keep_last > SAMPLES_MAX {
            return above("keep_last", format!("it is above {SAMPLES_MAX}"));
        }
        if self.max_samples > 0 && self.keep_last > self.max_samples {
            let why = format!("it is above max_samples ({})", self.max_samples);
            return above("keep_last", why);
        }
        Ok(())
    }
}

/// What one end offers or requests, as far as it must fit the other: of a peer, as it announced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// Reliability.
    pub reliability: Reliability,
    /// Durability: `volatile`, `transient_local`, `transient` or `persistent`.
    pub durability: AnnouncedDurability,
    /// Deadline in milliseconds; nothing: none.
    pub deadline_ms: Option<u64>,
}

/// A durability as peers announce it: two more kinds than are spoken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the words of the standard")]
pub enum AnnouncedDurability {
    #[default]
    Volatile,
    TransientLocal,
    Transient,
    Persistent,
}

impl fmt::Display for Announced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reliability = match self.reliability {
            Reliability::Reliable => "reliable",
            Reliability::BestEffort => "best_effort",
        };
        let durability = match self.durability {
            AnnouncedDurability::Volatile => "volatile",
            AnnouncedDurability::TransientLocal => "transient_local",
            AnnouncedDurability::Transient => "transient",
            AnnouncedDurability::Persistent => "persistent",
        };
        write!(f, "{reliability}, {durability}, ")?;
        match self.deadline_ms {
            Some(deadline) => write!(f, "deadline {deadline} ms"),
            None => write!(f, "no deadline"),
        }
    }
}

impl Announced {
    /// The policies in which what `self` offers is less than what `requested` asks for (DDS 1.4,
    /// clause 2.2.3: reliability, durability, deadline).
    #[must_use]
    pub fn misses(&self, requested: &Self) -> Vec<&'static str> {
        let mut missed = Vec::new();
        if self.reliability < requested.reliability {
            missed.push("reliability");
        }
        if self.durability < requested.durability {
            missed.push("durability");
        }
        let longer = |offered: Option<u64>, asked: u64| offered.is_none_or(|ms| ms > asked);
        if requested
            .deadline_ms
            .is_some_and(|asked| longer(self.deadline_ms, asked))
        {
            missed.push("deadline");
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_must_be_as_much_as_is_requested() {
        let offered = Announced {
            reliability: Reliability::BestEffort,
            durability: AnnouncedDurability::Volatile,
            deadline_ms: None,
        };
        let requested = Announced {
            reliability: Reliability::Reliable,
            durability: AnnouncedDurability::TransientLocal,
            deadline_ms: Some(100),
        };
        let all = vec!["reliability", "durability", "deadline"];
        assert_eq!(offered.misses(&requested), all);
        assert!(requested.misses(&offered).is_empty());
        assert!(requested.misses(&requested).is_empty());
    }

    #[test]
    fn limits_that_contradict_each_other_name_the_key() {
        let qos = Qos {
            keep_last: 10,
            max_samples: 5,
            ..Qos::default()
        };
        let error = qos.check().unwrap_err().to_string();
        assert!(error.starts_with("keep_last"), "{error}");
        assert_eq!(Qos::default().check(), Ok(()));
    }
}
