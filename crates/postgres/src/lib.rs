//! Connections to PostgreSQL, for the registry's journal and for wrappers.
//!
//! A connection beyond this machine is encrypted, and the server's name is verified, unless the URL says otherwise.
//! Network errors are noticed within seconds. This crate opens connections and reads their notifications; it sends no
//! statement of its own.

#![forbid(unsafe_code)]

mod connection;
mod options;
mod tls;

pub use connection::{Incident, Target, describe};
pub use options::{ConnectError, Options};
