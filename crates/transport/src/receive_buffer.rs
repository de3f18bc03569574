//! Checks the receive buffer that the operating system grants to sockets.
//!
//! The kernel silently drops a datagram if the buffer is full, and a reliable sender repeats it into the same
//! full buffer: the throughput collapses. The kernel limits the size that a program can request
//! (`net.core.rmem_max`), on many systems to 208 KiB, which is two samples of 100 kB.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use socket2::SockRef;

/// The requested size: twenty samples of 200 kB, as fragments.
pub const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// The receive buffer that a datagram socket gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// The requested size.
    pub asked_bytes: usize,
    /// The granted size, without the same amount that the kernel adds for its overhead.
    pub given_bytes: usize,
    /// `net.core.rmem_max`, if /proc reports it.
    pub limit_bytes: Option<usize>,
}

impl ReceiveBuffer {
    /// Requests `bytes` for a socket on loopback.
    ///
    /// # Errors
    /// No socket can be opened.
    pub fn ask(bytes: usize) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let socket = SockRef::from(&socket);
        socket.set_recv_buffer_size(bytes)?;
        // The kernel doubles the requested size, and reports the double: socket(7).
        let reported = socket.recv_buffer_size()?;
        let doubled = cfg!(target_os = "linux");
        let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max");
        Ok(Self {
            asked_bytes: bytes,
            given_bytes: if doubled { reported / 2 } else { reported },
            limit_bytes: limit.ok().and_then(|text| text.trim().parse().ok()),
        })
    }

    /// Whether the requested size was granted.
    #[must_use]
    pub const fn is_enough(&self) -> bool {
        self.given_bytes >= self.asked_bytes
    }

    /// The problem, if it is too small.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let (given, asked) = (self.given_bytes >> 10, self.asked_bytes >> 10);
        (!self.is_enough()).then(|| {
            format!(
                "the system grants sockets a receive buffer of {given} KiB, {asked} KiB are recommended: \
                 large samples and bursts are dropped, and reliable senders repeat them"
            )
        })
    }

    /// The remedy for the operator.
    #[must_use]
    pub fn remedy(&self) -> String {
        let bytes = self.asked_bytes;
        format!(
            "sysctl -w net.core.rmem_max={bytes}, and permanently: \
             echo net.core.rmem_max={bytes} > /etc/sysctl.d/90-chappe.conf"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_granted_size_is_compared_with_the_limit() {
        let small = ReceiveBuffer::ask(16 << 10).unwrap();
        assert!(
            small.is_enough() && small.complaint().is_none(),
            "{small:?}"
        );
        let Some(limit) = small.limit_bytes else {
            return;
        };
        let large = ReceiveBuffer::ask(limit * 2).unwrap();
        // A larger buffer would need a privileged socket option.
        assert!(!large.is_enough(), "{large:?}");
        assert!(large.complaint().unwrap().contains("receive buffer"));
        let remedy = large.remedy();
        assert!(
            remedy.contains(&format!("net.core.rmem_max={}", limit * 2)),
            "{remedy}"
        );
    }
}
