//! Steps of following one device: update its table entry, store its elements, register and remove it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use chappe_device::mapping::rules::Rules;
use chappe_device::mapping::{Offer, Offers, Trouble};
use chappe_stream::StreamElement;
use chappe_transport::Hop;
use chappe_wrappers::dpws::AttachmentEvent;

use super::device::{Device, DeviceState};
use super::entities;
use super::offered::Streams;
use super::output::Output;
use super::{services, succession};
use crate::catalogue::{self, Entry};
use crate::notices::NoticeKind;
use crate::producer::Producer;
use crate::shared::App;
use crate::tasks::yield_every;

/// Outputs in one batch.
pub(super) const BATCH_MAX: usize = 512;

/// Reads the path rules; invalid files are reported and skipped.
pub(super) async fn rules(app: &App) -> Rules {
    let directory = app.config.rules_directory.clone();
    let read = tokio::task::spawn_blocking(move || Rules::read(&directory)).await;
    let Ok((rules, wrong)) = read else {
        return Rules::default();
    };
    for error in wrong {
        let hint = error.hint.clone();
        app.observability.drops.record(
            Hop::Element,
            "rules file",
            &error.file,
            error.to_string(),
            hint,
        );
    }
    rules
}

/// The context for storing the outputs of a device.
pub(super) struct OutputStore<'a> {
    pub(super) app: &'a App,
    pub(super) key: &'a str,
    pub(super) streams: &'a mut Streams,
    pub(super) output: &'a mut Output,
    pub(super) offers: &'a Offers,
}

impl OutputStore<'_> {
    /// Stores elements and records troubles.
    pub(super) async fn store_outputs(&mut self, yields: Vec<AttachmentEvent>) {
        let mut batches: BTreeMap<usize, Vec<StreamElement>> = BTreeMap::new();
        for (count, yielded) in yields.into_iter().enumerate() {
            match yielded {
                AttachmentEvent::Element(offer, element) => {
                    batches.entry(offer).or_default().push(element)
                }
                AttachmentEvent::Current(offer, element) => {
                    let known = match self.offers.get(offer) {
                        Some(found) => self.stream(offer, found).await.ok(),
                        None => None,
                    };
                    if !known.is_some_and(|entry| is_newest(self.output, &entry, &element)) {
                        batches.entry(offer).or_default().push(element);
                    }
                }
                AttachmentEvent::Trouble(trouble) => record_trouble(self.app, self.key, &trouble),
                _ => {}
            }
            if count % BATCH_MAX == BATCH_MAX - 1 {
                self.flush(std::mem::take(&mut batches)).await;
            }
        }
        self.flush(batches).await;
    }

    async fn flush(&mut self, batches: BTreeMap<usize, Vec<StreamElement>>) {
        for (number, elements) in batches {
            let count = elements.len() as u64;
            let Some(offer) = self.offers.get(number) else {
                let detail = "the device no longer offers the stream";
                self.app
                    .observability
                    .record_loss(self.key, count, "no stream", detail);
                continue;
            };
            match self.stream(number, offer).await {
                Ok(entry) => self.output.store(entry, elements).await,
                Err((name, reason)) => {
                    self.app
                        .observability
                        .record_loss(&name, count, "no stream", &reason);
                }
            }
        }
    }

    /// The stream of an offer, with its schema. Elements received before a schema change are stored
    /// before it.
    async fn stream(
        &mut self,
        number: usize,
        offer: &Offer,
    ) -> Result<Arc<Entry>, (String, String)> {
        if self.streams.is_undefined(number) {
            self.output.drain().await;
        }
        self.streams.stream(self.app, self.key, number, offer).await
    }
}

/// Whether an element equals the newest stored one, because an earlier run read it.
fn is_newest(output: &Output, entry: &Arc<Entry>, element: &StreamElement) -> bool {
    let same = |stored: &StreamElement| {
        (stored.source_time, &stored.values, stored.quality)
            == (element.source_time, &element.values, element.quality)
    };
    if let Some(newest) = output.newest(entry) {
        return same(newest);
    }
    let newest = entry.log.newest(1).unwrap_or_default();
    newest.last().is_some_and(same)
}

fn record_trouble(app: &App, key: &str, trouble: &Trouble) {
    let of_subscription = matches!(
        trouble.reason,
        "subscription_ended" | "subscription_trouble" | "not_subscribed" | "sdc_reports_missed"
    );
    let hop = if of_subscription {
        Hop::Event
    } else {
        Hop::Element
    };
    let hint = trouble.hint.as_ref().map(ToString::to_string);
    let first = app.observability.drops.total(hop, trouble.reason) == 0;
    app.observability
        .drops
        .record(hop, trouble.reason, key, trouble.detail.clone(), hint);
    if first {
        let text = format!("{}: {}", trouble.reason, trouble.detail);
        app.observability
            .notices
            .notify(NoticeKind::Drop, key, text);
    }
}

/// Registers a device with its services and streams, and unregisters those of `registered` that it no
/// longer has.
pub(super) async fn register(
    app: &App,
    key: &str,
    streams: &Streams,
    offers: &Offers,
    registered: &mut Vec<String>,
) {
    let Some(shown) = app.devices.get(key) else {
        return;
    };
    let before = std::mem::replace(registered, shown.streams.clone());
    let streams_now: HashSet<&String> = shown.streams.iter().collect();
    let vanished = before.iter().filter(|name| !streams_now.contains(name));
    app.registrar
        .remove(vanished.map(|name| catalogue::key(name)).collect())
        .await;
    let mut all = entities::of_device(app, &shown);
    let producer = Producer {
        key,
        types: &shown.types,
        scopes: &shown.scopes,
        is_platform: true,
    };
    for (index, (offer, entry)) in streams.live(offers).enumerate() {
        yield_every(index).await;
        let text = offer.description.as_deref();
        all.push(producer.stream(&entry.name, &offer.schema, text));
    }
    app.registrar.publish(all).await;
}

/// Unregisters a device that has left; its streams keep their elements. `device` is its last table
/// entry, in case another device replaces it in the table meanwhile.
pub(super) async fn leave(app: &App, device: Device, reason: &str) {
    let device = app.devices.get(&device.key).unwrap_or(device);
    let key = device.key.as_str();
    app.devices.update(key, |device| {
        device.set_state(DeviceState::Gone, reason.to_owned(), None);
    });
    app.observability.notices.notify(
        NoticeKind::Device,
        key,
        format!("{}: gone, {reason}", device.name),
    );
    unregister(app, &device).await;
    succession::left(app, key).await;
}

/// Unregisters a device that is left out; its streams keep their elements.
pub(super) async fn exclude(app: &App, key: &str) {
    let Some(device) = app.devices.get(key) else {
        return;
    };
    unregister(app, &device).await;
    app.devices.update(key, |device| {
        device.state = DeviceState::Excluded;
        device.streams.clear();
        device.services.clear();
    });
    let text = format!("{}: left out", device.name);
    app.observability
        .notices
        .notify(NoticeKind::Device, key, text);
}

/// Unregisters a device, its services and its streams.
pub(super) async fn unregister(app: &App, device: &Device) {
    let streams = device.streams.iter().map(|stream| catalogue::key(stream));
    let mut keys: Vec<String> = streams.collect();
    let service_keys = entities::service_keys(&device.key, device.services.len());
    keys.extend(service_keys.iter().cloned());
    keys.push(device.key.clone());
    app.registrar.remove(keys).await;
    services::remove(app, service_keys).await;
}
