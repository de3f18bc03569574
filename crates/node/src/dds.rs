//! Connects DDS topics to the node: opens their streams and reports their state.

use std::sync::{Arc, Weak};

use chappe_dds::topics::{Topics, TopicsHost};
use chappe_log::Level;
use chappe_stream::{StreamLog, StreamSchema, Timestamp};
use chappe_transport::{FragmentMemory, Hop};
use tokio::runtime::Handle;

use crate::clock;
use crate::error::StartError;
use crate::notices::NoticeKind;
use crate::shared::{App, Shared};
use crate::streams::StreamSpec;

/// The source, in the registry, of all streams read from topics.
const SOURCE: &str = "urn:chappe:dds";

/// The node, as its topics see it; it may be dropped before they are.
struct Host {
    node: Weak<Shared>,
    key: String,
}

/// Starts the configured topics, if any.
///
/// # Errors
/// An invalid configuration.
pub(crate) fn start(app: &App) -> Result<(), StartError> {
    let config = &app.config.dds;
    if !config.is_used() {
        return Ok(());
    }
    let host = Arc::new(Host {
        node: Arc::downgrade(app),
        key: app.identity.public_key.clone(),
    });
    let topics = Topics::start(config, host, app.catalogue.store());
    let topics = topics.map_err(|error| StartError::Dds {
        hint: error.hint().map(str::to_owned),
        reason: error.to_string(),
    })?;
    app.topics.get_or_init(|| topics);
    if config
        .interfaces
        .iter()
        .any(|address| !address.is_loopback())
    {
        notify_fragment_memory(app);
    }
    Ok(())
}

/// Warns if the operating system has too little memory to reassemble large datagrams on a lossy network.
/// Cyclone DDS, and writers of other vendors, send such datagrams.
fn notify_fragment_memory(app: &App) {
    let memory = FragmentMemory::read();
    if let Some((memory, text)) = memory.and_then(|it| Some((it, it.complaint()?))) {
        let text = format!("{text}; remedy: {}", memory.remedy());
        tracing::warn!("{text}");
        app.observability
            .notices
            .notify(NoticeKind::Health, "memory for fragments", text);
    }
}

/// The state of the topics.
pub(crate) fn status(app: &App) -> serde_json::Value {
    match app.topics.get() {
        Some(topics) => serde_json::to_value(topics.status()).unwrap_or_default(),
        None => serde_json::json!({
            "participant": null, "publications": [], "subscriptions": []
        }),
    }
}

impl TopicsHost for Host {
    fn open(
        &self,
        name: &str,
        schema: &StreamSchema,
        level: Option<Level>,
    ) -> Result<StreamLog, String> {
        let app = self.node.upgrade().ok_or("the node is shutting down")?;
        let stream = StreamSpec {
            name: name.to_owned(),
            schema: schema.clone(),
            source: SOURCE.to_owned(),
            level,
        };
        let stream = stream.of_renamed(&app);
        // Topics open their streams on threads that may block.
        let opened = Handle::current().block_on(stream.open(&app, |_| false));
        let entry = opened.map_err(|error| error.to_string())?;
        Ok(entry.log.clone())
    }

    fn stream(&self, name: &str) -> Option<StreamLog> {
        let app = self.node.upgrade()?;
        app.catalogue.get(name).map(|entry| entry.log.clone())
    }

    fn received(&self, stream: &str, elements: u64, newest: Timestamp) {
        let app = self.node.upgrade();
        if let Some(entry) = app.and_then(|app| app.catalogue.get(stream)) {
            entry.record_arrivals(elements, newest);
        }
    }

    fn notice(&self, text: String) {
        if let Some(app) = self.node.upgrade() {
            app.observability
                .notices
                .notify(NoticeKind::Link, "dds", text);
        }
    }

    fn dropped(&self, reason: &'static str, topic: &str, detail: String) {
        if let Some(app) = self.node.upgrade() {
            app.observability
                .drops
                .record(Hop::Exchange, reason, topic, detail, None);
        }
    }

    fn now(&self) -> Timestamp {
        clock::now()
    }

    fn key(&self) -> String {
        self.key.clone()
    }
}
