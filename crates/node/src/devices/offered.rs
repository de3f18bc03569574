//! The streams of a device, opened as its offers change.

use std::collections::BTreeMap;
use std::sync::Arc;

use chappe_device::mapping::{Offer, Offers, Trouble};
use chappe_stream::{DeviceIdentity, name_part};
use chappe_transport::Hop;

use super::lineage::{Lineage, Successor, has_left};
use super::places::place_of_stream;
use crate::catalogue::{CatalogueError, Entry, PendingStream};
use crate::shared::App;
use crate::tasks::yield_every;

/// The streams of one device, by the numbers of its offers.
#[derive(Default)]
pub(super) struct Streams {
    /// The prefix of their names.
    base: String,
    /// The prefix used when another device has the same name.
    own: String,
    /// The place that an operator has assigned to the device.
    place: Option<String>,
    /// The streams of earlier runs.
    lineage: Lineage,
    slots: BTreeMap<usize, Slot>,
    /// The offer whose schema each stream has.
    current: BTreeMap<String, usize>,
    /// The number of the device's streams in the node, once counted.
    count: Option<usize>,
    missing: Option<Trouble>,
    /// Whether a removed stream was defined again and is not registered yet.
    is_reopened: bool,
}

/// The state of one offer.
enum Slot {
    Open(Arc<Entry>),
    /// The stream of this name could not be opened, for this reason.
    Missing {
        name: String,
        reason: String,
    },
}

impl Streams {
    /// Sets the prefix of new streams' names; existing streams keep theirs.
    pub(super) fn set_prefix(&mut self, key: &str, base: &str) {
        base.clone_into(&mut self.base);
        // The endpoint distinguishes devices of the same name.
        let tail: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
        let tail = tail[tail.len().saturating_sub(8)..].to_lowercase();
        self.own = format!("{}-{tail}", self.base);
    }

    /// Sets the place that is assigned to the device; its streams are then opened again, under the place's name.
    /// Returns whether it was another one.
    pub(super) fn set_place(&mut self, place: Option<String>) -> bool {
        let is_new = self.place != place;
        if is_new {
            self.place = place;
            self.slots.clear();
            self.current.clear();
        }
        is_new
    }

    /// Lets the device continue the streams of its durable identity. May take some seconds when these
    /// belong to another endpoint address, unless the device has left meanwhile.
    pub(super) async fn recognize(
        &mut self,
        app: &App,
        successor: Successor<'_>,
        identity: DeviceIdentity,
    ) {
        if self.lineage.recognize(app, successor, identity).await {
            // All its streams store the identity.
            self.current.clear();
        }
    }

    /// Whether the device continues streams of its identity.
    pub(super) fn continues_others(&self) -> bool {
        self.lineage.has_streams()
    }

    /// Opens the streams of all offers, and drops those of withdrawn offers. All definitions are queued
    /// before the first is awaited, so that a device with a thousand metrics costs few syncs.
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
            let others = format!(" ({} other streams are missing as well)", count - 1);
            missing.detail.push_str(&others);
        }
    }

    /// The reason why elements of an offer are lost, if any are.
    pub(super) fn missing(&self) -> Option<&Trouble> {
        self.missing.as_ref()
    }

    /// Whether streams must be registered again since the last call.
    pub(super) fn take_reopened(&mut self) -> bool {
        std::mem::take(&mut self.is_reopened)
    }

    /// The open streams of the device's current offers.
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

    /// The stream of an offer, with its schema; else its intended name and the reason why it is missing.
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

    /// Whether an offer's stream must be defined before it can be used.
    pub(super) fn is_undefined(&self, number: usize) -> bool {
        self.known(number).is_none()
    }

    /// The result of an offer, unless its stream has another offer's schema or was removed.
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
            _ => match &self.place {
                Some(place) => format!("{place}.{part}"),
                None => {
                    let continued = self.lineage.stream(&part);
                    continued.unwrap_or_else(|| format!("{}.{part}", self.base))
                }
            },
        };
        let (name, begun) = match self.define(app, key, name, offer).await {
            // A stream was renamed so: only this one gets another name, and its device keeps its place.
            (name, Err(CatalogueError::Taken { .. })) if is_renamed(app, &name) => {
                let name = format!("{}.{part}", self.own);
                self.define(app, key, name, offer).await
            }
            (name, Err(CatalogueError::Taken { .. })) => {
                self.lineage.forget(&name);
                self.place = None;
                self.base.clone_from(&self.own);
                let name = format!("{}.{part}", self.base);
                self.define(app, key, name, offer).await
            }
            begun => begun,
        };
        if begun.is_ok() {
            self.lineage.record_taken(app, key, &name);
            self.current.insert(name.clone(), number);
        }
        (name, begun.map_err(|error| error.to_string()))
    }

    /// Queues the definition of the stream of this name, within the device's quota.
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
        let is_placed = self.place.as_deref() == Some(place_of_stream(&name));
        let may_take = |owner: &str| {
            is_placed && has_left(app, owner) || self.lineage.may_take(app, &name, owner)
        };
        let begun = catalogue
            .define_for_device(&name, &offer.schema, key, identity, may_take)
            .await;
        (name, begun)
    }

    /// Waits until the stream is ready.
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

/// Whether the name is one that a stream was given after its definition.
fn is_renamed(app: &App, name: &str) -> bool {
    let entry = app.catalogue.get(name);
    entry.is_some_and(|entry| entry.name != name)
}

/// The name of a stream, with its pending definition or the reason why there is none.
type Begun<'a> = (String, Result<PendingStream<'a>, String>);
