//! A reader under supervision: what it receives waits in a queue for who asked for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::mpsc;

use super::Shared;
use super::end::{Deadline, Told};
use super::status::{EndStatus, InletStatus};
use crate::backend::{Participant, Reader, Sample, Topic};
use crate::{DdsError, Qos};

/// Samples that wait for who reads; reason: beyond it they wait in the library, which has a limit of
/// its own ([`Qos::held`]) and drops the oldest above it.
const QUEUE: usize = 256;

/// What is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InletConfig {
    /// The topic.
    pub topic: Topic,
    /// What it requests.
    pub qos: Qos,
}

/// A reader. Dropped, it ends.
#[derive(Debug)]
pub struct Inlet {
    shared: Arc<Shared>,
    end: Arc<InletEnd>,
    queue: mpsc::Receiver<Sample>,
}

/// What handle and thread share of a reader.
#[derive(Debug)]
pub(super) struct InletEnd {
    config: InletConfig,
    queue: mpsc::Sender<Sample>,
    /// The queue was full: whoever takes from it wakes the thread.
    full: AtomicBool,
    pub(super) told: Told<InletStatus>,
}

/// A reader in the library.
pub(super) struct LiveInlet {
    pub(super) end: Arc<InletEnd>,
    reader: Box<dyn Reader>,
    taken: Vec<Sample>,
    deadline: Deadline,
    /// Of earlier readers.
    lost_before: u64,
}

pub(super) fn inlet(shared: &Arc<Shared>, config: InletConfig) -> (Inlet, Arc<InletEnd>) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let status = InletStatus {
        end: EndStatus::of(&config.topic, &config.qos, config.qos.held()),
        ..InletStatus::default()
    };
    let end = Arc::new(InletEnd {
        config,
        queue: sender,
        full: AtomicBool::new(false),
        told: Told::new(status),
    });
    let inlet = Inlet {
        shared: shared.clone(),
        end: end.clone(),
        queue,
    };
    (inlet, end)
}

impl Inlet {
    /// The next sample; nothing when there will be none. May be dropped and called again.
    pub async fn receive(&mut self) -> Option<Sample> {
        let sample = self.queue.recv().await;
        self.room();
        sample
    }

    /// The next sample, if one waits.
    pub fn try_receive(&mut self) -> Option<Sample> {
        let sample = self.queue.try_recv().ok();
        self.room();
        sample
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> InletStatus {
        self.end.told.status()
    }

    fn room(&self) {
        if self.end.full.swap(false, Ordering::AcqRel) {
            self.shared.wake();
        }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        let ends = |ends: &mut super::Ends| ends.inlets.retain(|end| !Arc::ptr_eq(end, &self.end));
        self.shared.forget(ends);
    }
}

impl InletEnd {
    pub(super) fn topic(&self) -> &str {
        &self.config.topic.name
    }
}

impl LiveInlet {
    pub(super) fn new(
        participant: &mut dyn Participant,
        end: Arc<InletEnd>,
    ) -> Result<Self, DdsError> {
        let reader = participant.reader(&end.config.topic, &end.config.qos)?;
        let lost_before = end.told.status().lost;
        Ok(Self {
            deadline: Deadline::new(&end.config.qos, Instant::now()),
            end,
            reader,
            taken: Vec::new(),
            lost_before,
        })
    }

    pub(super) fn guid(&self) -> crate::Guid {
        self.reader.guid()
    }

    /// Takes what came, until nothing is left or there is no room: then whoever takes from the queue
    /// wakes the thread. Says when to come again.
    pub(super) fn turn(&mut self, now: Instant) -> Result<Option<Instant>, DdsError> {
        let mut came = 0;
        loop {
            if self.end.queue.capacity() == 0 {
                self.end.full.store(true, Ordering::Release);
                // What was taken since then woke nobody.
                if self.end.queue.capacity() == 0 {
                    break;
                }
            }
            let room = self.end.queue.capacity();
            self.reader.take(room, &mut self.taken)?;
            if self.taken.is_empty() {
                break;
            }
            let count = self.taken.len() as u64;
            came += count;
            // Counted before it is given: whoever has it finds it in the status.
            self.end.told.change(|status| status.received += count);
            for sample in self.taken.drain(..) {
                // There is room, for nobody else sends; and who has gone needs none.
                let _ = self.end.queue.try_send(sample);
            }
        }
        let matched = self.reader.matched();
        let missed = self.deadline.look(now, came, matched);
        self.end.told.change(|status| {
            status.lost = self.lost_before + self.reader.lost();
            status.end.matched = matched as u64;
            status.end.deadlines_missed += missed;
        });
        Ok(self.deadline.next())
    }
}
