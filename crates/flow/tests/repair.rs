//! Goal: an end with a damaged range gets its records from the other; records that neither has are
//! counted.
//!
//! Method: two ends on a virtual network with seeds; the model's logs answer.

#[allow(dead_code)] // other tests use the rest
mod network;

use std::time::Duration;

use chappe_flow::{
    Channel, Position, ReceiverCommand, ReceiverConfig, SenderCommand, SenderConfig, SessionCommand,
};
use chappe_machine::Input;
use network::{Weather, World};

const CHANNEL: Channel = Channel(0);

fn world(seed: u64) -> World {
    let mut world = World::new(seed, 1, SenderConfig::default(), ReceiverConfig::default());
    world.connect();
    world.append(0, 2_000, 200);
    world.finish(Duration::from_secs(10));
    world.weather = Weather {
        delay: Duration::from_millis(5),
        jitter: Duration::from_millis(20),
        ..Weather::default()
    };
    world
}

#[test]
fn the_origin_restores_its_lost_elements() {
    for seed in 0..20 {
        let mut world = world(seed);
        let epoch = world.streams[0].epoch();
        world.tell_sender(Input::Command(SenderCommand::Session(
            SessionCommand::Fetch {
                channel: CHANNEL,
                epoch,
                from: 500,
                next: 1_500,
            },
        )));
        world.run(Duration::from_secs(120));
        assert_eq!(world.unrepaired, [vec![0], vec![]], "seed {seed}");
        let expected = (500..1_500).map(|sequence| {
            let position = Position { epoch, sequence };
            (position, world.streams[0].records[&sequence].1.clone())
        });
        let expected: Vec<_> = expected.collect();
        assert_eq!(world.repaired[0], expected, "seed {seed}");
    }
}

#[test]
fn the_subscriber_restores_elements_from_the_origin() {
    for seed in 0..20 {
        let mut world = world(seed);
        let epoch = world.streams[0].epoch();
        world.streams[0].trim(101);
        for number in 120..130 {
            world.streams[0].records.remove(&number);
        }
        world.tell_receiver(Input::Command(ReceiverCommand::Session(
            SessionCommand::Fetch {
                channel: CHANNEL,
                epoch,
                from: 91,
                next: 141,
            },
        )));
        world.run(Duration::from_secs(120));
        assert_eq!(world.unrepaired, [vec![], vec![10 + 10]], "seed {seed}");
        let numbers = world.repaired[1]
            .iter()
            .map(|(position, _)| position.sequence);
        let numbers: Vec<_> = numbers.collect();
        let expected: Vec<_> = (101..120).chain(130..141).collect();
        assert_eq!(numbers, expected, "seed {seed}");
    }
}

#[test]
fn an_answer_that_takes_long_on_its_way_is_waited_for() {
    let mut world = World::new(1, 1, SenderConfig::default(), ReceiverConfig::default());
    world.connect();
    world.append(0, 400, 300);
    world.finish(Duration::from_secs(10));
    // A full frame takes eight seconds.
    world.weather = Weather {
        delay: Duration::from_millis(5),
        bytes_per_s: Some(8_000),
        ..Weather::default()
    };
    let epoch = world.streams[0].epoch();
    world.tell_receiver(Input::Command(ReceiverCommand::Session(
        SessionCommand::Fetch {
            channel: CHANNEL,
            epoch,
            from: 1,
            next: 401,
        },
    )));
    world.run(Duration::from_secs(60));
    assert_eq!(world.unrepaired, [vec![], vec![0]]);
    assert_eq!(world.repaired[1].len(), 400);
}

#[test]
fn a_repair_of_elements_that_neither_has_ends() {
    let mut world = world(1);
    world.tell_receiver(Input::Command(ReceiverCommand::Session(
        SessionCommand::Fetch {
            channel: CHANNEL,
            epoch: 77,
            from: 1,
            next: 11,
        },
    )));
    world.run(Duration::from_secs(120));
    assert_eq!(world.unrepaired, [vec![], vec![10]]);
    assert!(world.repaired[1].is_empty());
}

#[test]
fn elements_reported_as_lost_can_arrive_in_a_later_session() {
    let mut late = 0;
    for seed in 0..40 {
        let mut world = World::new(seed, 1, SenderConfig::default(), ReceiverConfig::default());
        world.weather = Weather {
            delay: Duration::from_millis(5),
            jitter: Duration::from_millis(20),
            ..Weather::default()
        };
        world.connect();
        world.run(Duration::from_secs(1));
        world.streams[0].damaged.push((50, 53));
        world.append(0, 100, 50);
        // The connection breaks before or after the loss arrives; then the log has the elements
        // again.
        world.run(Duration::from_millis(seed));
        world.streams[0].damaged.clear();
        world.connect();
        world.append(0, 10, 50);
        world.run(Duration::from_secs(60));
        assert_eq!(world.failures, Vec::<String>::new(), "seed {seed}");
        let numbers = world.stored[0].elements.iter();
        let numbers: Vec<_> = numbers.map(|(position, _)| position.sequence).collect();
        let all: Vec<_> = (1..=110).collect();
        match numbers == all {
            true => late += 1,
            false => assert!(
                numbers.iter().copied().eq((1..50).chain(53..=110)),
                "seed {seed}: {numbers:?}"
            ),
        }
    }
    assert!(late > 0, "they arrived late in no seed");
}
