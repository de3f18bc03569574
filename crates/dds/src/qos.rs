//! Quality of service: the offer of a writer and the request of a reader (DDS 1.4, clause 2.2.3).
//!
//! Supported are reliability, durability, history, deadline, partitions, and the number of samples kept. The first two and the
//! deadline must be compatible between both ends; the others are local to each end.

use std::fmt;
use std::time::Duration;

use chappe_stream::Field;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DdsError;

/// The default limit on unacknowledged samples. Reason: a writer with thousands in flight fills the receiver's
/// socket and causes retransmissions (docs/reference/dds.md).
pub const WINDOW_DEFAULT: u32 = 64;
/// The capacity of a reader of this crate, in windows of the writer. Reason: a smaller reader that is not emptied for
/// a moment loses acknowledged samples.
pub const READER_FACTOR: u32 = 8;
/// The largest limit on samples; reason: each costs its size in memory.
pub const SAMPLES_MAX: u32 = 1 << 20;

/// The largest number of partitions of one end, and the longest name; reason: they are part of its announcement.
const PARTITIONS_MAX: usize = 16;
const PARTITION_BYTES_MAX: usize = 255;

/// The quality of service of a writer or reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Qos {
    /// Whether lost samples are retransmitted.
    pub reliability: Reliability,
    /// Whether a late reader gets earlier samples.
    pub durability: Durability,
    /// The number of past samples kept; 0: all unacknowledged ones.
    #[schemars(range(min = 0, max = 1_048_576))]
    pub keep_last: u32,
    /// The promised or expected time between samples in milliseconds; 0: none.
    #[schemars(range(min = 0, max = 86_400_000), extend("x-unit" = "milliseconds"))]
    pub deadline_ms: u32,
    /// The limit on unacknowledged samples of a writer, or on the samples that a reader holds. A
    /// reader's limit must be well above the writer's; each sample takes its size in memory, even
    /// after it was read. 0: 64 for a writer, 512 for a reader.
    #[schemars(range(min = 0, max = 1_048_576))]
    pub max_samples: u32,
    /// Only endpoints with a common partition match; names may have the wildcards `*` and `?`. Empty: the default
    /// partition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub partitions: Vec<String>,
    /// Whether the samples have any encoding, or only plain CDR of version 1, that of Chappe's own types.
    #[serde(skip)]
    pub any_encoding: bool,
    /// Whether a writer of any encoding writes version 2 of CDR.
    #[serde(skip)]
    pub is_version_2: bool,
    /// Whether the type has no key member. Ends match only if both have one or none has; those of Chappe's own types have.
    #[serde(skip)]
    pub is_keyless: bool,
    /// The fields of its type, one of Chappe's own: both ends announce them, and no element is taken from a writer with others.
    /// Empty: they are not compared.
    #[serde(skip)]
    pub fields: Vec<Field>,
    /// When a writer sends.
    #[serde(skip)]
    pub sending: Sending,
}

/// When a writer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sending {
    /// Each sample at once.
    #[default]
    Immediate,
    /// Once a datagram is full, or half of what may be unacknowledged is written, or at
    /// [`Writer::flush`](crate::Writer::flush).
    Batched,
}

/// Whether lost samples are retransmitted.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Reliability {
    /// Lost samples are not retransmitted.
    BestEffort,
    /// Lost samples are retransmitted.
    #[default]
    Reliable,
}

/// Whether a late reader gets earlier samples.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Durability {
    /// It gets none.
    #[default]
    Volatile,
    /// It gets those that a writer still running holds in memory.
    TransientLocal,
}

impl Default for Qos {
    /// Reliable, volatile, all samples kept until they are acknowledged.
    fn default() -> Self {
        Self {
            reliability: Reliability::Reliable,
            durability: Durability::Volatile,
            keep_last: 0,
            deadline_ms: 0,
            max_samples: 0,
            partitions: Vec::new(),
            any_encoding: false,
            is_version_2: false,
            is_keyless: false,
            fields: Vec::new(),
            sending: Sending::Immediate,
        }
    }
}

impl Qos {
    /// A reliable writer with this limit on unacknowledged samples.
    #[must_use]
    pub fn reliable_writer(window: u32) -> Self {
        Self {
            max_samples: window.clamp(1, SAMPLES_MAX),
            ..Self::default()
        }
    }

    /// A reliable reader of writers with that window.
    #[must_use]
    pub fn reliable_reader(window: u32) -> Self {
        Self::reliable_writer(window.saturating_mul(READER_FACTOR).max(256))
    }

    /// The same settings, best effort.
    #[must_use]
    pub fn best_effort(self) -> Self {
        Self {
            reliability: Reliability::BestEffort,
            ..self
        }
    }

    /// The same settings for a writer that collects samples until it is flushed.
    #[must_use]
    pub fn batched(self) -> Self {
        Self {
            sending: Sending::Batched,
            ..self
        }
    }

    /// A writer's limit on unacknowledged samples.
    #[must_use]
    pub fn window(&self) -> u32 {
        match self.max_samples {
            0 => WINDOW_DEFAULT,
            samples => samples,
        }
    }

    /// The capacity of a reader.
    #[must_use]
    pub fn held(&self) -> u32 {
        match self.max_samples {
            0 => WINDOW_DEFAULT * READER_FACTOR,
            samples => samples,
        }
    }

    /// The values that are announced.
    #[cfg(cyclone)]
    pub(crate) fn announced(&self) -> Announced {
        Announced {
            reliability: self.reliability,
            durability: match self.durability {
                Durability::Volatile => AnnouncedDurability::Volatile,
                Durability::TransientLocal => AnnouncedDurability::TransientLocal,
            },
            deadline_ms: (self.deadline_ms > 0).then_some(self.deadline_ms.into()),
        }
    }

    /// The deadline, if there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        (self.deadline_ms > 0).then(|| Duration::from_millis(self.deadline_ms.into()))
    }

    /// Checks the values.
    ///
    /// # Errors
    /// The first key with an invalid value.
    pub fn check(&self) -> Result<(), DdsError> {
        let above = |key, why: String| Err(DdsError::Qos { key, why });
        if self.max_samples > SAMPLES_MAX {
            return above("max_samples", format!("it is above {SAMPLES_MAX}"));
        }
        if self.keep_last > SAMPLES_MAX {
            return above("keep_last", format!("it is above {SAMPLES_MAX}"));
        }
        let is_partition = |name: &String| (1..=PARTITION_BYTES_MAX).contains(&name.len());
        if self.partitions.len() > PARTITIONS_MAX || !self.partitions.iter().all(is_partition) {
            let why = format!(
                "at most {PARTITIONS_MAX} names of 1 to {PARTITION_BYTES_MAX} bytes are possible"
            );
            return above("partitions", why);
        }
        if self.max_samples > 0 && self.keep_last > self.max_samples {
            let why = format!("it is above max_samples ({})", self.max_samples);
            return above("keep_last", why);
        }
        Ok(())
    }
}

/// The offered or requested values that have to be compatible, as a peer announced them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// Reliability.
    pub reliability: Reliability,
    /// Durability: `volatile`, `transient_local`, `transient` or `persistent`.
    pub durability: AnnouncedDurability,
    /// Deadline in milliseconds; `None` for no deadline.
    pub deadline_ms: Option<u64>,
}

/// The durability announced by a peer: includes two kinds that are not supported here.
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
    /// The policies in which the offer `self` is below `requested` (DDS 1.4,
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
    fn the_offer_must_cover_the_request() {
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
    fn contradicting_limits_name_the_key() {
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
