//! A reader under supervision: received samples wait in a queue for the application.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::mpsc;

use super::Shared;
use super::end::{Deadline, SharedStatus};
use super::status::{EndStatus, InletStatus, add_mismatch};
use crate::backend::{Participant, Reader, Sample, Topic};
use crate::{DdsError, Qos};

/// Samples queued for the application; reason: further ones wait in the library, which has its own limit
/// ([`Qos::held`]) and drops the oldest above it.
const QUEUE: usize = 256;

/// The configuration of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InletConfig {
    /// The topic.
    pub topic: Topic,
    /// The requested quality of service.
    pub qos: Qos,
}

/// A reader, which ends when it is dropped.
#[derive(Debug)]
pub struct Inlet {
    shared: Arc<Shared>,
    end: Arc<InletEnd>,
    queue: mpsc::Receiver<Sample>,
}

/// The part of a reader shared by handle and thread.
#[derive(Debug)]
pub(super) struct InletEnd {
    config: InletConfig,
    queue: mpsc::Sender<Sample>,
    /// Whether the queue was full: the next receive wakes the thread.
    full: AtomicBool,
    pub(super) shared_status: SharedStatus<InletStatus>,
}

/// A reader in the library.
pub(super) struct LiveInlet {
    pub(super) end: Arc<InletEnd>,
    reader: Box<dyn Reader>,
    taken: Vec<Sample>,
    deadline: Deadline,
    /// The losses of earlier readers.
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
        shared_status: SharedStatus::new(status),
    });
    let inlet = Inlet {
        shared: shared.clone(),
        end: end.clone(),
        queue,
    };
    (inlet, end)
}

impl Inlet {
    /// The next sample; `None` after the end. Cancel-safe.
    pub async fn receive(&mut self) -> Option<Sample> {
        let sample = self.queue.recv().await;
        self.wake_if_full();
        sample
    }

    /// The next sample, if one is queued.
    pub fn try_receive(&mut self) -> Option<Sample> {
        let sample = self.queue.try_recv().ok();
        self.wake_if_full();
        sample
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> InletStatus {
        self.end.shared_status.status()
    }

    fn wake_if_full(&self) {
        if self.end.full.swap(false, Ordering::AcqRel) {
            self.shared.wake();
        }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        let ends = |ends: &mut super::Ends| ends.inlets.retain(|end| !Arc::ptr_eq(end, &self.end));
        self.shared.remove_end(ends);
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
        let lost_before = end.shared_status.status().lost;
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

    /// Takes received samples, until there are no more or the queue is full: then the next receive
    /// wakes the thread.
    /// Returns when to call it again.
    pub(super) fn turn(&mut self, now: Instant) -> Result<Option<Instant>, DdsError> {
        let mut came = 0;
        loop {
            if self.end.queue.capacity() == 0 {
                self.end.full.store(true, Ordering::Release);
                // Receives since then woke no thread.
                if self.end.queue.capacity() == 0 {
                    break;
                }
            }
            let room = self.end.queue.capacity();
            self.reader.take(room, &mut self.taken)?;
            let count = self.taken.len() as u64;
            came += count;
            // Counted before it is queued, so that its receiver finds it in the status.
            self.end.shared_status.change(|status| {
                status.received += count;
                status.lost = self.lost_before + self.reader.lost();
            });
            if count == 0 {
                break;
            }
            for sample in self.taken.drain(..) {
                // There is room, since this is the only sender; a closed queue needs none.
                let _ = self.end.queue.try_send(sample);
            }
        }
        let faults = self.reader.faults();
        let matched = self.reader.matched();
        let missed = self.deadline.count_missed(now, came, matched);
        self.end.shared_status.change(|status| {
            status.end.matched = matched as u64;
            status.end.deadlines_missed += missed;
            for fault in faults {
                add_mismatch(&mut status.end, fault);
            }
        });
        let look_again = self.reader.look_again().map(|pause| now + pause);
        Ok(self.deadline.next().into_iter().chain(look_again).min())
    }
}
