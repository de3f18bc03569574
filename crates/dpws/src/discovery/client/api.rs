//! The client's configuration, commands and events.

use std::net::SocketAddr;
use std::time::Duration;

use chappe_identity::Quota;
use chappe_xml::{Name, Str};

use super::super::{DropReason, Interface, MatchRule, Retransmission, Target};
use crate::Dialect;

/// Configuration and limits of a client.
#[derive(Debug, Clone)]
pub struct Config {
    /// Interfaces that requests are sent on.
    pub interfaces: Vec<Interface>,
    /// Dialects that requests are sent in. Default both.
    pub dialects: Vec<Dialect>,
    /// Namespace prefixes for types, for devices that match literal prefixes.
    pub prefixes: Vec<(Str, Str)>,
    /// Whether requests of the 2009 dialect offer that their answers are EXI. Default true; peers that do not know the
    /// header ignore it.
    pub exi: bool,
    /// Retransmission of multicast messages.
    pub multicast: Retransmission,
    /// Retransmission of unicast messages.
    pub unicast: Retransmission,
    /// Time limit for a Resolve that the client sends automatically. Default 10 s (MATCH_TIMEOUT).
    pub resolve_timeout: Duration,
    /// Target services in the table. Default 4,096.
    pub table_capacity: usize,
    /// Bytes in one target service's description, with the namespace of each type. Default 8,192:
    /// room for an envelope of the largest size that DPWS sends by UDP (4,096 bytes).
    pub description_bytes: usize,
    /// Target services in the table from one source address (or /64 of IPv6), confirmed ones
    /// included. Default 2,048: half the table. A full table evicts from the source with the most
    /// entries.
    pub source_max: usize,
    /// Unconfirmed target services in the table from one source address. Default 1,024: a gateway
    /// may announce as many devices in one burst.
    pub source_share: usize,
    /// Pending Probes and Resolves. Default 1,024.
    pub requests_capacity: usize,
    /// Burst of messages accepted from one address; four times as many from its subnet (/24 or
    /// /64). Default 4,000.
    pub messages_burst: u32,
    /// Long-run rate of messages accepted from one address; four times as many from its subnet.
    /// Default 1,000.
    pub messages_per_s: u32,
    /// Burst of automatic Resolves, which follow messages without an address or in conflict with
    /// the table; a quarter of them for one address. Default 512.
    pub resolves_burst: u32,
    /// Long-run rate of automatic Resolves, a quarter of them for one address. Default 50.
    pub resolves_per_s: u32,
    /// Message identifiers stored to detect duplicates. Default 8,192.
    pub seen_capacity: usize,
    /// Messages waiting to be sent. Default 1,024.
    pub queue_capacity: usize,
    /// Seeds the random choices.
    pub seed: u64,
}

impl Config {
    /// The defaults.
    #[must_use]
    pub fn new(interfaces: Vec<Interface>, seed: u64) -> Self {
        Self {
            interfaces,
            dialects: Dialect::ALL.to_vec(),
            prefixes: Vec::new(),
            exi: true,
            multicast: Retransmission::default(),
            unicast: Retransmission::default(),
            resolve_timeout: Duration::from_secs(10),
            table_capacity: 4_096,
            description_bytes: 8_192,
            source_max: 2_048,
            source_share: 1_024,
            requests_capacity: 1_024,
            messages_burst: 4_000,
            messages_per_s: 1_000,
            resolves_burst: 512,
            resolves_per_s: 50,
            seen_capacity: 8_192,
            queue_capacity: 1_024,
            seed,
        }
    }
}

impl Config {
    /// Limits of the table.
    pub(super) fn quota(&self) -> Quota {
        Quota {
            total: self.table_capacity,
            of_host: self.source_max.max(1),
            strangers_of_host: self.source_share.max(1),
        }
    }
}

/// A command of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Probe on every interface, in every dialect of the configuration.
    Probe {
        /// Returned in the events.
        id: u64,
        /// Types that a match must implement; empty matches everything. Names of DPWS are
        /// translated into the dialect of each message.
        types: Vec<Name>,
        /// Each must match one of the target's scopes.
        scopes: Vec<Str>,
        /// The rule by which scopes match. A dialect without it is not asked.
        match_by: MatchRule,
        /// Time for which answers are accepted.
        timeout: Duration,
    },
    /// Probe one host by unicast.
    DirectedProbe {
        /// Returned in the events.
        id: u64,
        /// The host's address.
        to: SocketAddr,
        /// As in [`Command::Probe`].
        types: Vec<Name>,
        /// As in [`Command::Probe`].
        scopes: Vec<Str>,
        /// As in [`Command::Probe`].
        match_by: MatchRule,
        /// Time for which answers are accepted.
        timeout: Duration,
    },
    /// Resolve the transport addresses of an endpoint by multicast.
    Resolve {
        /// The address of the endpoint.
        endpoint: Str,
    },
    /// The application reached the endpoint at its address in the table. A confirmed entry is
    /// evicted only while its source has the most entries.
    Confirm {
        /// The address of the endpoint.
        endpoint: Str,
    },
    /// The application knows the endpoint's description from a better source than discovery.
    Accept {
        /// Replaces the table's entry and counts as confirmed.
        target: Target,
        /// The endpoint's source address.
        from: SocketAddr,
    },
    /// Remove the endpoint from the table. A discovery proxy is reported again when it is next heard.
    Forget {
        /// The address of the endpoint.
        endpoint: Str,
    },
    /// Replace the interfaces.
    SetInterfaces(Vec<Interface>),
    /// Whether discovery proxies are asked instead of the multicast groups (WS-Discovery 1.1, section
    /// 2.2.2): if so, Probe and Resolve are not sent to the groups. Announcements are still heard.
    SetManaged(bool),
}

/// The kind of message that brought a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// An unsolicited announcement.
    Hello,
    /// The answer to a Probe.
    Probe,
    /// The answer to a Resolve.
    Resolve,
}

/// An event for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A new target service with permitted transport addresses.
    Found {
        /// Its description.
        target: Target,
        /// The dialect of the message.
        dialect: Dialect,
        /// The kind of message.
        via: Via,
        /// The sender.
        from: SocketAddr,
        /// The receiving interface.
        interface: u32,
    },
    /// A known target service gave another description in an answer.
    Changed {
        /// The new description.
        target: Target,
        /// The dialect of the message.
        dialect: Dialect,
        /// The kind of message.
        via: Via,
        /// The sender.
        from: SocketAddr,
    },
    /// A known target service sent Hello. If it differs from the table, the client verifies it by a
    /// Resolve; the table changes only by an answer or [`Command::Accept`].
    Hello {
        /// The description in the message.
        target: Target,
        /// Whether it differs from the table.
        differs: bool,
        /// The sender.
        from: SocketAddr,
    },
    /// A Bye for a known target service. The client verifies it by a Resolve and keeps the entry;
    /// the application decides.
    ByeHint {
        /// The address of the endpoint.
        endpoint: Str,
        /// The sender.
        from: SocketAddr,
        /// Whether the sender has the address in the table.
        same_source: bool,
    },
    /// Another host than the one in the table claims to be a confirmed target service.
    MoveHint {
        /// The description in the message.
        target: Target,
        /// The sender.
        from: SocketAddr,
    },
    /// A discovery proxy announced itself, or answered; not authenticated. Emitted once for each list of its
    /// addresses, within a rate of each sender.
    Proxy {
        /// Its description, with permitted transport addresses only.
        target: Target,
        /// The dialect of the message.
        dialect: Dialect,
        /// The sender.
        from: SocketAddr,
    },
    /// A target service matches a Probe. Emitted once per Probe.
    Match {
        /// The command's identifier.
        id: u64,
        /// The address of the endpoint.
        endpoint: Str,
    },
    /// A Probe timed out.
    ProbeEnded {
        /// The command's identifier.
        id: u64,
        /// Matching target services.
        count: usize,
    },
    /// A Resolve was answered or timed out.
    ResolveEnded {
        /// The address of the endpoint.
        endpoint: Str,
        /// Whether it was answered.
        answered: bool,
    },
    /// A transport address was removed because the policy refuses it. At most one event a second.
    AddressRefused {
        /// The address of the endpoint.
        endpoint: Str,
        /// The transport address.
        xaddr: Str,
        /// The policy's reason.
        reason: String,
    },
    /// A request was not sent: too many are pending, the queue is full or the message is too long.
    NotSent {
        /// The command's identifier, if a whole Probe was rejected.
        id: Option<u64>,
        /// The reason.
        reason: String,
    },
    /// A message was dropped. At most one event a second for each reason.
    Dropped {
        /// The reason.
        reason: DropReason,
        /// The sender.
        from: SocketAddr,
        /// The defect.
        detail: String,
        /// Messages dropped for this reason since the last event.
        suppressed: u64,
    },
}
