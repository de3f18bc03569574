//! Goal: whoever takes over the part of a head that is only thought to be silent costs a few messages: the sinks
//! that both give a range send it on once, and tell both. A liar that gives a range first gains nothing by that.
//! Method: real machines and datagrams on a virtual clock; answers that are lost, ranges that a liar gives.

#[allow(unreachable_pub, dead_code, reason = "each test uses a part of it")]
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::net::keyed;
use chappe_notification_tree::{Body, Choice, Config, Message, Plan, Suspects, TakeOver, Transmit};

const SECOND: Duration = Duration::from_secs(1);
const SINKS: u8 = 14;

/// Two halves of 14 sinks: the source gives 0 the sinks 0 to 6, which gives 1 to 3 and 4 to 6 on.
fn two_halves() -> Config {
    Config {
        plan: Choice::Fixed(Plan::TwoHalves),
        ..Config::default()
    }
}

#[test]
fn who_is_given_a_range_by_two_sends_it_on_once_and_tells_both() {
    let mut net = keyed(SINKS, two_halves(), false);
    let source = net.source();
    let spreads = Rc::new(RefCell::new(BTreeMap::<(usize, usize), u32>::new()));
    let counted = Rc::clone(&spreads);
    net.tamper = Box::new(move |from, to, datagram| {
        let (message, _) = Message::decode(datagram).expect("well formed");
        match message.body {
            Body::Spread(_) => *counted.borrow_mut().entry((from, to)).or_default() += 1,
            // What 0 says of its part never comes.
            Body::Response(it) => return (from, to, it.end) != (0, source, 7),
            Body::Coverage(it) => return (from, to, it.response.end) != (0, source, 7),
            _ => {}
        }
        true
    });
    net.publish(b"0");
    net.run(SECOND);
    let outcome = net.outcomes.first().expect("1 and 4 told the source");
    assert!((0..u32::from(SINKS)).all(|sink| outcome.delivered(sink)));
    assert!(outcome.took < SECOND / 10, "{:?}", outcome.took);
    assert_eq!(net.nodes[source].counters().taken_over, 1);
    let spreads = spreads.borrow();
    for (giver, heads) in [(0, [1, 4]), (source, [1, 4]), (1, [2, 3]), (4, [5, 6])] {
        for head in heads {
            assert_eq!(spreads.get(&(giver, head)), Some(&1), "{giver} to {head}");
        }
    }
    for sink in 0..usize::from(SINKS) {
        assert_eq!(net.delivered[sink], [b"0"]);
    }
}

/// Ranges that the source gives when the sinks 0 and 1 are dead, in their order and each once.
fn given(take_over: TakeOver) -> Vec<(u32, u32)> {
    let config = Config {
        take_over,
        ..two_halves()
    };
    let mut net = keyed(SINKS, config, false);
    let source = net.source();
    let given = Rc::new(RefCell::new(Vec::new()));
    let keep = Rc::clone(&given);
    net.tamper = Box::new(move |from, to, datagram| {
        let (message, _) = Message::decode(datagram).expect("well formed");
        if let (true, Body::Spread(spread)) = (from == source, message.body) {
            let range = (spread.first, spread.end);
            let mut known = keep.borrow_mut();
            if !known.contains(&range) {
                known.push(range);
            }
        }
        to > 1
    });
    net.publish(b"0");
    net.run(6 * SECOND);
    let outcome = net.outcomes.first().expect("T is over");
    assert_eq!(
        (&outcome.failed[..], &outcome.unknown[..]),
        (&[0, 1][..], &[][..])
    );
    assert!((2..usize::from(SINKS)).all(|sink| net.delivered[sink] == [b"0"]));
    given.take()
}

#[test]
fn by_the_papers_rule_the_next_sink_takes_over_and_by_ours_the_giver_divides() {
    let halves = [(0, 7), (7, 14)];
    let papers = given(TakeOver::NextSink);
    assert_eq!(
        papers,
        [&halves[..], &[(1, 7), (0, 1), (2, 7), (1, 2)]].concat()
    );
    let ours = given(TakeOver::Divide);
    assert_eq!(ours[..5], [&halves[..], &[(1, 4), (4, 7), (0, 1)]].concat());
    assert_eq!(ours[5..], [(2, 3), (3, 4), (1, 2)]);
}

#[test]
fn a_liar_that_gives_a_range_first_does_not_decide_how_it_goes() {
    const LIAR: usize = 8;
    const VICTIM: usize = 1;
    for (plan, due_us, timeout_us) in [
        // Over at once; to be waited for, for an hour; as the source's own.
        (Plan::TwoHalves, 0, 2_000),
        (Plan::TwoHalves, u32::MAX, u32::MAX),
        (Plan::Sequential, u32::MAX, 2_000),
    ] {
        let mut net = keyed(SINKS, two_halves(), false);
        net.publish(b"0");
        net.run(SECOND);
        let source = net.source();
        let events = Rc::new(RefCell::new(None));
        let keep = Rc::clone(&events);
        net.tamper = Box::new(move |from, to, datagram| {
            // One that the victim needs is dead, and the honest head comes after the liar.
            if from == source {
                keep.borrow_mut().get_or_insert(datagram.clone());
            }
            to != 2 && (from != source || to == LIAR)
        });
        net.publish(b"1");
        let datagram = events.borrow().clone().expect("the source sent");
        let (mut message, _) = Message::decode(&datagram).expect("well formed");
        let Body::Spread(spread) = &mut message.body else {
            panic!("no event: {message:?}");
        };
        (spread.first, spread.end, spread.plan) = (1, 4, plan);
        (spread.due_us, spread.timeout_us) = (due_us, timeout_us);
        spread.suspects = Suspects::default();
        (1..4).for_each(|sink| spread.suspects.push(sink));
        message.from = LIAR as u32;
        let transmit = Transmit {
            address: net.contacts[VICTIM].address,
            key: net.contacts[VICTIM].key,
            to: VICTIM as u32,
            message,
        };
        let mut datagram = Vec::new();
        net.nodes[LIAR].seal(&transmit, &mut datagram);
        net.inject(LIAR, VICTIM, datagram);
        net.run(Duration::from_millis(2));
        assert_eq!(net.delivered[VICTIM], [b"0", b"1"], "from the liar");
        net.tamper = Box::new(|_, to, _| to != 2);
        net.run(5 * SECOND);
        let outcome = net.outcomes.get(1).expect("T is over");
        assert_eq!(outcome.failed, [2], "{plan:?} {due_us}");
        assert_eq!(outcome.unknown, [], "{plan:?} {due_us}");
        assert_eq!(net.delivered[3], [b"0", b"1"]);
    }
}
