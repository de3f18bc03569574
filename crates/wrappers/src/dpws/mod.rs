//! The wrapper of DPWS devices: a described device becomes streams, its events their elements.
//!
//! Everything is subscribed before anything is read, so that no event falls between the two. When the
//! device describes itself otherwise, subscriptions that are still right are kept; where another one
//! is needed, it is granted first, then the events of the old one are taken, and then it ends.

mod medical;

use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chappe_device::DeviceClient;
use chappe_device::client::{Delivery, Description, HostedService, Notification, Subscription};
use chappe_device::mapping::rules::Rules;
use chappe_device::mapping::{Mapped, Mapping, Offers, Plan, Trouble, plan, sdc};
use chappe_dpws::eventing::EndReason;
use chappe_soap::schema::Work;
use chappe_stream::{StreamElement, Timestamp};

use self::medical::Medical;

/// First and longest pause between two attempts at reading what a device says of itself. Reason: a
/// device that is starting answers soon; one that is broken is asked twice a minute.
pub const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What comes of an attached device.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Yield {
    /// An element of the stream with this number among [`Attachment::offers`].
    Element(usize, StreamElement),
    /// An element that was read and not sent: it may be the newest that came before.
    Current(usize, StreamElement),
    /// An event that became no element, or not a whole one; or a subscription in trouble.
    Trouble(Trouble),
    /// [`Attachment::missing`] may say something else now.
    Progress,
    /// [`Attachment::offers`] are others from here on.
    OffersChanged,
}

/// A device whose events are subscribed. They end when this is dropped.
#[derive(Debug, Default)]
pub struct Attachment {
    offers: Offers,
    subscriptions: Vec<Subscribed>,
    medical: Option<Medical>,
    /// Why some events could not even be asked for, or are not known.
    lacking: Option<Trouble>,
    pending: Vec<Yield>,
    turn: usize,
}

/// A subscription.
#[derive(Debug)]
struct Subscribed {
    subscription: Subscription,
    /// Where it was asked for.
    service: (String, String),
    actions: Vec<String>,
    feed: Feed,
    stage: Stage,
    /// Why it does not stand, as far as is known.
    trouble: Option<Trouble>,
}

/// Where the events of a subscription go.
#[derive(Debug)]
enum Feed {
    /// To a mapping of their own, whose streams have these numbers.
    Own(Box<dyn Mapping>, Vec<usize>),
    /// To the mapping of the medical device.
    Medical,
}

/// How far a subscription has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The device has not answered yet.
    Asked,
    /// The device has answered; events come, or the subscription is tried again.
    Answered,
    /// It is replaced or superfluous, and ends when others have been answered.
    Retiring,
    /// It is closed; the events that were taken before are left.
    Closed,
}

/// A subscription that a description asks for.
struct Wanted<'a> {
    service: &'a HostedService,
    actions: Vec<String>,
    /// The mapping of its events; `None`: that of the medical device.
    mapping: Option<Box<dyn Mapping>>,
}

impl Attachment {
    /// Subscribes to all events of a device that can be mapped.
    ///
    /// What cannot be mapped, called or subscribed comes as the first yields.
    pub async fn new(client: &DeviceClient, description: &Description, rules: &Rules) -> Self {
        let mut attachment = Self::default();
        attachment.describe(client, description, rules).await;
        attachment
    }

    /// Takes the description of the device, at first or again. Subscriptions are kept as far as they
    /// are those that it asks for.
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
        self.lacking = unread.map(|trouble| trouble.hint("another attempt follows"));
        let mut wanted = Vec::new();
        let is_medical = self.plan(description, rules, &mut wanted);
        self.medical(is_medical, client, description, &mut wanted);
        let services = description.services.iter();
        let unread: Vec<_> = services
            .filter(|one| one.unread.is_some())
            .map(key_of)
            .collect();
        for one in &mut self.subscriptions {
            let is_active = matches!(one.stage, Stage::Asked | Stage::Answered);
            match one.stage {
                // It was replaced before, and has had its time.
                Stage::Retiring => one.close(),
                // What an unread service offers is as it was.
                _ if is_active && !unread.contains(&one.service) => one.stage = Stage::Retiring,
                _ => {}
            }
        }
        for one in wanted {
            let key = key_of(one.service);
            let is_kept = |known: &Subscribed| known.service == key && unread.contains(&key);
            if !self.subscriptions.iter().any(is_kept) {
                self.subscribe(client, one).await;
            }
        }
        for one in &self.subscriptions {
            if let (Stage::Retiring, Feed::Own(_, numbers)) = (one.stage, &one.feed) {
                numbers
                    .iter()
                    .for_each(|number| self.offers.retire(*number));
            }
        }
        self.pending.push(Yield::OffersChanged);
    }

    /// Plans the services of a device that have mappings of their own; says whether it is medical.
    fn plan<'a>(
        &mut self,
        description: &'a Description,
        rules: &Rules,
        wanted: &mut Vec<Wanted<'a>>,
    ) -> bool {
        let mut services = description.services.iter();
        // A service says what it is, also when its WSDL cannot be read.
        let is_sdc = |name: &chappe_xml::Name| name.namespace == sdc::SERVICES;
        let mut is_medical = services.any(|service| service.types.iter().any(is_sdc));
        let mut work = Work::default();
        for service in &description.services {
            let (plan, troubles) = plan(&service.wsdl, &service.schemas, rules, &mut work);
            self.pending
                .extend(troubles.into_iter().map(Yield::Trouble));
            match plan {
                Plan::Sdc => is_medical = true,
                Plan::Nothing => {}
                Plan::Events(mappings) => {
                    wanted.extend(mappings.into_iter().map(|mapping| Wanted {
                        service,
                        actions: mapping.actions(),
                        mapping: Some(mapping),
                    }))
                }
            }
        }
        is_medical
    }

    /// Makes or removes what reads a medical device.
    fn medical<'a>(
        &mut self,
        is_medical: bool,
        client: &DeviceClient,
        description: &'a Description,
        wanted: &mut Vec<Wanted<'a>>,
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
                self.pending.push(Yield::Trouble(trouble.clone()));
                self.lacking.get_or_insert(trouble);
            }
            return;
        };
        let events = medical::wanted(description);
        // Only within one subscription events keep their order.
        let is_complete = events.len() == 1;
        wanted.extend(events.into_iter().map(|(service, actions)| Wanted {
            service,
            actions,
            mapping: None,
        }));
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

    /// The identifiers of a medical device, as soon as its description was read.
    #[must_use]
    pub fn meta_data(&self) -> Option<&sdc::MetaData> {
        self.medical.as_ref().and_then(Medical::meta_data)
    }

    /// Why some events of the device are missed, or their streams not known; `None`: none is.
    #[must_use]
    pub fn missing(&self) -> Option<&Trouble> {
        let in_use = |one: &&Subscribed| matches!(one.stage, Stage::Asked | Stage::Answered);
        let mut subscriptions = self.subscriptions.iter().filter(in_use);
        let medical = || self.medical.as_ref().and_then(Medical::missing);
        let lacking = self.lacking.as_ref();
        lacking
            .or_else(|| subscriptions.find_map(|one| one.trouble.as_ref()))
            .or_else(medical)
    }

    /// Whether the device keeps all subscriptions and is understood, so that none of its events is
    /// missed.
    #[must_use]
    pub fn is_subscribed(&self) -> bool {
        self.missing().is_none()
    }

    /// Whether the device has to be described again before all its events can be subscribed.
    #[must_use]
    pub fn needs_description(&self) -> bool {
        self.lacking.is_some()
    }

    /// The device may have restarted: asks whether its subscriptions still stand.
    pub async fn doubt(&mut self) {
        for one in &mut self.subscriptions {
            one.subscription.verify().await;
        }
    }

    /// Unsubscribes everything. What the device was told is received still comes, then `None`.
    pub fn close(&mut self) {
        self.subscriptions.iter_mut().for_each(Subscribed::close);
        if let Some(medical) = &mut self.medical {
            let yields = medical.finish(&mut self.offers);
            self.pending.extend(yields);
        }
    }

    /// What came next; `None` when the client is closed, or there is nothing to wait for. Nothing is
    /// lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Vec<Yield>> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<Yield>>> {
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
            if self.medical.as_ref().is_some_and(Medical::is_asked) {
                // Events that were sent before the answer are looked at before it.
                for _ in 0..medical::HELD_MAX {
                    if !matches!(self.poll_subscriptions(context), Poll::Ready(true)) {
                        break;
                    }
                }
            }
            let mut waits = false;
            if let Some(medical) = &mut self.medical {
                match medical.poll(all_answered, &mut self.offers, context) {
                    Poll::Ready(yields) => {
                        self.pending.extend(yields);
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

    /// Takes the next delivery of any subscription, each in its turn; false when the client is closed.
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
                    self.take(delivery, index);
                    return Poll::Ready(true);
                }
            }
        }
        Poll::Pending
    }

    fn take(&mut self, delivery: Delivery, index: usize) {
        let one = &mut self.subscriptions[index];
        if one.stage == Stage::Asked && !matches!(delivery, Delivery::Notification(_)) {
            one.stage = Stage::Answered;
        }
        let trouble = match delivery {
            Delivery::Notification(event) => return self.event(event, index),
            Delivery::Subscribed { .. } => {
                if let (Feed::Medical, Some(medical)) = (&one.feed, &mut self.medical) {
                    medical.granted();
                }
                None
            }
            Delivery::Renewed { .. } => None,
            Delivery::Ended(EndReason::Unsubscribed) => return,
            Delivery::Ended(reason) => {
                let trouble = Trouble::new("subscription_ended", format!("{reason:?}"));
                Some(trouble.hint("another attempt follows"))
            }
            Delivery::Trouble { detail, hint } => {
                let mut trouble = Trouble::new("subscription_trouble", detail);
                trouble.hint = hint;
                Some(trouble)
            }
            _ => return,
        };
        one.trouble.clone_from(&trouble);
        self.pending.extend(trouble.map(Yield::Trouble));
        self.pending.push(Yield::Progress);
    }

    fn event(&mut self, event: Notification, index: usize) {
        match &mut self.subscriptions[index].feed {
            Feed::Own(mapping, numbers) => {
                let received = timestamp(event.received_at);
                let mapped = mapping.map(&event.action, &event.body, received);
                let number = |index: usize| numbers.get(index).copied();
                self.pending.extend(yields(mapped, number, Yield::Element));
            }
            Feed::Medical => {
                if let Some(medical) = &mut self.medical {
                    let yields = medical.take(event, &mut self.offers);
                    self.pending.extend(yields);
                }
            }
        }
    }

    /// Keeps the subscription that is wanted, or asks for it.
    async fn subscribe(&mut self, client: &DeviceClient, wanted: Wanted<'_>) {
        let Wanted {
            service,
            actions,
            mapping,
        } = wanted;
        let key = key_of(service);
        let is_same = |one: &&mut Subscribed| {
            let is_medical = matches!(one.feed, Feed::Medical);
            one.stage == Stage::Retiring
                && (&one.service, &one.actions) == (&key, &actions)
                && is_medical == mapping.is_none()
        };
        if let Some(same) = self.subscriptions.iter_mut().find(is_same) {
            same.stage = match &same.trouble {
                Some(trouble) if trouble.reason == ASKED => Stage::Asked,
                _ => Stage::Answered,
            };
            if let (Some(new), Feed::Own(old, numbers)) = (mapping, &mut same.feed) {
                if old.offers() != new.offers() {
                    numbers
                        .iter()
                        .for_each(|number| self.offers.retire(*number));
                    *numbers = new
                        .offers()
                        .iter()
                        .map(|offer| self.offers.add(offer))
                        .collect();
                }
                *old = new;
            }
            return;
        }
        match client.subscribe(service, &actions).await {
            Ok(subscription) => self.subscriptions.push(Subscribed {
                subscription,
                service: key,
                actions,
                feed: match mapping {
                    None => Feed::Medical,
                    Some(mapping) => {
                        let offers = mapping.offers().iter();
                        let numbers = offers.map(|offer| self.offers.add(offer)).collect();
                        Feed::Own(mapping, numbers)
                    }
                },
                stage: Stage::Asked,
                trouble: Some(Trouble::new(ASKED, "its events are being subscribed")),
            }),
            Err(error) => {
                let detail = format!("{}: {error}", service.id);
                let trouble = Trouble::new("not_subscribed", detail);
                self.lacking.get_or_insert_with(|| trouble.clone());
                self.pending.push(Yield::Trouble(trouble));
            }
        }
    }
}

/// The reason why a subscription that the device has not answered yet does not stand.
const ASKED: &str = "subscription_asked";

impl Subscribed {
    fn close(&mut self) {
        self.stage = Stage::Closed;
        self.subscription.close();
    }
}

/// Where a service is.
fn key_of(service: &HostedService) -> (String, String) {
    let address = service.endpoint.address.to_string();
    (address, service.contact.to_string())
}

/// What a mapping gives, with the numbers of the streams.
fn yields(
    mapped: Mapped,
    number: impl Fn(usize) -> Option<usize>,
    element: fn(usize, StreamElement) -> Yield,
) -> impl Iterator<Item = Yield> {
    let elements = mapped.elements.into_iter();
    let elements = elements.filter_map(move |(index, one)| Some(element(number(index)?, one)));
    elements.chain(mapped.troubles.into_iter().map(Yield::Trouble))
}

/// Nanoseconds since 1970; before that, zero.
fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
