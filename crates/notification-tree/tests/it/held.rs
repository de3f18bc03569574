//! Goal: a sink that lies about time makes no other keep a range open, or answer for it, for longer than
//! an honest source would have it; and ranges that are sent round in a circle end.
//! Method: real machines and datagrams on a virtual clock; a sink that gives ranges with dead heads in them and
//! claims that there is an hour for them, or gives whatever it is given back.

#[allow(unreachable_pub, dead_code, reason = "each test uses a part of it")]
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::net::{Net, keyed};
use chappe_machine::Machine;
use chappe_notification_tree::{Body, Choice, Config, Keys, Message, Plan, Transmit};

const SECOND: Duration = Duration::from_secs(1);
const LIAR: usize = 0;
const VICTIM: usize = 1;
/// The kind of a message that gives a range.
const SPREAD: u8 = 1;
/// Answers of a head that it is on its range, until it is asked again.
const SAID_MAX: usize = 128;

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

/// A network in which the victim has the next event from the liar alone, with each of these ranges (their
/// ends and the time-outs that they tell), and how many answers the liar gets until `T` is over and after it.
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
fn a_range_is_held_open_no_longer_than_t_whatever_a_hop_says() {
    // Whoever has measured no round trip goes by the time-out that it is told.
    let (in_time, later) = answers(&[(4, u32::MAX)]);
    // That it is on it, and what it found out.
    assert_eq!((in_time, later), (2, 0));
}

#[test]
fn that_a_range_is_still_open_is_said_a_bounded_number_of_times() {
    // The live heads of the second range show how quick the network is; then the first is asked for again.
    let (in_time, later) = answers(&[(4, u32::MAX), (6, u32::MAX), (4, 0)]);
    assert!(
        (SAID_MAX..SAID_MAX + 16).contains(&in_time),
        "{in_time} answers"
    );
    assert_eq!(later, 0);
}

#[test]
fn ranges_that_are_sent_round_in_a_circle_end() {
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
        // The source's own word comes late.
        from != source || !spread
    });
    net.publish(b"1");
    let datagram = events.borrow().clone().expect("the source sent");
    // Whatever range the victim gives the liar comes back with the victim in it, and so does each that it begins with.
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
        assert!(rounds < 1_000, "it goes round for ever");
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
    // Four ranges of the liar's, of at most all sinks, each sink tried four times.
    assert!(counters.spread <= 4 * 4 * u64::from(SINKS), "{counters:?}");
    assert!(
        counters.overloaded > 0 && counters.duplicates > 0,
        "{counters:?}"
    );
    assert_eq!(net.delivered[VICTIM], [b"0", b"1"]);
    assert_eq!(net.nodes[VICTIM].deadline(), None, "nothing is open");
}
