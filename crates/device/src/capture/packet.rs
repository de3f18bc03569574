//! Packets: link, IP with fragments, UDP and TCP.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Frame, Link};

/// Datagrams whose fragments are collected. Reason: a subnet sends few at a time; the oldest is given up.
const PARTIAL_MAX: usize = 64;
/// Fragments of one datagram. Reason: 64 KiB in pieces of the smallest MTU of IPv4 with some payload.
const FRAGMENTS_MAX: usize = 128;
/// Extension headers of one packet of IPv6.
const EXTENSIONS_MAX: usize = 8;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A packet of interest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet {
    Udp {
        from: SocketAddr,
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    Tcp(Segment),
}

/// A segment of TCP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) sequence: u32,
    /// The number that the sender expects next.
    pub(super) acknowledged: Option<u32>,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    pub(super) is_reset: bool,
    pub(super) bytes: Vec<u8>,
}

/// Why a packet is none of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPacket {
    /// Another protocol.
    Other,
    /// A header is cut or contradicts itself.
    Broken,
    /// A fragment: the datagram is not complete yet.
    Partial,
}

/// An IP packet without its headers.
struct Inner<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    fragment: Option<Fragment>,
    bytes: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
struct Fragment {
    id: u32,
    offset: usize,
    is_last: bool,
}

/// A datagram of which fragments are missing.
#[derive(Debug)]
struct Partial {
    key: (IpAddr, IpAddr, u8, u32),
    pieces: Vec<(usize, Vec<u8>)>,
    length: Option<usize>,
}

/// Reads packets, and puts fragments together.
#[derive(Debug, Default)]
pub(super) struct Packets {
    partial: VecDeque<Partial>,
    /// Datagrams given up.
    pub(super) incomplete: u64,
}

impl Packets {
    pub(super) fn read(&mut self, frame: &Frame) -> Result<Packet, NoPacket> {
        let inner = network(frame.link, &frame.bytes)?;
        let whole;
        let bytes = match inner.fragment {
            None => inner.bytes,
            Some(fragment) => {
                whole = self
                    .put_together(&inner, fragment)
                    .ok_or(NoPacket::Partial)?;
                whole.as_slice()
            }
        };
        transport(inner.from, inner.to, inner.protocol, bytes)
    }

    /// Datagrams that are incomplete, now and before.
    pub(super) fn incomplete(&self) -> u64 {
        self.incomplete + self.partial.len() as u64
    }

    /// The whole datagram, if this fragment was the last that it lacked.
    fn put_together(&mut self, inner: &Inner<'_>, fragment: Fragment) -> Option<Vec<u8>> {
        let key = (inner.from, inner.to, inner.protocol, fragment.id);
        let index = self.partial.iter().position(|partial| partial.key == key);
        let index = index.unwrap_or_else(|| {
            if self.partial.len() == PARTIAL_MAX {
                self.partial.pop_front();
                self.incomplete += 1;
            }
            self.partial.push_back(Partial {
                key,
                pieces: Vec::new(),
                length: None,
            });
            self.partial.len() - 1
        });
        let partial = &mut self.partial[index];
        let end = fragment.offset + inner.bytes.len();
        let is_new = partial
            .pieces
            .iter()
            .all(|(offset, _)| *offset != fragment.offset);
        if is_new && partial.pieces.len() < FRAGMENTS_MAX && end <= 65_535 {
            partial.pieces.push((fragment.offset, inner.bytes.to_vec()));
        }
        if fragment.is_last {
            partial.length = Some(end);
        }
        partial.pieces.sort_by_key(|(offset, _)| *offset);
        let mut whole = Vec::new();
        for (offset, piece) in &partial.pieces {
            // Overlaps are the doing of attackers only (RFC 5722).
            if *offset != whole.len() {
                return None;
            }
            whole.extend(piece);
        }
        if partial.length != Some(whole.len()) {
            return None;
        }
        self.partial.remove(index);
        Some(whole)
    }
}

/// The IP packet in a frame.
fn network(link: Link, bytes: &[u8]) -> Result<Inner<'_>, NoPacket> {
    let payload = match link {
        Link::Ip => bytes,
        Link::Null => bytes.get(4..).ok_or(NoPacket::Broken)?,
        Link::Ethernet => return of_type(bytes, 12, 14),
        Link::Cooked => return of_type(bytes, 14, 16),
        Link::Cooked2 => return of_type(bytes, 0, 20),
        Link::Other(_) => return Err(NoPacket::Other),
    };
    internet(payload)
}

/// The IP packet behind a header with its type at a place.
fn of_type(bytes: &[u8], type_at: usize, mut begin: usize) -> Result<Inner<'_>, NoPacket> {
    let mut kind = word(bytes, type_at)?;
    // Tags of virtual networks, at most two.
    for _ in 0..2 {
        if matches!(kind, 0x8100 | 0x88a8) {
            kind = word(bytes, begin + 2)?;
            begin += 4;
        }
    }
    match kind {
        0x0800 | 0x86dd => internet(bytes.get(begin..).ok_or(NoPacket::Broken)?),
        _ => Err(NoPacket::Other),
    }
}

fn internet(bytes: &[u8]) -> Result<Inner<'_>, NoPacket> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => internet4(bytes),
        Some(6) => internet6(bytes),
        Some(_) => Err(NoPacket::Other),
        None => Err(NoPacket::Broken),
    }
}

fn internet4(bytes: &[u8]) -> Result<Inner<'_>, NoPacket> {
    let head = bytes.get(..20).ok_or(NoPacket::Broken)?;
    let begin = usize::from(head[0] & 0x0f) * 4;
    let length = usize::from(word(head, 2)?);
    // Zero where the network card splits what the kernel hands over.
    let length = if length == 0 { bytes.len() } else { length };
    if begin < 20 || length < begin {
        return Err(NoPacket::Broken);
    }
    let end = length.min(bytes.len());
    let flags = word(head, 6)?;
    let (offset, more) = (usize::from(flags & 0x1fff) * 8, flags & 0x2000 != 0);
    let address = |at: usize| {
        IpAddr::from(Ipv4Addr::new(
            head[at],
            head[at + 1],
            head[at + 2],
            head[at + 3],
        ))
    };
    Ok(Inner {
        from: address(12),
        to: address(16),
        protocol: head[9],
        fragment: (more || offset > 0).then_some(Fragment {
            id: u32::from(word(head, 4)?),
            offset,
            is_last: !more,
        }),
        bytes: bytes.get(begin..end).ok_or(NoPacket::Broken)?,
    })
}

fn internet6(bytes: &[u8]) -> Result<Inner<'_>, NoPacket> {
    let head = bytes.get(..40).ok_or(NoPacket::Broken)?;
    let length = usize::from(word(head, 4)?);
    let length = if length == 0 {
        bytes.len() - 40
    } else {
        length
    };
    let mut rest = &bytes[40..bytes.len().min(40 + length)];
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&head[at..at + 16]);
        IpAddr::from(Ipv6Addr::from(octets))
    };
    let mut protocol = head[6];
    let mut fragment = None;
    for _ in 0..EXTENSIONS_MAX {
        let extension = match protocol {
            0 | 43 | 60 => {
                let length = rest.get(1).ok_or(NoPacket::Broken)?;
                (usize::from(*length) + 1) * 8
            }
            44 => {
                let place = word(rest, 2)?;
                let (high, low) = (word(rest, 4)?, word(rest, 6)?);
                fragment = Some(Fragment {
                    id: u32::from(high) << 16 | u32::from(low),
                    offset: usize::from(place & 0xfff8),
                    is_last: place & 1 == 0,
                });
                8
            }
            _ => break,
        };
        protocol = *rest.first().ok_or(NoPacket::Broken)?;
        rest = rest.get(extension..).ok_or(NoPacket::Broken)?;
    }
    Ok(Inner {
        from: address(8),
        to: address(24),
        protocol,
        fragment,
        bytes: rest,
    })
}

fn transport(from: IpAddr, to: IpAddr, protocol: u8, bytes: &[u8]) -> Result<Packet, NoPacket> {
    if ![TCP, UDP].contains(&protocol) {
        return Err(NoPacket::Other);
    }
    let from = SocketAddr::new(from, word(bytes, 0)?);
    let to = SocketAddr::new(to, word(bytes, 2)?);
    if protocol == UDP {
        let length = usize::from(word(bytes, 4)?);
        let end = if length == 0 {
            bytes.len()
        } else {
            length.min(bytes.len())
        };
        let bytes = bytes.get(8..end).ok_or(NoPacket::Broken)?.to_vec();
        return Ok(Packet::Udp { from, to, bytes });
    }
    let head = bytes.get(..20).ok_or(NoPacket::Broken)?;
    let begin = usize::from(head[12] >> 4) * 4;
    let flags = head[13];
    let number =
        |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Ok(Packet::Tcp(Segment {
        from,
        to,
        sequence: number(4),
        acknowledged: (flags & 0x10 != 0).then(|| number(8)),
        is_first: flags & 0x02 != 0,
        is_last: flags & 0x01 != 0,
        is_reset: flags & 0x04 != 0,
        bytes: match begin {
            20.. => bytes.get(begin..).ok_or(NoPacket::Broken)?.to_vec(),
            _ => return Err(NoPacket::Broken),
        },
    }))
}

fn word(bytes: &[u8], at: usize) -> Result<u16, NoPacket> {
    match bytes.get(at..at + 2) {
        Some(word) => Ok(u16::from_be_bytes([word[0], word[1]])),
        None => Err(NoPacket::Broken),
    }
}
