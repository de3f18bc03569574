//! Stores a topic in a stream: each element once, and only after its predecessor.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{
    Durability, ElementType, Inlet, InletConfig, Outgoing, Outlet, OutletConfig, Progress, Qos,
    Sample, Stalled, Stored,
};
use chappe_flow::pacer::Choice;
use chappe_log::Appended;
use chappe_stream::{Position, StreamElement, StreamLog};
use tokio::sync::watch;

use super::config::stored_topic;
use super::{Shared, Subscription, SubscriptionStatus, lock};

/// The pause before a failed subscription is retried.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest wait for earlier appends to be stored.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
/// Elements that are stored together.
const BATCH: usize = 256;
/// Batches that are being stored; reason: further samples wait in the library.
const STORING_MAX: usize = 64;

/// Subscribes to a topic until it is aborted.
pub(super) async fn run(
    shared: Shared,
    subscription: Subscription,
    status: Arc<Mutex<SubscriptionStatus>>,
) {
    loop {
        let ended = match Reading::new(&shared, &subscription, &status).await {
            Ok(mut reading) => reading.run().await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            lock(&status).last_error = Some(error);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

struct Reading<'a> {
    shared: &'a Shared,
    subscription: &'a Subscription,
    status: &'a Mutex<SubscriptionStatus>,
    of: ElementType,
    log: StreamLog,
    /// The log's count of retractions at the start. After the log has retracted a queued batch, no other is
    /// stored: its elements would hide the gap.
    retractions: u64,
    inlet: Inlet,
    /// The writer of confirmations.
    confirmations: Outlet,
    progress: watch::Receiver<Progress>,
    generation: u64,
    /// The tag of the last confirmation.
    tag: u64,
    must_confirm: bool,
    /// The newest element that is stored or being stored.
    newest_queued: Option<Position>,
    stored: Option<Position>,
    storing: VecDeque<(Appended, Option<Position>, u64)>,
}

impl<'a> Reading<'a> {
    async fn new(
        shared: &'a Shared,
        subscription: &'a Subscription,
        status: &'a Mutex<SubscriptionStatus>,
    ) -> Result<Self, String> {
        let of = subscription.element_type();
        let of = of.map_err(|error| error.to_string())?;
        let level = subscription.level;
        let (host, name, schema) = (
            shared.host.clone(),
            subscription.stream.clone(),
            of.schema().clone(),
        );
        let opened = tokio::task::spawn_blocking(move || host.open(&name, &schema, level));
        let log = opened.await.map_err(|error| error.to_string())??;
        let retractions = shared.store.store().retractions();
        wait_until_stored(&log).await?;
        let newest_queued = log.newest_origin();
        let topic = subscription.dds_topic();
        let topic = topic.map_err(|error| error.to_string())?;
        let confirmation_topic = stored_topic(&topic.name);
        let inlet = shared.supervisor.reader(InletConfig {
            topic,
            qos: subscription.qos.clone(),
        });
        let inlet = inlet.map_err(|error| error.to_string())?;
        let confirmations = shared.supervisor.writer(OutletConfig {
            topic: confirmation_topic,
            // Only the newest confirmation counts, also for late readers.
            qos: Qos {
                durability: Durability::TransientLocal,
                keep_last: 1,
                ..Qos::default()
            },
            readers: 0,
            stalled: Stalled::Pass,
            stalled_after: Duration::from_secs(10),
            pacer: Choice::Flood,
        });
        let confirmations = confirmations.map_err(|error| error.to_string())?;
        let mut now = lock(status);
        now.stored = newest_queued;
        now.last_error = None;
        drop(now);
        Ok(Self {
            progress: confirmations.progress(),
            shared,
            subscription,
            status,
            of,
            log,
            retractions,
            inlet,
            confirmations,
            generation: 0,
            tag: 0,
            must_confirm: newest_queued.is_some(),
            newest_queued,
            stored: newest_queued,
            storing: VecDeque::new(),
        })
    }

    async fn run(&mut self) -> Result<(), String> {
        loop {
            let confirmation = self.confirmation();
            let has_confirmation = confirmation.is_some();
            let may_read = self.storing.len() < STORING_MAX;
            tokio::select! {
                sample = self.inlet.receive(), if may_read => match sample {
                    Some(sample) => self.store(sample).await?,
                    None => return Err("the participant has ended".to_owned()),
                },
                done = stored(&mut self.storing) => self.on_stored(done)?,
                sent = confirm(&self.confirmations, confirmation), if has_confirmation => {
                    sent.map_err(|error| error.to_string())?;
                    self.must_confirm = false;
                }
                changed = self.progress.changed() => {
                    changed.map_err(|_| "the participant has ended".to_owned())?;
                    let now = *self.progress.borrow_and_update();
                    if now.generation != self.generation {
                        self.generation = now.generation;
                        self.must_confirm = self.stored.is_some();
                    }
                }
            }
        }
    }

    /// The confirmation to send, if there is a new one.
    fn confirmation(&mut self) -> Option<Outgoing> {
        let through = self
            .stored
            .filter(|_| self.must_confirm && self.generation > 0)?;
        self.tag += 1;
        let stored = Stored {
            stream: self.subscription.source().to_owned(),
            reader: self.shared.host.key(),
            through,
        };
        Some(Outgoing {
            generation: self.generation,
            tag: self.tag,
            payload: stored.payload(),
        })
    }

    /// Stores a received sample and those queued after it.
    async fn store(&mut self, first: Sample) -> Result<(), String> {
        let mut batch = Vec::new();
        let mut next = Some(first);
        while let Some(sample) = next {
            if let Some(element) = self.read(&sample) {
                batch.push(element);
            }
            next = match batch.len() < BATCH {
                true => self.inlet.try_receive(),
                false => None,
            };
        }
        let Some(newest) = batch.last().map(|element| element.source_time) else {
            return Ok(());
        };
        let count = batch.len() as u64;
        let origin = batch.iter().rev().find_map(|element| element.origin);
        let append = || self.log.append_after(self.retractions, &batch);
        let appended = self.log.when_room(append).await;
        let appended = appended.map_err(|error| error.to_string())?;
        self.shared.host.received(self.log.name(), count, newest);
        self.storing.push_back((appended, origin, count));
        Ok(())
    }

    /// Converts a sample to an element, if it is to be stored.
    fn read(&mut self, sample: &Sample) -> Option<StreamElement> {
        let decoded = match self.of.decode(&sample.payload) {
            Ok(decoded) => decoded,
            Err(error) => {
                lock(self.status).malformed += 1;
                let detail = format!("from {}: {error}", sample.writer);
                let topic = &self.subscription.topic;
                self.shared.host.dropped("malformed", topic, detail);
                return None;
            }
        };
        let mut status = lock(self.status);
        if decoded.stream != self.subscription.source() {
            status.foreign += 1;
            return None;
        }
        let mut element = decoded.element;
        let at = std::mem::take(&mut element.position);
        element.receive_time = self.shared.host.now();
        // An element without a number cannot be deduplicated.
        if at.sequence == 0 {
            return Some(element);
        }
        if let Some(newest_queued) = self.newest_queued {
            if at.sequence <= newest_queued.sequence {
                if at.epoch == newest_queued.epoch {
                    status.repeated += 1;
                    drop(status);
                    // The source sends it again because it missed the confirmation.
                    self.must_confirm = self.stored.is_some();
                    return None;
                }
                // Numbers continue across epochs, unless the source rolled back.
                status.rollbacks += 1;
            } else if decoded.previous > newest_queued.sequence {
                status.early += 1;
                return None;
            }
        }
        drop(status);
        self.newest_queued = Some(at);
        element.origin = Some(at);
        Some(element)
    }

    fn on_stored(&mut self, done: Result<(Option<Position>, u64), String>) -> Result<(), String> {
        // Failed elements are published again: reading restarts after the stored ones.
        let (origin, count) = done?;
        let mut status = lock(self.status);
        status.received += count;
        if let Some(origin) = origin {
            self.stored = Some(origin);
            self.must_confirm = true;
            status.stored = Some(origin);
        }
        Ok(())
    }
}

/// Waits until earlier appends are stored, which an ended task may have left.
async fn wait_until_stored(log: &StreamLog) -> Result<(), String> {
    let settled = tokio::time::timeout(SETTLE_LIMIT, log.log().settled()).await;
    settled.map_err(|_| "the log did not store earlier appends in time".to_owned())
}

/// Waits for the next stored batch.
async fn stored(
    storing: &mut VecDeque<(Appended, Option<Position>, u64)>,
) -> Result<(Option<Position>, u64), String> {
    let Some((appended, origin, count)) = storing.front_mut() else {
        return std::future::pending().await;
    };
    let done = (&mut *appended).await;
    let stored = done.map(|()| (*origin, *count));
    storing.pop_front();
    stored.map_err(|error| error.to_string())
}

async fn confirm(outlet: &Outlet, confirmation: Option<Outgoing>) -> Result<(), crate::Ended> {
    match confirmation {
        Some(confirmation) => outlet.send(confirmation).await,
        None => std::future::pending().await,
    }
}
