//! The queue: drafts that wait for a commit, and the state of the store under the same lock.

use crate::ack::Ack;
use crate::draft::Draft;
use crate::frame::{Definition, Kind};
use crate::state::Core;
use crate::{Counters, Error, Health, MAX_STREAMS};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// A draft in the queue.
pub(crate) struct Pending {
    pub(crate) draft: Draft,
    pub(crate) core: Arc<Core>,
    pub(crate) ack: Arc<Ack>,
    /// It must not be written before drafts queued earlier.
    pub(crate) ordered: bool,
}

impl Pending {
    /// The stream's definition, if it is one and not a removal.
    pub(crate) fn definition(&self) -> Option<Definition> {
        let is = self.draft.kind == Kind::Definition;
        let definition = is.then(|| Definition::decode(&self.draft.body.bytes))?;
        definition.filter(|it| !it.is_removal())
    }
}

impl Drop for Pending {
    /// Nobody waits forever, whatever happened to the commit thread.
    fn drop(&mut self) {
        let bytes = self.draft.body.bytes.len();
        self.core.queued.fetch_sub(bytes, Ordering::Relaxed);
        if self.draft.sets_cursor() {
            self.core.cursors.fetch_sub(1, Ordering::Relaxed);
        }
        if self.ack.result().is_none() {
            self.ack.resolve(Err(Error::Failed {
                reason: "the commit thread ended".to_owned(),
            }));
        }
    }
}

/// The part under one lock.
pub(crate) struct Queue {
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) bytes: usize,
    pub(crate) closing: bool,
    /// The commit thread waits for work and must be woken for it.
    pub(crate) asleep: bool,
    /// A queued draft must not wait for the pause.
    pub(crate) urgent: bool,
    /// Threads that wait for room.
    pub(crate) waiting: u32,
    /// Tasks that wait for a commit.
    pub(crate) waiters: Waiters,
    /// Nothing more is written, not even a clean end.
    pub(crate) abandoned: bool,
    /// The reason why nothing is accepted any more.
    pub(crate) stopped: Option<Error>,
    pub(crate) health: Health,
    /// Records of level memory wait for room, though others may find some.
    pub(crate) waits_for_room: bool,
    /// Free space in bytes when the disk was found full.
    pub(crate) free: u64,
    pub(crate) streams: BTreeMap<String, Arc<Core>>,
    /// Streams whose first definition is in flight.
    pub(crate) creating: BTreeMap<String, Arc<Core>>,
    pub(crate) next_id: u32,
    /// Removed streams that the log must still record.
    pub(crate) removals: usize,
    pub(crate) counters: Counters,
    /// The number of times that refused records' numbers were retracted.
    pub(crate) retractions: u64,
    /// The result of the commit thread.
    pub(crate) ended: Option<Result<(), Error>>,
}

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue {
            pending: VecDeque::new(),
            bytes: 0,
            closing: false,
            asleep: false,
            urgent: false,
            waiting: 0,
            waiters: Waiters::default(),
            abandoned: false,
            stopped: None,
            health: Health::Ok,
            waits_for_room: false,
            free: 0,
            streams: BTreeMap::new(),
            creating: BTreeMap::new(),
            next_id: 1,
            removals: 0,
            counters: Counters::default(),
            retractions: 0,
            ended: None,
        }
    }

    /// Every append is refused from now on.
    pub(crate) fn is_refusing(&self) -> bool {
        self.stopped.is_some() || self.closing
    }

    /// Records of level memory may wait for room on the disk.
    pub(crate) fn lacks_room(&self) -> bool {
        self.health == Health::Full || self.waits_for_room
    }

    /// The stream of this name, even if its first definition is still in flight.
    pub(crate) fn known(&self, name: &str) -> Option<Arc<Core>> {
        let core = self.streams.get(name).or_else(|| self.creating.get(name));
        core.cloned()
    }

    pub(crate) fn new_id(&mut self) -> Result<u32, Error> {
        let full = || Error::TooManyStreams { limit: MAX_STREAMS };
        if self.streams.len() + self.creating.len() >= MAX_STREAMS {
            return Err(full());
        }
        let id = self.next_id;
        self.next_id = id.checked_add(1).ok_or_else(full)?;
        Ok(id)
    }

    /// Records that a definition is in flight.
    pub(crate) fn on_definition_queued(&mut self, core: &Arc<Core>, definition: Definition) {
        if !self.streams.contains_key(&definition.name) {
            let name = definition.name.clone();
            self.creating.insert(name, Arc::clone(core));
        }
        core.view().coming = Some(definition);
    }

    /// Records that a definition is durable.
    pub(crate) fn on_defined(&mut self, core: &Arc<Core>, definition: Definition) {
        if let Some(core) = self.creating.remove(&definition.name) {
            self.streams.insert(definition.name.clone(), core);
        }
        let mut view = core.view();
        if view.coming.as_ref() == Some(&definition) {
            view.coming = None;
        }
        view.definition = definition;
    }

    /// Records that a definition was refused: the stream is as before.
    pub(crate) fn on_definition_refused(&mut self, core: &Arc<Core>) {
        let mut view = core.view();
        view.coming = None;
        self.creating.remove(&view.definition.name);
    }

    /// Records that a removal is durable: the name is free.
    pub(crate) fn on_removed(&mut self, core: &Core) {
        let name = core.view().definition.name.clone();
        self.streams.remove(&name);
        self.creating.remove(&name);
    }
}

/// The wakers of waiting tasks, by the number of their slot.
#[derive(Default)]
pub(crate) struct Waiters {
    last: u64,
    pub(crate) wakers: BTreeMap<u64, Waker>,
}

impl Waiters {
    /// A number for a new waiter.
    pub(crate) fn new_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers).into_values().collect()
    }
}
