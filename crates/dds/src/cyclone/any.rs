//! A reader of a topic whose type its writers announce.
//!
//! It follows the topic's writers in discovery, has a reader of the library for each name of a type among them, with or
//! without a key, and requests their types. A reader is made when a type of its name is known. The samples of a writer whose
//! type is not known yet wait, those of others do not.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::participant::Known;
use super::reader::CycloneReader;
use crate::backend::{AnnouncedType, Guid, Reader, Sample};
use crate::types::{Structure, TypeHash, resolve};
use crate::unsafe_cyclone::{Found, Presence, WriterList};
use crate::{DdsError, Qos, Topic};

/// The largest number of types on one topic; reason: any host in the domain can announce an unlimited number.
const TYPES_MAX: usize = 8;
/// The largest number of writers of one topic; reason: the same.
const WRITERS_MAX: usize = 1_024;
/// How long a type is waited for; reason: a lost request is repeated within a second, and a writer that answers none has none.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of samples whose types are waited for; reason: a writer that does not answer decides about them.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// The interval of looking for a requested type; reason: the library reports no event.
const INTERVAL: Duration = Duration::from_millis(20);
/// Writers whose types are looked for at once; reason: each takes some microseconds, and a thousand could be made up.
const LOOKED_FOR: usize = 32;
/// The shortest interval of looking at all writers again, after some were ignored; reason: there may be thousands of them.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// The largest number of faults kept; reason: any host in the domain can cause an unlimited number.
const FAULTS_MAX: usize = 64;

pub(super) struct AnyReader {
    presence: Arc<Presence>,
    topic: String,
    qos: Qos,
    list: WriterList,
    writers: BTreeMap<Guid, Announced>,
    readers: Vec<Typed>,
    /// Samples of writers whose type is requested: as many as the reader holds.
    waiting: VecDeque<Sample>,
    waiting_bytes: usize,
    dropped: u64,
    /// Lost samples of readers that were given up.
    lost_before: u64,
    /// The last writer whose type was looked for.
    last_asked: Guid,
    ignored: Ignored,
    faults: VecDeque<String>,
    matched: AtomicUsize,
}

/// Writers that were ignored because there were too many of them, or of their types.
struct Ignored {
    are_any: bool,
    /// Whether a writer has left since, so that there may be room.
    may_fit: bool,
    /// When all writers were looked at.
    listed: Instant,
    /// Whether they are being looked at again, so that a fault is not repeated.
    is_again: bool,
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

/// The reader for one name of a type, with or without a key.
struct Typed {
    type_name: String,
    is_keyless: bool,
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
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            dropped: 0,
            lost_before: 0,
            last_asked: Guid([0; 16]),
            ignored: Ignored {
                are_any: false,
                may_fit: false,
                listed: Instant::now(),
                is_again: false,
            },
            faults: VecDeque::new(),
            matched: AtomicUsize::new(0),
        })
    }

    fn fault(&mut self, writer: Guid, why: &str) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push_back(format!("writer {writer}: {why}"));
        }
    }

    /// Ignores a writer until there is room.
    fn ignore(&mut self, writer: Guid, why: &str) {
        self.ignored.are_any = true;
        if !self.ignored.is_again {
            self.fault(writer, why);
        }
    }

    fn discover(&mut self) -> Result<(), DdsError> {
        self.read_list()?;
        let Ignored {
            are_any, may_fit, ..
        } = self.ignored;
        match are_any && may_fit && self.ignored.listed.elapsed() >= LIST_INTERVAL {
            true => self.list_again(),
            false => Ok(()),
        }
    }

    /// Looks at all writers again, the ignored ones among them.
    fn list_again(&mut self) -> Result<(), DdsError> {
        let list = WriterList::new(&self.presence)?;
        // Writers that left before are in the former list only.
        self.read_list()?;
        self.list = list;
        self.ignored = Ignored {
            are_any: false,
            may_fit: false,
            listed: Instant::now(),
            is_again: true,
        };
        for guid in self.writers.keys().copied().collect::<Vec<_>>() {
            let is_requested = |it: &Announced| matches!(it.of, Announcement::Requested(..));
            if !self.writers.get(&guid).is_some_and(is_requested) {
                self.read(guid)?;
            }
        }
        self.read_list()?;
        self.ignored.is_again = false;
        Ok(())
    }

    fn read_list(&mut self) -> Result<(), DdsError> {
        while let Some(found) = self.list.next()? {
            if !found.is_alive {
                self.ignored.may_fit |= self.writers.remove(&found.guid).is_some();
            } else if found.topic.name == self.topic && !self.writers.contains_key(&found.guid) {
                self.add(found)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, found: Found) -> Result<(), DdsError> {
        let guid = found.guid;
        if self.writers.len() >= WRITERS_MAX {
            self.ignore(
                guid,
                "the topic has too many writers, it is ignored until one leaves",
            );
            return Ok(());
        }
        if found.topic.check().is_err() {
            self.fault(guid, "the name of its type is not valid, it is ignored");
            return Ok(());
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
        let of = match found.announced_type() {
            AnnouncedType::Hash(hash) => Announcement::Requested(hash, Instant::now()),
            AnnouncedType::Known(of) => Announcement::Known(of),
            AnnouncedType::Name => Announcement::Unknown,
        };
        let is_requested = matches!(of, Announcement::Requested(..));
        let type_name = found.topic.type_name;
        self.writers.insert(guid, Announced { type_name, of });
        if !is_requested {
            self.read(guid)?;
            self.remember(guid);
        }
        Ok(())
    }

    /// Notes the type of a writer for its samples that are read after it has left.
    fn remember(&mut self, guid: Guid) {
        if let Some(Announced { type_name, of }) = self.writers.get(&guid)
            && let Announcement::Known(of) = of
        {
            let is_keyless = is_keyless_writer(guid);
            let is_same =
                |it: &&mut Typed| it.type_name == *type_name && it.is_keyless == is_keyless;
            if let Some(typed) = self.readers.iter_mut().find(is_same) {
                typed.last = Some(of.clone());
            }
        }
    }

    /// Has a reader for the type of a writer. It is made when the type is known: what a reader acknowledges must not be
    /// unreadable because its writer left.
    fn read(&mut self, guid: Guid) -> Result<(), DdsError> {
        let is_keyless = is_keyless_writer(guid);
        let Some(type_name) = self.writers.get(&guid).map(|it| it.type_name.clone()) else {
            return Ok(());
        };
        let is_same = |it: &Typed| it.type_name == type_name && it.is_keyless == is_keyless;
        if self.readers.iter().any(is_same) {
            return Ok(());
        }
        if self.readers.len() >= TYPES_MAX {
            // Those whose writers have all left make room.
            let writers = &self.writers;
            let is_used = |it: &Typed| writers.values().any(|one| one.type_name == it.type_name);
            let gone = self.readers.extract_if(.., |it| !is_used(it));
            self.lost_before += gone.map(|it| it.reader.lost()).sum::<u64>();
        }
        if self.readers.len() >= TYPES_MAX {
            self.ignore(
                guid,
                "the topic has too many types, it is ignored until one leaves",
            );
            return Ok(());
        }
        let qos = Qos {
            is_keyless,
            ..self.qos.clone()
        };
        let topic = Topic {
            name: self.topic.clone(),
            type_name: type_name.clone(),
        };
        let known = Arc::new(Known::new(&self.presence, false, &topic, &qos)?);
        self.readers.push(Typed {
            type_name,
            is_keyless,
            reader: CycloneReader::new(known.clone(), &qos),
            known,
            last: None,
        });
        Ok(())
    }

    /// Looks for requested types, of some writers in turn.
    fn resolve(&mut self) -> Result<(), DdsError> {
        let is_requested = |(guid, writer): (&Guid, &Announced)| {
            matches!(writer.of, Announcement::Requested(..)).then_some(*guid)
        };
        let later = self
            .writers
            .range(self.last_asked..)
            .skip_while(|(guid, _)| **guid == self.last_asked);
        let earlier = self.writers.range(..=self.last_asked);
        let asked = later.chain(earlier).filter_map(is_requested);
        let asked: Vec<Guid> = asked.take(LOOKED_FOR).collect();
        for guid in asked {
            self.last_asked = guid;
            let Some(writer) = self.writers.get_mut(&guid) else {
                continue;
            };
            let Announcement::Requested(hash, since) = &writer.of else {
                continue;
            };
            let presence = &self.presence;
            let found = resolve(hash, &mut |hash| presence.type_object(hash));
            let (of, fault) = match found {
                Ok(Some(of)) => (Announcement::Known(of), None),
                Ok(None) if since.elapsed() < PATIENCE => continue,
                Ok(None) => {
                    let why = "it does not answer requests for its type".to_owned();
                    (Announcement::Unknown, Some(why))
                }
                Err(error) => (Announcement::Unknown, Some(error.to_string())),
            };
            writer.of = of;
            if let Some(why) = fault {
                self.fault(guid, &why);
            }
            self.read(guid)?;
            self.remember(guid);
        }
        Ok(())
    }

    /// Passes on a sample, or keeps it until the type of its writer is known. `last` is its type if the writer has left.
    fn pass(&mut self, mut sample: Sample, last: Option<&Arc<Structure>>, into: &mut Vec<Sample>) {
        let has_earlier = self.waiting.iter().any(|it| it.writer == sample.writer);
        sample.of = match self.writers.get(&sample.writer).map(|writer| &writer.of) {
            Some(Announcement::Requested(..)) => return self.keep(sample),
            _ if has_earlier => return self.keep(sample),
            Some(Announcement::Known(of)) => Some(of.clone()),
            Some(Announcement::Unknown) => None,
            None => last.cloned(),
        };
        into.push(sample);
    }

    fn keep(&mut self, sample: Sample) {
        self.waiting_bytes += sample.payload.bytes.len();
        self.waiting.push_back(sample);
        while self.waiting.len() as u64 > u64::from(self.qos.held())
            || self.waiting_bytes > WAITING_BYTES_MAX
        {
            let dropped = self.waiting.pop_front();
            self.waiting_bytes -= dropped.map_or(0, |sample| sample.payload.bytes.len());
            self.dropped += 1;
        }
    }
}

/// Whether the writer's type has no key (RTPS 2.5, table 9.1).
const fn is_keyless_writer(guid: Guid) -> bool {
    guid.0[15] & 0x3f == 0x03
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
        self.resolve()?;
        self.waiting_bytes = 0;
        for sample in std::mem::take(&mut self.waiting) {
            match into.len() < most {
                true => self.pass(sample, None, into),
                false => self.keep(sample),
            }
        }
        let (mut matched, mut taken) = (0, Vec::new());
        for index in 0..self.readers.len() {
            let typed = &mut self.readers[index];
            let library = typed.known.end.lock();
            let library = library.unwrap_or_else(PoisonError::into_inner);
            matched += library.matched()?.len();
            drop(library);
            let room = most.saturating_sub(into.len());
            if room > 0 {
                typed.reader.take(room, &mut taken)?;
            }
            let last = typed.last.clone();
            for sample in taken.drain(..) {
                self.pass(sample, last.as_ref(), into);
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
        let lost = self.readers.iter().map(|typed| typed.reader.lost());
        lost.sum::<u64>() + self.lost_before + self.dropped
    }
}
