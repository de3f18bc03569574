//! Datagrams and lines: UDP, where a datagram is a message, and TCP, where a line is one.

mod commands;
mod seats;
mod tcp;
mod udp;

pub(crate) use tcp::WRAPPER as TCP;
pub(crate) use udp::WRAPPER as UDP;
