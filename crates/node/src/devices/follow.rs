//! One device from its arrival to its end: described, subscribed, its streams opened and registered.
//!
//! The device is described in the background: while it describes itself otherwise, or does not answer,
//! its events go on coming. What it offers no more is taken out of the registry.

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
use super::identity::Product;
use super::offered::Streams;
use super::output::Output;
use super::table::DeviceState;
use super::task::{self, BATCH_MAX, Order, Taking};
use super::{entities, key_of};
use crate::notices::NoticeKind;

use crate::shared::App;

/// Pause between two changes of what is registered of a device. Reason: each costs a commit, and every
/// virtual sensor looks for its sources again.
const REGISTER_PAUSE: Duration = Duration::from_secs(1);

/// A device that is being followed.
struct Following {
    app: App,
    client: Arc<DeviceClient>,
    /// Says when the device has left.
    left: watch::Receiver<bool>,
    key: String,
    found: Found,
    /// As it described itself last.
    product: Option<Product>,
    attachment: Attachment,
    streams: Streams,
    output: Output,
    quota: ChargedQuota,
    describing: Describing,
    /// The next pause before it is described again.
    pause: Duration,
    /// Why it could not be described last time.
    failure: Option<Trouble>,
    is_described: bool,
    /// There is nothing to wait for until it is described otherwise.
    is_silent: bool,
    /// Its being usable has been told since it was described.
    is_told: bool,
    /// When its entities are registered as they are by then.
    register_at: Option<Instant>,
    registered_at: Option<Instant>,
    /// Streams in the registry.
    registered: Vec<String>,
}

type Described = Pin<Box<dyn Future<Output = Result<Description, Error>> + Send>>;

/// What is being done to describe a device.
enum Describing {
    Idle,
    /// It was asked at these addresses; `again`: it has changed since.
    Asked {
        described: Described,
        addresses: Vec<String>,
        again: bool,
    },
    /// It is asked again after a pause.
    Paused(Pin<Box<tokio::time::Sleep>>),
}

impl Describing {
    /// Waits for the description, or for the time to ask for it.
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

/// Follows one device until `orders` and `left` are closed; then what it was told is received is stored.
/// From then on nothing waits for a device, and with `is_cut` set nothing waits for room on a full disk.
pub(super) async fn follow(
    app: App,
    client: Arc<DeviceClient>,
    found: Found,
    mut orders: mpsc::Receiver<Order>,
    left: watch::Receiver<bool>,
    is_cut: Arc<AtomicBool>,
) {
    let key = key_of(&found.endpoint);
    let mut following = Following {
        output: Output::new(&app, is_cut),
        quota: ChargedQuota::new(&app, &key),
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
        failure: None,
        is_described: false,
        is_silent: true,
        is_told: false,
        register_at: None,
        registered_at: None,
        registered: Vec::new(),
    };
    following.ask();
    following.run(&mut orders).await;
    following.finish().await;
}

impl Following {
    async fn run(&mut self, orders: &mut mpsc::Receiver<Order>) {
        loop {
            let register_at = self.register_at.unwrap_or_else(Instant::now);
            let quota_at = self.quota.deadline();
            let quota_passes = tokio::time::sleep_until(quota_at.unwrap_or(register_at));
            let may_read = !self.is_silent && !self.quota.is_paused();
            tokio::select! {
                order = orders.recv() => match order {
                    None => return,
                    Some(Order::Doubt) => self.attachment.verify_subscriptions().await,
                    Some(Order::Changed(found)) => self.changed(*found),
                },
                described = self.describing.next() => match described {
                    None => self.ask(),
                    Some(described) => self.described(described).await,
                },
                yields = self.attachment.next(), if may_read => match yields {
                    Some(yields) => {
                        let yields = self.with_ready(yields);
                        self.take(yields).await;
                    }
                    None => self.is_silent = true,
                },
                () = self.output.settled() => self.output.settle().await,
                () = quota_passes, if quota_at.is_some() => {
                    self.quota.pass(Instant::now());
                    self.show();
                }
                () = tokio::time::sleep_until(register_at), if self.register_at.is_some() => {
                    self.register().await;
                }
            }
        }
    }

    /// Adds the yields that are ready, as far as the quota has room for them, so that all are stored
    /// together.
    fn with_ready(&mut self, mut yields: Vec<AttachmentEvent>) -> Vec<AttachmentEvent> {
        self.quota.charge(&yields);
        // This only looks; the next wait registers its own waker.
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

    /// Stores what the device was told is received, all of it, also of a device that is paused.
    async fn finish(&mut self) {
        self.attachment.close();
        while let Some(yields) = self.attachment.next().await {
            self.quota.charge(&yields);
            self.take(yields).await;
        }
        self.output.drain().await;
        if self.register_at.is_some() {
            self.register().await;
        }
    }

    /// Discovery says that the device has changed. While it is being described at the same addresses,
    /// any number of changes is one.
    fn changed(&mut self, found: Found) {
        self.found = found;
        match &mut self.describing {
            Describing::Asked {
                addresses, again, ..
            } if *addresses == self.found.xaddrs => {
                *again = true;
                task::announce(&self.app, &self.key, &self.found);
            }
            _ => self.ask(),
        }
    }

    /// Asks the device to describe itself.
    fn ask(&mut self) {
        task::announce(&self.app, &self.key, &self.found);
        let (client, found) = (Arc::clone(&self.client), self.found.clone());
        self.describing = Describing::Asked {
            addresses: found.xaddrs.clone(),
            described: Box::pin(async move { client.describe(&found).await }),
            again: false,
        };
    }

    async fn described(&mut self, described: Result<Description, Error>) {
        let before = std::mem::replace(&mut self.describing, Describing::Idle);
        let again = matches!(before, Describing::Asked { again: true, .. });
        match described {
            Ok(description) => self.attach(&description).await,
            Err(error) => self.undescribed(&error),
        }
        if again {
            self.ask();
        } else if self.failure.is_some() || self.attachment.needs_description() {
            self.describing = Describing::Paused(Box::pin(tokio::time::sleep(self.pause)));
            self.pause = (self.pause * 2).min(RETRY.1);
        } else {
            self.pause = RETRY.0;
        }
    }

    fn undescribed(&mut self, error: &Error) {
        let reason = error.to_string();
        let is_known = |failure: &Trouble| failure.detail == reason;
        if !self.failure.as_ref().is_some_and(is_known) {
            let text = format!("cannot be described: {reason}");
            self.app
                .observability
                .notices
                .tell(NoticeKind::Device, &self.key, text);
        }
        task::trouble(&self.app, &self.key, reason.clone(), error.hint());
        self.failure = Some(Trouble {
            reason: "not described",
            detail: reason,
            hint: None,
        });
    }

    /// Subscribes to a device as it describes itself now.
    async fn attach(&mut self, description: &Description) {
        let (app, key) = (&self.app, &self.key);
        for note in &description.notes {
            let (detail, hint) = (note.detail.clone(), note.hint.clone());
            app.observability
                .drops
                .record(Hop::Metadata, note.reason, key, detail, hint);
        }
        let mut services = 0;
        app.devices.update(key, |device| {
            services = device.services.len();
            entities::describe(device, description);
        });
        let vanished = entities::service_keys(key, services);
        let vanished = vanished.into_iter().skip(description.services.len());
        app.registrar.remove(vanished.collect()).await;
        let rules = task::rules(app).await;
        let product = self.product.insert(Product::of(description));
        self.streams.name(&self.key, &product.base);
        // Before anything is subscribed, since it may take some seconds.
        self.recognize().await;
        if self.has_left() {
            return;
        }
        self.attachment
            .describe(&self.client, description, &rules)
            .await;
        self.failure = None;
        self.is_described = true;
        self.is_silent = false;
        self.is_told = false;
        self.register_at = None;
        self.open_streams().await;
        self.register().await;
        self.show();
    }

    /// Finds the streams that the device continues, once it can be recognized.
    async fn recognize(&mut self) {
        let meta_data = self.attachment.meta_data();
        if let Some(product) = &self.product
            && let Some(identity) = product.identity(meta_data)
        {
            let (app, client, key) = (&self.app, &self.client, &self.key);
            let (streams, left) = (&mut self.streams, &mut self.left);
            streams
                .recognize(app, client, key, product, identity, left)
                .await;
        }
    }

    fn has_left(&self) -> bool {
        self.left.has_changed().is_err()
    }

    async fn open_streams(&mut self) {
        let offers = self.attachment.offers();
        let mut numbers = offers.iter().map(|(number, _)| number);
        if numbers.any(|number| self.streams.is_undefined(number)) {
            // Elements that came before a change of their stream's schema are stored before it.
            self.output.drain().await;
        }
        self.streams.open_all(&self.app, &self.key, offers).await;
        let live = self.streams.live(offers);
        let names = live.map(|(_, entry)| entry.name.clone()).collect();
        self.app
            .devices
            .update(&self.key, |device| device.streams = names);
    }

    async fn register(&mut self) {
        self.register_at = None;
        let (offers, registered) = (self.attachment.offers(), &mut self.registered);
        self.registered_at = (!offers.is_empty()).then(Instant::now);
        task::register(&self.app, &self.key, &self.streams, offers, registered).await;
    }

    /// Stores elements, each in the stream that was its own when it came. The streams of new offers are
    /// opened together, before the first of their elements.
    async fn take(&mut self, yields: Vec<AttachmentEvent>) {
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
            // Of a device that has left, only streams with elements are still opened.
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
        self.show();
    }

    async fn store(&mut self, yields: Vec<AttachmentEvent>) {
        let mut taking = Taking {
            app: &self.app,
            key: &self.key,
            streams: &mut self.streams,
            output: &mut self.output,
            offers: self.attachment.offers(),
        };
        taking.take(yields).await;
    }

    /// Shows whether the device can be used, or why not.
    fn show(&mut self) {
        if !self.is_described || self.failure.is_some() {
            return;
        }
        let missing = self.attachment.missing();
        let missing = missing.or_else(|| self.streams.missing()).cloned();
        let Some(trouble) = missing.or_else(|| self.quota.trouble()) else {
            return self.usable();
        };
        let is_first_answer = trouble.is_first_answer();
        let hint = trouble.hint.map(str::to_owned);
        self.app.devices.update(&self.key, |device| {
            // A device that is asked for more goes on being used.
            if !(is_first_answer && device.state == DeviceState::Usable) {
                device.state = DeviceState::Attention;
                (device.reason, device.hint) = (Some(trouble.detail.clone()), hint);
            }
        });
    }

    fn usable(&mut self) {
        let mut name = String::new();
        self.app.devices.update(&self.key, |device| {
            device.state = DeviceState::Usable;
            (device.reason, device.hint) = (None, None);
            name.clone_from(&device.name);
        });
        if !std::mem::replace(&mut self.is_told, true) {
            let count = match self.attachment.offers().len() {
                1 => "1 stream".to_owned(),
                other => format!("{other} streams"),
            };
            let text = format!("{name}: usable, {count}");
            self.app
                .observability
                .notices
                .tell(NoticeKind::Device, &self.key, text);
        }
    }
}
