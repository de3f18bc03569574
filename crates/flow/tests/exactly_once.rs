//! Goal: whatever happens to the connection, every element is stored once, in order, and nothing is
//! acknowledged before it is stored.
//!
//! Method: two ends on a virtual network with seeds; the model of both logs judges. `FLOW_SEEDS`
//! (how many) and `FLOW_SEED` (the first) choose; a failure names its seed.

mod network;

use std::time::Duration;

use chappe_flow::{Credit, ReceiverConfig, SenderCommand, SenderConfig};
use chappe_machine::Input;
use fastrand::Rng;
use network::{Behaviour, Weather, World};

fn number(name: &str, default: u64) -> u64 {
    #[allow(clippy::disallowed_methods)] // a test's choice of seeds
    let given = std::env::var(name);
    given.map_or(default, |given| given.parse().expect("a number"))
}

/// Counters over all seeds: a run in which one of them stayed 0 shows nothing.
#[derive(Debug, Default)]
struct Sometimes {
    damaged: u64,
    rollbacks: u64,
    lost: u64,
    stalls: u64,
    dead_letters: u64,
    cuts: u64,
}

fn milliseconds(random: &mut Rng, most: u64) -> Duration {
    Duration::from_micros(random.u64(0..=most * 1_000))
}

fn world(seed: u64) -> World {
    let random = &mut Rng::with_seed(seed ^ 0x5eed);
    let mut sender = SenderConfig::default();
    let mut receiver = ReceiverConfig::default();
    if random.bool() {
        sender.session.frame_bytes = 4_096;
    }
    if random.u8(0..4) == 0 {
        receiver.session.frame_bytes_max = 4_096;
    }
    if random.u8(0..3) == 0 {
        sender.linger = milliseconds(random, 20);
    }
    sender.live_lag = *random.choice([5, 50, 1_000].iter()).expect("one of them");
    sender.catch_up_bytes = 1 << random.u32(10..20);
    sender.reads_max = random.usize(1..=16);
    receiver.window_bytes = 1 << random.u32(12..23);
    receiver.acknowledge_delay = milliseconds(random, 100);
    receiver.acknowledge_elements = random.u64(1..200);
    let mut world = World::new(seed, random.usize(1..=5), sender, receiver);
    if random.bool() {
        world.credit = Some(Credit {
            bytes: 1 << random.u32(0..18),
            elements: 1 << random.u32(0..10),
        });
    }
    world.behaviour = Behaviour {
        store: milliseconds(random, 60),
        read: milliseconds(random, 5),
        live: *random.choice([0, 500, 1_000].iter()).expect("one of them"),
        refuse: if random.u8(0..4) == 0 { 20 } else { 0 },
        stuck: None,
    };
    if random.bool() {
        world.behaviour.store = Duration::ZERO;
    }
    if random.bool() {
        world.behaviour.read = Duration::ZERO;
    }
    world.weather = weather(random);
    world
}

fn weather(random: &mut Rng) -> Weather {
    let bad = |random: &mut Rng, most: u32| {
        if random.bool() {
            0
        } else {
            random.u32(0..most)
        }
    };
    Weather {
        damage: bad(random, 20),
        delay: milliseconds(random, 50),
        jitter: milliseconds(random, 50),
        bytes_per_s: (random.u8(0..4) == 0).then(|| random.u64(20_000..1_000_000)),
    }
}

/// An event at the origin.
fn disturb(world: &mut World, changes: bool) {
    let stream = world.random.usize(0..world.streams.len());
    let channel = chappe_flow::Channel(stream as u32);
    match world.random.u8(0..24) {
        0 => world.connect(),
        1 if changes => world.streams[stream].new_epoch(),
        2 if changes => {
            // The log is rolled back while the session is open, and reports it.
            let origin = &mut world.streams[stream];
            let least = origin.first.max(origin.epochs.last().expect("one").1);
            let next = (origin.next - (origin.next - least).min(20)).max(1);
            let old = origin.epoch();
            if next < origin.next && next > origin.first {
                origin.go_back(next);
                let offer = origin.rollback(next, old);
                world.tell_sender(Input::Command(SenderCommand::Answer { channel, offer }));
            }
        }
        3 if changes => {
            // A backup is restored: the program restarts.
            let origin = &mut world.streams[stream];
            let next = origin.next - (origin.next - origin.first).min(100);
            origin.go_back(next);
            world.connect();
        }
        4 if changes => {
            let origin = &mut world.streams[stream];
            let acknowledged = origin.next.saturating_sub(30);
            origin.trim(acknowledged);
        }
        5 if changes => {
            let origin = &mut world.streams[stream];
            let from = origin.next.saturating_sub(10).max(1);
            if from < origin.next {
                origin.damaged.push((from, from + 1));
            }
        }
        6 => {
            let origin = &mut world.streams[stream];
            origin.schema_version += 1;
            let schema = origin.schema();
            world.tell_sender(Input::Command(SenderCommand::Schema { channel, schema }));
        }
        _ => {}
    }
}

fn one(seed: u64, changes: bool, sometimes: &mut Sometimes) {
    let mut world = world(seed);
    world.trace = number("FLOW_TRACE", 0) > 0;
    world.connect();
    let random = &mut Rng::with_seed(seed ^ 0xd1ce);
    for _ in 0..random.u32(5..60) {
        let stream = random.usize(0..world.streams.len());
        // Elements that do not fit the smallest frame are lost, which is a change.
        let most = if changes { 9_000 } else { 3_000 };
        let bytes = if random.u8(0..20) == 0 { most } else { 100 };
        world.append(stream, random.usize(1..40), bytes);
        disturb(&mut world, changes);
        if random.u8(0..10) == 0 {
            world.weather = weather(random);
        }
        world.run(milliseconds(random, 300));
    }
    world.weather = Weather {
        delay: Duration::from_millis(1),
        ..Weather::default()
    };
    world.finish(Duration::from_secs(120));
    world.judge();
    let counted = world.counted();
    sometimes.damaged += world.damaged;
    sometimes.rollbacks += counted.rollbacks;
    sometimes.lost += counted.lost;
    sometimes.stalls += counted.stalls;
    sometimes.cuts += world.cuts;
    let letters = world.stored.iter().map(|one| one.dead_letters.len() as u64);
    sometimes.dead_letters += letters.sum::<u64>();
    // The peers are correct: only the network may be at fault.
    let of_network = |one: &&String| one.contains("silent") || one.contains("damaged");
    let accused = world.failures.iter().find(|one| !of_network(one));
    assert_eq!(accused, None, "seed {seed}");
}

#[test]
fn every_element_is_stored_once_and_in_order() {
    let mut sometimes = Sometimes::default();
    let first = number("FLOW_SEED", 0);
    for seed in first..first + number("FLOW_SEEDS", 100) {
        one(seed, false, &mut sometimes);
    }
    println!("{sometimes:?}");
    let never = [
        sometimes.damaged,
        sometimes.stalls,
        sometimes.dead_letters,
        sometimes.cuts,
    ];
    assert!(!never.contains(&0), "{sometimes:?}");
    assert_eq!(
        (sometimes.lost, sometimes.rollbacks),
        (0, 0),
        "nothing was lost"
    );
}

#[test]
fn losses_are_reported_and_the_rest_is_stored_once() {
    let mut sometimes = Sometimes::default();
    let first = number("FLOW_SEED", 0);
    for seed in first..first + number("FLOW_SEEDS", 100) {
        one(seed, true, &mut sometimes);
    }
    println!("{sometimes:?}");
    assert!(
        sometimes.lost > 0 && sometimes.rollbacks > 0,
        "{sometimes:?}"
    );
}
