//! Follows one device from arrival to departure: describes it, subscribes, opens and registers its
//! streams.
//!
//! Description runs in the background: while the device changes or does not answer, its events keep
//! flowing. Streams that it no longer offers are unregistered.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use chappe_device::client::{Description, Found};
use chappe_device::mapping::Trouble;
use chappe_device::{DeviceClient, Error};
use chappe_transport::Hop;
use chappe_wrappers::dpws::{Attachment, AttachmentEvent, RETRY};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::charge::ChargedQuota;
use super::device::{Device, DeviceState};
use super::follower::DeviceCommand;
use super::identity::Product;
use super::lineage::Successor;
use super::offered::Streams;
use super::output::Output;
use super::task::{self, BATCH_MAX, OutputStore};
use super::{device_key, entities, services, succession};
use crate::notices::NoticeKind;

use crate::shared::App;
use crate::tasks::shutdown;

/// Pause between two registrations of a device; reason: each costs a commit, and every virtual sensor
/// searches its sources again.
const REGISTER_PAUSE: Duration = Duration::from_secs(1);

/// A device that is being followed.
struct Following {
    app: App,
    client: Arc<DeviceClient>,
    /// Becomes true when the device has left.
    left: watch::Receiver<bool>,
    key: String,
    found: Found,
    /// From its last description.
    product: Option<Product>,
    attachment: Attachment,
    streams: Streams,
    output: Output,
    quota: ChargedQuota,
    describing: Describing,
    /// The next pause before it is described again.
    pause: Duration,
    /// Changes whenever a place is assigned to a device.
    places: watch::Receiver<u64>,
    /// Changes whenever a device may be left out, or no longer.
    exclusions: watch::Receiver<u64>,
    is_excluded: bool,
    /// The error of the last description.
    failure: Option<Trouble>,
    is_described: bool,
    /// Whether no events can arrive until its description changes.
    is_silent: bool,
    /// Whether a notice has reported it as usable since it was described.
    is_announced: bool,
    /// Time of the next registration of its entities.
    register_at: Option<Instant>,
    registered_at: Option<Instant>,
    /// Streams in the registry.
    registered: Vec<String>,
    /// The fingerprint of its services in UDDI.
    offered: Option<u64>,
}

type Described = Pin<Box<dyn Future<Output = Result<Description, Error>> + Send>>;

/// The progress of describing a device.
enum Describing {
    Idle,
    /// A request to these addresses is pending; `again`: the device has changed since.
    Asked {
        described: Described,
        addresses: Vec<String>,
        again: bool,
    },
    /// The request is retried after a pause.
    Paused(Pin<Box<tokio::time::Sleep>>),
}

impl Describing {
    /// Waits for the description, or for the time to request it.
    async fn next(&mut self) -> Option<Result<Description, Error>> {
        match self {
            Self::Idle => std::future::pending().await,
            Self::Asked { described, .. } => Some(described.await),
            Self::Paused(sleep) => {
                sleep.await;
                None
            }
        }
    }
}

/// Follows one device until `commands` and `left` are closed, then stores all acknowledged notifications.
/// From then on it waits for no device, and with `is_cut` set it does not wait for room on a full disk.
pub(super) async fn follow(
    app: App,
    client: Arc<DeviceClient>,
    found: Found,
    mut commands: mpsc::Receiver<DeviceCommand>,
    left: watch::Receiver<bool>,
    is_cut: Arc<AtomicBool>,
) {
    let key = device_key(&found.endpoint);
    let mut following = Following {
        output: Output::new(&app, is_cut),
        quota: ChargedQuota::new(&app, &key),
        exclusions: app.devices.exclusions.changes(),
        places: app.devices.places.changes(),
        app,
        client,
        left,
        key,
        found,
        product: None,
        attachment: Attachment::default(),
        streams: Streams::default(),
        describing: Describing::Idle,
        pause: RETRY.0,
        is_excluded: false,
        failure: None,
        is_described: false,
        is_silent: true,
        is_announced: false,
        register_at: None,
        registered_at: None,
        registered: Vec::new(),
        offered: None,
    };
    following.find_exclusion().await;
    following.request_description();
    following.run(&mut commands).await;
    following.finish().await;
}

impl Following {
    async fn run(&mut self, commands: &mut mpsc::Receiver<DeviceCommand>) {
        loop {
            let register_at = self.register_at.unwrap_or_else(Instant::now);
            let quota_at = self.quota.deadline();
            let quota_passes = tokio::time::sleep_until(quota_at.unwrap_or(register_at));
            let may_read = !self.is_silent && !self.quota.is_paused();
            tokio::select! {
                command = commands.recv() => match command {
                    None => return,
                    Some(DeviceCommand::VerifySubscriptions) => self.attachment.verify_subscriptions().await,
                    Some(DeviceCommand::Redescribe(found)) => self.on_change(*found).await,
                },
                Ok(()) = self.exclusions.changed() => {
                    let was_excluded = self.is_excluded;
                    if !self.find_exclusion().await && was_excluded {
                        self.request_description();
                    }
                }
                Ok(()) = self.places.changed() => {
                    let place = self.app.devices.places.of(&self.key);
                    if self.streams.set_place(place) && self.is_described {
                        self.open_streams().await;
                        self.register().await;
                    }
                }
                described = self.describing.next() => match described {
                    None => self.request_description(),
                    Some(described) => self.on_description(described).await,
                },
                yields = self.attachment.next(), if may_read => match yields {
                    Some(yields) => {
                        let yields = self.with_ready(yields);
                        self.store_outputs(yields).await;
                    }
                    None => self.is_silent = true,
                },
                () = self.output.settled() => self.output.settle().await,
                () = quota_passes, if quota_at.is_some() => {
                    self.quota.pass(Instant::now());
                    self.update_state();
                }
                () = tokio::time::sleep_until(register_at), if self.register_at.is_some() => {
                    self.register().await;
                }
            }
        }
    }

    /// Adds the outputs that are ready, within the quota, so that all are stored together.
    fn with_ready(&mut self, mut yields: Vec<AttachmentEvent>) -> Vec<AttachmentEvent> {
        self.quota.charge(&yields);
        // This poll needs no waker; the next wait registers its own.
        let mut nobody = Context::from_waker(Waker::noop());
        while yields.len() < BATCH_MAX
            && !self.quota.is_paused()
            && !yields.contains(&AttachmentEvent::OffersChanged)
            && let Poll::Ready(Some(more)) = pin!(self.attachment.next()).poll(&mut nobody)
        {
            self.quota.charge(&more);
            yields.extend(more);
        }
        yields
    }

    /// Stores all acknowledged notifications, even of a paused device.
    async fn store_acknowledged(&mut self) {
        self.attachment.close();
        while let Some(yields) = self.attachment.next().await {
            self.quota.charge(&yields);
            self.store_outputs(yields).await;
        }
        self.output.drain().await;
    }

    async fn finish(&mut self) {
        self.store_acknowledged().await;
        if self.register_at.is_some() {
            self.register().await;
        }
    }

    /// Handles a change reported by discovery. Changes during a description at the same addresses are
    /// merged.
    async fn on_change(&mut self, found: Found) {
        self.found = found;
        self.announce();
        if self.find_exclusion().await {
            return;
        }
        match &mut self.describing {
            Describing::Asked {
                addresses, again, ..
            } if *addresses == self.found.xaddrs => {
                *again = true;
            }
            _ => self.request_description(),
        }
    }

    fn announce(&self) {
        let announce = |device: &mut Device| device.announce(&self.found);
        self.app.devices.update(&self.key, announce);
    }

    /// Requests the device's description, unless it is left out.
    fn request_description(&mut self) {
        if self.is_excluded {
            return;
        }
        self.announce();
        let (client, found) = (Arc::clone(&self.client), self.found.clone());
        self.describing = Describing::Asked {
            addresses: found.xaddrs.clone(),
            described: Box::pin(async move { client.describe(&found).await }),
            again: false,
        };
    }

    async fn on_description(&mut self, described: Result<Description, Error>) {
        let before = std::mem::replace(&mut self.describing, Describing::Idle);
        let again = matches!(before, Describing::Asked { again: true, .. });
        match described {
            Ok(description) => self.attach(&description).await,
            Err(error) => self.on_description_error(&error),
        }
        if again {
            self.request_description();
        } else if self.failure.is_some() || self.attachment.needs_description() {
            self.describing = Describing::Paused(Box::pin(tokio::time::sleep(self.pause)));
            self.pause = (self.pause * 2).min(RETRY.1);
        } else {
            self.pause = RETRY.0;
        }
    }

    fn on_description_error(&mut self, error: &Error) {
        let reason = error.to_string();
        let is_known = |failure: &Trouble| failure.detail == reason;
        if !self.failure.as_ref().is_some_and(is_known) {
            let text = format!("cannot be described: {reason}");
            self.app
                .observability
                .notices
                .notify(NoticeKind::Device, &self.key, text);
        }
        self.app.devices.update(&self.key, |device| {
            device.set_state(DeviceState::Attention, reason.clone(), error.hint());
        });
        self.failure = Some(Trouble {
            reason: "not described",
            detail: reason,
            hint: None,
        });
    }

    /// Subscribes to a device according to its description.
    async fn attach(&mut self, description: &Description) {
        let (app, key) = (&self.app, &self.key);
        for note in &description.notes {
            let (detail, hint) = (note.detail.clone(), note.hint.clone());
            app.observability
                .drops
                .record(Hop::Metadata, note.reason, key, detail, hint);
        }
        crate::discovery_proxy::described(app, description).await;
        let mut services = 0;
        app.devices.update(key, |device| {
            services = device.services.len();
            device.describe(description);
        });
        // Its name is known only now.
        if self.find_exclusion().await {
            return;
        }
        let (app, key) = (&self.app, &self.key);
        let vanished = entities::service_keys(key, services);
        let vanished = vanished.into_iter().skip(description.services.len());
        let vanished: Vec<String> = vanished.collect();
        app.registrar.remove(vanished.clone()).await;
        services::remove(app, vanished).await;
        let offered = services::fingerprint(description);
        if self.offered.replace(offered) != Some(offered) {
            services::publish(app, key, description).await;
        }
        let rules = task::rules(app).await;
        let product = self.product.insert(Product::of(description));
        self.streams.set_prefix(&self.key, &product.base);
        // May take some seconds, so it runs before the subscriptions.
        self.recognize().await;
        self.find_place().await;
        self.streams
            .set_place(self.app.devices.places.of(&self.key));
        if self.has_left() {
            return;
        }
        self.attachment
            .describe(&self.client, description, &rules)
            .await;
        self.failure = None;
        self.is_described = true;
        self.is_silent = false;
        self.is_announced = false;
        self.register_at = None;
        self.open_streams().await;
        self.register().await;
        self.update_state();
    }

    /// Finds out whether the device is left out now, and if so ends what runs for it. Acknowledged
    /// notifications are stored first.
    async fn find_exclusion(&mut self) -> bool {
        let device = self.app.devices.get(&self.key);
        let exclusion = device.and_then(|device| self.app.devices.exclusions.of(&device));
        let was_excluded = std::mem::replace(&mut self.is_excluded, exclusion.is_some());
        let Some(exclusion) = exclusion else {
            return false;
        };
        if !was_excluded {
            self.describing = Describing::Idle;
            self.store_acknowledged().await;
            self.attachment = Attachment::default();
            (self.is_described, self.is_silent) = (false, true);
            (self.failure, self.register_at) = (None, None);
            self.registered.clear();
            self.offered = None;
            task::exclude(&self.app, &self.key).await;
        }
        let hint = match exclusion.id {
            Some(id) => format!("chappe device include {id}"),
            None => "remove it from devices.exclude in the configuration".to_owned(),
        };
        self.app.devices.update(&self.key, |device| {
            let reason = format!("left out by {}", exclusion.devices);
            device.set_state(DeviceState::Excluded, reason, Some(hint));
            device.exclusion = exclusion.id;
        });
        true
    }

    /// Finds the streams that the device continues, once its identity is known.
    async fn recognize(&mut self) {
        if let Some(product) = &self.product
            && let Some(identity) = product.identity(self.attachment.meta_data())
        {
            let successor = Successor {
                client: &self.client,
                key: &self.key,
                product,
                left: &mut self.left,
            };
            self.streams.recognize(&self.app, successor, identity).await;
        }
    }

    /// Takes the place of a device that has left, if the rule says so.
    async fn find_place(&mut self) {
        let Some(product) = &self.product else { return };
        let is_known = self.streams.continues_others();
        let (app, client, key) = (&self.app, &self.client, &self.key);
        tokio::select! {
            () = succession::arrived(app, client, key, &product.presence, is_known) => {}
            // The device has left meanwhile.
            () = shutdown(&mut self.left) => {}
        }
    }

    fn has_left(&self) -> bool {
        self.left.has_changed().is_err()
    }

    async fn open_streams(&mut self) {
        let offers = self.attachment.offers();
        let mut numbers = offers.iter().map(|(number, _)| number);
        if numbers.any(|number| self.streams.is_undefined(number)) {
            // Elements received before a schema change are stored before it.
            self.output.drain().await;
        }
        self.streams.open_all(&self.app, &self.key, offers).await;
        let live = self.streams.live(offers);
        let names = live.map(|(_, entry)| entry.name.clone()).collect();
        self.app.devices.set_streams(&self.key, names);
    }

    async fn register(&mut self) {
        self.register_at = None;
        let (offers, registered) = (self.attachment.offers(), &mut self.registered);
        self.registered_at = (!offers.is_empty()).then(Instant::now);
        task::register(&self.app, &self.key, &self.streams, offers, registered).await;
    }

    /// Stores elements, each in the stream that it belonged to on arrival. The streams of new offers are
    /// opened together, before the first of their elements.
    async fn store_outputs(&mut self, yields: Vec<AttachmentEvent>) {
        if yields.contains(&AttachmentEvent::OffersChanged) {
            self.recognize().await;
        }
        let is_change = |one: &&AttachmentEvent| **one == AttachmentEvent::OffersChanged;
        let changes = yields.iter().filter(is_change).count();
        let (mut part, mut seen) = (Vec::new(), 0);
        for one in yields {
            if one != AttachmentEvent::OffersChanged {
                part.push(one);
                continue;
            }
            self.store(std::mem::take(&mut part)).await;
            seen += 1;
            // For a device that has left, only streams with elements are still opened.
            if seen == changes && !self.has_left() {
                self.open_streams().await;
            }
        }
        self.store(part).await;
        if self.streams.take_reopened() || changes > 0 {
            let earliest = self.registered_at.map(|at| at + REGISTER_PAUSE);
            let earliest = earliest.unwrap_or_else(Instant::now);
            self.register_at.get_or_insert(earliest.max(Instant::now()));
        }
        self.update_state();
    }

    async fn store(&mut self, yields: Vec<AttachmentEvent>) {
        let mut store = OutputStore {
            app: &self.app,
            key: &self.key,
            streams: &mut self.streams,
            output: &mut self.output,
            offers: self.attachment.offers(),
        };
        store.store_outputs(yields).await;
    }

    /// Updates the state of the device in the table.
    fn update_state(&mut self) {
        if !self.is_described || self.failure.is_some() {
            return;
        }
        let missing = self.attachment.missing();
        let missing = missing.or_else(|| self.streams.missing()).cloned();
        let Some(trouble) = missing.or_else(|| self.quota.trouble()) else {
            return self.set_usable();
        };
        let is_first_answer = trouble.is_first_answer();
        let hint = trouble.hint.map(str::to_owned);
        self.app.devices.update(&self.key, |device| {
            // A usable device stays usable while further answers are pending.
            if !(is_first_answer && device.state == DeviceState::Usable) {
                device.set_state(DeviceState::Attention, trouble.detail.clone(), hint);
            }
        });
    }

    fn set_usable(&mut self) {
        let mut name = String::new();
        self.app.devices.update(&self.key, |device| {
            device.set_state(DeviceState::Usable, None, None);
            name.clone_from(&device.name);
        });
        if !std::mem::replace(&mut self.is_announced, true) {
            let count = match self.attachment.offers().len() {
                1 => "1 stream".to_owned(),
                other => format!("{other} streams"),
            };
            let text = format!("{name}: usable, {count}");
            self.app
                .observability
                .notices
                .notify(NoticeKind::Device, &self.key, text);
        }
    }
}
