//! Kademlia on a real socket: one UDP socket, one machine, one task.
//!
//! [`bind`] opens the socket, [`next_boot`] gives the number of a start, [`run_kad`] drives the machine;
//! [`read_contacts`] and [`write_contacts`] store the known contacts. One process can run many nodes, each with its
//! own socket and task. [`KadNode`] combines all of it for programs.

mod agent;
mod boot;
mod contacts;
mod driver;
mod entrance;
mod node;

pub use boot::next_boot;
pub use contacts::{CONTACTS_FILE_MAX, read_contacts, write_contacts};
pub use driver::{KadOptions, bind, run_kad};
pub use entrance::{announce, entrance, entrance_type};
pub use node::{Finding, KadNode, KadNodeOptions, Sighting};
