//! A participant of Cyclone DDS: its configuration, discovery and waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::any::AnyReader;
use super::{reader, writer};
use chappe_stream::Field;

use crate::SAMPLE_BYTES_MAX;
use crate::backend::{
    Event, Guid, Mismatch, MismatchKind, Participant, ParticipantConfig, RemoteEnd, Topic,
};
use crate::confine::Marks;
use crate::fields::differences;
use crate::mtu::datagram_bytes;
use crate::name::{Name, announced_name};
use crate::qos::Announced;
use crate::types::{Structure, TypeError, TypeHash, resolve};
use crate::unsafe_cyclone::{End, Found, Kind, Presence};
use crate::{DdsError, Qos, Reader, Writer};

/// The largest number of reported mismatches; reason: any host in the domain can announce an unlimited number.
const MISMATCHES_MAX: usize = 4_096;
/// The largest number of remote writers and readers, and of those of one participant: the library forgets a further one;
/// reason: each takes some kB of it, and any host in the domain can announce an unlimited number. A system of ROS 2 with 200
/// nodes has 4,000.
const ENDS_MAX: usize = 8_192;
const ENDS_OF_ONE_MAX: usize = 1_024;
/// The largest number of remote participants: for a further one, the library forgets another; reason: each takes about 30 kB
/// of it, and any host in the domain can announce an unlimited number.
const PARTICIPANTS_MAX: usize = 1_024;
/// Participants that are examined to make room for one.
const SCANNED_MAX: usize = 16;
/// Discovered participants that are processed in one round; reason: a flood of them does not delay samples.
const FOUND_MAX: usize = 256;
/// The most memory for packets of samples that are not complete, or not the next ones: with more, the participant starts again,
/// which frees it; reason: a writer of anybody can have 128 samples of 4 MiB kept by leaving out the one before them.
const RECEIVED_BYTES_MAX: u64 = 256 << 20;
/// The interval of checks that the library's threads return from their operations.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// The checks that an operation may last; reason: they take microseconds, and some milliseconds on a busy machine.
const CHECKS_MAX: u32 = 10;

/// The state shared by a participant and one of its ends.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) end: Mutex<End>,
    pub(super) guid: Guid,
    pub(super) matched: AtomicUsize,
    writes: bool,
    topic: Topic,
    announced: Announced,
    pub(super) fields: Vec<Field>,
}

impl Known {
    pub(super) fn new(
        presence: &Arc<Presence>,
        writes: bool,
        topic: &Topic,
        qos: &Qos,
    ) -> Result<Self, DdsError> {
        let end = End::new(presence, writes, topic, qos)?;
        Ok(Self {
            guid: end.guid(),
            end: Mutex::new(end),
            matched: AtomicUsize::new(0),
            writes,
            topic: topic.clone(),
            announced: qos.announced(),
            fields: qos.fields.clone(),
        })
    }
}

struct Cyclone {
    name: Option<Name>,
    presence: Arc<Presence>,
    ends: Vec<(Weak<Known>, BTreeMap<u64, Guid>)>,
    /// Names of participants that have one.
    names: BTreeMap<[u8; 12], Option<String>>,
    /// Participants, the oldest first.
    arrivals: VecDeque<Guid>,
    /// Remote ends, by kind.
    elsewhere: BTreeMap<Guid, (bool, Found)>,
    /// Reported mismatches.
    mismatched: BTreeSet<(Guid, Guid)>,
    queued: VecDeque<Event>,
    is_secure: bool,
    /// Whether discovery was read since the last wait.
    has_discovered: bool,
    /// Reported warnings of the library.
    warnings: u64,
    broken: Option<DdsError>,
    progress: Progress,
}

/// Notices a thread of the library that does not return from an operation. The supervisor's own samples do not: within
/// one participant the library passes them on in the call that writes them.
#[derive(Default)]
struct Progress {
    checked: Option<Instant>,
    /// The running operations, and how many checks in a row have seen them; reason for counting: after a pause of this
    /// program the time shows nothing.
    running: BTreeMap<u64, u32>,
}

impl Progress {
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.checked.is_none_or(|at| now - at >= CHECK_PERIOD);
        if due {
            self.checked = Some(now);
        }
        due
    }

    /// Whether one of these operations takes too long.
    fn is_stuck(&mut self, operations: &[u64]) -> bool {
        let checks = |it: &u64| 1 + self.running.get(it).copied().unwrap_or(0);
        self.running = operations.iter().map(|it| (*it, checks(it))).collect();
        self.running.values().any(|checks| *checks > CHECKS_MAX)
    }
}

/// Joins a domain.
pub(crate) fn open(config: &ParticipantConfig) -> Result<Box<dyn Participant>, DdsError> {
    let presence = Presence::open(&config.interfaces, config.domain, |marks| {
        configuration(config, marks)
    })?;
    let mut participant = Cyclone {
        name: None,
        presence,
        ends: Vec::new(),
        names: BTreeMap::new(),
        arrivals: VecDeque::new(),
        elsewhere: BTreeMap::new(),
        mismatched: BTreeSet::new(),
        queued: VecDeque::new(),
        is_secure: config.security.is_on(),
        has_discovered: false,
        warnings: 0,
        broken: None,
        progress: Progress::default(),
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
///
/// A reader requests a sample again after the last delay. It has to be about as long as repairs wait in the queues of a
/// network: otherwise each is sent several times, and the queues overflow. Measured on 200 Mbit/s with a queue of 20 ms: two
/// writers of 100 kB have 10 MB/s together with 2 ms, 20 with 5 ms, 23 with 10 ms. But with 5 % of the frames lost, a writer of
/// 5 kB has 12.5 MB/s with 2 ms, 11.7 with 5 ms, and 6 with 10 ms.
const PROMPT: &str = "<HeartbeatInterval min=\"0s\" minsched=\"100us\" max=\"1s\">100us</HeartbeatInterval>\
                      <AckDelay>0s</AckDelay><NackDelay>5ms</NackDelay>";

/// The bytes of a datagram around a fragment; reason: headers of the message and of the fragment, a time, a destination
/// and a heartbeat take 116.
const AROUND_A_FRAGMENT: usize = 128;
/// What is sent with a sample besides its bytes: a head, and padding.
const AROUND_A_SAMPLE: usize = 64;
/// The stack of the thread that reads discovery; reason: the library reads types within each other by recursion, some
/// 700 bytes for 6 bytes of a message, which are at most 256 KiB (`build.rs`).
const STACK_BYTES: usize = 64 << 20;
/// What security adds to that; reason: with message, submessage and payload protected each has a header, a signature and
/// a place for the length, 64 bytes at most (DDS Security 1.1, clause 9.5.2).
const AROUND_A_SECURE_FRAGMENT: usize = 3 * 64;
/// The interval of announcements; reason: one that is lost is repeated within the lease, which is ten seconds.
const ANNOUNCED_EVERY_S: u32 = 5;
/// The smallest fragments; reason: the library's documentation, from RTPS 2.5, clause 8.4.14.1.
const FRAGMENT_BYTES_MIN: usize = 1_025;

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
    // Loopback has no multicast: other participants are discovered at its address, as long as there are any. By default
    // the library announces itself there twice, so that one is never found if its announcements are lost.
    let (multicast, peers) = match config.interfaces.iter().all(std::net::IpAddr::is_loopback) {
        true => (
            "<AllowMulticast>false</AllowMulticast>",
            "<InitialLocatorPruneDelay>inf</InitialLocatorPruneDelay><Peers><Peer address=\"127.0.0.1\"/></Peers>",
        ),
        false => ("", ""),
    };
    let datagram = datagram_bytes(&config.interfaces);
    let around = match config.security.is_on() {
        true => AROUND_A_FRAGMENT + AROUND_A_SECURE_FRAGMENT,
        false => AROUND_A_FRAGMENT,
    };
    let fragment = (datagram - around).max(FRAGMENT_BYTES_MIN);
    let security = config.security.configuration();
    let domain = config.domain;
    let Marks { send, receive } = marks;
    let largest = SAMPLE_BYTES_MAX + AROUND_A_SAMPLE;
    format!(
        "<CycloneDDS><Domain><General><Interfaces>{interfaces}</Interfaces>{multicast}\
         <MaxMessageSize>{datagram}B</MaxMessageSize><MaxRexmitMessageSize>{datagram}B</MaxRexmitMessageSize>\
         <FragmentSize>{fragment}B</FragmentSize></General><Discovery><ExternalDomainId>{domain}</ExternalDomainId>\
         <SPDPInterval>{ANNOUNCED_EVERY_S}s</SPDPInterval><ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>30</MaxAutoParticipantIndex>\
         {peers}</Discovery><Threads><Thread name=\"dq.builtins\"><Scheduling/><StackSize>{STACK_BYTES}B</StackSize>\
         </Thread></Threads><Internal><MaxSampleSize>{largest}B</MaxSampleSize><SocketReceiveBufferSize max=\"{receive}B\"/>\
         <SocketSendBufferSize max=\"{send}B\"/>{PROMPT}<Watermarks><WhcLow>1kB</WhcLow><WhcHigh>1GB</WhcHigh>\
         <WhcHighInit>1GB</WhcHighInit><WhcAdaptive>false</WhcAdaptive></Watermarks></Internal>{security}</Domain>\
         </CycloneDDS>"
    )
}

impl Cyclone {
    fn end(&mut self, writes: bool, topic: &Topic, qos: &Qos) -> Result<Arc<Known>, DdsError> {
        topic.check()?;
        qos.check()?;
        let known = Arc::new(Known::new(&self.presence, writes, topic, qos)?);
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
        let kind = match offered.misses(&requested).is_empty() {
            false => MismatchKind::Qos { offered, requested },
            true => match differences(&there.fields, &here.fields) {
                found if found.is_empty() => return,
                found => MismatchKind::Fields(found),
            },
        };
        if self.mismatched.len() >= MISMATCHES_MAX
            || !self.mismatched.insert((here.guid, there.guid))
        {
            return;
        }
        let peer = self.names.get(&there.guid.prefix()).cloned().flatten();
        self.queued.push_back(Event::Mismatch(Box::new(Mismatch {
            here: here.guid,
            there: there.guid,
            peer,
            kind,
        })));
    }

    /// A participant was found.
    fn greet(&mut self, found: Found) {
        let Found { guid, name, .. } = found;
        if self.is_secure && !found.is_secure {
            let text = format!("participant {guid} announces no security");
            self.presence.journal().warn((line!(), file!()), &text);
        }
        self.names.insert(guid.prefix(), name.clone());
        self.arrivals.push_back(guid);
        self.queued.push_back(Event::PeerFound { guid, name });
    }

    /// A participant has left.
    fn lose(&mut self, prefix: [u8; 12]) {
        if self.names.remove(&prefix).is_some() {
            self.arrivals.retain(|guid| guid.prefix() != prefix);
            self.queued.push_back(Event::PeerLost { prefix });
        }
    }

    /// Makes room for a participant: the library forgets the oldest one that has no writer and no reader. Returns whether
    /// there is room.
    fn make_room(&mut self) -> bool {
        for _ in 0..SCANNED_MAX {
            if self.names.len() < PARTICIPANTS_MAX {
                return true;
            }
            let Some(oldest) = self.arrivals.pop_front() else {
                break;
            };
            self.arrivals.push_back(oldest);
            if self
                .elsewhere
                .range(same_participant(oldest))
                .next()
                .is_none()
            {
                self.forget(oldest);
                self.lose(oldest.prefix());
            }
        }
        self.names.len() < PARTICIPANTS_MAX
    }

    /// Makes the library forget a participant.
    fn forget(&self, guid: Guid) {
        self.presence.forget(guid);
        let text = format!("participant {guid} is dropped: {PARTICIPANTS_MAX} are known");
        self.presence.journal().warn((line!(), file!()), &text);
    }

    /// Whether there is room for a remote writer or reader; otherwise the library forgets it.
    fn has_room_for(&mut self, writes: bool, found: &Found) -> bool {
        let guid = found.guid;
        let is_own = guid.prefix() == self.presence.guid().prefix();
        if is_own || self.elsewhere.contains_key(&guid) {
            return true;
        }
        let of_one = self.elsewhere.range(same_participant(guid)).count();
        let limit = match () {
            () if of_one >= ENDS_OF_ONE_MAX => format!("{ENDS_OF_ONE_MAX} of its participant"),
            () if self.elsewhere.len() >= ENDS_MAX => ENDS_MAX.to_string(),
            () => return true,
        };
        self.presence.forget_end(guid, writes);
        let word = if writes { "writer" } else { "reader" };
        let detail = format!("{word} {guid} is dropped: {limit} are known");
        let journal = self.presence.journal();
        journal.warn((line!(), file!()), &detail);
        let topic = found.topic.name.clone();
        self.queued.push_back(Event::EndDropped { topic, detail });
        false
    }

    /// Reads discovery events.
    fn discover(&mut self) -> Result<(), DdsError> {
        let mut room = FOUND_MAX;
        while room > 0
            && let Some(found) = self.presence.found(Kind::Participant)?
        {
            room -= 1;
            let prefix = found.guid.prefix();
            if prefix == self.presence.guid().prefix() {
                continue;
            }
            if !found.is_alive {
                self.lose(prefix);
            } else if let Some(name) = self.names.get_mut(&prefix) {
                *name = found.name;
            } else if self.make_room() {
                self.greet(found);
            } else {
                self.forget(found.guid);
            }
        }
        // The library does not report them in order: names first.
        let mut came = Vec::new();
        for (kind, writes) in [(Kind::Writer, true), (Kind::Reader, false)] {
            let mut room_of_kind = FOUND_MAX;
            while room_of_kind > 0
                && let Some(found) = self.presence.found(kind)?
            {
                room_of_kind -= 1;
                if let Some(name) = announced_name(&found.topic.name, found.guid)
                    && let Some(known) = self.names.get_mut(&found.guid.prefix())
                {
                    *known = Some(name);
                }
                came.push((writes, found));
            }
            room = room.min(room_of_kind);
        }
        if room == 0 {
            // The rest follows in the next round.
            self.presence.bell().ring();
        }
        for (writes, found) in came {
            if !found.is_alive {
                self.elsewhere.remove(&found.guid);
                self.mismatched.retain(|(_, there)| *there != found.guid);
                continue;
            }
            if !self.has_room_for(writes, &found) {
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
            self.elsewhere.insert(found.guid, (writes, found));
        }
        Ok(())
    }

    /// Reports new warnings of the library, and fails if it has ended a thread.
    fn read_journal(&mut self) -> Result<(), DdsError> {
        let journal = self.presence.journal();
        let count = journal.count();
        if count > self.warnings {
            let newest = journal.newest();
            self.queued.push_back(Event::Warnings {
                count: count - self.warnings,
                newest,
            });
            self.warnings = count;
        }
        match journal.has_aborted() {
            false => Ok(()),
            true => Err(DdsError::Library {
                doing: "running the library",
                why: "it has ended one of its threads by calling `abort`".to_owned(),
            }),
        }
    }

    /// Fails if the library has removed the participant, holds too many packets, or a thread of it does not return from an
    /// operation.
    fn check_progress(&mut self) -> Result<(), DdsError> {
        if !self.progress.is_due(Instant::now()) {
            return Ok(());
        }
        if !self.presence.exists() {
            return Err(DdsError::Library {
                doing: "taking part in the domain",
                why: "its certificate or permissions have expired".to_owned(),
            });
        }
        let received = self.presence.received_bytes();
        if received > RECEIVED_BYTES_MAX {
            return Err(DdsError::Library {
                doing: "receiving samples",
                why: format!(
                    "those that are not complete, or lack one before them, take {} MiB; the limit is {} MiB",
                    received >> 20,
                    RECEIVED_BYTES_MAX >> 20,
                ),
            });
        }
        let Some(end) = self.ends.iter().find_map(|(end, _)| end.upgrade()) else {
            return Ok(());
        };
        let library = end.end.lock().unwrap_or_else(PoisonError::into_inner);
        match self.progress.is_stuck(&library.operations()) {
            false => Ok(()),
            true => Err(DdsError::Library {
                doing: "checking the library's threads",
                why: format!("one has been in the same operation for {CHECKS_MAX} s"),
            }),
        }
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
}

/// The GUIDs of the writers and readers of a participant.
fn same_participant(of: Guid) -> RangeInclusive<Guid> {
    let (mut first, mut last) = (of, of);
    first.0[12..].fill(0);
    last.0[12..].fill(u8::MAX);
    first..=last
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
        if topic.type_name.is_empty() {
            return Ok(Box::new(AnyReader::new(&self.presence, topic, qos)?));
        }
        let known = self.end(false, topic, qos)?;
        Ok(Box::new(reader::CycloneReader::new(known, qos)))
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), DdsError> {
        if let Some(error) = self.broken.clone() {
            return Err(error);
        }
        #[cfg(feature = "planted")]
        crate::planted::fail_if_planted(self.guid(), crate::planted::Fault::Panic);
        self.presence.bell().wait(timeout);
        self.has_discovered = false;
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.presence.bell().clone().into()
    }

    fn event(&mut self) -> Option<Event> {
        if self.queued.is_empty() && self.broken.is_none() && !self.has_discovered {
            self.has_discovered = true;
            let read = self.discover().and_then(|()| self.update_matches());
            let read = read.and_then(|()| self.read_journal());
            let read = read.and_then(|()| self.check_progress());
            self.broken = read.err();
        }
        self.queued.pop_front()
    }

    fn remote_ends(&self) -> Vec<RemoteEnd> {
        let ends = self
            .elsewhere
            .iter()
            .map(|(guid, (writes, found))| RemoteEnd {
                guid: *guid,
                writes: *writes,
                topic: found.topic.clone(),
                announced: found.announced,
                partitions: found.partitions.clone(),
                of: found.announced_type(),
                peer: self.names.get(&guid.prefix()).cloned().flatten(),
            });
        ends.collect()
    }

    fn type_of(&self, hash: &TypeHash) -> Result<Option<Arc<Structure>>, TypeError> {
        resolve(hash, &mut |hash| self.presence.type_object(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_does_not_end_is_noticed() {
        let mut progress = Progress::default();
        for check in 0..CHECKS_MAX {
            // Others come and go.
            assert!(!progress.is_stuck(&[7, 100 + u64::from(check)]), "{check}");
        }
        assert!(progress.is_stuck(&[7]));
        assert!(!progress.is_stuck(&[]));
        assert!(!progress.is_stuck(&[7]));
    }
}
