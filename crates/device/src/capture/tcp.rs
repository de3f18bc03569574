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
    /// The number of the next byte, once known.
    next: Option<u32>,
    /// Later segments by their distance from the start.
    waiting: BTreeMap<u64, Vec<u8>>,
    waiting_bytes: usize,
    /// Bytes delivered or skipped.
    passed: u64,
}

/// What a segment brings.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Brought {
    /// The next bytes.
    Bytes(Vec<u8>),
    /// Bytes are missing before the next.
    Gap,
}

impl Direction {
    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The connection begins.
    pub(super) fn begin(&mut self, sequence: u32) {
        *self = Self {
            next: Some(sequence.wrapping_add(1)),
            ..Self::default()
        };
    }

    /// Takes a segment; returns what can be read now.
    pub(super) fn take(&mut self, sequence: u32, bytes: Vec<u8>) -> Vec<Brought> {
        if bytes.is_empty() {
            return Vec::new();
        }
        let next = *self.next.get_or_insert(sequence);
        let distance = i64::from(sequence.wrapping_sub(next).cast_signed());
        let mut brought = Vec::new();
        if let Ok(ahead) = u64::try_from(distance) {
            self.wait(self.passed + ahead, bytes);
        } else {
            // A retransmission; some of it may be new.
            let known = usize::try_from(-distance).unwrap_or(usize::MAX);
            if known < bytes.len() {
                self.wait(self.passed, bytes[known..].to_vec());
            }
        }
        self.drain(&mut brought);
        if self.waiting_bytes > WAITING_BYTES_MAX || self.waiting.len() > WAITING_MAX {
            if let Some(first) = self.waiting.keys().next().copied() {
                brought.push(Brought::Gap);
                self.pass(first - self.passed);
            }
            self.drain(&mut brought);
        }
        brought
    }

    fn wait(&mut self, at: u64, bytes: Vec<u8>) {
        let known = self.waiting.get(&at).map_or(0, Vec::len);
        if bytes.len() > known {
            self.waiting_bytes += bytes.len() - known;
            self.waiting.insert(at, bytes);
        }
    }

    /// Delivers what is next in order.
    fn drain(&mut self, brought: &mut Vec<Brought>) {
        while let Some((at, _)) = self.waiting.first_key_value() {
            let at = *at;
            if at > self.passed {
                return;
            }
            let Some(mut bytes) = self.waiting.remove(&at) else {
                return;
            };
            self.waiting_bytes -= bytes.len();
            let known = usize::try_from(self.passed - at).unwrap_or(usize::MAX);
            if known >= bytes.len() {
                continue;
            }
            bytes.drain(..known);
            self.pass(bytes.len() as u64);
            brought.push(Brought::Bytes(bytes));
        }
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
            Brought::Bytes(bytes) => String::from_utf8(bytes).unwrap(),
            Brought::Gap => "|".to_owned(),
        });
        words.collect()
    }

    #[test]
    fn segments_come_in_any_order_and_twice() {
        let mut direction = Direction::default();
        direction.begin(u32::MAX - 2);
        assert_eq!(text(direction.take(u32::MAX - 1, b"ab".to_vec())), "ab");
        assert_eq!(text(direction.take(3, b"fg".to_vec())), "");
        assert_eq!(text(direction.take(u32::MAX - 1, b"abc".to_vec())), "c");
        assert_eq!(text(direction.take(0, b"cde".to_vec())), "defg");
        assert_eq!(direction.bytes(), 0);
    }

    #[test]
    fn a_gap_is_skipped_once_too_much_waits() {
        let mut direction = Direction::default();
        direction.take(0, b"a".to_vec());
        let block = 64 << 10;
        let mut brought = Vec::new();
        for index in 0..5_u32 {
            brought.extend(direction.take(100 + index * block, vec![b'x'; block as usize]));
        }
        assert_eq!(brought.first(), Some(&Brought::Gap));
        assert_eq!(direction.bytes(), 0);
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
                for brought in direction.take(sequence, piece) {
                    match brought {
                        Brought::Bytes(bytes) => read.extend(bytes),
                        Brought::Gap => prop_assert!(false, "no gap"),
                    }
                }
            }
            prop_assert_eq!(read, whole);
        }
    }
}
