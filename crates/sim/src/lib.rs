//! Networks and disks on one virtual clock, from a seed.
//!
//! [`network`] is the network: links, connections, nodes that die, stall and lose power.
//! [`judge`] is the model that judges a history of an exchange.
//! [`exchange`] is the whole pipeline on both, with the fault matrix.
//! [`lookup`] is a Kademlia network of up to 100,000 nodes, with churn and placed Sybils.
//! [`pacing`] is reliable senders with their pacers, in front of a bottleneck.
//! [`study`] simulates a session on a network.
//! [`tree`] is notification trees of up to a million sinks.
//! [`SimDisk`] is the disk: it loses what was not synced, tears writes, fails, fills up and rots.

mod disk;
mod distribution;
pub mod exchange;
pub mod judge;
pub mod lookup;
pub mod network;
pub mod pacing;
pub mod study;
pub mod tree;

pub use disk::{Operation, SimDisk};
pub use distribution::{Distribution, percentile};
