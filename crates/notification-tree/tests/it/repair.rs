//! Goal: what a sink misses it gets from its parent, a sibling or the source, and is told when nobody
//! has it any more; an event that is late is delivered and counted.
//! Method: real machines and datagrams on a virtual clock, with losses where they hurt.

#[allow(unreachable_pub, dead_code, reason = "each test uses a part of it")]
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::net::{TOPIC, keyed};
use chappe_notification_tree::{
    Body, Choice, Command, Config, Message, Plan, Pull, SOURCE, Transmit, TreeEvent,
};

const SECOND: Duration = Duration::from_secs(1);
/// The kind of a message that asks for what was missed.
const PULL: u8 = 4;

fn config() -> Config {
    Config {
        plan: Choice::Fixed(Plan::TwoHalves),
        // The source gives up soon: what comes later is the sink's own doing.
        within: SECOND / 10,
        source_attempts: 2,
        ..Config::default()
    }
}

#[test]
fn a_sink_that_was_away_gets_what_it_missed() {
    let mut net = keyed(8, config(), false);
    net.publish(b"0");
    net.run(SECOND);
    // Sink 5 hears nothing for three events.
    net.tamper = Box::new(|_, to, _| to != 5);
    for body in [b"1", b"2", b"3"] {
        net.publish(body);
        net.run(SECOND);
    }
    assert_eq!(net.delivered[5].len(), 1);
    assert!(
        net.outcomes
            .iter()
            .skip(1)
            .all(|outcome| outcome.failed == [5] || outcome.unknown == [5])
    );
    net.tamper = Box::new(|_, _, _| true);
    net.publish(b"4");
    net.run(10 * SECOND);
    let mut got = net.delivered[5].clone();
    got.sort();
    assert_eq!(got, [b"0", b"1", b"2", b"3", b"4"]);
    assert!(
        (0..8).all(|sink| net.delivered[sink].len() == 5),
        "nobody got anything twice"
    );
}

#[test]
fn siblings_and_source_help_when_the_parent_does_not() {
    let mut net = keyed(8, config(), false);
    net.publish(b"0");
    net.run(SECOND);
    net.tamper = Box::new(|_, to, _| to != 5);
    net.publish(b"1");
    net.run(SECOND);
    // Pulls of sink 5 reach the source alone.
    net.tamper = Box::new(|from, to, datagram| from != 5 || to == 8 || datagram[2] & 0x7F != PULL);
    net.publish(b"2");
    net.run(20 * SECOND);
    let mut got = net.delivered[5].clone();
    got.sort();
    assert_eq!(got, [b"0", b"1", b"2"]);
}

#[test]
fn what_nobody_keeps_is_named() {
    let mut net = keyed(
        4,
        Config {
            history: 2,
            ..config()
        },
        false,
    );
    net.publish(b"0");
    net.run(SECOND);
    net.tamper = Box::new(|_, to, _| to != 1);
    for _ in 0..5 {
        net.publish(b"gone");
        net.run(SECOND);
    }
    net.tamper = Box::new(|_, _, _| true);
    net.publish(b"6");
    net.run(30 * SECOND);
    let missed: Vec<_> = net.events.iter().filter(|(node, _)| *node == 1).collect();
    let named = missed.iter().find_map(|(_, event)| match event {
        TreeEvent::Missed {
            first, which, boot, ..
        } => Some((*first, *which, *boot)),
        _ => None,
    });
    // Of the five, two numbers may still be kept by somebody: history is two.
    let (first, which, boot) = named.expect("it is told");
    assert_eq!((first, boot), (2, 1));
    let lost = which.count_ones() as usize;
    assert_eq!(net.delivered[1].len() + lost, 7);
    assert!(lost >= 3);
}

#[test]
fn what_was_named_as_missed_is_taken_when_it_comes() {
    let mut net = keyed(8, config(), false);
    net.publish(b"0");
    net.run(SECOND);
    // What was meant for sink 5 is kept back, and nobody hears that it asks.
    let kept = Rc::new(RefCell::new(Vec::new()));
    let keep = Rc::clone(&kept);
    net.tamper = Box::new(move |from, to, datagram| {
        if to == 5 {
            keep.borrow_mut().push((from, datagram.clone()));
        }
        to != 5
    });
    net.publish(b"1");
    net.run(SECOND);
    net.tamper = Box::new(|_, _, datagram| datagram[2] & 0x7F != PULL);
    net.publish(b"2");
    net.run(30 * SECOND);
    let named = |(node, event): &(usize, TreeEvent)| {
        *node == 5
            && matches!(
                event,
                TreeEvent::Missed {
                    first: 2,
                    which: 1,
                    ..
                }
            )
    };
    assert!(net.events.iter().any(named));
    assert_eq!(net.delivered[5], [b"0", b"2"]);

    // It comes late, is delivered, once, and answered: the source may still be asking.
    let answers = Rc::new(Cell::new(0));
    let count = Rc::clone(&answers);
    net.tamper = Box::new(move |from, _, _| {
        count.set(count.get() + u32::from(from == 5));
        true
    });
    for (from, datagram) in kept.take() {
        net.inject(from, 5, datagram);
        net.run(SECOND);
    }
    assert_eq!(net.delivered[5], [b"0", b"2", b"1"]);
    assert!(answers.get() > 0);
}

#[test]
fn who_asks_without_end_takes_no_repairs_from_others() {
    let mut net = keyed(8, config(), false);
    let source = net.source();
    net.publish(b"0");
    net.run(SECOND);
    // Sink 5 is away for twenty events.
    net.tamper = Box::new(|_, to, _| to != 5);
    for number in 1..=20 {
        net.publish(&[number]);
        net.run(SECOND);
    }
    // Sink 2 has them all, and asks the source for them, again and again.
    let pull = Pull {
        topic: TOPIC,
        version: 1,
        boot: 1,
        first: 1,
        wanted: u64::MAX,
    };
    let transmit = Transmit {
        address: net.contacts[source].address,
        key: net.contacts[source].key,
        to: SOURCE,
        message: Message {
            from: 2,
            body: Body::Pull(pull),
        },
    };
    let mut datagram = Vec::new();
    net.nodes[2].seal(&transmit, &mut datagram);
    let given = Rc::new(Cell::new(0));
    let count = Rc::clone(&given);
    net.tamper = Box::new(move |from, to, _| {
        count.set(count.get() + u32::from(from == source && to == 2));
        true
    });
    for _ in 0..100 {
        net.inject(2, source, datagram.clone());
    }
    net.run(SECOND / 100);
    // An eighth of 1,000 at once, and what comes in a hundredth of a second.
    assert!((125..=127).contains(&given.get()), "{}", given.get());
    assert!(net.nodes[source].counters().repairs_refused >= 90);
    // Whoever missed them in earnest has them meanwhile, from the source alone.
    net.tamper =
        Box::new(move |from, to, datagram| from != 5 || to == source || datagram[2] & 0x7F != PULL);
    net.publish(b"last");
    for _ in 0..200 {
        net.inject(2, source, datagram.clone());
        net.run(SECOND / 100);
    }
    let mut got = net.delivered[5].clone();
    got.sort();
    got.dedup();
    assert_eq!((got.len(), net.delivered[5].len()), (22, 22));
}

#[test]
fn a_late_event_is_delivered_and_counted() {
    let mut net = keyed(6, config(), false);
    let source = net.source();
    for (deadline, late) in [(Duration::from_secs(5), 0), (Duration::from_micros(1), 6)] {
        let publish = Command::Publish {
            topic: TOPIC,
            body: b"x".to_vec(),
            deadline: Some(deadline),
        };
        net.command(source, publish);
        net.run(SECOND);
        let counted: u64 = net.nodes.iter().map(|node| node.counters().late).sum();
        assert_eq!(counted, late);
    }
    assert!((0..6).all(|sink| net.delivered[sink].len() == 2));
}
