//! The server: configuration, wiring, REST API, console, metrics.
//!
//! [`config`] loads node.toml in its layers; [`Node::start`] brings a node up with it: devices are
//! found, described and registered, their events become durable streams, virtual sensors are bound
//! to them, and all of it is read under `/api/v1`.
//!
//! One thread serves ([`runtime`]); the log has a thread of its own, and what reads the disk or
//! computes for long runs on a few others.
//!
//! Not here: users other than the operator.

#![forbid(unsafe_code)]

mod catalogue;
mod certificate;
mod clock;
pub mod config;
#[path = "../console/mod.rs"]
mod console;
mod data;
#[cfg(feature = "dds")]
mod dds;
mod devices;
mod error;
mod health;
mod http;
mod identity;
mod kad;
mod links;
mod live;
mod measure;
mod metrics;
mod node;
mod notices;
mod observability;
mod permits;
mod registrar;
mod scrub;
mod sensors;
mod shared;
mod size_limit;
mod storage;
mod streams;
mod tasks;
mod view;

pub use data::{Recognized, SECRET_FILES, log_directory, recognized, registry_directory};
pub use error::StartError;
pub use http::openapi;
pub use node::{Node, StoreFailure, end_signal, runtime};
pub use sensors::{Checked, check};
pub use size_limit::SizeLimit;
