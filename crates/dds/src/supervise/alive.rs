//! Checks that the library works: a sample passes from a writer to a reader about once a second.

use std::time::{Duration, Instant};

use crate::backend::{Participant, Reader, Topic, Writer};
use crate::{DdsError, Octets, Qos, WriteError};

/// The interval of samples; reason: ten fit into the usual patience.
const PERIOD: Duration = Duration::from_secs(1);

pub(super) struct Alive {
    writer: Box<dyn Writer>,
    reader: Box<dyn Reader>,
    sent: u64,
    sent_at: Instant,
    seen: u64,
    taken: Vec<crate::Sample>,
}

impl Alive {
    pub(super) fn new(participant: &mut dyn Participant) -> Result<Self, DdsError> {
        let guid = participant.guid().to_string();
        let topic = Topic {
            name: format!("chappe/alive/{}", &guid[..24]),
            type_name: Octets::TYPE_NAME.into(),
        };
        let writer = participant.writer(&topic, &Qos::reliable_writer(4))?;
        let reader = participant.reader(&topic, &Qos::reliable_reader(4))?;
        Ok(Self {
            writer,
            reader,
            sent: 0,
            sent_at: Instant::now(),
            seen: 0,
            taken: Vec::new(),
        })
    }

    /// Checks for the sample and sends the next one. Returns when to call it again.
    ///
    /// # Errors
    /// The library failed, or no sample passed through it for this time. Without matching ends there is no
    /// verdict.
    pub(super) fn turn(&mut self, now: Instant, patience: Duration) -> Result<Turn, DdsError> {
        self.reader.take(usize::MAX, &mut self.taken)?;
        for sample in self.taken.drain(..) {
            if let Ok(octets) = Octets::read(&sample.payload) {
                self.seen = self.seen.max(octets.number);
            }
        }
        let lost = self.seen > 0 && self.seen < self.sent && now - self.sent_at > patience;
        if lost {
            return Ok(Turn::Stalled);
        }
        let due = self.sent_at + PERIOD;
        if now < due {
            return Ok(Turn::Again(due));
        }
        if self.seen == self.sent || self.seen == 0 {
            let octets = Octets {
                number: self.sent + 1,
                ..Octets::default()
            };
            match self.writer.write(&octets.payload()) {
                Ok(_) => (self.sent, self.sent_at) = (self.sent + 1, now),
                Err(WriteError::Dds(error)) => return Err(error),
                // A blocked sample is detected above.
                Err(_) => {}
            }
        }
        Ok(Turn::Again(now + PERIOD))
    }
}

pub(super) enum Turn {
    Again(Instant),
    Stalled,
}
