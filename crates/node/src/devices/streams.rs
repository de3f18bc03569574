//! The streams of a device: opened for what its description offers.

use std::collections::BTreeMap;
use std::sync::Arc;

use chappe_device::client::Description;
use chappe_stream::name_part;
use chappe_transport::Hop;
use chappe_wrappers::Offer;

use crate::catalogue::{CatalogueError, Entry, Making};
use crate::shared::{App, take_turns};

/// Streams of one device; reason: a stranger's description must not fill the catalogue.
const STREAMS_MAX: usize = 1_000;

/// Opens a stream for each offer, by index. All definitions are queued before the first is awaited, so
/// that a device of a thousand metrics costs few syncs.
pub(super) async fn open(
    app: &App,
    key: &str,
    description: &Description,
    offers: &[Offer],
) -> BTreeMap<usize, Arc<Entry>> {
    let lacking = |offer: &Offer, error: CatalogueError| {
        let (reason, detail) = ("no stream", format!("{}: {error}", offer.name));
        app.drops.record(Hop::Element, reason, key, detail, None);
    };
    let mut names = Names::new(key, description.name());
    let mut making = Vec::new();
    for (index, offer) in offers.iter().enumerate().take(STREAMS_MAX) {
        match begin(app, key, &mut names, offer).await {
            Ok(one) => making.push((index, one)),
            Err(error) => lacking(offer, error),
        }
        take_turns(index).await;
    }
    let mut streams = BTreeMap::new();
    for (index, one) in making {
        match one.made().await {
            Ok(entry) => drop(streams.insert(index, entry)),
            Err(error) => lacking(&offers[index], error),
        }
        take_turns(index).await;
    }
    let left_out = offers.len().saturating_sub(STREAMS_MAX);
    if left_out > 0 {
        let detail = format!("{left_out} streams beyond the limit of {STREAMS_MAX}");
        app.drops
            .record(Hop::Element, "too many streams", key, detail, None);
    }
    streams
}

/// Queues the definition of one stream.
async fn begin<'a>(
    app: &'a App,
    key: &str,
    names: &mut Names,
    offer: &Offer,
) -> Result<Making<'a>, CatalogueError> {
    let begin = |name: String| async move {
        let catalogue = &app.catalogue;
        catalogue.begin(&name, &offer.schema, key, None).await
    };
    let part = name_part(&offer.name);
    match begin(names.of(&part)).await {
        Err(CatalogueError::Taken { .. }) => begin(names.own(&part)).await,
        begun => begun,
    }
}

/// Names of a device's streams.
struct Names {
    /// What they begin with.
    base: String,
    /// What they begin with when another device has the same name.
    own: String,
}

impl Names {
    fn new(key: &str, device: &str) -> Self {
        let base = name_part(device);
        // A device that shares its name with another is told from it by its endpoint.
        let tail: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
        let tail = tail[tail.len().saturating_sub(8)..].to_lowercase();
        Self {
            own: format!("{base}-{tail}"),
            base,
        }
    }

    fn of(&self, part: &str) -> String {
        format!("{}.{part}", self.base)
    }

    /// The name that no other device takes; those after it begin as it does.
    fn own(&mut self, part: &str) -> String {
        self.base.clone_from(&self.own);
        self.of(part)
    }
}
