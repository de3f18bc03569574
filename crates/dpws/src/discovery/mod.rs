//! WS-Discovery in ad hoc and in managed mode, as machines.
//!
//! [`TargetService`] announces one device and answers requests for it; [`Client`] sends requests
//! and keeps a table of target services; [`Proxy`] answers for target services that register with it;
//! [`Managed`] decides whether a client asks proxies or the multicast groups. The first three process
//! [`Inbound`] datagrams into [`Outbound`] ones; the transport owns the sockets.
//!
//! Every received message is either used or dropped for exactly one [`DropReason`], which is
//! counted and, at a limited rate, reported. Discovery messages are not authenticated, so they are
//! hints: a Bye or a changed Hello never removes or moves a known device.
//!
//! Sources: WS-Discovery 1.1 (OASIS, 1 July 2009) and WS-Discovery (April 2005); DPWS 1.1.
//! Not implemented: compact signatures.

pub mod client;
mod drops;
mod intake;
pub mod managed;
pub mod message;
mod policy;
pub mod proxy;
mod rate;
pub(crate) mod scopes;
mod table;
pub mod target_service;

use std::net::IpAddr;

use chappe_soap::EndpointReference;
pub use chappe_soap::udp::{Inbound, Outbound, Retransmission};
use chappe_xml::{Name, Str};

pub use client::Client;
pub use drops::{DropCounts, DropReason, REPORT_PERIOD};
pub use managed::Managed;
pub use message::{AppSequence, Content, Message, MessageError, Probe};
pub use proxy::Proxy;
pub use scopes::MatchRule;
pub use target_service::TargetService;

/// The description of a target service in discovery messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// The stable endpoint, usually `urn:uuid:…`.
    pub endpoint: EndpointReference,
    /// The types that it implements; empty if the message lists none.
    pub types: Vec<Name>,
    /// The scopes that it belongs to (URIs).
    pub scopes: Vec<Str>,
    /// Transport addresses (URIs); may be absent, except in ResolveMatches.
    pub xaddrs: Vec<Str>,
    /// Increases when the metadata change.
    pub metadata_version: u32,
}

/// One interface that discovery runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The operating system's index.
    pub index: u32,
    /// The addresses of the interface. Each address family joins its multicast group.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// The first address of each family.
    pub(crate) fn families(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let first = |v4: bool| self.addresses.iter().find(move |a| a.is_ipv4() == v4);
        first(true).into_iter().chain(first(false)).copied()
    }
}
