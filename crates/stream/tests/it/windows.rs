//! Goal: a window holds the right elements in any order of arrival, and its changes add up to its
//! content.
//! Method: seeded sequences of elements, in and out of order, against a naive model that keeps a
//! sorted list; and single cases for limits, resets and evaluations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chappe_stream::*;
use proptest::prelude::*;

fn element(time: i64, text: usize) -> Arc<StreamElement> {
    Arc::new(StreamElement {
        position: Position::default(),
        source_time: Timestamp(time),
        receive_time: Timestamp(time),
        key: None,
        values: vec![Value::Text("x".repeat(text))],
        quality: match time % 7 {
            0 => Quality::Bad,
            1 => Quality::Questionable,
            _ => Quality::Good,
        },
        origin: None,
    })
}

/// The same by a sorted list.
struct Naive {
    extent: Extent,
    late: LatePolicy,
    limits: WindowLimits,
    unique_times: bool,
    equal_times: u64,
    held: Vec<(i64, u64, Arc<StreamElement>)>,
    newest: Option<i64>,
    next: u64,
    in_a_row: u32,
    dropped: u64,
    resets: u64,
}

impl Naive {
    fn push(&mut self, element: Arc<StreamElement>) {
        let time = element.source_time.0;
        if self.unique_times && self.held.iter().any(|(other, _, _)| *other == time) {
            self.equal_times += 1;
            return;
        }
        let outside = match (self.late, self.extent, self.newest) {
            (_, _, None) => false,
            (_, _, Some(newest)) if time >= newest => false,
            (LatePolicy::Drop | LatePolicy::DeadLetter, _, _) => true,
            (_, Extent::Time(length), Some(newest)) => time <= newest - length.as_nanos() as i64,
            (_, Extent::Count(count), _) => self.held.len() >= count && time < self.held[0].0,
        };
        if outside {
            self.in_a_row += 1;
            if self.in_a_row < self.limits.late_in_a_row {
                self.dropped += 1;
                return;
            }
            self.resets += 1;
            self.held.clear();
            self.newest = None;
        }
        self.in_a_row = 0;
        let newest = self.newest.unwrap_or(time).max(time);
        self.newest = Some(newest);
        self.held.push((time, self.next, element));
        self.next += 1;
        self.held.sort_by_key(|(time, number, _)| (*time, *number));
        loop {
            let bytes: usize = self.held.iter().map(|(_, _, e)| e.size_bytes()).sum();
            let over = match self.extent {
                Extent::Count(count) => self.held.len() > count,
                Extent::Time(length) => self
                    .held
                    .first()
                    .is_some_and(|(time, _, _)| *time <= newest - length.as_nanos() as i64),
            };
            if over || self.held.len() > self.limits.elements || bytes > self.limits.bytes {
                self.held.remove(0);
            } else {
                break;
            }
        }
    }
}

fn extents() -> impl Strategy<Value = Extent> {
    prop_oneof![
        (1_usize..8).prop_map(Extent::Count),
        (1_u64..40).prop_map(|ns| Extent::Time(Duration::from_nanos(ns))),
    ]
}

fn limits() -> impl Strategy<Value = WindowLimits> {
    (1_usize..12, 200_usize..4_000, 2_u32..6).prop_map(|(elements, bytes, late_in_a_row)| {
        WindowLimits {
            elements,
            bytes,
            late_in_a_row,
        }
    })
}

proptest! {
    #[test]
    fn a_window_is_its_naive_model(
        extent in extents(),
        late in prop_oneof![Just(LatePolicy::Insert), Just(LatePolicy::Drop), Just(LatePolicy::DeadLetter)],
        unique_times in any::<bool>(),
        limits in limits(),
        steps in prop::collection::vec((0_i64..100, 0_usize..300, any::<bool>(), 0_u8..40), 1..80),
    ) {
        let timing = Timing { unique_times, ..Timing::default() };
        let mut window = Window::new(extent, late, limits).timed(&timing);
        let mut naive = Naive {
            extent, late, limits, unique_times, equal_times: 0,
            held: vec![], newest: None, next: 0, in_a_row: 0, dropped: 0, resets: 0,
        };
        let mut told: BTreeMap<u64, Arc<StreamElement>> = BTreeMap::new();
        for (index, (jitter, text, look, special)) in steps.into_iter().enumerate() {
            // Mostly rising, often out of order.
            let time = index as i64 * 5 + jitter;
            let element = element(time, text);
            let _ = window.push("s".into(), element.clone());
            naive.push(element);
            if special == 0 {
                window.report_all();
                told.clear();
            }
            let held: Vec<_> = window.elements().map(|a| a.element.clone()).collect();
            let expected: Vec<_> = naive.held.iter().map(|(_, _, e)| e.clone()).collect();
            prop_assert_eq!(&held, &expected);
            prop_assert_eq!(window.newest().map(|t| t.0), naive.newest);
            prop_assert_eq!(window.counters().late_dropped, naive.dropped);
            prop_assert_eq!(window.counters().resets, naive.resets);
            prop_assert_eq!(window.counters().equal_times, naive.equal_times);
            let bytes: usize = held.iter().map(|e| e.size_bytes()).sum();
            prop_assert_eq!(window.bytes(), bytes);
            prop_assert!(bytes <= limits.bytes && held.len() <= limits.elements);
            let worst = held.iter().fold(Quality::Good, |worst, e| worst.worse(e.quality));
            prop_assert_eq!(window.quality(), worst);
            if look {
                let change = window.take_change();
                prop_assert!(change.removed.is_sorted());
                for number in change.removed {
                    prop_assert!(told.remove(&number).is_some(), "removed what was not there");
                }
                for arrival in change.added {
                    prop_assert!(told.insert(arrival.number, arrival.element).is_none());
                }
                prop_assert_eq!(told.len(), held.len());
                for arrival in window.elements() {
                    prop_assert_eq!(told.get(&arrival.number), Some(&arrival.element));
                }
            }
        }
    }

    #[test]
    fn the_order_of_arrival_does_not_matter(
        extent in extents(),
        times in prop::collection::btree_set(0_i64..200, 1..30),
        seed in any::<u64>(),
    ) {
        let times: Vec<i64> = times.into_iter().collect();
        let mut shuffled = times.clone();
        let mut state = seed | 1;
        for index in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(index, (state >> 33) as usize % (index + 1));
        }
        let held = |times: &[i64]| -> Vec<i64> {
            let mut window = Window::new(extent, LatePolicy::Insert, WindowLimits::default());
            for time in times {
                let _ = window.push("s".into(), element(*time, 0));
            }
            window.elements().map(|a| a.element.source_time.0).collect()
        };
        prop_assert_eq!(held(&times), held(&shuffled));
    }
}

#[test]
fn a_clock_that_is_set_back_starts_the_window_anew() {
    let second = Extent::Time(Duration::from_nanos(10));
    let mut window = Window::new(second, LatePolicy::Insert, WindowLimits::default());
    window.push("s".into(), element(1_000_000, 0)).unwrap();
    for step in 0..63 {
        assert_eq!(
            window.push("s".into(), element(step, 0)),
            Err(Refusal::Late)
        );
    }
    assert_eq!(window.push("s".into(), element(63, 0)), Ok(()));
    assert_eq!(window.newest(), Some(Timestamp(63)));
    assert_eq!(window.len(), 1);
    let counters = window.counters();
    assert_eq!((counters.late_dropped, counters.resets), (63, 1));
}

#[test]
fn a_slide_of_time_is_due_once_a_turn() {
    let mut slide = Slide::new(Extent::Time(Duration::from_nanos(10)));
    let due: Vec<bool> = [0, 9, 19, 20, 25, 31, 29, 5]
        .map(|time| slide.is_due(Timestamp(time)))
        .to_vec();
    assert_eq!(due, [true, false, true, true, false, true, true, true]);
}

#[test]
fn a_slide_of_count_is_due_at_the_first_and_then_every_nth() {
    let mut slide = Slide::new(Extent::Count(3));
    let due: Vec<bool> = (0..8).map(|time| slide.is_due(Timestamp(time))).collect();
    assert_eq!(due, [true, false, false, true, false, false, true, false]);
}

#[test]
fn a_slide_of_count_may_be_due_later_first() {
    for (count, first, expected) in [(2, 5, [5, 7, 9]), (3, 2, [2, 5, 8]), (1, 7, [7, 8, 9])] {
        let mut slide = Slide::new(Extent::Count(count)).first_at(first);
        let due = (1..10).filter(|number| slide.is_due(Timestamp(*number)));
        assert_eq!(due.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_stream_leaves_alone() {
    let mut window = Window::new(
        Extent::Count(10),
        LatePolicy::Insert,
        WindowLimits::default(),
    );
    for time in 0..6 {
        let stream = if time % 2 == 0 { "even" } else { "odd" };
        window.push(stream.into(), element(time, 0)).unwrap();
    }
    assert_eq!(window.take_change().added.len(), 6);
    window.remove_stream("even");
    assert_eq!(window.take_change().removed, [0, 2, 4]);
    assert_eq!(window.len(), 3);
    window.remove_stream("odd");
    assert_eq!((window.len(), window.newest()), (0, None));
}
