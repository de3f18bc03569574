//! Definitions of streams: made and changed in the one order of the log.
//!
//! A definition is queued like records, so that many of them cost one sync, and whoever waits for one
//! holds no lock meanwhile. A stream can be found, appended to and read once its first definition is
//! safe; a change counts from when it is safe. Where the disk stays full, a queued definition is
//! refused like records are, and the stream is as it was before.

use crate::ack::Ack;
use crate::commit::Draft;
use crate::frame::Definition;
use crate::index::Index;
use crate::open::draw_epoch;
use crate::queue::{Pending, Queue};
use crate::store::Owner;
use crate::stream::Core;
use crate::{Error, Level, MAX_METADATA_BYTES, MAX_NAME_BYTES, MAX_STREAMS, Stream};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};

/// All definitions together may take half a segment, or this if that is more.
const DEFINITIONS_BYTES: u64 = 1024 * 1024;

/// Bytes of a definition besides its name and metadata, at most.
const DEFINITION_OVERHEAD_BYTES: usize = 1200;

/// A definition on its way: resolves with the stream when the definition is safe. Dropping it does
/// not take the definition back.
#[must_use = "a stream is defined when this resolves"]
pub struct Defining {
    stream: Stream,
    /// None: it was so already.
    ack: Option<Arc<Ack>>,
}

impl Defining {
    /// Waits on this thread.
    ///
    /// # Errors
    /// The disk stayed full, or the store has stopped.
    pub fn wait(self) -> Result<Stream, Error> {
        if let Some(ack) = &self.ack {
            ack.wait(self.stream.owner.driven().as_ref())?;
        }
        Ok(self.stream)
    }
}

impl Future for Defining {
    type Output = Result<Stream, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Stream, Error>> {
        if let Some(ack) = &self.ack {
            ready!(ack.poll(context))?;
        }
        Poll::Ready(Ok(self.stream.clone()))
    }
}

/// Draws the epochs of new streams, and keeps definitions in their order.
pub(crate) struct Definer {
    pub(crate) seed: u64,
    pub(crate) drawn: u64,
}

impl Owner {
    /// Queues the definition that `change` makes of the newest one, or of none. With a handle `of` the
    /// stream, one that was created again under its name is not meant.
    pub(crate) fn define<E: From<Error>>(
        self: &Arc<Self>,
        name: &str,
        of: Option<&Core>,
        change: impl FnOnce(Option<(Level, &[u8])>) -> Result<(Level, Vec<u8>), E>,
    ) -> Result<Defining, E> {
        let mut definer = self.definer.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.shared.lock().known(name);
        if let Some(core) = of.or(known.as_deref()) {
            core.check_kept()?;
        }
        let before = known.as_ref().map(|core| core.view().newest().clone());
        let so_far = before.as_ref().map(|it| (it.level, &it.metadata[..]));
        let (level, metadata) = change(so_far)?;
        let epochs = match &before {
            Some(before) => before.epochs.clone(),
            None => vec![(draw_epoch(definer.seed, &mut definer.drawn, &[]), 1)],
        };
        let definition = Definition {
            name: name.to_owned(),
            level,
            metadata,
            epochs,
        };
        let unchanged = |core: &Arc<Core>| core.view().safe() == Some(&definition);
        let defining = |core: Arc<Core>, ack| Defining {
            stream: Stream {
                core,
                owner: Arc::clone(self),
            },
            ack,
        };
        if let Some(core) = known.clone().filter(unchanged) {
            return Ok(defining(core, None));
        }
        self.check_definition(&definition)?;
        let core = match known {
            Some(core) => core,
            None => {
                let id = self.shared.lock().new_id()?;
                Arc::new(Core::new(id, definition.clone(), Index::new(1), None))
            }
        };
        let draft = Draft::definition(core.id, &definition);
        let ack = Arc::new(Ack::default());
        let mut queue = self.shared.room_for(draft.body.bytes.len())?;
        queue.defining(&core, definition);
        let pending = Pending {
            draft,
            core: Arc::clone(&core),
            ack: Arc::clone(&ack),
            ordered: false,
        };
        self.shared.enqueue(queue, pending);
        Ok(defining(core, Some(ack)))
    }

    fn check_definition(&self, definition: &Definition) -> Result<(), Error> {
        let check = |what, bytes: usize, limit: usize| match bytes > limit {
            true => Err(Error::TooLarge { what, bytes, limit }),
            false => Ok(()),
        };
        if definition.name.is_empty() {
            return Err(Error::NoName);
        }
        check("the stream's name", definition.name.len(), MAX_NAME_BYTES)?;
        check(
            "the stream's metadata",
            definition.metadata.len(),
            MAX_METADATA_BYTES,
        )?;
        let size =
            |one: &Definition| one.name.len() + one.metadata.len() + DEFINITION_OVERHEAD_BYTES;
        let others = {
            let queue = self.shared.lock();
            let all = queue.streams.iter().chain(&queue.creating);
            let others = all.filter(|(name, _)| **name != definition.name);
            others
                .map(|(_, core)| size(core.view().newest()))
                .sum::<usize>()
        };
        let limit = (self.shared.options.segment_bytes / 2).max(DEFINITIONS_BYTES) as usize;
        let all = others + size(definition);
        check("all streams' names and metadata", all, limit)
    }
}

impl Queue {
    /// The stream of this name, also if its first definition is only on its way.
    pub(crate) fn known(&self, name: &str) -> Option<Arc<Core>> {
        let core = self.streams.get(name).or_else(|| self.creating.get(name));
        core.cloned()
    }

    fn new_id(&mut self) -> Result<u32, Error> {
        let full = || Error::TooManyStreams { limit: MAX_STREAMS };
        if self.streams.len() + self.creating.len() >= MAX_STREAMS {
            return Err(full());
        }
        let id = self.next_id;
        self.next_id = id.checked_add(1).ok_or_else(full)?;
        Ok(id)
    }

    /// A definition is on its way.
    pub(crate) fn defining(&mut self, core: &Arc<Core>, definition: Definition) {
        if !self.streams.contains_key(&definition.name) {
            let name = definition.name.clone();
            self.creating.insert(name, Arc::clone(core));
        }
        core.view().coming = Some(definition);
    }

    /// A definition is safe.
    pub(crate) fn defined(&mut self, core: &Arc<Core>, definition: Definition) {
        if let Some(core) = self.creating.remove(&definition.name) {
            self.streams.insert(definition.name.clone(), core);
        }
        let mut view = core.view();
        if view.coming.as_ref() == Some(&definition) {
            view.coming = None;
        }
        view.definition = definition;
    }

    /// A definition was refused: the stream is as it was before.
    pub(crate) fn undefined(&mut self, core: &Arc<Core>) {
        let mut view = core.view();
        view.coming = None;
        self.creating.remove(&view.definition.name);
    }
}
