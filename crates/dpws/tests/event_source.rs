//! Goal: the event source grants what it may, refuses the rest with its reason, and neither slow
//! nor dead sinks harm it or each other.
//! Method: one machine in the harness, its requests and delivery results made by hand.

use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::{
    DELIVERY_MODE_PUSH, Lease, Subscribe, SubscribeResponse, SubscriptionEnd, action,
};
use chappe_dpws::eventing::{
    DropReason, EndStatus, EventSource, EventingFault, Expiration, Failure, Filter, ManagerStyle,
    Notification, Offer, Request, SourceCommand, SourceConfig, SourceEvent, SourceReceive,
    SourceRefusal, SourceTransmit, Token,
};
use chappe_dpws::exchange::request;
use chappe_machine::{Harness, Input, Instant, Output, drain};
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Element, Name};

const REPORT: &str = "urn:x/Report";
const ALARM: &str = "urn:x/Alarm";

fn config() -> SourceConfig {
    SourceConfig {
        offers: vec![Offer {
            path: "/thermometer".into(),
            actions: vec![REPORT.into(), ALARM.into()],
        }],
        subscriptions_max: 3,
        subscriptions_per_peer_max: 2,
        queue_max: 4,
        ..SourceConfig::default()
    }
}

struct World {
    source: Harness<EventSource>,
    outputs: Vec<Output<SourceTransmit, SourceEvent>>,
}

impl World {
    fn new(config: SourceConfig) -> Self {
        let check = Arc::new(|address: &str, _| match address.contains("forbidden") {
            true => Err("it is forbidden".to_owned()),
            false => Ok(()),
        });
        let source = Harness::new(EventSource::new(config, check, [7; 16]), 7);
        Self {
            source,
            outputs: Vec::new(),
        }
    }

    fn input(&mut self, input: Input<SourceReceive, SourceCommand>) {
        self.outputs = self.source.input(input).unwrap();
    }

    fn ask(&mut self, host: u8, path: &str, envelope: Envelope) -> Envelope {
        let request = Request {
            token: Token(1),
            peer: ([192, 0, 2, host], 4711).into(),
            base: "http://192.0.2.99:80".into(),
            path: path.to_owned().into(),
            envelope,
        };
        self.input(Input::Receive(SourceReceive::Request(Box::new(request))));
        let found = self.outputs.iter().find_map(|output| match output {
            Output::Transmit(SourceTransmit::Response { envelope, .. }) => Some(&**envelope),
            _ => None,
        });
        // Through text, as a peer would see it.
        Envelope::parse(found.unwrap().to_text().as_bytes()).unwrap()
    }

    fn subscribe(
        &mut self,
        host: u8,
        message: &Subscribe,
    ) -> Result<SubscribeResponse, EventingFault> {
        let version = Dialect::V2009.addressing();
        let to = EndpointReference::new("http://192.0.2.99:80/thermometer");
        let envelope = request(version, &to, action::SUBSCRIBE, "urn:uuid:1")
            .with_body(message.to_element(version));
        let answer = self.ask(host, "/thermometer", envelope);
        assert_eq!(answer.addressing.relates_to.as_deref(), Some("urn:uuid:1"));
        match answer.fault() {
            Some(fault) => Err(EventingFault::from_fault(&fault).unwrap()),
            None => {
                assert_eq!(answer.addressing.action, action::SUBSCRIBE_RESPONSE);
                Ok(SubscribeResponse::from_element(version, answer.body().unwrap()).unwrap())
            }
        }
    }

    /// Renew, GetStatus or Unsubscribe at the manager that was granted.
    fn manage(
        &mut self,
        manager: &EndpointReference,
        action: &'static str,
        lease: Lease,
        expires: Option<Expiration>,
    ) -> Result<Option<Expiration>, EventingFault> {
        let version = Dialect::V2009.addressing();
        let envelope = request(version, manager, action, "urn:uuid:2");
        let envelope = envelope.with_body(lease.to_element(expires));
        let path = manager
            .address
            .strip_prefix("http://192.0.2.99:80")
            .unwrap()
            .to_owned();
        let answer = self.ask(1, &path, envelope);
        if let Some(fault) = answer.fault() {
            return Err(EventingFault::from_fault(&fault).unwrap());
        }
        Ok(answer.body().map(|body| {
            let kind = match lease {
                Lease::Renew => Lease::RenewResponse,
                _ => Lease::GetStatusResponse,
            };
            kind.from_element(body).unwrap().unwrap()
        }))
    }

    fn notify(&mut self, action: &'static str, number: u32) {
        let body = Element::new(Name::new("urn:x", "R")).with_text(number.to_string());
        let action = action.into();
        self.input(Input::Command(SourceCommand::Notify { action, body }));
    }

    fn notifications(&self) -> Vec<Notification> {
        let sent = self.outputs.iter().filter_map(|output| match output {
            Output::Transmit(SourceTransmit::Notify(notification)) => {
                Some((**notification).clone())
            }
            _ => None,
        });
        sent.collect()
    }

    fn numbers(&self) -> Vec<String> {
        let sent = self
            .notifications()
            .into_iter()
            .map(|sent| sent.to_envelope());
        sent.map(|sent| sent.body().unwrap().text().into_owned())
            .collect()
    }

    fn delivered(&mut self, delivery: u64) {
        self.input(Input::Receive(SourceReceive::Delivered { delivery }));
    }

    fn failed(&mut self, delivery: u64, failure: Failure) {
        self.input(Input::Receive(SourceReceive::Failed { delivery, failure }));
    }

    fn advance(&mut self, duration: Duration) {
        self.outputs = self.source.advance(duration).unwrap();
    }

    fn refused(&self, reason: SourceRefusal) -> u64 {
        self.source.machine().refused(reason)
    }
}

fn wanting(actions: &[&'static str], lease_s: u64) -> Subscribe {
    let here = EndpointReference::new("http://192.0.2.1:9/events/1");
    Subscribe {
        end_to: Some(EndpointReference::new("http://192.0.2.1:9/end/1")),
        mode: Some(DELIVERY_MODE_PUSH.into()),
        notify_to: Some(here),
        expires: Some(Expiration::After(Duration::from_secs(lease_s))),
        filter: Some(Filter::actions(
            Dialect::V2009,
            actions.iter().map(|action| (*action).into()).collect(),
        )),
        tree: Ok(None),
    }
}

fn seconds(seconds: u64) -> Expiration {
    Expiration::After(Duration::from_secs(seconds))
}

#[test]
fn a_subscription_lives_from_subscribe_to_unsubscribe() {
    for manager_style in [ManagerStyle::Path, ManagerStyle::ReferenceParameter] {
        let mut world = World::new(SourceConfig {
            manager_style,
            ..config()
        });
        let granted = world.subscribe(1, &wanting(&[REPORT], 60)).unwrap();
        assert_eq!(granted.expires, seconds(60));
        world.notify(ALARM, 1);
        assert!(world.notifications().is_empty(), "not wanted");
        world.notify(REPORT, 2);
        let sent = &world.notifications()[0];
        assert_eq!(
            (sent.to(), sent.action()),
            ("http://192.0.2.1:9/events/1", REPORT)
        );
        let text = Envelope::parse(sent.to_text().as_bytes()).unwrap();
        assert_eq!(text.body().unwrap().text(), "2");
        assert_eq!(text.addressing, sent.to_envelope().addressing);
        world.delivered(sent.delivery);
        world.advance(Duration::from_secs(50));
        let manager = &granted.manager;
        let rest = world.manage(manager, action::GET_STATUS, Lease::GetStatus, None);
        assert_eq!(rest, Ok(Some(seconds(10))));
        let renewed = world.manage(manager, action::RENEW, Lease::Renew, Some(seconds(30)));
        assert_eq!(renewed, Ok(Some(seconds(30))));
        world.advance(Duration::from_secs(29));
        assert_eq!(world.source.machine().subscriptions(), 1);
        let done = world.manage(manager, action::UNSUBSCRIBE, Lease::Unsubscribe, None);
        assert_eq!(done, Ok(None));
        assert_eq!(world.source.machine().subscriptions(), 0);
        let again = world.manage(manager, action::UNSUBSCRIBE, Lease::Unsubscribe, None);
        assert!(matches!(again, Err(EventingFault::InvalidMessage(_))));
        let renewed = world.manage(manager, action::RENEW, Lease::Renew, None);
        assert!(matches!(renewed, Err(EventingFault::UnableToRenew(_))));
        assert_eq!(world.source.deadline(), None, "nothing is left to wait for");
    }
}

#[test]
fn a_lease_ends_by_itself_and_is_never_longer_than_permitted() {
    let mut world = World::new(config());
    let granted = world.subscribe(1, &wanting(&[REPORT], 1_000_000)).unwrap();
    assert_eq!(granted.expires, seconds(3_600));
    world.advance(Duration::from_secs(3_600));
    assert!(matches!(
        &world.outputs[..],
        [Output::Event(SourceEvent::Expired { .. })]
    ));
    world.notify(REPORT, 1);
    assert!(world.outputs.is_empty());
}

#[test]
fn an_expiration_by_date_needs_a_clock() {
    let start = 1_772_236_800_000_000_000;
    let asked = |date| Subscribe {
        expires: Some(Expiration::At(date)),
        ..wanting(&[REPORT], 1)
    };
    let mut world = World::new(config());
    let refused = world.subscribe(1, &asked(start + 5_000_000_000));
    assert_eq!(refused, Err(EventingFault::UnsupportedExpirationType));
    let utc_at_origin_ns = Some(start);
    let mut world = World::new(SourceConfig {
        utc_at_origin_ns,
        ..config()
    });
    world.advance(Duration::from_secs(1));
    let granted = world.subscribe(1, &asked(start + 5_000_000_000)).unwrap();
    assert_eq!(granted.expires, Expiration::At(start + 5_000_000_000));
    assert_eq!(
        world.subscribe(1, &asked(start)),
        Err(EventingFault::InvalidExpirationTime)
    );
    world.advance(Duration::from_secs(4));
    assert_eq!(world.source.machine().subscriptions(), 0);
}

#[test]
fn requests_that_cannot_be_granted_are_refused_with_their_reason() {
    let mut world = World::new(config());
    let good = wanting(&[REPORT], 60);
    let mode = Subscribe {
        mode: Some("urn:pull".into()),
        ..good.clone()
    };
    assert_eq!(
        world.subscribe(1, &mode),
        Err(EventingFault::DeliveryModeRequestedUnavailable)
    );
    let xpath = Filter {
        dialect: None,
        actions: vec!["/x".into()],
    };
    let filter = Subscribe {
        filter: Some(xpath),
        ..good.clone()
    };
    assert_eq!(
        world.subscribe(1, &filter),
        Err(EventingFault::FilteringRequestedUnavailable)
    );
    assert_eq!(
        world.subscribe(1, &wanting(&["urn:x/Other"], 60)),
        Err(EventingFault::FilterActionNotSupported)
    );
    let forbidden = Some(EndpointReference::new("http://forbidden/"));
    for message in [
        Subscribe {
            notify_to: forbidden.clone(),
            ..good.clone()
        },
        Subscribe {
            end_to: forbidden,
            ..good.clone()
        },
        Subscribe {
            notify_to: None,
            ..good.clone()
        },
    ] {
        let refused = world.subscribe(1, &message);
        assert!(matches!(refused, Err(EventingFault::InvalidMessage(_))));
    }
    for reason in [
        SourceRefusal::DeliveryMode,
        SourceRefusal::FilterDialect,
        SourceRefusal::FilterAction,
        SourceRefusal::Malformed,
    ] {
        assert_eq!(world.refused(reason), 1, "{reason:?}");
    }
    assert_eq!(world.refused(SourceRefusal::Address), 2);
    // Some of the wanted actions are enough, and without a filter all are wanted.
    world
        .subscribe(1, &wanting(&["urn:x/Other", ALARM], 60))
        .unwrap();
    world
        .subscribe(
            1,
            &Subscribe {
                filter: None,
                ..good
            },
        )
        .unwrap();
    assert_eq!(world.source.machine().subscribers(ALARM), 2);
    assert_eq!(world.source.machine().subscribers(REPORT), 1);
}

#[test]
fn subscriptions_are_limited_in_all_and_for_each_peer() {
    let mut world = World::new(config());
    let good = wanting(&[REPORT], 60);
    world.subscribe(1, &good).unwrap();
    world.subscribe(1, &good).unwrap();
    assert!(world.subscribe(1, &good).is_err());
    world.subscribe(2, &good).unwrap();
    assert!(world.subscribe(3, &good).is_err());
    assert_eq!(world.refused(SourceRefusal::PeerFull), 1);
    assert_eq!(world.refused(SourceRefusal::Full), 1);
}

#[test]
fn of_a_million_subscriptions_some_are_served_and_the_others_refused() {
    const SERVED: u64 = 100;
    let config = SourceConfig {
        subscriptions_max: SERVED as usize,
        subscriptions_per_peer_max: SERVED as usize,
        ..config()
    };
    let mut source = EventSource::new(config, Arc::new(|_: &str, _| Ok(())), [7; 16]);
    let version = Dialect::V2009.addressing();
    let to = EndpointReference::new("http://192.0.2.99:80/thermometer");
    let envelope = request(version, &to, action::SUBSCRIBE, "urn:uuid:1")
        .with_body(wanting(&[REPORT], 60).to_element(version));
    let (mut answers, mut largest) = (0, 0);
    for number in 0..1_000_000_u32 {
        let [_, high, middle, low] = number.to_be_bytes();
        let request = Request {
            token: Token(number.into()),
            peer: ([10, high, middle, low], 4711).into(),
            base: "http://192.0.2.99:80".into(),
            path: "/thermometer".into(),
            envelope: envelope.clone(),
        };
        let mut outputs = 0;
        let input = Input::Receive(SourceReceive::Request(Box::new(request)));
        drain(&mut source, Instant::ZERO, input, |output| {
            outputs += 1;
            let answer = matches!(output, Output::Transmit(SourceTransmit::Response { .. }));
            answers += u64::from(answer);
        });
        largest = largest.max(outputs);
    }
    assert_eq!(answers, 1_000_000, "each is told");
    assert_eq!(source.subscribers(REPORT) as u64, SERVED);
    assert_eq!(source.refused(SourceRefusal::Full), 1_000_000 - SERVED);
    assert!(largest <= 4, "{largest} outputs for one request");
}

#[test]
fn forged_and_malformed_requests_change_nothing() {
    let mut world = World::new(config());
    let granted = world.subscribe(1, &wanting(&[REPORT], 60)).unwrap();
    let (start, id) = granted.manager.address.rsplit_once('/').unwrap();
    let mut forged: Vec<_> = [&id[..31], "", "..", "zz", &"0".repeat(32), &"é".repeat(16)]
        .iter()
        .map(|id| format!("{start}/{id}"))
        .collect();
    forged.push(format!("{start}/{id}/x"));
    for address in forged {
        let manager = EndpointReference::new(address);
        let done = world.manage(&manager, action::UNSUBSCRIBE, Lease::Unsubscribe, None);
        assert!(done.is_err());
    }
    let version = Dialect::V2009.addressing();
    let to = EndpointReference::new("http://h/");
    let empty = request(version, &to, action::SUBSCRIBE, "urn:uuid:9");
    assert!(
        world
            .ask(1, "/thermometer", empty.clone())
            .fault()
            .is_some()
    );
    assert!(
        world
            .ask(
                1,
                "/elsewhere",
                empty.with_body(wanting(&[REPORT], 1).to_element(version))
            )
            .fault()
            .is_some()
    );
    let other = request(version, &to, "urn:other", "urn:uuid:9");
    let fault = world.ask(1, "/thermometer", other).fault().unwrap();
    assert_eq!(fault.subcode.unwrap().local, "ActionNotSupported");
    assert_eq!(world.source.machine().subscriptions(), 1);
}

#[test]
fn identifiers_are_not_guessed_from_others() {
    let mut world = World::new(SourceConfig {
        subscriptions_per_peer_max: 3,
        ..config()
    });
    let ids: Vec<_> = (0..3)
        .map(|_| {
            let granted = world.subscribe(1, &wanting(&[REPORT], 60)).unwrap();
            let id = granted
                .manager
                .address
                .rsplit_once('/')
                .unwrap()
                .1
                .to_owned();
            u128::from_str_radix(&id, 16).unwrap()
        })
        .collect();
    let steps = [ids[1].wrapping_sub(ids[0]), ids[2].wrapping_sub(ids[1])];
    assert_ne!(steps[0], steps[1]);
    assert!((ids[0] ^ ids[1]).count_ones() > 20);
}

#[test]
fn a_slow_sink_loses_the_oldest_and_holds_up_nobody() {
    let mut world = World::new(config());
    world.subscribe(1, &wanting(&[REPORT], 60)).unwrap();
    world.notify(REPORT, 0);
    let slow = world.notifications()[0].delivery;
    world.subscribe(2, &wanting(&[REPORT], 60)).unwrap();
    for number in 1..=6 {
        world.notify(REPORT, number);
        // The other sink gets each at once.
        let sent = world.notifications();
        assert_eq!(sent.len(), 1);
        world.delivered(sent[0].delivery);
    }
    assert_eq!(world.source.machine().dropped(DropReason::QueueFull), 3);
    world.delivered(slow);
    let mut received = world.numbers();
    while let [sent] = &world.notifications()[..] {
        world.delivered(sent.delivery);
        received.extend(world.numbers());
    }
    assert_eq!(
        received,
        ["4", "5", "6"],
        "0 was on its way, 1 to 3 made place"
    );
}

#[test]
fn a_failed_notification_is_repeated_as_the_same_message() {
    let mut world = World::new(config());
    world.subscribe(1, &wanting(&[REPORT], 600)).unwrap();
    world.notify(REPORT, 1);
    let first = world.notifications().remove(0);
    world.failed(first.delivery, Failure::Unreachable);
    assert!(world.notifications().is_empty(), "not at once");
    world.delivered(first.delivery);
    assert_eq!(
        world.source.machine().delivered(),
        0,
        "a late result is of nothing"
    );
    world.advance(Duration::from_millis(500));
    let second = world.notifications().remove(0);
    assert_eq!(
        second.to_envelope().addressing.message_id,
        first.to_envelope().addressing.message_id
    );
    // No result at all is a failure too; one success makes up for both.
    world.advance(Duration::from_secs(31));
    let third = world.notifications().remove(0);
    world.delivered(third.delivery);
    // What the sink refuses is not repeated.
    world.notify(REPORT, 2);
    let refused = world.notifications().remove(0);
    world.failed(refused.delivery, Failure::Refused);
    world.advance(Duration::from_secs(60));
    assert!(world.notifications().is_empty());
    assert_eq!(world.source.machine().dropped(DropReason::Refused), 1);
    assert_eq!(world.source.machine().subscriptions(), 1);
}

#[test]
fn a_dead_sink_is_given_up_and_told_so() {
    let mut world = World::new(config());
    let granted = world.subscribe(1, &wanting(&[REPORT], 600)).unwrap();
    world.notify(REPORT, 1);
    world.notify(REPORT, 2);
    // The second notification waits, so the first one's delivery is the only one.
    world.outputs.clear();
    world.advance(Duration::from_secs(30));
    for _ in 0..2 {
        world.advance(Duration::from_secs(1));
        let sent = world.notifications().remove(0);
        world.failed(sent.delivery, Failure::Unreachable);
    }
    let end = world.notifications().remove(0);
    assert_eq!(end.to(), "http://192.0.2.1:9/end/1");
    assert_eq!(end.action(), action::SUBSCRIPTION_END);
    let version = Dialect::V2009.addressing();
    let message = end.to_envelope();
    let message = SubscriptionEnd::from_element(version, message.body().unwrap()).unwrap();
    assert_eq!(message.status, EndStatus::DeliveryFailure);
    assert_eq!(message.manager, Some(granted.manager));
    assert_eq!(world.source.machine().dropped(DropReason::Ended), 2);
    // The end is sent once, whatever becomes of it.
    world.failed(end.delivery, Failure::Unreachable);
    assert!(world.outputs.is_empty());
}

#[test]
fn a_stopping_device_says_so_to_who_wants_to_know() {
    let mut world = World::new(config());
    world.subscribe(1, &wanting(&[REPORT], 600)).unwrap();
    let silent = Subscribe {
        end_to: None,
        ..wanting(&[REPORT], 600)
    };
    world.subscribe(2, &silent).unwrap();
    world.input(Input::Command(SourceCommand::Shutdown));
    let ends = world.notifications();
    assert_eq!(ends.len(), 1);
    let text = ends[0].to_text();
    assert!(text.contains("2004/08/eventing/SourceShuttingDown"));
    let refused = world.subscribe(1, &silent);
    assert!(matches!(
        refused,
        Err(EventingFault::EventSourceUnableToProcess(_))
    ));
}
