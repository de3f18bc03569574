//! Seeded network and disks on a virtual clock, running the real machines.

mod disk;

pub use disk::{Operation, SimDisk};
