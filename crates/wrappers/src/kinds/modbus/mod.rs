//! Registers of Modbus devices, over TCP and serial lines: read by a map at a period, written by commands.
//!
//! [`map`] is the checked file, [`plan`] merges registers into requests, [`value`] decodes and encodes what they hold; these are
//! pure. [`bus`] has the connection and the rules that keep late answers apart, [`poller`] the task that polls.
//! Modbus over TLS, functions other than 1 to 6, 15, 16 and 22, and broadcasts are left out.

mod browse;
mod bus;
mod commands;
mod map;
mod plan;
mod poller;
#[cfg(test)]
mod tests;
mod value;
mod wrapper;

pub use bus::read_answer;
pub(crate) use wrapper::WRAPPER;
