//! A topic is read into a stream: each element once, and only behind the one that it follows.

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

/// The pause before a failed subscription is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest wait until the log has stored what was queued before.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
/// Elements that are stored together.
const BATCH: usize = 256;
/// Batches on their way to the disk; reason: beyond it what comes waits in the library.
const STORING_MAX: usize = 64;

/// Reads a topic until it is aborted.
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
    /// After a batch that the log refused once it was queued, no other is stored: its elements would hide
    /// that those are missing.
    taken_back: u64,
    inlet: Inlet,
    /// Where it says what it has stored.
    told: Outlet,
    progress: watch::Receiver<Progress>,
    generation: u64,
    /// Tells each time by another number.
    tag: u64,
    to_tell: bool,
    /// The newest element that is stored or on its way.
    have: Option<Position>,
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
        let level = subscription.level.map(Into::into);
        let (host, name, schema) = (
            shared.host.clone(),
            subscription.stream.clone(),
            of.schema().clone(),
        );
        let opened = tokio::task::spawn_blocking(move || host.open(&name, &schema, level));
        let log = opened.await.map_err(|error| error.to_string())??;
        let taken_back = shared.store.store().retractions();
        settled(&log).await?;
        let have = log.newest_origin();
        let topic = subscription.dds_topic();
        let topic = topic.map_err(|error| error.to_string())?;
        let about = stored_topic(&topic.name);
        let inlet = shared.supervisor.reader(InletConfig {
            topic,
            qos: subscription.qos.clone(),
        });
        let inlet = inlet.map_err(|error| error.to_string())?;
        let told = shared.supervisor.writer(OutletConfig {
            topic: about,
            // Only the newest word counts, also for who comes late.
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
        let told = told.map_err(|error| error.to_string())?;
        let mut now = lock(status);
        now.stored = have;
        now.last_error = None;
        drop(now);
        Ok(Self {
            progress: told.progress(),
            shared,
            subscription,
            status,
            of,
            log,
            taken_back,
            inlet,
            told,
            generation: 0,
            tag: 0,
            to_tell: have.is_some(),
            have,
            stored: have,
            storing: VecDeque::new(),
        })
    }

    async fn run(&mut self) -> Result<(), String> {
        loop {
            let word = self.word();
            let tells = word.is_some();
            let may_read = self.storing.len() < STORING_MAX;
            tokio::select! {
                sample = self.inlet.receive(), if may_read => match sample {
                    Some(sample) => self.take(sample).await?,
                    None => return Err("the participant has ended".to_owned()),
                },
                done = stored(&mut self.storing) => self.settle(done)?,
                told = tell(&self.told, word), if tells => {
                    told.map_err(|error| error.to_string())?;
                    self.to_tell = false;
                }
                changed = self.progress.changed() => {
                    changed.map_err(|_| "the participant has ended".to_owned())?;
                    let now = *self.progress.borrow_and_update();
                    if now.generation != self.generation {
                        self.generation = now.generation;
                        self.to_tell = self.stored.is_some();
                    }
                }
            }
        }
    }

    /// What is to be told, if anything.
    fn word(&mut self) -> Option<Outgoing> {
        let through = self
            .stored
            .filter(|_| self.to_tell && self.generation > 0)?;
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

    /// Takes what came, with what waits behind it.
    async fn take(&mut self, first: Sample) -> Result<(), String> {
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
        let append = || self.log.append_after(self.taken_back, &batch);
        let appended = self.log.when_room(append).await;
        let appended = appended.map_err(|error| error.to_string())?;
        self.shared.host.received(self.log.name(), count, newest);
        self.storing.push_back((appended, origin, count));
        Ok(())
    }

    /// A sample as an element to be stored, if it is to be.
    fn read(&mut self, sample: &Sample) -> Option<StreamElement> {
        let told = match self.of.decode(&sample.payload) {
            Ok(told) => told,
            Err(error) => {
                lock(self.status).malformed += 1;
                let detail = format!("from {}: {error}", sample.writer);
                let topic = &self.subscription.topic;
                self.shared.host.dropped("malformed", topic, detail);
                return None;
            }
        };
        let mut status = lock(self.status);
        if told.stream != self.subscription.source() {
            status.foreign += 1;
            return None;
        }
        let mut element = told.element;
        let at = std::mem::take(&mut element.position);
        element.receive_time = self.shared.host.now();
        // One without a number is not known again.
        if at.sequence == 0 {
            return Some(element);
        }
        if let Some(have) = self.have {
            if at.sequence <= have.sequence {
                if at.epoch == have.epoch {
                    status.repeated += 1;
                    drop(status);
                    // Whoever sends it again has not heard of it.
                    self.to_tell = self.stored.is_some();
                    return None;
                }
                // Numbers go on from one epoch to the next, unless the source went back.
                status.rollbacks += 1;
            } else if told.previous > have.sequence {
                status.early += 1;
                return None;
            }
        }
        drop(status);
        self.have = Some(at);
        element.origin = Some(at);
        Some(element)
    }

    fn settle(&mut self, done: Result<(Option<Position>, u64), String>) -> Result<(), String> {
        // What is not stored comes again: reading begins anew behind what is.
        let (origin, count) = done?;
        let mut status = lock(self.status);
        status.received += count;
        if let Some(origin) = origin {
            self.stored = Some(origin);
            self.to_tell = true;
            status.stored = Some(origin);
        }
        Ok(())
    }
}

/// Waits until what was queued before is stored: a reading that ended has left it.
async fn settled(log: &StreamLog) -> Result<(), String> {
    let settled = tokio::time::timeout(SETTLE_LIMIT, log.log().settled()).await;
    settled.map_err(|_| "the log does not store what was queued before".to_owned())
}

/// The next batch that is stored.
async fn stored(
    storing: &mut VecDeque<(Appended, Option<Position>, u64)>,
) -> Result<(Option<Position>, u64), String> {
    let Some((appended, origin, count)) = storing.front_mut() else {
        return std::future::pending().await;
    };
    let done = (&mut *appended).await;
    let told = done.map(|()| (*origin, *count));
    storing.pop_front();
    told.map_err(|error| error.to_string())
}

async fn tell(outlet: &Outlet, word: Option<Outgoing>) -> Result<(), crate::Ended> {
    match word {
        Some(word) => outlet.send(word).await,
        None => std::future::pending().await,
    }
}
