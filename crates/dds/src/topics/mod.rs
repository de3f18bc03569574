//! Streams on DDS topics: a [`Publisher`] for each stream on a topic, a [`Subscriber`] for each topic read.
//!
//! [`Topics`] is what they share in a node: one supervised participant, and their status. They have no log: a
//! publisher is handed elements and says which are delivered, a subscriber returns elements and is told when they are
//! stored. For a durable stream an element counts as delivered when a Chappe node confirms, on a topic of its own,
//! that its log has it; until then it is published again after silence and restarts of the library. A subscriber
//! deduplicates by stream, epoch and number, and accepts each element only after the one before it.

mod any;
mod config;
mod form;
mod publish;
mod publish_any;
mod reached;
mod status;
mod subscribe;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::{DdsError, ElementType, Notice, Supervisor, SupervisorConfig, SupervisorStatus};
use chappe_stream::StreamLog;

pub use any::{AnyBatch, AnySubscriber, AnySubscription, RefusedSample};
/// The pacer of a publication.
pub use chappe_flow::pacer::Choice as DdsPacer;
pub use config::{Acknowledge, DdsConfig, DdsStalled, Publication, Subscription};
pub use publish::{Advance, Publisher, RefusedElement, StreamNow};
pub use publish_any::AnyPublication;
pub use reached::Reached;
pub use status::{PublicationStatus, SubscriptionStatus, TopicsStatus};
pub use subscribe::Subscriber;

/// Where topics report; both return soon.
pub struct Reports {
    /// Reports something for people.
    pub notice: Box<dyn Fn(String) + Send + Sync>,
    /// Records that a sample or a value was not used.
    pub dropped: Box<DropReport>,
}

/// Records, by reason, topic and details, that a sample or a value was not used.
pub type DropReport = dyn Fn(&'static str, &str, String) + Send + Sync;

/// The topics of a node. Its participant starts with the first topic and ends with the last.
pub struct Topics {
    config: DdsConfig,
    /// The name of this node for others: its key, hexadecimal.
    key: String,
    reports: Arc<Reports>,
    supervisor: Mutex<Weak<Supervisor>>,
    publications: Statuses<PublicationStatus>,
    subscriptions: Statuses<SubscriptionStatus>,
}

/// The status of each publisher or subscriber that exists.
type Statuses<S> = Mutex<Vec<Weak<Mutex<S>>>>;

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topics")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Topics {
    /// The topics of the node `key`.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(config: DdsConfig, key: String, reports: Reports) -> Result<Self, DdsError> {
        config.check()?;
        config.security.check_files()?;
        Ok(Self {
            config,
            key,
            reports: Arc::new(reports),
            supervisor: Mutex::default(),
            publications: Mutex::default(),
            subscriptions: Mutex::default(),
        })
    }

    /// The participant, which joins the domain now if there was none.
    fn supervisor(&self) -> Result<Arc<Supervisor>, DdsError> {
        let mut supervisor = lock(&self.supervisor);
        if let Some(running) = supervisor.upgrade() {
            return Ok(running);
        }
        let reports = self.reports.clone();
        let started = Arc::new(Supervisor::start(SupervisorConfig {
            participant: self.config.participant(),
            stall_after: self.config.stall_after(),
            notice: Arc::new(move |notice: Notice| match notice {
                Notice::EndDropped { topic, detail } => {
                    (reports.dropped)("too many remote ends", &topic, detail);
                }
                other => (reports.notice)(other.to_string()),
            }),
        })?);
        *supervisor = Arc::downgrade(&started);
        Ok(started)
    }

    /// Their status.
    #[must_use]
    pub fn status(&self) -> TopicsStatus {
        TopicsStatus {
            participant: self.participant(),
            publications: all(&self.publications),
            subscriptions: all(&self.subscriptions),
        }
    }

    /// The status of the participant, if there are topics.
    #[must_use]
    pub fn participant(&self) -> Option<SupervisorStatus> {
        let supervisor = lock(&self.supervisor).upgrade()?;
        Some(supervisor.status())
    }
}

/// Adds a status, which is shown as long as its owner keeps it.
fn show<S>(statuses: &Statuses<S>, status: S) -> Arc<Mutex<S>> {
    let status = Arc::new(Mutex::new(status));
    let mut all = lock(statuses);
    all.retain(|known| known.strong_count() > 0);
    all.push(Arc::downgrade(&status));
    status
}

fn all<S: Clone>(statuses: &Statuses<S>) -> Vec<S> {
    let all = lock(statuses);
    let present = all.iter().filter_map(Weak::upgrade);
    present.map(|status| lock(&status).clone()).collect()
}

/// The IDL of a stream: the type of its samples, named after one of the stream's names.
///
/// # Errors
/// The schema cannot be a type.
pub fn idl(name: &str, log: &StreamLog) -> Result<String, chappe_stream::SchemaError> {
    Ok(ElementType::new(name, log.schema())?.idl())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
