//! The bounds of decoding one message.

use std::time::Duration;

/// The bounds of decoding one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a message. Default 1 MiB: JSON may take a hundred times that in memory. A wrapper cuts
    /// longer texts at line ends.
    pub message_bytes: usize,
    /// Most elements of a message. Default 50,000: a MiB of short rows.
    pub elements: usize,
    /// Most values of the elements of a message. Default 1,000,000: 20 for each of the most elements.
    pub values: usize,
    /// Most bytes of texts, bytes and samples that are read out of a message, above 16 times its own bytes.
    /// Each record counts what it repeats of the whole message. Default 8 MiB.
    pub repeated_bytes: usize,
    /// Most faults that are described; more are counted. Default 100.
    pub faults: usize,
    /// Most steps of paths in a message. Default 2,000,000: several for each value of a MiB of JSON.
    pub path_steps: u64,
    /// The most that a time may be ahead of the receipt. Default 300 s, as for written elements.
    pub future: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 1 << 20,
            elements: 50_000,
            values: 1_000_000,
            repeated_bytes: 8 << 20,
            faults: 100,
            path_steps: 2_000_000,
            future: Duration::from_secs(300),
        }
    }
}

impl Limits {
    /// Most bytes that are read out of a message of this many bytes.
    pub(crate) const fn read_bytes(&self, message_bytes: usize) -> usize {
        message_bytes
            .saturating_mul(16)
            .saturating_add(self.repeated_bytes)
    }
}
