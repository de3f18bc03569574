//! GSN (Global Sensor Networks), whose concepts Chappe shares, without its code.
//!
//! [`descriptor`]: the XML descriptors of its virtual sensors, read, written and converted. [`kryo`] reads and writes
//! the frames that servers of GSN 2.0.1 send each other, [`mapping`] turns them into elements of streams and back, and
//! [`exchange`] conducts the conversations: asynchronous and synchronous delivery, and elements pushed to a sensor.
//!
//! The formats were learnt from a running server: what it sends, and what it accepts.
//!
//! [`rest`] reads and writes the documents of GSN's REST interface that its wrapper `remote-api` uses.
//!
//! Out of scope: sockets (`chappe-wrappers` and `chappe-node` have them), the other calls of the REST interface.

#![forbid(unsafe_code)]

pub mod descriptor;
pub mod exchange;
pub mod kryo;
pub mod mapping;
pub mod rest;
