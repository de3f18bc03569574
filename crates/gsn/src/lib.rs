//! GSN (Global Sensor Networks), whose concepts Chappe shares, without its code.
//!
//! [`descriptor`]: the XML descriptors of its virtual sensors, read, written and converted. [`kryo`] reads and writes
//! the frames that servers of GSN 2.0.1 send each other, [`mapping`] turns them into elements of streams and back, and
//! [`exchange`] conducts the conversations: asynchronous and synchronous delivery, and elements pushed to a sensor.
//!
//! The formats were learnt from a running server: what it sends, and what it accepts.
//!
//! Out of scope: sockets (`chappe-wrappers` has them), GSN's REST interface.

#![forbid(unsafe_code)]

pub mod descriptor;
pub mod exchange;
pub mod kryo;
pub mod mapping;
