//! The wrapper of DPWS devices: a described device becomes streams, its events their elements.
//!
//! Everything is subscribed before anything is read, so that no event falls between the two.

use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use chappe_device::DeviceClient;
use chappe_device::client::{Delivery, Description, HostedService, Subscription};
use chappe_dpws::eventing::EndReason;
use chappe_soap::schema::Work;
use chappe_stream::{StreamElement, Timestamp};

use crate::mapping::{Mapped, Mapping, Offer, Trouble};
use crate::plan::{Plan, plan};
use crate::rules::Rules;
use crate::sdc::{self, SdcMapping};

/// What comes of an attached device.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Yield {
    /// An element of the offer with this index.
    Element(usize, StreamElement),
    /// An event that became no element, or not a whole one; or a subscription in trouble.
    Trouble(Trouble),
    /// The device has granted a subscription, at first or again; all of them, when
    /// [`Attachment::is_subscribed`].
    Subscribed,
    /// The device describes itself otherwise now: attach it anew.
    DescriptionChanged,
}

/// A device whose events are subscribed. They end when this is dropped.
#[derive(Debug)]
pub struct Attachment {
    offers: Vec<Offer>,
    mappings: Vec<Placed>,
    subscriptions: Vec<Subscribed>,
    /// Some subscription could not even be asked for.
    lacking: bool,
    pending: Vec<Yield>,
    turn: usize,
}

/// A subscription.
#[derive(Debug)]
struct Subscribed {
    subscription: Subscription,
    /// The mapping of its events.
    mapping: usize,
    /// It stands, as far as is known.
    stands: bool,
}

/// A mapping, and where its offers begin among all.
#[derive(Debug)]
struct Placed {
    mapping: Box<dyn Mapping>,
    first_offer: usize,
}

impl Attachment {
    /// Subscribes to all events of a device that can be mapped.
    ///
    /// What cannot be mapped, called or subscribed comes as the first yields.
    pub async fn new(client: &DeviceClient, description: &Description, rules: &Rules) -> Self {
        let mut attachment = Self {
            offers: Vec::new(),
            mappings: Vec::new(),
            subscriptions: Vec::new(),
            lacking: false,
            pending: Vec::new(),
            turn: 0,
        };
        let mut medical = false;
        let mut work = Work::default();
        for service in &description.services {
            let (plan, troubles) = plan(&service.wsdl, &service.schemas, rules, &mut work);
            attachment
                .pending
                .extend(troubles.into_iter().map(Yield::Trouble));
            match plan {
                Plan::Sdc => medical = true,
                Plan::Nothing => {}
                Plan::Events(mappings) => {
                    for mapping in mappings {
                        let actions = mapping.actions();
                        let index = attachment.add(mapping);
                        attachment.subscribe(client, service, &actions, index).await;
                    }
                }
            }
        }
        if medical && let Err(trouble) = attachment.add_medical(client, description).await {
            attachment.pending.push(Yield::Trouble(trouble));
        }
        attachment
    }

    /// The streams of the device.
    #[must_use]
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// Whether the device keeps all subscriptions, so that none of its events is missed.
    #[must_use]
    pub fn is_subscribed(&self) -> bool {
        !self.lacking && self.subscriptions.iter().all(|one| one.stands)
    }

    /// The device may have restarted: asks whether its subscriptions still stand.
    pub async fn doubt(&mut self) {
        for one in &self.subscriptions {
            one.subscription.doubt().await;
        }
    }

    /// What came next; `None` when the client is closed, or there is nothing to wait for.
    pub async fn next(&mut self) -> Option<Vec<Yield>> {
        if !self.pending.is_empty() {
            return Some(std::mem::take(&mut self.pending));
        }
        if self.subscriptions.is_empty() {
            return None;
        }
        let (delivery, index) = std::future::poll_fn(|context| self.poll(context)).await?;
        Some(self.take(delivery, index))
    }

    /// The next delivery of any subscription, and of which; each gets its turn.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<(Delivery, usize)>> {
        let count = self.subscriptions.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            let next = pin!(self.subscriptions[index].subscription.next());
            match next.poll(context) {
                Poll::Pending => {}
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(delivery)) => {
                    self.turn = index + 1;
                    return Poll::Ready(Some((delivery, index)));
                }
            }
        }
        Poll::Pending
    }

    fn take(&mut self, delivery: Delivery, index: usize) -> Vec<Yield> {
        let subscribed = &mut self.subscriptions[index];
        match &delivery {
            Delivery::Subscribed { .. } => subscribed.stands = true,
            Delivery::Ended(_) | Delivery::Trouble { .. } => subscribed.stands = false,
            _ => {}
        }
        match delivery {
            Delivery::Notification(event) if event.action == sdc::DESCRIPTION_CHANGED => {
                vec![Yield::DescriptionChanged]
            }
            Delivery::Notification(event) => {
                let received = timestamp(event.received_at);
                let one = &mut self.mappings[subscribed.mapping];
                yields(
                    one.mapping.map(&event.action, &event.body, received),
                    one.first_offer,
                )
            }
            Delivery::Subscribed { .. } => vec![Yield::Subscribed],
            Delivery::Ended(EndReason::Unsubscribed) => Vec::new(),
            Delivery::Ended(reason) => {
                let trouble = Trouble::new("subscription_ended", format!("{reason:?}"));
                vec![Yield::Trouble(trouble.hint("it is tried again by itself"))]
            }
            Delivery::Trouble { detail, hint } => {
                let mut trouble = Trouble::new("subscription_trouble", detail);
                trouble.hint = hint;
                vec![Yield::Trouble(trouble)]
            }
            _ => Vec::new(),
        }
    }

    fn add(&mut self, mapping: Box<dyn Mapping>) -> usize {
        let first_offer = self.offers.len();
        for offer in mapping.offers() {
            let mut offer = offer.clone();
            let taken = |name: &str| self.offers.iter().any(|other| other.name == name);
            if let Some(number) = taken(&offer.name)
                .then(|| (2..).find(|number| !taken(&format!("{}_{number}", offer.name))))
                .flatten()
            {
                offer.name = format!("{}_{number}", offer.name);
            }
            self.offers.push(offer);
        }
        self.mappings.push(Placed {
            mapping,
            first_offer,
        });
        self.mappings.len() - 1
    }

    async fn subscribe(
        &mut self,
        client: &DeviceClient,
        service: &HostedService,
        actions: &[String],
        mapping: usize,
    ) {
        match client.subscribe(service, actions).await {
            Ok(subscription) => self.subscriptions.push(Subscribed {
                subscription,
                mapping,
                stands: false,
            }),
            Err(error) => {
                self.lacking = true;
                let detail = format!("{}: {error}", service.id);
                self.pending
                    .push(Yield::Trouble(Trouble::new("not_subscribed", detail)));
            }
        }
    }

    /// Subscribes to the reports of a medical device, then reads its description and first values.
    async fn add_medical(
        &mut self,
        client: &DeviceClient,
        description: &Description,
    ) -> Result<(), Trouble> {
        let of_type = |local: &str| {
            let is = |name: &chappe_xml::Name| name.is(sdc::SERVICES, local);
            description
                .services
                .iter()
                .position(|service| service.types.iter().any(is))
        };
        let reader = of_type("GetService").ok_or_else(|| {
            Trouble::new("sdc_no_get_service", description.found.endpoint.clone())
                .hint("a provider must host a GetService (11073-20701)")
        })?;
        let mapping = self.mappings.len();
        let mut wanted: Vec<(usize, Vec<String>)> = Vec::new();
        for (local, action) in sdc::EVENTS {
            let Some(service) = of_type(local) else {
                continue;
            };
            match wanted.iter_mut().find(|(index, _)| *index == service) {
                Some((_, actions)) => actions.push((*action).to_owned()),
                None => wanted.push((service, vec![(*action).to_owned()])),
            }
        }
        for (service, actions) in wanted {
            self.subscribe(client, &description.services[service], &actions, mapping)
                .await;
        }
        let answer = client
            .call(
                &description.services[reader],
                sdc::GET_MDIB,
                sdc::get_mdib(),
            )
            .await
            .map_err(|error| Trouble::new("sdc_get_mdib", error.to_string()))
            .and_then(|answer| answer.ok_or_else(|| Trouble::new("sdc_get_mdib", "no answer")));
        let made = answer.and_then(|answer| SdcMapping::new(&answer, timestamp(SystemTime::now())));
        let (medical, first) =
            made.inspect_err(|_| self.subscriptions.retain(|one| one.mapping != mapping))?;
        self.pending
            .extend(medical.left_out.iter().cloned().map(Yield::Trouble));
        let first_offer = self.offers.len();
        self.add(Box::new(medical));
        self.pending.extend(yields(first, first_offer));
        Ok(())
    }
}

fn yields(mapped: Mapped, first_offer: usize) -> Vec<Yield> {
    let elements = mapped.elements.into_iter();
    let elements = elements.map(|(index, element)| Yield::Element(first_offer + index, element));
    elements
        .chain(mapped.troubles.into_iter().map(Yield::Trouble))
        .collect()
}

/// Nanoseconds since 1970; before that, zero.
fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
