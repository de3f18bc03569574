//! Goal: with keys, only the source can make events, no sink can answer for another, and no node can be made to
//! send to strangers or to deliver twice.
//! Method: real machines, keys and datagrams; an attacker on the path that changes, repeats and forges them.

use std::sync::Arc;
use std::time::Duration;

use crate::net::{TOPIC, keyed, keys};
use chappe_machine::{Input, Instant, Machine};
use chappe_notification_tree::{
    Body, Command, Config, Contact, Event, EventId, Keys, Malformed, Membership, Message, Plan,
    Response, SOURCE, Spread, Suspects, Transmit, TreeEvent, TrustedNetwork, Window,
};

const SECOND: Duration = Duration::from_secs(1);

fn two_halves() -> Config {
    Config {
        plan: chappe_notification_tree::Choice::Fixed(Plan::TwoHalves),
        ..Config::default()
    }
}

#[test]
fn events_reach_all_with_and_without_the_list_inside() {
    for inline in [true, false] {
        let mut net = keyed(20, two_halves(), inline);
        for body in [b"one", b"two"] {
            net.publish(body);
            net.run(SECOND);
        }
        for sink in 0..20 {
            assert_eq!(net.delivered[sink], [b"one", b"two"], "sink {sink}");
        }
        assert_eq!(net.outcomes.len(), 2);
        assert!(
            net.outcomes
                .iter()
                .all(|it| (0..20).all(|sink| it.delivered(sink)))
        );
        assert!(net.nodes.iter().all(|node| node.counters().repeated == 0));
    }
}

#[test]
fn a_flipped_bit_anywhere_is_refused_and_repaired() {
    let mut net = keyed(12, two_halves(), true);
    let mut random = fastrand::Rng::with_seed(9);
    net.tamper = Box::new(move |_, _, datagram| {
        if random.u32(..4) == 0 {
            let at = random.usize(..datagram.len());
            datagram[at] ^= 1 << random.u32(..8);
        }
        true
    });
    for number in 0..20u8 {
        net.publish(&[number; 40]);
        net.run(5 * SECOND);
    }
    for sink in 0..12 {
        let mut got = net.delivered[sink].clone();
        got.sort();
        let wanted: Vec<Vec<u8>> = (0..20u8).map(|number| vec![number; 40]).collect();
        assert_eq!(got, wanted, "sink {sink}");
    }
    let refused: u64 = net
        .nodes
        .iter()
        .map(|it| it.counters().unauthenticated)
        .sum();
    assert!(refused > 50, "{refused}");
    assert_eq!(net.outcomes.len(), 20);
}

#[test]
fn a_replayed_datagram_delivers_nothing_and_sends_nothing_on() {
    let mut net = keyed(6, two_halves(), false);
    let taken = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let copy = std::rc::Rc::clone(&taken);
    net.tamper = Box::new(move |from, to, datagram| {
        copy.borrow_mut().push((from, to, datagram.clone()));
        true
    });
    net.publish(b"once");
    net.run(SECOND);
    let all = taken.borrow().clone();
    let before: u64 = net.nodes.iter().map(|it| it.counters().spread).sum();
    for _ in 0..10 {
        for (from, to, datagram) in &all {
            net.inject(*from, *to, datagram.clone());
        }
        net.run(SECOND / 100);
    }
    let after: u64 = net.nodes.iter().map(|it| it.counters().spread).sum();
    assert_eq!(before, after, "no event is spread again");
    assert!((0..6).all(|sink| net.delivered[sink].len() == 1));
}

#[test]
fn a_restarted_sink_with_its_window_delivers_nothing_twice() {
    let mut net = keyed(3, two_halves(), false);
    let taken = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let copy = std::rc::Rc::clone(&taken);
    net.tamper = Box::new(move |from, to, datagram| {
        copy.borrow_mut().push((from, to, datagram.clone()));
        true
    });
    net.publish(b"before");
    net.run(SECOND);
    // The window that the caller stored before it used the event.
    let stored = net
        .events
        .iter()
        .rev()
        .find_map(|(node, event)| match event {
            TreeEvent::Remember { window, .. } if *node == 0 => Some(*window),
            _ => None,
        });
    let stored = stored.expect("the window is given before the event");
    let fresh = keyed(3, two_halves(), false);
    let source = net.contacts[3];
    net.nodes[0] = fresh.nodes.into_iter().next().expect("a sink");
    net.command(0, Command::Leave { topic: TOPIC });
    net.command(
        0,
        Command::Subscribe {
            topic: TOPIC,
            source,
            window: stored,
        },
    );
    let list = Membership::new(TOPIC, 1, net.contacts[..3].to_vec()).expect("apart");
    let membership = Arc::new(list);
    net.command(
        0,
        Command::Membership {
            membership,
            number: None,
        },
    );
    for (from, to, datagram) in taken.borrow().clone() {
        net.inject(from, to, datagram);
    }
    net.run(SECOND);
    assert_eq!(net.delivered[0], [b"before"]);
    assert_eq!(net.nodes[0].counters().old, 1);
    net.publish(b"after");
    net.run(SECOND);
    assert_eq!(net.delivered[0], [&b"before"[..], b"after"]);
}

#[test]
fn an_event_whose_window_is_not_stored_is_not_delivered() {
    let mut net = keyed(6, two_halves(), false);
    let source = net.source();
    // The disk of sink 2 is full during all attempts of this event and a part of the next.
    net.keeps = Box::new(|node| node != 2);
    net.publish(b"0");
    net.run(5 * SECOND);
    assert!(net.delivered[2].is_empty());
    assert_eq!(net.outcomes[0].failed, [2], "{:?}", net.outcomes[0]);
    assert!(net.nodes[2].counters().not_stored >= 6);
    net.publish(b"1");
    net.run(SECOND / 10);
    assert!(net.outcomes.len() == 1 && net.delivered[2].is_empty());
    net.keeps = Box::new(|_| true);
    net.run(5 * SECOND);
    assert!(net.outcomes[1].delivered(2), "{:?}", net.outcomes[1]);
    assert_eq!(net.delivered[2], [b"1"]);
    assert!(
        (0..6)
            .filter(|sink| *sink != 2)
            .all(|sink| net.delivered[sink] == [b"0", b"1"])
    );
    assert_eq!(net.nodes[source].counters().lies, 0);
}

#[test]
fn only_the_source_makes_events() {
    let mut net = keyed(4, two_halves(), false);
    let source = net.source();
    net.publish(b"true");
    net.run(SECOND);
    // Sink 2 makes an event with the next number, signs it with its own key, and authenticates the hop
    // to sink 0, as it may.
    let list = Membership::new(TOPIC, 1, net.contacts[..4].to_vec()).expect("apart");
    let forged = |sequence, list: &Membership| {
        let id = EventId {
            topic: TOPIC,
            boot: 1,
            sequence,
        };
        let event = Event::new(&keys(3), id, list, false, None, b"false", 1_000);
        Arc::new(event.expect("fits"))
    };
    let taken = std::rc::Rc::new(std::cell::RefCell::new(None));
    let copy = std::rc::Rc::clone(&taken);
    net.tamper = Box::new(move |from, to, datagram| {
        if from == source {
            copy.borrow_mut().get_or_insert((to, datagram.clone()));
        }
        true
    });
    net.publish(b"also true");
    net.run(SECOND);
    let (_, datagram) = taken.borrow().clone().expect("the source sent");
    let (mut message, _) = Message::decode(&datagram).expect("well formed");
    if let Body::Spread(spread) = &mut message.body {
        spread.event = forged(3, &list);
        (spread.first, spread.end) = (0, 4);
    }
    message.from = 2;
    let mut transmit = Transmit {
        address: net.contacts[0].address,
        key: net.contacts[0].key,
        to: 0,
        message,
    };
    let mut datagram = Vec::new();
    net.nodes[2].seal(&transmit, &mut datagram);
    net.inject(2, 0, datagram.clone());
    net.run(SECOND);
    for sink in 0..4 {
        assert_eq!(
            net.delivered[sink],
            [&b"true"[..], b"also true"],
            "sink {sink}"
        );
    }
    let forgeries = net.events.iter().filter_map(|(node, event)| match event {
        TreeEvent::Forged { from, .. } => Some((*node, *from)),
        _ => None,
    });
    let forgeries: Vec<_> = forgeries.collect();
    assert!(
        forgeries.contains(&(0, 2)),
        "{forgeries:?}: sink 0 identifies the sender"
    );
    // The event forwarded before verification is not delivered either; the second one is not even forwarded.
    let spread = net.nodes[0].counters().spread;
    net.inject(2, 0, datagram.clone());
    net.run(SECOND);
    assert_eq!(
        net.nodes[0].counters().spread,
        spread,
        "a distrusted sender is verified first"
    );
    // It stays distrusted in a new list, in which it has another number.
    let reversed = reversed(&mut net, 4);
    if let Body::Spread(spread) = &mut transmit.message.body {
        spread.event = forged(4, &reversed);
    }
    transmit.message.from = 1;
    let caught = net.nodes[0].counters().forged;
    net.nodes[2].seal(&transmit, &mut datagram);
    net.inject(2, 0, datagram);
    net.run(SECOND);
    assert_eq!(net.nodes[0].counters().forged, caught + 1);
    assert_eq!(net.nodes[0].counters().spread, spread, "nor later");
    // A stranger without keys does not get that far.
    let stranger = Tree(net.contacts[1]).seal(&transmit);
    assert_eq!(
        net.nodes[0].open(net.now, &stranger),
        Err(Malformed::Protocol)
    );
}

#[test]
fn a_forger_cannot_keep_a_sink_busy_with_signatures() {
    let mut net = keyed(4, two_halves(), false);
    net.publish(b"true");
    net.run(SECOND);
    let list = |version| {
        let sinks = net.contacts[..4].to_vec();
        Membership::new(TOPIC, version, sinks).expect("apart")
    };
    let (known, unknown) = (list(1), list(9));
    // Sink 2 signs with its own key; a sender that claims to be in an unknown list has no key at all.
    let made = |net: &mut crate::net::Net<Keys>, by: &Keys, list: &Membership, sequence| {
        let id = EventId {
            topic: TOPIC,
            boot: 1,
            sequence,
        };
        let event = Event::new(by, id, list, false, None, b"made", 1_000);
        let spread = Spread {
            first: 0,
            end: 4,
            stamp_us: 0,
            due_us: 0,
            timeout_us: 0,
            age_us: 0,
            latency_us: 0,
            send_cost_ns: 0,
            plan: Plan::TwoHalves,
            repair: false,
            suspects: Suspects::default(),
            event: Arc::new(event.expect("fits")),
        };
        let transmit = Transmit {
            address: net.contacts[0].address,
            key: net.contacts[0].key,
            to: 0,
            message: Message {
                from: 2,
                body: Body::Spread(spread),
            },
        };
        let mut datagram = Vec::new();
        net.nodes[2].seal(&transmit, &mut datagram);
        datagram
    };
    let (liar, source) = (keys(3), keys(5));
    for sequence in 2..=301 {
        for list in [&known, &unknown] {
            let datagram = made(&mut net, &liar, list, sequence);
            net.inject(2, 0, datagram);
        }
    }
    let refused = made(&mut net, &source, &known, 302);
    net.inject(2, 0, refused.clone());
    net.run(SECOND / 100);
    let counters = net.nodes[0].counters();
    // One while it is not yet known; then an eighth of 1,000, plus the refill of a hundredth of a second.
    assert!(
        (250..=256).contains(&counters.forged),
        "{}",
        counters.forged
    );
    assert_eq!(counters.forged + counters.unverified, 601);
    assert_eq!(net.delivered[0], [b"true"]);
    // Others are served as before, and so is the same sender later: the signature counts.
    net.publish(b"also");
    net.run(SECOND);
    assert_eq!(net.delivered[0], [&b"true"[..], b"also"]);
    net.inject(2, 0, refused);
    net.run(SECOND / 100);
    assert_eq!(net.delivered[0], [&b"true"[..], b"also", b"made"]);
}

#[test]
fn forged_lists_cannot_keep_a_sink_busy_with_key_agreement() {
    let mut net = keyed(4, two_halves(), true);
    let stranger = Contact {
        address: ([127, 0, 0, 1], 6_000).into(),
        key: keys(99).public(),
    };
    let list = Membership::new(TOPIC, 9, vec![stranger, net.contacts[0]]).expect("apart");
    let mut his =
        chappe_notification_tree::Tree::new(Arc::new(Config::default()), stranger, keys(99), 1);
    for sequence in 1..=300 {
        let id = EventId {
            topic: TOPIC,
            boot: 1,
            sequence,
        };
        let event = Event::new(&keys(99), id, &list, true, None, b"made", 1_000).expect("fits");
        let spread = Spread {
            first: 0,
            end: 2,
            stamp_us: 0,
            due_us: 0,
            timeout_us: 0,
            age_us: 0,
            latency_us: 0,
            send_cost_ns: 0,
            plan: Plan::TwoHalves,
            repair: false,
            suspects: Suspects::default(),
            event: Arc::new(event),
        };
        let transmit = Transmit {
            address: net.contacts[0].address,
            key: net.contacts[0].key,
            to: 1,
            message: Message {
                from: 0,
                body: Body::Spread(spread),
            },
        };
        let mut datagram = Vec::new();
        his.seal(&transmit, &mut datagram);
        net.inject(2, 0, datagram);
    }
    net.run(SECOND / 100);
    let counters = net.nodes[0].counters();
    // An eighth of 1,000 is for all unknown senders: half of it for keys, half for signatures.
    assert!((60..=64).contains(&counters.forged), "{}", counters.forged);
    assert_eq!(counters.forged + counters.unverified, 300);
    net.publish(b"true");
    net.run(SECOND);
    assert_eq!(net.delivered[..4], [[b"true"]; 4]);
}

/// Passes all nodes a second list with the sinks in reverse order.
fn reversed(net: &mut crate::net::Net<Keys>, sinks: usize) -> Arc<Membership> {
    let contacts: Vec<_> = net.contacts[..sinks].iter().rev().copied().collect();
    let list = Arc::new(Membership::new(TOPIC, 2, contacts).expect("apart"));
    for node in 0..=sinks {
        let number = match node == sinks {
            true => Some(SOURCE),
            false => None,
        };
        let membership = Arc::clone(&list);
        net.command(node, Command::Membership { membership, number });
    }
    list
}

#[test]
fn nobody_answers_for_another_by_the_number_of_an_older_list() {
    let mut net = keyed(4, two_halves(), false);
    let source = net.source();
    reversed(&mut net, 4);
    // The first sink of the new list is dead; the first of the old one answers instead.
    let taken = std::rc::Rc::new(std::cell::RefCell::new(None));
    let copy = std::rc::Rc::clone(&taken);
    net.tamper = Box::new(move |_, to, datagram| {
        if to == 3 {
            copy.borrow_mut().get_or_insert(datagram.clone());
        }
        to != 3
    });
    net.publish(b"event");
    let asked = taken.borrow().clone().expect("the source sent");
    let (message, _) = Message::decode(&asked).expect("well formed");
    let Body::Spread(spread) = message.body else {
        panic!("no event");
    };
    let transmit = |version| Transmit {
        address: net.contacts[source].address,
        key: net.contacts[source].key,
        to: SOURCE,
        message: Message {
            from: 0,
            body: Body::Response(Response {
                id: spread.event.id(),
                version,
                first: spread.first,
                end: spread.end,
                stamp_us: spread.stamp_us,
                dwell_us: 0,
            }),
        },
    };
    let (old, new) = (transmit(1), transmit(2));
    let mut datagram = Vec::new();
    net.nodes[0].seal(&old, &mut datagram);
    net.inject(0, source, datagram.clone());
    net.run(SECOND / 1_000);
    assert_eq!(net.nodes[source].counters().unasked, 1);
    // The true sink's answer counts.
    net.nodes[3].seal(&new, &mut datagram);
    net.inject(3, source, datagram);
    net.run(SECOND / 1_000);
    assert_eq!(net.nodes[source].counters().unasked, 1);
    assert_eq!(net.nodes[source].counters().unauthenticated, 0);
}

/// A node without keys.
struct Tree(Contact);

impl Tree {
    fn seal(&self, transmit: &Transmit) -> Vec<u8> {
        let config = Arc::new(Config::default());
        let mut tree = chappe_notification_tree::Tree::new(config, self.0, TrustedNetwork, 1);
        let mut datagram = Vec::new();
        tree.seal(transmit, &mut datagram);
        datagram
    }
}

#[test]
fn only_the_source_can_sign_a_membership() {
    let guard = keys(1);
    let verify = guard.public();
    let other = keys(2).public();
    let contact = |port| Contact {
        address: ([10, 0, 0, 1], port).into(),
        key: [7; 32],
    };
    let membership = Membership::new(TOPIC, 3, (1..200).map(contact).collect()).expect("apart");
    let bytes = membership.encode(&guard);
    let mut reader = keys(3);
    assert_eq!(
        Membership::decode(&bytes, &verify, &mut reader),
        Ok(Some(membership))
    );
    assert_eq!(Membership::decode(&bytes, &other, &mut reader), Ok(None));
    for at in (0..bytes.len()).step_by(97) {
        let mut changed = bytes.clone();
        changed[at] ^= 4;
        assert!(!matches!(
            Membership::decode(&changed, &verify, &mut reader),
            Ok(Some(_))
        ));
        assert!(!matches!(
            Membership::decode(&bytes[..at], &verify, &mut reader),
            Ok(Some(_))
        ));
    }
}

#[test]
fn a_sink_without_the_list_delivers_and_reports_it() {
    let mut net = keyed(4, two_halves(), false);
    net.command(1, Command::Leave { topic: TOPIC });
    let source = net.contacts[4];
    let window = Window::default();
    net.command(
        1,
        Command::Subscribe {
            topic: TOPIC,
            source,
            window,
        },
    );
    net.publish(b"hello");
    net.run(10 * SECOND);
    assert!((0..4).all(|sink| net.delivered[sink] == [b"hello"]));
    let unknown = TreeEvent::MembershipUnknown {
        topic: TOPIC,
        version: 1,
    };
    assert!(net.events.contains(&(1, unknown)));
    // It could not report that it has it.
    assert_eq!(net.outcomes[0].failed, [1]);
}

#[test]
fn a_large_event_is_refused_with_what_fits() {
    let mut net = keyed(4, two_halves(), true);
    net.publish(&[0; 1_200]);
    let refused = net.events.iter().find_map(|(_, event)| match event {
        TreeEvent::Refused(error) | TreeEvent::NotPublished { error, .. } => Some(error.clone()),
        _ => None,
    });
    let error = refused.expect("it does not fit");
    assert!(
        error
            .to_string()
            .starts_with("the body has 1200 bytes, at most"),
        "{error}"
    );
    assert!(error.hint().is_some());
    net.nodes[4].handle_input(Instant::ZERO, Input::Timeout);
}

#[test]
fn an_address_is_proven_only_where_the_key_is_and_a_stranger_gets_six_questions() {
    let mut net = keyed(2, two_halves(), true);
    let source = net.source();
    let there = net.contacts[0];
    // Sink 0 claims the address of sink 1.
    let elsewhere = Contact {
        address: net.contacts[1].address,
        ..there
    };
    let topic = TOPIC;
    let strangers = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let copy = std::rc::Rc::clone(&strangers);
    net.tamper = Box::new(move |_, to, datagram| {
        if to == 1 {
            copy.borrow_mut().push(datagram.len());
        }
        true
    });
    for contact in [there, elsewhere] {
        net.command(source, Command::Prove { topic, contact });
    }
    net.run(10 * SECOND);
    let proven = |contact, is_reachable| {
        let wanted = TreeEvent::Proven {
            topic,
            contact,
            is_reachable,
        };
        net.events.iter().filter(|(_, it)| *it == wanted).count()
    };
    assert_eq!((proven(there, true), proven(there, false)), (1, 0));
    assert_eq!((proven(elsewhere, true), proven(elsewhere, false)), (0, 1));
    assert_eq!(*strangers.borrow(), [48; 6]);
    assert_eq!(net.nodes[1].counters().unauthenticated, 6);
}

#[test]
fn a_list_that_comes_after_its_event_lets_it_be_answered() {
    let mut net = keyed(3, two_halves(), false);
    let list = Membership::new(TOPIC, 2, net.contacts[..3].to_vec()).expect("apart");
    let membership = Arc::new(list);
    let known = |number| Command::Membership {
        membership: Arc::clone(&membership),
        number,
    };
    let source = net.source();
    net.command(source, known(Some(chappe_notification_tree::SOURCE)));
    net.publish(b"before its list");
    net.run(SECOND / 50);
    assert!((0..3).all(|sink| net.delivered[sink].len() == 1));
    assert!(net.outcomes.is_empty(), "no sink can answer yet");
    (0..3).for_each(|sink| net.command(sink, known(None)));
    net.run(5 * SECOND);
    assert!((0..3).all(|sink| net.outcomes[0].delivered(sink)));
    assert!((0..3).all(|sink| net.delivered[sink].len() == 1));
}
