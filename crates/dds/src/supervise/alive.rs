//! Whether the library lives: a sample that goes through all of it, about once a second; and after this
//! program stood still, a new reader that must find the writer.

use std::time::{Duration, Instant};

use crate::backend::{Participant, Reader, Topic, Writer};
use crate::{DdsError, Octets, Qos, WriteError};

/// How often a sample is sent; reason: ten fit into the patience that is usual.
const PERIOD: Duration = Duration::from_secs(1);

pub(super) struct Alive {
    topic: Topic,
    writer: Box<dyn Writer>,
    reader: Box<dyn Reader>,
    sent: u64,
    sent_at: Instant,
    seen: u64,
    /// Since when the reader has to find the writer, where one did before.
    seeks: Option<Instant>,
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
            topic,
            writer,
            reader,
            sent: 0,
            sent_at: Instant::now(),
            seen: 0,
            seeks: None,
            taken: Vec::new(),
        })
    }

    /// This program stood still: stopped by a signal, or frozen. That ends threads of RustDDS, whose
    /// waits are interrupted by it, each by itself. The data's thread is missed as ever; discovery's,
    /// when a new reader does not find the writer.
    ///
    /// # Errors
    /// What the library says.
    pub(super) fn stood_still(
        &mut self,
        participant: &mut dyn Participant,
        now: Instant,
    ) -> Result<(), DdsError> {
        if self.seen > 0 {
            self.reader = participant.reader(&self.topic, &Qos::reliable_reader(4))?;
            self.seen = 0;
            self.seeks = Some(now);
        }
        Ok(())
    }

    /// Looks and sends; says when to look again.
    ///
    /// # Errors
    /// What the library says, and that a sample did not come through for so long. Of a library whose
    /// ends do not find each other, nothing is said.
    pub(super) fn turn(&mut self, now: Instant, patience: Duration) -> Result<Turn, DdsError> {
        self.reader.take(usize::MAX, &mut self.taken)?;
        for sample in self.taken.drain(..) {
            if let Ok(octets) = Octets::read(&sample.payload) {
                self.seen = self.seen.max(octets.number);
            }
        }
        if self.seen > 0 {
            self.seeks = None;
        }
        let lost = self.seen > 0 && self.seen < self.sent && now - self.sent_at > patience;
        if lost || self.seeks.is_some_and(|since| now - since > patience) {
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
                // It does not come through: that is seen above.
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
