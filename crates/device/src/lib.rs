//! A DPWS device host and a client as libraries: what a small device links, and what finds it.
//!
//! [`DeviceHost`] is a device on the network, with operations and events; [`DeviceClient`] finds
//! devices in both dialects, reads what they say of themselves, calls them and subscribes to their
//! events; `file::File` is a device described in TOML. The protocol is that of the machines in
//! `chappe-dpws`; here they get sockets, time and an application.
//!
//! Everything that is dropped, refused or odd is told once, in [`Drops`](chappe_transport::Drops)
//! or in a [`Description`](client::Description)'s notes, with a hint where the remedy is known.
//!
//! Deliberately absent: TLS, managed discovery, names instead of addresses.

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
