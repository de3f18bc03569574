//! Runs machines on sockets, HTTP and files: the first floor that sees the operating system.
//!
//! [`udp`] carries the datagrams of WS-Discovery, one set of sockets for each interface and address
//! family, and drives a machine with them; [`http`] is SOAP's HTTP at both ends, with a limit and a
//! deadline on everything a peer can stretch, and [`tls`] goes below it; [`zeromq`] is ZeroMQ on TCP;
//! [`kad`] is Kademlia on UDP unicast, [`tree`] notification trees;
//! [`Drops`] is the one record of what was refused or lost, shared by all of them.
//!
//! Deliberately absent: protocol decisions (those are machines on lower floors), name resolution for
//! HTTP. All of it runs on one thread of tokio as well as on many.

#![forbid(unsafe_code)]

mod alarm;
mod clock;
mod disk;
mod drops;
mod fine_alarm;
mod fragment_memory;
pub mod http;
mod interfaces;
pub mod kad;
pub mod key_file;
mod memory;
mod parsers;
mod random;
mod receive_buffer;
pub mod tls;
pub mod tree;
pub mod udp;
pub mod zeromq;

pub use alarm::{Alarm, Every};
pub use clock::Clock;
pub use disk::FileDisk;
pub use drops::{DROPS_MAX, Dropped, Drops, Hop};
pub use fine_alarm::{FineAlarm, SPIN_MAX, monotonic_ns, sleep_until};
pub use fragment_memory::FragmentMemory;
pub use interfaces::{Interface, interfaces, route_source};
pub use memory::resident_bytes;
pub use parsers::{ParserEnded, Parsers};
pub use random::{seed, seed_number};
pub use receive_buffer::{RECEIVE_BUFFER_BYTES, ReceiveBuffer};
