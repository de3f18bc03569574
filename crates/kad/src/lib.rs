#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! Nodes find records by key, without a server and without multicast. Each node has a position in a
//! space of 128 bits, derived from its public key, and knows a few others, chosen so that any position
//! is reached in a few hops. A published record is stored for an hour by the nodes closest to its key,
//! under the publisher's signature.
//!
//! [`Kad`] is a machine by [`chappe_machine`]: one input, then drain the outputs, then read the
//! deadline. It sees no socket and no clock. Its driver
//! 1. stores `boot` on disk, and syncs the new value before it sends the first packet;
//! 2. passes in every datagram as [`Datagram`], and sends the datagrams that the machine emits;
//! 3. sends [`Command::TimeOfDay`] if there is a clock, and [`Command::Enter`] with all known nodes:
//!    from the configuration, from multicast discovery, and the contacts of the last run.
//!
//! # Guarantees
//!
//! - Nobody can speak for a key without holding it: each packet has a tag under the secret of the two keys
//!   ([`message`]), each record the publisher's signature ([`Record`]). A repeated packet is dropped.
//! - Until an address has returned a token, it receives at most three times the bytes it sent, and nothing
//!   is stored for it.
//! - An attacker does not control a key by placing nodes near it: a record is stored all over the region
//!   of its key, and searches cover all its parts. `docs/evidence/kademlia.md` has measurements of the attacks that
//!   this withstands.
//! - A search receives no more bytes than it granted.
//! - The limits of [`Config`] bound the memory, whatever arrives.
//!
//! This crate has no sockets and no names; published values are not confidential, and publishers
//! are not judged. Anybody may publish under a key; in a network of members ([`Membership`]), any
//! member.
//!
//! [`message`] describes the packets.

#![forbid(unsafe_code)]

mod certificate;
mod config;
mod contact;
mod cryptography;
mod error;
mod gather;
mod key;
pub mod message;
mod node;
mod peers;
mod record;
pub mod service;
mod size;
mod store;
mod table;
mod types;
mod walk;

pub use certificate::{CERTIFICATE_BYTES, Certificate, Membership, NoCertificate};
pub use config::{AMPLIFICATION_MAX, Config};
pub use contact::{Contact, Reach};
pub use cryptography::{Cryptography, NodeKey, SECRET_BYTES, SIGNATURE_BYTES, Secret, TAG_BYTES};
pub use error::{Drop, Error, Misuse};
pub use key::{KEY_BITS, KEY_BYTES, Key, SALT_LEVELS_MAX, Salt};
pub use message::{Body, CONTACTS_MAX, HEAD_BYTES, PACKET_BYTES_MAX, Packet, VERSION};
pub use node::Kad;
pub use record::{CLOCK_SLACK_S, LIFETIME_S_MAX, Record, VALUE_BYTES_MAX};
pub use types::{
    Command, Counters, Datagram, Entrance, Event, LookupId, Published, Report, SearchId,
    SearchReport,
};
