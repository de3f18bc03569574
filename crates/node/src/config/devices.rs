//! The quotas of a device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MaxBytes;

/// What one device may bring, so that it takes no room and no time of the others. A device that sends
/// more is slowed: its notifications are answered later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// Streams of one device that the log has, also those that it offers no more; one more is refused,
    /// and its elements are counted as lost.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_streams: u32,
    /// Elements a second of one device, over five seconds; 0: no bound. A waveform is one element a
    /// stretch: ten leads in stretches of 25 ms are 400 elements a second.
    #[schemars(range(min = 0), extend("x-unit" = "elements/s"))]
    pub max_elements_per_s: u64,
    /// Bytes a second of one device, over five seconds, as its elements take them in memory (about 150
    /// and its values, 8 for a sample); 0: no bound. Ten leads of 500 samples a second take about
    /// 0.1 MB/s.
    #[schemars(range(min = 0), extend("x-unit" = "bytes/s"))]
    pub max_bytes_per_s: u64,
    /// Bytes a day of one device, measured like those a second, so that it pushes the elements of
    /// others out of a full log (`log.max_bytes`) only slowly; 0: no bound. `"auto"` is half of
    /// `log.max_bytes`, at least 64 GiB: a patient monitor with 24 leads of 1,000 samples a second brings
    /// 27 GiB in stretches of 25 ms, 45 GiB in stretches of 10 ms.
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
