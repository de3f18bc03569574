//! Goal: the measurements are true: each sample is taken once and in order over a reliable carrier,
//! by each of several subscribers, with any pacer; criteria are judged; impossible measurements are
//! refused.
//! Method: publisher and subscribers in separate threads, over real sockets on loopback with ports
//! that the system chooses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use chappe_flow::pacer::Choice;
use chappe_perf::{
    Carrier, Criteria, Error, Event, Method, PublishSettings, Published, SubscribeSettings,
    Subscribed, publish, subscribe,
};

const SOON: Duration = Duration::from_secs(300);

fn publishing() -> PublishSettings {
    PublishSettings {
        carrier: Carrier::Sessions {
            endpoint: "tcp://127.0.0.1:0".to_owned(),
        },
        allow: Vec::new(),
        sizes: vec![1_000],
        pacings: vec![Choice::Flood],
        capacity_bytes_per_s: 125e6,
        acknowledged_at_once: 1,
        repeats: 1,
        window: 64,
        warm_up: Duration::ZERO,
        duration: SOON,
        count: Some(200),
        subscribers: 1,
        wait: SOON,
        echo: 0,
        interval: Duration::from_millis(50),
        spin: Duration::ZERO,
        criteria: Criteria::default(),
        stop: Default::default(),
    }
}

fn subscribing(endpoint: &str, reliable: bool) -> SubscribeSettings {
    let endpoint = endpoint.to_owned();
    SubscribeSettings {
        carrier: match reliable {
            true => Carrier::Sessions { endpoint },
            false => Carrier::PublishSubscribe { endpoint },
        },
        server_key: None,
        wait: SOON,
        idle: SOON,
        take_for: Duration::ZERO,
        slows_after: None,
        window_bytes: 64 << 20,
        acknowledge_every: 1,
        acknowledge_delay: Duration::from_millis(1),
        interval: Duration::from_millis(50),
        criteria: Criteria::default(),
        stop: Default::default(),
    }
}

type Ended = (Published, Vec<Event>, Vec<Subscribed>);

/// Runs a publisher and its subscribers; `with` changes what these do.
fn run(settings: &PublishSettings, with: fn(&mut SubscribeSettings)) -> Result<Ended, Error> {
    run_hearing(settings, with, &|_| {})
}

/// The same, and collects the subscribers' events.
fn run_hearing(
    settings: &PublishSettings,
    with: fn(&mut SubscribeSettings),
    hear: &(dyn Fn(Event) + Sync),
) -> Result<Ended, Error> {
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let publisher = scope.spawn(move || {
            let mut events = Vec::new();
            let outcome = publish(settings, &mut |event| {
                if let Event::Listening {
                    endpoint,
                    server_key,
                } = &event
                {
                    let _ = tell.send((endpoint.clone(), server_key.clone()));
                }
                events.push(event);
            });
            outcome.map(|outcome| (outcome, events))
        });
        let mut subscribers = Vec::new();
        if let Ok((endpoint, key)) = told.recv() {
            for _ in 0..settings.subscribers {
                let mut one = subscribing(&endpoint, settings.carrier.is_reliable());
                one.server_key = key.as_ref().map(|key| key.parse().expect("a key"));
                with(&mut one);
                subscribers.push(scope.spawn(move || subscribe(&one, &mut |event| hear(event))));
            }
        }
        let ended = subscribers
            .into_iter()
            .map(|one| one.join().expect("no panic"));
        let ended: Result<Vec<_>, _> = ended.collect();
        let (outcome, events) = publisher.join().expect("no panic")?;
        Ok((outcome, events, ended?))
    })
}

#[test]
fn every_sample_is_taken_once_whatever_the_pacer() {
    let settings = PublishSettings {
        sizes: vec![40, 5_000, 200_000],
        pacings: [
            "flood",
            "fixed_window:1",
            "fixed_window:8",
            "fixed_period:50us",
            "napa",
            "napa:25000000:4",
            "adaptive",
        ]
        .map(|name| name.parse().expect("a pacer"))
        .to_vec(),
        count: Some(40),
        ..publishing()
    };
    let (published, _, subscribed) = run(&settings, |_| {}).expect("it runs");
    let seen = &subscribed[0];
    assert_eq!((published.phases.len(), seen.phases.len()), (21, 21));
    assert_eq!(
        (seen.received, seen.lost, seen.repeated, seen.foreign),
        (21 * 40, 0, 0, 0)
    );
    // The text form contains the setting of the paper's pacer, or the settings do.
    let (capacity, at_once) = (settings.capacity_bytes_per_s, settings.acknowledged_at_once);
    assert_eq!(
        published.phases[4].pacer,
        format!("napa:{capacity}:{at_once}")
    );
    assert_eq!(published.phases[5].pacer, "napa:25000000:4");
    assert!(seen.complete && seen.latency_by == Some(Method::OneClock));
    for (sent, seen) in published.phases.iter().zip(&seen.phases) {
        assert_eq!(
            (sent.sent, seen.received, seen.lost),
            (40, 40, 0),
            "{sent:?}"
        );
        assert_eq!(sent.size_bytes, seen.size_bytes);
        assert_eq!(seen.latency.map(|it| it.count), Some(40));
        let most = match sent.pacer.as_str() {
            "fixed_window:1" => 0,
            "fixed_window:8" => 7,
            _ => 63,
        };
        assert!(sent.occupation_max <= Some(most), "{sent:?}");
        assert!(sent.drain_s.is_some());
    }
}

#[test]
fn a_subscriber_slows_down_after_a_time() {
    let settings = PublishSettings {
        count: Some(50),
        window: 1,
        ..publishing()
    };
    let (_, _, subscribed) = run(&settings, |one| {
        one.take_for = Duration::from_millis(4);
        one.slows_after = Some(Duration::from_millis(40));
    })
    .expect("it runs");
    // At most eleven took 4 ms, the others 8 ms; the last one is not waited for.
    let seconds = subscribed[0].phases[0].seconds;
    assert!(seconds >= 0.34, "{seconds}");
}

#[test]
fn several_subscribers_have_all_of_it_and_warm_up_is_not_measured() {
    let settings = PublishSettings {
        subscribers: 3,
        warm_up: Duration::from_millis(20),
        // However fast the machine: it takes longer than this.
        interval: Duration::from_millis(1),
        window: 4,
        ..publishing()
    };
    // One acknowledges late: the others wait for it, and none loses samples.
    let (published, events, subscribed) = run(&settings, |one| {
        one.acknowledge_every = 3;
        one.take_for = Duration::from_micros(100);
    })
    .expect("it runs");
    assert_eq!(published.phases[0].sent, 200);
    assert!(published.phases[0].blocked_share > 0.0);
    for seen in &subscribed {
        assert_eq!(
            (seen.lost, seen.repeated, seen.phases[0].received),
            (0, 0, 200)
        );
        assert!(seen.complete && seen.received >= 200);
    }
    let told = events
        .iter()
        .filter(|event| matches!(event, Event::Published(_)));
    assert!(told.count() > 0, "rows are reported during the run");
}

#[test]
fn round_trips_are_halved_by_the_publishers_clock() {
    let settings = PublishSettings {
        echo: 4,
        window: 8,
        ..publishing()
    };
    let (published, _, subscribed) = run(&settings, |_| {}).expect("it runs");
    assert_eq!(published.latency_by, Some(Method::RoundTripHalved));
    let echoes = published.phases[0].latency.expect("some came back");
    assert!(
        echoes.count > 0 && echoes.count <= 50 && echoes.min_us > 0.0,
        "{echoes:?}"
    );
    assert_eq!((subscribed[0].lost, subscribed[0].foreign), (0, 0));
}

#[test]
fn best_effort_counts_what_is_missing() {
    let settings = PublishSettings {
        carrier: Carrier::PublishSubscribe {
            endpoint: "tcp://127.0.0.1:0".to_owned(),
        },
        sizes: vec![100_000],
        pacings: vec![Choice::Flood],
        count: Some(500),
        ..publishing()
    };
    // Too slow for a flood even on the slowest machine: its queues of 4 MiB at both ends and the
    // kernel's overflow.
    let (published, _, subscribed) = run(&settings, |one| {
        one.take_for = Duration::from_millis(10);
    })
    .expect("it runs");
    let (phase, seen) = (&published.phases[0], &subscribed[0]);
    assert_eq!(
        (phase.sent, phase.occupation_max, phase.drain_s),
        (500, None, None)
    );
    assert!(seen.complete && phase.dropped > Some(0), "{phase:?}");
    assert_eq!(seen.received + seen.lost, 500);
    assert_eq!(
        Some(seen.lost),
        phase.dropped,
        "the dropped samples are the missing ones"
    );
}

/// Only arriving samples wake a subscriber before its next row is due, so no row is reported.
#[test]
fn a_best_effort_subscriber_is_woken_by_each_sample() {
    let settings = PublishSettings {
        carrier: Carrier::PublishSubscribe {
            endpoint: "tcp://127.0.0.1:0".to_owned(),
        },
        // Apart from each other: each finds it waiting.
        pacings: vec![Choice::FixedPeriod(Duration::from_millis(5))],
        count: Some(50),
        ..publishing()
    };
    let rows = AtomicUsize::new(0);
    let (_, _, subscribed) = run_hearing(&settings, |one| one.interval = SOON, &|event| {
        if matches!(event, Event::Subscribed(_)) {
            rows.fetch_add(1, Ordering::Relaxed);
        }
    })
    .expect("it runs");
    let seen = &subscribed[0];
    assert!(seen.complete, "{seen:?}");
    assert_eq!((seen.received, seen.lost), (50, 0));
    assert_eq!(rows.into_inner(), 0, "a row's time ended a wait");
}

#[test]
fn criteria_are_judged_at_both_ends() {
    let settings = PublishSettings {
        criteria: Criteria {
            require_samples: Some(201),
            min_rate_per_s: Some(1e-3),
            ..Criteria::default()
        },
        ..publishing()
    };
    let (published, _, subscribed) = run(&settings, |one| {
        one.criteria = Criteria {
            require_samples: Some(200),
            max_lost: Some(0),
            max_p99: Some(Duration::from_nanos(1)),
            ..Criteria::default()
        };
    })
    .expect("it runs");
    let met = |criteria: &[chappe_perf::Criterion]| {
        let met = criteria.iter().map(|one| (one.name, one.met));
        met.collect::<Vec<_>>()
    };
    assert_eq!(
        met(&published.criteria),
        [("require-samples", false), ("min-rate", true)]
    );
    let wanted = [
        ("require-samples", true),
        ("max-lost", true),
        ("max-p99", false),
    ];
    assert_eq!(met(&subscribed[0].criteria), wanted);
}

#[test]
fn with_keys_only_those_that_are_let_in_get_samples() {
    let secret = chappe_identity::CurveSecret::new([9; 32]);
    let settings = PublishSettings {
        allow: vec![secret.public()],
        wait: Duration::from_millis(300),
        ..publishing()
    };
    // The subscriber creates its own key, which is not allowed.
    let error = run(&settings, |one| one.wait = Duration::from_millis(300)).expect_err("refused");
    assert!(error.hint.is_some(), "{error:?}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_a_remedy() {
    let refused = |settings: PublishSettings| {
        let error = publish(&settings, &mut |_| {}).expect_err("refused");
        assert!(error.hint.is_some(), "{error:?}");
        error.text
    };
    let best_effort = Carrier::PublishSubscribe {
        endpoint: "tcp://127.0.0.1:0".to_owned(),
    };
    let text = refused(PublishSettings {
        carrier: best_effort.clone(),
        pacings: vec![Choice::default()],
        ..publishing()
    });
    assert!(text.contains("acknowledgements"), "{text}");
    refused(PublishSettings {
        carrier: best_effort,
        echo: 1,
        ..publishing()
    });
    refused(PublishSettings {
        sizes: vec![39],
        ..publishing()
    });
    refused(PublishSettings {
        sizes: vec![(2 << 20) + 1],
        ..publishing()
    });
    refused(PublishSettings {
        window: 0,
        ..publishing()
    });
    let nobody = PublishSettings {
        wait: Duration::from_millis(1),
        ..publishing()
    };
    assert!(refused(nobody).contains("0 of 1 subscribers"));
    let nothing = subscribing("tcp://127.0.0.1:9", true);
    let nothing = SubscribeSettings {
        wait: Duration::from_millis(1),
        ..nothing
    };
    assert!(
        subscribe(&nothing, &mut |_| {})
            .expect_err("refused")
            .hint
            .is_some()
    );
}

#[cfg(feature = "dds")]
fn over_dds(topic: &str) -> Carrier {
    Carrier::Dds(chappe_perf::Domain {
        // Below 101 its ports are below those that the system assigns to others.
        domain: 1 + u16::try_from(std::process::id() % 100).expect("below 100"),
        interfaces: vec![std::net::Ipv4Addr::LOCALHOST.into()],
        topic: topic.to_owned(),
        reliable: true,
        window: 16,
    })
}

#[cfg(feature = "dds")]
#[test]
fn over_dds_it_is_the_same_with_acknowledgements_of_the_library() {
    let carrier = || over_dds("chappe/perf_counted");
    let settings = PublishSettings {
        carrier: carrier(),
        sizes: vec![5_000, 100_000],
        pacings: vec![Choice::FixedWindow(4), Choice::default()],
        window: 16,
        count: Some(50),
        echo: 10,
        ..publishing()
    };
    let outcome = std::thread::scope(|scope| {
        let subscriber = scope.spawn(|| {
            let settings = SubscribeSettings {
                carrier: carrier(),
                ..subscribing("", true)
            };
            subscribe(&settings, &mut |_| {})
        });
        let published = publish(&settings, &mut |_| {});
        (published, subscriber.join().expect("no panic"))
    });
    let (published, subscribed) = (outcome.0.expect("it runs"), outcome.1.expect("it runs"));
    assert_eq!(
        (subscribed.received, subscribed.lost, subscribed.repeated),
        (200, 0, 0)
    );
    assert!(subscribed.complete && subscribed.phases.len() == 4);
    assert!(
        published.phases[0].occupation_max <= Some(3),
        "{published:?}"
    );
    assert_eq!(published.latency_by, Some(Method::RoundTripHalved));
}

/// The library acknowledges everything that arrives, and holds at most 256 samples of it.
#[cfg(feature = "dds")]
#[test]
fn over_dds_a_publisher_waits_for_a_subscriber_that_takes_slowly() {
    let carrier = || over_dds("chappe/perf_slow");
    let settings = PublishSettings {
        carrier: carrier(),
        window: 16,
        count: Some(2_000),
        ..publishing()
    };
    let (published, subscribed) = std::thread::scope(|scope| {
        let subscriber = scope.spawn(|| {
            let settings = SubscribeSettings {
                carrier: carrier(),
                take_for: Duration::from_millis(1),
                ..subscribing("", true)
            };
            subscribe(&settings, &mut |_| {})
        });
        let published = publish(&settings, &mut |_| {});
        (published, subscriber.join().expect("no panic"))
    });
    let (published, subscribed) = (published.expect("it runs"), subscribed.expect("it runs"));
    assert_eq!(published.phases[0].sent, 2_000);
    assert_eq!(
        (subscribed.received, subscribed.lost, subscribed.repeated),
        (2_000, 0, 0)
    );
    assert!(subscribed.complete && subscribed.criteria.is_empty());
}

/// It may lose any number, and reports no progress.
#[cfg(feature = "dds")]
#[test]
fn over_dds_a_best_effort_subscriber_of_a_reliable_publisher_is_not_waited_for() {
    let carrier = |reliable| match over_dds("chappe/perf_uneven") {
        Carrier::Dds(domain) => Carrier::Dds(chappe_perf::Domain { reliable, ..domain }),
        other => other,
    };
    let settings = PublishSettings {
        carrier: carrier(true),
        count: Some(1_000),
        ..publishing()
    };
    let (published, subscribed) = std::thread::scope(|scope| {
        let subscriber = scope.spawn(|| {
            let settings = SubscribeSettings {
                carrier: carrier(false),
                ..subscribing("", true)
            };
            subscribe(&settings, &mut |_| {})
        });
        let published = publish(&settings, &mut |_| {});
        (published, subscriber.join().expect("no panic"))
    });
    assert_eq!(published.expect("it runs").phases[0].sent, 1_000);
    let seen = subscribed.expect("it runs");
    assert!(seen.received + seen.lost <= 1_000 && seen.criteria.is_empty());
}

/// A subscriber that requests more than is offered receives nothing: both ends report why.
#[cfg(feature = "dds")]
#[test]
fn over_dds_ends_that_do_not_fit_name_what_each_of_them_wants() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    let carrier = |reliable| match over_dds("chappe/perf_mismatch") {
        Carrier::Dds(domain) => Carrier::Dds(chappe_perf::Domain { reliable, ..domain }),
        other => other,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let told = AtomicUsize::new(0);
    // The first warning of this kind counts at one end; the second end's ends both.
    let hear = |heard: &mut Vec<String>, event| {
        if let Event::Warning { text, .. } = event
            && text.contains("reliability")
        {
            if heard.is_empty() && told.fetch_add(1, Ordering::Relaxed) == 1 {
                stop.store(true, Ordering::Relaxed);
            }
            heard.push(text);
        }
    };
    let publishing = PublishSettings {
        carrier: carrier(false),
        stop: stop.clone(),
        ..publishing()
    };
    let subscribing = SubscribeSettings {
        carrier: carrier(true),
        stop: stop.clone(),
        ..subscribing("", true)
    };
    let (there, here) = std::thread::scope(|scope| {
        let subscriber = scope.spawn(|| {
            let mut heard = Vec::new();
            let _ = subscribe(&subscribing, &mut |event| hear(&mut heard, event));
            heard
        });
        let mut heard = Vec::new();
        let _ = publish(&publishing, &mut |event| hear(&mut heard, event));
        (heard, subscriber.join().expect("no panic"))
    });
    for heard in [there, here] {
        let text = heard.first().expect("it names the mismatch");
        assert!(text.contains("offers best_effort"), "{text}");
        assert!(text.contains("requests reliable"), "{text}");
    }
}

/// A volatile topic loses samples written before its reader has found the writer: only received
/// ones count.
#[cfg(feature = "dds")]
#[test]
fn over_dds_both_ends_start_and_find_each_other() {
    let topic = chappe_perf::TOPIC;
    let carrier = || over_dds(topic);
    let settings = PublishSettings {
        carrier: carrier(),
        sizes: vec![5_000],
        window: 16,
        count: Some(500),
        echo: 10,
        ..publishing()
    };
    let outcome = std::thread::scope(|scope| {
        let subscriber = scope.spawn(|| {
            let settings = SubscribeSettings {
                carrier: carrier(),
                ..subscribing("", true)
            };
            subscribe(&settings, &mut |_| {})
        });
        let published = publish(&settings, &mut |_| {});
        (published, subscriber.join().expect("no panic"))
    });
    let (published, subscribed) = (outcome.0.expect("it runs"), outcome.1.expect("it runs"));
    assert_eq!(published.phases[0].sent, 500, "{published:?}");
    assert!(
        subscribed.received > 0 && subscribed.complete,
        "{subscribed:?}"
    );
    assert_eq!(
        (subscribed.lost, subscribed.repeated),
        (0, 0),
        "{subscribed:?}"
    );
}
