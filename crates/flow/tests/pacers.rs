//! Goal: no pacer panics, waits too long or stops for good, whatever its input: readers that never
//! acknowledge, late, in bursts, or future samples; clocks that stop and jump.
//!
//! In addition, sessions at the default pace lose nothing by it: a sender with less to send than it
//! may sends exactly when a window alone would allow it; a receiver with a slow disk gets as much.
//!
//! Method: random inputs for each pacer, then a correct reader with which it must continue; and
//! sessions with a pacer that always waits for an acknowledgement.

#[allow(dead_code, reason = "other tests use the rest")]
mod network;

use std::time::Duration;

use chappe_flow::pacer::{
    Choice, FixedWindow, InFlight, LATE_MAX, PERIOD_MAX, Pace, Pacer, PacerState, PacerStatus,
    Receivers, Waits,
};
use chappe_flow::{ReceiverConfig, SenderConfig};
use chappe_machine::Instant;
use network::World;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    /// The clock moves by nanoseconds, also back.
    Clock(i64),
    /// Asked, and sent if allowed.
    Asked {
        bytes: u64,
        elements: u64,
    },
    /// Sent without asking.
    Sent {
        bytes: u64,
        elements: u64,
    },
    Again {
        bytes: u64,
    },
    /// A part of the data in flight, or more than was ever sent.
    Acknowledged {
        share: f64,
        delay: Option<u64>,
    },
    /// A claim about the data in flight.
    Lie {
        bytes: u64,
        elements: u64,
        reserved: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let amount = || prop_oneof![0_u64..300_000, Just(u64::MAX), Just(0)];
    let elements = || prop_oneof![0_u64..50, Just(1), Just(u64::MAX)];
    prop_oneof![
        3 => prop_oneof![0_i64..50_000_000, Just(0), Just(i64::MAX), -5_000_000_000_i64..0].prop_map(Step::Clock),
        6 => (1_u64..300_000, Just(1_u64)).prop_map(|(bytes, elements)| Step::Asked { bytes, elements }),
        1 => (amount(), elements()).prop_map(|(bytes, elements)| Step::Sent { bytes, elements }),
        1 => amount().prop_map(|bytes| Step::Again { bytes }),
        5 => (0.0..1.5_f64, proptest::option::of(prop_oneof![0_u64..1_000_000_000, Just(u64::MAX)]))
            .prop_map(|(share, delay)| Step::Acknowledged { share, delay }),
        1 => (amount(), elements(), amount())
            .prop_map(|(bytes, elements, reserved)| Step::Lie { bytes, elements, reserved }),
    ]
}

fn choice() -> impl Strategy<Value = Choice> {
    let parse = |text: String| text.parse::<Choice>().expect("a valid pacer");
    prop_oneof![
        Just("flood".to_owned()),
        (1_u64..2_000).prop_map(|elements| format!("fixed_window:{elements}")),
        (0_u64..1_000_000).prop_map(|time| format!("fixed_period:{time}us")),
        (1_u64..u64::MAX, 1_u64..1_000).prop_map(|(capacity, k)| format!("napa:{capacity}:{k}")),
        Just("adaptive".to_owned()),
    ]
    .prop_map(parse)
}

fn is_sound(pacer: &dyn Pacer) -> Result<(), TestCaseError> {
    let status: PacerStatus = pacer.status();
    prop_assert!(status.period <= PERIOD_MAX, "{status:?}");
    prop_assert!(PacerState::ALL.contains(&status.state));
    Ok(())
}

fn ask(pacer: &mut dyn Pacer, now: Instant, in_flight: InFlight) -> Result<Pace, TestCaseError> {
    let pace = pacer.next(now, in_flight);
    match pace {
        Pace::Now => {}
        Pace::At(at) => prop_assert!(at <= now + PERIOD_MAX, "{at:?} at {now:?}"),
        Pace::AfterAcknowledgement => {
            let some =
                in_flight.bytes > 0 || in_flight.elements > 0 || in_flight.reserved_bytes > 0;
            prop_assert!(some, "it waits for an acknowledgement that never comes");
        }
    }
    is_sound(pacer)?;
    Ok(pace)
}

/// Runs the inputs, and returns the data in flight afterwards.
fn tell(pacer: &mut dyn Pacer, story: &[Step]) -> Result<(Instant, InFlight), TestCaseError> {
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut on_way = InFlight::default();
    for step in story {
        match *step {
            Step::Clock(by) => {
                now =
                    Instant::from_nanos(now.as_nanos().saturating_add_signed(by).min(u64::MAX / 4));
            }
            Step::Asked { bytes, elements } => {
                if ask(pacer, now, on_way)? == Pace::Now {
                    on_way.bytes = on_way.bytes.saturating_add(bytes);
                    on_way.elements = on_way.elements.saturating_add(elements);
                    pacer.sent(now, bytes, elements);
                }
            }
            Step::Sent { bytes, elements } => pacer.sent(now, bytes, elements),
            Step::Again { bytes } => pacer.sent_again(now, bytes),
            Step::Acknowledged { share, delay } => {
                let of = |all: u64| (all as f64 * share) as u64;
                let (bytes, elements) = (of(on_way.bytes), of(on_way.elements));
                on_way.bytes = on_way.bytes.saturating_sub(bytes);
                on_way.elements = on_way.elements.saturating_sub(elements);
                let delay = delay.map(Duration::from_nanos);
                pacer.acknowledged(now, bytes, elements, delay, on_way);
            }
            Step::Lie {
                bytes,
                elements,
                reserved,
            } => {
                let lie = InFlight {
                    bytes,
                    elements,
                    window_bytes: 0,
                    reserved_bytes: reserved,
                };
                ask(pacer, now, lie)?;
            }
        }
        is_sound(pacer)?;
    }
    Ok((now, on_way))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_story_breaks_a_pacer_or_stops_it_for_good(
        choice in choice(),
        story in proptest::collection::vec(step(), 0..200),
    ) {
        let mut pacer = choice.build();
        let (mut now, mut on_way) = tell(&mut *pacer, &story)?;
        // From here on the reader acknowledges each sample after a millisecond.
        const SAMPLES: u32 = 20;
        let mut sent = 0;
        let deadline = now + PERIOD_MAX * (2 * SAMPLES);
        while sent < SAMPLES {
            prop_assert!(now <= deadline, "{sent} samples in {:?}: {pacer:?}", PERIOD_MAX * (2 * SAMPLES));
            match ask(&mut *pacer, now, on_way)? {
                Pace::Now => {
                    pacer.sent(now, 1_000, 1);
                    on_way.bytes = on_way.bytes.saturating_add(1_000);
                    on_way.elements = on_way.elements.saturating_add(1);
                    sent += 1;
                    now += Duration::from_nanos(1);
                }
                Pace::At(at) => now = at.max(now + Duration::from_nanos(1)),
                Pace::AfterAcknowledgement => now += Duration::from_millis(1),
            }
            if on_way.elements > 0 || on_way.bytes > 0 {
                let (bytes, elements) = (on_way.bytes, on_way.elements);
                on_way = InFlight::default();
                now += Duration::from_millis(1);
                pacer.acknowledged(now, bytes, elements, None, on_way);
            }
        }
    }

    #[test]
    fn a_reader_that_never_acknowledges_is_asked_once_in_a_period_at_least(choice in choice()) {
        prop_assume!(!matches!(choice, Choice::FixedWindow(_)));
        let mut pacer = choice.build();
        let mut now = Instant::from_nanos(1_000_000_000);
        let mut on_way = InFlight::default();
        let mut last = now;
        for _ in 0..50 {
            match ask(&mut *pacer, now, on_way)? {
                Pace::Now => {
                    prop_assert!(now - last <= PERIOD_MAX + LATE_MAX, "{:?}", now - last);
                    last = now;
                    pacer.sent(now, 5_000, 1);
                    on_way.bytes += 5_000;
                    on_way.elements += 1;
                }
                Pace::At(at) => now = at,
                Pace::AfterAcknowledgement => prop_assert!(false, "for ever"),
            }
        }
    }

    #[test]
    fn receivers_that_come_go_and_lie_are_counted(
        waits in prop_oneof![
            Just(Waits::All),
            (0_u64..2_000).prop_map(|time| Waits::Silence(Duration::from_millis(time))),
            (0_u64..50).prop_map(Waits::Behind),
        ],
        steps in proptest::collection::vec((0_u8..5, 0_usize..6, 0_u64..40), 0..200),
    ) {
        let mut receivers = Receivers::new(waits);
        let mut now = Instant::ZERO;
        let mut sent = 0;
        for (what, key, amount) in steps {
            match what {
                0 => receivers.add(now, key),
                1 => receivers.remove(&key),
                2 => { receivers.sent(now, amount * 10, amount); sent += amount; }
                3 => receivers.acknowledged(now, &key, amount * 10, amount),
                _ => now += Duration::from_millis(amount * 20),
            }
            let in_flight = receivers.in_flight(now);
            prop_assert!(in_flight.elements <= sent && in_flight.bytes <= sent * 10);
            let (all, behind) = receivers.counts(now);
            prop_assert!(behind <= all);
            if waits == Waits::All {
                prop_assert_eq!(behind, 0);
            }
            if in_flight.elements > 0 {
                prop_assert!((0..6).any(|key| receivers.is_waited_for(now, &key)));
            }
        }
    }
}

#[test]
fn a_dead_receiver_is_excluded_until_it_returns() {
    let mut receivers = Receivers::new(Waits::Silence(Duration::from_secs(1)));
    let mut now = Instant::ZERO;
    receivers.add(now, "quick");
    receivers.add(now, "dead");
    receivers.sent(now, 1_000, 10);
    receivers.acknowledged(now, &"quick", 1_000, 10);
    assert_eq!(
        receivers.in_flight(now).elements,
        10,
        "it limits the sender"
    );
    now += Duration::from_secs(2);
    assert_eq!(receivers.in_flight(now).elements, 0, "no more");
    assert_eq!(receivers.counts(now), (2, 1));
    receivers.acknowledged(now, &"dead", 100, 1);
    assert_eq!(
        receivers.in_flight(now).elements,
        9,
        "it limits the sender again"
    );
}

/// Always waits for an acknowledgement, which no pacer should.
#[derive(Debug)]
struct Stubborn;

impl Pacer for Stubborn {
    fn next(&mut self, _: Instant, _: InFlight) -> Pace {
        Pace::AfterAcknowledgement
    }
    fn sent(&mut self, _: Instant, _: u64, _: u64) {}
    fn acknowledged(&mut self, _: Instant, _: u64, _: u64, _: Option<Duration>, _: InFlight) {}
    fn status(&self) -> PacerStatus {
        PacerStatus::default()
    }
}

#[test]
fn a_session_never_stalls_by_its_pacer() {
    let pacers: [fn() -> Box<dyn Pacer>; 4] = [
        || Box::new(Stubborn),
        || Choice::FixedWindow(1).build(),
        || Choice::FixedPeriod(Duration::from_millis(50)).build(),
        || Choice::default().build(),
    ];
    for seed in 0..40 {
        let mut world = World::new(seed, 2, SenderConfig::default(), ReceiverConfig::default());
        world.weather.jitter = Duration::from_millis(10);
        world.pacer = Some(pacers[seed as usize % pacers.len()]);
        world.append(0, 300, 100);
        world.connect();
        world.run(Duration::from_millis(500));
        world.append(1, 50, 100);
        world.run(Duration::from_millis(100));
        // The connection is lost; the next session starts with its own pacer.
        world.connect();
        world.finish(Duration::from_secs(600));
        world.judge();
    }
}

/// A session with five streams and a receiver that acknowledges late, as between nodes; at the
/// default pace, or limited by the receiver's window alone.
fn session(paced: bool, store: Duration) -> World {
    let receiver = ReceiverConfig {
        acknowledge_delay: Duration::from_millis(250),
        ..ReceiverConfig::default()
    };
    let mut world = World::new(3, 5, SenderConfig::default(), receiver);
    world.behaviour.store = store;
    if !paced {
        world.pacer = Some(|| Box::new(FixedWindow::of_bytes(u64::MAX)));
    }
    world.connect();
    world.run(Duration::from_millis(10));
    world
}

#[test]
fn a_sender_with_little_to_send_is_not_held_back() {
    for store in [1, 20, 500] {
        let run = |paced| {
            let mut world = session(paced, Duration::from_millis(store));
            // A hundred elements a second of each stream, three at a time; then a burst.
            for round in 0..200 {
                for stream in 0..5 {
                    let count = if round == 150 { 30 } else { 3 };
                    world.append(stream, count, 400);
                }
                world.run(Duration::from_millis(30));
            }
            world.finish(Duration::from_secs(10));
            world.handed_out
        };
        assert_eq!(run(true), run(false), "stored after {store} ms");
    }
}

#[test]
fn a_slow_disk_at_the_receiver_is_no_reason_to_send_little() {
    for store in [1, 20, 300] {
        let run = |paced| {
            let mut world = session(paced, Duration::from_millis(store));
            for stream in 0..5 {
                world.append(stream, 4_000, 1_000);
            }
            let began = world.now;
            world.finish(Duration::from_secs(600));
            (world.now - began).as_secs_f64()
        };
        let (paced, bound) = (run(true), run(false));
        assert!(
            paced < 1.2 * bound + 0.5,
            "{store} ms: {paced} s, {bound} s by the window alone"
        );
    }
}
