//! Goal: the event source grants permitted requests and rejects others with the reason; slow and
//! dead sinks affect neither it nor each other.
//! Method: one machine in the harness, with requests and delivery results from the test.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::{
    DELIVERY_MODE_PUSH, Lease, Subscribe, SubscribeResponse, SubscriptionEnd, action,
};
use chappe_dpws::eventing::{
    DropReason, EndStatus, EventSource, EventingFault, Expiration, Failure, Filter, FilterDialect,
    ManagerStyle, Notification, NotificationFilter, Offer, Request, SourceCommand, SourceConfig,
    SourceEvent, SourceReceive, SourceRefusal, SourceTransmit, SubscriptionId, Token,
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
            true => Err("the address is forbidden".to_owned()),
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

    fn send_request(&mut self, host: u8, path: &str, envelope: Envelope) -> Envelope {
        self.send_request_from([192, 0, 2, host].into(), path, envelope)
    }

    fn send_request_from(&mut self, from: IpAddr, path: &str, envelope: Envelope) -> Envelope {
        let request = Request {
            token: Token(1),
            peer: (from, 4711).into(),
            base: "http://192.0.2.99:80".into(),
            path: path.to_owned().into(),
            envelope,
        };
        self.input(Input::Receive(SourceReceive::Request(Box::new(request))));
        let found = self.outputs.iter().find_map(|output| match output {
            Output::Transmit(SourceTransmit::Response { envelope, .. }) => Some(&**envelope),
            _ => None,
        });
        // Through text, as a peer receives it.
        Envelope::parse(found.unwrap().to_text().as_bytes()).unwrap()
    }

    fn subscribe(
        &mut self,
        host: u8,
        message: &Subscribe,
    ) -> Result<SubscribeResponse, EventingFault> {
        self.subscribe_from([192, 0, 2, host].into(), message)
    }

    fn subscribe_from(
        &mut self,
        from: IpAddr,
        message: &Subscribe,
    ) -> Result<SubscribeResponse, EventingFault> {
        let version = Dialect::V2009.addressing();
        let to = EndpointReference::new("http://192.0.2.99:80/thermometer");
        let envelope = request(version, &to, action::SUBSCRIBE, "urn:uuid:1")
            .with_body(message.to_element(version));
        let answer = self.send_request_from(from, "/thermometer", envelope);
        assert_eq!(answer.addressing.relates_to.as_deref(), Some("urn:uuid:1"));
        match answer.fault() {
            Some(fault) => Err(EventingFault::from_fault(&fault).unwrap()),
            None => {
                assert_eq!(answer.addressing.action, action::SUBSCRIBE_RESPONSE);
                Ok(SubscribeResponse::from_element(version, answer.body().unwrap()).unwrap())
            }
        }
    }

    /// Renew, GetStatus or Unsubscribe at the granted manager.
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
        let answer = self.send_request(1, &path, envelope);
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
        self.input(Input::Command(SourceCommand::Notify {
            action,
            body: body.into(),
        }));
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

fn subscribe_message(actions: &[&'static str], lease_s: u64) -> Subscribe {
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
fn subscription_lives_until_unsubscribe() {
    for manager_style in [ManagerStyle::Path, ManagerStyle::ReferenceParameter] {
        let mut world = World::new(SourceConfig {
            manager_style,
            ..config()
        });
        let granted = world
            .subscribe(1, &subscribe_message(&[REPORT], 60))
            .unwrap();
        assert_eq!(granted.expires, seconds(60));
        world.notify(ALARM, 1);
        assert!(world.notifications().is_empty(), "not subscribed to");
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
        let remaining = world.manage(manager, action::GET_STATUS, Lease::GetStatus, None);
        assert_eq!(remaining, Ok(Some(seconds(10))));
        let renewed = world.manage(manager, action::RENEW, Lease::Renew, Some(seconds(30)));
        assert_eq!(renewed, Ok(Some(seconds(30))));
        world.advance(Duration::from_secs(29));
        assert_eq!(world.source.machine().subscriptions(), 1);
        let result = world.manage(manager, action::UNSUBSCRIBE, Lease::Unsubscribe, None);
        assert_eq!(result, Ok(None));
        assert_eq!(world.source.machine().subscriptions(), 0);
        let repeated = world.manage(manager, action::UNSUBSCRIBE, Lease::Unsubscribe, None);
        assert!(matches!(repeated, Err(EventingFault::InvalidMessage(_))));
        let renewed = world.manage(manager, action::RENEW, Lease::Renew, None);
        assert!(matches!(renewed, Err(EventingFault::UnableToRenew(_))));
        assert_eq!(world.source.deadline(), None, "no timer is left");
    }
}

#[test]
fn filters_of_the_application_select_notifications() {
    // The notifications below a number, which is a QName's local part: its prefix must be declared.
    let below = FilterDialect::new("urn:x/below", |filter| {
        let text = filter.text();
        let name = filter
            .resolve(&[], text.trim())
            .ok_or("the prefix is not declared")?;
        let limit: u32 = name.local[1..].parse().map_err(|_| "no number")?;
        let passes: NotificationFilter =
            Arc::new(move |_, body| body.text().parse().is_ok_and(|number: u32| number < limit));
        Ok(passes)
    });
    let mut world = World::new(SourceConfig {
        filters: vec![below],
        ..config()
    });
    let filtered = |word: &'static str| Subscribe {
        filter: Some(Filter {
            dialect: Some("urn:x/below".into()),
            actions: vec![word.into()],
        }),
        ..subscribe_message(&[], 60)
    };
    let refused = world.subscribe(1, &filtered("nowhere:n3"));
    assert!(matches!(refused, Err(EventingFault::InvalidMessage(_))));
    assert_eq!(world.refused(SourceRefusal::Malformed), 1);
    world.subscribe(1, &filtered("wse:n3")).unwrap();
    for number in [5, 2, 3] {
        world.notify(REPORT, number);
        let expected: &[&str] = if number == 2 { &["2"] } else { &[] };
        assert_eq!(world.numbers(), expected);
        for sent in world.notifications() {
            world.delivered(sent.delivery);
        }
    }
    let unknown = Subscribe {
        filter: Some(Filter {
            dialect: Some("urn:x/other".into()),
            actions: Vec::new(),
        }),
        ..subscribe_message(&[], 60)
    };
    let refused = world.subscribe(1, &unknown);
    assert_eq!(refused, Err(EventingFault::FilteringRequestedUnavailable));
}

#[test]
fn a_subscription_goes_on_in_another_run() {
    let mut world = World::new(config());
    let granted = world
        .subscribe(1, &subscribe_message(&[REPORT], 60))
        .unwrap();
    let (_, path) = granted.manager.address.rsplit_once('/').unwrap();
    let id = SubscriptionId::from_path(path).unwrap();
    assert_eq!(id.path(), path);
    world.notify(REPORT, 1);
    assert_eq!(world.source.machine().undelivered(), 1);
    world.advance(Duration::from_secs(20));
    let left = world.source.machine().lease_left(id, world.source.now());
    assert_eq!(left, Some(Duration::from_secs(40)));

    let version = Dialect::V2009.addressing();
    let to = EndpointReference::new("http://192.0.2.99:80/thermometer");
    let restore = |message: &Subscribe, id: SubscriptionId| {
        let request = Request {
            token: Token(0),
            peer: ([192, 0, 2, 1], 4711).into(),
            base: "http://192.0.2.99:80".into(),
            path: "/thermometer".into(),
            envelope: request(version, &to, action::SUBSCRIBE, "urn:uuid:1")
                .with_body(message.to_element(version)),
        };
        Input::Command(SourceCommand::Restore {
            subscription: id,
            request: Box::new(request),
            lease: Duration::from_secs(40),
        })
    };
    let mut world = World::new(config());
    world.input(restore(&subscribe_message(&[REPORT], 60), id));
    assert!(matches!(
        &world.outputs[..],
        [Output::Event(SourceEvent::Subscribed { subscription, .. })] if *subscription == id
    ));
    world.notify(REPORT, 2);
    assert_eq!(world.numbers(), ["2"]);
    let sent = world.notifications().remove(0);
    world.delivered(sent.delivery);
    assert_eq!(world.source.machine().undelivered(), 0);
    let manager = &granted.manager;
    let remaining = world.manage(manager, action::GET_STATUS, Lease::GetStatus, None);
    assert_eq!(remaining, Ok(Some(seconds(40))));
    // The policy of addresses may be another one now.
    let forbidden = Subscribe {
        notify_to: Some(EndpointReference::new("http://forbidden/")),
        ..subscribe_message(&[REPORT], 60)
    };
    let other = SubscriptionId::from_path(&"0".repeat(32)).unwrap();
    world.input(restore(&forbidden, other));
    assert_eq!(world.source.machine().subscriptions(), 1);
    assert_eq!(world.refused(SourceRefusal::Address), 1);
    world.advance(Duration::from_secs(40));
    assert_eq!(world.source.machine().subscriptions(), 0);
}

#[test]
fn lease_expires_and_is_limited() {
    let mut world = World::new(config());
    let granted = world
        .subscribe(1, &subscribe_message(&[REPORT], 1_000_000))
        .unwrap();
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
fn expiration_by_date_needs_a_clock() {
    let prefix = 1_772_236_800_000_000_000;
    let subscribe_until = |date| Subscribe {
        expires: Some(Expiration::At(date)),
        ..subscribe_message(&[REPORT], 1)
    };
    let mut world = World::new(config());
    let refused = world.subscribe(1, &subscribe_until(prefix + 5_000_000_000));
    assert_eq!(refused, Err(EventingFault::UnsupportedExpirationType));
    let utc_at_origin_ns = Some(prefix);
    let mut world = World::new(SourceConfig {
        utc_at_origin_ns,
        ..config()
    });
    world.advance(Duration::from_secs(1));
    let granted = world
        .subscribe(1, &subscribe_until(prefix + 5_000_000_000))
        .unwrap();
    assert_eq!(granted.expires, Expiration::At(prefix + 5_000_000_000));
    assert_eq!(
        world.subscribe(1, &subscribe_until(prefix)),
        Err(EventingFault::InvalidExpirationTime)
    );
    world.advance(Duration::from_secs(4));
    assert_eq!(world.source.machine().subscriptions(), 0);
}

#[test]
fn unsupported_requests_are_rejected_with_their_reason() {
    let mut world = World::new(config());
    let good = subscribe_message(&[REPORT], 60);
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
        world.subscribe(1, &subscribe_message(&["urn:x/Other"], 60)),
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
    ] {
        let refused = world.subscribe(1, &message);
        assert!(matches!(
            refused,
            Err(EventingFault::DestinationUnreachable(_))
        ));
    }
    let incomplete = Subscribe {
        notify_to: None,
        ..good.clone()
    };
    let refused = world.subscribe(1, &incomplete);
    assert!(matches!(refused, Err(EventingFault::InvalidMessage(_))));
    for reason in [
        SourceRefusal::DeliveryMode,
        SourceRefusal::FilterDialect,
        SourceRefusal::FilterAction,
        SourceRefusal::Malformed,
    ] {
        assert_eq!(world.refused(reason), 1, "{reason:?}");
    }
    assert_eq!(world.refused(SourceRefusal::Address), 2);
    // One offered action suffices, and no filter means all actions.
    world
        .subscribe(1, &subscribe_message(&["urn:x/Other", ALARM], 60))
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
fn reference_parameters_cannot_be_headers_of_the_source() {
    let wsse = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd";
    let with = |name: Name| EndpointReference {
        reference_parameters: vec![Element::new(name).with_text("x")],
        ..EndpointReference::new("http://192.0.2.1:9/events/1")
    };
    let mut world = World::new(config());
    let reserved = [
        Dialect::V2009.addressing().name("Action"),
        Dialect::V2005.addressing().name("To"),
        Name::new(wsse, "Security"),
    ];
    for name in reserved {
        let valid = subscribe_message(&[REPORT], 60);
        let notify_to = Subscribe {
            notify_to: Some(with(name.clone())),
            ..valid.clone()
        };
        let end_to = Subscribe {
            end_to: Some(with(name)),
            ..valid
        };
        for message in [notify_to, end_to] {
            let refused = world.subscribe(1, &message);
            let is_refused = matches!(&refused, Err(EventingFault::InvalidAddressingHeader(_)));
            assert!(is_refused, "{refused:?}");
        }
    }
    assert_eq!(world.source.machine().subscriptions(), 0);
    assert_eq!(world.refused(SourceRefusal::Address), 6);
    let own = Subscribe {
        notify_to: Some(with(Name::new("urn:x", "Action"))),
        ..subscribe_message(&[REPORT], 60)
    };
    assert!(world.subscribe(1, &own).is_ok());
}

#[test]
fn subscriptions_are_limited_overall_and_per_peer() {
    let mut world = World::new(config());
    let good = subscribe_message(&[REPORT], 60);
    world.subscribe(1, &good).unwrap();
    world.subscribe(1, &good).unwrap();
    assert!(world.subscribe(1, &good).is_err());
    world.subscribe(2, &good).unwrap();
    // Two of one host and one of the other: a second one would only turn that round.
    assert!(world.subscribe(2, &good).is_err());
    assert_eq!(world.refused(SourceRefusal::PeerFull), 1);
    assert_eq!(world.refused(SourceRefusal::Full), 1);
}

#[test]
fn host_with_fewer_subscriptions_takes_the_oldest_of_the_host_with_most() {
    let mut world = World::new(config());
    let good = subscribe_message(&[REPORT], 60);
    let oldest = world.subscribe(1, &good).unwrap();
    let second = world.subscribe(1, &good).unwrap();
    let other = world.subscribe(2, &good).unwrap();
    // A request that is refused for another reason displaces nothing.
    let forbidden = Subscribe {
        notify_to: Some(EndpointReference::new("http://forbidden/")),
        ..good.clone()
    };
    assert!(world.subscribe(3, &forbidden).is_err());
    assert_eq!(world.source.machine().subscriptions(), 3);
    let newcomer = world.subscribe(3, &good).unwrap();
    let end = world.notifications().remove(0);
    assert_eq!(end.to(), "http://192.0.2.1:9/end/1");
    let message = end.to_envelope();
    let version = Dialect::V2009.addressing();
    let message = SubscriptionEnd::from_element(version, message.body().unwrap()).unwrap();
    assert_eq!(message.status, EndStatus::SourceCancelling);
    assert_eq!(message.manager.as_ref(), Some(&oldest.manager));
    for (granted, lives) in [
        (oldest, false),
        (second, true),
        (other, true),
        (newcomer, true),
    ] {
        let manager = &granted.manager;
        let status = world.manage(manager, action::GET_STATUS, Lease::GetStatus, None);
        assert_eq!(status.is_ok(), lives, "{manager:?}");
    }
    // All have one, so that a fourth host gets none.
    assert!(world.subscribe(4, &good).is_err());
    assert_eq!(world.refused(SourceRefusal::Full), 1);
}

#[test]
fn addresses_of_one_ipv6_network_are_one_peer() {
    let mut world = World::new(config());
    let good = subscribe_message(&[REPORT], 60);
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    for last in ["2001:db8::1", "2001:db8::2"] {
        world.subscribe_from(address(last), &good).unwrap();
    }
    let third = address("2001:db8::ffff:0:0:3");
    assert!(world.subscribe_from(third, &good).is_err());
    assert_eq!(world.refused(SourceRefusal::PeerFull), 1);
    let elsewhere = address("2001:db8:0:1::1");
    world.subscribe_from(elsewhere, &good).unwrap();
    assert_eq!(world.source.machine().subscriptions(), 3);
}

#[test]
fn only_the_latest_of_a_key_waits() {
    let mut world = World::new(config());
    let both = subscribe_message(&[REPORT, ALARM], 60);
    world.subscribe(1, &both).unwrap();
    let mut sent = Vec::new();
    for number in 0..100 {
        let action = [REPORT, ALARM][number % 2];
        let key = ["one", "other"][number / 2 % 2];
        let text = format!("{key} {number}");
        let body = Element::new(Name::new("urn:x", "R")).with_text(text);
        world.input(Input::Command(SourceCommand::NotifyLatest {
            key: key.into(),
            action: action.into(),
            body: body.into(),
        }));
        sent.extend(world.notifications());
    }
    // The first is in flight, so it stays.
    assert_eq!(sent.len(), 1);
    let mut received = vec!["one 0".to_owned()];
    world.delivered(sent[0].delivery);
    while let [next] = &world.notifications()[..] {
        received.extend(world.numbers());
        world.delivered(next.delivery);
    }
    assert_eq!(received, ["one 0", "one 97", "other 99"]);
    assert_eq!(world.source.machine().dropped(DropReason::QueueFull), 0);
}

#[test]
fn million_subscriptions_are_granted_or_rejected() {
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
        .with_body(subscribe_message(&[REPORT], 60).to_element(version));
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
    assert_eq!(answers, 1_000_000, "every request gets an answer");
    assert_eq!(source.subscribers(REPORT) as u64, SERVED);
    assert_eq!(source.refused(SourceRefusal::Full), 1_000_000 - SERVED);
    assert!(largest <= 4, "{largest} outputs for one request");
}

#[test]
fn forged_and_malformed_requests_change_nothing() {
    let mut world = World::new(config());
    let granted = world
        .subscribe(1, &subscribe_message(&[REPORT], 60))
        .unwrap();
    let (prefix, id) = granted.manager.address.rsplit_once('/').unwrap();
    let mut forged: Vec<_> = [&id[..31], "", "..", "zz", &"0".repeat(32), &"é".repeat(16)]
        .iter()
        .map(|id| format!("{prefix}/{id}"))
        .collect();
    forged.push(format!("{prefix}/{id}/x"));
    for address in forged {
        let manager = EndpointReference::new(address);
        let result = world.manage(&manager, action::UNSUBSCRIBE, Lease::Unsubscribe, None);
        assert!(result.is_err());
    }
    let version = Dialect::V2009.addressing();
    let to = EndpointReference::new("http://h/");
    let empty = request(version, &to, action::SUBSCRIBE, "urn:uuid:9");
    assert!(
        world
            .send_request(1, "/thermometer", empty.clone())
            .fault()
            .is_some()
    );
    assert!(
        world
            .send_request(
                1,
                "/elsewhere",
                empty.with_body(subscribe_message(&[REPORT], 1).to_element(version))
            )
            .fault()
            .is_some()
    );
    let other = request(version, &to, "urn:other", "urn:uuid:9");
    let fault = world
        .send_request(1, "/thermometer", other)
        .fault()
        .unwrap();
    assert_eq!(fault.subcode.unwrap().local, "ActionNotSupported");
    assert_eq!(world.source.machine().subscriptions(), 1);
}

#[test]
fn identifiers_are_unpredictable() {
    let mut world = World::new(SourceConfig {
        subscriptions_per_peer_max: 3,
        ..config()
    });
    let ids: Vec<_> = (0..3)
        .map(|_| {
            let granted = world
                .subscribe(1, &subscribe_message(&[REPORT], 60))
                .unwrap();
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
fn slow_sink_loses_oldest_and_blocks_none() {
    let mut world = World::new(config());
    world
        .subscribe(1, &subscribe_message(&[REPORT], 60))
        .unwrap();
    world.notify(REPORT, 0);
    let slow = world.notifications()[0].delivery;
    world
        .subscribe(2, &subscribe_message(&[REPORT], 60))
        .unwrap();
    for number in 1..=6 {
        world.notify(REPORT, number);
        // The other sink gets each event immediately.
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
        "0 was in flight, 1 to 3 were dropped"
    );
}

#[test]
fn failed_notification_is_retried_unchanged() {
    let mut world = World::new(config());
    let mut message = subscribe_message(&[REPORT], 600);
    let parameter = Element::new(Name::new("urn:x", "Id")).with_text("7");
    let notify_to = message.notify_to.as_mut().unwrap();
    notify_to.reference_parameters.push(parameter);
    world.subscribe(1, &message).unwrap();
    world.notify(REPORT, 1);
    let first = world.notifications().remove(0);
    let sent = first.to_envelope();
    let parameter = sent.header(&Name::new("urn:x", "Id")).unwrap();
    assert_eq!(parameter.text(), "7");
    let mark = Dialect::V2009.addressing().name("IsReferenceParameter");
    assert_eq!(parameter.attribute(&mark), Some("true"));
    world.failed(first.delivery, Failure::Unreachable);
    assert!(world.notifications().is_empty(), "no retry without a pause");
    world.delivered(first.delivery);
    assert_eq!(
        world.source.machine().delivered(),
        0,
        "a late result has no effect"
    );
    world.advance(Duration::from_millis(500));
    let second = world.notifications().remove(0);
    assert_eq!(
        second.to_envelope().addressing.message_id,
        first.to_envelope().addressing.message_id
    );
    // A timeout is a failure too; one success resets the count.
    world.advance(Duration::from_secs(31));
    let third = world.notifications().remove(0);
    world.delivered(third.delivery);
    // A rejected notification is not retried.
    world.notify(REPORT, 2);
    let refused = world.notifications().remove(0);
    world.failed(refused.delivery, Failure::Refused);
    world.advance(Duration::from_secs(60));
    assert!(world.notifications().is_empty());
    assert_eq!(world.source.machine().dropped(DropReason::Refused), 1);
    assert_eq!(world.source.machine().subscriptions(), 1);
}

#[test]
fn dead_sink_gets_subscription_end() {
    let mut world = World::new(config());
    let granted = world
        .subscribe(1, &subscribe_message(&[REPORT], 600))
        .unwrap();
    world.notify(REPORT, 1);
    world.notify(REPORT, 2);
    // The second notification is queued, so the first is the only delivery.
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
    // SubscriptionEnd is sent once, whatever its result.
    world.failed(end.delivery, Failure::Unreachable);
    assert!(world.outputs.is_empty());
}

#[test]
fn shutdown_notifies_sinks_with_end_to() {
    let mut world = World::new(config());
    world
        .subscribe(1, &subscribe_message(&[REPORT], 600))
        .unwrap();
    let without_end_to = Subscribe {
        end_to: None,
        ..subscribe_message(&[REPORT], 600)
    };
    world.subscribe(2, &without_end_to).unwrap();
    world.input(Input::Command(SourceCommand::Shutdown));
    let ends = world.notifications();
    assert_eq!(ends.len(), 1);
    let text = ends[0].to_text();
    assert!(text.contains("2004/08/eventing/SourceShuttingDown"));
    let refused = world.subscribe(1, &without_end_to);
    assert!(matches!(
        refused,
        Err(EventingFault::EventSourceUnableToProcess(_))
    ));
}
