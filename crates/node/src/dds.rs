//! Connects DDS topics to the node: how they open streams, and how they are reported.

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
use crate::streams::Opening;

/// The source, in the registry, of all streams that are read from topics.
const SOURCE: &str = "urn:chappe:dds";

/// The node, as its topics see it; it may be gone before they are.
struct Host {
    node: Weak<Shared>,
    key: String,
}

/// Starts the topics of the configuration, if there are any.
///
/// # Errors
/// A configuration that cannot be one.
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
        tell_fragment_memory(app);
    }
    Ok(())
}

/// Says when the operating system keeps less of large datagrams than a network that loses frames needs;
/// writers of other vendors, and Cyclone DDS here, send such.
fn tell_fragment_memory(app: &App) {
    let memory = FragmentMemory::read();
    if let Some((memory, text)) = memory.and_then(|it| Some((it, it.complaint()?))) {
        let text = format!("{text}; remedy: {}", memory.remedy());
        tracing::warn!("{text}");
        app.observability
            .notices
            .tell(NoticeKind::Health, "memory for fragments", text);
    }
}

/// How they are.
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
        let app = self.node.upgrade().ok_or("the node ends")?;
        let opening = Opening {
            name: name.to_owned(),
            schema: schema.clone(),
            source: SOURCE.to_owned(),
            level,
        };
        // Topics open their streams on threads that may wait.
        let opened = Handle::current().block_on(opening.open(&app, |_| false));
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
            entry.came(elements, newest);
        }
    }

    fn notice(&self, text: String) {
        if let Some(app) = self.node.upgrade() {
            app.observability
                .notices
                .tell(NoticeKind::Link, "dds", text);
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
