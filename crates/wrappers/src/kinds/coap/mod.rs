//! Observed resources of CoAP servers over UDP (RFC 7252, RFC 7641, RFC 7959).
//!
//! [`message`] builds and reads messages with `coap-lite`, [`client`] is the protocol as a machine, [`wrapper`] runs it on a socket. DTLS,
//! OSCORE, TCP and servers behind proxies are left out.

mod browse;
mod client;
mod message;
mod seen;
#[cfg(test)]
mod tests;
mod wrapper;

pub use client::{Client, Event, Pace, Sum};
pub use message::Target;
pub(crate) use wrapper::WRAPPER;
