//! Reuses the memory of ended events: in the steady state an event allocates nothing.
//!
//! An event is kept until `history` later ones have arrived; the next event then reuses its memory. Memory that
//! the application still holds is not reused.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::coverage::Piece;
use crate::event_pool::{EventPool, POOLED_MAX};
use crate::job::{Job, Part, Requester};
use crate::tally::Tally;
use crate::topic::Record;

/// The largest retained allocation; a plan with more than a few hundred heads allocates each time.
const POOLED_BYTES: usize = 64 * 1_024;

/// Unused memory.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    pub(crate) events: EventPool,
    #[expect(clippy::vec_box, reason = "the boxes are reused")]
    tallies: Vec<Box<Tally>>,
    jobs: Vec<Vec<Job>>,
    requesters: Vec<Vec<Requester>>,
    parts: Vec<Vec<Part>>,
    pieces: Vec<Vec<Piece>>,
}

impl Spare {
    pub(crate) fn tally(&mut self) -> Box<Tally> {
        self.tallies.pop().unwrap_or_default()
    }

    pub(crate) fn put_tally(&mut self, tally: Box<Tally>) {
        if self.tallies.len() < POOLED_MAX && tally.bytes() <= POOLED_BYTES {
            self.tallies.push(tally);
        }
    }

    pub(crate) fn jobs(&mut self) -> Vec<Job> {
        self.jobs.pop().unwrap_or_default()
    }

    pub(crate) fn requesters(&mut self) -> Vec<Requester> {
        self.requesters.pop().unwrap_or_default()
    }

    pub(crate) fn parts(&mut self) -> Vec<Part> {
        self.parts.pop().unwrap_or_default()
    }

    pub(crate) fn pieces(&mut self) -> Vec<Piece> {
        self.pieces.pop().unwrap_or_default()
    }

    pub(crate) fn put_jobs(&mut self, mut jobs: Vec<Job>) {
        for job in jobs.drain(..) {
            pool(&mut self.requesters, job.requesters);
            pool(&mut self.parts, job.parts);
            pool(&mut self.pieces, job.pieces.into_memory());
        }
        pool(&mut self.jobs, jobs);
    }

    pub(crate) fn put_record(&mut self, record: Record) {
        self.put_jobs(record.jobs);
        self.events.put(record.event);
        if let Some(tally) = record.tally {
            self.put_tally(tally);
        }
    }
}

fn pool<T>(vectors: &mut Vec<Vec<T>>, mut vector: Vec<T>) {
    vector.clear();
    let bytes = vector.capacity() * size_of::<T>();
    if vectors.len() < POOLED_MAX && (1..=POOLED_BYTES).contains(&bytes) {
        vectors.push(vector);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooled_memory_is_bounded() {
        let mut spare = Spare::default();
        for _ in 0..POOLED_MAX + 5 {
            spare.put_tally(Box::default());
            pool(&mut spare.parts, Vec::with_capacity(3));
        }
        pool(&mut spare.jobs, Vec::new());
        pool(&mut spare.pieces, Vec::with_capacity(POOLED_BYTES));
        assert_eq!(spare.tallies.len(), POOLED_MAX);
        assert_eq!(spare.parts.len(), POOLED_MAX);
        assert!(spare.jobs.is_empty() && spare.pieces.is_empty());
    }
}
