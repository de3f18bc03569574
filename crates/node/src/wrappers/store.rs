//! Stores the batches of a wrapper: opens their streams, puts aside what cannot be stored, and appends
//! the rest with the mark.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use chappe_links::{DeadLetters, Message, PeerLetter, RefusedElement};
use chappe_log::{Appended, Error};
use chappe_registry::oxrdf::{NamedNode, Triple};
use chappe_registry::{Entity, EntityKind, vocabulary};
use chappe_stream::view::ElementView;
use chappe_stream::{
    RECORD_BYTES_MAX, RECORD_HEAD_BYTES, StoreError, StreamElement, StreamSchema, Timestamp, Value,
    check_name, encode_element,
};
use chappe_transport::Hop;
use chappe_wrappers::{
    BATCH_BYTES_MAX, Batch, Lost, Mark, Part, Sender, ShareExceeded, StreamDefinition, Undecodable,
    WrapperError, WrapperFile, element_weight,
};

use super::progress::{Former, Prepared, Progress};
use super::repeats::Repeats;
use super::{exists, wrapper_key, wrapper_name};
use crate::catalogue::{self, AUDIT, CatalogueError, Entry};
use crate::clock;
use crate::completeness::{Loss, LossKind};
use crate::links;
use crate::notices::NoticeKind;
use crate::producer::Producer;
use crate::shared::App;
use crate::streams::StreamSpec;

/// The source of all streams that were read from DDS topics before topics were wrappers.
const FORMER_TOPICS: &str = "urn:chappe:dds";
/// The reason of dead letters in the record of losses.
pub(super) const DEAD_LETTER: &str = "dead_letter";
/// Of a batch above this many bytes, the first elements are appended before it: the log takes 4 MiB at once, and
/// a batch over several streams is stored twice.
const BYTES_MAX: usize = 3 * BATCH_BYTES_MAX;
/// Bytes of elements that are appended at once before such a batch.
pub(super) const PIECE_BYTES: usize = BATCH_BYTES_MAX / 2;

/// Why elements of new streams are refused that their sender's share has no room for.
const BEYOND_SHARE: &str = "its stream would be new, and the share of streams of its sender is used up (hint: chappe account share)";
/// Bytes that are kept of an element that is too large for any stream; reason: a person looks at them.
const BEGINNING_BYTES: usize = 64 << 10;

/// A batch that is on its way to the disk.
pub(super) struct Storing {
    acks: VecDeque<Appended>,
    /// The mark of the wrapper.
    pub(super) mark: Mark,
    /// The record of its mark, unless that is of this run only.
    record: Option<Vec<u8>>,
    pub(super) weight: u64,
    pub(super) elements: u64,
    /// Elements that do not fit their streams and became dead letters.
    pub(super) refused: u64,
    /// Why the first of them does not.
    pub(super) refusal: Option<String>,
    pub(super) newest: Option<Timestamp>,
    /// What the batch had, in case it is not stored.
    pub(super) tally: Tally,
}

/// How many messages a batch has for each stream that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally(BTreeMap<Option<String>, u64>);

impl Tally {
    /// That of a batch.
    pub(super) fn of(batch: &Batch) -> Self {
        let parts = batch.parts.iter();
        let elements =
            parts.map(|part| (Some(part.stream.to_string()), part.elements.len() as u64));
        let others = batch.undecodable.iter().map(|one| (one.stream.clone(), 1));
        let mut tally = Self::default();
        for (stream, count) in elements.chain(others) {
            *tally.0.entry(stream).or_default() += count;
        }
        tally
    }
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
    pub(super) app: App,
    pub(super) file: Arc<WrapperFile>,
    letters: Arc<DeadLetters>,
    /// The source of its streams.
    pub(super) key: String,
    progress: Progress,
    /// The count of retractions before the first append.
    retractions: u64,
    streams: HashMap<Arc<str>, (Arc<StreamDefinition>, Arc<Entry>)>,
    /// The keys of the announced devices that streams are of.
    pub(super) devices: HashMap<Arc<str>, String>,
    repeats: Repeats,
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
            devices: HashMap::new(),
            repeats: Repeats::default(),
        };
        storer.register().await;
        Ok(storer)
    }

    /// Continues the wrapper of this former name, if nothing was stored under the present one since.
    ///
    /// # Errors
    /// The log failed; the inner error is one that no retry repairs: the former wrapper is still there, or never
    /// was.
    pub(super) async fn continue_from(
        &mut self,
        former: &str,
    ) -> Result<Result<(), WrapperError>, StoreError> {
        if former == self.file.name {
            return Ok(Ok(()));
        }
        match self.progress.relation(&self.app, former).await? {
            Former::Newer if exists(&self.app, former) => {
                let error =
                    WrapperError::settings(format!("the wrapper {former:?} is still there"));
                let hint = "remove its file, or the key `continues` of this one";
                return Ok(Err(error.with_hint(hint)));
            }
            Former::Newer => {}
            Former::Unknown if self.progress.is_new() => {
                let text = format!("no wrapper {former:?} ever ran on this node");
                let hint = "correct the key `continues`, or remove it to begin without a mark";
                return Ok(Err(WrapperError::settings(text).with_hint(hint)));
            }
            Former::Unknown | Former::Done => return Ok(Ok(())),
            Former::Separate => {
                let text = format!(
                    "`continues` has no effect: elements were stored under this name after the wrapper {former:?} \
                     had begun, so it continues at its own mark"
                );
                let notices = &self.app.observability.notices;
                notices.notify(NoticeKind::Link, &self.file.name, text);
                return Ok(Ok(()));
            }
        }
        let level = self.progress.level();
        let before = Progress::recover(&self.app, former, level).await?;
        if let Some(record) = self.progress.continue_from(&before)? {
            self.append_record(&record).await?.await?;
            let written = self.app.storage.log.counters().bytes;
            self.progress.stored(record, written);
        }
        Ok(Ok(()))
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
            stream_entity(&self.file, &entry.name, &definition, None)
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
    pub(super) async fn store(&mut self, mut batch: Batch) -> Result<(Storing, u64), StoreError> {
        let weight = batch.weight();
        let beyond_share = self.take_beyond_share(&mut batch);
        let Batch {
            parts,
            undecodable,
            lost,
            devices,
            mark,
            has_volatile_mark,
            drops_repeats,
            sender,
        } = batch;
        for lost in lost {
            self.record_lost(&lost);
        }
        self.take_devices(devices).await?;
        let received = clock::now();
        let decoded_none = undecodable.len();
        let undecodable = undecodable.into_iter();
        let mut letters: Vec<PeerLetter> = undecodable.map(|one| letter(one, received)).collect();
        for part in &beyond_share {
            letters.extend(refused_part(part, BEYOND_SHARE, received));
        }
        let mut prepared: Vec<Prepared> = Vec::with_capacity(parts.len());
        for part in parts {
            let (kept, refused) = self.prepare(part, received).await?;
            letters.extend(refused);
            let Some(kept) = kept else { continue };
            let same = |other: &&mut Prepared| other.entry.name == kept.entry.name;
            match prepared.iter_mut().find(same) {
                Some(other) => other.elements.extend(kept.elements),
                None => prepared.push(kept),
            }
        }
        let dead_count = letters.len() as u64;
        let refused = dead_count - decoded_none as u64;
        let refusal = letters.get(decoded_none).map(|one| one.reason().to_owned());
        if drops_repeats {
            self.drop_repeats(&mut prepared).await?;
        }
        let (mut elements, mut newest) = (0, None);
        for part in &prepared {
            elements += part.elements.len() as u64;
            let times = part.elements.iter().map(|element| element.source_time);
            newest = newest.max(times.max());
            if let Some(sender) = &sender {
                self.charge(sender, part);
            }
        }
        let mut acks = self.put_aside(letters).await?;
        if weight > BYTES_MAX {
            self.append_first(&mut prepared, &mut acks).await?;
        }
        let record = match has_volatile_mark {
            true => None,
            false => {
                let record = self.progress.begin(&mark, &mut prepared)?;
                acks.push_back(self.append_record(&record).await?);
                Some(record)
            }
        };
        for part in prepared {
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
            refusal,
            newest,
            tally: Tally::default(),
        };
        Ok((storing, dead_count))
    }

    /// Appends the first elements of a large batch, without a position at the origin, until the rest fits one
    /// append. If the node ends before the rest is stored, a peer that repeats sends these elements again.
    async fn append_first(
        &self,
        prepared: &mut Vec<Prepared>,
        acks: &mut VecDeque<Appended>,
    ) -> Result<(), StoreError> {
        let weight =
            |elements: &[StreamElement]| elements.iter().map(element_weight).sum::<usize>();
        let mut left: usize = prepared.iter().map(|part| weight(&part.elements)).sum();
        for part in prepared.iter_mut() {
            while left > BATCH_BYTES_MAX && !part.elements.is_empty() {
                let mut bytes = 0;
                let fits = part.elements.iter().take_while(|element| {
                    bytes += element_weight(element);
                    bytes <= PIECE_BYTES
                });
                let count = fits.count().max(1);
                let first: Vec<StreamElement> = part.elements.drain(..count).collect();
                left = left.saturating_sub(weight(&first));
                let appended = part.entry.append_derived(self.retractions, &first);
                acks.push_back(appended.await?);
            }
        }
        prepared.retain(|part| !part.elements.is_empty());
        Ok(())
    }

    /// Whether a batch needs more new streams, or more room for their definitions, than the share of its sender
    /// has left.
    pub(super) fn exceeded_share(&self, batch: &Batch) -> Option<ShareExceeded> {
        let Sender {
            account,
            definitions_max,
        } = batch.sender.as_ref()?;
        let (most, most_bytes) = (*definitions_max)?;
        let mut new: BTreeMap<&str, usize> = BTreeMap::new();
        for part in &batch.parts {
            if self.app.catalogue.get(&part.stream).is_none() {
                new.insert(&part.stream, text_bytes(&part.definition));
            }
        }
        let definition_bytes: usize = new.values().sum();
        if new.is_empty() {
            return None;
        }
        let used = self.app.shares.definitions(account, &self.app.catalogue);
        let is_within =
            used.streams + new.len() <= most && used.bytes + definition_bytes <= most_bytes;
        (!is_within).then_some(ShareExceeded { definition_bytes })
    }

    /// Counts elements for the share of their sender.
    fn charge(&self, sender: &Sender, part: &Prepared) {
        let bytes: usize = part.elements.iter().map(element_weight).sum();
        let shares = &self.app.shares;
        if shares.count(&part.entry, &sender.account, bytes as u64) {
            let app = self.app.clone();
            // The batch does not wait: after a crash the stream counts for the account before.
            tokio::task::spawn_blocking(move || app.shares.save());
        }
    }

    /// A batch has reached the level of its streams.
    pub(super) fn stored(&mut self, storing: Storing) {
        if let Some(record) = storing.record {
            let written = self.app.storage.log.counters().bytes;
            self.progress.stored(record, written);
        }
    }

    /// The parts of a batch without a mark that is kept whose streams are new, if they are beyond the share of its
    /// sender.
    fn take_beyond_share(&self, batch: &mut Batch) -> Vec<Part> {
        if !batch.has_volatile_mark || self.exceeded_share(batch).is_none() {
            return Vec::new();
        }
        let is_known = |part: &Part| self.app.catalogue.get(&part.stream).is_some();
        let (known, new) = std::mem::take(&mut batch.parts)
            .into_iter()
            .partition(is_known);
        batch.parts = known;
        new
    }

    /// Removes the elements that their streams have already.
    async fn drop_repeats(&mut self, prepared: &mut Vec<Prepared>) -> Result<(), StoreError> {
        let mut dropped = 0;
        for part in prepared.iter_mut() {
            dropped += self.repeats.remove(part).await?;
        }
        prepared.retain(|part| !part.elements.is_empty());
        if dropped > 0 {
            let detail = format!("{dropped} elements that were stored before");
            let drops = &self.app.observability.drops;
            drops.record_times(
                dropped,
                Hop::Element,
                "repeated",
                &self.file.name,
                detail,
                None,
            );
        }
        Ok(())
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
        received: Timestamp,
    ) -> Result<(Option<Prepared>, Vec<PeerLetter>), StoreError> {
        let entry = match self.stream(&part.stream, &part.definition).await? {
            Ok(entry) => entry,
            Err(reason) => return Ok((None, refused_part(&part, &reason, received))),
        };
        let schema = entry.log.schema();
        let mut refused = Vec::new();
        let mut kept = part.elements;
        kept.retain(|element| {
            let checked = schema.check(element).map_err(|error| error.to_string());
            match checked.and_then(|()| check_size(element)) {
                Ok(()) => true,
                Err(reason) => {
                    let (stream, definition) = (&part.stream, &part.definition);
                    refused.push(refused_element(
                        stream, definition, element, reason, received,
                    ));
                    false
                }
            }
        });
        let prepared = (!kept.is_empty()).then_some(Prepared {
            entry,
            elements: kept,
        });
        Ok((prepared, refused))
    }

    /// Opens a stream; the inner error is one that no retry repairs.
    pub(super) async fn stream(
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
        if let Some(reason) = refusal(&self.app, &self.file, name) {
            return Ok(Err(reason));
        }
        let spec = StreamSpec {
            name: name.to_string(),
            schema: definition.schema.clone(),
            source: self.key.clone(),
            level: definition.level.or(self.file.keys.level),
        };
        let (app, file) = (&self.app, &self.file);
        let spec = spec.of_renamed(app);
        let may_take = |owner: &str| {
            let former = file.keys.continues.as_deref();
            let is_former = former.is_some() && wrapper_name(owner) == former;
            // A message must not choose whose stream it continues.
            (file.names_stream(name) || is_former) && is_orphan(app, owner)
        };
        match spec.define_or_take(app, may_take).await {
            Ok(entry) => {
                let device = self.devices.get(name).map(String::as_str);
                let entity = stream_entity(file, &entry.name, definition, device);
                app.registrar.publish(vec![entity]).await;
                app.observability.ledger.claimed(&self.key, [&*entry.name]);
                let known = (definition.clone(), entry.clone());
                self.streams.insert(name.clone(), known);
                Ok(Ok(entry))
            }
            // A definition that is too large stays so.
            Err(CatalogueError::Store(StoreError::Log(error)))
                if !matches!(error, Error::TooLarge { .. }) =>
            {
                Err(error.into())
            }
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Keeps dead letters.
    async fn put_aside(&self, letters: Vec<PeerLetter>) -> Result<VecDeque<Appended>, StoreError> {
        let mut acks = VecDeque::with_capacity(letters.len());
        for one in letters {
            let name = &self.file.name;
            let drops = &self.app.observability.drops;
            let hint = format!("chappe wrapper dead-letters {name}");
            drops.record(
                Hop::Element,
                "undecodable",
                name,
                one.reason().to_owned(),
                Some(hint),
            );
            if let Some(stream) = one.stream() {
                let mut loss = Loss::now(stream, LossKind::Refused, DEAD_LETTER, 1);
                // By this time it is found when the letter is sent again.
                loss.noticed = (one.received().0, one.received().0);
                self.app.observability.ledger.note(loss);
            }
            acks.push_back(put_letter(&self.app, name, &self.letters, one).await?);
        }
        Ok(acks)
    }

    /// Counts what was received, is not stored, and is not repeated.
    pub(super) fn record_unstored(&self, tally: Tally, reason: &'static str) {
        for (stream, messages) in tally.0 {
            self.record_lost(&Lost {
                stream,
                reason,
                messages,
            });
        }
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
            *row.lost.entry(lost.reason.to_owned()).or_default() += times;
        });
    }
}

/// Bytes of the texts of a definition.
fn text_bytes(definition: &StreamDefinition) -> usize {
    let fields = definition.schema.fields.iter().map(|field| {
        let texts = [&field.unit, &field.observed_property, &field.description];
        field.name.len() + texts.into_iter().flatten().map(String::len).sum::<usize>()
    });
    definition.schema.key.as_ref().map_or(0, String::len) + fields.sum::<usize>()
}

/// Why a wrapper must not write a stream of this name, if it must not.
pub(super) fn refusal(app: &App, file: &WrapperFile, name: &str) -> Option<String> {
    if name == AUDIT {
        return Some(format!("{AUDIT} belongs to the node"));
    }
    if let Err(error) = check_name(name) {
        return Some(error.to_string());
    }
    let limit = file.keys.limits.streams as usize;
    let is_new = app.catalogue.get(name).is_none();
    let count = || app.catalogue.stream_count(&wrapper_key(&file.name));
    (is_new && count() >= limit).then(|| format!("the wrapper already has {limit} streams"))
}

/// Counts dead letters that were dropped for newer ones.
fn record_dropped(app: &App, peer: &str, count: u64) {
    if count > 0 {
        let detail = "the oldest dead letters were dropped for newer ones";
        let hint = "send the dead letters again or discard them, or raise their limit in the file";
        app.observability.drops.record_times(
            count,
            Hop::Element,
            "dead_letter_dropped",
            peer,
            detail,
            Some(hint.to_owned()),
        );
    }
}

/// Queues a dead letter of the wrapper or exporter `peer`; waits while the log's queue is full.
pub(super) async fn put_letter(
    app: &App,
    peer: &str,
    letters: &Arc<DeadLetters>,
    letter: PeerLetter,
) -> Result<Appended, StoreError> {
    let dropped_before = letters.dropped();
    loop {
        let (letters, letter) = (letters.clone(), letter.clone());
        let dropped = letters.clone();
        // The first letter creates a stream, which waits for the disk.
        let put = tokio::task::spawn_blocking(move || letters.put_peer(letter)).await;
        match put {
            Ok(Ok(appended)) => {
                record_dropped(app, peer, dropped.dropped().saturating_sub(dropped_before));
                return Ok(appended);
            }
            Ok(Err(chappe_links::LinkError::Store(StoreError::Log(Error::QueueFull {
                bytes,
                ..
            })))) => app.storage.log.room(bytes).await,
            Ok(Err(chappe_links::LinkError::Store(error))) => return Err(error),
            Ok(Err(_)) | Err(_) => return Err(StoreError::Log(Error::Closed)),
        }
    }
}

/// Refuses an element that is too large for the log. Otherwise the peer would repeat it for ever.
///
/// # Errors
/// How large it is.
pub(super) fn check_size(element: &StreamElement) -> Result<(), String> {
    let values = element.values.iter().map(Value::record_bytes_max);
    let key = element.key.as_ref().map_or(0, String::len);
    match RECORD_HEAD_BYTES + key + values.sum::<usize>() < RECORD_BYTES_MAX {
        true => Ok(()),
        false => encode_element(element, 0)
            .map(drop)
            .map_err(|error| error.to_string()),
    }
}

/// A message that cannot be decoded, as a dead letter.
fn letter(one: Undecodable, received: Timestamp) -> PeerLetter {
    let message = Message {
        stream: one.stream,
        reason: one.reason,
        received,
        bytes: one.message,
    };
    match one.is_cut {
        true => PeerLetter::Beginning(message),
        false => PeerLetter::Message(message),
    }
}

/// The elements of a part that cannot be stored, as dead letters.
fn refused_part(part: &Part, reason: &str, received: Timestamp) -> Vec<PeerLetter> {
    let (stream, definition) = (&part.stream, &part.definition);
    let refused =
        |element| refused_element(stream, definition, element, reason.to_owned(), received);
    part.elements.iter().map(refused).collect()
}

/// An element that cannot be stored, as a dead letter.
fn refused_element(
    stream: &str,
    definition: &StreamDefinition,
    element: &StreamElement,
    reason: String,
    received: Timestamp,
) -> PeerLetter {
    let schema = definition.schema.clone();
    let (stream, kept) = (stream.to_owned(), element.clone());
    match RefusedElement::new(stream.clone(), reason.clone(), received, schema, kept) {
        Ok(refused) => PeerLetter::Element(refused),
        // No stream could store it.
        Err(_) => {
            let mut bytes = shown(element, &definition.schema).into_bytes();
            bytes.truncate(BEGINNING_BYTES);
            PeerLetter::Beginning(Message {
                stream: Some(stream),
                reason,
                received,
                bytes,
            })
        }
    }
}

/// An element as JSON.
pub(super) fn shown(element: &StreamElement, schema: &StreamSchema) -> String {
    let view = ElementView {
        stream: None,
        element,
        schema,
    };
    serde_json::to_string(&view).unwrap_or_default()
}

/// Whether a source was a wrapper or a link that does not exist any more, or a topic before topics were wrappers.
fn is_orphan(app: &App, owner: &str) -> bool {
    match wrapper_name(owner) {
        Some(wrapper) => !exists(app, wrapper),
        None if owner == FORMER_TOPICS => true,
        None => links::link_name(owner).is_some_and(|link| links::is_removed(app, link)),
    }
}

/// The registry entity of a stream of a wrapper, or of a device that its peer announces.
pub(super) fn stream_entity(
    file: &WrapperFile,
    name: &str,
    definition: &StreamDefinition,
    device: Option<&str>,
) -> Entity {
    let text = definition.description.as_deref();
    let wrapper = wrapper_key(&file.name);
    let producer = Producer {
        key: device.unwrap_or(&wrapper),
        types: &file.keys.types,
        scopes: &file.keys.scopes,
        is_platform: device.is_some(),
    };
    producer.stream(name, &definition.schema, text)
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
