//! DDS: one topic of octets with a writer for the publisher and a reader for each subscriber, and one
//! back for samples that are sent back.
//!
//! An acknowledgement of DDS says that the subscriber's library has a sample, not that it was taken.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use chappe_dds::{
    Backend, DdsError, Event, Octets, Participant, ParticipantConfig, Qos, Reader, Sample, Topic,
    WriteError, Writer, open,
};
use chappe_machine::Instant;
use chappe_transport::{Clock, sleep_until};

use super::Error;
use super::carrier::{Acknowledged, Counters, Inlet, Outlet};

/// Samples taken from the library at once.
const TAKE_MAX: usize = 64;
/// Samples on the way back at most.
const ECHO_WINDOW: u32 = 64;
/// The library waits by the millisecond; what is less is waited for by the system's timer.
const COARSE: Duration = Duration::from_millis(1);

/// Where both ends meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Which library.
    pub library: Backend,
    /// The domain.
    pub domain: u16,
    /// Addresses of this host by which it takes part.
    pub interfaces: Vec<IpAddr>,
    /// The topic; samples that are sent back go by the same with `_echo` behind it.
    pub topic: String,
    /// Whether lost samples are sent again.
    pub reliable: bool,
    /// Samples that the writer may have unacknowledged. A subscriber says the same number: its reader
    /// keeps eight times as many.
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
        };
        Ok(open(self.library, &config)?)
    }

    fn qos(&self, qos: Qos) -> Qos {
        if self.reliable {
            qos
        } else {
            qos.best_effort()
        }
    }

    fn topic(&self, back: bool) -> Topic {
        Topic {
            name: format!("{}{}", self.topic, if back { "_echo" } else { "" }),
            type_name: Octets::TYPE_NAME.to_owned(),
        }
    }

    /// For people.
    pub(crate) fn address(&self) -> String {
        format!("dds domain {} topic {}", self.domain, self.topic)
    }
}

/// The publisher's end.
pub(crate) struct DdsOutlet {
    writer: Box<dyn Writer>,
    back: Option<Box<dyn Reader>>,
    came_back: Vec<Sample>,
    written: u64,
    reliable: bool,
    spin: Duration,
    mismatch: Option<String>,
    /// Dropped last: the others are its own.
    participant: Box<dyn Participant>,
}

impl DdsOutlet {
    /// Takes part; with a reader for what is sent back, if that is wanted.
    pub(crate) fn open(domain: &Domain, echo: bool, spin: Duration) -> Result<Self, Error> {
        let mut participant = domain.open()?;
        let qos = domain.qos(Qos::reliable_writer(domain.window));
        let writer = participant.writer(&domain.topic(false), &qos)?;
        let back = match echo {
            true => {
                let qos = domain.qos(Qos::reliable_reader(ECHO_WINDOW));
                Some(participant.reader(&domain.topic(true), &qos)?)
            }
            false => None,
        };
        Ok(Self {
            writer,
            back,
            came_back: Vec::new(),
            written: 0,
            reliable: domain.reliable,
            spin,
            mismatch: None,
            participant,
        })
    }
}

impl Outlet for DdsOutlet {
    fn subscribers(&mut self) -> usize {
        hear(self.participant.as_mut(), &mut self.mismatch);
        let back = self.back.as_ref().map_or(usize::MAX, |back| back.matched());
        self.writer.matched().min(back)
    }

    fn write(&mut self, sample: &[u8]) -> Result<bool, Error> {
        let octets = Octets {
            source: 1,
            number: self.written + 1,
            time_ns: 0,
            octets: Bytes::copy_from_slice(sample),
        };
        match self.writer.write(&octets.payload()) {
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
        // The library does not tell what it sends again.
        Counters::default()
    }

    fn wait(&mut self, until: Instant) -> Result<(), Error> {
        wait(self.participant.as_mut(), until, self.spin)
    }

    fn is_idle(&mut self) -> bool {
        !self.reliable || self.writer.unacknowledged() == 0
    }

    fn mismatch(&mut self) -> Option<String> {
        self.mismatch.take()
    }
}

/// Takes what the library has to tell; keeps the newest mismatch in words.
fn hear(participant: &mut dyn Participant, mismatch: &mut Option<String>) {
    while let Some(event) = participant.event() {
        if let Event::QosMismatch(found) = event {
            *mismatch = Some(found.to_string());
        }
    }
}

fn wait(participant: &mut dyn Participant, until: Instant, spin: Duration) -> Result<(), Error> {
    let clock = Clock::process();
    let ahead = until.saturating_since(clock.now());
    if ahead.is_zero() || ahead > 2 * COARSE {
        participant.wait(ahead.saturating_sub(COARSE))?;
    } else {
        participant.wait(Duration::ZERO)?;
        sleep_until(clock.at(until), spin);
    }
    Ok(())
}

/// The subscriber's end.
pub(crate) struct DdsInlet {
    reader: Box<dyn Reader>,
    back: Option<Box<dyn Writer>>,
    came: Vec<Sample>,
    ready: VecDeque<Bytes>,
    /// The first of them is being taken.
    taking: bool,
    matched: bool,
    mismatch: Option<String>,
    /// Dropped last: the others are its own.
    participant: Box<dyn Participant>,
}

impl DdsInlet {
    /// Takes part.
    pub(crate) fn open(domain: &Domain) -> Result<Self, Error> {
        let mut participant = domain.open()?;
        let qos = domain.qos(Qos::reliable_reader(domain.window));
        let reader = participant.reader(&domain.topic(false), &qos)?;
        let qos = domain.qos(Qos::reliable_writer(ECHO_WINDOW));
        let back = Some(participant.writer(&domain.topic(true), &qos)?);
        Ok(Self {
            reader,
            back,
            came: Vec::new(),
            ready: VecDeque::new(),
            taking: false,
            matched: false,
            mismatch: None,
            participant,
        })
    }

    fn read(&mut self) -> Result<(), Error> {
        self.reader.take(TAKE_MAX, &mut self.came)?;
        for sample in self.came.drain(..) {
            // What is none of ours is counted as foreign.
            let octets = Octets::read(&sample.payload).map(|it| it.octets);
            self.ready.push_back(octets.unwrap_or_default());
        }
        Ok(())
    }
}

impl Inlet for DdsInlet {
    fn wait(&mut self, until: Instant) -> Result<bool, Error> {
        if self.ready.is_empty() {
            self.read()?;
        }
        if self.ready.is_empty() {
            // By the millisecond is enough: what comes wakes it.
            let ahead = until.saturating_since(Clock::process().now());
            self.participant.wait(ahead)?;
            hear(self.participant.as_mut(), &mut self.mismatch);
            self.read()?;
        }
        let matched = self.reader.matched() > 0;
        let gone = self.matched && !matched;
        self.matched |= matched;
        Ok(!gone || !self.ready.is_empty())
    }

    fn take(&mut self) -> Result<Option<&[u8]>, Error> {
        if std::mem::take(&mut self.taking) {
            self.ready.pop_front();
        }
        if self.ready.is_empty() {
            self.read()?;
        }
        self.taking = !self.ready.is_empty();
        Ok(self.ready.front().map(|sample| &**sample))
    }

    fn echo(&mut self) -> Result<(), Error> {
        let (Some(back), Some(sample)) = (&mut self.back, self.ready.front()) else {
            return Ok(());
        };
        back.acknowledged(&mut |_| {});
        let octets = Octets {
            octets: sample.clone(),
            ..Octets::default()
        };
        match back.write(&octets.payload()) {
            // A publisher that does not read gets no more.
            Ok(_) | Err(WriteError::Full(_)) => Ok(()),
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
    fn both_topics_have_names_that_every_library_takes() {
        let domain = Domain {
            library: Backend::default(),
            domain: 0,
            interfaces: Vec::new(),
            topic: crate::perf::TOPIC.to_owned(),
            reliable: true,
            window: 1,
        };
        let [there, back] = [false, true].map(|back| domain.topic(back));
        assert!(there.is_for_every_library(), "{there:?}");
        assert!(back.is_for_every_library(), "{back:?}");
        assert_ne!(there, back);
        for name in ["chappe/perf-echo", "7", "a:b", "a.b", "", "ä"] {
            let refused = Topic {
                name: name.to_owned(),
                ..there.clone()
            };
            assert!(!refused.is_for_every_library(), "{name}");
        }
    }
}
