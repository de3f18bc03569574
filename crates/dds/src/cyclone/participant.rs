//! A participant of Cyclone DDS: its configuration, discovery and waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::{reader, writer};
use crate::backend::{Event, Guid, Participant, ParticipantConfig, QosMismatch, Topic};
use crate::confine::Marks;
use crate::name::{Name, announced_name};
use crate::qos::{Announced, AnnouncedDurability};
use crate::unsafe_cyclone::{End, Found, Kind, Presence};
use crate::{DdsError, Durability, Qos, Reader, Writer};

/// The largest number of remote participants and ends; reason: any host in the domain can announce an unlimited
/// number.
const PEERS_MAX: usize = 4_096;
/// The poll interval of a wait while samples are in flight.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// The state shared by a participant and one of its ends.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) end: Mutex<End>,
    pub(super) guid: Guid,
    pub(super) matched: AtomicUsize,
    /// The samples written by a reliable writer.
    pub(super) written: AtomicU64,
    /// The last acknowledged number that the owner has seen.
    pub(super) seen: AtomicU64,
    writes: bool,
    topic: Topic,
    announced: Announced,
}

struct Cyclone {
    name: Option<Name>,
    presence: Arc<Presence>,
    ends: Vec<(Weak<Known>, BTreeMap<u64, Guid>)>,
    /// Names of participants that have one.
    names: BTreeMap<[u8; 12], Option<String>>,
    /// Remote ends, by kind.
    elsewhere: BTreeMap<Guid, (bool, Found)>,
    /// Reported mismatches.
    mismatched: BTreeSet<(Guid, Guid)>,
    queued: VecDeque<Event>,
    broken: Option<DdsError>,
}

/// Joins a domain.
pub(crate) fn open(config: &ParticipantConfig) -> Result<Box<dyn Participant>, DdsError> {
    let presence = Presence::open(config.domain, &config.interfaces, |marks| {
        configuration(config, marks)
    })?;
    let mut participant = Cyclone {
        name: None,
        presence,
        ends: Vec::new(),
        names: BTreeMap::new(),
        elsewhere: BTreeMap::new(),
        mismatched: BTreeSet::new(),
        queued: VecDeque::new(),
        broken: None,
    };
    participant.name = Some(Name::announce(&mut participant, config)?);
    Ok(Box::new(participant))
}

/// Acknowledgements are requested and sent at once, and missing samples within milliseconds. With the defaults each
/// takes up to a tenth of a second, which would dominate the measurements of a pacer.
///
/// A writer requests an acknowledgement 0.8 of this interval after the previous sample, or after the whole interval
/// without a sample. With 1 ms it requested none while samples of 5 kB were sent every 50 µs, until the window of
/// 1,024 was full: 487 in flight on average, 2 with this value. With 20 µs acknowledgements use so much of two
/// processors that the throughput is a third lower.
const PROMPT: &str = "<HeartbeatInterval min=\"0s\" minsched=\"100us\" max=\"1s\">100us</HeartbeatInterval>\
                      <AckDelay>0s</AckDelay><NackDelay>2ms</NackDelay>";

/// The configuration of the library.
fn configuration(config: &ParticipantConfig, marks: &Marks) -> String {
    let mut interfaces = String::new();
    for address in &config.interfaces {
        let multicast = if address.is_loopback() {
            "false"
        } else {
            "default"
        };
        let _ = write!(
            interfaces,
            "<NetworkInterface address=\"{address}\" multicast=\"{multicast}\"/>"
        );
    }
    // Loopback has no multicast and no limit on datagrams: other participants are discovered at its
    // address.
    let (sizes, peers) = match config.interfaces.iter().all(std::net::IpAddr::is_loopback) {
        true => (
            "<AllowMulticast>false</AllowMulticast><MaxMessageSize>65500B</MaxMessageSize>\
             <FragmentSize>65000B</FragmentSize>",
            "<Peers><Peer address=\"127.0.0.1\"/></Peers>",
        ),
        false => ("", ""),
    };
    let Marks { send, receive } = marks;
    format!(
        "<CycloneDDS><Domain><General><Interfaces>{interfaces}</Interfaces>{sizes}</General><Discovery>\
         <ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>30</MaxAutoParticipantIndex>\
         {peers}</Discovery><Internal><SocketReceiveBufferSize max=\"{receive}B\"/>\
         <SocketSendBufferSize max=\"{send}B\"/>{PROMPT}<Watermarks><WhcLow>1kB</WhcLow><WhcHigh>1GB</WhcHigh>\
         <WhcHighInit>1GB</WhcHighInit><WhcAdaptive>false</WhcAdaptive></Watermarks></Internal></Domain>\
         </CycloneDDS>"
    )
}

impl Cyclone {
    fn end(&mut self, writes: bool, topic: &Topic, qos: &Qos) -> Result<Arc<Known>, DdsError> {
        topic.check()?;
        if !topic.is_for_every_library() {
            return Err(DdsError::CycloneName(topic.name.clone()));
        }
        qos.check()?;
        let end = End::new(&self.presence, writes, topic, qos)?;
        let known = Arc::new(Known {
            guid: end.guid(),
            end: Mutex::new(end),
            matched: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            writes,
            topic: topic.clone(),
            announced: Announced {
                reliability: qos.reliability,
                durability: match qos.durability {
                    Durability::Volatile => AnnouncedDurability::Volatile,
                    Durability::TransientLocal => AnnouncedDurability::TransientLocal,
                },
                deadline_ms: (qos.deadline_ms > 0).then_some(qos.deadline_ms.into()),
            },
        });
        self.ends.push((Arc::downgrade(&known), BTreeMap::new()));
        let elsewhere: Vec<_> = self.elsewhere.values().cloned().collect();
        for (writes, found) in elsewhere {
            self.compare(&known, writes, &found);
        }
        Ok(known)
    }

    /// Compares two ends, if they have the same topic.
    fn compare(&mut self, here: &Known, there_writes: bool, there: &Found) {
        if here.writes == there_writes || here.topic != there.topic {
            return;
        }
        let (offered, requested) = match here.writes {
            true => (here.announced, there.announced),
            false => (there.announced, here.announced),
        };
        if offered.misses(&requested).is_empty()
            || self.mismatched.len() >= PEERS_MAX
            || !self.mismatched.insert((here.guid, there.guid))
        {
            return;
        }
        let peer = self.names.get(&there.guid.prefix()).cloned().flatten();
        self.queued
            .push_back(Event::QosMismatch(Box::new(QosMismatch {
                here: here.guid,
                there: there.guid,
                peer,
                offered,
                requested,
            })));
    }

    /// Reads discovery events.
    fn discover(&mut self) -> Result<(), DdsError> {
        while let Some(found) = self.presence.found(Kind::Participant)? {
            let prefix = found.guid.prefix();
            if prefix == self.presence.guid().prefix() {
                continue;
            }
            if !found.is_alive {
                if self.names.remove(&prefix).is_some() {
                    self.queued.push_back(Event::PeerLost { prefix });
                }
            } else if self.names.len() < PEERS_MAX || self.names.contains_key(&prefix) {
                let name = found.name.clone();
                if self.names.insert(prefix, name.clone()).is_none() {
                    let guid = found.guid;
                    self.queued.push_back(Event::PeerFound { guid, name });
                }
            }
        }
        // The library does not report them in order: names first.
        let mut came = Vec::new();
        for (kind, writes) in [(Kind::Writer, true), (Kind::Reader, false)] {
            while let Some(found) = self.presence.found(kind)? {
                if let Some(name) = announced_name(&found.topic.name, found.guid)
                    && let Some(known) = self.names.get_mut(&found.guid.prefix())
                {
                    *known = Some(name);
                }
                came.push((writes, found));
            }
        }
        for (writes, found) in came {
            if !found.is_alive {
                self.elsewhere.remove(&found.guid);
                self.mismatched.retain(|(_, there)| *there != found.guid);
                continue;
            }
            let ends: Vec<_> = self
                .ends
                .iter()
                .filter_map(|(end, _)| end.upgrade())
                .collect();
            for end in ends {
                self.compare(&end, writes, &found);
            }
            if self.elsewhere.len() < PEERS_MAX {
                self.elsewhere.insert(found.guid, (writes, found));
            }
        }
        Ok(())
    }

    /// Updates the matches.
    fn update_matches(&mut self) -> Result<(), DdsError> {
        self.ends.retain(|(end, _)| end.strong_count() > 0);
        for (end, matched) in &mut self.ends {
            let Some(end) = end.upgrade() else { continue };
            let here = end.guid;
            let library = end.end.lock().unwrap_or_else(PoisonError::into_inner);
            let now = library.matched()?;
            let gone: Vec<u64> = matched
                .keys()
                .filter(|one| !now.contains(one))
                .copied()
                .collect();
            for handle in gone {
                let there = matched.remove(&handle);
                let unmatched = there.map(|there| Event::Unmatched { here, there });
                self.queued.extend(unmatched);
            }
            for handle in &now {
                if matched.contains_key(handle) {
                    continue;
                }
                // An end that has left needs no event.
                if let Some(there) = library.matched_guid(*handle) {
                    matched.insert(*handle, there);
                    self.queued.push_back(Event::Matched { here, there });
                }
            }
            end.matched.store(matched.len(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether a writer has samples in flight, and whether some were acknowledged since its owner last
    /// checked.
    fn in_flight(&self) -> Result<(bool, bool), DdsError> {
        let (mut some, mut news) = (false, false);
        for (end, _) in &self.ends {
            let Some(end) = end.upgrade() else { continue };
            let seen = end.seen.load(Ordering::Relaxed);
            if end.written.load(Ordering::Relaxed) > seen {
                let library = end.end.lock().unwrap_or_else(PoisonError::into_inner);
                (some, news) = (true, news || library.acknowledged()? > seen);
            }
        }
        Ok((some, news))
    }
}

impl Participant for Cyclone {
    fn guid(&self) -> Guid {
        self.presence.guid()
    }

    fn writer(&mut self, topic: &Topic, qos: &Qos) -> Result<Box<dyn Writer>, DdsError> {
        let known = self.end(true, topic, qos)?;
        Ok(Box::new(writer::CycloneWriter::new(known, qos)))
    }

    fn reader(&mut self, topic: &Topic, qos: &Qos) -> Result<Box<dyn Reader>, DdsError> {
        let known = self.end(false, topic, qos)?;
        Ok(Box::new(reader::CycloneReader::new(known)))
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), DdsError> {
        if let Some(error) = self.broken.clone() {
            return Err(error);
        }
        let until = Instant::now() + timeout;
        loop {
            let (some, news) = self.in_flight()?;
            let left = until.saturating_duration_since(Instant::now());
            let most = if some { left.min(POLL_INTERVAL) } else { left };
            if news || self.presence.bell().wait(most) || left.is_zero() {
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        self.presence.bell().clone().into()
    }

    fn event(&mut self) -> Option<Event> {
        if self.queued.is_empty() && self.broken.is_none() {
            let read = self.discover().and_then(|()| self.update_matches());
            self.broken = read.err();
        }
        self.queued.pop_front()
    }
}
