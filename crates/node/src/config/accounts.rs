//! The shares of accounts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Shares of one account, in percent, so that it cannot crowd out the others. `chappe account share` sets
/// other ones for an account. Administrators have no shares, and neither have the streams of devices, links
/// and virtual sensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccountRules {
    /// Percent of `log.max_bytes` that the streams of one account keep while others need the room. When the log is
    /// full, the account that is furthest above its share loses its oldest elements first. An account may keep more
    /// while the log has room. The same percentage of `registry.max_bytes` limits its entities in the registry, and the
    /// same percentage of the audit stream limits its recorded changes.
    #[schemars(range(min = 1, max = 100))]
    pub bytes_percent: u8,
    /// Percent of `log.max_streams` that one account may define, and of the room for their definitions; further
    /// ones are refused with status 507.
    #[schemars(range(min = 1, max = 100))]
    pub streams_percent: u8,
    /// Percent of the concurrent requests of each kind that one account may have: of `limits.queries`, `limits.writes`
    /// and their memory, `http.max_live_clients`, and the answers to links of kind `http_pull`. Each account may have
    /// at least one request of each kind. Further ones are refused with status 429. Requests without a credential count
    /// as one account as soon as there are accounts.
    #[schemars(range(min = 1, max = 100))]
    pub requests_percent: u8,
    /// Maximum size of the audit stream, in percent of `log.max_bytes`. Other streams never displace its elements.
    #[schemars(range(min = 1, max = 25))]
    pub audit_percent: u8,
}

impl Default for AccountRules {
    fn default() -> Self {
        Self {
            bytes_percent: 25,
            streams_percent: 25,
            requests_percent: 50,
            audit_percent: 5,
        }
    }
}
