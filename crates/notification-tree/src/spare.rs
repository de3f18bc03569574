//! The memory of what is over, for what comes: in the steady state an event asks the allocator for nothing.
//!
//! An event is kept until `history` others have come; what it leaves then is what the next needs. What the
//! application still holds is not taken from it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::coverage::Piece;
use crate::event::Event;
use crate::job::{Asker, Job, Part};
use crate::source::Tally;
use crate::state::Record;

/// Pieces of memory of each kind that are kept.
///
/// Reason: as many as events may end between two that begin; more would be idle.
const KEPT_MAX: usize = 64;
/// The largest that is kept; a plan that sends to more than some hundred sinks asks for its list each time.
const KEPT_BYTES: usize = 64 * 1_024;

/// Memory that nobody uses.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    events: Vec<Arc<Event>>,
    #[expect(clippy::vec_box, reason = "the box is what is kept")]
    tallies: Vec<Box<Tally>>,
    jobs: Vec<Vec<Job>>,
    askers: Vec<Vec<Asker>>,
    parts: Vec<Vec<Part>>,
    pieces: Vec<Vec<Piece>>,
}

impl Spare {
    /// An event, made in memory that is there.
    pub(crate) fn event<E>(
        &mut self,
        make: impl FnOnce(Vec<u8>) -> Result<Event, E>,
    ) -> Result<Arc<Event>, E> {
        // Nobody else holds what is here.
        if let Some(mut shared) = self.events.pop()
            && let Some(place) = Arc::get_mut(&mut shared)
        {
            *place = make(place.take_memory())?;
            return Ok(shared);
        }
        make(Vec::new()).map(Arc::new)
    }

    /// An event that is used no more, at least here.
    pub(crate) fn put_event(&mut self, mut event: Arc<Event>) {
        if self.events.len() < KEPT_MAX && Arc::get_mut(&mut event).is_some() {
            self.events.push(event);
        }
    }

    pub(crate) fn tally(&mut self) -> Box<Tally> {
        self.tallies.pop().unwrap_or_default()
    }

    pub(crate) fn put_tally(&mut self, tally: Box<Tally>) {
        if self.tallies.len() < KEPT_MAX && tally.bytes() <= KEPT_BYTES {
            self.tallies.push(tally);
        }
    }

    pub(crate) fn jobs(&mut self) -> Vec<Job> {
        self.jobs.pop().unwrap_or_default()
    }

    pub(crate) fn askers(&mut self) -> Vec<Asker> {
        self.askers.pop().unwrap_or_default()
    }

    pub(crate) fn parts(&mut self) -> Vec<Part> {
        self.parts.pop().unwrap_or_default()
    }

    pub(crate) fn pieces(&mut self) -> Vec<Piece> {
        self.pieces.pop().unwrap_or_default()
    }

    pub(crate) fn put_jobs(&mut self, mut jobs: Vec<Job>) {
        for job in jobs.drain(..) {
            keep(&mut self.askers, job.askers);
            keep(&mut self.parts, job.parts);
            keep(&mut self.pieces, job.pieces.into_memory());
        }
        keep(&mut self.jobs, jobs);
    }

    /// An event is kept no more.
    pub(crate) fn put_record(&mut self, record: Record) {
        self.put_jobs(record.jobs);
        self.put_event(record.event);
        if let Some(tally) = record.tally {
            self.put_tally(tally);
        }
    }
}

fn keep<T>(kept: &mut Vec<Vec<T>>, mut vector: Vec<T>) {
    vector.clear();
    let bytes = vector.capacity() * size_of::<T>();
    if kept.len() < KEPT_MAX && (1..=KEPT_BYTES).contains(&bytes) {
        kept.push(vector);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventId, Membership, TrustedNetwork};

    fn event() -> Event {
        let id = EventId {
            topic: 1,
            boot: 1,
            sequence: 1,
        };
        let list = Membership::new(1, 1, Vec::new()).unwrap();
        Event::new(&TrustedNetwork, id, &list, true, None, b"x", 100).unwrap()
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_others_hold_is_theirs() {
        let mut spare = Spare::default();
        let held = Arc::new(event());
        spare.put_event(Arc::clone(&held));
        assert!(spare.events.is_empty());
        for _ in 0..KEPT_MAX + 5 {
            spare.put_event(Arc::new(event()));
            spare.put_tally(Box::default());
            keep(&mut spare.parts, Vec::with_capacity(3));
        }
        keep(&mut spare.jobs, Vec::new());
        keep(&mut spare.pieces, Vec::with_capacity(KEPT_BYTES));
        assert_eq!(spare.events.len(), KEPT_MAX);
        assert_eq!(spare.tallies.len(), KEPT_MAX);
        assert_eq!(spare.parts.len(), KEPT_MAX);
        assert!(spare.jobs.is_empty() && spare.pieces.is_empty());
        let bytes = event();
        let again = spare.event(|memory| Event::read(memory, bytes.bytes()));
        assert_eq!(again.as_deref(), Ok(&*held));
        assert_eq!(spare.events.len(), KEPT_MAX - 1);
    }
}
