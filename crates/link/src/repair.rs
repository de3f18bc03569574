//! Requests elements that are damaged here from the peer.

use alloc::vec::Vec;

use chappe_flow::{Channel, SessionCommand};

/// Consecutive damaged elements, by their numbers at the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The channel of their stream.
    pub channel: Channel,
    /// Their epoch.
    pub epoch: u64,
    /// The first number.
    pub from: u64,
    /// The number after the last.
    pub next: u64,
}

impl From<Hole> for SessionCommand {
    fn from(hole: Hole) -> Self {
        Self::Fetch {
            channel: hole.channel,
            epoch: hole.epoch,
            from: hole.from,
            next: hole.next,
        }
    }
}

/// The next holes to request: there may be more than the limit of open requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RepairTurn {
    /// The number of holes requested so far.
    requested: usize,
}

impl RepairTurn {
    /// As many holes as there is `room` for, starting where the last turn ended: a hole that the
    /// peer has too does not block the others.
    pub(crate) fn next(&mut self, mut holes: Vec<Hole>, room: usize) -> Vec<Hole> {
        let first = self.requested % holes.len().max(1);
        holes.rotate_left(first);
        holes.truncate(room);
        self.requested = self.requested.wrapping_add(holes.len());
        holes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hole_is_requested_in_turn() {
        let hole = |from| Hole {
            channel: Channel(0),
            epoch: 1,
            from,
            next: from + 1,
        };
        let holes: Vec<Hole> = (1..=5).map(hole).collect();
        let mut turn = RepairTurn::default();
        let mut requested = Vec::new();
        for _ in 0..5 {
            requested.extend(turn.next(holes.clone(), 2).iter().map(|hole| hole.from));
        }
        assert_eq!(requested, [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]);
        assert!(turn.next(Vec::new(), 2).is_empty());
        assert!(turn.next(holes, 0).is_empty());
    }
}
