//! HTTP/1.1 for SOAP (RFC 9112; SOAP 1.2 part 2, section 7), both ends.
//!
//! Nagle's algorithm is off at both ends, and a message is sent in one write: headers and body in two small writes
//! with Nagle cost 40 ms a call. Everything that a peer can prolong has a limit or a deadline, and each refusal is
//! counted in [`Drops`](crate::Drops) by its reason.
//!
//! Out of scope: HTTP/2, redirects, cookies, proxies, the resolution of names.

mod body;
mod client;
mod connection;
mod error;
mod exi;
mod limits;
mod message;
mod places;
mod room;
mod security;
mod server;
mod signed;
mod soap;

pub use client::Client;
pub use error::Error;
pub use hyper::{HeaderMap, Method, StatusCode, header};
pub use limits::{ClientLimits, ServerLimits};
pub use message::{Answer, Request, Response, base};
pub(crate) use places::neighbourhood;
pub use places::{Crowd, Place, Places, Taking};
pub(crate) use security::Clients;
pub use security::Security;
pub use server::{Handler, Server, ServerState, prepare};
pub use signed::Exchanged;
