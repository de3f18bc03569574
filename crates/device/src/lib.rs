//! A DPWS device host and client as libraries.
//!
//! [`DeviceHost`] is a device on the network, with operations and events; [`DeviceClient`] finds devices in both
//! dialects, reads their descriptions, calls them and subscribes to their events; `file::File` is a device
//! described in TOML. The protocol is in the machines of `chappe-dpws`; this crate gives them sockets, time and
//! an application.
//!
//! Drops, refusals and irregularities are reported once, in [`Drops`](chappe_transport::Drops) or in the notes of
//! a [`Description`](client::Description), with a hint if a remedy is known.
//!
//! Out of scope: TLS, managed discovery, names instead of addresses.

#![forbid(unsafe_code)]

pub mod client;
mod driver;
mod error;
#[cfg(feature = "file")]
pub mod file;
pub mod host;
mod http;
#[cfg(feature = "mapping")]
pub mod mapping;
mod selection;

pub use client::{ClientOptions, DeviceClient};
pub use error::Error;
pub use host::{DeviceHost, HostOptions};
pub use selection::Selection;
