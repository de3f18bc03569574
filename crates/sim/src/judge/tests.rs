//! Invalid histories, one for each promise, and valid ones for comparison.

use super::{Allows, At, Counts, Event, Judge, Reason, Violation};

fn at(epoch: u64, number: u64) -> At {
    At { epoch, number }
}

/// Epoch 1 starts at number 1, epoch 2 after the last.
fn began(epoch: u64, last: u64, allows: Allows) -> Event {
    let epochs = [(1, 1), (2, last + 1)];
    Event::Began {
        stream: 0,
        epochs: epochs[..epoch as usize].to_vec(),
        last,
        allows,
    }
}

/// An element offered and accepted; its content is 100 times the epoch plus the number.
fn accepted(epoch: u64, number: u64) -> [Event; 2] {
    let (stream, at, content) = (0, at(epoch, number), epoch * 100 + number);
    [
        Event::Offered {
            stream,
            at,
            content,
        },
        Event::Accepted { stream, at },
    ]
}

fn stored(epoch: u64, number: u64) -> Event {
    Event::Stored {
        subscriber: 0,
        stream: 0,
        at: at(epoch, number),
        content: epoch * 100 + number,
    }
}

fn lost(from: u64, next: u64, reason: Reason) -> Event {
    Event::LossReported {
        subscriber: 0,
        stream: 0,
        epoch: 1,
        from,
        next,
        reason,
    }
}

fn elements(places: &[(u64, u64)]) -> Vec<(At, u64)> {
    let element = |(epoch, number): &(u64, u64)| (at(*epoch, *number), epoch * 100 + number);
    places.iter().map(element).collect()
}

fn holds(origin: &[(u64, u64)], subscriber: &[(u64, u64)]) -> [Event; 2] {
    [
        Event::OriginHolds {
            stream: 0,
            elements: elements(origin),
        },
        Event::SubscriberHolds {
            subscriber: 0,
            stream: 0,
            elements: elements(subscriber),
        },
    ]
}

fn judged(events: impl IntoIterator<Item = Event>) -> Result<(), String> {
    let mut judge = Judge::new(1, 1);
    for event in events {
        judge.observe(event).map_err(|Violation(what)| what)?;
    }
    judge.finish().map_err(|violations| violations[0].0.clone())
}

/// One epoch with the elements 1 to 3, then `then`.
fn three(then: impl IntoIterator<Item = Event>) -> Result<(), String> {
    let begin = [began(1, 0, Allows::Nothing)].into_iter();
    let three = (1..=3).flat_map(|number| accepted(1, number));
    judged(begin.chain(three).chain(then))
}

const ALL: &[(u64, u64)] = &[(1, 1), (1, 2), (1, 3)];

fn all_stored() -> impl Iterator<Item = Event> {
    (1..=3).map(|number| stored(1, number))
}

fn refused(result: Result<(), String>, words: &str) {
    let what = result.expect_err("is wrong");
    assert!(what.contains(words), "{what}");
}

#[test]
fn a_right_history_is_right() {
    let heard = Event::Acknowledged {
        subscriber: 0,
        stream: 0,
        at: at(1, 3),
    };
    assert_eq!(
        three(all_stored().chain([heard]).chain(holds(ALL, ALL))),
        Ok(())
    );
    let trimmed = Event::Trimmed {
        stream: 0,
        before: 3,
    };
    let total = Event::LostTotal {
        subscriber: 0,
        count: 2,
    };
    let said = lost(1, 3, Reason::Trimmed);
    let end = holds(&[(1, 3)], &[(1, 3)]);
    assert_eq!(
        three([trimmed, said, stored(1, 3), total].into_iter().chain(end)),
        Ok(())
    );
}

#[test]
fn a_missing_doubled_or_overtaken_element_is_seen() {
    refused(three(holds(ALL, &[(1, 1), (1, 3)])), "is missing");
    refused(three(holds(&[(1, 1), (1, 3)], ALL)), "the origin lost it");
    refused(three([stored(1, 1), stored(1, 1)]), "was stored twice");
    refused(three([stored(1, 2), stored(1, 1)]), "was stored after");
    refused(
        three(holds(ALL, &[(1, 1), (1, 1), (1, 2), (1, 3)])),
        "is held after",
    );
    refused(
        three(all_stored().chain(holds(ALL, &[(1, 1), (1, 2)]))),
        "missing",
    );
}

#[test]
fn invented_and_changed_elements_are_detected() {
    refused(three([stored(1, 4)]), "was offered at None");
    let other = Event::Stored {
        subscriber: 0,
        stream: 0,
        at: at(1, 2),
        content: 101,
    };
    refused(three([stored(1, 1), other]), "holds 101");
    // The number is assigned again although a subscriber has seen it.
    let offered = Event::Offered {
        stream: 0,
        at: at(1, 3),
        content: 7,
    };
    refused(
        three([
            offered,
            Event::Accepted {
                stream: 0,
                at: at(1, 3),
            },
        ]),
        "has the contents 103 and 7",
    );
}

#[test]
fn an_early_acknowledgement_is_seen() {
    let heard = Event::Acknowledged {
        subscriber: 0,
        stream: 0,
        at: at(1, 2),
    };
    refused(
        three([stored(1, 1), heard]),
        "was acknowledged, safe is only",
    );
}

#[test]
fn lost_numbers_may_be_acknowledged_before_they_are_passed() {
    let heard = |number| Event::Acknowledged {
        subscriber: 0,
        stream: 0,
        at: at(1, number),
    };
    let damaged = Event::Damaged {
        stream: 0,
        at: at(1, 2),
    };
    let passed = [
        stored(1, 1),
        damaged.clone(),
        heard(2),
        lost(2, 3, Reason::Damaged),
        stored(1, 3),
    ];
    let rest: &[(u64, u64)] = &[(1, 1), (1, 3)];
    assert_eq!(three(passed.into_iter().chain(holds(rest, rest))), Ok(()));
    refused(
        three([stored(1, 1), damaged, heard(3)]),
        "was acknowledged, safe is only",
    );
}

#[test]
fn a_subscribers_position_survives_a_restart() {
    // The third is damaged there: it is sent again if the store was rolled back to before it, and
    // not otherwise.
    let reopened = |passed| Event::Reopened {
        subscriber: 0,
        stream: 0,
        newest: Some(at(1, 2)),
        passed: Some(at(1, passed)),
        allows: Allows::Nothing,
        torn: 0,
    };
    let damaged = Event::DamagedThere {
        subscriber: 0,
        stream: 0,
        at: at(1, 3),
    };
    let history = |passed| {
        let events = [damaged.clone(), reopened(passed), stored(1, 3)];
        three(all_stored().chain(events).chain(holds(ALL, ALL)))
    };
    assert_eq!(history(2), Ok(()));
    refused(history(3), "was stored twice");
}

#[test]
fn losses_at_a_restart_are_detected() {
    refused(
        three([began(1, 2, Allows::Nothing)]),
        "missing after a restart",
    );
    refused(
        three([began(2, 2, Allows::Nothing)]),
        "missing after a restart",
    );
    refused(three([began(1, 2, Allows::Loss)]), "in the same epoch");
    let reopened = |allows| Event::Reopened {
        subscriber: 0,
        stream: 0,
        newest: Some(at(1, 2)),
        passed: Some(at(1, 2)),
        allows,
        torn: 0,
    };
    refused(
        three(all_stored().chain([reopened(Allows::Nothing)])),
        "missing after a restart",
    );
    let again = all_stored().chain([reopened(Allows::Loss), stored(1, 3)]);
    assert_eq!(three(again.chain(holds(ALL, ALL))), Ok(()));
}

#[test]
fn derived_records_without_inputs_are_detected() {
    let derived = |number, content, there| Event::Derived {
        stream: 0,
        at: at(1, number),
        content,
        there,
    };
    let offered = Event::Offered {
        stream: 0,
        at: at(1, 4),
        content: 104,
    };
    // An accepted element may have been trimmed since, an unaccepted one may still exist.
    let right = [
        derived(1, 101, false),
        offered.clone(),
        derived(4, 104, true),
    ];
    let after = all_stored().chain(holds(ALL, ALL));
    assert_eq!(three(right.into_iter().chain(after)), Ok(()));
    refused(
        three([offered.clone(), derived(4, 104, false)]),
        "without it",
    );
    // But not if a power loss was seen to take its input.
    let damaged = Event::Damaged {
        stream: 0,
        at: at(1, 4),
    };
    let torn = [offered.clone(), damaged, derived(4, 104, false)];
    refused(three(torn), "without it");
    // Elements that were stored and never acknowledged may be trimmed, and are then not missed.
    let trimmed = Event::Trimmed {
        stream: 0,
        before: 5,
    };
    let missing = [offered, trimmed, derived(4, 104, false)].into_iter();
    let after = all_stored().chain(holds(&[], ALL));
    assert_eq!(three(missing.chain(after)), Ok(()));
    refused(three([derived(2, 101, true)]), "not at");
    refused(three([derived(4, 104, false)]), "not at");
}

#[test]
fn a_false_or_missing_word_about_loss_is_seen() {
    refused(three([lost(1, 3, Reason::Trimmed)]), "it is not");
    let damaged = || Event::Damaged {
        stream: 0,
        at: at(1, 2),
    };
    refused(three([damaged(), lost(2, 3, Reason::Trimmed)]), "it is not");
    refused(three([damaged(), lost(2, 4, Reason::Damaged)]), "it is not");
    let kept = &[(1, 1), (1, 3)];
    refused(
        three([damaged()].into_iter().chain(holds(kept, kept))),
        "missing without a report",
    );
    let said = || {
        [
            damaged(),
            stored(1, 1),
            lost(2, 3, Reason::Damaged),
            stored(1, 3),
        ]
        .into_iter()
    };
    assert_eq!(three(said().chain(holds(kept, kept))), Ok(()));
    let total = Event::LostTotal {
        subscriber: 0,
        count: 2,
    };
    refused(
        three(said().chain([total]).chain(holds(kept, kept))),
        "1 numbers were reported as lost, 2 are counted",
    );
    refused(three(said().chain([stored(1, 2)])), "was stored after");
}

#[test]
fn elements_before_a_grant_are_not_promised() {
    let granted = |from| Event::Granted {
        subscriber: 0,
        stream: 0,
        from,
    };
    refused(three([granted(2)]), "the origin has 1");
    let trimmed = Event::Trimmed {
        stream: 0,
        before: 2,
    };
    let rest = &[(1, 2), (1, 3)];
    let right = [trimmed, granted(2), stored(1, 2), stored(1, 3)].into_iter();
    assert_eq!(three(right.chain(holds(rest, rest))), Ok(()));
}

#[test]
fn false_trims_are_detected() {
    let keeps = |first| Event::Keeps { stream: 0, first };
    let trimmed = || Event::Trimmed {
        stream: 0,
        before: 2,
    };
    let after = || all_stored().chain(holds(ALL, ALL));
    assert_eq!(three([keeps(1)].into_iter().chain(after())), Ok(()));
    // A mark may be lost with the power: trimmed elements return.
    let right = [keeps(1), trimmed(), keeps(1), keeps(2)].into_iter();
    assert_eq!(three(right.chain(after())), Ok(()));
    refused(three([keeps(2)]), "nothing before 2");
    // Damage right after it is not trimmed either.
    let damaged = Event::Damaged {
        stream: 0,
        at: at(1, 2),
    };
    refused(three([trimmed(), damaged, keeps(3)]), "nothing before 3");
}

#[test]
fn lost_numbers_may_reach_from_one_epoch_into_the_next() {
    let next = [began(2, 3, Allows::Nothing)]
        .into_iter()
        .chain((4..=5).flat_map(|n| accepted(2, n)));
    let trimmed = Event::Trimmed {
        stream: 0,
        before: 5,
    };
    let end = holds(&[(2, 5)], &[(1, 1), (2, 5)]);
    let reports = [
        stored(1, 1),
        trimmed,
        lost(2, 5, Reason::Trimmed),
        stored(2, 5),
    ]
    .into_iter();
    assert_eq!(three(next.chain(reports).chain(end)), Ok(()));
}

#[test]
fn a_rollback_must_be_reported_and_true() {
    // The origin is rolled back to 2 and continues in epoch 2.
    let back = || {
        all_stored()
            .chain([began(2, 2, Allows::Loss)])
            .chain(accepted(2, 3))
    };
    refused(
        three(back().chain([stored(2, 3)])),
        "no rollback was reported",
    );
    let said = Event::RollbackReported {
        subscriber: 0,
        stream: 0,
    };
    let origin = &[(1, 1), (1, 2), (2, 3)];
    let copy = &[(1, 1), (1, 2), (1, 3), (2, 3)];
    let right = back()
        .chain([said.clone(), stored(2, 3)])
        .chain(holds(origin, copy));
    assert_eq!(three(right), Ok(()));
    refused(
        three(all_stored().chain([said.clone()])),
        "but the origin has",
    );
    // The old state of a branch is restored: only a rollback lets earlier epochs return.
    let branch = Event::Began {
        stream: 0,
        epochs: vec![(1, 1), (3, 4)],
        last: 3,
        allows: Allows::Loss,
    };
    let forth = || {
        back()
            .chain([said.clone(), stored(2, 3), branch.clone()])
            .chain(accepted(3, 4))
    };
    refused(
        three(forth().chain([stored(3, 4)])),
        "no rollback was reported",
    );
    let ahead = &[(1, 1), (1, 2), (1, 3), (3, 4)];
    let all = &[(1, 1), (1, 2), (1, 3), (2, 3), (3, 4)];
    let right = forth()
        .chain([said.clone(), stored(3, 4)])
        .chain(holds(ahead, all));
    assert_eq!(three(right), Ok(()));
    refused(
        three(forth().chain([said.clone(), stored(1, 3)])),
        "was stored twice",
    );
    // A subscriber that had not seen the undone element needs no report.
    let behind = [stored(1, 1), stored(1, 2), began(2, 2, Allows::Loss)].into_iter();
    let behind = behind.chain(accepted(2, 3)).chain([stored(2, 3)]);
    assert_eq!(three(behind.chain(holds(origin, origin))), Ok(()));
}

/// The counts of a store that has trimmed nothing.
fn counts(last: u64, missing: u64, corrupt: u64, filled: u64) -> Counts {
    Counts {
        first: 1,
        last,
        missing,
        corrupt,
        filled,
    }
}

#[test]
fn a_lost_element_may_come_with_the_repair_of_damage_next_to_it() {
    let history = |damage: &[Event]| {
        let put_back = Event::PutBack {
            stream: 0,
            at: at(1, 2),
            content: 102,
        };
        let lost = [damaged(2), stored(1, 1), lost(2, 3, Reason::Damaged)];
        let all = lost.into_iter().chain([stored(1, 3), put_back]);
        three(all.chain(damage.iter().cloned()).chain(holds(ALL, ALL)))
    };
    let damaged_there = Event::DamagedThere {
        subscriber: 0,
        stream: 0,
        at: at(1, 2),
    };
    let put_back_there = Event::PutBackThere {
        subscriber: 0,
        stream: 0,
        at: at(1, 2),
        content: 102,
    };
    assert_eq!(history(&[damaged_there, put_back_there.clone()]), Ok(()));
    refused(
        history(&[put_back_there]),
        "was reported as lost but is there",
    );
}

#[test]
fn repaired_elements_must_exist_unchanged() {
    let damaged = || {
        let damaged = Event::Damaged {
            stream: 0,
            at: at(1, 2),
        };
        all_stored().chain([damaged])
    };
    let put_back = |content| Event::PutBack {
        stream: 0,
        at: at(1, 2),
        content,
    };
    let right = damaged().chain([put_back(102)]).chain(holds(ALL, ALL));
    assert_eq!(three(right), Ok(()));
    refused(three(damaged().chain([put_back(103)])), "was offered at");
    let missing = &[(1, 1), (1, 3)];
    let lost = damaged().chain([put_back(102)]).chain(holds(missing, ALL));
    refused(three(lost), "the origin lost it");
    let there = |event: fn(usize, At) -> Event| event(0, at(1, 2));
    let damaged_there = there(|subscriber, at| Event::DamagedThere {
        subscriber,
        stream: 0,
        at,
    });
    let put_back_there = there(|subscriber, at| Event::PutBackThere {
        subscriber,
        stream: 0,
        at,
        content: 102,
    });
    let events = || all_stored().chain([damaged_there.clone(), put_back_there.clone()]);
    assert_eq!(three(events().chain(holds(ALL, ALL))), Ok(()));
    refused(three(events().chain(holds(ALL, missing))), "is missing");
}

#[test]
fn damage_on_one_side_must_be_repaired() {
    let missing = &[(1, 1), (1, 3)];
    let judge = |origin, subscriber| {
        let mut judge = Judge::new(1, 1);
        let begin = [began(1, 0, Allows::Nothing)].into_iter();
        let counted = Event::Counted {
            stream: 0,
            counts: counts(3, 0, 0, 0),
        };
        let damaged = Event::DamagedThere {
            subscriber: 0,
            stream: 0,
            at: at(1, 2),
        };
        let all = begin.chain((1..=3).flat_map(|number| accepted(1, number)));
        let all = all.chain(all_stored()).chain([counted, damaged]);
        for event in all.chain(holds(origin, subscriber)) {
            judge.observe(event).expect("right");
        }
        judge.not_put_back().map(|Violation(what)| what)
    };
    assert_eq!(judge(ALL, ALL), None);
    let at_origin = judge(missing, ALL).expect("wrong");
    assert!(at_origin.contains("missing at the origin"), "{at_origin}");
    let there = judge(ALL, missing).expect("wrong");
    assert!(there.contains("the origin has it"), "{there}");
    assert_eq!(judge(missing, missing), None);
}

#[test]
fn torn_elements_must_be_reported_and_repaired() {
    let storing = |number| Event::Storing {
        subscriber: 0,
        stream: 0,
        at: at(1, number),
    };
    // The first is safe; the second is torn, but not the third after it.
    let history = |torn, before, origin, missing| {
        let reopened = Event::Reopened {
            subscriber: 0,
            stream: 0,
            newest: Some(at(1, 3)),
            passed: Some(at(1, 3)),
            allows: Allows::Nothing,
            torn,
        };
        let trimmed = Event::Trimmed { stream: 0, before };
        let counted = Event::CountedThere {
            subscriber: 0,
            stream: 0,
            counts: counts(3, missing, missing, 0),
        };
        let events = [stored(1, 1), storing(2), storing(3), reopened];
        let events = events.into_iter().chain([trimmed, counted]);
        three(events.chain(holds(origin, &[(1, 1), (1, 3)])))
    };
    let trimmed: &[(u64, u64)] = &[(1, 3)];
    assert_eq!(history(1, 3, trimmed, 1), Ok(()));
    refused(history(0, 3, trimmed, 1), "missing without a report");
    refused(history(3, 3, trimmed, 1), "2 were on their way");
    refused(history(2, 3, trimmed, 1), "2 torn");
    // The origin has it.
    refused(history(1, 1, ALL, 1), "missing without a report");
}

#[test]
fn the_counts_must_equal_the_missing_elements() {
    let damaged = Event::Damaged {
        stream: 0,
        at: at(1, 2),
    };
    let reports = || [stored(1, 1), lost(2, 3, Reason::Damaged), stored(1, 3)].into_iter();
    let missing = &[(1, 1), (1, 3)];
    let counted = |counts| {
        let counted = Event::Counted { stream: 0, counts };
        let events = [damaged.clone()]
            .into_iter()
            .chain(reports())
            .chain([counted]);
        three(events.chain(holds(missing, missing)))
    };
    assert_eq!(counted(counts(3, 1, 1, 0)), Ok(()));
    refused(counted(counts(3, 0, 0, 0)), "the store counts");
    refused(counted(counts(3, 1, 2, 0)), "the store counts");
    refused(counted(counts(3, 1, 0, 0)), "the store counts");
    let there = |counts| {
        let counted = Event::CountedThere {
            subscriber: 0,
            stream: 0,
            counts,
        };
        three(all_stored().chain([counted]).chain(holds(ALL, ALL)))
    };
    assert_eq!(there(counts(3, 0, 1, 1)), Ok(()));
    refused(there(counts(4, 1, 1, 0)), "0 are");
    // The number counted as lost was not damaged.
    let whole = Event::Counted {
        stream: 0,
        counts: counts(4, 1, 1, 0),
    };
    let events = all_stored().chain([whole]).chain(holds(ALL, ALL));
    refused(three(events), "is counted as lost but was not");
}

fn storing(number: u64) -> Event {
    Event::Storing {
        subscriber: 0,
        stream: 0,
        at: at(1, number),
    }
}

fn reopened(newest: u64, passed: u64, torn: u64) -> Event {
    Event::Reopened {
        subscriber: 0,
        stream: 0,
        newest: Some(at(1, newest)),
        passed: Some(at(1, passed)),
        allows: Allows::Nothing,
        torn,
    }
}

fn damaged(number: u64) -> Event {
    Event::Damaged {
        stream: 0,
        at: at(1, number),
    }
}

#[test]
fn a_reported_loss_lasts_once_its_position_is_safe() {
    let history = |passed| {
        let put_back = Event::PutBack {
            stream: 0,
            at: at(1, 2),
            content: 102,
        };
        let lost = [damaged(2), stored(1, 1), lost(2, 3, Reason::Damaged)];
        let comes = [reopened(1, passed, 0), put_back, stored(1, 2), stored(1, 3)];
        three(lost.into_iter().chain(comes).chain(holds(ALL, ALL)))
    };
    assert_eq!(history(1), Ok(()));
    refused(history(2), "was reported as lost and arrives");
}

#[test]
fn torn_numbers_stay_lost_only_in_a_gap_with_a_reported_loss() {
    let history = |events: Vec<Event>, origin, subscriber| {
        let accepted = (1..=5).flat_map(|number| accepted(1, number));
        let begin = [began(1, 0, Allows::Nothing)].into_iter();
        let end = holds(origin, subscriber);
        judged(begin.chain(accepted).chain(events).chain(end))
    };
    let same_gap = vec![
        stored(1, 1),
        storing(2),
        damaged(3),
        lost(3, 4, Reason::Damaged),
        storing(4),
        reopened(4, 4, 1),
        stored(1, 5),
    ];
    let origin: &[(u64, u64)] = &[(1, 1), (1, 2), (1, 4), (1, 5)];
    let right = history(same_gap, origin, &[(1, 1), (1, 4), (1, 5)]);
    assert_eq!(right, Ok(()));
    let other_gap = vec![
        stored(1, 1),
        storing(2),
        storing(3),
        reopened(3, 3, 1),
        damaged(4),
        lost(4, 5, Reason::Damaged),
        stored(1, 5),
    ];
    let origin: &[(u64, u64)] = &[(1, 1), (1, 2), (1, 3), (1, 5)];
    let wrong = history(other_gap, origin, &[(1, 1), (1, 3), (1, 5)]);
    refused(wrong, "missing without a report");
}
