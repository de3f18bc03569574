//! Goal: streams share a connection without delaying each other, and streams that catch up do not
//! delay live ones.
//!
//! Method: two ends on a virtual network with a rate; times are virtual, so bounds are exact.

#[allow(dead_code)] // other tests use the rest
mod network;

use std::time::Duration;

use chappe_flow::{Credit, ReceiverConfig, SenderConfig};
use network::World;

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Appends to the stream every 10 ms, for this duration.
fn produce(world: &mut World, stream: usize, duration: Duration) {
    let end = world.now + duration;
    while world.now < end {
        world.append(stream, 1, 100);
        world.run(milliseconds(10));
    }
}

/// The longest time from appending to handing out, of a stream's elements appended after `since`.
fn slowest(world: &World, stream: usize, since: chappe_machine::Instant) -> Duration {
    let of_stream = world.handed_out.iter().filter(|out| out.0 == stream);
    let times = of_stream.flat_map(|(_, first, count, at)| {
        (*first..first + count).filter_map(|number| {
            let born = world.born[&(stream, number)];
            (born >= since).then(|| *at - born)
        })
    });
    times.max().expect("something was handed out")
}

#[test]
fn catching_up_delays_live_data_by_no_more_than_its_window() {
    let catch_up_bytes = 32 * 1024;
    let rate = 1_000_000;
    let config = SenderConfig {
        catch_up_bytes,
        ..SenderConfig::default()
    };
    let mut world = World::new(1, 2, config, ReceiverConfig::default());
    world.weather.bytes_per_s = Some(rate);
    world.behaviour.live = 1_000;
    for _ in 0..60 {
        world.append(0, 500, 100);
    }
    world.connect();
    world.run(milliseconds(100));
    let since = world.now;
    produce(&mut world, 1, Duration::from_secs(1));
    let (_, backlog) = world.sender.channels().next().expect("the first channel");
    assert!(
        backlog.catching_up && backlog.next < backlog.last,
        "{backlog:?}"
    );
    // Data of streams that catch up may precede it in the connection, and in the frame being sent.
    let ahead = Duration::from_millis(catch_up_bytes * 1_000 / rate + 4);
    let slowest = slowest(&world, 1, since);
    assert!(slowest <= ahead, "{slowest:?} of {ahead:?}");
    // The backlog continues too, nearly at the rate of the link.
    let moved = world.handed_out.iter().filter(|out| out.0 == 0);
    let moved: u64 = moved.map(|out| out.2).sum();
    assert!(
        moved * 60 > rate / 2,
        "{moved} elements of 60 bytes in 1.1 s"
    );
    world.finish(Duration::from_secs(60));
    world.judge();
}

#[test]
fn a_stream_that_is_not_stored_does_not_delay_another() {
    let mut world = World::new(2, 2, SenderConfig::default(), ReceiverConfig::default());
    world.credit = Some(Credit {
        bytes: 100_000,
        elements: 1_000,
    });
    world.behaviour.stuck = Some(0);
    world.connect();
    world.run(milliseconds(100));
    world.append(0, 20_000, 100);
    world.run(Duration::from_secs(1));
    let since = world.now;
    produce(&mut world, 1, Duration::from_secs(30));
    world.run(milliseconds(200));
    assert_eq!(world.failures, [] as [&str; 0]);
    assert_eq!(
        slowest(&world, 1, since),
        milliseconds(1),
        "the delay of the network"
    );
    let channels: Vec<_> = world.sender.channels().collect();
    assert!(channels[0].1.stalled, "{:?}", channels[0]);
    assert!(
        channels[0].1.in_flight_bytes <= 100_000 + 1_000,
        "{:?}",
        channels[0]
    );
    assert_eq!(channels[1].1.acknowledged, channels[1].1.last);
    assert_eq!(world.counted().stalls, 1);
}

#[test]
fn streams_that_catch_up_take_turns() {
    let mut world = World::new(3, 4, SenderConfig::default(), ReceiverConfig::default());
    world.weather.bytes_per_s = Some(1_000_000);
    for stream in 0..4 {
        for _ in 0..30 {
            world.append(stream, 1_000, 100);
        }
    }
    world.connect();
    // The first subscription may fill the windows before there is another.
    world.run(Duration::from_secs(1));
    let since = world.now;
    world.run(Duration::from_secs(2));
    let share = |stream: usize| {
        let handed_out = world.handed_out.iter().filter(|out| out.3 >= since);
        let of_stream = handed_out.filter(|out| out.0 == stream);
        of_stream.map(|out| out.2).sum::<u64>()
    };
    let shares: Vec<_> = (0..4).map(share).collect();
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    // One frame holds about a thousand of these.
    assert!(*least > 5_000 && most - least < 1_300, "{shares:?}");
}

#[test]
fn acknowledgements_are_few_and_ready_elements_share_a_frame() {
    let mut world = World::new(4, 24, SenderConfig::default(), ReceiverConfig::default());
    world.connect();
    world.run(milliseconds(100));
    let before = (world.receiver.counters(), world.sender.counters());
    for _ in 0..1_000 {
        for stream in 0..24 {
            world.append(stream, 1, 100);
        }
        world.run(milliseconds(10));
    }
    let acknowledgements = world.receiver.counters().acknowledgements - before.0.acknowledgements;
    // Ten a second for all 24 streams, for 24,000 elements.
    assert!((90..=101).contains(&acknowledgements), "{acknowledgements}");
    let linger = SenderConfig {
        linger: milliseconds(20),
        ..SenderConfig::default()
    };
    let mut world = World::new(4, 24, linger, ReceiverConfig::default());
    world.behaviour.live = 1_000;
    world.connect();
    world.run(milliseconds(100));
    let before = world.sender.counters().frames_sent;
    let since = world.now;
    for _ in 0..1_000 {
        for stream in 0..24 {
            world.append(stream, 1, 100);
        }
        world.run(milliseconds(10));
    }
    world.run(milliseconds(100));
    let frames = world.sender.counters().frames_sent - before;
    assert!(frames <= 510, "{frames} frames for 24,000 elements");
    assert!(slowest(&world, 23, since) <= milliseconds(21));
    world.finish(Duration::from_secs(1));
    world.judge();
}

#[test]
fn records_at_hand_keep_to_the_window_over_all_channels() {
    let receiver = ReceiverConfig {
        window_bytes: 16_384,
        ..ReceiverConfig::default()
    };
    let mut world = World::new(6, 2, SenderConfig::default(), receiver);
    world.behaviour.live = 1_000;
    world.connect();
    world.run(milliseconds(100));
    world.behaviour.store = Duration::from_secs(1);
    for _ in 0..4 {
        world.append(0, 100, 1_000);
        world.append(1, 100, 1_000);
        let in_flight = world.sender.in_flight();
        assert!(in_flight.bytes <= 16_384 + 1_010, "{in_flight:?}");
    }
    assert!(world.sender.in_flight().bytes > 8_192, "it is used");
    world.finish(Duration::from_secs(600));
    world.judge();
}
