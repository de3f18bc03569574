//! SOAP-over-UDP 1.1: common parts of the machines that use datagrams.
//!
//! [`Inbound`] and [`Outbound`] are the datagrams; [`Outbox`] sends messages and their
//! retransmissions; [`Seen`] detects duplicates and looped-back messages.
//!
//! Source: SOAP-over-UDP 1.1 (OASIS, 1 July 2009): section 3 (message size), section 4
//! (retransmission) and appendix A (an algorithm for it); DPWS 1.1 appendix B gives the values.
//! Not implemented: the `soap.udp` address scheme, and signatures.

mod outbox;
mod seen;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

pub use outbox::{Full, Outbox};
pub use seen::{Arrival, Seen};

/// Largest envelope sent by UDP, in bytes (DPWS 1.1, MAX_UDP_ENVELOPE_SIZE).
pub const SENT_ENVELOPE_BYTES_MAX: usize = 4_096;

/// Largest envelope read from UDP, in bytes (DPWS 1.1, MAX_ENVELOPE_SIZE): senders of other
/// profiles exceed the 4,096 bytes of this one.
pub const RECEIVED_ENVELOPE_BYTES_MAX: usize = 32_767;

/// The port of WS-Discovery.
pub const DISCOVERY_PORT: u16 = 3702;

/// The multicast group of WS-Discovery on IPv4.
pub const DISCOVERY_GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);

/// The multicast group of WS-Discovery on IPv6, of link-local scope.
pub const DISCOVERY_GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xc);

/// A received datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound {
    /// The sender and destination of answers.
    pub from: SocketAddr,
    /// The operating system's index of the receiving interface.
    pub interface: u32,
    /// Whether it was sent to a multicast group.
    pub multicast: bool,
    /// The payload.
    pub bytes: Vec<u8>,
}

/// A datagram to send.
///
/// The sending socket must have its own port instead of the shared [`DISCOVERY_PORT`], so that
/// unicast answers reach only this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outbound {
    /// The destination: a host, or a multicast group on the network of `interface`.
    pub to: SocketAddr,
    /// Index of the sending interface.
    pub interface: u32,
    /// The payload.
    pub bytes: Vec<u8>,
}

/// The retransmission of a message (SOAP-over-UDP 1.1, appendix A).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retransmission {
    /// Extra copies after the first. Default 1 (DPWS 1.1: MULTICAST_UDP_REPEAT, UNICAST_UDP_REPEAT).
    pub repeat: u32,
    /// Shortest first gap. Default 50 ms (UDP_MIN_DELAY).
    pub min_delay: Duration,
    /// Longest first gap. Default 250 ms (UDP_MAX_DELAY).
    pub max_delay: Duration,
    /// Longest of the doubled gaps. Default 450 ms (UDP_UPPER_DELAY).
    pub upper_delay: Duration,
}

impl Default for Retransmission {
    fn default() -> Self {
        Self {
            repeat: 1,
            min_delay: Duration::from_millis(50),
            max_delay: Duration::from_millis(250),
            upper_delay: Duration::from_millis(450),
        }
    }
}

impl Retransmission {
    /// The default with this number of extra copies.
    #[must_use]
    pub fn with_repeat(repeat: u32) -> Self {
        Self {
            repeat,
            ..Self::default()
        }
    }

    /// A random first gap.
    #[must_use]
    pub fn first_gap(&self, random: &mut fastrand::Rng) -> Duration {
        random_between(random, self.min_delay, self.max_delay).min(self.upper_delay)
    }

    /// The gap that follows `gap`.
    #[must_use]
    pub fn next_gap(&self, gap: Duration) -> Duration {
        gap.saturating_mul(2).min(self.upper_delay)
    }
}

/// A random duration from `low` to `high`, both included; `low` for an empty range.
#[must_use]
pub fn random_between(random: &mut fastrand::Rng, low: Duration, high: Duration) -> Duration {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let (low, high) = (nanos(low), nanos(high));
    Duration::from_nanos(random.u64(low..=high.max(low)))
}

/// A random `urn:uuid:` identifier (RFC 4122, version 4) from a seeded generator.
#[must_use]
pub fn random_urn(random: &mut fastrand::Rng) -> String {
    let bytes = random.u128(..).to_be_bytes();
    let uuid = uuid::Builder::from_random_bytes(bytes).into_uuid();
    uuid.urn().to_string()
}

/// The discovery group and port of an address family; for IPv6 with the interface as scope.
#[must_use]
pub fn discovery_group(family_of: IpAddr, interface: u32) -> SocketAddr {
    match family_of {
        IpAddr::V4(_) => SocketAddr::from((DISCOVERY_GROUP_V4, DISCOVERY_PORT)),
        IpAddr::V6(_) => SocketAddr::V6(std::net::SocketAddrV6::new(
            DISCOVERY_GROUP_V6,
            DISCOVERY_PORT,
            0,
            interface,
        )),
    }
}
