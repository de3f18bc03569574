//! Definitions of streams: created and changed in log order.
//!
//! A definition is queued like records, so many of them cost one sync, and waiting for one holds no
//! lock. A stream can be found, appended to and read once its first definition is durable; a change
//! applies once it is durable. While the disk is full, a queued definition is refused like records,
//! and the stream does not change.

use crate::ack::Ack;
use crate::draft::Draft;
use crate::frame::Definition;
use crate::index::Index;
use crate::owner::Owner;
use crate::queue::Pending;
use crate::state::Core;
use crate::{
    Error, Level, MAX_DEFINITIONS_BYTES, MAX_METADATA_BYTES, MAX_NAME_BYTES, Store, Stream,
};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};

/// A queued definition: resolves with the stream when the definition is safe. Dropping it does not
/// cancel it.
#[must_use = "a stream is defined when this resolves"]
pub struct Defining {
    stream: Stream,
    /// None: nothing changed.
    ack: Option<Arc<Ack>>,
}

impl Defining {
    /// Blocks this thread.
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

impl Owner {
    /// Queues the definition that `change` computes from the newest one, or from none. With a
    /// handle `of` the stream, a stream that was recreated under its name is excluded.
    pub(crate) fn define<E: From<Error>>(
        self: &Arc<Self>,
        name: &str,
        of: Option<&Core>,
        change: impl FnOnce(Option<(Level, &[u8])>) -> Result<(Level, Vec<u8>), E>,
    ) -> Result<Defining, E> {
        let mut epoch_source = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.shared.lock().known(name);
        if let Some(core) = of.or(known.as_deref()) {
            core.check_not_removed()?;
        }
        let before = known.as_ref().map(|core| core.view().newest().clone());
        let so_far = before.as_ref().map(|it| (it.level, &it.metadata[..]));
        let (level, metadata) = change(so_far)?;
        let epochs = match &before {
            Some(before) => before.epochs.clone(),
            None => vec![(epoch_source.draw(&[]), 1)],
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
        queue.on_definition_queued(&core, definition);
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
        let others = {
            let queue = self.shared.lock();
            let known = queue.known(&definition.name);
            queue.definitions_bytes - known.map_or(0, |core| queue.counted(&core))
        };
        let all = others + definition.counted_bytes();
        check(
            "all streams' names and metadata",
            all,
            MAX_DEFINITIONS_BYTES,
        )
    }
}

impl Store {
    /// Opens a stream, or creates it. A changed level or changed metadata are recorded before it
    /// returns.
    pub fn stream(&self, name: &str, level: Level, metadata: &[u8]) -> Result<Stream, Error> {
        let define = |_: Option<(Level, &[u8])>| Ok::<_, Error>((level, metadata.to_vec()));
        self.define(name, define)?.wait()
    }

    /// Opens a stream, or creates it, without waiting for the disk: `definition` computes level and
    /// metadata from the newest ones, or from none. Definitions queued together become durable
    /// together.
    ///
    /// # Errors
    /// Those of `definition`; a name that is empty or too large, metadata that are too large, too
    /// many streams, a stream that is being removed, a full queue or disk, a store that has
    /// stopped.
    pub fn define<E: From<Error>>(
        &self,
        name: &str,
        definition: impl FnOnce(Option<(Level, &[u8])>) -> Result<(Level, Vec<u8>), E>,
    ) -> Result<Defining, E> {
        self.owner().define(name, None, definition)
    }
}

impl Stream {
    /// The bytes of the newest definition, as counted in [`MAX_DEFINITIONS_BYTES`].
    pub fn definition_bytes(&self) -> usize {
        self.core.view().newest().counted_bytes()
    }

    /// Records new metadata; returns when they are durable.
    pub fn set_metadata(&self, metadata: &[u8]) -> Result<(), Error> {
        self.change_metadata(|_| Ok::<_, Error>(metadata.to_vec()))?
            .wait()
            .map(drop)
    }

    /// Queues the metadata that `change` computes from the newest ones, without waiting for the
    /// disk.
    ///
    /// # Errors
    /// Those of `change`; those of [`crate::Store::define`].
    pub fn change_metadata<E: From<Error>>(
        &self,
        change: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<Defining, E> {
        let level = self.level();
        self.owner.define(&self.name(), Some(&self.core), |so_far| {
            let (level, metadata) = so_far.unwrap_or((level, &[]));
            Ok((level, change(metadata)?))
        })
    }
}
