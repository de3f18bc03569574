//! WS-Eventing as the profile uses it: push delivery, filtered by actions.
//!
//! [`EventSource`] is the device's side with the subscription manager, [`EventSink`] the client's;
//! both are machines. [`message`] has the messages as values, [`EventingFault`] the refusals.
//!
//! Sources: WS-Eventing (W3C submission, 15 March 2006, namespace of 2004/08); DPWS 1.1, section 5.
//! Deliberately absent: other delivery modes than push, other filters than actions, the W3C
//! recommendation of 2011 that no device uses.

mod compact;
mod config;
mod error;
pub mod message;
mod sink;
mod source;
mod tree;

use std::net::SocketAddr;
use std::sync::Arc;

pub use compact::{Compact, CompactCodec, CompactError};
pub use config::{ManagerStyle, Offer, SinkConfig, SourceConfig};
pub use error::EventingFault;
pub use message::{EndStatus, Expiration, Filter};
pub use sink::{
    EndReason, EventSink, SinkCommand, SinkEvent, SinkReceive, SinkRefusal, SinkTransmit, Source,
    SubscriptionKey, TroubleReason,
};
pub use source::{
    DropReason, EventSource, Failure, Notification, Request, SourceCommand, SourceEvent,
    SourceReceive, SourceRefusal, SourceTransmit, Spread, SubscriptionId,
};

pub use tree::{TreeConfig, TreeOffer, TreePeer, TreeSink};

/// Says whether an address that a message names may be contacted: the address, and who named it.
///
/// `Err` is the reason for a person to read.
pub type AddressCheck = Arc<dyn Fn(&str, SocketAddr) -> Result<(), String> + Send + Sync>;

/// Names a request that waits for its reply; chosen by the driver, unique among open requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);
