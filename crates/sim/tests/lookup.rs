//! Goal: what is published in a network of real Kademlia nodes is found, with few messages and within
//! the credit granted, while nodes come and go, packets are lost, and a fifth of the nodes are an
//! attacker's and wait where they hurt most.
//!
//! Method: networks on virtual time from a seed; every machine checks its invariants after each
//! input. A failure prints the command that plays it again.

use std::time::Duration;

use chappe_sim::lookup::{Attack, Outcome, Settings, run};

fn played(settings: &Settings) -> Outcome {
    let outcome = run(settings, &mut |_| {});
    // What must hold of every run.
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
    for (what, found) in [
        ("searches", outcome.success()),
        ("searches for attacked keys", outcome.attacked_success()),
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
    for nodes in [10, 60] {
        let settings = small(u64::from(nodes), nodes);
        let outcome = played(&settings);
        at_least(1.0, &outcome, &settings);
        assert!(outcome.hops.max() <= 4.0, "{}", settings.command());
    }
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
