#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! [`Envelope`] is a message of SOAP 1.2 with parsed [`Addressing`] headers, in WS-Addressing
//! 2005/08 or 2004/08; [`struct@Fault`] is an error message. The transport chooses the encoding: text or
//! EXI. [`message`] makes messages of Rust types. [`v1_1`] has the messages and faults of SOAP 1.1, without addressing.
//! [`security`] signs messages and verifies signed ones.
//!
//! Sources: SOAP 1.2 part 1 (W3C, second edition); SOAP 1.1 (W3C note, May 2000); WS-Addressing
//! 1.0 core and SOAP binding (W3C);
//! WS-Addressing (W3C submission, August 2004).

#![forbid(unsafe_code)]

mod addressing;
mod body;
mod envelope;
mod error;
mod fault;
mod lazy;
pub mod message;
pub mod rust;
pub mod schema;
mod scope;
pub mod security;
pub mod udp;
pub mod v1_1;
pub mod wsdl;

pub use addressing::{Addressing, AddressingVersion, EndpointReference, Relationship};
pub use body::{Body, Fragment};
/// `#[derive(Fault)]`, see [`message::Faults`].
pub use chappe_message_derive::Fault;
pub use envelope::{Envelope, NAMESPACE};
pub use error::Error;
pub use fault::{Fault, FaultCode, not_understood_header, upgrade_header};
pub use lazy::LazyEnvelope;
