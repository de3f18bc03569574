//! The identity and the durability level of a record, shared by the log, which stores records, and the
//! links, which carry them.

#![no_std]
#![forbid(unsafe_code)]

use core::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The identity of a record within its stream.
///
/// Numbers start at 1 and rise by one, also from one epoch to the next. A new epoch means that the log
/// may have gone back: it may number other records as it once numbered those that it lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The epoch: a random number below 2^53, so that it is exact in JSON.
    pub epoch: u64,
    /// The sequence number; 0 is the position before the first record.
    pub sequence: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} number {}", self.epoch, self.sequence)
    }
}

/// What a stream survives (its durability level).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Level {
    /// Elements survive nothing.
    Memory,
    /// Elements survive the end of the process.
    Process,
    /// Elements survive a loss of power.
    Power,
}

impl Level {
    /// Its name in the configuration and in the REST API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Process => "process",
            Self::Power => "power",
        }
    }

    /// Its number in logs and on links.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The level with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Memory,
            1 => Self::Process,
            2 => Self::Power,
            _ => return None,
        })
    }
}
