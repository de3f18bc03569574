//! Goal: a source calls no sink failed that lives, though it is silent for a while, or others make round
//! trips look long; and a sink that is dead does not hold up the events to come.
//! Method: real machines and datagrams on a virtual clock.

#[allow(unreachable_pub, dead_code, reason = "each test uses a part of it")]
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::net::keyed;
use chappe_machine::{Input, Instant, Machine, Output};
use chappe_notification_tree::{
    Body, Choice, Command, Config, Contact, Membership, Message, Plan, Tree, TreeEvent,
    TrustedNetwork,
};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The source sends to each sink itself: `k` 6, `T` 5 s.
fn config() -> Config {
    Config {
        plan: Choice::Fixed(Plan::Sequential),
        ..Config::default()
    }
}

#[test]
fn a_sink_that_stalls_for_a_hundred_round_trips_has_not_failed() {
    let mut net = keyed(3, config(), false);
    // As a busy process whose receive buffer is full.
    net.tamper = Box::new(|_, to, _| to != 1);
    net.publish(b"0");
    net.run(100 * MILLISECOND);
    net.tamper = Box::new(|_, _, _| true);
    net.run(5 * SECOND);
    assert_eq!(net.delivered[1], [b"0"]);
    assert!((0..3).all(|sink| net.outcomes[0].delivered(sink)));
}

#[test]
fn all_messages_are_sent_whatever_round_trips_late_answers_feign() {
    let mut net = keyed(10, config(), false);
    let source = net.source();
    // Eight sinks answer just before they would be called failed.
    let kept = Rc::new(RefCell::new(Vec::new()));
    let keep = Rc::clone(&kept);
    net.tamper = Box::new(move |from, to, datagram| {
        if from < 8 && to == source {
            keep.borrow_mut().push((from, datagram.clone()));
        }
        from >= 8
    });
    net.publish(b"0");
    net.run(500 * MILLISECOND);
    net.tamper = Box::new(|_, _, _| true);
    for (from, datagram) in kept.take() {
        net.inject(from, source, datagram);
    }
    net.run(5 * SECOND);
    let round_trip = net.nodes[source].round_trip().expect("it was measured");
    assert!(round_trip > 100 * MILLISECOND, "{round_trip:?}");

    // Of the next event a sink that is honest does not get the first messages; no answer of others tells
    // the source how quick the network is.
    let lost = Cell::new(0);
    net.tamper = Box::new(move |from, to, _| {
        let first = from == source && to == 9 && lost.get() < 6;
        lost.set(lost.get() + u32::from(first));
        !first && (to != source || from == 9)
    });
    net.publish(b"1");
    net.run(6 * SECOND);
    assert_eq!(net.delivered[9], [b"0", b"1"]);
    assert!(net.outcomes[1].delivered(9), "{:?}", net.outcomes[1]);
}

#[test]
fn a_dead_sink_does_not_hold_up_the_events_to_come() {
    for (history, events, pause) in [(32, 400, 10), (8, 100, 40), (4, 50, 120)] {
        let config = Config {
            history,
            ..config()
        };
        let mut net = keyed(3, config, false);
        net.tamper = Box::new(|_, to, _| to != 1);
        for _ in 0..events {
            net.publish(b"x");
            net.run(pause * MILLISECOND);
        }
        let refused =
            |(_, event): &(usize, TreeEvent)| matches!(event, TreeEvent::NotPublished { .. });
        assert_eq!(
            net.events.iter().filter(|it| refused(it)).count(),
            0,
            "{history}"
        );
        net.run(6 * SECOND);
        assert_eq!(net.outcomes.len(), events);
        assert!(
            net.outcomes
                .iter()
                .all(|it| it.failed == [1] && it.unknown.is_empty())
        );
    }
}

#[test]
fn what_goes_again_to_the_dead_takes_turns_with_the_next_event() {
    const SINKS: usize = 250;
    let contact = |number: usize| Contact {
        address: ([10, 0, 0, 1], 1_000 + number as u16).into(),
        key: [0; 32],
    };
    let list = Membership::new(1, 1, (0..SINKS).map(contact).collect());
    let membership = Arc::new(list.expect("apart"));
    let mut tree = Tree::new(Arc::new(config()), contact(SINKS), TrustedNetwork, 1);
    // Of which events messages go, in their order.
    let mut at = |now: Instant, input: Input<Message, Command>| {
        tree.handle_input(now, input);
        let mut sent = Vec::new();
        while let Some(output) = tree.poll_output() {
            if let Output::Transmit(transmit) = output
                && let Body::Spread(spread) = transmit.message.body
            {
                sent.push(spread.event.id().sequence);
            }
        }
        sent
    };
    let publish = || {
        Input::Command(Command::Publish {
            topic: 1,
            body: vec![1],
            deadline: None,
        })
    };
    let boot = 1;
    let now = Instant::ZERO;
    let publisher = Command::Publisher { membership, boot };
    at(now, Input::Command(publisher));
    let mut first = at(now, publish()).len();
    let mut now = now + MILLISECOND;
    first += at(now, Input::Timeout).len();
    assert_eq!(first, SINKS);
    // Nobody has answered, and all time-outs are over: more goes again than goes at once.
    now += SECOND / 10;
    let again = at(now, Input::Timeout);
    assert!(again.len() < SINKS && again.iter().all(|it| *it == 1));
    let sent = at(now, publish());
    let of = |event: u64| sent.iter().filter(|it| **it == event).count();
    assert!(of(2) >= sent.len() / 2, "{sent:?}");
    assert!(of(1) > 0, "what goes again is not held up for ever");
}
