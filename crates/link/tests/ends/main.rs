//! Goal: both ends of a link together keep their contract: each element is stored once, in order
//! and under its schema, or is named as lost; damage is repaired; a rollback finds the last common
//! position.
//!
//! Method: an origin and a subscriber on a virtual clock with models of their logs; seeded runs with
//! lost connections, trims, damage, new epochs, restored origins and full queues.

mod logs;
mod pair;
mod world;

use std::time::Duration;

use chappe_flow::{Channel, LossReason, Position, RefusalReason, Start, Subscription};
use chappe_link::{
    OriginCommand, OriginEvent, ReadRequest, SchemaOf, StorageOutcome, StorageRequest,
    SubscriberCommand, SubscriberEvent,
};
use chappe_machine::Instant;
use logs::{CopyLog, OriginLog, at, schema};
use pair::Pair;
use world::World;

const CHANNEL: Channel = Channel(0);
const TICK: Duration = Duration::from_millis(1);

fn pair() -> Pair {
    Pair::new(Instant::ZERO, TICK, 7)
}

fn subscribe(pair: &mut Pair, channel: Channel, last: Option<Position>, earlier: &[Position]) {
    let mut subscription = Subscription::new("stream", Start::First);
    subscription.earlier = earlier.to_vec();
    pair.subscriber(SubscriberCommand::Subscribe {
        channel,
        last,
        subscription,
    });
}

/// Passes time; the origin's log answers, and the subscriber stores everything at once.
fn run(pair: &mut Pair, log: &mut OriginLog) -> Vec<StorageRequest> {
    let mut requests = Vec::new();
    for _ in 0..1_000 {
        pair.pass(TICK);
        while let Some(event) = pair.origin_events.pop_front() {
            if let Some(answer) = log.answer(event) {
                pair.origin(answer);
            }
        }
        store(pair, &mut requests);
    }
    requests
}

/// Stores what the subscriber requests.
fn store(pair: &mut Pair, requests: &mut Vec<StorageRequest>) {
    while let Some(event) = pair.subscriber_events.pop_front() {
        let SubscriberEvent::Storage { request, .. } = event else {
            continue;
        };
        if let StorageRequest::Append { first, records, .. } = &request {
            let count = records.len() as u64;
            pair.subscriber(SubscriberCommand::Queued {
                last: at(first.epoch, first.sequence + count - 1),
                count,
                dead_letter: None,
            });
            pair.subscriber(SubscriberCommand::Stored { batches: 1 });
        }
        requests.push(request);
        pair.subscriber(SubscriberCommand::Outcome(StorageOutcome::Done));
    }
}

#[test]
fn every_element_is_stored_once_or_named_lost() {
    let mut seen = world::Seen::default();
    for seed in 1..=60 {
        let mut world = World::new(seed);
        world.run();
        world.judge();
        seen.add(&world.seen);
    }
    println!("{seen:?}");
    seen.assert_all();
}

#[test]
fn a_rollback_continues_after_an_earlier_epoch() {
    let mut log = OriginLog::new();
    log.append_all(10);
    let mut pair = pair();
    // The newest epoch is unknown here: the origin was restored twice.
    subscribe(&mut pair, CHANNEL, Some(at(9, 14)), &[at(8, 12), at(1, 6)]);
    let requests = run(&mut pair, &mut log);
    let rollback = StorageRequest::Rollback {
        have: at(9, 14),
        kept: Some(at(1, 6)),
        next: at(1, 7),
    };
    assert!(requests.contains(&rollback), "{requests:?}");
    let first = requests.iter().find_map(|request| match request {
        StorageRequest::Append { first, .. } => Some(*first),
        _ => None,
    });
    assert_eq!(first, Some(at(1, 7)), "nothing is repeated");
}

#[test]
fn a_rollback_without_a_common_epoch_starts_over() {
    let mut log = OriginLog::new();
    log.append_all(10);
    log.trim(4);
    let mut pair = pair();
    subscribe(&mut pair, CHANNEL, Some(at(9, 14)), &[at(8, 12)]);
    let requests = run(&mut pair, &mut log);
    let rollback = StorageRequest::Rollback {
        have: at(9, 14),
        kept: None,
        next: at(1, 4),
    };
    assert!(requests.contains(&rollback), "{requests:?}");
}

#[test]
fn lost_numbers_are_named_by_epoch() {
    let mut log = OriginLog::new();
    log.append_all(6);
    log.begin_epoch();
    log.append_all(6);
    log.damaged.extend(4..=9);
    let mut pair = pair();
    subscribe(&mut pair, CHANNEL, None, &[]);
    let requests = run(&mut pair, &mut log);
    let lost: Vec<_> = requests
        .iter()
        .filter_map(|request| match request {
            StorageRequest::Lost { from, next, .. } => Some((*from, *next)),
            _ => None,
        })
        .collect();
    assert_eq!(lost, [(at(1, 4), 7), (at(2, 7), 10)]);
}

#[test]
fn numbers_trimmed_while_disconnected_are_named() {
    let mut log = OriginLog::new();
    log.append_all(10);
    log.trim(8);
    let mut pair = pair();
    subscribe(&mut pair, CHANNEL, Some(at(1, 3)), &[]);
    let requests = run(&mut pair, &mut log);
    let lost = StorageRequest::Lost {
        from: at(1, 4),
        next: 8,
        reason: LossReason::Trimmed,
    };
    assert!(requests.contains(&lost), "{requests:?}");
}

#[test]
fn numbers_trimmed_after_a_rollback_to_nothing_are_named() {
    let mut log = OriginLog::new();
    log.append_all(10);
    log.trim(8);
    let mut pair = pair();
    subscribe(&mut pair, CHANNEL, Some(at(1, 0)), &[]);
    let requests = run(&mut pair, &mut log);
    let lost = StorageRequest::Lost {
        from: at(1, 1),
        next: 8,
        reason: LossReason::Trimmed,
    };
    assert!(requests.contains(&lost), "{requests:?}");
}

#[test]
fn elements_that_wait_for_schemas_hold_only_their_channel() {
    let mut log = OriginLog::new();
    log.append_all(13);
    let mut pair = pair();
    subscribe(&mut pair, CHANNEL, None, &[]);
    subscribe(&mut pair, Channel(1), None, &[]);
    let mut held = None;
    let mut requests = Vec::new();
    for _ in 0..200 {
        pair.pass(TICK);
        while let Some(event) = pair.origin_events.pop_front() {
            match event {
                OriginEvent::Schema {
                    channel: CHANNEL,
                    of: SchemaOf::Version(1),
                } => assert!(held.replace(()).is_none(), "one question at a time"),
                event => {
                    if let Some(answer) = log.answer(event) {
                        pair.origin(answer);
                    }
                }
            }
        }
        store(&mut pair, &mut requests);
    }
    assert!(held.is_some(), "the second schema is requested");
    let sent = |pair: &Pair, channel| {
        let mut channels = pair.origin.sender().channels();
        channels
            .find(|(it, _)| *it == channel)
            .map(|(_, it)| it.next)
    };
    assert_eq!(sent(&pair, CHANNEL), Some(7));
    assert_eq!(sent(&pair, Channel(1)), Some(14));
    // Live elements that arrive meanwhile are read later.
    let number = log.append();
    let command = OriginCommand::Live {
        channel: CHANNEL,
        first: at(1, number),
        schema_version: 2,
        records: [(0, logs::payload(at(1, number)))].into_iter().collect(),
    };
    pair.origin(command);
    let schema = schema(1);
    pair.origin(OriginCommand::Schema {
        channel: CHANNEL,
        schema,
    });
    run(&mut pair, &mut log);
    assert_eq!(sent(&pair, CHANNEL), Some(number + 1));
}

#[test]
fn an_undecodable_element_is_lost_alone() {
    let mut log = OriginLog::new();
    log.append_all(6);
    let mut pair = pair();
    subscribe(&mut pair, CHANNEL, None, &[]);
    let mut requests = Vec::new();
    let is_bad =
        |request: &ReadRequest| (request.from..request.from + request.elements).contains(&3);
    for _ in 0..200 {
        pair.pass(TICK);
        while let Some(event) = pair.origin_events.pop_front() {
            let answer = match event {
                OriginEvent::Read(request) if is_bad(&request) => {
                    Some(OriginCommand::Undecodable { request })
                }
                event => log.answer(event),
            };
            answer.into_iter().for_each(|answer| pair.origin(answer));
        }
        store(&mut pair, &mut requests);
    }
    let lost = StorageRequest::Lost {
        from: at(1, 3),
        next: 4,
        reason: LossReason::Corrupt,
    };
    assert!(requests.contains(&lost), "{requests:?}");
    let stored = |request: &StorageRequest| match request {
        StorageRequest::Append { records, .. } => records.len(),
        _ => 0,
    };
    assert_eq!(requests.iter().map(stored).sum::<usize>(), 5);
}

#[test]
fn a_log_that_cannot_be_read_ends_its_stream() {
    let mut log = OriginLog::new();
    log.append();
    let mut pair = pair();
    subscribe(&mut pair, CHANNEL, None, &[]);
    let (mut has_ended, mut refused) = (false, None);
    for _ in 0..200 {
        pair.pass(TICK);
        while let Some(event) = pair.origin_events.pop_front() {
            let answer = match event {
                OriginEvent::Read(request) => Some(OriginCommand::ReadFailed {
                    request,
                    text: "the disk is gone".to_owned(),
                }),
                OriginEvent::Ended { .. } => {
                    has_ended = true;
                    None
                }
                event => log.answer(event),
            };
            answer.into_iter().for_each(|answer| pair.origin(answer));
        }
        while let Some(event) = pair.subscriber_events.pop_front() {
            match event {
                SubscriberEvent::Storage { .. } => {
                    pair.subscriber(SubscriberCommand::Outcome(StorageOutcome::Done));
                }
                SubscriberEvent::Refused { reason, .. } => refused = Some(reason),
                _ => {}
            }
        }
    }
    assert!(has_ended);
    assert_eq!(refused, Some(RefusalReason::Busy));
}

#[test]
fn a_stream_that_ends_while_it_is_stored_acknowledges_no_other() {
    let mut log = OriginLog::new();
    log.append();
    let mut pair = pair();
    subscribe(&mut pair, CHANNEL, None, &[]);
    subscribe(&mut pair, Channel(1), None, &[]);
    let (mut held, mut was_refused) = (None, false);
    for _ in 0..1_000 {
        pair.pass(TICK);
        while let Some(event) = pair.origin_events.pop_front() {
            let answer = match event {
                OriginEvent::Read(request) if request.channel == CHANNEL && request.from > 1 => {
                    Some(OriginCommand::ReadFailed {
                        request,
                        text: "the disk is gone".to_owned(),
                    })
                }
                event => log.answer(event),
            };
            answer.into_iter().for_each(|answer| pair.origin(answer));
        }
        while let Some(event) = pair.subscriber_events.pop_front() {
            match event {
                SubscriberEvent::Storage {
                    channel: CHANNEL,
                    request: StorageRequest::Append { .. },
                } => {
                    // It is being stored when the origin meets an element that it cannot read.
                    held = Some(());
                    let (channel, last) = (CHANNEL, log.append());
                    pair.origin(OriginCommand::Appended { channel, last });
                }
                SubscriberEvent::Storage { .. } => {
                    pair.subscriber(SubscriberCommand::Outcome(StorageOutcome::Done));
                }
                SubscriberEvent::Refused { .. } => was_refused = true,
                _ => {}
            }
        }
    }
    assert!(held.is_some() && was_refused);
    let queue = |pair: &mut Pair| {
        pair.subscriber(SubscriberCommand::Queued {
            last: at(1, 1),
            count: 1,
            dead_letter: None,
        });
        pair.subscriber(SubscriberCommand::Outcome(StorageOutcome::Done));
    };
    let next = |pair: &mut Pair| {
        std::iter::from_fn(|| pair.subscriber_events.pop_front()).find(|event| {
            let SubscriberEvent::Storage { request, .. } = event else {
                return true;
            };
            matches!(request, StorageRequest::Append { .. })
        })
    };
    queue(&mut pair);
    let other = next(&mut pair);
    assert!(
        matches!(
            other,
            Some(SubscriberEvent::Storage {
                channel: Channel(1),
                ..
            })
        ),
        "{other:?}"
    );
    queue(&mut pair);
    // First one of the two batches becomes durable, then the other.
    pair.subscriber(SubscriberCommand::Stored { batches: 1 });
    assert_eq!(next(&mut pair), None);
    pair.subscriber(SubscriberCommand::Stored { batches: 1 });
    let stored = next(&mut pair);
    assert!(
        matches!(
            stored,
            Some(SubscriberEvent::Stored {
                channel: Channel(1),
                ..
            })
        ),
        "{stored:?}"
    );
}

#[test]
fn another_serialization_is_refused() {
    let mut pair = pair();
    let mut subscription = Subscription::new("stream", Start::First);
    subscription.serialization = "xml".to_owned();
    pair.subscriber(SubscriberCommand::Subscribe {
        channel: CHANNEL,
        last: None,
        subscription,
    });
    (0..100).for_each(|_| pair.pass(TICK));
    let mut opened = pair.origin_events.iter();
    assert!(!opened.any(|event| matches!(event, OriginEvent::Open { .. })));
    let mut refusals = pair.subscriber_events.iter();
    let is_unsupported = |event: &SubscriberEvent| matches!(event, SubscriberEvent::Refused { reason, .. } if *reason == RefusalReason::Unsupported);
    assert!(refusals.any(is_unsupported));
}

#[test]
fn an_unknown_stream_is_refused_and_others_continue() {
    let mut log = OriginLog::new();
    log.append();
    let mut pair = pair();
    subscribe(&mut pair, CHANNEL, None, &[]);
    subscribe(&mut pair, Channel(1), None, &[]);
    let mut requests = Vec::new();
    for _ in 0..200 {
        pair.pass(TICK);
        while let Some(event) = pair.origin_events.pop_front() {
            let answer = match event {
                OriginEvent::Open { channel, .. } if channel == CHANNEL => {
                    Some(logs::refusal(channel))
                }
                event => log.answer(event),
            };
            answer.into_iter().for_each(|answer| pair.origin(answer));
        }
        store(&mut pair, &mut requests);
    }
    let mut copy = CopyLog::default();
    let mut queue = std::collections::VecDeque::new();
    for request in requests {
        copy.change(Channel(1), request, &mut queue);
    }
    for change in queue {
        copy.store(change);
    }
    assert_eq!(copy.elements, [at(1, 1)]);
}
