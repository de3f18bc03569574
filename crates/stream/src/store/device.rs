//! The device that a stream's elements come from, apart from its self-chosen endpoint address.

use serde::{Deserialize, Serialize};

/// The identity by which a device is recognized under another endpoint address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// The manufacturer's identity: equal texts mean the same device.
    pub identity: String,
    /// The transport address of its last answer, an http URI.
    pub address: String,
}
