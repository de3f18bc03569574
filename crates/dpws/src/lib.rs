#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! [`discovery`] finds devices, [`metadata`] describes them, [`eventing`] carries their events,
//! [`hosting`] serves a device, and [`exi`] makes messages short. All protocol logic is in machines
//! without sockets or clocks.

#![forbid(unsafe_code)]

pub mod dialect;
pub mod discovery;
pub mod eventing;
pub mod exchange;
pub mod exi;
pub mod hosting;
mod ids;
pub mod metadata;
pub mod profile;

pub use dialect::Dialect;
