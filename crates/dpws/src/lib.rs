//! Devices Profile for Web Services: discovery, metadata, eventing, in both dialects.

#![forbid(unsafe_code)]

pub mod dialect;
pub mod discovery;

pub use dialect::Dialect;
