//! TLS for HTTP (RFC 8446, RFC 5246), both ends, based on rustls.
//!
//! A server uses certificate files or a self-signed certificate ([`Server`]). A client trusts the authorities in a
//! file, or one certificate by its [`Fingerprint`] ([`Client`]). Handshake errors contain a hint, since most of them
//! need a fix at the other end, or a comparison of fingerprints.
//!
//! A server may accept certificates of clients; the caller decides what their subjects may do. [`Mutual`] is one
//! certificate and one trust for both ends, as devices and their clients need them.
//!
//! Out of scope: the system's authorities (a node knows its peers), revocation by OCSP, HTTP/2.

mod certificate;
mod client;
mod error;
mod extension;
mod fingerprint;
mod mutual;
mod server;
mod stream;
mod trust;
mod validity;

pub use client::Client;
pub use error::{Error, FileError};
pub use extension::{Usage, UsageError};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use mutual::{Files, Mutual};
pub use server::Server;
pub use stream::Stream;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The only application protocol.
const PROTOCOL: &[u8] = b"http/1.1";

/// The cryptography of ring, which the rest of the program uses, too.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
