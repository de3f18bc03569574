//! GSN 2.0.1, as far as Chappe exchanges elements with it.
//!
//! GSN (Global Sensor Networks) is a server for sensor streams, whose concepts Chappe shares. [`kryo`] reads and writes
//! the frames that its servers send each other, [`mapping`] turns them into elements of streams and back, and
//! [`exchange`] conducts the conversations: asynchronous and synchronous delivery, and elements pushed to a sensor.
//!
//! The formats were learnt from a running server: what it sends, and what it accepts.
//!
//! Out of scope: sockets (`chappe-wrappers` has them), GSN's REST interface.

#![forbid(unsafe_code)]

pub mod exchange;
pub mod kryo;
pub mod mapping;
