//! Packets of this host as they come, by a packet socket of Linux.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chappe_device::capture::{Frame, Link};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt,
};
use tokio::io::unix::AsyncFd;

use super::captured::Printer;
use crate::cli::Trace;
use crate::command::network;
use crate::output::{self, Failure, Outcome};

/// Bytes of one packet: that of the loopback with all offloads.
const PACKET_BYTES: usize = 128 << 10;
/// Bytes that the kernel queues. Reason: a second of a busy interface while a line is printed.
const QUEUE_BYTES: usize = 8 << 20;
/// The type of a packet that this host sends (linux/if_packet.h, PACKET_OUTGOING).
const OUTGOING: u8 = 4;

/// Prints messages until the time has passed or an interrupt arrives.
pub(super) fn run(flags: &Trace, mut printer: Printer) -> Outcome {
    network::block_on(async {
        let interfaces = network::interfaces(&flags.interfaces)?;
        let names: Vec<_> = interfaces.iter().map(|one| one.name.as_str()).collect();
        let socket = asynchronous(open()?)?;
        output::progress(format_args!("listening on {}", names.join(", ")));
        let end = async {
            match flags.seconds {
                Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(end);
        let mut buffer = vec![0; PACKET_BYTES];
        loop {
            let mut ready = tokio::select! {
                ready = socket.readable() => ready?,
                () = &mut end => break,
                result = network::interrupted() => { result?; break }
            };
            match recvfrom::<LinkAddr>(socket.get_ref().as_raw_fd(), &mut buffer) {
                Ok((length, Some(from))) => {
                    let index = from.ifindex();
                    let found = interfaces
                        .iter()
                        .find(|one| usize::try_from(one.index) == Ok(index));
                    // The loopback shows each packet twice.
                    let is_again =
                        found.is_some_and(|one| one.loopback) && from.pkttype() == OUTGOING;
                    if found.is_some() && !is_again {
                        let since = SystemTime::now().duration_since(UNIX_EPOCH);
                        let at_ns = since.unwrap_or_default().as_nanos();
                        printer.frame(&Frame {
                            at_ns: u64::try_from(at_ns).unwrap_or(u64::MAX),
                            link: Link::Ip,
                            bytes: buffer[..length].to_vec(),
                            is_cut: false,
                        });
                    }
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
        printer.end();
        Ok(())
    })
}

#[expect(
    deprecated,
    reason = "the socket owns its descriptor; the alternative requires unsafe code"
)]
fn asynchronous(socket: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(socket, tokio::io::Interest::READABLE)
}

fn open() -> Result<OwnedFd, Failure> {
    let kind = SockType::Datagram;
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let opened = socket(AddressFamily::Packet, kind, flags, SockProtocol::EthAll);
    let opened = opened.map_err(|error| {
        let failure = Failure::new(format!("cannot see the packets of this host: {error}"))
            .coded("permission_denied");
        match error {
            Errno::EPERM | Errno::EACCES => failure.hint(
                "run it as root, or give a capture: tcpdump -i any -w - | chappe trace --capture -",
            ),
            _ => failure,
        }
    })?;
    // More where the kernel allows it.
    let _ = setsockopt(&opened, sockopt::RcvBuf, &QUEUE_BYTES);
    Ok(opened)
}
