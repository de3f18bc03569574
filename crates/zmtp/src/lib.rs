//! ZMTP 3.1, the wire protocol of ZeroMQ, as a machine (37/ZMTP; 23/ZMTP for peers of version 3.0;
//! 25/ZMTP-CURVE and 26/CURVEZMQ).
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
//!
//! # Example
//! Two ends, without a network:
//!
//! ```
//! use bytes::BytesMut;
//! use chappe_machine::{Input, Instant, Machine as _, Output};
//! use chappe_zmtp::{Command, Config, Connection, Event, Mechanism, Message, SocketType};
//!
//! fn drain(end: &mut Connection, events: &mut Vec<Event>) -> BytesMut {
//!     let mut out = BytesMut::new();
//!     while let Some(output) = end.poll_output() {
//!         match output {
//!             Output::Transmit(bytes) => out.extend_from_slice(&bytes),
//!             Output::Event(event) => events.push(event),
//!         }
//!     }
//!     out
//! }
//!
//! let now = Instant::ZERO;
//! let dealer = Config::new(SocketType::Dealer, Mechanism::Null);
//! let router = Config::new(SocketType::Router, Mechanism::Null);
//! let mut dealer = Connection::new(dealer, [1; 32], now);
//! let mut router = Connection::new(router, [2; 32], now);
//! let (mut at_dealer, mut at_router) = (Vec::new(), Vec::new());
//! for _ in 0..2 {
//!     let bytes = drain(&mut dealer, &mut at_dealer);
//!     router.handle_input(now, Input::Receive(bytes));
//!     let bytes = drain(&mut router, &mut at_router);
//!     dealer.handle_input(now, Input::Receive(bytes));
//! }
//! let hello = Message::from(&b"hello"[..]);
//! dealer.handle_input(now, Input::Command(Command::Send(vec![hello.clone()])));
//! let bytes = drain(&mut dealer, &mut at_dealer);
//! router.handle_input(now, Input::Receive(bytes));
//! drain(&mut router, &mut at_router);
//! assert_eq!(at_router.last(), Some(&Event::Message(hello)));
//! ```

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
