//! Links: streams of other nodes, stored here as this node's own.
//!
//! A link lives at the subscriber, which dials, so that it works from behind a NAT. What it brings is
//! stored in streams of this node, each element with its origin; the newest stored element says where
//! the link goes on after any crash of either side, so that each element is stored exactly once.
//!
//! | kind | how | loss |
//! |---|---|---|
//! | [`LinkKind::Zeromq`] | sessions of `chappe-flow` over DEALER and ROUTER | none that is not named |
//! | [`LinkKind::ZeromqBestEffort`] | PUB and SUB, topic = stream | counted |
//! | [`LinkKind::HttpPull`] | an endless answer to GET | none that is not named |
//! | [`LinkKind::HttpPush`] | the origin puts each element to a contact point | none that is not named |
//!
//! [`Links`] is the handle: the links of a node and its serving of other nodes' links. Whoever runs
//! it implements [`LinkHost`]. [`serialization`] are the forms in which elements travel.

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
pub use dial::Dialler;
pub use error::{HostError, HttpRefusal, LinkError};
pub use handle::Links;
pub use host::{Arrivals, DirectoryEntry, LinkHost, LinkNotice, Opened, Reader};
pub use zeromq::{QUESTION_MESSAGE_BYTES_MAX, SESSION_MESSAGE_BYTES_MAX, ZeromqConfig};

pub use chappe_flow::{DeadLetterReason, LossReason};
pub use status::{DeadLetter, LinkState, LinkStatus, PeerStatus, StreamStatus};
