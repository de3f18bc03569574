//! The messages in a capture of the network: pcap and pcapng files, or packets as they come.
//!
//! [`Capture`] reads the packets of a file, [`Conversations`] makes messages of them: datagrams, reassembled from
//! fragments, and requests and answers of HTTP/1.1, reassembled from TCP. The content is left as it was sent, but
//! for chunks and gzip. Bytes that a connection lacks are reported between its messages, as [`Carrier::Gap`].
//!
//! Captures are strangers' bytes, and incomplete: everything is bounded, and what is missing, too large or not
//! understood is counted in [`Losses`]. Sources: draft-ietf-opsawg-pcap and -pcapng; RFC 791, 8200, 768, 9293, 9112.
//!
//! Not understood: IPv4 options are skipped, TLS and HTTP/2 are no messages, tunnels are not opened.

mod conversation;
mod file;
mod http;
mod packet;
mod tcp;

use std::net::SocketAddr;
use std::time::Duration;

pub use conversation::Conversations;
pub use file::{Capture, CaptureError, Frame, Link};

/// A message on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The time of its first byte, in nanoseconds since 1970.
    pub at_ns: u64,
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// What carried it.
    pub carrier: Carrier,
    /// Its media type, if it has one.
    pub content_type: String,
    /// Its content coding, such as `gzip` or `exi`; gzip is decompressed.
    pub coding: String,
    /// Its content.
    pub body: Vec<u8>,
    /// Time from its first byte to its last.
    pub arrival: Duration,
}

/// What carries a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    /// A UDP datagram.
    Datagram,
    /// A request of HTTP.
    Request {
        /// The method.
        method: String,
        /// The path with its query.
        target: String,
    },
    /// An answer of HTTP.
    Answer {
        /// The status.
        status: u16,
        /// Time from the last byte of the request to the first byte of the answer, if the request is known.
        after: Option<Duration>,
    },
    /// No message: bytes of a TCP connection that the capture lacks.
    Gap {
        /// Their number.
        missing_bytes: u64,
    },
}

/// What could not be made into messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Packets of other protocols than UDP and TCP over IP.
    pub other_packets: u64,
    /// Packets whose headers are broken.
    pub broken_packets: u64,
    /// Packets of which the capture has only the start.
    pub cut_packets: u64,
    /// Datagrams of which fragments are missing.
    pub incomplete_datagrams: u64,
    /// Gaps in TCP connections.
    pub gaps: u64,
    /// Messages of HTTP whose end is not in the capture.
    pub incomplete_messages: u64,
    /// Connections that are no HTTP/1.1, as those with TLS.
    pub other_connections: u64,
    /// Messages of HTTP that are too large or broken.
    pub broken_messages: u64,
    /// Connections given up because too much had to be remembered.
    pub forgotten: u64,
}
