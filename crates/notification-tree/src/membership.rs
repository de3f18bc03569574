//! The list of a topic's sinks: a version signed by the source, or a list inside the event.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::Malformed;
use crate::guard::{Guard, SIGNATURE_BYTES};
use crate::wire::{Reader, Writer};

/// The largest number of sinks in one membership.
///
/// Reason: the largest measured list; 4 million contacts take 256 MiB.
pub const SINKS_MAX: usize = 4_000_000;
/// The prefix of the signed bytes, so that the signature is valid for nothing else.
const PURPOSE: &[u8] = b"chappe notification membership 1";

/// The address and key of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Contact {
    /// The address at which it receives datagrams.
    pub address: SocketAddr,
    /// Its public key (Ed25519), which verifies its signatures as a source and authenticates its hop
    /// messages; zeros on a trusted network.
    pub key: [u8; 32],
}

impl Contact {
    /// Whether the address can belong to one host.
    fn is_plausible(&self) -> bool {
        let ip = self.address.ip();
        let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        self.address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !broadcast
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>, keyed: bool) {
        match self.address.ip() {
            IpAddr::V4(ip) => {
                writer.byte(4);
                writer.bytes(&ip.octets());
            }
            IpAddr::V6(ip) => {
                writer.byte(6);
                writer.bytes(&ip.octets());
            }
        }
        writer.bytes(&self.address.port().to_be_bytes());
        if keyed {
            writer.bytes(&self.key);
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, keyed: bool) -> Result<Self, Malformed> {
        let ip = match reader.byte()? {
            4 => IpAddr::V4(Ipv4Addr::from(reader.array::<4>()?)),
            6 => IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?)),
            _ => return Err(Malformed::Kind),
        };
        let port = u16::from_be_bytes(reader.array()?);
        let key = match keyed {
            true => reader.array()?,
            false => [0; 32],
        };
        let contact = Self {
            address: SocketAddr::new(ip, port),
            key,
        };
        match contact.is_plausible() {
            true => Ok(contact),
            false => Err(Malformed::Address),
        }
    }
}

/// The sinks of a topic, in the order of one version.
///
/// The version increases with each change; a number identifies a sink only within a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    topic: u64,
    version: u32,
    sinks: Vec<Contact>,
}

impl Membership {
    /// Makes a membership.
    ///
    /// # Errors
    /// An address occurs twice or cannot belong to one host, or there are more than [`SINKS_MAX`].
    pub fn new(topic: u64, version: u32, sinks: Vec<Contact>) -> Result<Self, Malformed> {
        if sinks.len() > SINKS_MAX {
            return Err(Malformed::TooLarge);
        }
        if sinks.iter().any(|sink| !sink.is_plausible()) {
            return Err(Malformed::Address);
        }
        let mut seen = BTreeSet::new();
        if !sinks.iter().all(|sink| seen.insert(sink.address)) {
            return Err(Malformed::Repeated);
        }
        Ok(Self {
            topic,
            version,
            sinks,
        })
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> u64 {
        self.topic
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The number of sinks.
    #[must_use]
    pub fn count(&self) -> u32 {
        // At most SINKS_MAX.
        self.sinks.len() as u32
    }

    /// The sinks.
    #[must_use]
    pub fn sinks(&self) -> &[Contact] {
        &self.sinks
    }

    /// The sink with this number.
    #[must_use]
    pub fn sink(&self, number: u32) -> Option<&Contact> {
        self.sinks.get(number as usize)
    }

    /// The number of a sink, found by a linear search.
    #[must_use]
    pub fn number(&self, contact: &Contact) -> Option<u32> {
        let index = self.sinks.iter().position(|sink| sink == contact)?;
        u32::try_from(index).ok()
    }

    /// Replaces numbers of this list by those of the same sinks (address and key) in another one;
    /// drops numbers of sinks that the other list lacks.
    ///
    /// Takes one pass over the other list if any of them has moved.
    pub(crate) fn renumber(&self, numbers: &mut BTreeSet<u32>, other: &Self) {
        let mut moved = Vec::new();
        numbers.retain(|number| {
            let sink = self.sink(*number);
            let stays = sink.is_some() && sink == other.sink(*number);
            moved.extend(sink.filter(|_| !stays));
            stays
        });
        if moved.is_empty() {
            return;
        }
        moved.sort_unstable();
        let found = (0..)
            .zip(&other.sinks)
            .filter(|(_, sink)| moved.binary_search(sink).is_ok());
        numbers.extend(found.map(|(number, _)| number));
    }

    /// Encodes the signed form in which a source gives the list to its sinks; the carrier may split it.
    #[must_use]
    pub fn encode(&self, guard: &impl Guard) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.bytes(PURPOSE);
        writer.u64(self.topic);
        writer.u32(self.version);
        writer.number(self.count());
        for sink in &self.sinks {
            sink.write(&mut writer, true);
        }
        let signature = guard.sign(&bytes);
        bytes.extend_from_slice(&signature);
        bytes
    }

    /// Decodes the signed form; `source` is the key that must have signed it.
    ///
    /// # Errors
    /// The bytes are malformed. Returns `None` if the signature is not by `source`.
    pub fn decode(
        bytes: &[u8],
        source: &[u8; 32],
        guard: &mut impl Guard,
    ) -> Result<Option<Self>, Malformed> {
        let signed = bytes.len().checked_sub(SIGNATURE_BYTES);
        let (signed, signature) = bytes.split_at(signed.ok_or(Malformed::Short)?);
        let mut reader = Reader::new(signed);
        if reader.take(PURPOSE.len())? != PURPOSE {
            return Err(Malformed::Protocol);
        }
        // The signature first: an unsigned list is not parsed.
        let signature = Reader::new(signature).array()?;
        if !guard.verify(source, signed, &signature) {
            return Ok(None);
        }
        let (topic, version) = (reader.u64()?, reader.u32()?);
        let mut sinks = Vec::new();
        read_sinks(&mut reader, true, |sink| sinks.push(sink))?;
        if !reader.rest().is_empty() {
            return Err(Malformed::Long);
        }
        Self::new(topic, version, sinks).map(Some)
    }
}

/// Bytes of a sink in a list.
pub(crate) const fn contact_bytes(v4: bool, keyed: bool) -> usize {
    1 + if v4 { 4 } else { 16 } + 2 + if keyed { 32 } else { 0 }
}

/// Reads the sinks of a list, and their count.
pub(crate) fn read_sinks(
    reader: &mut Reader<'_>,
    keyed: bool,
    mut each: impl FnMut(Contact),
) -> Result<u32, Malformed> {
    let count = reader.number()?;
    // A count that exceeds the remaining bytes must not allocate.
    let room = reader.rest().len() / contact_bytes(true, keyed);
    if count as usize > SINKS_MAX.min(room) {
        return Err(Malformed::Short);
    }
    for _ in 0..count {
        each(Contact::read(reader, keyed)?);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(version: u32, ports: &[u16]) -> Membership {
        let sink = |port: &u16| Contact {
            address: ([10, 0, 0, 1], *port).into(),
            key: [*port as u8; 32],
        };
        Membership::new(1, version, ports.iter().map(sink).collect()).expect("apart")
    }

    #[test]
    fn sinks_keep_their_mark_in_another_list() {
        let old = list(1, &[10, 11, 12, 13, 14]);
        let renumbered = |other: &Membership, numbers: &[u32]| {
            let mut numbers = numbers.iter().copied().collect();
            old.renumber(&mut numbers, other);
            numbers.into_iter().collect::<Vec<_>>()
        };
        // One sink is added in front, one at the end, one is removed; all change their index.
        assert_eq!(
            renumbered(&list(2, &[10, 11, 12, 13, 14, 15]), &[1, 4]),
            [1, 4]
        );
        assert_eq!(
            renumbered(&list(2, &[9, 10, 11, 12, 13, 14]), &[0, 1, 4]),
            [1, 2, 5]
        );
        assert_eq!(renumbered(&list(2, &[10, 12, 13, 14]), &[0, 1, 3]), [0, 2]);
        assert_eq!(
            renumbered(&list(2, &[14, 13, 12, 11, 10]), &[0, 1, 2]),
            [2, 3, 4]
        );
        // Another address, or another key at the same address, is another sink; an unused number maps to none.
        assert_eq!(renumbered(&list(2, &[20, 11, 12, 13, 14]), &[0, 1, 7]), [1]);
        let mut other = list(2, &[10, 11, 12, 13, 14]);
        other.sinks[1].key = [99; 32];
        assert_eq!(renumbered(&other, &[1, 2]), [2]);
    }
}
