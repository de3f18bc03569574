//! One device: described, registered, its events stored, until it leaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chappe_device::DeviceClient;
use chappe_device::client::{Description, Found};
use chappe_stream::StreamElement;
use chappe_transport::Hop;
use chappe_wrappers::dpws::{Attachment, Yield};
use chappe_wrappers::rules::Rules;
use chappe_wrappers::{Offer, Trouble};
use tokio::sync::mpsc;

use super::intake;
use super::streams;
use super::table::{Device, DeviceState};
use super::{entities, key_of};
use crate::catalogue::{self, Entry};
use crate::notices::NoticeKind;
use crate::register;
use crate::shared::App;

/// First and longest pause between two attempts to describe a device.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Yields taken together before they are stored.
const BATCH_MAX: usize = 512;

/// What a device's task is told.
#[derive(Debug)]
pub(super) enum Order {
    /// It describes itself otherwise. Boxed: a queue holds room for many of these.
    Changed(Box<Found>),
    /// It may have restarted: see whether its subscriptions still stand.
    Doubt,
}

/// Why the work with one description ended.
enum Ended {
    /// The device has to be described anew.
    Anew,
    /// The node, or the device, is at its end.
    Stop,
}

/// Follows one device until `orders` is closed.
pub(super) async fn follow(
    app: App,
    client: Arc<DeviceClient>,
    mut found: Found,
    mut orders: mpsc::Receiver<Order>,
) {
    let key = key_of(&found.endpoint);
    let mut pause = RETRY.0;
    loop {
        announce(&app, &key, &found);
        // Boxed, so that a device that only waits holds no memory for what it does not do.
        let described = tokio::select! {
            described = Box::pin(client.describe(&found)) => described,
            order = orders.recv() => match order {
                Some(Order::Changed(newer)) => { found = *newer; continue }
                Some(Order::Doubt) => continue,
                None => return,
            },
        };
        match described {
            Ok(description) => {
                pause = RETRY.0;
                let ended = use_device(&app, &client, &key, &description, &mut orders, &mut found);
                if matches!(Box::pin(ended).await, Ended::Stop) {
                    return;
                }
            }
            Err(error) => {
                let (reason, hint) = (error.to_string(), error.hint());
                let before = app.devices.get(&key).and_then(|device| device.reason);
                if before.as_ref() != Some(&reason) {
                    let text = format!("cannot be described: {reason}");
                    app.notices.tell(NoticeKind::Device, &key, text);
                }
                trouble(&app, &key, reason, hint);
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    order = orders.recv() => match order {
                        Some(Order::Changed(newer)) => found = *newer,
                        Some(Order::Doubt) => {}
                        None => return,
                    },
                }
                pause = (pause * 2).min(RETRY.1);
            }
        }
    }
}

/// Shows what discovery says.
fn announce(app: &App, key: &str, found: &Found) {
    app.devices.update(key, |device| {
        device.endpoint.clone_from(&found.endpoint);
        if device.name.is_empty() {
            device.name.clone_from(&found.endpoint);
        }
        if device.state == DeviceState::Gone || device.dialect.is_empty() {
            device.state = DeviceState::Attention;
            device.reason = Some("it is being described".to_owned());
            device.hint = None;
            device.found_by.clear();
        }
        device.found_by(found.way);
        device.dialect = entities::dialect_word(found.dialect).to_owned();
        device.types = found.types.iter().map(entities::type_name).collect();
        device.scopes.clone_from(&found.scopes);
        device.addresses.clone_from(&found.xaddrs);
        device.metadata_version = u64::from(found.metadata_version);
    });
}

fn trouble(app: &App, key: &str, reason: String, hint: Option<String>) {
    app.devices.update(key, |device| {
        device.state = DeviceState::Attention;
        device.reason = Some(reason);
        device.hint = hint;
    });
}

/// The path rules as their files are now; wrong files are told and left out.
async fn rules(app: &App) -> Rules {
    let directory = app.config.rules_directory.clone();
    let read = tokio::task::spawn_blocking(move || Rules::read(&directory)).await;
    let Ok((rules, wrong)) = read else {
        return Rules::default();
    };
    for error in wrong {
        let hint = error.hint.clone();
        app.drops.record(
            Hop::Element,
            "rules file",
            &error.file,
            error.to_string(),
            hint,
        );
    }
    rules
}

/// Registers a described device, subscribes to it and stores what it yields.
async fn use_device(
    app: &App,
    client: &DeviceClient,
    key: &str,
    description: &Description,
    orders: &mut mpsc::Receiver<Order>,
    found: &mut Found,
) -> Ended {
    for note in &description.notes {
        app.drops.record(
            Hop::Metadata,
            note.reason,
            key,
            note.detail.clone(),
            note.hint.clone(),
        );
    }
    app.devices
        .update(key, |device| entities::describe(device, description));
    let rules = rules(app).await;
    let mut attachment = Attachment::new(client, description, &rules).await;
    let streams = streams::open(app, key, description, attachment.offers()).await;
    register(app, key, &streams, attachment.offers()).await;
    let count = match streams.len() {
        1 => "1 stream".to_owned(),
        other => format!("{other} streams"),
    };
    let mut told = false;
    let mut usable = || {
        app.devices.update(key, |device| {
            device.state = DeviceState::Usable;
            (device.reason, device.hint) = (None, None);
        });
        if !std::mem::replace(&mut told, true) {
            let text = format!("{}: usable, {count}", description.name());
            app.notices.tell(NoticeKind::Device, key, text);
        }
    };
    if attachment.is_subscribed() {
        usable();
    } else {
        app.devices.update(key, |device| {
            if device.state != DeviceState::Usable {
                device.reason = Some("its events are being subscribed".to_owned());
            }
        });
    }
    let mut silent = false;
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                None => return Ended::Stop,
                Some(Order::Doubt) => attachment.doubt().await,
                Some(Order::Changed(newer)) => {
                    *found = *newer;
                    return Ended::Anew;
                }
            },
            yields = attachment.next(), if !silent => match yields {
                Some(yields) => {
                    let granted = yields.contains(&Yield::Subscribed);
                    if take(app, key, &streams, yields).await {
                        return Ended::Anew;
                    }
                    if granted && attachment.is_subscribed() {
                        usable();
                    }
                }
                // Nothing to wait for: it stays as it is until discovery says otherwise.
                None => silent = true,
            },
        }
    }
}

/// Stores elements and notes troubles; says whether the device has to be described anew.
async fn take(
    app: &App,
    key: &str,
    streams: &BTreeMap<usize, Arc<Entry>>,
    yields: Vec<Yield>,
) -> bool {
    let mut anew = false;
    let mut batches: BTreeMap<usize, Vec<StreamElement>> = BTreeMap::new();
    for (count, yielded) in yields.into_iter().enumerate() {
        match yielded {
            Yield::Element(offer, element) => batches.entry(offer).or_default().push(element),
            Yield::Trouble(trouble) => note(app, key, &trouble),
            Yield::DescriptionChanged => anew = true,
            _ => {}
        }
        if count % BATCH_MAX == BATCH_MAX - 1 {
            flush(app, streams, std::mem::take(&mut batches)).await;
        }
    }
    flush(app, streams, batches).await;
    anew
}

async fn flush(
    app: &App,
    streams: &BTreeMap<usize, Arc<Entry>>,
    batches: BTreeMap<usize, Vec<StreamElement>>,
) {
    let known = batches
        .into_iter()
        .filter_map(|(offer, elements)| Some((streams.get(&offer)?.clone(), elements)));
    intake::store(app, known.collect()).await;
}

fn note(app: &App, key: &str, trouble: &Trouble) {
    let of_subscription = matches!(
        trouble.reason,
        "subscription_ended" | "subscription_trouble" | "not_subscribed"
    );
    let hop = if of_subscription {
        Hop::Event
    } else {
        Hop::Element
    };
    let hint = trouble.hint.as_ref().map(ToString::to_string);
    let first = app.drops.total(hop, trouble.reason) == 0;
    app.drops.record(
        hop,
        trouble.reason,
        key,
        trouble.detail.clone(),
        hint.clone(),
    );
    if first {
        let text = format!("{}: {}", trouble.reason, trouble.detail);
        app.notices.tell(NoticeKind::Drop, key, text);
    }
    if of_subscription {
        self::trouble(app, key, trouble.detail.clone(), hint);
    }
}

async fn register(app: &App, key: &str, streams: &BTreeMap<usize, Arc<Entry>>, offers: &[Offer]) {
    let names: Vec<String> = streams.values().map(|entry| entry.name.clone()).collect();
    let mut shown = Device::default();
    app.devices.update(key, |device| {
        device.streams = names;
        shown = device.clone();
    });
    let mut all = entities::of_device(&shown);
    for (index, entry) in streams {
        let offer = &offers[*index];
        let text = offer.description.as_deref();
        let mut entity = entities::of_stream(&entry.name, &offer.schema, key, text);
        entity.types.clone_from(&shown.types);
        entity.scopes.clone_from(&shown.scopes);
        all.push(entity);
    }
    register::publish(app, all).await;
}

/// Takes a device that has left out of the registry; its streams keep their elements.
pub(super) async fn leave(app: &App, key: &str, reason: &str) {
    let Some(device) = app.devices.get(key) else {
        return;
    };
    app.devices.update(key, |device| {
        device.state = DeviceState::Gone;
        device.reason = Some(reason.to_owned());
        device.hint = None;
    });
    app.notices.tell(
        NoticeKind::Device,
        key,
        format!("{}: gone, {reason}", device.name),
    );
    let streams = device.streams.iter().map(|stream| catalogue::key(stream));
    let mut keys: Vec<String> = streams.collect();
    keys.extend(entities::service_keys(key, device.services.len()));
    keys.push(key.to_owned());
    register::remove(app, keys).await;
}
