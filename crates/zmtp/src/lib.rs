#![doc = include_str!("../README.md")]
//!
//! # How it works
//! Sources: 37/ZMTP; 23/ZMTP for peers of version 3.0; 25/ZMTP-CURVE and 26/CURVEZMQ.
//!
//! [`Connection`] is one end of one connection: greeting, the mechanisms NULL and CURVE, the peer's properties, messages
//! of frames, subscriptions, heartbeats. Each peer has its own connection, so that back-pressure, limits and errors are
//! per peer; the runner combines them to sockets with many peers (28/REQREP, 29/PUBSUB). Everything that a peer can
//! prolong has a limit in [`Limits`], a tighter one before authentication.
//!
//! A connection may accept peers of ZMTP 2.0, too (15/ZMTP; [`Config::accepts_version_2`]): foreign programs with old
//! libraries, on networks that are protected otherwise.
//!
//! Out of scope: PLAIN and GSSAPI; socket types other than those of [`SocketType`]; ZMTP 1; sockets, tasks and queues.

#![forbid(unsafe_code)]

mod command;
mod config;
mod connection;
mod curve;
mod error;
mod frame;
mod greeting;
mod message;
mod socket_type;
mod subscriptions;

pub use config::{Allowed, Config, Heartbeat, KEY_BYTES, Limits, Mechanism, SecretKey};
pub use connection::{COPY_BYTES_MAX, Command, Connection, Event, Peer};
pub use curve::public_key;
pub use error::{Error, Fault};
pub use message::Message;
pub use socket_type::SocketType;
pub use subscriptions::Subscriptions;
