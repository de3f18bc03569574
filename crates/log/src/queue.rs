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
    /// Bytes of the newest definitions of all streams, also of those that are on their way.
    pub(crate) definitions_bytes: usize,
    /// Removed streams that the log still has to name.
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
            definitions_bytes: 0,
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

    /// A stream that the log had when it was opened.
    pub(crate) fn found(&mut self, core: Arc<Core>) {
        self.counting(&Arc::clone(&core), |queue| {
            let name = core.view().definition.name.clone();
            queue.next_id = queue.next_id.max(core.id.saturating_add(1));
            queue.streams.insert(name, core);
        });
    }

    /// A definition is on its way.
    pub(crate) fn on_definition_queued(&mut self, core: &Arc<Core>, definition: Definition) {
        self.counting(core, |queue| {
            if !queue.streams.contains_key(&definition.name) {
                let name = definition.name.clone();
                queue.creating.insert(name, Arc::clone(core));
            }
            core.view().coming = Some(definition);
        });
    }

    /// A definition is safe.
    pub(crate) fn on_defined(&mut self, core: &Arc<Core>, definition: Definition) {
        self.counting(core, |queue| {
            if let Some(core) = queue.creating.remove(&definition.name) {
                queue.streams.insert(definition.name.clone(), core);
            }
            let mut view = core.view();
            if view.coming.as_ref() == Some(&definition) {
                view.coming = None;
            }
            view.definition = definition;
        });
    }

    /// A definition was refused: the stream is as it was before.
    pub(crate) fn on_definition_refused(&mut self, core: &Arc<Core>) {
        self.counting(core, |queue| {
            let mut view = core.view();
            view.coming = None;
            queue.creating.remove(&view.definition.name);
        });
    }

    /// A removal is safe: the name is free.
    pub(crate) fn on_removed(&mut self, core: &Core) {
        self.counting(core, |queue| {
            let name = core.view().definition.name.clone();
            queue.streams.remove(&name);
            queue.creating.remove(&name);
        });
    }

    /// Changes a stream, and the bytes of all definitions by as much as its own change.
    fn counting(&mut self, core: &Core, change: impl FnOnce(&mut Queue)) {
        let before = self.counted(core);
        change(self);
        self.definitions_bytes += self.counted(core);
        self.definitions_bytes -= before;
    }

    /// What the stream counts for in the bytes of all definitions.
    pub(crate) fn counted(&self, core: &Core) -> usize {
        let view = core.view();
        let name = &view.definition.name;
        let known = self.streams.get(name).or_else(|| self.creating.get(name));
        match known.is_some_and(|known| known.id == core.id) {
            true => view.newest().counted_bytes(),
            false => 0,
        }
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
