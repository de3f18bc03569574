//! Goal: the network behaves as documented, and identically for the same seed.
//! Method: small networks, each with one fault; properties over many seeds.

use std::time::Duration;

use chappe_machine::Instant;
use chappe_sim::network::{
    CloseReason, Connection, Flapping, Latency, Link, Network, Node, SendError, Step,
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(second: u64) -> Instant {
    Instant::ZERO + seconds(second)
}

/// Everything that happens until a second.
fn steps(network: &mut Network<u64>, second: u64) -> Vec<(Instant, Step<u64>)> {
    let mut steps = Vec::new();
    while let Some(step) = network.next(at(second)) {
        steps.push((network.now(), step));
    }
    steps
}

fn two(link: Link, seed: u64) -> (Network<u64>, Node, Node) {
    let mut network = Network::new(seed, link);
    let (a, b) = (network.add_node(), network.add_node());
    (network, a, b)
}

/// Two nodes and a connection between them.
fn connected(link: Link, seed: u64) -> (Network<u64>, Node, Node, Connection) {
    let (mut network, a, b) = two(link, seed);
    let connection = network.connect(a, b);
    let opened = steps(&mut network, 30);
    assert!(
        opened.iter().any(|(_, step)| *step
            == Step::Opened {
                node: a,
                connection
            }),
        "{opened:?}"
    );
    (network, a, b, connection)
}

#[test]
fn every_raw_message_is_accounted_for_and_a_seed_repeats_itself() {
    let link = Link {
        latency: Latency::Tail(Duration::from_millis(5), Duration::from_millis(20)),
        rate_bytes_per_s: Some(20_000),
        queue_bytes: 4_000,
        loss: 0.1,
        duplicate: 0.1,
        reorder: 0.2,
        ..Link::default()
    };
    let run = |seed| {
        let (mut network, a, b) = two(link, seed);
        let mut seen = Vec::new();
        for second in 0..20 {
            for number in 0..100 {
                network.send(a, b, 300, second * 100 + number);
            }
            network.cut(a, b, second == 7);
            seen.extend(steps(&mut network, second + 1));
        }
        seen.extend(steps(&mut network, 60));
        (seen, network.counters())
    };
    let (seen, counters) = run(3);
    assert_eq!(
        counters.sent + counters.doubled,
        counters.arrived + counters.lost + counters.queue_full + counters.cut + counters.unheard
    );
    for (what, count) in [
        ("lost", counters.lost),
        ("doubled", counters.doubled),
        ("held back", counters.held_back),
        ("queue full", counters.queue_full),
        ("cut", counters.cut),
    ] {
        assert!(count > 0, "never {what}");
    }
    let numbers: Vec<u64> = seen
        .iter()
        .map(|(_, step)| match step {
            Step::Arrived { payload, .. } => *payload,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        numbers.windows(2).any(|pair| pair[0] > pair[1]),
        "never overtaken"
    );
    assert_eq!(run(3), (seen, counters));
    assert_ne!(run(4).1, counters);
}

#[test]
fn a_connection_is_complete_and_in_order_whatever_the_link_does() {
    for seed in 0..200 {
        let link = Link {
            latency: Latency::Tail(Duration::from_millis(1), Duration::from_millis(50)),
            loss: 0.3,
            ..Link::default()
        };
        let (mut network, a, b, connection) = connected(Link::default(), seed);
        network.set_link(a, b, link);
        network.set_link(b, a, link);
        let flapping = Flapping {
            from: at(30),
            until: at(200),
            down: seconds(3),
            up: seconds(2),
        };
        network.change_link(a, b, |link| link.flapping = Some(flapping));
        network.change_link(b, a, |link| {
            link.flapping = Some(Flapping {
                down: seconds(1),
                ..flapping
            });
        });
        let mut next = 0;
        let mut got = Vec::new();
        let mut fed = 0;
        for second in 30..1_000 {
            while next < 500 && next < (second - 29) * 5 {
                match network.write(a, connection, 100, next) {
                    Ok(()) => next += 1,
                    Err(SendError::Full(_)) => break,
                    Err(closed) => panic!("seed {seed}: {closed:?}"),
                }
            }
            for (_, step) in steps(&mut network, second + 1) {
                match step {
                    Step::Received { payload, .. } => got.push(payload),
                    Step::Writable { .. } => fed += 1,
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
        }
        assert_eq!(
            got,
            (0..500).collect::<Vec<_>>(),
            "seed {seed}, writable {fed} times"
        );
        assert_eq!(network.outstanding(a, connection), 0, "seed {seed}");
        assert!(network.counters().sent_again > 0 && network.counters().stalled > 0);
    }
}

#[test]
fn who_stands_still_holds_its_sender_back_and_gets_everything_later() {
    let (mut network, a, b, connection) = connected(Link::default(), 1);
    network.stand_still(b, true);
    let mut taken = 0;
    while network.write(a, connection, 1_000, taken).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 262, "256 KiB of messages of 1,000 bytes");
    assert_eq!(
        steps(&mut network, 600),
        [],
        "the other host holds everything"
    );
    network.stand_still(b, false);
    let after = steps(&mut network, 700);
    let received = after
        .iter()
        .filter(|(_, step)| matches!(step, Step::Received { .. }))
        .count();
    assert_eq!(received as u64, taken);
    assert!(after.iter().any(|(_, step)| *step
        == Step::Writable {
            node: a,
            connection
        }));
    assert_eq!(network.outstanding(a, connection), 0);
}

#[test]
fn who_dials_always_hears_what_came_of_it() {
    for seed in 0..300 {
        let (mut network, a, b) = two(Link::default(), seed);
        let connection = network.connect(a, b);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut heard = false;
        for second in 1..120 {
            match random.u8(..9) {
                0 => network.kill(b),
                1 => network.power_off(b),
                2 => network.start(b),
                3 => network.set_group(b, random.u16(..2)),
                4 => _ = network.reset_between(b, a),
                5 => network.slow_down(a, seconds(random.u64(..2))),
                _ => {}
            }
            let until = network.now() + Duration::from_micros(random.u64(..20_000_000));
            while let Some(step) = network.next(until.min(at(second * 20))) {
                let answer = matches!(step, Step::Opened { .. } | Step::Closed { .. });
                heard |= answer && step.node() == a;
            }
        }
        assert!(heard, "seed {seed}: {connection:?}");
    }
}

#[test]
fn a_slow_node_takes_its_time() {
    let (mut network, a, b, connection) = connected(Link::default(), 1);
    network.slow_down(b, seconds(1));
    for number in 0..10 {
        assert_eq!(network.write(a, connection, 100, number), Ok(()));
    }
    assert_eq!(steps(&mut network, 35).len(), 5);
    network.slow_down(b, Duration::ZERO);
    assert_eq!(steps(&mut network, 37).len(), 5);
}

#[test]
fn what_is_done_to_a_dead_node_does_not_outlive_it() {
    let (mut network, a, b, _) = connected(Link::default(), 1);
    network.stand_still(b, true);
    network.kill(b);
    network.slow_down(b, seconds(1));
    network.stand_still(b, false);
    steps(&mut network, 31);
    network.start(b);
    network.send(a, b, 10, 7);
    let node = b;
    assert_eq!(
        steps(&mut network, 32).last().map(|(_, step)| step.clone()),
        Some(Step::Arrived {
            node,
            from: a,
            payload: 7
        })
    );
}

#[test]
fn a_dead_process_is_told_and_a_dead_host_is_not() {
    let closed = |steps: &[(Instant, Step<u64>)]| {
        steps.iter().find_map(|(_, step)| match step {
            Step::Closed { node, reason, .. } => Some((*node, *reason)),
            _ => None,
        })
    };
    for seed in 0..20 {
        let (mut network, a, b, _) = connected(Link::default(), seed);
        network.kill(b);
        let (node, reason) = closed(&steps(&mut network, 31)).expect("told");
        assert_eq!(node, a);
        assert!(matches!(reason, CloseReason::Ended | CloseReason::Reset));
        assert_eq!(network.connection_count(), 0);
        network.connect(a, b);
        assert_eq!(
            closed(&steps(&mut network, 32)),
            Some((a, CloseReason::Refused))
        );
        assert_eq!(network.connection_count(), 0);

        let (mut network, a, b, connection) = connected(Link::default(), seed);
        network.power_off(b);
        assert_eq!(
            closed(&steps(&mut network, 10_000)),
            None,
            "nobody says anything"
        );
        assert_eq!(network.write(a, connection, 100, 1), Ok(()));
        assert_eq!(closed(&steps(&mut network, 10_300)), None);
        network.start(b);
        // The host is back and does not know the connection.
        let reset = closed(&steps(&mut network, 10_600));
        assert_eq!(reset, Some((a, CloseReason::Reset)));
        assert_eq!(network.connection_count(), 0);
    }
}

#[test]
fn lost_acknowledgements_fill_the_buffer_and_end_the_connection() {
    let (mut network, a, b, connection) = connected(Link::default(), 1);
    network.cut(b, a, true);
    let mut taken = 0;
    while network.write(a, connection, 1_000, taken).is_ok() {
        taken += 1;
    }
    let mut first = steps(&mut network, 60);
    assert_eq!(first.len() as u64, taken, "the data arrives");
    assert!(
        network.outstanding(a, connection) > 260_000,
        "and nobody knows"
    );
    first = steps(&mut network, 30 + 16 * 60 + 120);
    let reason = CloseReason::TimedOut;
    let node = a;
    assert!(
        first.iter().any(|(_, step)| *step
            == Step::Closed {
                node,
                connection,
                reason
            }),
        "{first:?}"
    );
}

#[test]
fn healing_in_time_loses_nothing() {
    let (mut network, a, b, connection) = connected(Link::default(), 1);
    network.set_group(b, 1);
    assert_eq!(network.write(a, connection, 10, 1), Ok(()));
    assert_eq!(network.write(b, connection, 10, 2), Ok(()));
    assert_eq!(steps(&mut network, 300), []);
    network.set_group(b, 0);
    let healed = steps(&mut network, 600);
    assert_eq!(healed.len(), 2, "{healed:?}");
    // Growing pauses: the end of a cut of 270 s is noticed up to two minutes late.
    assert!(healed[0].0 > at(300) && healed[0].0 < at(430), "{healed:?}");
}

#[test]
fn timers_and_clocks_belong_to_their_node() {
    let (mut network, a, b) = two(Link::default(), 1);
    network.set_timer(a, at(5), 1);
    network.set_timer(b, at(5), 2);
    network.set_timer(a, at(3), 3);
    network.kill(b);
    network.start(b);
    let timers: Vec<(Instant, Node, u64)> = steps(&mut network, 10)
        .into_iter()
        .map(|(now, step)| match step {
            Step::Timer { node, key } => (now, node, key),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        timers,
        [(at(3), a, 3), (at(5), a, 1)],
        "a timer dies with its process"
    );
    network.step_clock(a, -1_000_000_000 * 60);
    network.step_clock(b, i64::MAX);
    assert_eq!(network.wall_clock_ns(a), -50_000_000_000);
    assert_eq!(network.wall_clock_ns(b), i64::MAX, "saturates");
    assert_eq!(network.now(), at(10));
}

#[test]
fn slots_of_ended_connections_are_used_again_and_never_confused() {
    let (mut network, a, b) = two(Link::default(), 9);
    let mut last = None;
    for round in 0..1_000 {
        let connection = network.connect(a, b);
        steps(&mut network, round + 1);
        if let Some(old) = last {
            assert_ne!(old, connection);
            assert_eq!(network.write(a, old, 1, 0), Err(SendError::Closed(0)));
        }
        assert_eq!(network.write(a, connection, 1, round), Ok(()));
        network.close(a, connection);
        last = Some(connection);
    }
    let end = steps(&mut network, 2_000);
    assert!(
        matches!(end.last(), Some((_, Step::Closed { .. }))),
        "{end:?}"
    );
    assert_eq!(network.connection_count(), 0);
}
