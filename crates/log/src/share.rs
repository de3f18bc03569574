//! The share of a group of streams in the size limit.

use std::collections::BTreeMap;

/// How much of the size limit the streams of a share may keep together while others need the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Bytes, as in [`crate::StreamInfo::bytes`]. Above this they make room first.
    pub bytes: u64,
    /// Whether records of other streams never push out these. Their sum should be a small part of the size
    /// limit: they are written again whenever the oldest segment is removed.
    pub is_protected: bool,
}

/// The shares of a store by number.
pub(crate) type Shares = BTreeMap<u32, Share>;
