#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! [`Device`] is a device whose services are Rust types: [`Service`], `#[derive(Message)]` and
//! `#[derive(Fault)]`. It is made of a [`DeviceHost`], which takes plain elements; [`DeviceClient`] finds devices in both
//! dialects, reads their descriptions, calls them and subscribes to their events; `file::File` is a device
//! described in TOML. The protocol is in the machines of `chappe-dpws`; this crate gives them sockets, time and
//! an application.
//!
//! Drops, refusals and irregularities are reported once, in [`Drops`] or in the notes of
//! a [`Description`](client::Description), with a hint if a remedy is known.
//!
//! [`DiscoveryProxy`] answers for devices that multicast does not reach.
//!
//! Out of scope: names instead of addresses but for https.

#![forbid(unsafe_code)]

#[cfg(feature = "tools")]
pub mod capture;
pub mod client;
#[cfg(feature = "tools")]
pub mod conformance;
mod device;
mod driver;
mod error;
#[cfg(feature = "file")]
pub mod file;
pub mod host;
mod http;
mod key;
#[cfg(feature = "mapping")]
pub mod mapping;
pub mod message;
pub mod proxy;
#[cfg(feature = "tools")]
pub mod recording;
mod selection;
mod service;

// Derived code names this crate; so do types derived in its own tests.
#[cfg(test)]
extern crate self as chappe_device;

pub use chappe_transport::{Drops, tls};
pub use client::{ClientOptions, DeviceClient};
pub use device::{Bench, Device, RunningDevice};
pub use error::Error;
pub use host::{DeviceHost, HostOptions};
pub use key::Key;
pub use message::Message;
pub use message::both::Fault;
pub use proxy::{DiscoveryProxy, ProxyOptions};
pub use selection::Selection;
pub use service::{Event, PortType, Requester, Service};

/// The examples of the guide are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/device-library.md")]
struct Guide;
