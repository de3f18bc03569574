//! Stores the batches of a wrapper: opens their streams, puts aside what cannot be stored, and appends
//! the rest with the mark.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use chappe_links::{DeadLetters, Message};
use chappe_log::{Appended, Error};
use chappe_registry::oxrdf::{NamedNode, Triple};
use chappe_registry::{Entity, EntityKind, vocabulary};
use chappe_stream::view::ElementView;
use chappe_stream::{StoreError, StreamElement, Timestamp, check_name};
use chappe_transport::Hop;
use chappe_wrappers::{
    BATCH_BYTES_MAX, Batch, Lost, Mark, Part, StreamDefinition, Undecodable, WrapperFile,
};

use super::progress::{Prepared, Progress};
use super::{exists, wrapper_key, wrapper_name};
use crate::catalogue::{self, AUDIT, CatalogueError, Entry};
use crate::clock;
use crate::completeness::{Loss, LossKind};
use crate::links;
use crate::producer::Producer;
use crate::shared::App;
use crate::streams::StreamSpec;

/// The source of all streams that were read from DDS topics before topics were wrappers.
const FORMER_TOPICS: &str = "urn:chappe:dds";
/// The reason of dead letters in the record of losses.
const DEAD_LETTER: &str = "dead_letter";
/// Batches above this many bytes are refused: the log takes 4 MiB at once, and a batch over several
/// streams is stored twice.
const BYTES_MAX: usize = 3 * BATCH_BYTES_MAX;

/// A batch that is on its way to the disk.
pub(super) struct Storing {
    acks: VecDeque<Appended>,
    /// The mark of the wrapper.
    pub(super) mark: Mark,
    record: Vec<u8>,
    pub(super) weight: u64,
    pub(super) elements: u64,
    /// Elements that do not fit their streams and became dead letters.
    pub(super) refused: u64,
    pub(super) newest: Option<Timestamp>,
}

impl Storing {
    /// Waits until everything has reached the level of its stream. May be dropped and called again.
    pub(super) async fn finish(&mut self) -> Result<(), Error> {
        while let Some(ack) = self.acks.front_mut() {
            ack.await?;
            self.acks.pop_front();
        }
        Ok(())
    }
}

/// Stores what one wrapper reads.
pub(super) struct Storer {
    app: App,
    file: Arc<WrapperFile>,
    letters: Arc<DeadLetters>,
    /// The source of its streams.
    key: String,
    progress: Progress,
    /// The count of retractions before the first append.
    retractions: u64,
    streams: HashMap<Arc<str>, (Arc<StreamDefinition>, Arc<Entry>)>,
}

impl Storer {
    /// Continues where the wrapper was; nothing of it may be on its way to the disk.
    ///
    /// # Errors
    /// The log failed.
    pub(super) async fn open(
        app: &App,
        file: &Arc<WrapperFile>,
        letters: Arc<DeadLetters>,
    ) -> Result<Self, StoreError> {
        let retractions = app.storage.log.retractions();
        let level = file.keys.level.unwrap_or(app.config.log.level);
        let progress = Progress::recover(app, &file.name, level).await?;
        let mut storer = Self {
            app: app.clone(),
            file: file.clone(),
            letters,
            key: wrapper_key(&file.name),
            progress,
            retractions,
            streams: HashMap::new(),
        };
        storer.register().await;
        Ok(storer)
    }

    /// Registers the streams of earlier runs: virtual sensors bind to them before the peer says anything.
    async fn register(&mut self) {
        let entries = self.app.catalogue.entries();
        let own = entries.iter().filter(|entry| entry.source() == self.key);
        let entities = own.map(|entry| {
            let definition = StreamDefinition {
                schema: entry.log.schema(),
                ..StreamDefinition::default()
            };
            self.stream_entity(&entry.name, &definition)
        });
        let entities = entities.collect();
        self.app.registrar.publish(entities).await;
    }

    /// Defines the streams of the file whose names need no message.
    ///
    /// # Errors
    /// The log failed; the inner error is one that no retry repairs.
    pub(super) async fn define(&mut self) -> Result<Result<(), String>, StoreError> {
        for (name, definition) in self.file.fixed_streams() {
            let definition = Arc::new(definition);
            if let Err(reason) = self.stream(&name.as_str().into(), &definition).await? {
                return Ok(Err(reason));
            }
        }
        Ok(Ok(()))
    }

    /// The mark of the last stored batch.
    pub(super) fn mark(&self) -> Option<&Mark> {
        self.progress.mark()
    }

    /// The names of the streams that were written.
    pub(super) fn stream_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.streams.keys().map(ToString::to_string).collect();
        names.sort();
        names
    }

    /// Queues a batch; waits while the log's queue is full. Returns the number of messages that became
    /// dead letters, too.
    ///
    /// # Errors
    /// The log failed; then it is not certain how much of the batch is queued.
    pub(super) async fn store(&mut self, batch: Batch) -> Result<(Storing, u64), StoreError> {
        let weight = batch.weight();
        let Batch {
            parts,
            mut undecodable,
            lost,
            mark,
        } = batch;
        for lost in lost {
            self.record_lost(&lost);
        }
        let decoded_none = undecodable.len();
        let mut prepared: Vec<Prepared> = Vec::with_capacity(parts.len());
        for part in parts {
            let (kept, refused) = match weight > BYTES_MAX {
                true => (
                    None,
                    dead(&part, part.elements.clone(), "the batch is too large"),
                ),
                false => self.prepare(part).await?,
            };
            undecodable.extend(refused);
            let Some(kept) = kept else { continue };
            let same = |other: &&mut Prepared| other.entry.name == kept.entry.name;
            match prepared.iter_mut().find(same) {
                Some(other) => other.elements.extend(kept.elements),
                None => prepared.push(kept),
            }
        }
        let dead_count = undecodable.len() as u64;
        let refused = dead_count - decoded_none as u64;
        let mut acks = self.put_aside(undecodable).await?;
        let record = self.progress.begin(&mark, &mut prepared)?;
        acks.push_back(self.append_record(&record).await?);
        let (mut elements, mut newest) = (0, None);
        for part in prepared {
            elements += part.elements.len() as u64;
            newest = newest.max(
                part.elements
                    .iter()
                    .map(|element| element.source_time)
                    .max(),
            );
            let appended = part.entry.append_derived(self.retractions, &part.elements);
            acks.push_back(appended.await?);
        }
        let storing = Storing {
            acks,
            mark,
            record,
            weight: weight as u64,
            elements,
            refused,
            newest,
        };
        Ok((storing, dead_count))
    }

    /// A batch has reached the level of its streams.
    pub(super) fn stored(&mut self, storing: Storing) {
        let written = self.app.storage.log.counters().bytes;
        self.progress.stored(storing.record, written);
    }

    /// Appends the newest record again if the size limit might soon remove it. Nothing may be on its way to
    /// the disk.
    ///
    /// # Errors
    /// The log failed.
    pub(super) async fn refresh(&mut self) -> Result<(), StoreError> {
        let written = self.app.storage.log.counters().bytes;
        let segment = self.app.config.log.segment_bytes;
        if let Some(record) = self.progress.refresh(written, segment) {
            self.append_record(&record).await?.await?;
        }
        Ok(())
    }

    async fn append_record(&mut self, record: &[u8]) -> Result<Appended, StoreError> {
        loop {
            match self.progress.append(self.retractions, record) {
                Err(Error::QueueFull { bytes, .. }) => self.app.storage.log.room(bytes).await,
                appended => return Ok(appended?),
            }
        }
    }

    /// Opens the stream of a part and parts what fits it from what does not.
    async fn prepare(
        &mut self,
        part: Part,
    ) -> Result<(Option<Prepared>, Vec<Undecodable>), StoreError> {
        let entry = match self.stream(&part.stream, &part.definition).await? {
            Ok(entry) => entry,
            Err(reason) => {
                let elements = part.elements.clone();
                return Ok((None, dead(&part, elements, &reason)));
            }
        };
        let schema = entry.log.schema();
        let mut refused = Vec::new();
        let mut kept = Vec::with_capacity(part.elements.len());
        for element in &part.elements {
            match schema.check(element) {
                Ok(()) => kept.push(element.clone()),
                Err(error) => {
                    refused.extend(dead(&part, vec![element.clone()], &error.to_string()));
                }
            }
        }
        let prepared = (!kept.is_empty()).then_some(Prepared {
            entry,
            elements: kept,
        });
        Ok((prepared, refused))
    }

    /// Opens a stream; the inner error is one that no retry repairs.
    async fn stream(
        &mut self,
        name: &Arc<str>,
        definition: &Arc<StreamDefinition>,
    ) -> Result<Result<Arc<Entry>, String>, StoreError> {
        if let Some((known, entry)) = self.streams.get(name)
            && (Arc::ptr_eq(known, definition) || known == definition)
            && !entry.log.log().is_removed()
        {
            return Ok(Ok(entry.clone()));
        }
        if &**name == AUDIT {
            return Ok(Err(format!("{AUDIT} belongs to the node")));
        }
        if let Err(error) = check_name(name) {
            return Ok(Err(error.to_string()));
        }
        let limit = self.file.keys.limits.streams as usize;
        let is_new = self.app.catalogue.get(name).is_none();
        if is_new && self.app.catalogue.stream_count(&self.key) >= limit {
            return Ok(Err(format!("the wrapper already has {limit} streams")));
        }
        let spec = StreamSpec {
            name: name.to_string(),
            schema: definition.schema.clone(),
            source: self.key.clone(),
            level: definition.level.or(self.file.keys.level),
        };
        let app = &self.app;
        let spec = spec.of_renamed(app);
        match spec
            .define_or_take(app, |owner| is_orphan(app, owner))
            .await
        {
            Ok(entry) => {
                let entity = self.stream_entity(&entry.name, definition);
                app.registrar.publish(vec![entity]).await;
                app.observability.ledger.claimed(&self.key, [&*entry.name]);
                let known = (definition.clone(), entry.clone());
                self.streams.insert(name.clone(), known);
                Ok(Ok(entry))
            }
            Err(CatalogueError::Store(error @ StoreError::Log(_))) => Err(error),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn stream_entity(&self, name: &str, definition: &StreamDefinition) -> Entity {
        let text = definition.description.as_deref();
        let producer = Producer {
            key: &self.key,
            types: &self.file.keys.types,
            scopes: &self.file.keys.scopes,
        };
        producer.stream(name, &definition.schema, text)
    }

    /// Keeps messages as dead letters.
    async fn put_aside(
        &self,
        undecodable: Vec<Undecodable>,
    ) -> Result<VecDeque<Appended>, StoreError> {
        let mut acks = VecDeque::with_capacity(undecodable.len());
        for one in undecodable {
            let name = &self.file.name;
            let drops = &self.app.observability.drops;
            let hint = format!("chappe wrapper dead-letters {name}");
            drops.record(
                Hop::Element,
                "undecodable",
                name,
                one.reason.clone(),
                Some(hint),
            );
            if let Some(stream) = &one.stream {
                let loss = Loss::now(stream, LossKind::Refused, DEAD_LETTER, 1);
                self.app.observability.ledger.note(loss);
            }
            let message = Message {
                stream: one.stream,
                reason: one.reason,
                received: clock::now(),
                bytes: one.message,
            };
            acks.push_back(put_letter(&self.app, &self.letters, message).await?);
        }
        Ok(acks)
    }

    /// Counts messages that the wrapper knows to be lost, for each stream that they may have been meant for.
    fn record_lost(&self, lost: &Lost) {
        let streams = match &lost.stream {
            Some(stream) => vec![stream.clone()],
            None => self.stream_names(),
        };
        let is_certain = lost.messages > 0 && lost.stream.is_some();
        for stream in streams {
            let mut loss = Loss::now(&stream, LossKind::Lost, lost.reason, lost.messages);
            loss.is_lower_bound = !is_certain;
            self.app.observability.count(lost.reason, loss);
        }
        let detail = match lost.messages {
            0 => "perhaps some messages".to_owned(),
            count => format!("{count} messages"),
        };
        let drops = &self.app.observability.drops;
        let times = lost.messages.max(1);
        drops.record_times(
            times,
            Hop::Element,
            lost.reason,
            &self.file.name,
            detail,
            None,
        );
        self.app.wrappers.update(&self.file.name, |row| {
            *row.lost.entry(lost.reason.to_owned()).or_default() += lost.messages;
        });
    }
}

/// Queues a dead letter; waits while the log's queue is full.
pub(super) async fn put_letter(
    app: &App,
    letters: &Arc<DeadLetters>,
    message: Message,
) -> Result<Appended, StoreError> {
    loop {
        let (letters, message) = (letters.clone(), message.clone());
        // The first letter creates a stream, which waits for the disk.
        let put = tokio::task::spawn_blocking(move || letters.put_message(message)).await;
        match put {
            Ok(Ok(appended)) => return Ok(appended),
            Ok(Err(chappe_links::LinkError::Store(StoreError::Log(Error::QueueFull {
                bytes,
                ..
            })))) => app.storage.log.room(bytes).await,
            Ok(Err(chappe_links::LinkError::Store(error))) => return Err(error),
            Ok(Err(_)) | Err(_) => return Err(StoreError::Log(Error::Closed)),
        }
    }
}

/// Elements of a part that cannot be stored, as dead letters.
fn dead(part: &Part, elements: Vec<StreamElement>, reason: &str) -> Vec<Undecodable> {
    let letter = |element: StreamElement| {
        let view = ElementView {
            stream: None,
            element: &element,
            schema: &part.definition.schema,
        };
        Undecodable {
            stream: Some(part.stream.to_string()),
            reason: reason.to_owned(),
            message: serde_json::to_vec(&view).unwrap_or_default(),
        }
    };
    elements.into_iter().map(letter).collect()
}

/// Whether a source was a wrapper or a link that does not exist any more, or a topic before topics were wrappers.
fn is_orphan(app: &App, owner: &str) -> bool {
    match wrapper_name(owner) {
        Some(wrapper) => !exists(app, wrapper),
        None if owner == FORMER_TOPICS => true,
        None => links::link_name(owner).is_some_and(|link| links::is_removed(app, link)),
    }
}

/// The registry entity of a wrapper: a device, by whose types and scopes its streams are found.
pub(super) fn entity(file: &WrapperFile, streams: &[String]) -> Entity {
    let key = wrapper_key(&file.name);
    let name = file.keys.device.as_deref().unwrap_or(&file.name);
    let shown: String = name.chars().take(200).collect();
    let mut entity = Entity::new(key.clone(), EntityKind::Device, shown);
    entity.types.clone_from(&file.keys.types);
    entity.scopes.clone_from(&file.keys.scopes);
    let subject = NamedNode::new_unchecked(key);
    entity.triples = streams
        .iter()
        .map(|stream| {
            let object = NamedNode::new_unchecked(catalogue::key(stream));
            Triple::new(subject.clone(), vocabulary::STREAM.into_owned(), object)
        })
        .collect();
    entity
}
