//! Best effort: PUB and SUB. The publisher waits for nobody; samples for which a subscriber is too
//! slow are dropped and counted.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use chappe_machine::Instant;
use chappe_transport::zeromq::{
    CurvePublic, Limits, Message, Publisher, Subscriber, SubscriberLink,
};
use chappe_transport::{Drops, FineAlarm};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::Error;
use crate::carrier::{Acknowledged, Counters, Inlet, Outlet};
use crate::zeromq::{connecting, offered, runtime, until};

/// The topic.
const TOPIC: &[u8] = b"perf";

/// The publisher's end.
pub(crate) struct PublisherOutlet {
    publisher: Publisher,
    changes: watch::Receiver<u64>,
    alarm: FineAlarm,
    endpoint: String,
    key: Option<CurvePublic>,
    runtime: Runtime,
}

impl PublisherOutlet {
    /// Listens.
    pub(crate) fn bind(listen: &str, allow: &[CurvePublic], spin: Duration) -> Result<Self, Error> {
        let offered = offered(listen, allow)?;
        let (runtime, alarm) = runtime(spin)?;
        let bind = Publisher::bind(
            listen,
            offered.security,
            Limits::default(),
            Drops::default(),
        );
        let publisher = runtime.block_on(bind)?;
        let endpoint = publisher.local_endpoint();
        Ok(Self {
            changes: publisher.changes(),
            endpoint: endpoint.map_or_else(String::new, |endpoint| endpoint.to_string()),
            publisher,
            alarm,
            key: offered.key,
            runtime,
        })
    }

    /// Its address and key.
    pub(crate) fn address(&self) -> (String, Option<CurvePublic>) {
        (self.endpoint.clone(), self.key)
    }
}

impl Outlet for PublisherOutlet {
    fn subscribers(&mut self) -> usize {
        let subscribers = self.publisher.subscribers();
        subscribers.iter().filter(|one| one.prefixes > 0).count()
    }

    fn write(&mut self, sample: &[u8]) -> Result<bool, Error> {
        let _entered = self.runtime.enter();
        self.publisher
            .publish(TOPIC, [Bytes::copy_from_slice(sample)]);
        Ok(true)
    }

    fn unacknowledged(&mut self) -> u64 {
        0
    }

    fn acknowledged(&mut self, _: &mut dyn FnMut(Acknowledged)) {}

    fn echoes(&mut self, _: &mut dyn FnMut(&[u8])) {}

    fn counters(&mut self) -> Counters {
        Counters {
            dropped: Some(self.publisher.dropped()),
        }
    }

    fn wait(&mut self, at: Instant) -> Result<(), Error> {
        let (changes, alarm) = (&mut self.changes, &mut self.alarm);
        // One future for the entire wait: dropping it also drops the wakers.
        let mut changed = pin!(changes.changed());
        let changed = until(alarm, at, |context| {
            changed.as_mut().poll(context).map(drop)
        });
        self.runtime.block_on(changed);
        Ok(())
    }

    fn is_idle(&mut self) -> bool {
        let subscribers = self.publisher.subscribers();
        subscribers.iter().all(|one| one.queued == 0)
    }
}

/// The subscriber's end.
pub(crate) struct SubscriberInlet {
    subscriber: Subscriber,
    link: watch::Receiver<SubscriberLink>,
    connected: bool,
    held: Option<Message>,
    /// The sample that is being taken.
    taking: bool,
    alarm: FineAlarm,
    runtime: Runtime,
}

impl SubscriberInlet {
    /// Connects, retrying as long as it lives, and subscribes.
    pub(crate) fn connect(endpoint: &str, server_key: Option<CurvePublic>) -> Result<Self, Error> {
        let security = connecting(server_key)?;
        let (runtime, alarm) = runtime(Duration::ZERO)?;
        let topics = [Bytes::from_static(TOPIC)];
        let (limits, drops) = (Limits::default(), Drops::default());
        let connect = Subscriber::connect(endpoint, topics, security, limits, drops);
        let subscriber = runtime.block_on(connect)?;
        Ok(Self {
            link: subscriber.link(),
            connected: false,
            subscriber,
            held: None,
            taking: false,
            alarm,
            runtime,
        })
    }
}

impl Inlet for SubscriberInlet {
    fn wait(&mut self, at: Instant) -> Result<bool, Error> {
        if self.held.is_none() || self.taking {
            self.taking = false;
            let (subscriber, alarm) = (&mut self.subscriber, &mut self.alarm);
            // One future for the entire wait: dropping it also drops the wakers.
            let mut message = pin!(subscriber.recv());
            let message = until(alarm, at, |context| message.as_mut().poll(context));
            self.held = self.runtime.block_on(message);
        }
        match &*self.link.borrow_and_update() {
            SubscriberLink::Connected(_) => self.connected = true,
            SubscriberLink::Broken(_) if self.connected => return Ok(self.held.is_some()),
            _ => {}
        }
        Ok(true)
    }

    fn take(&mut self) -> Result<Option<&[u8]>, Error> {
        // First the sample that `wait` received, then any that are available without waiting.
        if std::mem::take(&mut self.taking) {
            let mut nobody = Context::from_waker(Waker::noop());
            self.held = match pin!(self.subscriber.recv()).poll(&mut nobody) {
                Poll::Ready(message) => Some(message),
                Poll::Pending => None,
            };
        }
        self.taking = self.held.is_some();
        Ok(self.held.as_ref().map(|message| &**message.last()))
    }

    fn echo(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) {}
}
