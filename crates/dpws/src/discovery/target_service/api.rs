//! The target service's configuration, commands and events.

use std::net::SocketAddr;
use std::time::Duration;

use chappe_xml::{Name, Str};

use super::super::{DropReason, Interface, Retransmission};
use crate::Dialect;

/// The description of a target service, and its limits.
#[derive(Debug, Clone)]
pub struct Config {
    /// The stable address of the endpoint, `urn:uuid:…`.
    pub endpoint: Str,
    /// The dialects in which it is announced and answers. Default the 2009 dialect: clients of SDC know
    /// no other, and each adds its own announcements.
    pub dialects: Vec<Dialect>,
    /// The types that it implements, with names of the profile in either dialect; a DPWS device lists
    /// [`Dialect::device_type`](crate::Dialect) here.
    pub types: Vec<Name>,
    /// The scopes that it belongs to (URIs).
    pub scopes: Vec<Str>,
    /// The version of its metadata.
    pub metadata_version: u32,
    /// Increases with every start of the device, for example seconds since 1970.
    pub instance_id: u32,
    /// The interfaces of announcements, each with its transport addresses.
    pub interfaces: Vec<(Interface, Vec<Str>)>,
    /// Longest random delay before a Hello and before the answer to a multicast Probe. Default
    /// 2,500 ms (DPWS 1.1, APP_MAX_DELAY); WS-Discovery 1.1 itself has 500 ms. Zero is allowed.
    pub app_max_delay: Duration,
    /// Retransmission of multicast messages.
    pub multicast: Retransmission,
    /// Retransmission of answers, and of announcements to discovery proxies.
    pub unicast: Retransmission,
    /// Discovery proxies to which it says Hello and Bye by UDP, in addition to the groups.
    pub proxies: Vec<SocketAddr>,
    /// Whether the application sends announcements to discovery proxies by HTTP, and so gets them as
    /// [`Event::Announcement`].
    pub announces_by_http: bool,
    /// Interval at which the Hello to discovery proxies is repeated, so that they keep its entry, and have it
    /// again after a restart of theirs. Default 60 s: a tenth of the time for which Chappe's proxy keeps it.
    pub renewal: Duration,
    /// Burst of answers to one address; four times as many to its subnet (/24 or /64). Default 200:
    /// as many clients of one host may start together.
    pub answers_burst: u32,
    /// Long-run rate of answers to one address; four times as many to its subnet. Default 20:
    /// enough for 1,200 clients of one host that search once a minute.
    pub answers_per_s: u32,
    /// Message identifiers stored to detect duplicates. Default 1,024: peers store about 200.
    pub seen_capacity: usize,
    /// Answers waiting to be sent. Default 1,024.
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
            dialects: vec![Dialect::V2009],
            types: Vec::new(),
            scopes: Vec::new(),
            metadata_version: 1,
            instance_id,
            interfaces: Vec::new(),
            app_max_delay: Duration::from_millis(2_500),
            multicast: Retransmission::default(),
            unicast: Retransmission::default(),
            proxies: Vec::new(),
            announces_by_http: false,
            renewal: Duration::from_secs(60),
            answers_burst: 200,
            answers_per_s: 20,
            seen_capacity: 1_024,
            queue_capacity: 1_024,
            seed,
        }
    }
}

/// A command of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Send Hello on every interface and start answering.
    Start,
    /// Send Bye on every interface and stop answering.
    Stop,
    /// Replace the description; sends Hello if the service is running.
    Update {
        /// The types that it implements.
        types: Vec<Name>,
        /// The scopes that it belongs to.
        scopes: Vec<Str>,
        /// The increased version of its metadata.
        metadata_version: u32,
    },
    /// Replace the interfaces; sends Hello on each new or changed one.
    SetInterfaces(Vec<(Interface, Vec<Str>)>),
    /// Say Hello to the discovery proxies now: one that was away is back.
    Renew,
}

/// An event for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A Probe or Resolve was answered.
    Answered {
        /// The client.
        to: SocketAddr,
        /// `Probe`, `Resolve` or `Probe with an unknown rule`.
        request: &'static str,
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
    /// An announcement for the discovery proxies that the application reaches by HTTP.
    Announcement {
        /// Its action URI.
        action: String,
        /// The message.
        text: String,
    },
    /// A message was not sent: it exceeds a datagram or the queue is full.
    NotSent {
        /// The message and the reason.
        reason: String,
    },
    /// The last copy of Bye was sent.
    Stopped,
}
