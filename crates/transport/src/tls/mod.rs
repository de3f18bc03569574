//! TLS for HTTP (RFC 8446, RFC 5246), both ends, by rustls.
//!
//! A server has a certificate of its own files, or makes one for itself ([`Server`]); a client
//! trusts certificates of the authorities in a file, or the one certificate whose [`Fingerprint`] it
//! was told ([`Client`]). What goes wrong in a handshake is told with what to do: most of it is
//! mended at the other end, or by comparing a fingerprint.
//!
//! Deliberately absent: the system's authorities (a node knows its peers), client certificates
//! (tokens say who asks), revocation lists, HTTP/2.

mod certificate;
mod client;
mod error;
mod fingerprint;
mod server;
mod stream;
mod validity;

pub use client::Client;
pub use error::{Error, FileError};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use server::Server;
pub use stream::Stream;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The one protocol spoken over it.
const PROTOCOL: &[u8] = b"http/1.1";

/// The cryptography: that of ring, which the rest of the program uses too.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
