//! Reuses the memory of ended events.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::event::Event;

/// The largest number of pooled events.
///
/// Reason: no more events end between two that start; further ones would be idle.
pub(crate) const POOLED_MAX: usize = 64;

/// Unreferenced events, whose memory serves to read and publish the next ones.
#[derive(Debug, Default)]
pub(crate) struct EventPool {
    events: Vec<Arc<Event>>,
}

impl EventPool {
    /// Makes an event in pooled memory.
    pub(crate) fn event<E>(
        &mut self,
        make: impl FnOnce(Vec<u8>) -> Result<Event, E>,
    ) -> Result<Arc<Event>, E> {
        // Pooled events have no other holder, so `get_mut` succeeds.
        if let Some(mut shared) = self.events.pop()
            && let Some(event) = Arc::get_mut(&mut shared)
        {
            *event = make(event.take_memory())?;
            return Ok(shared);
        }
        make(Vec::new()).map(Arc::new)
    }

    /// Returns an event to the pool, unless the application still holds it.
    pub(crate) fn put(&mut self, mut event: Arc<Event>) {
        if self.events.len() < POOLED_MAX && Arc::get_mut(&mut event).is_some() {
            self.events.push(event);
        }
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
    fn events_that_others_hold_are_not_pooled() {
        let mut pool = EventPool::default();
        let held = Arc::new(event());
        pool.put(Arc::clone(&held));
        assert!(pool.events.is_empty());
        for _ in 0..POOLED_MAX + 5 {
            pool.put(Arc::new(event()));
        }
        assert_eq!(pool.events.len(), POOLED_MAX);
        let bytes = event();
        let again = pool.event(|memory| Event::read(memory, bytes.bytes()));
        assert_eq!(again.as_deref(), Ok(&*held));
        assert_eq!(pool.events.len(), POOLED_MAX - 1);
    }
}
