//! Formats of GSN, the Global Sensor Networks middleware, read and written without its code.
//!
//! [`descriptor`]: the XML descriptors of its virtual sensors.

#![forbid(unsafe_code)]

pub mod descriptor;
