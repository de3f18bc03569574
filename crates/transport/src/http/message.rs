//! Requests and answers as values.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use chappe_identity::{ClientCertificate, Scheme};
use chappe_soap::Envelope;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};

use super::soap::SOAP_CONTENT_TYPE;

/// A complete request within its limits.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, without query, as written.
    pub path: String,
    /// The query, without `?`.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, decompressed.
    pub body: Bytes,
    /// The client's address.
    pub peer: SocketAddr,
    /// The verified certificate of the client, if it has shown one.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// The server's address.
    pub local: SocketAddr,
    /// How it was sent.
    pub scheme: Scheme,
}

impl Request {
    /// The scheme, host and port that were contacted.
    #[must_use]
    pub fn base(&self) -> String {
        base(self.scheme, self.local)
    }
}

/// The scheme, host and port of a server, without the zone of its address.
#[must_use]
pub fn base(scheme: Scheme, local: SocketAddr) -> String {
    let scheme = match scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    format!("{scheme}://{local}")
}

/// The answer of a [`Handler`](super::Handler).
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers; the length is added.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Response {
    /// An answer without body.
    #[must_use]
    pub fn empty(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    /// An answer with this media type.
    #[must_use]
    pub fn new(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Self {
        let response =
            Self::empty(status).with_header(CONTENT_TYPE, HeaderValue::from_static(media_type));
        Self {
            body: body.into(),
            ..response
        }
    }

    /// A SOAP message; the status of a fault follows its code (SOAP 1.2 part 2, table 20).
    #[must_use]
    pub fn soap(envelope: &Envelope) -> Self {
        let status = match envelope.fault() {
            None => StatusCode::OK,
            Some(fault) if fault.code == chappe_soap::FaultCode::Sender => StatusCode::BAD_REQUEST,
            Some(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, SOAP_CONTENT_TYPE, envelope.to_text())
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

/// The answer of a peer to a [`Client`](super::Client).
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, decompressed.
    pub body: Bytes,
}
