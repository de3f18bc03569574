//! Notification trees on a real socket: one UDP socket, one machine, one task.
//!
//! [`run_tree`] drives the machine, and sees to heartbeats; what was seen of a source is given to
//! [`Windows`] before the event is: [`WindowFiles`] keeps it on disk. The socket is made by
//! [`crate::kad::bind`], the boot number of a source by [`crate::kad::next_boot`]. Many nodes fit one
//! process: each has a socket and a task of its own.

mod driver;
mod send_cost;
mod windows;

pub use driver::{TreeOptions, run_tree};
pub use windows::{MemoryWindows, WindowFiles, Windows};
