//! Goal: records published in a network of real Kademlia nodes are found, with few messages and
//! within the credit granted, while nodes come and go, packets are lost, a fifth of the nodes are
//! an attacker's in the worst positions, and the network is partitioned for hours.
//!
//! Method: networks on virtual time from a seed; every machine checks its invariants after each
//! input. A failure prints the command that repeats it.

use std::num::NonZeroU64;
use std::time::Duration;

use chappe_sim::lookup::{Attack, Outcome, Partition, Settings, run};
use chappe_sim::network::Latency;

fn played(settings: &Settings) -> Outcome {
    let outcome = run(settings, &mut |_| {});
    // The invariants of every run.
    let most = outcome.inflow_share.max();
    assert!(
        most <= 1.0,
        "more came than was granted: {}",
        settings.command()
    );
    assert!(
        outcome.searches > 0,
        "nothing was searched: {}",
        settings.command()
    );
    outcome
}

fn at_least(share: f64, outcome: &Outcome, settings: &Settings) {
    // Without an attacker those are a few of the others, whose share means nothing.
    let attacked = match settings.sybils > 0.0 {
        true => outcome.attacked_success(),
        false => 1.0,
    };
    for (what, found) in [
        ("searches", outcome.success()),
        ("searches for attacked keys", attacked),
        ("devices", outcome.devices_share()),
    ] {
        assert!(
            found >= share,
            "{found:.4} of {what} found: {}",
            settings.command()
        );
    }
}

fn small(seed: u64, nodes: u32) -> Settings {
    Settings {
        searches: 100,
        full_searches: 2,
        devices: 40.min(nodes),
        settle: Duration::from_secs(60),
        ..Settings::new(seed, nodes)
    }
}

#[test]
fn everything_is_found_in_networks_that_grew_from_one_node() {
    // A search for all trusts three nodes of a region; one of some thousand devices is at none of
    // them.
    let (mut found, mut devices) = (0, 0);
    for (nodes, seed) in [(10, 10), (60, 60), (60, 61), (60, 62), (60, 63)] {
        let settings = small(seed, nodes);
        let outcome = played(&settings);
        assert_eq!(outcome.success(), 1.0, "{}", settings.command());
        assert!(outcome.hops.max() <= 4.0, "{}", settings.command());
        found += outcome.devices_found;
        devices += outcome.devices;
    }
    assert!(found * 100 >= devices * 99, "{found} of {devices} devices");
}

#[test]
fn a_thousand_nodes_take_few_messages_and_little_memory() {
    let settings = Settings {
        cold: false,
        ..small(1, 1_000)
    };
    let outcome = played(&settings);
    at_least(0.99, &outcome, &settings);
    assert!(
        outcome.messages.mean() < 25.0,
        "{}",
        outcome.messages.mean()
    );
    assert!(outcome.hops.mean() < 4.0, "{}", outcome.hops.mean());
    assert!(
        outcome.state_bytes.mean() < 64e3,
        "{}",
        outcome.state_bytes.mean()
    );
    assert_eq!(
        outcome,
        run(&settings, &mut |_| {}),
        "the same seed, another run"
    );
}

#[test]
fn lost_packets_and_coming_and_going_lose_little() {
    let mut settings = Settings {
        cold: false,
        session: Some(Duration::from_secs(3_600)),
        settle: Duration::from_secs(900),
        ..small(2, 300)
    };
    settings.link.loss = 0.02;
    let outcome = played(&settings);
    assert!(outcome.replaced > 50, "{} were replaced", outcome.replaced);
    at_least(0.97, &outcome, &settings);
}

#[test]
fn a_few_placed_nodes_hide_nothing() {
    for (nodes, sybils) in [(1_000, 0.001), (300, 0.01), (300, 0.1)] {
        let settings = Settings {
            cold: false,
            sybils,
            attack: Attack::Nearest,
            attacked_keys: 1,
            searches: 60,
            ..small(4, nodes)
        };
        let outcome = played(&settings);
        assert!(outcome.attacked_searches >= 20);
        at_least(0.99, &outcome, &settings);
    }
}

#[test]
fn who_crowds_a_key_does_not_own_it() {
    for (attack, attacked_keys) in [
        (Attack::Nearest, 5),
        (Attack::Region, 5),
        (Attack::Region, 1),
    ] {
        let settings = Settings {
            cold: false,
            sybils: 0.2,
            attack,
            attacked_keys,
            searches: 60,
            ..small(3, 300)
        };
        let outcome = played(&settings);
        assert!(outcome.attacked_searches >= 20);
        at_least(0.99, &outcome, &settings);
    }
}

/// Partitioned after a minute, for some hours; judged within the parts, and 25 minutes afterwards.
fn parted(settings: Settings, hours: u64, parts: u16, one_way: bool) {
    let start = Duration::from_secs(60);
    let partition = Partition {
        parts,
        one_way,
        ..Partition::new(start, start + Duration::from_secs(hours * 3_600))
    };
    let settings = Settings {
        partition: Some(partition),
        ..settings
    };
    let outcome = played(&settings);
    at_least(0.99, &outcome, &settings);
    let parted = outcome.parted.expect("it fell into parts");
    for (what, tally, least) in [
        ("of the own part", parted.own, 0.99),
        ("from before", parted.before, 0.95),
        ("of another part, healed", parted.healed, 0.99),
    ] {
        assert!(
            tally.searches > 0 && tally.share() >= least,
            "{what}: {tally:?}: {}",
            settings.command()
        );
    }
    assert!(
        parted.foreign_at_end < parted.foreign && parted.reached >= 1.0,
        "{parted:?}: {}",
        settings.command()
    );
}

#[test]
fn parts_find_what_is_theirs_and_what_is_others_when_they_have_come_together() {
    parted(small(10, 10), 2, 2, false);
    parted(small(11, 40), 1, 2, false);
}

#[test]
fn parts_that_hear_others_but_are_not_heard_find_too() {
    parted(small(12, 40), 1, 2, true);
}

#[test]
fn parts_that_have_forgotten_each_other_come_together_without_an_entrance() {
    let warm = |seed, nodes| Settings {
        cold: false,
        ..small(seed, nodes)
    };
    parted(warm(13, 30), 24, 2, false);
    parted(warm(14, 40), 4, 3, false);
}

#[test]
fn narrow_links_and_slow_nodes_lose_little() {
    let settings = Settings {
        rate_bytes_per_s: NonZeroU64::new(8_000),
        queue_bytes: 4_000,
        ..small(31, 60)
    };
    let narrow = played(&settings);
    assert!(narrow.dropped_share > 0.0, "{}", settings.command());
    at_least(0.95, &narrow, &settings);
    let settings = Settings {
        slow: 0.2,
        ..small(31, 60)
    };
    let slow = played(&settings);
    at_least(0.95, &slow, &settings);
    // Where nothing waits it is quicker.
    let quick = played(&small(31, 60));
    assert_eq!(quick.dropped_share, 0.0);
    let least = narrow.seconds.mean().min(slow.seconds.mean());
    assert!(quick.seconds.mean() < least, "{}", settings.command());
}

/// Satellites, narrow radios: no answer arrives within the first time-out of 500 ms.
#[test]
fn on_ways_that_are_longer_than_the_first_wait_all_is_found() {
    for (seed, least_ms) in [(33, 260), (34, 600), (35, 1_200)] {
        let mut settings = small(seed, 60);
        let [least, most] = [least_ms, least_ms * 5 / 4].map(Duration::from_millis);
        settings.link.latency = Latency::Uniform(least, most);
        at_least(1.0, &played(&settings), &settings);
    }
}

#[test]
fn what_is_not_judged_is_said() {
    // No node stays long enough to publish.
    let settings = Settings {
        session: Some(Duration::from_secs(1)),
        settle: Duration::from_secs(5),
        ..small(7, 10)
    };
    let outcome = run(&settings, &mut |_| {});
    assert_eq!(outcome.searches, 0);
    let unjudged = outcome.unjudged(&settings);
    assert!(
        unjudged.contains(&"searches for one device"),
        "{unjudged:?}"
    );
    let settings = small(7, 10);
    assert_eq!(played(&settings).unjudged(&settings), [""; 0]);
}
