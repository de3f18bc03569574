//! Links: streams of other nodes, stored here as this node's own.
//!
//! A link runs at the subscriber, which dials, so that it works from a network with NAT. Elements
//! received over the link are stored in this node's streams, each with its origin. The newest
//! stored element determines where the link resumes after a crash of either side, so each element
//! is stored exactly once.
//!
//! | kind | how | loss |
//! |---|---|---|
//! | [`LinkKind::Zeromq`] | sessions of `chappe-flow` over DEALER and ROUTER | none that is not named |
//! | [`LinkKind::ZeromqBestEffort`] | PUB and SUB, topic = stream | counted |
//! | [`LinkKind::HttpPull`] | an endless answer to GET | none that is not named |
//! | [`LinkKind::HttpPush`] | the origin puts each element to a contact point | none that is not named |
//!
//! [`Links`] is the handle: it owns the links of a node and serves the links of other nodes. The
//! node implements [`LinkHost`]. [`serialization`] has the wire formats of elements.

#![forbid(unsafe_code)]

mod config;
mod dead_letters;
mod dial;
mod directory;
mod documents;
mod error;
mod feed;
mod feeding;
mod handle;
mod host;
mod inlet;
mod link;
mod meter;
mod peers;
mod replica;
mod shared;
mod status;

pub mod http;
pub mod serialization;
pub mod session;
mod zeromq;

pub use config::{
    ADDRESS_BYTES_MAX, LinkConfig, LinkKind, LinkLimits, LinkStart, LinksConfig, SELECTIONS_MAX,
    Selection, Serialization,
};
pub use dead_letters::{DeadLetters, Message, PeerLetter, RefusedElement};
pub use dial::Dialler;
pub use error::{HostError, HttpRefusal, LinkError};
pub use handle::Links;
pub use host::{Arrivals, DirectoryEntry, LinkHost, LinkNotice, Opened, Reader};
pub use zeromq::{QUESTION_MESSAGE_BYTES_MAX, SESSION_MESSAGE_BYTES_MAX, ZeromqConfig};

pub use chappe_flow::{DeadLetterReason, LossReason};
pub use status::{DeadLetter, LinkState, LinkStatus, PeerStatus, StreamStatus};
