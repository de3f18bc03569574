//! Whether the operating system gives sockets the receive buffer that large samples need.
//!
//! A datagram that finds the buffer full is dropped by the kernel without a word, and a reliable
//! sender sends it again into the same full buffer: the throughput collapses. The kernel caps what a
//! program may ask for (`net.core.rmem_max`), on many systems at 208 KiB, which is two samples of
//! 100 kB.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use socket2::SockRef;

/// What is asked for: twenty samples of 200 kB, as fragments.
pub const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// What a datagram socket really gets here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// What was asked for.
    pub asked_bytes: usize,
    /// What the kernel gave, without the as much again that it takes for its own keeping.
    pub given_bytes: usize,
    /// `net.core.rmem_max`, where /proc tells it.
    pub limit_bytes: Option<usize>,
}

impl ReceiveBuffer {
    /// Asks a socket of its own, on loopback, for `bytes`.
    ///
    /// # Errors
    /// When there is no socket to be had.
    pub fn ask(bytes: usize) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let socket = SockRef::from(&socket);
        socket.set_recv_buffer_size(bytes)?;
        // The kernel doubles what it is asked for, and tells the double: socket(7).
        let told = socket.recv_buffer_size()?;
        let doubled = cfg!(target_os = "linux");
        let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max");
        Ok(Self {
            asked_bytes: bytes,
            given_bytes: if doubled { told / 2 } else { told },
            limit_bytes: limit.ok().and_then(|text| text.trim().parse().ok()),
        })
    }

    /// Whether it is as large as asked.
    #[must_use]
    pub const fn is_enough(&self) -> bool {
        self.given_bytes >= self.asked_bytes
    }

    /// What is wrong, when it is too small.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let (given, asked) = (self.given_bytes >> 10, self.asked_bytes >> 10);
        (!self.is_enough()).then(|| {
            format!(
                "the system gives sockets a receive buffer of {given} KiB, {asked} KiB are wanted: \
                 large samples and bursts are dropped, and reliable senders repeat them"
            )
        })
    }

    /// What the operator has to do then.
    #[must_use]
    pub fn remedy(&self) -> String {
        let bytes = self.asked_bytes;
        format!(
            "sysctl -w net.core.rmem_max={bytes}, and for good: \
             echo net.core.rmem_max={bytes} > /etc/sysctl.d/90-chappe.conf"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_gives_is_judged_by_its_own_limit() {
        let small = ReceiveBuffer::ask(16 << 10).unwrap();
        assert!(
            small.is_enough() && small.complaint().is_none(),
            "{small:?}"
        );
        let Some(limit) = small.limit_bytes else {
            return;
        };
        let large = ReceiveBuffer::ask(limit * 2).unwrap();
        // A privileged socket option would be needed for more than the limit.
        assert!(!large.is_enough(), "{large:?}");
        assert!(large.complaint().unwrap().contains("receive buffer"));
        let remedy = large.remedy();
        assert!(
            remedy.contains(&format!("net.core.rmem_max={}", limit * 2)),
            "{remedy}"
        );
    }
}
