//! Kademlia on a real socket: one UDP socket, one machine, one task.
//!
//! [`bind`] makes the socket, [`next_boot`] the number that a start needs, [`run_kad`] drives the
//! machine; [`read_contacts`] and [`write_contacts`] keep whom it knew. Many nodes fit one process:
//! each has a socket and a task of its own. [`KadNode`] is all of it together, as programs use it.

mod agent;
mod boot;
mod contacts;
mod driver;
mod entrance;
mod node;

pub use boot::next_boot;
pub(crate) use boot::replace;
pub use contacts::{CONTACTS_FILE_MAX, read_contacts, write_contacts};
pub use driver::{KadOptions, bind, run_kad};
pub use entrance::{announce, entrance, entrance_type};
pub use node::{Finding, KadNode, KadNodeOptions, Sighting};
