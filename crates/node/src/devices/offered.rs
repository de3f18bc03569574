//! The streams of a device, opened as its offers change.

use std::collections::BTreeMap;
use std::sync::Arc;

use chappe_device::DeviceClient;
use chappe_device::mapping::{Offer, Offers, Trouble};
use chappe_stream::{DeviceIdentity, name_part};
use chappe_transport::Hop;
use tokio::sync::watch;

use super::identity::Product;
use super::lineage::{Lineage, Successor};
use crate::catalogue::{CatalogueError, Entry, PendingStream};
use crate::shared::App;
use crate::tasks::yield_every;

/// The streams of one device, by the numbers of its offers.
#[derive(Default)]
pub(super) struct Streams {
    /// What their names begin with.
    base: String,
    /// What they begin with when another device has the same name.
    own: String,
    /// Those that were there before.
    lineage: Lineage,
    slots: BTreeMap<usize, Slot>,
    /// Which offer a stream has its schema of.
    current: BTreeMap<String, usize>,
    /// How many streams of the device the node has, once they were counted.
    count: Option<usize>,
    missing: Option<Trouble>,
    /// A stream that was removed is defined again, and not registered.
    is_reopened: bool,
}

/// What became of one offer.
enum Slot {
    Open(Arc<Entry>),
    /// There is no stream of this name, for this reason.
    Missing {
        name: String,
        reason: String,
    },
}

impl Streams {
    /// The names of the device's streams have this prefix now. Streams that it has keep their names.
    pub(super) fn name(&mut self, key: &str, base: &str) {
        base.clone_into(&mut self.base);
        // A device that shares its name with another is told from it by its endpoint.
        let tail: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
        let tail = tail[tail.len().saturating_sub(8)..].to_lowercase();
        self.own = format!("{}-{tail}", self.base);
    }

    /// The device has this durable identity: its streams continue those of the identity. May take some
    /// seconds when these are of another endpoint address, unless the device has `left` meanwhile.
    pub(super) async fn recognize(
        &mut self,
        app: &App,
        client: &Arc<DeviceClient>,
        key: &str,
        product: &Product,
        identity: DeviceIdentity,
        left: &mut watch::Receiver<bool>,
    ) {
        let lineage = &mut self.lineage;
        let successor = Successor {
            client,
            key,
            product,
            left,
        };
        if lineage.recognize(app, successor, identity).await {
            // It is stored with all of them.
            self.current.clear();
        }
    }

    /// Opens the streams of all offers, and forgets those of offers that are no more. All definitions
    /// are queued before the first is awaited, so that a device of a thousand metrics costs few syncs.
    pub(super) async fn open_all(&mut self, app: &App, key: &str, offers: &Offers) {
        self.slots
            .retain(|number, slot| offers.get(*number).is_some() && matches!(slot, Slot::Open(_)));
        let slots = &self.slots;
        self.current.retain(|_, number| slots.contains_key(number));
        self.missing = None;
        self.count = None;
        let mut queued = Vec::new();
        for (index, (number, offer)) in offers.iter().enumerate() {
            if self.known(number).is_none() {
                queued.push((number, self.begin(app, key, number, offer).await));
            }
            yield_every(index).await;
        }
        let mut count = 0;
        for (index, (number, begun)) in queued.into_iter().enumerate() {
            if let Err((name, reason)) = self.finish(number, begun).await {
                count += 1;
                let detail = format!("{name}: {reason}");
                app.observability.drops.record(
                    Hop::Element,
                    "no stream",
                    key,
                    detail.clone(),
                    None,
                );
                self.missing.get_or_insert(Trouble {
                    reason: "no stream",
                    detail,
                    hint: None,
                });
            }
            yield_every(index).await;
        }
        if let Some(missing) = self.missing.as_mut().filter(|_| count > 1) {
            let others = format!(" ({} other streams are missing, too)", count - 1);
            missing.detail.push_str(&others);
        }
    }

    /// Why elements of some offer are lost, if they are.
    pub(super) fn missing(&self) -> Option<&Trouble> {
        self.missing.as_ref()
    }

    /// Whether streams have to be registered again since this was asked.
    pub(super) fn take_reopened(&mut self) -> bool {
        std::mem::take(&mut self.is_reopened)
    }

    /// The open streams of the offers that the device has now.
    pub(super) fn live<'a>(
        &'a self,
        offers: &'a Offers,
    ) -> impl Iterator<Item = (&'a Offer, &'a Arc<Entry>)> {
        offers
            .iter()
            .filter_map(|(number, offer)| match self.slots.get(&number)? {
                Slot::Open(entry) => Some((offer, entry)),
                Slot::Missing { .. } => None,
            })
    }

    /// The stream of an offer, with its schema; else the name that it would have, and why it has none.
    pub(super) async fn stream(
        &mut self,
        app: &App,
        key: &str,
        number: usize,
        offer: &Offer,
    ) -> Result<Arc<Entry>, (String, String)> {
        if let Some(known) = self.known(number) {
            return known;
        }
        let begun = self.begin(app, key, number, offer).await;
        self.finish(number, begun).await
    }

    /// Whether an offer's stream has to be defined before it can be used.
    pub(super) fn is_undefined(&self, number: usize) -> bool {
        self.known(number).is_none()
    }

    /// What became of an offer, unless its stream has the schema of another one or was removed.
    fn known(&self, number: usize) -> Option<Result<Arc<Entry>, (String, String)>> {
        match self.slots.get(&number)? {
            Slot::Open(entry) => {
                let is_current =
                    self.current.get(&entry.name) == Some(&number) && !entry.log.log().is_removed();
                is_current.then(|| Ok(entry.clone()))
            }
            Slot::Missing { name, reason } => Some(Err((name.clone(), reason.clone()))),
        }
    }

    /// Queues the definition of an offer's stream.
    async fn begin<'a>(
        &mut self,
        app: &'a App,
        key: &str,
        number: usize,
        offer: &Offer,
    ) -> Begun<'a> {
        let part = name_part(&offer.name);
        let name = match self.slots.get(&number) {
            Some(Slot::Open(entry)) => {
                self.is_reopened |= entry.log.log().is_removed();
                entry.name.clone()
            }
            _ => {
                let continued = self.lineage.stream(&part);
                continued.unwrap_or_else(|| format!("{}.{part}", self.base))
            }
        };
        let (name, begun) = match self.define(app, key, name, offer).await {
            (name, Err(CatalogueError::Taken { .. })) => {
                self.lineage.forget(&name);
                self.base.clone_from(&self.own);
                let name = format!("{}.{part}", self.base);
                self.define(app, key, name, offer).await
            }
            begun => begun,
        };
        if begun.is_ok() {
            self.lineage.taken(app, key, &name);
            self.current.insert(name.clone(), number);
        }
        (name, begun.map_err(|error| error.to_string()))
    }

    /// Queues the definition of the stream of this name, unless it is one too many for the device.
    async fn define<'a>(
        &mut self,
        app: &'a App,
        key: &str,
        name: String,
        offer: &Offer,
    ) -> (String, Result<PendingStream<'a>, CatalogueError>) {
        let is_new = !self.current.contains_key(&name) && app.catalogue.get(&name).is_none();
        if is_new {
            let count = self
                .count
                .get_or_insert_with(|| app.catalogue.stream_count(key));
            if *count >= app.config.devices.max_streams as usize {
                let error = CatalogueError::TooManyOfDevice(*count);
                return (name, Err(error));
            }
            *count += 1;
        }
        let (identity, catalogue) = (self.lineage.identity(), &app.catalogue);
        let may_take = |owner: &str| self.lineage.may_take(app, &name, owner);
        let begun = catalogue
            .define_for_device(&name, &offer.schema, key, identity, may_take)
            .await;
        (name, begun)
    }

    /// Waits until the stream can be used.
    async fn finish(
        &mut self,
        number: usize,
        (name, begun): Begun<'_>,
    ) -> Result<Arc<Entry>, (String, String)> {
        let made = match begun {
            Ok(making) => making.finish().await.map_err(|error| error.to_string()),
            Err(reason) => Err(reason),
        };
        let slot = match &made {
            Ok(entry) => Slot::Open(entry.clone()),
            Err(reason) => {
                self.current.retain(|_, current| *current != number);
                Slot::Missing {
                    name: name.clone(),
                    reason: reason.clone(),
                }
            }
        };
        self.slots.insert(number, slot);
        made.map_err(|reason| (name, reason))
    }
}

/// The name of a stream, and its definition on the way or why there is none.
type Begun<'a> = (String, Result<PendingStream<'a>, String>);
