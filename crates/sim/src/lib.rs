//! A simulated disk that loses what was not synced, tears writes, fails and rots, from a seed.
//!
//! Networks are not simulated here: the machines' own tests do that.

mod disk;

pub use disk::{Operation, SimDisk};
