//! A participant of RustDDS: discovery and waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use rustdds::mio1::{self, Events, Interest, Poll, Token};
use rustdds::policy;
use rustdds::{
    DomainParticipant, DomainParticipantBuilder, DomainParticipantStatusEvent as Status,
    DomainParticipantStatusListener, GUID, QosPolicies, QosPolicyBuilder, RTPSEntity as _,
    StatusEvented as _, TopicKind,
};

use super::{reader, writer};
use crate::backend::{Event, Guid, Participant, ParticipantConfig, QosMismatch, Topic};
use crate::confine::confined;
use crate::name::{Name, announced_name};
use crate::qos::{Announced, AnnouncedDurability};
use crate::{DdsError, Durability, Qos, Reader, Reliability, Writer};

/// The largest number of remote ends for one local end, and of participants with names; reason: any host in the
/// domain can announce an unlimited number.
const PEERS_MAX: usize = 4_096;

const BELL: Token = Token(0);
const STATUS: Token = Token(1);

/// The matches of each local end, shared by a participant and its ends.
#[derive(Debug, Default)]
pub(super) struct Matches {
    ends: Mutex<BTreeMap<Guid, BTreeSet<Guid>>>,
    /// The first error that made the participant unusable, found where it could not be returned.
    broken: Mutex<Option<DdsError>>,
}

/// Wakes [`Participant::wait`]; called by the library's threads, too.
struct Bell {
    waker: mio1::Waker,
    #[cfg(feature = "planted")]
    participant: Guid,
}

struct RustDds {
    // Ends are dropped before the participant, which they notify.
    name: Option<Name>,
    status: DomainParticipantStatusListener,
    publisher: rustdds::Publisher,
    subscriber: rustdds::Subscriber,
    poll: Poll,
    events: Events,
    /// Further events from one status of the library.
    queued: VecDeque<Event>,
    bell: Arc<Bell>,
    matches: Arc<Matches>,
    names: BTreeMap<[u8; 12], String>,
    readers: usize,
    participant: DomainParticipant,
}

/// Joins a domain.
pub(crate) fn open(config: &ParticipantConfig) -> Result<Box<dyn Participant>, DdsError> {
    let local = config.interfaces.iter().any(IpAddr::is_loopback);
    let mut participant = guarded("taking part in the domain", || {
        let participant = confined(&config.interfaces, |marks| {
            DomainParticipantBuilder::new(config.domain)
                .with_only_networks(config.interfaces.iter().copied())
                .same_host_loopback(local)
                .socket_send_buffer_size(marks.send)
                .socket_receive_buffer_size(marks.receive)
                .build()
        })
        .map_err(|error| library("taking part in the domain", &error))?;
        let none = QosPolicies::qos_none();
        let publisher = participant.create_publisher(&none);
        let subscriber = participant.create_subscriber(&none);
        let doing = "making publisher and subscriber";
        let publisher = publisher.map_err(|error| library(doing, &error))?;
        let subscriber = subscriber.map_err(|error| library(doing, &error))?;
        let polled = |error: std::io::Error| library("watching the participant", &error);
        let poll = Poll::new().map_err(polled)?;
        let bell = mio1::Waker::new(poll.registry(), BELL).map_err(polled)?;
        let mut status = participant.status_listener();
        let registered = poll
            .registry()
            .register(&mut status, STATUS, Interest::READABLE);
        registered.map_err(polled)?;
        Ok(RustDds {
            name: None,
            status,
            publisher,
            subscriber,
            poll,
            events: Events::with_capacity(64),
            queued: VecDeque::new(),
            bell: Arc::new(Bell {
                waker: bell,
                #[cfg(feature = "planted")]
                participant: guid_of(participant.guid()),
            }),
            matches: Arc::default(),
            names: BTreeMap::new(),
            readers: 0,
            participant,
        })
    })?;
    participant.name = Some(Name::announce(&mut participant, config)?);
    Ok(Box::new(participant))
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        #[cfg(feature = "planted")]
        crate::planted::fail_if_planted(self.participant);
        // If the wake fails, the wait only runs into its timeout.
        let _ = self.waker.wake();
    }
}

impl Matches {
    pub(super) fn of(&self, here: Guid) -> usize {
        self.lock().get(&here).map_or(0, BTreeSet::len)
    }

    fn add(&self, here: Guid, there: Guid) {
        let mut all = self.lock();
        let ends = all.entry(here).or_default();
        if ends.len() < PEERS_MAX {
            ends.insert(there);
        }
    }

    /// Removes a remote end, or all ends of a participant. Returns the former pairs.
    fn remove(&self, gone: impl Fn(&Guid) -> bool) -> Vec<(Guid, Guid)> {
        let mut pairs = Vec::new();
        for (here, ends) in self.lock().iter_mut() {
            let lost = ends.iter().filter(|there| gone(there));
            pairs.extend(lost.map(|there| (*here, *there)));
            ends.retain(|there| !gone(there));
        }
        pairs
    }

    /// Marks the participant as unusable.
    pub(super) fn broke(&self, error: DdsError) {
        self.broken().get_or_insert(error);
    }

    /// Whether the participant is unusable.
    pub(super) fn is_broken(&self) -> bool {
        self.broken().is_some()
    }

    fn broken(&self) -> MutexGuard<'_, Option<DdsError>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Guid, BTreeSet<Guid>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RustDds {
    fn topic(&self, topic: &Topic, qos: &QosPolicies) -> Result<rustdds::Topic, DdsError> {
        let (name, type_name) = (topic.name.clone(), topic.type_name.clone());
        let made = self
            .participant
            .create_topic(name, type_name, qos, TopicKind::WithKey);
        made.map_err(|error| library("making the topic", &error))
    }

    fn told(&mut self, status: Status) -> Option<Event> {
        match status {
            Status::ParticipantDiscovered { dpd } => {
                let guid = guid_of(dpd.guid);
                if let Some(name) = &dpd.entity_name {
                    self.named(guid, name.chars().take(128).collect());
                }
                let name = self.names.get(&guid.prefix()).cloned();
                Some(Event::PeerFound { guid, name })
            }
            Status::ParticipantLost { id, .. } => {
                let mut prefix = [0; 12];
                prefix.copy_from_slice(id.as_ref());
                self.names.remove(&prefix);
                self.gone(|there| there.prefix() == prefix);
                Some(Event::PeerLost { prefix })
            }
            Status::ReaderLost { guid, .. } | Status::WriterLost { guid, .. } => {
                let lost = guid_of(guid);
                self.gone(|there| *there == lost);
                self.queued.pop_front()
            }
            Status::ReaderDetected { reader: end } | Status::WriterDetected { writer: end } => {
                let guid = guid_of(end.guid);
                if let Some(name) = announced_name(&end.topic_name, guid) {
                    self.named(guid, name);
                }
                None
            }
            Status::RemoteReaderMatched {
                local_writer: here,
                remote_reader: there,
            }
            | Status::RemoteWriterMatched {
                local_reader: here,
                remote_writer: there,
            } => {
                let (here, there) = (guid_of(here), guid_of(there));
                self.matches.add(here, there);
                Some(Event::Matched { here, there })
            }
            Status::RemoteReaderQosIncompatible {
                local_writer: here,
                remote_reader: there,
                requested_qos,
                offered_qos,
            }
            | Status::RemoteWriterQosIncompatible {
                local_reader: here,
                remote_writer: there,
                requested_qos,
                offered_qos,
            } => {
                let (here, there) = (guid_of(here), guid_of(there));
                Some(Event::QosMismatch(Box::new(QosMismatch {
                    here,
                    there,
                    peer: self.names.get(&there.prefix()).cloned(),
                    offered: announced(&offered_qos),
                    requested: announced(&requested_qos),
                })))
            }
            _ => None,
        }
    }

    fn named(&mut self, guid: Guid, name: String) {
        if self.names.len() < PEERS_MAX || self.names.contains_key(&guid.prefix()) {
            self.names.insert(guid.prefix(), name);
        }
    }

    fn gone(&mut self, gone: impl Fn(&Guid) -> bool) {
        let pairs = self.matches.remove(gone);
        let events = pairs
            .into_iter()
            .map(|(here, there)| Event::Unmatched { here, there });
        self.queued.extend(events);
    }
}

impl Participant for RustDds {
    fn guid(&self) -> Guid {
        guid_of(self.participant.guid())
    }

    fn writer(&mut self, topic: &Topic, qos: &Qos) -> Result<Box<dyn Writer>, DdsError> {
        topic.check()?;
        qos.check()?;
        let (matches, waker) = (self.matches.clone(), self.waker());
        guarded("making a writer", || {
            let policies = policies(qos, qos.window());
            let made = self.topic(topic, &policies)?;
            let writer = self.publisher.create_datawriter(&made, Some(policies));
            let writer = writer.map_err(|error| library("making a writer", &error))?;
            Ok(Box::new(writer::RustWriter::new(writer, qos, matches, waker)) as Box<dyn Writer>)
        })
    }

    fn reader(&mut self, topic: &Topic, qos: &Qos) -> Result<Box<dyn Reader>, DdsError> {
        topic.check()?;
        qos.check()?;
        let matches = self.matches.clone();
        guarded("making a reader", || {
            let policies = policies(qos, qos.held());
            let made = self.topic(topic, &policies)?;
            let reader = self.subscriber.create_datareader(&made, Some(policies));
            let mut reader = reader.map_err(|error| library("making a reader", &error))?;
            self.readers += 1;
            let token = Token(STATUS.0 + self.readers);
            let registered = self
                .poll
                .registry()
                .register(&mut reader, token, Interest::READABLE);
            registered.map_err(|error| library("watching a reader", &error))?;
            Ok(Box::new(reader::RustReader::new(reader, qos, matches)) as Box<dyn Reader>)
        })
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), DdsError> {
        if let Some(error) = self.matches.broken().clone() {
            return Err(error);
        }
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            polled => polled.map_err(|error| library("waiting", &error)),
        }
    }

    fn waker(&self) -> Waker {
        self.bell.clone().into()
    }

    fn event(&mut self) -> Option<Event> {
        if let Some(event) = self.queued.pop_front() {
            return Some(event);
        }
        loop {
            if self.matches.is_broken() {
                return None;
            }
            let status = guarded("reading events", || Ok(self.status.try_recv_status()));
            let status = status.unwrap_or_else(|error| {
                self.matches.broke(error);
                None
            })?;
            if let Some(event) = self.told(status) {
                return Some(event);
            }
        }
    }
}

/// Calls the library, and converts a panic to an error.
pub(super) fn guarded<T>(
    doing: &'static str,
    call: impl FnOnce() -> Result<T, DdsError>,
) -> Result<T, DdsError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
        let why = said.unwrap_or_else(|| "it said nothing".into());
        Err(DdsError::Panic { doing, why })
    })
}

pub(super) fn library(doing: &'static str, error: &dyn std::fmt::Display) -> DdsError {
    let why = error.to_string();
    DdsError::Library { doing, why }
}

pub(super) fn guid_of(guid: GUID) -> Guid {
    Guid(guid.to_bytes())
}

/// The policies of the library. `samples`: the window of a writer, the capacity of a reader.
fn policies(qos: &Qos, samples: u32) -> QosPolicies {
    let samples = i32::try_from(samples).unwrap_or(i32::MAX);
    let limits = policy::ResourceLimits {
        max_samples: samples,
        max_instances: samples,
        max_samples_per_instance: samples,
    };
    let history = match i32::try_from(qos.keep_last).unwrap_or(i32::MAX) {
        0 => policy::History::KeepAll,
        depth => policy::History::KeepLast { depth },
    };
    let durability = match qos.durability {
        Durability::Volatile => policy::Durability::Volatile,
        Durability::TransientLocal => policy::Durability::TransientLocal,
    };
    let builder = QosPolicyBuilder::new()
        .durability(durability)
        .history(history)
        .resource_limits(limits);
    // Nothing blocks in the library: the writer waits here, and knows for how long.
    let builder = match qos.reliability {
        Reliability::Reliable => builder.reliable(rustdds::Duration::from_millis(0)),
        Reliability::BestEffort => builder.best_effort(),
    };
    match qos.deadline() {
        Some(deadline) => builder.deadline(policy::Deadline(deadline.into())).build(),
        None => builder.build(),
    }
}

fn announced(qos: &QosPolicies) -> Announced {
    let durability = match qos.durability() {
        None | Some(policy::Durability::Volatile) => AnnouncedDurability::Volatile,
        Some(policy::Durability::TransientLocal) => AnnouncedDurability::TransientLocal,
        Some(policy::Durability::Transient) => AnnouncedDurability::Transient,
        Some(policy::Durability::Persistent) => AnnouncedDurability::Persistent,
    };
    let deadline = qos.deadline().map(|deadline| deadline.0.to_nanoseconds());
    let deadline_ms = deadline
        // The standard's infinite duration has the largest number of seconds.
        .filter(|ns| *ns >= 0 && *ns / 1_000_000_000 < i64::from(i32::MAX))
        .and_then(|ns| u64::try_from(ns / 1_000_000).ok());
    Announced {
        reliability: match qos.is_reliable() {
            true => Reliability::Reliable,
            false => Reliability::BestEffort,
        },
        durability,
        deadline_ms,
    }
}
