//! Datagrams of WS-Discovery on real sockets.
//!
//! [`UdpSockets`] holds, for each interface and address family, a socket bound to the multicast group and one bound to
//! a unicast address; the receiving socket shows how a datagram was sent. [`run_udp`] drives a machine with them.
//!
//! Sources: WS-Discovery 1.1, section 2.4 (group and port); SOAP-over-UDP 1.1.

mod driver;
mod sockets;

pub use driver::{Order, run_udp};
pub(crate) use sockets::tolerate_unknown_option;
pub use sockets::{Role, SocketInfo, UdpOptions, UdpSockets};
