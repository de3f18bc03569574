//! The quotas of a device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MaxBytes;

/// Limits on one device, so that it cannot crowd out the others. A device that exceeds a rate is slowed
/// down: its notifications are answered later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// Streams of one device in the log, including those that the device no longer offers. One more is
    /// refused, and its elements are counted as lost.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_streams: u32,
    /// Elements per second from one device, averaged over five seconds; 0: no limit. A waveform has
    /// one element per block of samples: ten leads in blocks of 25 ms make 400 elements per second.
    #[schemars(range(min = 0), extend("x-unit" = "elements/s"))]
    pub max_elements_per_s: u64,
    /// Bytes per second from one device, averaged over five seconds, measured as size in memory (about
    /// 150 bytes per element plus its values, 8 bytes per sample); 0: no limit. Ten leads at 500 samples
    /// per second need about 0.1 MB/s.
    #[schemars(range(min = 0), extend("x-unit" = "bytes/s"))]
    pub max_bytes_per_s: u64,
    /// Bytes per day from one device, measured like `max_bytes_per_s`; 0: no limit. It bounds how
    /// fast one device displaces the elements of others from a full log (`log.max_bytes`). `"auto"`
    /// is half of `log.max_bytes`, at least 64 GiB: a patient monitor with 24 leads at 1,000
    /// samples per second sends 27 GiB per day in blocks of 25 ms, 45 GiB in blocks of 10 ms.
    pub max_bytes_per_day: MaxBytes,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            max_streams: 2_000,
            max_elements_per_s: 10_000,
            max_bytes_per_s: 2 << 20,
            max_bytes_per_day: MaxBytes::AUTO,
        }
    }
}
