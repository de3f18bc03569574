//! Reads a file into the registry: once to check it, and again to change anything.

use std::collections::VecDeque;
use std::io::{BufRead, Seek, SeekFrom};

use super::quads::QuadReader;
use super::uddi::UddiReader;
use super::{Format, ImportError};
use crate::entity::Entity;
use crate::error::Error;
use crate::limits::Room;
use crate::record::Step;
use crate::registry::{Publication, Registry};
use crate::state::State;
use crate::uddi::restore::{self, Value};

/// Size of the entities of one change.
const BATCH_BYTES: usize = 256 * 1024;
/// Number of the entities of one change.
const BATCH_ITEMS: usize = 256;
/// Changes in flight.
const IN_FLIGHT: usize = 8;
/// Attempts at a change that another writer of a shared journal overtakes.
const MAX_ATTEMPTS: usize = 64;

/// Rules for an import.
pub struct ImportRules<'a> {
    /// The owner of entities that name none.
    pub importer: &'a str,
    /// Whether entities keep the owners that the file names; otherwise all are the importer's.
    pub keeps_owners: bool,
    /// The room for all entities after the import.
    pub room: Room,
    /// The time of the import, of UDDI data.
    pub unix_ms: i64,
    /// Whether the entity with this key, if the file has its key, and this owner is left out.
    pub is_left_out: &'a dyn Fn(Option<&str>, &str) -> bool,
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Entities of the file; in UDDI XML its elements.
    pub entities: u64,
    /// Those that are left out.
    pub left_out: u64,
}

/// An entity or value of a file.
struct Item {
    line: u64,
    bytes: usize,
    owner: String,
    content: Content,
}

enum Content {
    Entity(Entity),
    Uddi(Value),
}

enum Reader<R> {
    Quads(Box<QuadReader<R>>),
    Uddi(UddiReader<R>),
}

impl<R: BufRead> Reader<R> {
    fn new(format: Format, reader: R) -> Self {
        match format {
            Format::NQuads => Self::Quads(Box::new(QuadReader::nquads(reader))),
            Format::TriG => Self::Quads(Box::new(QuadReader::trig(reader))),
            Format::UddiXml => Self::Uddi(UddiReader::new(reader)),
        }
    }

    /// The next item, and whether it is left out.
    fn read(&mut self, rules: &ImportRules<'_>) -> Result<Option<(Item, bool)>, ImportError> {
        let owner = |named: Option<String>| match named {
            Some(owner) if rules.keeps_owners => owner,
            _ => rules.importer.to_owned(),
        };
        match self {
            Self::Quads(reader) => {
                let Some(read) = reader.read()? else {
                    return Ok(None);
                };
                let mut entity = read.entity;
                entity.owner = owner(read.has_owner.then(|| std::mem::take(&mut entity.owner)));
                let is_left_out = (rules.is_left_out)(Some(&entity.key), &entity.owner);
                let item = Item {
                    line: read.line,
                    bytes: entity.counted_bytes(),
                    owner: entity.owner.clone(),
                    content: Content::Entity(entity),
                };
                Ok(Some((item, is_left_out)))
            }
            Self::Uddi(reader) => Ok(reader.read()?.map(|read| {
                let item = Item {
                    line: read.line,
                    bytes: read.bytes,
                    owner: owner(read.owner),
                    content: Content::Uddi(read.value),
                };
                let is_left_out = (rules.is_left_out)(None, &item.owner);
                (item, is_left_out)
            })),
        }
    }
}

impl Item {
    /// The steps that put it into `state`.
    fn steps(
        &self,
        state: &State,
        unix_ms: i64,
        random: &mut dyn FnMut() -> u128,
    ) -> Result<Vec<Step>, Error> {
        match &self.content {
            Content::Entity(entity) => {
                if let Some((rule, _)) = state.rule_of(&entity.key)
                    && rule.owner != entity.owner
                {
                    let (key, owner) = (entity.key.clone(), rule.owner);
                    return Err(Error::NotOwner { key, owner });
                }
                let is_new = state.get(&entity.key).as_ref() != Some(entity);
                Ok(is_new
                    .then(|| Step::Publish(entity.clone()))
                    .into_iter()
                    .collect())
            }
            Content::Uddi(value) => {
                let stamp = restore::stamp(&self.owner, unix_ms);
                let steps = restore::steps(state, value, &stamp, random);
                steps.map_err(|error| Error::InvalidEntity {
                    field: "the element",
                    reason: format!("is refused: {error}"),
                })
            }
        }
    }
}

impl Registry {
    /// Imports a file. It is read twice: first all of it is checked, and nothing changes if a line is
    /// refused. Then its entities are published in batches, in order; those that are in the registry already are not
    /// changed. Blocks the calling thread. `random` makes the keys of assertions, and `progress` is called with the
    /// number of entities imported so far.
    ///
    /// # Errors
    /// [`ImportError::Refused`] with the first line that is refused; [`ImportError::Stopped`] if the journal
    /// fails during the import, or another change takes a key or the room meanwhile.
    pub fn import<R: BufRead + Seek>(
        &self,
        format: Format,
        mut reader: R,
        rules: &ImportRules<'_>,
        random: &mut dyn FnMut() -> u128,
        mut progress: impl FnMut(u64),
    ) -> Result<Imported, ImportError> {
        let start = reader.stream_position()?;
        self.check_import(format, &mut reader, rules, random)?;
        reader.seek(SeekFrom::Start(start))?;
        let mut items = Reader::new(format, &mut reader);
        let mut imported = Imported::default();
        let mut run = Run {
            registry: self,
            rules,
            random,
            in_flight: VecDeque::new(),
            entities: 0,
        };
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some((item, is_left_out)) = items.read(rules)? {
            imported.entities += 1;
            if is_left_out {
                imported.left_out += 1;
                continue;
            }
            // A value of UDDI may name the one before it.
            let is_alone = matches!(item.content, Content::Uddi(_));
            let is_full = bytes + item.bytes > BATCH_BYTES || batch.len() == BATCH_ITEMS;
            if !batch.is_empty() && (is_full || is_alone) {
                run.submit(std::mem::take(&mut batch))?;
                bytes = 0;
                progress(run.entities);
            }
            bytes += item.bytes;
            batch.push(item);
        }
        if !batch.is_empty() {
            run.submit(batch)?;
        }
        run.finish()?;
        progress(run.entities);
        Ok(imported)
    }

    /// Checks a file without changing anything.
    fn check_import<R: BufRead>(
        &self,
        format: Format,
        reader: R,
        rules: &ImportRules<'_>,
        random: &mut dyn FnMut() -> u128,
    ) -> Result<(), ImportError> {
        let state = self.snapshot();
        let mut items = Reader::new(format, reader);
        let mut bytes = state.bytes();
        while let Some((item, is_left_out)) = items.read(rules)? {
            if is_left_out {
                continue;
            }
            let refused = |reason: String| ImportError::Refused {
                line: item.line,
                reason,
            };
            // An assertion names businesses of the file, which are not there yet.
            let steps = match &item.content {
                Content::Uddi(Value::Assertion(_)) => Vec::new(),
                _ => item
                    .steps(&state, rules.unix_ms, random)
                    .map_err(|error| refused(error.to_string()))?,
            };
            for step in steps {
                match step {
                    Step::Publish(entity) => {
                        entity
                            .validate()
                            .map_err(|error| refused(error.to_string()))?;
                        bytes += entity.counted_bytes();
                        bytes -= state.bytes_at(&entity.key);
                    }
                    Step::Remove(key) => bytes -= state.bytes_at(&key),
                }
            }
            if bytes > rules.room.total_bytes {
                let limit = rules.room.total_bytes;
                let reason =
                    format!("with it the registry has {bytes} bytes; the limit is {limit}");
                return Err(refused(reason));
            }
        }
        Ok(())
    }
}

/// The second reading.
struct Run<'a> {
    registry: &'a Registry,
    rules: &'a ImportRules<'a>,
    random: &'a mut dyn FnMut() -> u128,
    in_flight: VecDeque<(Vec<Item>, Option<Publication>)>,
    /// Entities that are durable.
    entities: u64,
}

impl Run<'_> {
    fn begin(&mut self, items: &[Item]) -> Result<Option<Publication>, Error> {
        let (unix_ms, random) = (self.rules.unix_ms, &mut *self.random);
        let planned = self.registry.transact(&self.rules.room, |state| {
            let mut steps = Vec::new();
            for item in items {
                steps.extend(item.steps(state, unix_ms, random)?);
            }
            Ok::<_, Error>((steps, ()))
        });
        planned.map(|(publication, ())| publication)
    }

    fn submit(&mut self, items: Vec<Item>) -> Result<(), ImportError> {
        if self.in_flight.len() >= IN_FLIGHT {
            self.complete_oldest()?;
        }
        let publication = match self.begin(&items) {
            Ok(publication) => publication,
            Err(error) if error.is_transient() => {
                // Others are in the way; the changes before make room.
                while !self.in_flight.is_empty() {
                    self.complete_oldest()?;
                }
                let again = self.begin(&items);
                again.map_err(|error| self.stopped(&items, error))?
            }
            Err(error) => return Err(self.stopped(&items, error)),
        };
        self.in_flight.push_back((items, publication));
        Ok(())
    }

    fn complete_oldest(&mut self) -> Result<(), ImportError> {
        let Some((items, mut publication)) = self.in_flight.pop_front() else {
            return Ok(());
        };
        for _ in 0..MAX_ATTEMPTS {
            let outcome = publication.take().map_or(Ok(0), Publication::wait);
            match outcome {
                Ok(_) => {
                    self.entities += items.len() as u64;
                    return Ok(());
                }
                Err(error) if error.is_conflict() => {
                    let again = self.begin(&items);
                    publication = again.map_err(|error| self.stopped(&items, error))?;
                }
                Err(error) => return Err(self.stopped(&items, error)),
            }
        }
        let error = Error::Busy {
            value: MAX_ATTEMPTS,
        };
        Err(self.stopped(&items, error))
    }

    fn finish(&mut self) -> Result<(), ImportError> {
        while !self.in_flight.is_empty() {
            self.complete_oldest()?;
        }
        Ok(())
    }

    fn stopped(&self, items: &[Item], reason: Error) -> ImportError {
        ImportError::Stopped {
            line: items.first().map_or(0, |item| item.line),
            reason,
            entities: self.entities,
        }
    }
}
