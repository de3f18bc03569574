//! Reports about the sinks of a range: pieces, each with its failed sinks and the receipts of all others.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Failed sinks that one piece names.
///
/// Reason: a piece fits a datagram; 200 indices of at most 5 bytes are 1,000.
pub const FAILED_MAX: usize = 200;

/// A range of sinks whose state is known: some failed, the others have the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The first sink.
    pub first: u32,
    /// The end of the range, exclusive.
    pub end: u32,
    /// The sinks that did not answer, increasing.
    pub failed: Vec<u32>,
    /// The receipts of all other sinks, combined by exclusive or.
    pub receipts: u128,
}

impl Piece {
    /// The number of sinks.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.end.saturating_sub(self.first)
    }
}

/// The pieces of one range: sorted, disjoint, and as few as possible.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pieces {
    pieces: Vec<Piece>,
}

impl Pieces {
    /// Starts empty, in reused memory.
    pub(crate) fn new(memory: Vec<Piece>) -> Self {
        Self { pieces: memory }
    }

    pub(crate) fn into_memory(self) -> Vec<Piece> {
        self.pieces
    }

    /// The invariants of the pieces of a range.
    pub(crate) fn check(&self, first: u32, end: u32) -> Result<(), String> {
        let mut from = first;
        for piece in &self.pieces {
            let failed = &piece.failed;
            let inside = |sink: &u32| (piece.first..piece.end).contains(sink);
            let right = from <= piece.first
                && piece.first < piece.end
                && piece.end <= end
                && failed.len() <= FAILED_MAX
                && failed.windows(2).all(|two| two[0] < two[1])
                && failed.iter().all(inside);
            if !right {
                return Err(format!("a piece of {first} to {end} is {piece:?}"));
            }
            from = piece.end;
        }
        Ok(())
    }

    /// Adds a piece and returns true, unless it overlaps an earlier one. The earlier one stays, since
    /// combined receipts cannot be separated.
    pub(crate) fn add(&mut self, piece: Piece) -> bool {
        let at = self
            .pieces
            .partition_point(|other| other.end <= piece.first);
        let overlaps = self
            .pieces
            .get(at)
            .is_some_and(|other| other.first < piece.end);
        if overlaps || piece.count() == 0 {
            return false;
        }
        self.pieces.insert(at, piece);
        self.join(at);
        if at > 0 {
            self.join(at - 1);
        }
        true
    }

    /// Joins a piece with the next one if they are adjacent and their failed sinks fit.
    fn join(&mut self, at: usize) {
        let Some([left, right]) = self.pieces.get_mut(at..at + 2) else {
            return;
        };
        if left.end != right.first || left.failed.len() + right.failed.len() > FAILED_MAX {
            return;
        }
        left.end = right.end;
        left.failed.append(&mut right.failed);
        left.receipts ^= right.receipts;
        self.pieces.remove(at + 1);
    }

    /// The number of sinks covered by the pieces.
    #[cfg(test)]
    pub(crate) fn covered(&self) -> u32 {
        self.pieces.iter().map(Piece::count).sum()
    }

    /// The pieces.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn piece(first: u32, end: u32) -> Piece {
        let receipts = (first..end).fold(0, |sum, sink| sum ^ (1u128 << (sink % 128)));
        Piece {
            first,
            end,
            failed: vec![],
            receipts,
        }
    }

    proptest! {
        #[test]
        fn pieces_stay_apart_and_keep_their_receipts(
            ranges in prop::collection::vec((0u32..100, 1u32..20), 0..40),
        ) {
            let mut pieces = Pieces::default();
            let mut known = [false; 128];
            for (first, length) in ranges {
                let range = first..first + length;
                let free = range.clone().all(|sink| !known[sink as usize]);
                prop_assert_eq!(pieces.add(piece(range.start, range.end)), free);
                if free {
                    range.for_each(|sink| known[sink as usize] = true);
                }
            }
            prop_assert_eq!(pieces.covered() as usize, known.iter().filter(|it| **it).count());
            for held in pieces.pieces() {
                prop_assert_eq!(held.receipts, piece(held.first, held.end).receipts);
            }
            // Adjacent pieces are joined, so there is an unknown sink between any two.
            for two in pieces.pieces().windows(2) {
                prop_assert!(two[0].end < two[1].first);
            }
        }
    }

    #[test]
    fn a_piece_never_outgrows_its_datagram() {
        let mut pieces = Pieces::default();
        for sink in 0..1_000 {
            let failed = vec![sink];
            assert!(pieces.add(Piece {
                first: sink,
                end: sink + 1,
                failed,
                receipts: 0
            }));
        }
        assert_eq!(pieces.covered(), 1_000);
        assert!(
            pieces
                .pieces()
                .iter()
                .all(|piece| piece.failed.len() <= FAILED_MAX)
        );
        assert!(pieces.pieces().len() <= 10);
    }
}
