//! The figures of a session: counters that only rise, and the current state of a channel.

use crate::{DeadLetterReason, Position};

/// Counters of one end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Bytes of frames sent.
    pub bytes_sent: u64,
    /// Bytes of frames received.
    pub bytes_received: u64,
    /// Elements sent (sender), or handed out to be stored (receiver).
    pub elements: u64,
    /// Elements acknowledged.
    pub acknowledged: u64,
    /// Acknowledgement frames, sent or received.
    pub acknowledgements: u64,
    /// Messages about a channel or a request that had ended; they changed nothing.
    pub stale: u64,
    /// Numbers that never arrive, each reported in an event.
    pub lost: u64,
    /// Rollbacks.
    pub rollbacks: u64,
    /// How often a channel had records and no room.
    pub stalls: u64,
    /// Dead letters, by reason; see [`DeadLetterReason::index`]. A sender only knows the sum, under
    /// `Other`.
    pub refused: [u64; DeadLetterReason::ALL.len()],
    /// Repairs requested by this side.
    pub fetches: u64,
    /// Answers of the caller that were too late to be used.
    pub answers_unused: u64,
}

impl Counters {
    /// A peer may report any count.
    pub(crate) fn lose(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
    }
}

/// A snapshot of a sender's channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderChannel {
    /// The epoch that is being sent.
    pub epoch: u64,
    /// The newest number at the origin.
    pub last: u64,
    /// The next number to be sent.
    pub next: u64,
    /// The last number that the subscriber has stored.
    pub acknowledged: u64,
    /// Elements in flight: sent and not stored.
    pub in_flight_elements: u64,
    /// Packed bytes in flight.
    pub in_flight_bytes: u64,
    /// The limit in flight.
    pub window_bytes: u64,
    /// Whether it catches up.
    pub catching_up: bool,
    /// Whether it has records and no room.
    pub stalled: bool,
    /// The subscriber's dead letters.
    pub refused: u64,
}

/// A snapshot of a receiver's channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverChannel {
    /// Whether the origin has accepted it.
    pub accepted: bool,
    /// The last element handed out to be stored.
    pub delivered: Position,
    /// The last number stored.
    pub stored: u64,
    /// Elements that are at the origin and not yet here, as last reported.
    pub behind: u64,
    /// Packed bytes handed out and not stored.
    pub held_bytes: u64,
    /// The credit in bytes.
    pub window_bytes: u64,
    /// Dead letters.
    pub refused: u64,
}
