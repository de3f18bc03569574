//! Asking the peer for records that are damaged here.

use alloc::vec::Vec;

use chappe_flow::{Channel, SessionCommand};

/// Consecutive damaged records, by their numbers at the origin.
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

/// Whose turn it is: there may be more holes than requests that may be open.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RepairTurn {
    /// Holes that were asked for so far.
    asked: usize,
}

impl RepairTurn {
    /// As many requests as there is `room` for, each time from where the last time ended: a hole that
    /// the peer has too does not keep the others from being asked for.
    pub(crate) fn requests(
        &mut self,
        mut holes: Vec<Hole>,
        room: usize,
    ) -> impl Iterator<Item = SessionCommand> + use<> {
        let first = self.asked % holes.len().max(1);
        holes.rotate_left(first);
        holes.truncate(room);
        self.asked = self.asked.wrapping_add(holes.len());
        holes.into_iter().map(|hole| SessionCommand::Fetch {
            channel: hole.channel,
            epoch: hole.epoch,
            from: hole.from,
            next: hole.next,
        })
    }
}
