//! Permitted subscriptions are granted for their lease, and others rejected with the reason.

use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::{Lease, Subscribe, action};
use chappe_dpws::eventing::{
    EventingFault, Expiration, Filter, FilterDialect, ManagerStyle, NotificationFilter, Request,
    SourceCommand, SourceConfig, SourceEvent, SourceRefusal, SubscriptionId, Token,
};
use chappe_dpws::exchange::request;
use chappe_machine::{Input, Output};
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Element, Name};

use super::{ALARM, REPORT, World, config, seconds, subscribe_message};

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
