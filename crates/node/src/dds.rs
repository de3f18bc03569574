//! The DDS topics of the node: where they report, and their state. Wrappers and exporters of kind `dds` run them.

use std::sync::Arc;

use chappe_dds::topics::{Reports, Topics};
use chappe_transport::Hop;

use crate::config::Config;
use crate::error::StartError;
use crate::notices::NoticeKind;
use crate::observability::Observability;
use crate::shared::App;

/// The topics of the node with this key. They join their domain with the first wrapper or exporter.
///
/// # Errors
/// An invalid configuration.
pub(crate) fn topics(
    config: &Config,
    key: &str,
    observability: &Arc<Observability>,
) -> Result<Arc<Topics>, StartError> {
    let (notices, drops) = (observability.clone(), observability.clone());
    let reports = Reports {
        notice: Box::new(move |text| notices.notices.notify(NoticeKind::Link, "dds", text)),
        dropped: Box::new(move |reason, topic, detail| {
            let drops = &drops.drops;
            drops.record(Hop::Exchange, reason, topic, detail, None);
        }),
    };
    let topics = Topics::new(config.dds.clone(), key.to_owned(), reports);
    let topics = topics.map_err(|error| StartError::Dds {
        hint: error.hint().map(str::to_owned),
        reason: error.to_string(),
    })?;
    Ok(Arc::new(topics))
}

/// The state of the topics.
pub(crate) fn status(app: &App) -> serde_json::Value {
    serde_json::to_value(app.topics.status()).unwrap_or_default()
}
