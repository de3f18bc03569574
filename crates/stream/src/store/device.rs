//! Which device a stream's elements come from, apart from the address that it has chosen for itself.

use serde::{Deserialize, Serialize};

/// A device that is recognized when it comes under another endpoint address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// What it is by its manufacturer: the same text is the same device.
    pub identity: String,
    /// The transport address at which it answered last, an http URI.
    pub address: String,
}
