//! The limits and time-outs of a session, with their defaults and reasons.

use core::time::Duration;

/// The oldest supported version of the protocol. Version 1 also ran on connections that lose
/// frames.
pub const VERSION_MIN: u32 = 2;
/// The newest supported version of the protocol.
pub const VERSION_MAX: u32 = 2;

/// Most bytes of a stream's name, as in the log.
pub const NAME_BYTES_MAX: usize = 1024;
/// Most bytes of a schema, as in the log.
pub const SCHEMA_BYTES_MAX: usize = 256 * 1024;
/// Most bytes of the text in a refusal; longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 512;
/// Most bytes of the name of a serialization.
pub const SERIALIZATION_BYTES_MAX: usize = 64;
/// Most earlier epochs in a subscription.
pub const EARLIER_MAX: usize = 64;
/// Channel numbers of a session are below this: ended ones are remembered in a bit each.
pub const CHANNEL_NUMBERS_MAX: u32 = 65_536;
/// Most schemas announced on one channel in one session. A stream whose schema changes more often
/// ends the channel; the subscriber subscribes again.
pub const SCHEMAS_MAX: u32 = 1_024;
/// The largest number of unanswered repair requests, in each direction. A peer that exceeds it breaks
/// the protocol.
pub const FETCHES_MAX: usize = 16;
/// A repair request that has no answer after this time counts as unavailable. The answer may wait
/// behind a full window on a slow path, and in the peer's log.
pub const FETCH_WAIT: Duration = Duration::from_secs(60);
/// The lowest limit of a frame: names and texts fit. A peer with a lower limit is refused.
pub const FRAME_BYTES_MIN: usize = 4_096;

/// The configuration of either end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// Versions offered. Default: all supported ones. For tests and for refusing old peers.
    pub versions: (u32, u32),
    /// Bytes up to which ready messages share a frame. Default 64 KiB: the overhead of the frame is
    /// below a thousandth, and it takes half a millisecond at a gigabit per second.
    pub frame_bytes: usize,
    /// The largest accepted frame. Default 2 MiB and 64 KiB: the largest element of a stream in a
    /// frame of its own. A larger record is reported as lost (`too_large`).
    pub frame_bytes_max: usize,
    /// Own silence after which this side sends a ping. Default 5 s; less if the peer requires it.
    pub keep_alive: Duration,
    /// Silence of the peer after which the session fails. Default 20 s.
    pub dead_after: Duration,
    /// Time limit of the handshake. Default 10 s.
    pub handshake: Duration,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            versions: (VERSION_MIN, VERSION_MAX),
            frame_bytes: 64 * 1024,
            frame_bytes_max: (2 << 20) + 64 * 1024,
            keep_alive: Duration::from_secs(5),
            dead_after: Duration::from_secs(20),
            handshake: Duration::from_secs(10),
        }
    }
}

impl SessionConfig {
    /// The configuration within the limits that the machines rely on.
    pub(crate) fn clamped(mut self) -> Self {
        self.frame_bytes_max = self.frame_bytes_max.max(FRAME_BYTES_MIN);
        self.frame_bytes = self
            .frame_bytes
            .clamp(FRAME_BYTES_MIN, self.frame_bytes_max);
        self.dead_after = self.dead_after.max(Duration::from_millis(100));
        self.keep_alive = self.keep_alive.max(Duration::from_millis(1));
        self
    }
}

/// The limits of a [`crate::Sender`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenderConfig {
    /// The configuration of either end.
    pub session: SessionConfig,
    /// Most channels at a time. Default 4,096: each costs about 400 bytes and its schema.
    pub channels_max: usize,
    /// How long an element waits for others to share its frame. Default zero. An element that fills
    /// the frame ends the wait. Adds this much latency, and saves a frame per element.
    pub linger: Duration,
    /// A channel that lags by more elements than this counts as catching up, until the lag is a
    /// tenth of it. Default 1,000.
    pub live_lag: u64,
    /// Bytes in flight over all channels that catch up. Default 512 KiB: at most this much precedes
    /// live data in the connection's buffers.
    pub catch_up_bytes: u64,
    /// Reads that the caller has not answered, over all channels. Default 16.
    pub reads_max: usize,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            session: SessionConfig::default(),
            channels_max: 4_096,
            linger: Duration::ZERO,
            live_lag: 1_000,
            catch_up_bytes: 512 * 1024,
            reads_max: 16,
        }
    }
}

/// The limits of a [`crate::Receiver`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// The configuration of either end.
    pub session: SessionConfig,
    /// Most channels at a time. Default 4,096.
    pub channels_max: usize,
    /// Packed bytes received and not stored, over all channels. Default 8 MiB.
    pub window_bytes: u64,
    /// The credit of a channel unless its subscription has its own. Default 1 MiB and 16,384
    /// elements.
    pub credit: Credit,
    /// Stored elements of a channel that cause an acknowledgement. Default 1,024.
    pub acknowledge_elements: u64,
    /// Stored bytes of a channel that cause an acknowledgement. Default 128 KiB.
    pub acknowledge_bytes: u64,
    /// Longest delay of an acknowledgement. Default 100 ms: ten acknowledgements a second, each for
    /// all channels of the session.
    pub acknowledge_delay: Duration,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self {
            session: SessionConfig::default(),
            channels_max: 4_096,
            window_bytes: 8 << 20,
            credit: Credit::default(),
            acknowledge_elements: 1_024,
            acknowledge_bytes: 128 * 1024,
            acknowledge_delay: Duration::from_millis(100),
        }
    }
}

/// How much of a channel may be sent and not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// Packed bytes ([`crate::Records::packed_bytes`]). One element may exceed them.
    pub bytes: u64,
    /// Elements.
    pub elements: u64,
}

impl Default for Credit {
    fn default() -> Self {
        Self {
            bytes: 1 << 20,
            elements: 16_384,
        }
    }
}
