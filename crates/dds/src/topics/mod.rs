//! Streams on DDS topics: a stream published to a topic, a topic read into a stream.
//!
//! [`Topics`] runs the configuration [`DdsConfig`] over one supervised participant (`chappe-dds`). For a durable
//! stream an element counts as delivered when a Chappe node confirms, on a topic of its own, that its log has it;
//! until then it is published again after silence and restarts. A reader deduplicates by stream, epoch and number,
//! and accepts each element only after the one before it.
//!
//! The node that runs it implements [`TopicsHost`].

mod config;
mod cursor;
mod publish;
mod status;
mod subscribe;

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    DdsError, ElementType, Notice, ParticipantConfig, Supervisor, SupervisorConfig,
    SupervisorStatus,
};
use chappe_log::Level;
use chappe_stream::{StreamLog, StreamSchema, StreamStore, Timestamp};
use tokio::task::AbortHandle;

/// The pacer of a publication.
pub use chappe_flow::pacer::Choice as DdsPacer;
pub use config::{
    Acknowledge, DdsConfig, DdsLibrary, DdsStalled, DdsStart, Publication, Subscription,
    TopicField, TopicFieldType,
};
pub use status::{PublicationStatus, SubscriptionStatus, TopicsStatus};

/// The node's interface for its topics. All calls return soon.
pub trait TopicsHost: Send + Sync + 'static {
    /// Creates or opens the stream of a subscribed topic, and registers it. Called on a thread that may wait for
    /// the disk.
    ///
    /// # Errors
    /// Another source has a stream of this name, or there are too many.
    fn open(
        &self,
        name: &str,
        schema: &StreamSchema,
        level: Option<Level>,
    ) -> Result<StreamLog, String>;

    /// The stream of this name, if there is one.
    fn stream(&self, name: &str) -> Option<StreamLog>;

    /// Records that elements of `stream` arrived and are queued for storage.
    fn received(&self, stream: &str, elements: u64, newest: Timestamp);

    /// Reports something for people.
    fn notice(&self, text: String);

    /// Records that a received sample was not used.
    fn dropped(&self, reason: &'static str, topic: &str, detail: String);

    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// The name of this node for others: its key, hexadecimal.
    fn key(&self) -> String;
}

/// The context of a topic's task.
#[derive(Clone)]
struct Shared {
    host: Arc<dyn TopicsHost>,
    store: StreamStore,
    supervisor: Arc<Supervisor>,
}

/// The topics of a node, which end when it is dropped.
pub struct Topics {
    supervisor: Arc<Supervisor>,
    publications: Vec<Arc<Mutex<PublicationStatus>>>,
    subscriptions: Vec<Arc<Mutex<SubscriptionStatus>>>,
    tasks: Vec<AbortHandle>,
}

impl Topics {
    /// Joins the domain and starts to publish and to subscribe. Called within a tokio runtime.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn start(
        config: &DdsConfig,
        host: Arc<dyn TopicsHost>,
        store: StreamStore,
    ) -> Result<Self, DdsError> {
        config.check()?;
        let told = host.clone();
        let supervisor = Supervisor::start(SupervisorConfig {
            backend: config.library.into(),
            participant: config.participant(),
            stall_after: config.stall_after(),
            notice: Arc::new(move |notice: Notice| told.notice(notice.to_string())),
        })?;
        let shared = Shared {
            host,
            store,
            supervisor: Arc::new(supervisor),
        };
        let mut topics = Self {
            supervisor: shared.supervisor.clone(),
            publications: Vec::new(),
            subscriptions: Vec::new(),
            tasks: Vec::new(),
        };
        for publication in &config.publish {
            let status = Arc::new(Mutex::new(PublicationStatus::of(publication)));
            topics.publications.push(status.clone());
            let (shared, publication) = (shared.clone(), publication.clone());
            let task = tokio::spawn(publish::run(shared, publication, status));
            topics.tasks.push(task.abort_handle());
        }
        for subscription in &config.subscribe {
            let status = Arc::new(Mutex::new(SubscriptionStatus::of(subscription)));
            topics.subscriptions.push(status.clone());
            let (shared, subscription) = (shared.clone(), subscription.clone());
            let task = tokio::spawn(subscribe::run(shared, subscription, status));
            topics.tasks.push(task.abort_handle());
        }
        Ok(topics)
    }

    /// Their status.
    #[must_use]
    pub fn status(&self) -> TopicsStatus {
        let published = self.publications.iter();
        let read = self.subscriptions.iter();
        TopicsStatus {
            participant: self.participant(),
            publications: published.map(|status| lock(status).clone()).collect(),
            subscriptions: read.map(|status| lock(status).clone()).collect(),
        }
    }

    /// The status of the participant.
    #[must_use]
    pub fn participant(&self) -> SupervisorStatus {
        self.supervisor.status()
    }

    /// Ends them.
    pub fn close(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Drop for Topics {
    fn drop(&mut self) {
        self.close();
    }
}

impl DdsConfig {
    fn participant(&self) -> ParticipantConfig {
        ParticipantConfig {
            domain: self.domain,
            interfaces: self.interfaces.clone(),
        }
    }
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
