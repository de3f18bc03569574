//! Goal: flooding collapses, but the adaptive pacer does not, nor does a window that it takes over;
//! it follows a receiver, shares with another sender, and continues despite a dead receiver that is
//! excluded. Late acknowledgements without a queue on the path do not make it slow: disks, pauses,
//! timers.
//!
//! Method: short runs of the pacing simulation; throughput and latency are virtual, so bounds are exact.

use std::time::Duration;

use chappe_flow::pacer::{AdaptiveConfig, Choice, Waits};
use chappe_sim::pacing::{Change, Moment, Settings, run};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The mean of the moments from one second to another.
fn mean(moments: &[Moment], from: f64, until: f64, of: fn(&Moment) -> f64) -> f64 {
    let within = |moment: &&Moment| moment.at_s > from && moment.at_s <= until + 1e-9;
    let values: Vec<f64> = moments.iter().filter(within).map(of).collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[test]
fn flooding_a_large_window_collapses_and_adaptive_does_not() {
    let flood = run(&Settings::new(1, Choice::Flood, 100_000)).remove(0);
    let adaptive = run(&Settings::new(1, Choice::default(), 100_000)).remove(0);
    assert!(flood.sent_again > 5 * flood.sent, "{flood:?}");
    assert!(flood.latency_p50_s > 0.5, "{}", flood.latency_p50_s);
    assert!(adaptive.throughput_bytes_per_s > 3.0 * flood.throughput_bytes_per_s);
    assert!(
        adaptive.latency_p50_s < 2.0e-3,
        "{}",
        adaptive.latency_p50_s
    );
    assert_eq!(adaptive.sent_again, 0);
}

/// On a lossy path, missing samples are requested again before they can have arrived, and soon
/// retransmissions exceed new samples.
#[test]
fn where_much_is_lost_no_storm_of_repeats_lasts() {
    for seed in 1..=12 {
        let mut settings = Settings::new(seed, Choice::default(), 200_000);
        settings.bottleneck.loss = 0.05;
        settings.acknowledging.every = 1;
        settings.receivers[0].bytes_per_s = 500e6;
        let outcome = run(&settings).remove(0);
        let again = outcome.sent_again as f64 / outcome.sent as f64;
        let delivered = outcome.throughput_bytes_per_s / settings.capacity_bytes_per_s();
        assert!(again < 0.5, "seed {seed}: {again}");
        assert!(delivered > 0.6, "seed {seed}: {delivered}");
    }
}

/// Round trips show repairs there: a queue that a faster sender fills would be seen too late.
#[test]
fn where_some_are_lost_a_sender_that_probes_fills_no_queue() {
    for seed in 1..=9 {
        let mut settings = Settings::new(seed, Choice::default(), 20_000);
        settings.bottleneck.loss = 0.01;
        settings.acknowledging.every = 1;
        settings.receivers[0].bytes_per_s = 500e6;
        let latency = run(&settings).remove(0).latency_p50_s;
        assert!(latency < 1.5e-3, "seed {seed}: {latency} s");
    }
}

#[test]
fn one_seed_one_history() {
    let mut settings = Settings::new(7, Choice::default(), 20_000);
    settings.bottleneck.loss = 0.01;
    settings.duration = Duration::from_millis(1_500);
    assert_eq!(run(&settings), run(&settings));
    let other = Settings {
        seed: 8,
        ..settings.clone()
    };
    assert_ne!(run(&settings), run(&other));
}

#[test]
fn a_collapsed_window_is_drained_within_two_seconds() {
    for size in [50_000, 200_000] {
        let mut settings = Settings::new(3, Choice::Flood, size);
        settings.window = 256;
        let choice = Choice::default();
        settings.changes = vec![(seconds(1), Change::Pacer { sender: 0, choice })];
        settings.duration = seconds(4);
        let moments = run(&settings).remove(0).moments;
        let before = mean(&moments, 0.5, 1.0, |it| it.latency_p50_s);
        let after = mean(&moments, 3.0, 4.0, |it| it.latency_p50_s);
        let rate = mean(&moments, 3.0, 4.0, |it| it.throughput_bytes_per_s);
        assert!(before > 0.1, "{size}: it had collapsed: {before} s");
        assert!(after < 0.01, "{size}: {after} s");
        assert!(
            rate > 0.9 * settings.capacity_bytes_per_s(),
            "{size}: {rate}"
        );
    }
}

#[test]
fn a_receiver_that_halves_its_speed_is_followed_within_a_second() {
    let mut settings = Settings::new(3, Choice::default(), 100_000);
    settings.receivers[0].bytes_per_s = 137.5e6;
    let capacity = settings.capacity_bytes_per_s() / 2.0;
    let change = Change::Slower {
        receiver: 0,
        factor: 2.0,
    };
    settings.changes = vec![(seconds(1), change)];
    let outcome = run(&settings).remove(0);
    let after = mean(&outcome.moments, 2.0, 3.0, |it| it.throughput_bytes_per_s);
    let latency = mean(&outcome.moments, 2.0, 3.0, |it| it.latency_p50_s);
    assert_eq!(outcome.sent_again, 0, "no storm");
    assert!(outcome.occupation_max < 64, "{}", outcome.occupation_max);
    let share = after / capacity;
    assert!(
        share > 0.9 && latency < 0.004,
        "{share} of what it takes, {latency} s"
    );
}

#[test]
fn senders_share_within_a_fifth_and_receivers_set_the_pace() {
    let mut two = Settings::new(3, Choice::default(), 100_000);
    two.senders.push((Choice::default(), seconds(1)));
    two.warm_up = seconds(3);
    two.duration = seconds(8);
    let outcomes = run(&two);
    let rates: Vec<f64> = outcomes
        .iter()
        .map(|it| it.throughput_bytes_per_s)
        .collect();
    let (least, most) = (rates[0].min(rates[1]), rates[0].max(rates[1]));
    assert!(least > most / 1.2, "{rates:?}");
    assert!(least + most > 0.9 * two.capacity_bytes_per_s(), "{rates:?}");
    // Sixteen receivers, one of which takes a quarter of the others' rate.
    let mut many = Settings::new(4, Choice::default(), 50_000);
    let service = many.receivers[0].clone();
    many.receivers = vec![service; 16];
    many.receivers[5].bytes_per_s = 40e6;
    let outcome = run(&many).remove(0);
    let share = outcome.throughput_bytes_per_s / many.capacity_bytes_per_s();
    assert!(share > 0.85, "{share} of what the slowest takes");
    assert_eq!(outcome.sent_again, 0);
    // It dies: a sender that waits for all stops, one that excludes it continues at the others'
    // rate.
    many.changes = vec![(seconds(1), Change::Dead { receiver: 5 })];
    let stopped = run(&many).remove(0);
    assert!(mean(&stopped.moments, 2.0, 3.0, |it| it.throughput_bytes_per_s) < 1e6);
    many.waits = Waits::Silence(Duration::from_millis(500));
    let goes_on = run(&many).remove(0);
    let after = mean(&goes_on.moments, 2.0, 3.0, |it| it.throughput_bytes_per_s);
    assert!(after > 0.8 * 125e6 * 15.0 / 16.0, "{after}");
}

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Sessions between two nodes: frames of up to 64 KiB, acknowledged when stored, after 128 KiB,
/// 1,024 elements or a quarter of a second; a mebibyte of credit; one processor for all.
fn sessions(choice: Choice, count: usize, size: u64, commit: (u64, u64)) -> Settings {
    let mut settings = Settings::new(1, choice.clone(), size);
    settings.senders = vec![(choice, Duration::ZERO); count];
    settings.window = (1 << 20) / size;
    settings.frame_samples = (65_536 / size).max(1);
    settings.bottleneck.bytes_per_s = 1_250e6;
    settings.bottleneck.queue_bytes = 1 << 30;
    settings.receivers[0].per_frame = Duration::from_micros(50);
    settings.receivers[0].buffer_bytes = 1 << 30;
    settings.one_processor = true;
    settings.acknowledging.every = (131_072 / size).clamp(1, 1_024);
    settings.acknowledging.delay = milliseconds(250);
    settings.acknowledging.commit = Some((milliseconds(commit.0), milliseconds(commit.1)));
    settings.acknowledging.heartbeat = seconds(60);
    settings
}

fn session_pacer() -> Choice {
    Choice::Adaptive(AdaptiveConfig::of_session(65_536))
}

#[test]
fn acknowledgements_that_wait_for_a_disk_do_not_make_it_slow() {
    for (commit, size) in [((8, 20), 5_000), ((100, 500), 5_000), ((100, 500), 100_000)] {
        let throughput = |choice| {
            let mut settings = sessions(choice, 1, size, commit);
            settings.warm_up = seconds(2);
            settings.duration = seconds(7);
            run(&settings)[0].throughput_bytes_per_s
        };
        let window = throughput(Choice::FixedWindow((1 << 20) / size));
        let share = throughput(session_pacer()) / window;
        assert!(
            share > 0.7,
            "{size} bytes, {commit:?} ms: {share} of the window's"
        );
    }
}

#[test]
fn sessions_with_little_to_send_are_as_quick_as_by_a_window_alone() {
    let latencies = |choice| {
        let mut settings = sessions(choice, 24, 100, (8, 20));
        settings.offered_per_s = Some(100.0);
        settings.offered_at_once = 3;
        let outcomes = run(&settings);
        let of = outcomes.iter();
        of.map(|it| (it.latency_p50_s, it.latency_max_s))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        latencies(session_pacer()),
        latencies(Choice::FixedWindow(80_000))
    );
}

#[test]
fn after_a_pause_of_the_receiver_it_is_back_within_two_seconds() {
    for size in [5_000, 100_000] {
        let mut settings = Settings::new(5, Choice::default(), size);
        let change = Change::Pause {
            receiver: 0,
            time: milliseconds(1_500),
        };
        settings.changes = vec![(seconds(1), change)];
        settings.duration = seconds(6);
        let moments = run(&settings).remove(0).moments;
        let rate = mean(&moments, 4.5, 6.0, |it| it.throughput_bytes_per_s);
        let share = rate / settings.capacity_bytes_per_s();
        assert!(share > 0.9, "{size}: {share} of what it takes");
    }
}

#[test]
fn timers_of_a_millisecond_do_not_prevent_learning() {
    let mut settings = Settings::new(6, Choice::default(), 5_000);
    settings.timer = milliseconds(1);
    settings.receivers[0].bytes_per_s = 40e6;
    // The receiver becomes three times as fast.
    let change = Change::Slower {
        receiver: 0,
        factor: 1.0 / 3.0,
    };
    settings.changes = vec![(seconds(2), change)];
    settings.duration = seconds(6);
    let moments = run(&settings).remove(0).moments;
    let before = mean(&moments, 1.0, 2.0, |it| it.throughput_bytes_per_s);
    let after = mean(&moments, 4.0, 6.0, |it| it.throughput_bytes_per_s);
    assert!(after > 2.5 * before, "{before}, then {after}");
}

/// The timers of sessions and of DDS writers. A sender that wakes late makes up for it, and an
/// acknowledgement also wakes it.
#[test]
fn timers_of_a_millisecond_cost_no_more_than_a_millisecond() {
    for size in [5_000, 20_000, 64_000] {
        let exact = {
            let mut settings = Settings::new(6, Choice::default(), size);
            settings.acknowledging.every = 4;
            settings
        };
        let coarse = Settings {
            timer: milliseconds(1),
            ..exact.clone()
        };
        let [exact, coarse] = [exact, coarse].map(|settings| run(&settings).remove(0));
        let share = coarse.throughput_bytes_per_s / exact.throughput_bytes_per_s;
        assert!(share > 0.95, "{size}: {share} of the throughput");
        let later = coarse.latency_p50_s - exact.latency_p50_s;
        assert!(later < 1e-3, "{size}: {later} s later");
        assert_eq!(coarse.dropped, 0, "{size}");
    }
}
