//! Goal: searches stay within their credit, wait for more, continue where they paused, visit the
//! parts of a split key, and notice withdrawals; the publisher's newest record counts.
//! Method: real nodes with real keys, joined by a queue of packets.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::network::Network;
use chappe_kad::{Command, Event, Key, SearchId, SearchReport};

const ABOUT: Key = Key::new(9 << 100);

fn publish(network: &mut Network, node: usize, slots: u16, bytes: usize) {
    for slot in 0..slots {
        let keys = vec![ABOUT];
        let value = vec![slot as u8; bytes];
        network.command(node, Command::Publish { slot, keys, value });
        network.pass(Duration::from_secs(2));
    }
    network.pass(Duration::from_secs(20));
    network.events.clear();
}

/// Searches with a credit, granted again each time; returns the records, the number of pauses, and
/// the report.
fn search(network: &mut Network, node: usize, credit: u64) -> (Vec<(u16, u8)>, u32, SearchReport) {
    let search = SearchId(7);
    let key = ABOUT;
    network.command(
        node,
        Command::Search {
            search,
            key,
            credit,
        },
    );
    let (mut found, mut paused) = (Vec::new(), 0);
    loop {
        network.pass(Duration::from_millis(100));
        for event in network.events_of(node) {
            match event {
                Event::Found { record, .. } => {
                    found.push((record.slot, record.value.first().copied().unwrap_or(0)));
                }
                Event::SearchPaused { .. } => {
                    paused += 1;
                    network.command(node, Command::Grant { search, credit });
                }
                Event::SearchEnded { report, .. } => return (found, paused, report),
                _ => {}
            }
        }
    }
}

#[test]
fn a_search_goes_on_where_its_credit_ended() {
    // Who searches holds nothing itself.
    let mut network = Network::entered(12, |number, config| {
        config.client = [5, 6].contains(&number)
    });
    publish(&mut network, 1, 30, 300);
    let (found, paused, report) = search(&mut network, 5, 4_000);
    let slots: BTreeSet<u16> = found.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots.len(), 30, "of them {} found", found.len());
    assert_eq!(found.len(), 30, "none twice");
    assert!(
        paused >= 2,
        "30 records are 13 kB, {paused} times more was granted"
    );
    assert!(report.inflow <= report.granted);
    assert!(report.on_the_way_max <= 4_000, "{report:?}");
    // With much credit it is not asked again.
    assert_eq!(search(&mut network, 6, 1 << 20).1, 0);
}

#[test]
fn what_a_full_place_does_not_take_is_found_one_level_down() {
    let mut network = Network::entered(12, |_, config| config.place_records = 8);
    publish(&mut network, 1, 30, 20);
    let (found, _, _) = search(&mut network, 5, 1 << 20);
    let slots: BTreeSet<u16> = found.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots.len(), 30);
    let (kept, _) = network.nodes[5].stored();
    assert!(kept > 8, "the parts are elsewhere: {kept}");
}

#[test]
fn a_withdrawn_record_ends_and_a_changed_one_is_the_newest() {
    let mut network = Network::entered(12, |_, _| {});
    publish(&mut network, 1, 2, 1);
    let keys = vec![ABOUT];
    let value = vec![77];
    network.command(
        1,
        Command::Publish {
            slot: 0,
            keys,
            value,
        },
    );
    network.command(1, Command::Withdraw { slot: 1 });
    network.pass(Duration::from_secs(20));
    assert_eq!(search(&mut network, 5, 1 << 20).0, [(0, 77)]);
}

#[test]
fn a_search_without_credit_is_given_up_after_its_time() {
    let mut network = Network::entered(12, |_, _| {});
    publish(&mut network, 1, 1, 1);
    let search = SearchId(1);
    let (key, credit) = (ABOUT, 100);
    network.command(
        5,
        Command::Search {
            search,
            key,
            credit,
        },
    );
    network.pass(Duration::from_secs(59));
    let events = network.events_of(5);
    let paused = |event: &&Event| matches!(event, Event::SearchPaused { .. });
    assert_eq!(events.iter().filter(paused).count(), 1);
    network.pass(Duration::from_secs(2));
    let events = network.events_of(5);
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::SearchEnded { .. }))
    );
}

#[test]
fn records_are_renewed_and_end_when_their_publisher_is_gone() {
    let mut network = Network::entered(6, |_, _| {});
    publish(&mut network, 1, 1, 1);
    // Longer than a record lives.
    network.pass(Duration::from_secs(2 * 3_600));
    assert_eq!(search(&mut network, 5, 1 << 20).0.len(), 1);
    // The publisher falls silent: another node is at its address.
    let gone = chappe_kad::Kad::new(
        chappe_kad::NodeKey::new(crate::network::key(99)),
        crate::network::config(99),
        network.now,
    );
    network.nodes[1] = gone;
    network.pass(Duration::from_secs(3_700));
    assert_eq!(search(&mut network, 5, 1 << 20).0.len(), 0);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]
    #[test]
    fn no_more_comes_than_was_granted_whatever_is_granted_when(
        first in 0_u64..6_000,
        grants in proptest::collection::vec((0_u64..4_000, 1_u64..400), 0..12),
        stop in proptest::bool::ANY,
        bytes in 1_usize..700,
    ) {
        let mut network = Network::entered(8, |number, config| config.client = number == 5);
        publish(&mut network, 1, 12, bytes);
        let before = network.nodes[5].counters().received_bytes;
        let (search, key) = (SearchId(7), ABOUT);
        network.command(5, Command::Search { search, key, credit: first });
        let mut granted = first;
        for (credit, pause_ms) in grants {
            network.pass(Duration::from_millis(pause_ms));
            network.command(5, Command::Grant { search, credit });
            granted += credit;
        }
        if stop {
            network.command(5, Command::Stop { search });
        }
        // Longer than an idle search is kept.
        network.pass(Duration::from_secs(120));
        let ended = network.events_of(5).into_iter().find_map(|event| match event {
            Event::SearchEnded { report, .. } => Some(report),
            _ => None,
        });
        let report = ended.expect("every search ends");
        proptest::prop_assert!(report.inflow <= granted, "{report:?} of {granted}");
        // The report equals the bytes received; other traffic uses no credit.
        let came = network.nodes[5].counters().received_bytes - before;
        proptest::prop_assert!(came >= report.inflow, "{came} {report:?}");
    }
}
