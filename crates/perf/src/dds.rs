//! DDS: one topic of octets with a writer for the publisher and a reader for each subscriber, and a
//! second one for samples that are sent back.
//!
//! A DDS acknowledgement shows that the subscriber's library has a sample, not that the subscriber
//! has taken it, and a reader drops its oldest samples when it has too many. So a subscriber reports
//! its progress at intervals on a separate topic, and a reliable publisher never has more samples
//! in flight than the slowest reliable subscriber can hold.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use chappe_dds::{
    DdsError, Durability, Event, Guid, Octets, Participant, ParticipantConfig, Qos, Reader, Sample,
    Topic, WriteError, Writer, open,
};
use chappe_machine::Instant;
use chappe_transport::{Clock, sleep_until};

use crate::Error;
use crate::carrier::{Acknowledged, Counters, Inlet, Outlet};

/// Maximum number of samples taken from the library at once.
const TAKE_MAX: usize = 64;
/// Maximum number of samples on their way back; reason: on a busy machine the library's thread that acknowledges them waits
/// for milliseconds, in which 64 samples come back.
const ECHO_WINDOW: u32 = 1_024;
/// Maximum number of a subscriber's progress reports in flight.
const TAKEN_WINDOW: u32 = 64;
/// Suffixes of the topic's name: for samples that are sent back, and for subscribers' progress.
const ECHO: &str = "_echo";
const TAKEN: &str = "_taken";
/// The library's waits have a resolution of a millisecond; shorter ones use the system's timer.
const COARSE: Duration = Duration::from_millis(1);

/// The settings shared by both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// The domain.
    pub domain: u16,
    /// Addresses of this host that the participant uses.
    pub interfaces: Vec<IpAddr>,
    /// The topic; samples that are sent back use its name with the suffix `_echo`, progress reports
    /// `_taken`.
    pub topic: String,
    /// Whether lost samples are retransmitted.
    pub reliable: bool,
    /// Maximum number of unacknowledged samples of the writer. A subscriber uses the same number:
    /// its reader holds eight times as many.
    pub window: u32,
}

impl From<DdsError> for Error {
    fn from(error: DdsError) -> Self {
        Self {
            hint: error.hint().map(str::to_owned),
            text: error.to_string(),
        }
    }
}

impl Domain {
    fn open(&self) -> Result<Box<dyn Participant>, Error> {
        let config = ParticipantConfig {
            domain: self.domain,
            interfaces: self.interfaces.clone(),
            ..ParticipantConfig::default()
        };
        Ok(open(&config)?)
    }

    fn qos(&self, qos: Qos) -> Qos {
        if self.reliable {
            qos
        } else {
            qos.best_effort()
        }
    }

    fn topic(&self, suffix: &str) -> Topic {
        Topic {
            name: format!("{}{suffix}", self.topic),
            type_name: Octets::TYPE_NAME.to_owned(),
        }
    }

    /// For people.
    pub(crate) fn address(&self) -> String {
        format!("dds domain {} topic {}", self.domain, self.topic)
    }
}

/// Late joiners receive the newest report too.
fn kept(qos: Qos) -> Qos {
    Qos {
        durability: Durability::TransientLocal,
        ..qos
    }
}

/// The progress of each subscriber.
struct Takers {
    reader: Box<dyn Reader>,
    came: Vec<Sample>,
    /// For each, the newest sample that it has taken, and the capacity of its reader.
    each: BTreeMap<Guid, (u64, u64)>,
}

impl Takers {
    /// Reads the reports; `written` is the newest sample, from which a new subscriber starts.
    fn hear(&mut self, written: u64) -> Result<(), Error> {
        self.reader.take(usize::MAX, &mut self.came)?;
        for sample in self.came.drain(..) {
            let Ok(said) = Octets::read(&sample.payload) else {
                continue;
            };
            let one = self.each.entry(sample.writer).or_insert((written, 0));
            *one = (one.0.max(said.number.min(written)), said.source.into());
        }
        Ok(())
    }

    /// The newest sample that may be written: a quarter of a reader's capacity stays free for
    /// samples that arrive while it drops older ones.
    fn through(&self) -> u64 {
        let each = self.each.values();
        let through = each.map(|(taken, held)| taken + held / 4 * 3);
        through.min().unwrap_or(0)
    }
}

/// The publisher's end.
pub(crate) struct DdsOutlet {
    writer: Box<dyn Writer>,
    back: Option<Box<dyn Reader>>,
    came_back: Vec<Sample>,
    /// For a reliable one.
    takers: Option<Takers>,
    written: u64,
    /// The newest sample for which the takers have room.
    room: u64,
    reliable: bool,
    spin: Duration,
    mismatch: Option<String>,
    /// Dropped last: it owns the others.
    participant: Box<dyn Participant>,
}

impl DdsOutlet {
    /// Creates the participant; with a reader for samples that are sent back, if wanted.
    pub(crate) fn open(domain: &Domain, echo: bool, spin: Duration) -> Result<Self, Error> {
        let mut participant = domain.open()?;
        let qos = domain.qos(Qos::reliable_writer(domain.window)).batched();
        let writer = participant.writer(&domain.topic(""), &qos)?;
        let back = match echo {
            true => {
                let qos = domain.qos(Qos::reliable_reader(ECHO_WINDOW));
                Some(participant.reader(&domain.topic(ECHO), &qos)?)
            }
            false => None,
        };
        let takers = match domain.reliable {
            true => {
                // All are kept: to the library the reports of several subscribers are one instance.
                let qos = kept(Qos::reliable_reader(TAKEN_WINDOW));
                Some(Takers {
                    reader: participant.reader(&domain.topic(TAKEN), &qos)?,
                    came: Vec::new(),
                    each: BTreeMap::new(),
                })
            }
            false => None,
        };
        Ok(Self {
            writer,
            back,
            came_back: Vec::new(),
            takers,
            written: 0,
            room: 0,
            reliable: domain.reliable,
            spin,
            mismatch: None,
            participant,
        })
    }
}

impl DdsOutlet {
    /// Handles the library's news about remote ends.
    fn hear(&mut self) {
        while let Some(event) = self.participant.event() {
            let gone: &dyn Fn(&Guid) -> bool = match &event {
                Event::Mismatch(found) => {
                    self.mismatch = Some(found.to_string());
                    continue;
                }
                Event::Unmatched { there, .. } => &move |guid| guid == there,
                Event::PeerLost { prefix } => &move |guid| guid.prefix() == *prefix,
                _ => continue,
            };
            if let Some(takers) = &mut self.takers {
                takers.each.retain(|guid, _| !gone(guid));
            }
        }
    }

    /// Whether all subscribers have room for one more.
    fn has_room(&mut self) -> Result<bool, Error> {
        if let Some(takers) = &mut self.takers
            && self.written >= self.room
        {
            takers.hear(self.written)?;
            self.room = takers.through();
            return Ok(self.written < self.room);
        }
        Ok(true)
    }
}

impl Outlet for DdsOutlet {
    fn subscribers(&mut self) -> usize {
        self.hear();
        let back = self.back.as_ref().map_or(usize::MAX, |back| back.matched());
        let takers = self.takers.as_mut().map_or(usize::MAX, |takers| {
            // An error recurs when it can be reported.
            let _ = takers.hear(self.written);
            takers.each.len()
        });
        self.writer.matched().min(back).min(takers)
    }

    fn write(&mut self, sample: &[u8]) -> Result<bool, Error> {
        if !self.has_room()? {
            return Ok(false);
        }
        let octets = Octets {
            source: 1,
            number: self.written + 1,
            ..Octets::default()
        };
        match self.writer.write(&octets.payload_with(sample)) {
            Ok(number) => {
                self.written = number;
                Ok(true)
            }
            Err(WriteError::Full(_)) => Ok(false),
            Err(WriteError::Dds(error)) => Err(error.into()),
            Err(error) => Err(Error::new(error.to_string())),
        }
    }

    fn unacknowledged(&mut self) -> u64 {
        self.writer.unacknowledged()
    }

    fn acknowledged(&mut self, each: &mut dyn FnMut(Acknowledged)) {
        self.writer.acknowledged(&mut |one| {
            each(Acknowledged {
                bytes: one.bytes.saturating_sub(Octets::HEAD_BYTES),
                delay: one.delay,
            });
        });
    }

    fn retransmitted_bytes(&mut self) -> u64 {
        self.writer.retransmitted_bytes()
    }

    fn echoes(&mut self, each: &mut dyn FnMut(&[u8])) {
        let Some(back) = &mut self.back else { return };
        // What cannot be read now is read later, or missing from the figure.
        let _ = back.take(TAKE_MAX, &mut self.came_back);
        for sample in self.came_back.drain(..) {
            if let Ok(octets) = Octets::read(&sample.payload) {
                each(&octets.octets);
            }
        }
    }

    fn counters(&mut self) -> Counters {
        // The library does not report retransmissions.
        Counters::default()
    }

    fn wait(&mut self, until: Instant) -> Result<(), Error> {
        let clock = Clock::process();
        let ahead = until.saturating_since(clock.now());
        if ahead.is_zero() {
            // The next sample may share a datagram with those before.
            return Ok(());
        }
        self.writer.flush()?;
        if ahead > 2 * COARSE {
            self.participant.wait(ahead.saturating_sub(COARSE))?;
        } else {
            self.participant.wait(Duration::ZERO)?;
            sleep_until(clock.at(until), self.spin);
        }
        Ok(())
    }

    fn is_idle(&mut self) -> bool {
        !self.reliable || self.writer.unacknowledged() == 0
    }

    fn mismatch(&mut self) -> Option<String> {
        self.mismatch.take()
    }
}

/// The subscriber's end.
pub(crate) struct DdsInlet {
    reader: Box<dyn Reader>,
    back: Option<Box<dyn Writer>>,
    came: Vec<Sample>,
    /// With the publisher's numbers.
    ready: VecDeque<(u64, Bytes)>,
    /// The first of them is being taken.
    taking: bool,
    telling: Telling,
    matched: bool,
    mismatch: Option<String>,
    /// Dropped last: it owns the others.
    participant: Box<dyn Participant>,
}

/// Reports progress to the publisher.
struct Telling {
    writer: Box<dyn Writer>,
    /// The reader's capacity in samples; more than any publisher writes for a best-effort one,
    /// which is not waited for.
    held: u32,
    taken: u64,
    told: Option<u64>,
}

impl Telling {
    /// Reports at the start and after each eighth of the reader's capacity.
    fn tell(&mut self) -> Result<(), Error> {
        let due = |told: u64| self.taken.saturating_sub(told) >= u64::from(self.held / 8);
        if !self.told.is_none_or(due) {
            return Ok(());
        }
        let octets = Octets {
            source: self.held,
            number: self.taken,
            ..Octets::default()
        };
        self.writer.acknowledged(&mut |_| {});
        match self.writer.write(&octets.payload()) {
            Ok(_) => self.told = Some(self.taken),
            // It is reported with the next sample, or when there is room.
            Err(WriteError::Full(_)) => {}
            Err(error) => return Err(Error::new(error.to_string())),
        }
        Ok(())
    }
}

impl DdsInlet {
    /// Takes part.
    pub(crate) fn open(domain: &Domain) -> Result<Self, Error> {
        let mut participant = domain.open()?;
        let reads = domain.qos(Qos::reliable_reader(domain.window));
        let reader = participant.reader(&domain.topic(""), &reads)?;
        let qos = domain.qos(Qos::reliable_writer(ECHO_WINDOW)).batched();
        let back = Some(participant.writer(&domain.topic(ECHO), &qos)?);
        // Only the newest report counts.
        let qos = Qos {
            keep_last: 1,
            ..kept(Qos::reliable_writer(TAKEN_WINDOW))
        };
        let telling = Telling {
            writer: participant.writer(&domain.topic(TAKEN), &qos)?,
            held: if domain.reliable {
                reads.held()
            } else {
                u32::MAX
            },
            taken: 0,
            told: None,
        };
        Ok(Self {
            reader,
            back,
            came: Vec::new(),
            ready: VecDeque::new(),
            taking: false,
            telling,
            matched: false,
            mismatch: None,
            participant,
        })
    }

    fn read(&mut self) -> Result<(), Error> {
        self.reader.take(TAKE_MAX, &mut self.came)?;
        for sample in self.came.drain(..) {
            // Samples of other programs are counted as foreign.
            let octets = Octets::read(&sample.payload).unwrap_or_default();
            self.ready.push_back((octets.number, octets.octets));
        }
        Ok(())
    }

    /// Handles the library's news about remote ends; remembers the newest mismatch as text.
    fn hear(&mut self) {
        while let Some(event) = self.participant.event() {
            if let Event::Mismatch(found) = event {
                self.mismatch = Some(found.to_string());
            }
        }
    }
}

impl Inlet for DdsInlet {
    fn wait(&mut self, until: Instant) -> Result<bool, Error> {
        self.telling.tell()?;
        if self.ready.is_empty() {
            self.read()?;
        }
        if self.ready.is_empty() {
            // A millisecond is precise enough: arriving samples wake it.
            let ahead = until.saturating_since(Clock::process().now());
            self.participant.wait(ahead)?;
            self.read()?;
        }
        if self.ready.is_empty() {
            // Samples first: looking for remote ends takes as long as a short sample's way. Then those of a writer that
            // has left.
            self.hear();
            self.read()?;
        }
        let matched = self.reader.matched() > 0;
        let gone = self.matched && !matched;
        self.matched |= matched;
        Ok(!gone || !self.ready.is_empty())
    }

    fn take(&mut self) -> Result<Option<&[u8]>, Error> {
        if std::mem::take(&mut self.taking)
            && let Some((number, _)) = self.ready.pop_front()
        {
            self.telling.taken = self.telling.taken.max(number);
            self.telling.tell()?;
        }
        if self.ready.is_empty() {
            self.read()?;
        }
        self.taking = !self.ready.is_empty();
        Ok(self.ready.front().map(|(_, sample)| &**sample))
    }

    fn echo(&mut self) -> Result<(), Error> {
        let (Some(back), Some((_, sample))) = (&mut self.back, self.ready.front()) else {
            return Ok(());
        };
        back.acknowledged(&mut |_| {});
        let octets = Octets {
            octets: sample.clone(),
            ..Octets::default()
        };
        match back.write(&octets.payload()) {
            Ok(_) => Ok(back.flush()?),
            // A publisher that does not read receives no more.
            Err(WriteError::Full(_)) => Ok(()),
            Err(error) => Err(Error::new(error.to_string())),
        }
    }

    fn mismatch(&mut self) -> Option<String> {
        self.mismatch.take()
    }

    fn finish(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_topics_have_valid_names() {
        let domain = Domain {
            domain: 0,
            interfaces: Vec::new(),
            topic: crate::TOPIC.to_owned(),
            reliable: true,
            window: 1,
        };
        let topics = ["", ECHO, TAKEN].map(|suffix| domain.topic(suffix));
        for topic in &topics {
            assert_eq!(topic.check(), Ok(()), "{topic:?}");
        }
        assert!(topics[0] != topics[1] && topics[1] != topics[2] && topics[2] != topics[0]);
        for name in ["a b", "", "ä"] {
            let refused = Topic {
                name: name.to_owned(),
                ..topics[0].clone()
            };
            assert!(refused.check().is_err(), "{name}");
        }
    }
}
