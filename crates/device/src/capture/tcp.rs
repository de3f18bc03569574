//! One direction of a TCP connection: its bytes in order.

use std::collections::BTreeMap;

/// Bytes that wait for earlier ones. Reason: the window of a fast connection; what is still missing then was not
/// captured.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// Segments that wait for earlier ones. Reason: a map of tiny segments must not outgrow their bytes.
const WAITING_MAX: usize = 1_024;

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// The number of the SYN, if it was captured.
    first: Option<u32>,
    /// The number of the next byte, once known.
    next: Option<u32>,
    /// Later segments by their distance from the start.
    waiting: BTreeMap<u64, Waiting>,
    waiting_bytes: usize,
    /// Bytes delivered or skipped.
    passed: u64,
    /// Bytes that the peer has acknowledged: those that were not captured are not sent again.
    acknowledged: u64,
    /// The distance of the FIN from the start, once it was captured.
    end: Option<u64>,
    /// When the last segment was captured.
    newest_ns: u64,
}

/// A segment that waits for earlier ones.
#[derive(Debug)]
struct Waiting {
    at_ns: u64,
    bytes: Vec<u8>,
}

/// What a segment brings.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Brought {
    /// The next bytes, and when they were captured.
    Bytes(u64, Vec<u8>),
    /// So many bytes are missing before those captured at this time.
    Gap(u64, u64),
}

impl Direction {
    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The connection begins.
    pub(super) fn begin(&mut self, sequence: u32) {
        *self = Self {
            first: Some(sequence),
            next: Some(sequence.wrapping_add(1)),
            ..Self::default()
        };
    }

    /// Whether the connection began with this number.
    pub(super) fn began_with(&self, sequence: u32) -> bool {
        self.first == Some(sequence)
    }

    /// Whether everything before the FIN was delivered or skipped.
    pub(super) fn is_ended(&self) -> bool {
        self.end.is_some_and(|end| self.passed >= end)
    }

    /// Takes a segment; returns what can be read now.
    pub(super) fn take(&mut self, at_ns: u64, sequence: u32, bytes: Vec<u8>) -> Vec<Brought> {
        if bytes.is_empty() {
            return Vec::new();
        }
        self.newest_ns = self.newest_ns.max(at_ns);
        let next = *self.next.get_or_insert(sequence);
        let distance = i64::from(sequence.wrapping_sub(next).cast_signed());
        let mut brought = Vec::new();
        if let Ok(ahead) = u64::try_from(distance) {
            self.wait(self.passed + ahead, Waiting { at_ns, bytes });
        } else {
            // A retransmission; some of it may be new.
            let known = usize::try_from(-distance).unwrap_or(usize::MAX);
            if known < bytes.len() {
                let bytes = bytes[known..].to_vec();
                self.wait(self.passed, Waiting { at_ns, bytes });
            }
        }
        self.drain(&mut brought);
        self.skip_acknowledged(&mut brought);
        if self.waiting_bytes > WAITING_BYTES_MAX || self.waiting.len() > WAITING_MAX {
            self.skip(&mut brought);
        }
        brought
    }

    /// Takes the number that the peer expects next: bytes before it that were not captured will not come.
    pub(super) fn acknowledge(&mut self, number: u32) -> Vec<Brought> {
        let mut brought = Vec::new();
        if let Some(position) = self.position(number)
            && position > self.acknowledged
        {
            self.acknowledged = position;
            self.skip_acknowledged(&mut brought);
            if self.end.is_some_and(|end| position > end) {
                brought.extend(self.flush());
            }
        }
        brought
    }

    /// Takes the number of the FIN.
    pub(super) fn end(&mut self, number: u32) {
        self.next.get_or_insert(number);
        // A number before the next byte: there is nothing to wait for.
        self.end = Some(self.position(number).unwrap_or(self.passed));
    }

    /// Delivers everything that waits: no earlier bytes will come.
    pub(super) fn flush(&mut self) -> Vec<Brought> {
        let mut brought = Vec::new();
        while !self.waiting.is_empty() {
            self.skip(&mut brought);
        }
        // Without the FIN itself, one acknowledged number may be its.
        let last = self.end.unwrap_or(self.acknowledged.saturating_sub(1));
        if last > self.passed {
            let missing = self.end.unwrap_or(self.acknowledged) - self.passed;
            brought.push(Brought::Gap(self.newest_ns, missing));
            self.pass(missing);
        }
        brought
    }

    /// The distance of a number from the start, unless it is before the next byte.
    fn position(&self, number: u32) -> Option<u64> {
        let ahead = number.wrapping_sub(self.next?).cast_signed();
        u64::try_from(ahead).ok().map(|ahead| self.passed + ahead)
    }

    fn wait(&mut self, at: u64, segment: Waiting) {
        let known = self.waiting.get(&at).map_or(0, |known| known.bytes.len());
        if segment.bytes.len() > known {
            self.waiting_bytes += segment.bytes.len() - known;
            self.waiting.insert(at, segment);
        }
    }

    /// Delivers what is next in order.
    fn drain(&mut self, brought: &mut Vec<Brought>) {
        while let Some((at, _)) = self.waiting.first_key_value() {
            let at = *at;
            if at > self.passed {
                return;
            }
            let Some(Waiting { at_ns, mut bytes }) = self.waiting.remove(&at) else {
                return;
            };
            self.waiting_bytes -= bytes.len();
            let known = usize::try_from(self.passed - at).unwrap_or(usize::MAX);
            if known >= bytes.len() {
                continue;
            }
            bytes.drain(..known);
            self.pass(bytes.len() as u64);
            brought.push(Brought::Bytes(at_ns, bytes));
        }
    }

    /// Skips the gaps that the peer has received.
    fn skip_acknowledged(&mut self, brought: &mut Vec<Brought>) {
        while let Some((first, _)) = self.waiting.first_key_value() {
            if *first > self.acknowledged {
                return;
            }
            self.skip(brought);
        }
    }

    /// Skips the bytes before the first segment that waits.
    fn skip(&mut self, brought: &mut Vec<Brought>) {
        if let Some((first, segment)) = self.waiting.first_key_value() {
            let missing = first.saturating_sub(self.passed);
            if missing > 0 {
                brought.push(Brought::Gap(segment.at_ns, missing));
                self.pass(missing);
            }
        }
        self.drain(brought);
    }

    fn pass(&mut self, bytes: u64) {
        self.passed += bytes;
        // The number counts modulo 2^32.
        let step = u32::try_from(bytes & u64::from(u32::MAX)).unwrap_or_default();
        self.next = self.next.map(|next| next.wrapping_add(step));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(brought: Vec<Brought>) -> String {
        let words = brought.into_iter().map(|one| match one {
            Brought::Bytes(_, bytes) => String::from_utf8(bytes).unwrap(),
            Brought::Gap(_, missing) => format!("|{missing}|"),
        });
        words.collect()
    }

    #[test]
    fn segments_come_in_any_order_and_twice() {
        let mut direction = Direction::default();
        direction.begin(u32::MAX - 2);
        assert_eq!(text(direction.take(0, u32::MAX - 1, b"ab".to_vec())), "ab");
        assert_eq!(text(direction.take(0, 3, b"fg".to_vec())), "");
        assert_eq!(text(direction.take(0, u32::MAX - 1, b"abc".to_vec())), "c");
        assert_eq!(text(direction.take(0, 0, b"cde".to_vec())), "defg");
        assert_eq!(direction.bytes(), 0);
    }

    #[test]
    fn a_gap_is_skipped_once_too_much_waits() {
        let mut direction = Direction::default();
        direction.take(0, 0, b"a".to_vec());
        let block = 64 << 10;
        let mut brought = Vec::new();
        for index in 0..5_u32 {
            brought.extend(direction.take(0, 100 + index * block, vec![b'x'; block as usize]));
        }
        assert_eq!(brought.first(), Some(&Brought::Gap(0, 99)));
        assert_eq!(direction.bytes(), 0);
    }

    #[test]
    fn a_gap_is_skipped_once_the_peer_has_its_bytes() {
        let mut direction = Direction::default();
        direction.begin(99);
        assert_eq!(text(direction.take(1, 105, b"fg".to_vec())), "");
        assert_eq!(text(direction.acknowledge(104)), "");
        assert_eq!(text(direction.acknowledge(107)), "|5|fg");
        // The acknowledgement may be captured before the segment after the gap.
        assert_eq!(text(direction.acknowledge(109)), "");
        assert_eq!(text(direction.take(2, 109, b"jk".to_vec())), "|2|jk");
        assert_eq!(direction.bytes(), 0);
    }

    #[test]
    fn the_end_waits_for_earlier_bytes_and_the_flush_for_nothing() {
        let mut direction = Direction::default();
        direction.begin(99);
        direction.end(103);
        assert!(!direction.is_ended());
        assert_eq!(text(direction.take(1, 102, b"c".to_vec())), "");
        assert_eq!(text(direction.take(1, 100, b"ab".to_vec())), "abc");
        assert!(direction.is_ended());
        direction.begin(99);
        direction.take(7, 102, b"c".to_vec());
        direction.end(105);
        let missing = |count| Brought::Gap(7, count);
        let bytes = Brought::Bytes(7, b"c".to_vec());
        assert_eq!(direction.flush(), [missing(2), bytes, missing(2)]);
        assert!(direction.is_ended());
    }

    proptest! {
        #[test]
        fn any_order_gives_the_same_bytes(
            cuts in prop::collection::vec(1..40_usize, 1..20),
            start in any::<u32>(),
            order in any::<prop::sample::Index>(),
        ) {
            let total: usize = cuts.iter().sum();
            let whole: Vec<u8> = (0..total).map(|n| (n % 251) as u8).collect();
            let mut pieces = Vec::new();
            let mut at = 0;
            for cut in &cuts {
                pieces.push((at, whole[at..at + cut].to_vec()));
                at += cut;
            }
            let turn = order.index(pieces.len());
            pieces.rotate_left(turn);
            let mut direction = Direction::default();
            direction.begin(start);
            let mut read = Vec::new();
            for (at, piece) in pieces {
                let sequence = start.wrapping_add(1).wrapping_add(u32::try_from(at).unwrap());
                for brought in direction.take(0, sequence, piece) {
                    match brought {
                        Brought::Bytes(_, bytes) => read.extend(bytes),
                        Brought::Gap(..) => prop_assert!(false, "no gap"),
                    }
                }
            }
            prop_assert_eq!(read, whole);
        }
    }
}
