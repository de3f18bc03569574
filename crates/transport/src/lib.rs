//! Runs machines on sockets, HTTP and files: the first floor with access to the operating system.
//!
//! [`udp`] carries the datagrams of WS-Discovery, with a set of sockets for each interface and address family, and
//! drives a machine with them. [`http`] is HTTP for SOAP at both ends, with a limit and a deadline on everything that a
//! peer can prolong; [`tls`] is the layer below it. [`zeromq`] is ZeroMQ on TCP, [`kad`] is Kademlia on UDP unicast,
//! [`tree`] notification trees, [`mdns`] announces a service by multicast DNS. [`signatures`] signs SOAP messages and judges those of others. [`Drops`] is
//! the record of refused and lost messages, shared by all of them; [`codes`] explains its reasons.
//!
//! Out of scope: protocol decisions (those are machines on lower floors), and name resolution for HTTP. Everything
//! runs on one thread of tokio as well as on many.

#![forbid(unsafe_code)]

mod alarm;
mod clock;
pub mod codes;
mod disk;
mod drops;
mod fine_alarm;
mod fragment_memory;
pub mod http;
mod interfaces;
pub mod kad;
pub mod key_file;
pub mod mdns;
mod memory;
mod parsers;
mod random;
mod read_only_disk;
mod receive_buffer;
mod replace;
pub mod signatures;
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
pub use read_only_disk::ReadOnlyDisk;
pub use receive_buffer::{RECEIVE_BUFFER_BYTES, ReceiveBuffer};
pub use replace::{PRIVATE, SHARED, replace_file};
