//! Goal: the life of a session and of its channels: long idle times, unsubscriptions, refusals,
//! ends.
//!
//! Method: two ends on a virtual connection with much jitter, so that both sides' messages cross.

#[allow(dead_code)] // other tests use the rest
mod network;

use std::time::Duration;

use chappe_flow::{
    Channel, Offer, ReceiverCommand, ReceiverConfig, RefusalReason, SenderCommand, SenderConfig,
    SessionCommand, Start, Subscription,
};
use chappe_machine::Input;
use network::{Weather, World};

const CHANNEL: Channel = Channel(0);

fn rough() -> Weather {
    Weather {
        delay: Duration::from_millis(5),
        jitter: Duration::from_millis(20),
        ..Weather::default()
    }
}

fn world(seed: u64) -> World {
    let mut world = World::new(seed, 1, SenderConfig::default(), ReceiverConfig::default());
    world.connect();
    world.append(0, 100, 100);
    world.finish(Duration::from_secs(60));
    world.other_events.clear();
    world.weather = rough();
    world
}

#[test]
fn an_idle_session_lives_and_costs_little() {
    let mut world = World::new(5, 1, SenderConfig::default(), ReceiverConfig::default());
    world.connect();
    world.append(0, 100, 100);
    world.finish(Duration::from_secs(1));
    let frames = world.sender.counters().frames_sent;
    world.run(Duration::from_secs(24 * 3_600));
    assert_eq!(world.failures, [] as [&str; 0]);
    let frames = world.sender.counters().frames_sent - frames;
    assert!(frames <= 2 * 24 * 3_600 / 5, "{frames} frames in a day");
    world.append(0, 100, 100);
    world.finish(Duration::from_secs(1));
    world.judge();
}

#[test]
fn a_channel_is_left_once_on_both_sides() {
    for seed in 0..50 {
        let mut world = world(seed);
        world.tell_receiver(Input::Command(ReceiverCommand::Unsubscribe {
            channel: CHANNEL,
            reason: RefusalReason::Ended,
            text: "enough".into(),
        }));
        world.append(0, 10, 100);
        world.run(Duration::from_secs(60));
        let reported = |words: &str| {
            world
                .other_events
                .iter()
                .filter(|event| event.contains(words))
                .count()
        };
        assert_eq!(
            reported("sender: Unsubscribed"),
            1,
            "seed {seed}: {:?}",
            world.other_events
        );
        assert_eq!(
            reported("receiver: Unsubscribed"),
            1,
            "seed {seed}: {:?}",
            world.other_events
        );
        assert_eq!(
            world.sender.channels().count() + world.receiver.channels().count(),
            0
        );
        assert_eq!(world.failures, [] as [&str; 0], "seed {seed}");
    }
}

#[test]
fn a_channel_ended_by_the_origin_is_reported_once() {
    for seed in 0..50 {
        let mut world = world(seed);
        let offer = Offer::Refuse {
            reason: RefusalReason::Removed,
            text: "the stream was removed".into(),
        };
        let channel = CHANNEL;
        world.tell_sender(Input::Command(SenderCommand::Answer { channel, offer }));
        world.run(Duration::from_secs(60));
        let reported = |words: &str| {
            world
                .other_events
                .iter()
                .filter(|event| event.contains(words))
                .count()
        };
        assert_eq!(
            reported("receiver: Refused"),
            1,
            "seed {seed}: {:?}",
            world.other_events
        );
        assert_eq!(
            reported("the stream was removed"),
            1,
            "seed {seed}: {:?}",
            world.other_events
        );
        assert_eq!(
            world.sender.channels().count() + world.receiver.channels().count(),
            0
        );
        assert_eq!(world.failures, [] as [&str; 0], "seed {seed}");
    }
}

#[test]
fn a_new_channel_begins_where_an_old_one_ended() {
    for seed in 0..50 {
        let mut world = World::new(seed, 1, SenderConfig::default(), ReceiverConfig::default());
        world.streams[0].append(vec![1]);
        world.tell_sender(Input::Timeout);
        // The model's channel 0 is stream 0; it has no subscriber at first.
        world.tell_receiver(Input::Command(ReceiverCommand::Open));
        world.run(Duration::from_secs(5));
        world.weather = rough();
        world.tell_receiver(Input::Command(ReceiverCommand::Subscribe {
            channel: CHANNEL,
            subscription: Subscription::new("stream/0", Start::New),
        }));
        world.run(Duration::from_secs(10));
        world.append(0, 3, 10);
        world.finish(Duration::from_secs(60));
        let first = world.handed_out.first().map(|out| out.1);
        assert_eq!(first, Some(2), "seed {seed}: only new elements");
    }
}

#[test]
fn an_orderly_end_is_reported_to_the_peer() {
    let mut by_subscriber = world(1);
    by_subscriber.weather = Weather::default();
    by_subscriber.tell_receiver(Input::Command(ReceiverCommand::Session(
        SessionCommand::Close,
    )));
    by_subscriber.run(Duration::from_secs(1));
    let mut by_origin = world(1);
    by_origin.weather = Weather::default();
    by_origin.tell_sender(Input::Command(SenderCommand::Session(
        SessionCommand::Close,
    )));
    by_origin.run(Duration::from_secs(1));
    for (world, ended, other) in [
        (&by_subscriber, "receiver", "sender"),
        (&by_origin, "sender", "receiver"),
    ] {
        let reported = |words: &str| {
            world
                .other_events
                .iter()
                .any(|event| event.starts_with(words))
        };
        assert!(
            reported(&format!("{ended}: Session(Closed {{ by_peer: false")),
            "{:?}",
            world.other_events
        );
        assert!(
            reported(&format!("{other}: Session(Closed {{ by_peer: true")),
            "{:?}",
            world.other_events
        );
        assert_eq!(world.failures, [] as [&str; 0]);
    }
}
