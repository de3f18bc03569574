//! WS-Eventing in the profile: push delivery, filtered by actions or in dialects of the application.
//!
//! [`EventSource`] is the device's side with the subscription manager, [`EventSink`] the client's;
//! both are machines. [`message`] has the messages, [`EventingFault`] the faults.
//!
//! Sources: WS-Eventing (W3C submission, 15 March 2006, namespace of 2004/08); DPWS 1.1, section 5.
//! Not implemented: delivery modes other than push, filters by XPath, the W3C recommendation of 2011,
//! which no device uses.

mod compact;
mod config;
mod error;
mod filter;
pub mod message;
mod sink;
mod source;
mod tree;

use std::net::SocketAddr;
use std::sync::Arc;

pub use compact::{Compact, CompactCodec, CompactError};
pub use config::{ManagerStyle, Offer, SinkConfig, SourceConfig};
pub use error::EventingFault;
pub use filter::{FilterDialect, NotificationFilter};
pub use message::{EndStatus, Expiration, Filter, Subscribe};
pub use sink::{
    EndReason, EventSink, SinkCommand, SinkEvent, SinkReceive, SinkRefusal, SinkTransmit, Source,
    SubscriptionKey, TroubleReason,
};
pub use source::{
    DropReason, EventSource, Failure, Notification, Request, SourceCommand, SourceEvent,
    SourceReceive, SourceRefusal, SourceTransmit, Spread, SubscriptionId,
};

pub use tree::{TreeConfig, TreeOffer, TreePeer, TreeSink};

/// Decides whether an address in a message may be contacted. The arguments are the address and the
/// message's sender.
///
/// `Err` is the reason, for people.
pub type AddressCheck = Arc<dyn Fn(&str, SocketAddr) -> Result<(), String> + Send + Sync>;

/// Identifies a request that waits for its reply; chosen by the driver, unique among open requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);
