//! Goal: a sink that lies about time cannot make another sink hold a range open, or answer for it, for longer than
//! an honest source would; ranges that are sent in a circle end.
//! Method: real machines and datagrams on a virtual clock; a sink that gives ranges with dead heads and claims an
//! hour for them, or returns every range it receives.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::net::{Net, keyed};
use chappe_machine::Machine;
use chappe_notification_tree::{Body, Choice, Config, Keys, Message, Plan, Transmit};

const SECOND: Duration = Duration::from_secs(1);
const LIAR: usize = 0;
const VICTIM: usize = 1;
/// The kind of a spread message.
const SPREAD: u8 = 1;
/// Responses of a head before it stops.
const RESPONSES_MAX: usize = 128;

/// The liar gives the victim this range of the event in a datagram of the source's, with an hour for it.
fn give(net: &mut Net<Keys>, datagram: &[u8], (first, end): (u32, u32), timeout_us: u32) {
    let (mut message, _) = Message::decode(datagram).expect("well formed");
    let Body::Spread(spread) = &mut message.body else {
        panic!("no event: {message:?}");
    };
    (spread.first, spread.end) = (first, end);
    (spread.due_us, spread.timeout_us) = (u32::MAX, timeout_us);
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
}

/// A network in which the victim gets the next event from the liar alone, with each of these ranges (their
/// ends and timeouts). Returns how many answers the liar gets until `T` has passed, and after it.
fn answers(ranges: &[(u32, u32)]) -> (usize, usize) {
    let config = Config {
        plan: Choice::Fixed(Plan::Sequential),
        ..Config::default()
    };
    let within = config.within;
    let mut net = keyed(6, config, false);
    let source = net.source();
    net.publish(b"0");
    net.run(SECOND);
    let events = Rc::new(RefCell::new(None));
    let answers = Rc::new(Cell::new(0));
    let (keep, count) = (Rc::clone(&events), Rc::clone(&answers));
    net.tamper = Box::new(move |from, to, datagram| {
        if from == source {
            keep.borrow_mut().get_or_insert(datagram.clone());
        }
        count.set(count.get() + usize::from((from, to) == (VICTIM, LIAR)));
        // Two sinks are dead.
        from != source && ![2, 3].contains(&to)
    });
    net.publish(b"1");
    let datagram = events.borrow().clone().expect("the source sent");
    for (end, timeout_us) in ranges {
        give(&mut net, &datagram, (VICTIM as u32, *end), *timeout_us);
        net.run(SECOND / 10);
    }
    assert_eq!(net.delivered[VICTIM], [b"0", b"1"]);
    net.run(within);
    let in_time = answers.get();
    assert_eq!(net.nodes[VICTIM].deadline(), None, "nothing is open");
    net.run(3_600 * SECOND);
    (in_time, answers.get() - in_time)
}

#[test]
fn a_range_is_never_held_open_longer_than_t() {
    // A node without a measured round trip uses the advised timeout.
    let (in_time, later) = answers(&[(4, u32::MAX)]);
    // A response, and the coverage.
    assert_eq!((in_time, later), (2, 0));
}

#[test]
fn responses_to_one_message_are_bounded() {
    // The live heads of the second range give a fast round trip; then the first range is requested again.
    let (in_time, later) = answers(&[(4, u32::MAX), (6, u32::MAX), (4, 0)]);
    assert!(
        (RESPONSES_MAX..RESPONSES_MAX + 16).contains(&in_time),
        "{in_time} answers"
    );
    assert_eq!(later, 0);
}

#[test]
fn circular_ranges_end() {
    const SINKS: u8 = 6;
    let config = Config {
        plan: Choice::Fixed(Plan::TwoHalves),
        ..Config::default()
    };
    let within = config.within;
    let mut net = keyed(SINKS, config, false);
    net.publish(b"0");
    net.run(SECOND);
    let source = net.source();
    let given = Rc::new(RefCell::new(Vec::new()));
    let events = Rc::new(RefCell::new(None));
    let (keep, kept) = (Rc::clone(&given), Rc::clone(&events));
    net.tamper = Box::new(move |from, to, datagram| {
        if from == source {
            kept.borrow_mut().get_or_insert(datagram.clone());
        }
        let spread = datagram[2] & 0x7F == SPREAD;
        if (from, to) == (VICTIM, LIAR) && spread {
            keep.borrow_mut().push(datagram.clone());
        }
        // The source's own message comes late.
        from != source || !spread
    });
    net.publish(b"1");
    let datagram = events.borrow().clone().expect("the source sent");
    // Every range that the victim gives to the liar comes back with the victim in it, and so does each prefix of it.
    for first in 0..=VICTIM as u32 {
        for end in VICTIM as u32 + 1..=u32::from(SINKS) {
            give(&mut net, &datagram, (first, end), 0);
        }
    }
    let mut rounds = 0;
    loop {
        net.run(SECOND / 10);
        let back = given.take();
        if back.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds < 1_000, "the ranges circulate forever");
        for datagram in back {
            let (message, _) = Message::decode(&datagram).expect("well formed");
            let Body::Spread(spread) = message.body else {
                continue;
            };
            give(
                &mut net,
                &datagram,
                (
                    spread.first.min(VICTIM as u32),
                    spread.end.max(VICTIM as u32 + 1),
                ),
                0,
            );
        }
    }
    net.run(within);
    let counters = net.nodes[VICTIM].counters();
    // Four ranges of the liar, of at most all sinks, each sink tried four times.
    assert!(counters.spread <= 4 * 4 * u64::from(SINKS), "{counters:?}");
    assert!(
        counters.overloaded > 0 && counters.duplicates > 0,
        "{counters:?}"
    );
    assert_eq!(net.delivered[VICTIM], [b"0", b"1"]);
    assert_eq!(net.nodes[VICTIM].deadline(), None, "nothing is open");
}
