//! Slow and dead sinks affect neither the source nor each other.

use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::{Subscribe, SubscriptionEnd, action};
use chappe_dpws::eventing::{
    DropReason, EndStatus, EventingFault, Failure, SourceCommand, SourceConfig, SourceRefusal,
};
use chappe_machine::Input;
use chappe_soap::EndpointReference;
use chappe_xml::{Element, Name};

use super::{ALARM, REPORT, World, config, subscribe_message};

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
fn thousand_subscriptions_of_one_peer_delay_no_other() {
    const LIMIT: usize = 64;
    let offers = config().offers;
    let mut world = World::new(SourceConfig {
        offers,
        ..SourceConfig::default()
    });
    let silent = subscribe_message(&[REPORT], 3_600);
    let granted = (0..1_000).filter(|_| world.subscribe(1, &silent).is_ok());
    assert_eq!(granted.count(), LIMIT);
    assert_eq!(world.refused(SourceRefusal::PeerFull), 1_000 - LIMIT as u64);
    let other = "http://192.0.2.2:9/events/1";
    let message = Subscribe {
        notify_to: Some(EndpointReference::new(other)),
        ..silent
    };
    world.subscribe(2, &message).unwrap();
    for number in 0..200 {
        world.notify(REPORT, number);
        let sent = world.notifications();
        assert!(sent.len() <= LIMIT + 1, "{} at once", sent.len());
        let to_other: Vec<_> = sent.iter().filter(|sent| sent.to() == other).collect();
        assert_eq!(to_other.len(), 1, "immediately");
        world.delivered(to_other[0].delivery);
    }
    let machine = world.source.machine();
    assert_eq!(machine.delivered(), 200);
    // Each queue has its limit, beside the notification in flight.
    let queued = SourceConfig::default().queue_max + 1;
    assert!(machine.undelivered() <= LIMIT * queued);
    let dropped = machine.dropped(DropReason::QueueFull) as usize;
    assert!(dropped >= LIMIT * (200 - queued), "{dropped}");
    // Silence ends them, while the other stays.
    world.advance(Duration::from_secs(120));
    assert_eq!(world.source.machine().subscriptions(), 1);
    assert_eq!(world.source.machine().undelivered(), 0);
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
fn a_lack_of_this_host_ends_no_subscription() {
    let mut world = World::new(config());
    world
        .subscribe(1, &subscribe_message(&[REPORT], 600))
        .unwrap();
    world.notify(REPORT, 1);
    let first = world.notifications().remove(0);
    world.failed(first.delivery, Failure::Local);
    for _ in 0..10 {
        world.advance(Duration::from_secs(1));
        let again = world.notifications().remove(0);
        assert_eq!(again.to_text(), first.to_text());
        world.failed(again.delivery, Failure::Local);
    }
    world.advance(Duration::from_secs(1));
    let last = world.notifications().remove(0);
    world.delivered(last.delivery);
    let machine = world.source.machine();
    assert_eq!((machine.subscriptions(), machine.delivered()), (1, 1));
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
