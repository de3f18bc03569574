//! Notification trees on a real socket: one UDP socket, one machine, one task.
//!
//! [`run_tree`] drives the machine and sends heartbeats. The window of a source is stored in [`Windows`] before its
//! event is delivered; [`WindowFiles`] stores it on disk. [`crate::kad::bind`] opens the socket, and
//! [`crate::kad::next_boot`] gives the boot number of a source. One process can run many nodes, each with its own
//! socket and task.

mod driver;
mod send_cost;
mod windows;

pub use driver::{TreeOptions, run_tree};
pub use windows::{MemoryWindows, WindowFiles, Windows};
