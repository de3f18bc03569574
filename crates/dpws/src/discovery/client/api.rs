//! What a client is told and tells: configuration, commands, events.

use std::net::SocketAddr;
use std::time::Duration;

use chappe_identity::Quota;
use chappe_xml::{Name, Str};

use super::super::{DropReason, Interface, Retransmission, Target};
use crate::Dialect;

/// Says which transport addresses of a stranger may be contacted.
///
/// Any `Fn(&str, SocketAddr) -> Result<(), String>` is one.
pub trait XaddrPolicy: Send + Sync {
    /// Judges the transport address `xaddr` that a message from `source` gives.
    ///
    /// # Errors
    /// Why it must not be contacted.
    fn judge(&self, xaddr: &str, source: SocketAddr) -> Result<(), String>;
}

impl<F> XaddrPolicy for F
where
    F: Fn(&str, SocketAddr) -> Result<(), String> + Send + Sync,
{
    fn judge(&self, xaddr: &str, source: SocketAddr) -> Result<(), String> {
        self(xaddr, source)
    }
}

/// How a client asks, and its limits.
#[derive(Debug, Clone)]
pub struct Config {
    /// The interfaces it asks on.
    pub interfaces: Vec<Interface>,
    /// The dialects it asks in. Default both.
    pub dialects: Vec<Dialect>,
    /// Prefixes for the namespaces of types, for devices that read literal prefixes.
    pub prefixes: Vec<(Str, Str)>,
    /// How messages to the group are repeated.
    pub multicast: Retransmission,
    /// How messages to one host are repeated.
    pub unicast: Retransmission,
    /// How long a Resolve of its own waits for its answer. Default 10 s (MATCH_TIMEOUT).
    pub resolve_timeout: Duration,
    /// Target services remembered. Default 4,096.
    pub table_capacity: usize,
    /// Bytes of what one target service says of itself, with the namespace of each type. Default
    /// 8,192: an envelope of the largest size that DPWS sends by UDP (4,096 bytes) fits.
    pub description_bytes: usize,
    /// Target services remembered from one source address (or /64 of IPv6), confirmed ones
    /// included. Default 2,048: half the table. In a full table the source with the most gives way.
    pub source_max: usize,
    /// Unconfirmed target services remembered from one source address. Default 1,024: a gateway may
    /// announce as many devices at once.
    pub source_share: usize,
    /// Probes and Resolves that may be open. Default 1,024.
    pub questions_capacity: usize,
    /// Messages taken from one address at once; four times as many from its subnet (/24 or /64).
    /// Default 4,000.
    pub messages_burst: u32,
    /// Messages taken from one address in a second, in the long run; four times as many from its
    /// subnet. Default 1,000.
    pub messages_per_s: u32,
    /// Resolves asked of its own accord, because a message has no address or contradicts what is
    /// known: how many at once, a quarter of them because of one address. Default 512.
    pub resolves_burst: u32,
    /// Such Resolves in a second, in the long run, a quarter of them because of one address.
    /// Default 50.
    pub resolves_per_s: u32,
    /// Message identifiers remembered to know repeats. Default 8,192.
    pub seen_capacity: usize,
    /// Messages that may wait to be sent. Default 1,024.
    pub queue_capacity: usize,
    /// Makes the random choices.
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
            multicast: Retransmission::default(),
            unicast: Retransmission::default(),
            resolve_timeout: Duration::from_secs(10),
            table_capacity: 4_096,
            description_bytes: 8_192,
            source_max: 2_048,
            source_share: 1_024,
            questions_capacity: 1_024,
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
    /// How many target services are remembered.
    pub(super) fn quota(&self) -> Quota {
        Quota {
            total: self.table_capacity,
            of_host: self.source_max.max(1),
            strangers_of_host: self.source_share.max(1),
        }
    }
}

/// What the application asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Ask everyone on every interface, in every dialect of the configuration.
    Probe {
        /// Comes back in the events.
        id: u64,
        /// All of these must be implemented; none asks for everything. Names of DPWS are asked for
        /// in the dialect of each message.
        types: Vec<Name>,
        /// Each must match one of the target's scopes, by the default rule.
        scopes: Vec<Str>,
        /// How long answers are taken.
        timeout: Duration,
    },
    /// Ask one host by unicast.
    DirectedProbe {
        /// Comes back in the events.
        id: u64,
        /// Where to ask.
        to: SocketAddr,
        /// As in [`Command::Probe`].
        types: Vec<Name>,
        /// As in [`Command::Probe`].
        scopes: Vec<Str>,
        /// How long answers are taken.
        timeout: Duration,
    },
    /// Ask everyone for the transport addresses of an endpoint.
    Resolve {
        /// The address of the endpoint.
        endpoint: Str,
    },
    /// The endpoint was reached where the table says: it is evicted only when its source has the most.
    Confirm {
        /// The address of the endpoint.
        endpoint: Str,
    },
    /// The endpoint is known, by better means than discovery, to be as described here.
    Accept {
        /// What replaces the table's entry; it counts as confirmed.
        target: Target,
        /// Where it speaks from.
        from: SocketAddr,
    },
    /// Forget the endpoint.
    Forget {
        /// The address of the endpoint.
        endpoint: Str,
    },
    /// The interfaces have changed.
    SetInterfaces(Vec<Interface>),
}

/// By which message something became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// An unasked announcement.
    Hello,
    /// The answer to a Probe.
    Probe,
    /// The answer to a Resolve.
    Resolve,
}

/// What the application is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A target service that was not known, with addresses that may be contacted.
    Found {
        /// What it says of itself.
        target: Target,
        /// How it speaks.
        dialect: Dialect,
        /// By which message it was found.
        via: Via,
        /// Who said so.
        from: SocketAddr,
        /// By which interface.
        interface: u32,
    },
    /// A known target service described itself otherwise, in answer to a question.
    Changed {
        /// What it says of itself now.
        target: Target,
        /// How it speaks.
        dialect: Dialect,
        /// By which message.
        via: Via,
        /// Who said so.
        from: SocketAddr,
    },
    /// A known target service says Hello. When that differs from what is known, it is asked to
    /// confirm; nothing is changed until an answer, or [`Command::Accept`].
    Hello {
        /// What the message says.
        target: Target,
        /// Whether it differs from what is known.
        differs: bool,
        /// Who said so.
        from: SocketAddr,
    },
    /// Somebody says that a known target service leaves. It stays in the table and is asked; the
    /// application decides.
    ByeHint {
        /// The address of the endpoint.
        endpoint: Str,
        /// Who said so.
        from: SocketAddr,
        /// Whether that is the address it was known from.
        same_source: bool,
    },
    /// A host other than the known one claims to be a confirmed target service.
    MoveHint {
        /// What the message says.
        target: Target,
        /// Who said so.
        from: SocketAddr,
    },
    /// A target service matches a Probe; once for each Probe.
    Match {
        /// Of the command.
        id: u64,
        /// The address of the endpoint.
        endpoint: Str,
    },
    /// The time of a Probe is over.
    ProbeEnded {
        /// Of the command.
        id: u64,
        /// How many target services matched.
        count: usize,
    },
    /// The time of a Resolve is over, or it is answered.
    ResolveEnded {
        /// The address of the endpoint.
        endpoint: Str,
        /// Whether an answer came.
        answered: bool,
    },
    /// One of several transport addresses must not be contacted and was left out. At most one such
    /// event a second.
    AddressRefused {
        /// The address of the endpoint.
        endpoint: Str,
        /// The transport address.
        xaddr: Str,
        /// Why.
        reason: String,
    },
    /// A question was not asked: too many are open, or it is too long.
    NotAsked {
        /// Of the command, when it was a Probe that was not opened at all.
        id: Option<u64>,
        /// Why.
        reason: String,
    },
    /// A message was dropped. At most one such event a second for each reason.
    Dropped {
        /// Why.
        reason: DropReason,
        /// Who sent it.
        from: SocketAddr,
        /// What was wrong with it.
        detail: String,
        /// Messages dropped for the same reason since the last such event.
        suppressed: u64,
    },
}
