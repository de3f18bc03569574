//! What a peer may cost us.

use std::net::IpAddr;
use std::time::Duration;

/// Bounds of a [`Server`](super::Server); each refusal is counted by its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections in all. Default 512: half the usual limit of open files.
    pub connections: usize,
    /// Connections of one peer (an IPv4 address or an IPv6 /64). Default 64. Beyond this and the
    /// limit above, the connection that has waited longest for a request gives way.
    pub connections_per_peer: usize,
    /// Requests being worked on. Default 128.
    pub requests: usize,
    /// Bytes of a request's head. Default 16 KiB; at least 8 KiB.
    pub header_bytes: usize,
    /// Bytes of a request's body, also after decompression. Default 4 MiB, as XML documents.
    pub body_bytes: usize,
    /// Bytes of all bodies that are longer than 64 KiB; one more waits, within `body_deadline`. One peer
    /// may take a quarter. Default 64 MiB: eight of the largest, packed and unpacked.
    pub bodies_bytes: usize,
    /// Time from one request's end (or the connection's begin) to the end of the next head: bounds
    /// slow heads and idle connections alike. Default 15 s.
    pub header_deadline: Duration,
    /// Time for the body. Default 15 s.
    pub body_deadline: Duration,
    /// Time for the answer to be made. Default 30 s.
    pub answer_deadline: Duration,
    /// Time that written bytes may stay unacknowledged by a peer that reads no more. Default 20 s.
    pub write_deadline: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            connections_per_peer: 64,
            requests: 128,
            header_bytes: 16 << 10,
            body_bytes: 4 << 20,
            bodies_bytes: 64 << 20,
            header_deadline: Duration::from_secs(15),
            body_deadline: Duration::from_secs(15),
            answer_deadline: Duration::from_secs(30),
            write_deadline: Duration::from_secs(20),
        }
    }
}

/// Bounds of a [`Client`](super::Client).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLimits {
    /// Time for the connection. Default 2 s: devices are near.
    pub connect_deadline: Duration,
    /// Time from the request to the end of the answer's head. Default 10 s.
    pub header_deadline: Duration,
    /// Time for the answer's body. Default 10 s.
    pub body_deadline: Duration,
    /// Bytes of an answer's body, also after decompression. Default 4 MiB, as XML documents.
    pub body_bytes: usize,
    /// Idle connections kept to one authority. Default 4.
    pub idle_per_authority: usize,
    /// Idle connections kept in all. Default 256.
    pub idle: usize,
    /// Time after which an idle connection is not used again. Default 4 s: shorter than the
    /// servers of devices wait (5 s is the shortest seen).
    pub idle_time: Duration,
    /// The local address that connections come from; the kernel's choice by default.
    pub local_address: Option<IpAddr>,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connect_deadline: Duration::from_secs(2),
            header_deadline: Duration::from_secs(10),
            body_deadline: Duration::from_secs(10),
            body_bytes: 4 << 20,
            idle_per_authority: 4,
            idle: 256,
            idle_time: Duration::from_secs(4),
            local_address: None,
        }
    }
}
