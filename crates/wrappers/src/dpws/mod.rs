//! Attaches DPWS devices: their events become elements of streams.
//!
//! All events are subscribed before a description is read, so that none is missed in between. When the device
//! changes its description, matching subscriptions are kept. A replacement is granted before the events of the
//! old subscription are read and that one ends. Both feed the same streams, so that a stream continues when its
//! service moves to another address.

mod medical;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chappe_device::DeviceClient;
use chappe_device::client::{Delivery, Description, HostedService, Notification, Subscription};
use chappe_device::mapping::rules::Rules;
use chappe_device::mapping::{Mapped, Mapping, Offer, Offers, Plan, Trouble, plan, sdc};
use chappe_dpws::eventing::EndReason;
use chappe_soap::schema::Work;
use chappe_stream::{StreamElement, Timestamp};

use self::medical::Medical;

/// The first and the longest pause between attempts to read a description. Reason: a starting device answers
/// soon; a broken one is asked twice a minute.
pub const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// An event of an attached device.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AttachmentEvent {
    /// An element of the stream with this number in [`Attachment::offers`].
    Element(usize, StreamElement),
    /// An element that was requested, not sent: possibly the latest one, which arrived before.
    Current(usize, StreamElement),
    /// An event that could not be mapped completely, or a failed subscription.
    Trouble(Trouble),
    /// [`Attachment::missing`] may have changed.
    Progress,
    /// The device granted a subscription again that it had granted or refused before. It may have restarted with another
    /// description, by which the events that follow have to be read.
    Resubscribed,
    /// [`Attachment::offers`] have changed for the following events.
    OffersChanged,
}

/// A device with subscriptions to its events, which end when this is dropped.
#[derive(Debug, Default)]
pub struct Attachment {
    offers: Offers,
    subscriptions: Vec<Subscribed>,
    medical: Option<Medical>,
    /// The reason why some events are unknown or could not be subscribed.
    subscribe_failed: Option<Trouble>,
    pending: Vec<AttachmentEvent>,
    turn: usize,
}

/// A subscription.
#[derive(Debug)]
struct Subscribed {
    subscription: Subscription,
    service: ServiceKey,
    actions: Vec<String>,
    feed: Feed,
    stage: Stage,
    /// The reason why it is not granted, as far as known.
    trouble: Option<Trouble>,
}

/// A service at an address.
#[derive(Debug, PartialEq, Eq)]
struct ServiceKey {
    /// Its identifier in the device, which stays when the address changes.
    id: String,
    endpoint: String,
    address: String,
}

/// The destination of a subscription's events.
#[derive(Debug)]
enum Feed {
    /// A mapping of their own, whose streams have these numbers.
    Own(Box<dyn Mapping>, Vec<usize>),
    /// The mapping of the medical device.
    Medical,
}

/// The stage of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The device has not answered yet.
    Asked,
    /// The device has answered; events arrive, or the subscription is retried.
    Answered,
    /// It is replaced or superfluous, and ends once others have been answered.
    Retiring,
    /// It is closed; events that arrived before may remain.
    Closed,
}

/// A subscription that a description requires.
struct RequiredSubscription<'a> {
    service: &'a HostedService,
    actions: Vec<String>,
    /// The mapping of its events; `None`: the mapping of the medical device.
    mapping: Option<Box<dyn Mapping>>,
}

impl Attachment {
    /// Subscribes to all events of a device that can be mapped.
    ///
    /// Parts that cannot be mapped, called or subscribed are the first events.
    pub async fn new(client: &DeviceClient, description: &Description, rules: &Rules) -> Self {
        let mut attachment = Self::default();
        attachment.describe(client, description, rules).await;
        attachment
    }

    /// Applies a description of the device, the first or a later one. Keeps the subscriptions that it still
    /// requires.
    pub async fn describe(
        &mut self,
        client: &DeviceClient,
        description: &Description,
        rules: &Rules,
    ) {
        let unread = description.services.iter().find_map(|service| {
            let note = service.unread.as_ref()?;
            Some(Trouble::new("service_not_read", note.detail.clone()))
        });
        self.subscribe_failed = unread.map(|trouble| trouble.hint("it is retried automatically"));
        let mut wanted = Vec::new();
        let is_medical = self.plan(description, rules, &mut wanted);
        self.medical(is_medical, client, description, &mut wanted);
        let services = description.services.iter();
        let unread: Vec<_> = services
            .filter(|one| one.unread.is_some())
            .map(ServiceKey::of)
            .collect();
        for one in &mut self.subscriptions {
            let is_active = matches!(one.stage, Stage::Asked | Stage::Answered);
            match one.stage {
                // It was replaced by an earlier description.
                Stage::Retiring => one.close(),
                // Streams of an unread service stay as they were.
                _ if is_active && !unread.contains(&one.service) => one.stage = Stage::Retiring,
                _ => {}
            }
        }
        wanted.retain(|one| {
            let key = ServiceKey::of(one.service);
            let is_known = self.subscriptions.iter().any(|known| known.service == key);
            !(is_known && unread.contains(&key))
        });
        let kept: Vec<_> = wanted.iter().map(|one| self.keep(one)).collect();
        let numbers = self.assign_streams(&wanted, &kept);
        for ((one, kept), numbers) in wanted.into_iter().zip(kept).zip(numbers) {
            match kept {
                None => self.subscribe(client, one, numbers).await,
                Some(index) => {
                    if let Some(mapping) = one.mapping {
                        self.subscriptions[index].feed = Feed::Own(mapping, numbers);
                    }
                }
            }
        }
        self.pending.push(AttachmentEvent::OffersChanged);
    }

    /// Plans the mappings of a device's services. Returns whether the device is medical.
    fn plan<'a>(
        &mut self,
        description: &'a Description,
        rules: &Rules,
        wanted: &mut Vec<RequiredSubscription<'a>>,
    ) -> bool {
        let mut services = description.services.iter();
        // The type identifies the service even if its WSDL cannot be read.
        let is_sdc = |name: &chappe_xml::Name| name.namespace == sdc::SERVICES;
        let mut is_medical = services.any(|service| service.types.iter().any(is_sdc));
        let mut work = Work::default();
        for service in &description.services {
            let (plan, troubles) = plan(&service.wsdl, &service.schemas, rules, &mut work);
            self.pending
                .extend(troubles.into_iter().map(AttachmentEvent::Trouble));
            match plan {
                Plan::Sdc => is_medical = true,
                Plan::Nothing => {}
                Plan::Events(mappings) => {
                    wanted.extend(mappings.into_iter().map(|mapping| RequiredSubscription {
                        service,
                        actions: mapping.actions(),
                        mapping: Some(mapping),
                    }))
                }
            }
        }
        is_medical
    }

    /// Creates or removes the mapping of a medical device.
    fn medical<'a>(
        &mut self,
        is_medical: bool,
        client: &DeviceClient,
        description: &'a Description,
        wanted: &mut Vec<RequiredSubscription<'a>>,
    ) {
        let reader = medical::of_type(description, "GetService");
        let Some(reader) = reader.filter(|_| is_medical) else {
            if let Some(mut medical) = self.medical.take() {
                self.pending.extend(medical.finish(&mut self.offers));
                medical.leave(&mut self.offers);
            }
            if is_medical {
                let trouble = Trouble::new("sdc_no_get_service", &*description.found.endpoint)
                    .hint("a provider must host a GetService (11073-20701)");
                self.pending.push(AttachmentEvent::Trouble(trouble.clone()));
                self.subscribe_failed.get_or_insert(trouble);
            }
            return;
        };
        let events = medical::wanted(description);
        // Events keep their order only within one subscription.
        let is_complete = events.len() == 1;
        wanted.extend(
            events
                .into_iter()
                .map(|(service, actions)| RequiredSubscription {
                    service,
                    actions,
                    mapping: None,
                }),
        );
        let medical = self
            .medical
            .get_or_insert_with(|| Medical::new(client.caller()));
        medical.describe(reader, is_complete);
    }

    /// The streams of the device.
    #[must_use]
    pub fn offers(&self) -> &Offers {
        &self.offers
    }

    /// The identifiers of a medical device, once its description is read.
    #[must_use]
    pub fn meta_data(&self) -> Option<&sdc::MetaData> {
        self.medical.as_ref().and_then(Medical::meta_data)
    }

    /// The reason why some events or streams of the device are missing; `None` if all are subscribed.
    #[must_use]
    pub fn missing(&self) -> Option<&Trouble> {
        let in_use = |one: &&Subscribed| matches!(one.stage, Stage::Asked | Stage::Answered);
        let mut subscriptions = self.subscriptions.iter().filter(in_use);
        let medical = || self.medical.as_ref().and_then(Medical::missing);
        let subscribe_failed = self.subscribe_failed.as_ref();
        subscribe_failed
            .or_else(|| subscriptions.find_map(|one| one.trouble.as_ref()))
            .or_else(medical)
    }

    /// Whether all subscriptions are granted and all streams known, so that no event is missed.
    #[must_use]
    pub fn is_subscribed(&self) -> bool {
        self.missing().is_none()
    }

    /// Whether the device must be described again before all its events can be subscribed.
    #[must_use]
    pub fn needs_description(&self) -> bool {
        self.subscribe_failed.is_some()
    }

    /// Asks the device, which may have restarted, whether it still has the subscriptions.
    pub async fn verify_subscriptions(&mut self) {
        for one in &mut self.subscriptions {
            one.subscription.verify().await;
        }
    }

    /// Unsubscribes everything. Acknowledged events still arrive; then `None` follows.
    pub fn close(&mut self) {
        self.subscriptions.iter_mut().for_each(Subscribed::close);
        if let Some(medical) = &mut self.medical {
            let events = medical.finish(&mut self.offers);
            self.pending.extend(events);
        }
    }

    /// The next events; `None` if the client is closed or nothing is pending. Cancel-safe.
    pub async fn next(&mut self) -> Option<Vec<AttachmentEvent>> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<AttachmentEvent>>> {
        loop {
            if !self.pending.is_empty() {
                return Poll::Ready(Some(std::mem::take(&mut self.pending)));
            }
            let is_asked = |one: &Subscribed| one.stage == Stage::Asked;
            let all_answered = !self.subscriptions.iter().any(is_asked);
            if all_answered {
                let retiring = |one: &&mut Subscribed| one.stage == Stage::Retiring;
                let replaced = self.subscriptions.iter_mut().filter(retiring);
                replaced.for_each(Subscribed::close);
            }
            if self.medical.as_ref().is_some_and(Medical::is_requested) {
                // Process events that were sent before the answer first.
                for _ in 0..medical::HELD_MAX {
                    if !matches!(self.poll_subscriptions(context), Poll::Ready(true)) {
                        break;
                    }
                }
            }
            let mut waits = false;
            if let Some(medical) = &mut self.medical {
                match medical.poll(all_answered, &mut self.offers, context) {
                    Poll::Ready(events) => {
                        self.pending.extend(events);
                        continue;
                    }
                    Poll::Pending => waits = medical.is_reading(),
                }
            }
            match self.poll_subscriptions(context) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(None),
                Poll::Pending if waits || !self.subscriptions.is_empty() => return Poll::Pending,
                Poll::Pending => return Poll::Ready(None),
            }
        }
    }

    /// Handles the next delivery of any subscription, in turns; false if the client is closed.
    fn poll_subscriptions(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let count = self.subscriptions.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            let one = &mut self.subscriptions[index];
            match one.subscription.poll_next(context) {
                Poll::Pending => {}
                Poll::Ready(None) if one.stage == Stage::Closed => {
                    self.subscriptions.remove(index);
                    return Poll::Ready(true);
                }
                Poll::Ready(None) => return Poll::Ready(false),
                Poll::Ready(Some(delivery)) => {
                    self.turn = index + 1;
                    self.handle_delivery(delivery, index);
                    return Poll::Ready(true);
                }
            }
        }
        Poll::Pending
    }

    fn handle_delivery(&mut self, delivery: Delivery, index: usize) {
        let one = &mut self.subscriptions[index];
        let was_answered = one.stage == Stage::Answered;
        if one.stage == Stage::Asked && !matches!(delivery, Delivery::Notification(_)) {
            one.stage = Stage::Answered;
        }
        let trouble = match delivery {
            Delivery::Notification(event) => return self.map_event(event, index),
            Delivery::Subscribed { .. } => {
                if let (Feed::Medical, Some(medical)) = (&one.feed, &mut self.medical) {
                    medical.on_granted();
                }
                if was_answered {
                    self.pending.push(AttachmentEvent::Resubscribed);
                }
                None
            }
            Delivery::Renewed { .. } => None,
            Delivery::Ended(EndReason::Unsubscribed) => return,
            Delivery::Ended(reason) => {
                let trouble = Trouble::new("subscription_ended", format!("{reason:?}"));
                Some(trouble.hint("it is retried automatically"))
            }
            Delivery::Trouble { detail, hint } => {
                let mut trouble = Trouble::new("subscription_trouble", detail);
                trouble.hint = hint;
                Some(trouble)
            }
            _ => return,
        };
        one.trouble.clone_from(&trouble);
        self.pending.extend(trouble.map(AttachmentEvent::Trouble));
        self.pending.push(AttachmentEvent::Progress);
    }

    fn map_event(&mut self, event: Notification, index: usize) {
        match &mut self.subscriptions[index].feed {
            Feed::Own(mapping, numbers) => {
                let received = timestamp(event.received_at);
                let mapped = mapping.map(&event.action, &event.body, received);
                let number = |index: usize| numbers.get(index).copied();
                self.pending
                    .extend(events_of(mapped, number, AttachmentEvent::Element));
            }
            Feed::Medical => {
                if let Some(medical) = &mut self.medical {
                    let events = medical.map_or_hold(event, &mut self.offers);
                    self.pending.extend(events);
                }
            }
        }
    }

    /// Keeps a matching subscription. Returns its index.
    fn keep(&mut self, wanted: &RequiredSubscription<'_>) -> Option<usize> {
        let key = ServiceKey::of(wanted.service);
        let index = self.subscriptions.iter().position(|one| {
            let is_medical = matches!(one.feed, Feed::Medical);
            one.stage == Stage::Retiring
                && (&one.service, &one.actions) == (&key, &wanted.actions)
                && is_medical == wanted.mapping.is_none()
        })?;
        let same = &mut self.subscriptions[index];
        same.stage = match &same.trouble {
            Some(trouble) if trouble.reason == ASKED => Stage::Asked,
            _ => Stage::Answered,
        };
        Some(index)
    }

    /// The numbers of the streams of each required subscription. A service keeps the streams that it still
    /// offers, whatever its address. All others are retired before any is added, so that their names are free.
    fn assign_streams(
        &mut self,
        wanted: &[RequiredSubscription<'_>],
        kept: &[Option<usize>],
    ) -> Vec<Vec<usize>> {
        let offers = |one: &RequiredSubscription<'_>| {
            let mapping = one.mapping.as_ref();
            mapping.map_or_else(Vec::new, |mapping| mapping.offers().to_vec())
        };
        let wanted: Vec<_> = wanted.iter().map(|one| (one, offers(one))).collect();
        let mut unchanged: HashMap<usize, &[usize]> = HashMap::new();
        for ((_, offers), kept) in wanted.iter().zip(kept) {
            if let Some(index) = kept
                && let Feed::Own(mapping, numbers) = &self.subscriptions[*index].feed
                && mapping.offers() == offers.as_slice()
            {
                unchanged.insert(*index, numbers);
            }
        }
        // The streams of the other subscriptions, by the identifier of the service.
        let mut known: HashMap<&str, Vec<(&Offer, usize)>> = HashMap::new();
        for (index, one) in self.subscriptions.iter().enumerate() {
            let is_free = one.stage == Stage::Retiring || kept.contains(&Some(index));
            if let Feed::Own(mapping, numbers) = &one.feed
                && is_free
                && !unchanged.contains_key(&index)
            {
                let streams = mapping.offers().iter().zip(numbers.iter().copied());
                known.entry(&one.service.id).or_default().extend(streams);
            }
        }
        let mut continued: Vec<Vec<Option<usize>>> = Vec::new();
        for ((one, offers), kept) in wanted.iter().zip(kept) {
            if let Some(numbers) = kept.and_then(|index| unchanged.get(&index)) {
                continued.push(numbers.iter().copied().map(Some).collect());
                continue;
            }
            let numbers = offers.iter().map(|offer| {
                let streams = known.get_mut(one.service.id.as_str())?;
                let same = streams.iter().position(|(known, _)| *known == offer)?;
                Some(streams.remove(same).1)
            });
            continued.push(numbers.collect());
        }
        for (_, number) in known.into_values().flatten() {
            self.offers.retire(number);
        }
        let mut numbers = Vec::new();
        for ((_, offers), continued) in wanted.iter().zip(continued) {
            let streams = offers.iter().zip(continued);
            let streams =
                streams.map(|(offer, number)| number.unwrap_or_else(|| self.offers.add(offer)));
            numbers.push(streams.collect());
        }
        numbers
    }

    /// Requests a subscription whose streams have these numbers.
    async fn subscribe(
        &mut self,
        client: &DeviceClient,
        wanted: RequiredSubscription<'_>,
        numbers: Vec<usize>,
    ) {
        let RequiredSubscription {
            service,
            actions,
            mapping,
        } = wanted;
        match client.subscribe(service, &actions).await {
            Ok(subscription) => self.subscriptions.push(Subscribed {
                subscription,
                service: ServiceKey::of(service),
                actions,
                feed: match mapping {
                    None => Feed::Medical,
                    Some(mapping) => Feed::Own(mapping, numbers),
                },
                stage: Stage::Asked,
                trouble: Some(Trouble::new(ASKED, "its events are being subscribed")),
            }),
            Err(error) => {
                let detail = format!("{}: {error}", service.id);
                let trouble = Trouble::new("not_subscribed", detail);
                self.subscribe_failed.get_or_insert_with(|| trouble.clone());
                self.pending.push(AttachmentEvent::Trouble(trouble));
                for number in numbers {
                    self.offers.retire(number);
                }
            }
        }
    }
}

/// The reason of a subscription that the device has not answered yet.
const ASKED: &str = "subscription_asked";

impl Subscribed {
    fn close(&mut self) {
        self.stage = Stage::Closed;
        self.subscription.close();
    }
}

impl ServiceKey {
    fn of(service: &HostedService) -> Self {
        Self {
            id: service.id.clone(),
            endpoint: service.endpoint.address.to_string(),
            address: service.contact.to_string(),
        }
    }
}

/// The events of a mapping result, with stream numbers.
fn events_of(
    mapped: Mapped,
    number: impl Fn(usize) -> Option<usize>,
    element: fn(usize, StreamElement) -> AttachmentEvent,
) -> impl Iterator<Item = AttachmentEvent> {
    let elements = mapped.elements.into_iter();
    let elements = elements.filter_map(move |(index, one)| Some(element(number(index)?, one)));
    elements.chain(mapped.troubles.into_iter().map(AttachmentEvent::Trouble))
}

/// Nanoseconds since 1970; zero before.
fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
