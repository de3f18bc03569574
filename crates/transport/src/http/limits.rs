//! Limits on the resources that a peer can use.

use std::net::IpAddr;
use std::time::Duration;

/// Limits of a [`Server`](super::Server); each refusal is counted by its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections in total. Default 512: half the usual limit on open files.
    pub connections: usize,
    /// Connections of one peer (an IPv4 address or an IPv6 /64). Default 64. Above this limit or the previous one,
    /// the connection that has waited longest for a request is closed.
    pub connections_per_peer: usize,
    /// Requests in progress. Default 128.
    pub requests: usize,
    /// The largest header of a request. Default 16 KiB; at least 8 KiB.
    pub header_bytes: usize,
    /// The largest body of a request, also after decompression. Default 4 MiB, like XML documents.
    pub body_bytes: usize,
    /// Bytes of all bodies above 64 KiB; a further one waits, within `body_deadline`. One peer may take a quarter.
    /// Default 64 MiB: eight bodies of the largest size, compressed and decompressed.
    pub bodies_bytes: usize,
    /// Time from the end of a request (or the start of the connection) to the end of the next header; limits slow
    /// headers and idle connections. Default 15 s.
    pub header_deadline: Duration,
    /// Time for the body. Default 15 s.
    pub body_deadline: Duration,
    /// Time to produce the answer. Default 30 s.
    pub answer_deadline: Duration,
    /// Time that sent bytes may stay unacknowledged by a peer that stops reading. Default 20 s.
    pub write_deadline: Duration,
    /// Whether messages of SOAP may be EXI, and answers are where the client accepts that. Default false; a device
    /// and a client's event sink set it.
    pub exi: bool,
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
            exi: false,
        }
    }
}

/// Limits of a [`Client`](super::Client).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLimits {
    /// Time to connect. Default 2 s: devices are near.
    pub connect_deadline: Duration,
    /// Time from the request to the end of the answer's header. Default 10 s.
    pub header_deadline: Duration,
    /// Time for the answer's body. Default 10 s.
    pub body_deadline: Duration,
    /// The largest body of an answer, also after decompression. Default 4 MiB, like XML documents.
    pub body_bytes: usize,
    /// Idle connections kept for one authority. Default 4.
    pub idle_per_authority: usize,
    /// Idle connections kept in total. Default 256.
    pub idle: usize,
    /// Time after which an idle connection is not reused. Default 4 s: shorter than the servers of devices wait
    /// (5 s is the shortest observed).
    pub idle_time: Duration,
    /// The local address of connections; chosen by the kernel by default.
    pub local_address: Option<IpAddr>,
    /// Whether messages of SOAP are EXI where the server accepts that. Default false; devices and their clients set it.
    pub exi: bool,
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
            exi: false,
        }
    }
}
