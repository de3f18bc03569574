//! The discovery proxy's configuration, commands and events.

use std::net::SocketAddr;
use std::time::Duration;

use chappe_identity::Quota;
use chappe_soap::Envelope;
use chappe_xml::Str;

use super::super::{DropReason, Interface, Retransmission, Target};
use crate::Dialect;
use crate::exchange::Reply;

/// Configuration and limits of a discovery proxy.
#[derive(Debug, Clone)]
pub struct Config {
    /// The stable address of its endpoint, `urn:uuid:…`.
    pub endpoint: Str,
    /// Increases with every start.
    pub instance_id: u32,
    /// The dialects that it serves. Default both.
    pub dialects: Vec<Dialect>,
    /// The interfaces of announcements, each with the addresses at which it answers requests by HTTP.
    pub interfaces: Vec<(Interface, Vec<Str>)>,
    /// Longest random delay before its Hello. Default 500 ms (WS-Discovery 1.1, APP_MAX_DELAY).
    pub app_max_delay: Duration,
    /// Retransmission of its announcements.
    pub multicast: Retransmission,
    /// Retransmission of answers, as far as the limit of amplification allows.
    pub unicast: Retransmission,
    /// Time after which an entry ends that was not renewed by a Hello and that the application has not
    /// confirmed. Default 10 min: five renewals of Chappe's devices may be lost.
    pub lifetime: Duration,
    /// Entries. Default 4,096.
    pub entries_max: usize,
    /// Entries of one source address (or /64 of IPv6), confirmed ones included. Default 2,048.
    pub source_max: usize,
    /// Unconfirmed entries of one source address. Default 1,024: a gateway may register as many devices.
    pub source_share: usize,
    /// Bytes of one description, with the namespace of each type. Default 8,192, as for clients.
    pub description_bytes: usize,
    /// Burst of messages accepted from one address; four times as many from its subnet (/24 or /64).
    /// Default 4,000: the Hellos of a gateway, and the requests of a monitor.
    pub messages_burst: u32,
    /// Long-run rate of messages from one address; four times as many from its subnet. Default 1,000.
    pub messages_per_s: u32,
    /// Message identifiers stored to detect duplicates. Default 8,192.
    pub seen_capacity: usize,
    /// Datagrams waiting to be sent. Default 1,024.
    pub queue_capacity: usize,
    /// Seeds the random choices.
    pub seed: u64,
}

impl Config {
    /// The defaults for an endpoint.
    #[must_use]
    pub fn new(endpoint: impl Into<Str>, instance_id: u32, seed: u64) -> Self {
        Self {
            endpoint: endpoint.into(),
            instance_id,
            dialects: Dialect::ALL.to_vec(),
            interfaces: Vec::new(),
            app_max_delay: Duration::from_millis(500),
            multicast: Retransmission::default(),
            unicast: Retransmission::default(),
            lifetime: Duration::from_secs(600),
            entries_max: 4_096,
            source_max: 2_048,
            source_share: 1_024,
            description_bytes: 8_192,
            messages_burst: 4_000,
            messages_per_s: 1_000,
            seen_capacity: 8_192,
            queue_capacity: 1_024,
            seed,
        }
    }

    pub(super) fn quota(&self) -> Quota {
        Quota {
            total: self.entries_max,
            of_host: self.source_max.max(1),
            strangers_of_host: self.source_share.max(1),
        }
    }
}

/// A message that came by HTTP or HTTPS.
#[derive(Debug, Clone)]
pub struct Request {
    /// Returned with the reply.
    pub token: u64,
    /// The client. Its address is proven, since it holds a connection.
    pub from: SocketAddr,
    /// Who sent it, if the transport authenticated the client, such as the fingerprint of its certificate.
    pub sender: Option<Str>,
    /// The message.
    pub envelope: Envelope,
}

/// A command of the application.
#[derive(Debug, Clone)]
pub enum Command {
    /// Send Hello on every interface and start answering datagrams.
    Start,
    /// Send Bye on every interface and stop answering datagrams.
    Stop,
    /// Replace the interfaces; sends Hello on each new or changed one.
    SetInterfaces(Vec<(Interface, Vec<Str>)>),
    /// Answer a message that came by HTTP; each gets one [`Event::Reply`].
    Request(Box<Request>),
    /// The application reached this target service at its address. It is offered until
    /// [`Command::Unlearn`], whatever unauthenticated messages say of it.
    Learn {
        /// Its description, which replaces another source's.
        target: Target,
        /// Its dialect.
        dialect: Dialect,
        /// Its address.
        from: SocketAddr,
    },
    /// The application no longer reaches the target service.
    Unlearn {
        /// The address of its endpoint.
        endpoint: Str,
    },
}

/// An event for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The reply to a message that came by HTTP.
    Reply {
        /// The token of the request.
        token: u64,
        /// The reply.
        reply: Reply,
    },
    /// A target service registered, or changed. An application that can reach it may say so with
    /// [`Command::Learn`].
    Registered {
        /// Its description, with permitted transport addresses only.
        target: Target,
        /// The dialect of the message.
        dialect: Dialect,
        /// The sender.
        from: SocketAddr,
        /// Whether the entry stays as another source has it: this message is only a hint.
        is_hint: bool,
    },
    /// A Bye for an entry that it cannot end. The application decides whether the target service is gone.
    ByeHint {
        /// The address of the endpoint.
        endpoint: Str,
        /// The sender.
        from: SocketAddr,
    },
    /// A target service is offered from now on, or with another description.
    Present {
        /// Its description.
        target: Target,
        /// The dialects in which it is offered.
        dialects: Vec<Dialect>,
    },
    /// A target service is no longer offered: it left, expired, or made room.
    Absent {
        /// The address of its endpoint.
        endpoint: Str,
        /// The dialects in which it was offered.
        dialects: Vec<Dialect>,
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
    /// A datagram was not sent: the queue is full.
    NotSent {
        /// The reason.
        reason: String,
    },
    /// The last copy of Bye was sent.
    Stopped,
}
