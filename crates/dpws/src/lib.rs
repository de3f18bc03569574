//! Devices Profile for Web Services: discovery, metadata, eventing, in both dialects.
//!
//! [`discovery`] finds devices, [`metadata`] says what they are, [`eventing`] carries their events,
//! [`hosting`] answers as a device. All protocol logic is in machines without sockets and clocks.

#![forbid(unsafe_code)]

pub mod dialect;
pub mod discovery;
pub mod eventing;
pub mod exchange;
pub mod hosting;
mod ids;
pub mod metadata;
pub mod profile;

pub use dialect::Dialect;
