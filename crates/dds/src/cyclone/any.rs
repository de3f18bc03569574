//! A reader of a topic whose type its writers announce.
//!
//! It follows the topic's writers in discovery, has a reader of the library for each name of a type among them, and requests
//! their types. Samples stay in the library until the type of their writer is known.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::participant::Known;
use super::reader::CycloneReader;
use crate::backend::{Guid, Reader, Sample};
use crate::types::{Structure, TypeHash, resolve};
use crate::unsafe_cyclone::{Found, Presence, WriterList};
use crate::{DdsError, Qos, Topic};

/// The largest number of types on one topic; reason: any host in the domain can announce an unlimited number.
const TYPES_MAX: usize = 8;
/// The largest number of writers of one topic; reason: the same.
const WRITERS_MAX: usize = 1_024;
/// How long a type is waited for; reason: a lost request is repeated within a second, and a writer that answers none has none.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval of looking for a requested type; reason: the library reports no event.
const INTERVAL: Duration = Duration::from_millis(20);
/// The largest number of faults kept; reason: any host in the domain can cause an unlimited number.
const FAULTS_MAX: usize = 64;

pub(super) struct AnyReader {
    presence: Arc<Presence>,
    topic: String,
    qos: Qos,
    list: WriterList,
    writers: BTreeMap<Guid, Announced>,
    readers: Vec<Typed>,
    faults: VecDeque<String>,
    matched: AtomicUsize,
}

/// A writer of the topic.
struct Announced {
    type_name: String,
    of: Announcement,
}

/// What is known about the type of a writer.
enum Announcement {
    Requested(TypeHash, Instant),
    Known(Arc<Structure>),
    Unknown,
}

/// The reader for one name of a type.
struct Typed {
    type_name: String,
    known: Arc<Known>,
    reader: CycloneReader,
    /// The type of the last writer that announced one; samples of a writer that has left are of it.
    last: Option<Arc<Structure>>,
}

impl AnyReader {
    pub(super) fn new(
        presence: &Arc<Presence>,
        topic: &Topic,
        qos: &Qos,
    ) -> Result<Self, DdsError> {
        topic.check_for_reader()?;
        qos.check()?;
        Ok(Self {
            presence: presence.clone(),
            topic: topic.name.clone(),
            qos: Qos {
                any_encoding: true,
                ..qos.clone()
            },
            list: WriterList::new(presence)?,
            writers: BTreeMap::new(),
            readers: Vec::new(),
            faults: VecDeque::new(),
            matched: AtomicUsize::new(0),
        })
    }

    fn fault(&mut self, writer: Guid, why: &str) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push_back(format!("writer {writer}: {why}"));
        }
    }

    fn discover(&mut self) -> Result<(), DdsError> {
        while let Some(found) = self.list.next()? {
            if !found.is_alive {
                self.writers.remove(&found.guid);
            } else if found.topic.name == self.topic && !self.writers.contains_key(&found.guid) {
                self.add(found)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, found: Found) -> Result<(), DdsError> {
        let guid = found.guid;
        if self.writers.len() >= WRITERS_MAX {
            self.fault(guid, "the topic has too many writers, it is ignored");
            return Ok(());
        }
        let type_name = found.topic.type_name.clone();
        if !self.readers.iter().any(|it| it.type_name == type_name) {
            if self.readers.len() >= TYPES_MAX {
                self.fault(guid, "the topic has too many types, it is ignored");
                return Ok(());
            }
            if found.topic.check().is_err() {
                self.fault(guid, "the name of its type is not valid, it is ignored");
                return Ok(());
            }
            let known = Known::new(&self.presence, false, &found.topic, &self.qos)?;
            let known = Arc::new(known);
            self.readers.push(Typed {
                type_name: type_name.clone(),
                reader: CycloneReader::new(known.clone(), &self.qos),
                known,
                last: None,
            });
        }
        let requested = self.qos.announced();
        let missed = found.announced.misses(&requested);
        if !missed.is_empty() {
            let why = format!(
                "it offers less {} than is requested: {} instead of {requested}",
                missed.join(" and "),
                found.announced,
            );
            self.fault(guid, &why);
        }
        let of = match found.type_hash {
            Some(hash) => Announcement::Requested(hash, Instant::now()),
            None => Announcement::Unknown,
        };
        self.writers.insert(guid, Announced { type_name, of });
        Ok(())
    }

    /// Looks for requested types.
    fn resolve(&mut self) {
        let mut faults = Vec::new();
        for (guid, writer) in &mut self.writers {
            let Announcement::Requested(hash, since) = &writer.of else {
                continue;
            };
            let presence = &self.presence;
            let found = resolve(hash, &mut |hash| presence.type_object(hash));
            writer.of = match found {
                Ok(Some(of)) => {
                    let typed = self.readers.iter_mut();
                    for typed in typed.filter(|it| it.type_name == writer.type_name) {
                        typed.last = Some(of.clone());
                    }
                    Announcement::Known(of)
                }
                Ok(None) if since.elapsed() < PATIENCE => continue,
                Ok(None) => {
                    faults.push((*guid, "it does not answer requests for its type".to_owned()));
                    Announcement::Unknown
                }
                Err(error) => {
                    faults.push((*guid, error.to_string()));
                    Announcement::Unknown
                }
            };
        }
        for (guid, why) in faults {
            self.fault(guid, &why);
        }
    }

    fn is_waiting(&self, type_name: &str) -> bool {
        self.writers.values().any(|writer| {
            writer.type_name == type_name && matches!(writer.of, Announcement::Requested(..))
        })
    }
}

impl Reader for AnyReader {
    fn guid(&self) -> Guid {
        match self.readers.first() {
            Some(first) => first.reader.guid(),
            None => self.presence.guid(),
        }
    }

    fn take(&mut self, most: usize, into: &mut Vec<Sample>) -> Result<(), DdsError> {
        self.discover()?;
        self.resolve();
        let mut matched = 0;
        for index in 0..self.readers.len() {
            let is_waiting = self.is_waiting(&self.readers[index].type_name);
            let typed = &mut self.readers[index];
            let library = typed.known.end.lock();
            matched += library
                .unwrap_or_else(PoisonError::into_inner)
                .matched()?
                .len();
            let from = into.len();
            if is_waiting || from >= most {
                continue;
            }
            typed.reader.take(most - from, into)?;
            for sample in &mut into[from..] {
                sample.of = match self.writers.get(&sample.writer).map(|writer| &writer.of) {
                    Some(Announcement::Known(of)) => Some(of.clone()),
                    Some(_) => None,
                    None => typed.last.clone(),
                };
            }
        }
        self.matched.store(matched, Ordering::Relaxed);
        Ok(())
    }

    fn matched(&self) -> usize {
        self.matched.load(Ordering::Relaxed)
    }

    fn faults(&mut self) -> Vec<String> {
        self.faults.drain(..).collect()
    }

    fn look_again(&self) -> Option<Duration> {
        let mut writers = self.writers.values();
        writers
            .any(|writer| matches!(writer.of, Announcement::Requested(..)))
            .then_some(INTERVAL)
    }

    fn lost(&self) -> u64 {
        self.readers.iter().map(|typed| typed.reader.lost()).sum()
    }
}
