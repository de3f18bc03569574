//! WS-Discovery in ad hoc mode, as machines.
//!
//! [`TargetService`] announces one device and answers questions about it; [`Client`] asks and
//! keeps what it heard. Both take [`Inbound`] datagrams and give [`Outbound`] ones; sockets are the
//! transport's.
//!
//! Every arrived message is either used or dropped for exactly one [`DropReason`], which is counted
//! and, at a limited rate, reported. Discovery messages are not authenticated, so they are hints: a
//! Bye or a changed Hello never removes or moves a device that is known.
//!
//! Sources: WS-Discovery 1.1 (OASIS, 1 July 2009) and WS-Discovery (April 2005); DPWS 1.1.
//! Deliberately absent: managed mode (discovery proxies are noticed, not used), compact signatures.

pub mod client;
mod drops;
mod intake;
pub mod message;
mod rate;
mod scopes;
mod table;
pub mod target_service;

use std::net::IpAddr;

use chappe_soap::EndpointReference;
pub use chappe_soap::udp::{Inbound, Outbound, Retransmission};
use chappe_xml::{Name, Str};

pub use client::Client;
pub use drops::{DropCounts, DropReason, REPORT_PERIOD};
pub use message::{AppSequence, Content, Message, MessageError, Probe};
pub use scopes::MatchRule;
pub use target_service::TargetService;

/// What discovery messages say of a target service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// The stable endpoint, as a rule `urn:uuid:…`.
    pub endpoint: EndpointReference,
    /// What it implements; empty when the message says nothing of it.
    pub types: Vec<Name>,
    /// Where it belongs (URIs).
    pub scopes: Vec<Str>,
    /// Transport addresses (URIs); may be absent, except in ResolveMatches.
    pub xaddrs: Vec<Str>,
    /// Rises when the metadata change.
    pub metadata_version: u32,
}

/// One interface that discovery runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The operating system's index.
    pub index: u32,
    /// The addresses of the interface. Each family that occurs has its multicast group joined.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// One address for each family that the interface has.
    pub(crate) fn families(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let first = |v4: bool| self.addresses.iter().find(move |a| a.is_ipv4() == v4);
        first(true).into_iter().chain(first(false)).copied()
    }
}
