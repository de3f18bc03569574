//! Divides what a broker sends into packets (MQTT 5.0 and 3.1.1, 2.1), of which long messages keep only their beginning.
//!
//! A broker repeats a message until it is acknowledged. One that is longer than what is read would therefore stop all
//! others for good, so its beginning is kept, the rest is passed over, and it can be acknowledged like any other.

use std::collections::VecDeque;

/// Longest packet in bytes that is kept whole; reason: a message that can be decoded has at most 1 MiB.
pub(super) const PACKET_BYTES_MAX: usize = (1 << 20) + (128 << 10);
/// Bytes of the payload of a longer message that are kept.
const KEPT_BYTES: usize = 64 << 10;
/// Bytes that hold the head of any message: fixed header, topic, identifier, length of the properties.
const HEAD_BYTES: usize = 5 + 2 + u16::MAX as usize + 2 + 4;
/// The type of the packet of a message.
const PUBLISH: u8 = 3;

/// A packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    /// The whole packet.
    Packet(Vec<u8>),
    /// A message that is longer than the limit.
    Long(LongMessage),
}

/// The beginning of a message that is longer than [`PACKET_BYTES_MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LongMessage {
    pub(super) topic: String,
    pub(super) qos: u8,
    /// The packet identifier; `None` for quality of service 0.
    pub(super) packet_id: Option<u16>,
    pub(super) is_duplicate: bool,
    pub(super) is_retained: bool,
    /// The beginning of what follows the head. In MQTT 5.0 the properties come first.
    pub(super) beginning: Vec<u8>,
    /// The bytes of the whole packet.
    pub(super) bytes: usize,
}

/// Divides bytes into packets.
#[derive(Debug, Default)]
pub(super) struct Frames {
    buffer: Vec<u8>,
    /// Bytes of a long message that are still passed over.
    skip: usize,
    ready: VecDeque<Frame>,
}

impl Frames {
    /// Adds what was received.
    ///
    /// # Errors
    /// The bytes are no packets.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        bytes = &bytes[skipped..];
        self.buffer.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((head, total)) = length(&self.buffer[at..])? {
            let rest = &self.buffer[at..];
            if total <= PACKET_BYTES_MAX {
                let Some(packet) = rest.get(..total) else {
                    break;
                };
                self.ready.push_back(Frame::Packet(packet.to_vec()));
                at += total;
                continue;
            }
            if rest[0] >> 4 != PUBLISH {
                return Err(format!("the broker sent a packet of {total} bytes"));
            }
            if rest.len() < HEAD_BYTES + KEPT_BYTES {
                break;
            }
            let message = long_message(&rest[..total.min(rest.len())], head, total)
                .ok_or("the broker sent a message without a valid topic")?;
            self.ready.push_back(Frame::Long(message));
            let here = total.min(rest.len());
            self.skip = total - here;
            at += here;
        }
        self.buffer.drain(..at);
        Ok(())
    }

    /// The next packet.
    pub(super) fn next(&mut self) -> Option<Frame> {
        self.ready.pop_front()
    }
}

/// The bytes of the fixed header and of the whole packet; `None` while they are not all there.
fn length(bytes: &[u8]) -> Result<Option<(usize, usize)>, String> {
    let mut rest = 0;
    for index in 0..4 {
        let Some(byte) = bytes.get(1 + index) else {
            return Ok(None);
        };
        rest |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let head = index + 2;
            return Ok(Some((head, head + rest)));
        }
    }
    Err("the broker sent a length of more than four bytes".to_owned())
}

/// The head of a message and the beginning of its payload (3.3.2).
fn long_message(packet: &[u8], head: usize, total: usize) -> Option<LongMessage> {
    let flags = packet[0];
    let number = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
    let topic_end = head + 2 + usize::from(number(head)?);
    let topic = packet.get(head + 2..topic_end)?;
    let topic = String::from_utf8(topic.to_vec()).ok()?;
    let qos = (flags >> 1) & 3;
    let (packet_id, start) = match qos {
        0 => (None, topic_end),
        1 | 2 => (Some(number(topic_end)?), topic_end + 2),
        _ => return None,
    };
    let beginning = packet.get(start..)?;
    Some(LongMessage {
        topic,
        qos,
        packet_id,
        is_duplicate: flags & 8 != 0,
        is_retained: flags & 1 != 0,
        beginning: beginning[..beginning.len().min(KEPT_BYTES)].to_vec(),
        bytes: total,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(first: u8, body: &[u8]) -> Vec<u8> {
        let (mut packet, mut rest) = (vec![first], body.len());
        loop {
            let byte = (rest & 0x7F) as u8;
            rest >>= 7;
            packet.push(byte | if rest > 0 { 0x80 } else { 0 });
            if rest == 0 {
                break;
            }
        }
        packet.extend_from_slice(body);
        packet
    }

    proptest! {
        #[test]
        fn packets_do_not_depend_on_how_bytes_arrive(
            sizes in prop::collection::vec(prop_oneof![0_usize..400, Just(PACKET_BYTES_MAX + 9)], 1..5),
            cuts in prop::collection::vec(1_usize..300_000, 1..8),
        ) {
            let mut bytes = Vec::new();
            for (index, size) in sizes.iter().enumerate() {
                let mut body = vec![0, 1, b'a', 0, index as u8 + 1];
                body.resize(5 + size, b'x');
                bytes.extend(packet(0x3A, &body));
            }
            let (mut frames, mut found, mut rest) = (Frames::default(), Vec::new(), &bytes[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (part, after) = rest.split_at((*cut).min(rest.len()));
                frames.push(part).unwrap();
                found.extend(std::iter::from_fn(|| frames.next()));
                rest = after;
            }
            prop_assert_eq!(found.len(), sizes.len());
            for (index, (frame, size)) in found.iter().zip(&sizes).enumerate() {
                match frame {
                    Frame::Packet(packet) => prop_assert!(packet.len() > *size && *size < 400),
                    Frame::Long(long) => {
                        prop_assert_eq!((long.qos, long.packet_id), (1, Some(index as u16 + 1)));
                        prop_assert_eq!((&*long.topic, long.is_duplicate), ("a", true));
                        prop_assert_eq!(long.beginning.len(), KEPT_BYTES);
                    }
                }
            }
        }

        #[test]
        fn no_bytes_panic_or_grow_without_limit(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let mut frames = Frames::default();
            for _ in 0..3 {
                if frames.push(&bytes).is_err() {
                    break;
                }
                prop_assert!(frames.buffer.len() <= PACKET_BYTES_MAX + bytes.len());
            }
        }
    }

    #[test]
    fn only_a_message_may_be_long() {
        let bytes = packet(0x90, &vec![0; PACKET_BYTES_MAX + 1]);
        let error = Frames::default().push(&bytes).unwrap_err();
        assert!(error.contains("a packet of"), "{error}");
        let error = Frames::default().push(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF]);
        assert!(error.is_err());
    }
}
