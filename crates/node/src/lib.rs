//! The server: configuration, wiring, REST API, console, metrics.
//!
//! [`config`] loads node.toml and its overrides; [`Node::start`] starts a node with it: the node
//! finds, describes and registers devices, stores their events as durable streams, binds virtual
//! sensors to them, and serves all of it under `/api/v1`.
//!
//! One thread serves ([`runtime`]). The log has its own thread; disk reads and long computations run
//! on a few others.
//!
//! The operator is the only user.

#![forbid(unsafe_code)]

mod accounts;
mod catalogue;
mod certificate;
mod checkers;
mod clock;
mod completeness;
pub mod config;
#[path = "../console/mod.rs"]
mod console;
mod data;
#[cfg(feature = "dds")]
mod dds;
mod devices;
mod discovery_proxy;
mod documents;
mod error;
mod formats;
mod health;
mod http;
mod identity;
mod kad;
mod leases;
mod links;
mod live;
mod measure;
mod metrics;
mod node;
mod notices;
mod observability;
mod ontologies;
mod permits;
mod producer;
mod registrar;
mod reload;
mod scrub;
mod sensors;
mod shared;
mod signatures;
mod size_limit;
mod storage;
mod streams;
mod subscriptions;
mod tasks;
mod things;
mod view;
mod why;
mod wrappers;
mod written;

pub use data::{PublicIdentity, SECRET_FILES, log_directory, public_identity, registry_directory};
pub use error::StartError;
pub use formats::check_formats;
pub use http::openapi;
pub use metrics::{MetricDescription, descriptions as metrics};
pub use node::{Node, StoreFailure, runtime, shutdown_signal};
pub use sensors::{Checked, NotChecked, check};
pub use size_limit::SizeLimit;
