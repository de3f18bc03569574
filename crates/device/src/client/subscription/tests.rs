//! Goal: an event is read, queued or waits for room, and its device gets an answer only when it is queued.
//!
//! Method: the machine of the sink is played by the test; senders hang up, and arrive in any order.

use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::Waker;
use std::time::SystemTime;

use proptest::prelude::*;

use chappe_dpws::eventing::{EventSink, SinkConfig, SinkEvent, SinkReceive, SinkTransmit};
use chappe_dpws::exchange::Reply;
use chappe_machine::{Input, Output};
use chappe_soap::{Addressing, AddressingVersion, Envelope};
use chappe_transport::{Drops, Hop};
use chappe_xml::Element;
use tokio::sync::mpsc;

use super::*;
use crate::driver::{InputOf, OutputHandler, drive};

const KEY: SubscriptionKey = SubscriptionKey(1);
/// A queue for one notification.
const ONE: QueueLimits = QueueLimits {
    notifications: 1,
    bytes: 4_000,
};

fn event(number: usize) -> Delivery {
    Delivery::Notification(Notification {
        action: number.to_string(),
        body: Element::new(chappe_xml::Name::new("urn:test", "Event")),
        received_at: SystemTime::UNIX_EPOCH,
    })
}

fn body(bytes: usize) -> Element {
    Element::new(chappe_xml::Name::new("urn:test", "Event")).with_text("x".repeat(bytes))
}

/// A sink whose machine is played by the test.
fn sink() -> (Arc<Sink>, mpsc::Receiver<Option<InputOf<EventSink>>>) {
    let (inputs, posted) = mpsc::channel(8);
    let sink = Sink {
        inputs,
        path: "/events",
        state: Mutex::default(),
    };
    (Arc::new(sink), posted)
}

/// A subscription with this queue limit.
fn subscription(sink: &Arc<Sink>, limits: QueueLimits) -> Subscription {
    let (inbox, reader) = inbox::queue(KEY, limits, sink.inputs.clone());
    sink.state().receivers.insert(KEY, inbox);
    let sink = Arc::clone(sink);
    Subscription {
        key: KEY,
        reader,
        sink,
    }
}

/// Posts an event with this number and size of text.
async fn post(sink: Arc<Sink>, drops: Drops, number: usize, bytes: usize) -> Option<Reply> {
    let addressing = Addressing::new(AddressingVersion::V200508, number.to_string());
    let envelope = Envelope::new(addressing).with_body(body(bytes));
    let peer = "127.0.0.1:1".parse().unwrap();
    let path = ("/events/1".to_owned(), Some(KEY));
    sink.post((peer, &drops), path, envelope).await
}

/// The machine processes the next posted event, if there is one, and delivers it.
fn take_one(sink: &Arc<Sink>, posted: &mut mpsc::Receiver<Option<InputOf<EventSink>>>) -> bool {
    let Ok(Some(Input::Receive(SinkReceive::Posted {
        token, envelope, ..
    }))) = posted.try_recv()
    else {
        return false;
    };
    let one = sink.state().posted.remove(&token.0).unwrap();
    let number = envelope.addressing.action.parse().unwrap();
    let is_queued = one.slot.unwrap().put(event(number));
    let _ = one.answer.send(is_queued.then_some(Reply::ACCEPTED));
    true
}

fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
    future
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

/// A subscription with one event, whose device gets no answer before there is room. `end` ends the
/// subscription. Returns the device's answer and the subscription, if it is left.
fn answer_after(
    end: impl FnOnce(Subscription) -> Option<Subscription>,
) -> (Option<Reply>, Option<Subscription>) {
    let (sink, mut posted) = sink();
    let subscription = subscription(&sink, ONE);
    let mut first = pin!(post(Arc::clone(&sink), Drops::default(), 1, 0));
    assert!(is_pending(first.as_mut()) && take_one(&sink, &mut posted));
    let mut second = pin!(post(Arc::clone(&sink), Drops::default(), 1, 0));
    assert!(is_pending(second.as_mut()) && !take_one(&sink, &mut posted));
    let left = end(subscription);
    if is_pending(second.as_mut()) {
        assert!(take_one(&sink, &mut posted));
    }
    match second.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => (reply, left),
        Poll::Pending => panic!("the device got no answer"),
    }
}

#[test]
fn an_event_delivered_after_the_end_is_acknowledged() {
    let (reply, left) = answer_after(|mut subscription| {
        subscription.close();
        Some(subscription)
    });
    assert_eq!(reply, Some(Reply::ACCEPTED));
    let mut left = left.unwrap();
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(left.poll_next(&mut context), Poll::Ready(Some(event(1))));
    assert_eq!(left.poll_next(&mut context), Poll::Ready(Some(event(1))));
    assert_eq!(left.poll_next(&mut context), Poll::Ready(None));
}

#[test]
fn an_undelivered_event_is_not_acknowledged() {
    let (sink, mut posted) = sink();
    let subscription = subscription(&sink, ONE);
    let drops = Drops::default();
    let mut first = pin!(post(Arc::clone(&sink), drops.clone(), 1, 0));
    assert!(is_pending(first.as_mut()));
    let mut second = pin!(post(Arc::clone(&sink), drops.clone(), 1, 0));
    assert!(is_pending(second.as_mut()));
    drop(subscription);
    assert!(take_one(&sink, &mut posted));
    let mut context = Context::from_waker(Waker::noop());
    for post in [first, second] {
        assert_eq!(post.poll(&mut context), Poll::Ready(None));
    }
    let next = posted.try_recv();
    let is_end = |next: &_| {
        matches!(
            next,
            Ok(Some(Input::Command(SinkCommand::Unsubscribe { .. })))
        )
    };
    assert!(is_end(&next), "{next:?}");
    assert_eq!(drops.total(Hop::Event, "notification not waited for"), 0);
}

#[test]
fn senders_that_hang_up_while_they_wait_are_counted() {
    let (sink, mut posted) = sink();
    let mut subscription = subscription(&sink, ONE);
    let drops = Drops::default();
    for round in 0..100 {
        let mut first = pin!(post(Arc::clone(&sink), drops.clone(), 1, 0));
        assert!(is_pending(first.as_mut()) && take_one(&sink, &mut posted));
        for _ in 0..10 {
            let waiting = post(Arc::clone(&sink), drops.clone(), 1, 0);
            assert!(is_pending(pin!(waiting)));
        }
        assert!(!take_one(&sink, &mut posted), "round {round}");
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(
            subscription.poll_next(&mut context),
            Poll::Ready(Some(event(1)))
        );
        assert_eq!(subscription.poll_next(&mut context), Poll::Pending);
    }
    assert_eq!(
        drops.total(Hop::Event, "notification not waited for"),
        1_000
    );
}

/// Several senders that wait for their answers, and a reader.
struct World {
    sink: Arc<Sink>,
    posted: mpsc::Receiver<Option<InputOf<EventSink>>>,
    subscription: Subscription,
    posts: Vec<Pin<Box<dyn Future<Output = Option<Reply>>>>>,
    /// The sizes of all sent events.
    sent: Vec<usize>,
    answered: usize,
    read: usize,
}

impl World {
    fn send(&mut self, bytes: usize) {
        let post = post(
            Arc::clone(&self.sink),
            Drops::default(),
            self.sent.len(),
            bytes,
        );
        self.sent.push(body(bytes).expanded_bytes());
        self.posts.push(Box::pin(post));
        self.settle();
    }

    fn settle(&mut self) {
        let answered = &mut self.answered;
        for _ in 0..2 {
            let mut context = Context::from_waker(Waker::noop());
            self.posts
                .retain_mut(|post| match post.as_mut().poll(&mut context) {
                    Poll::Pending => true,
                    Poll::Ready(reply) => {
                        assert_eq!(reply, Some(Reply::ACCEPTED));
                        *answered += 1;
                        false
                    }
                });
            while take_one(&self.sink, &mut self.posted) {}
        }
    }

    fn read(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(next) = self.subscription.poll_next(&mut context) else {
            return false;
        };
        assert_eq!(next, Some(event(self.read)));
        self.read += 1;
        self.settle();
        true
    }
}

proptest! {
    /// Waiting senders lose nothing and keep their order, and the queue stays within its limits.
    #[test]
    fn each_event_is_read_queued_or_waits_for_room(
        steps in proptest::collection::vec((proptest::bool::weighted(0.6), 0..2_500_usize), 1..200),
        notifications in 1..8_usize,
    ) {
        let limits = QueueLimits { notifications, bytes: 4_000 };
        let (sink, posted) = sink();
        let mut world = World {
            subscription: subscription(&sink, limits),
            sink,
            posted,
            posts: Vec::new(),
            sent: Vec::new(),
            answered: 0,
            read: 0,
        };
        for (sends, bytes) in steps {
            match sends {
                true => world.send(bytes),
                false => {
                    let is_empty = world.read == world.sent.len();
                    prop_assert_eq!(world.read(), !is_empty);
                }
            }
            let queued = &world.sent[world.read..world.answered];
            prop_assert_eq!(world.answered + world.posts.len(), world.sent.len());
            prop_assert!(queued.len() <= notifications);
            prop_assert!(queued.iter().sum::<usize>() <= limits.bytes);
        }
        while world.read() {}
        prop_assert_eq!(world.read, world.sent.len());
    }
}

/// Answers path queries, and records the address of each subscription for its events.
struct Paths(Arc<Sink>, Arc<Mutex<String>>);

impl OutputHandler<EventSink> for Paths {
    fn handle(&mut self, output: Output<SinkTransmit, SinkEvent>) {
        if let Output::Transmit(SinkTransmit::Request { envelope, .. }) = output {
            *self.1.lock().unwrap() = envelope.to_text();
        }
    }

    fn on_drained(&mut self, machine: &EventSink) {
        self.0.answer_paths(machine);
    }
}

#[tokio::test]
async fn a_path_is_known_as_long_as_its_subscription() {
    let config = SinkConfig::default();
    let machine = EventSink::new(config, Arc::new(|_: &str, _| Ok(())), [7; 16]);
    let (inputs, receive) = mpsc::channel(8);
    let sink = Arc::new(Sink {
        inputs,
        path: "/events",
        state: Mutex::default(),
    });
    let text = Arc::new(Mutex::default());
    let mut outputs = Paths(Arc::clone(&sink), Arc::clone(&text));
    let driving = tokio::spawn(async move { drive(machine, receive, &mut outputs).await });
    let source = Source {
        endpoint: chappe_soap::EndpointReference::new("http://192.0.2.7/thermometer"),
        peer: "192.0.2.7:80".parse().unwrap(),
        actions: Vec::new(),
        lease: LEASE,
        base: "http://192.0.2.1:1".into(),
        tree: None,
    };
    let source = Box::new(source);
    sink.command(SinkCommand::Subscribe { key: KEY, source })
        .await;
    let unknown = format!("/events/{:032x}", 1);
    assert_eq!(sink.subscription_at(&unknown).await, None);
    let text = text.lock().unwrap().clone();
    let path = text.split("192.0.2.1:1").nth(1).unwrap();
    let path = path.split('<').next().unwrap();
    let known = sink.subscription_at(path).await;
    assert_eq!(known, Some(KEY), "{path} of {text}");
    sink.inputs.send(None).await.unwrap();
    driving.await.unwrap();
    let known = sink.subscription_at(path).await;
    assert_eq!(known, None, "the client has ended");
}
