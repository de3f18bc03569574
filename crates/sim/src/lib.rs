//! Networks and disks on one virtual clock, from a seed.
//!
//! [`network`] is the network: links, connections, nodes that die, stand still and lose their power.
//! [`SimDisk`] is the disk: it loses what was not synced, tears writes, fails, fills up and rots.

mod disk;
pub mod network;

pub use disk::{Operation, SimDisk};
