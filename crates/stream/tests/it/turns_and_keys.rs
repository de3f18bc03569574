//! Goal: a slide on the node's clock makes silence a value, a turn waits for late elements, each key has a
//! window of its own within a bound, clocks that run fast stop nothing, and a restart restores the windows.
//! Method: the machine with time as an argument; seeded sequences against naive models, by both
//! paths; a second machine that recalls what the first had evaluated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output};
use chappe_stream::*;
use proptest::prelude::*;

const SECOND: i64 = 1_000_000_000;

/// A sensor of one source with these keys and this statement, with outputs `n` and `mean`.
fn sensor(keys: &str, sql: &str) -> VirtualSensor {
    let (mut sensor, bind) = unbound(keys, sql);
    assert_eq!(step(&mut sensor, 0, bind), [SensorEvent::Running]);
    sensor
}

/// The same before it is bound, and its binding.
fn unbound(keys: &str, sql: &str) -> (VirtualSensor, Input<SensorInput, SensorCommand>) {
    let text = format!(
        "name = \"x\"\n[[source]]\nalias = \"s\"\nstream = \"in\"\n{keys}\n[output]\nsql = \"{sql}\"\n\
         [[output.field]]\nname = \"n\"\ntype = \"integer\"\n\
         [[output.field]]\nname = \"mean\"\ntype = \"double\"\n"
    );
    let descriptor = Descriptor::parse("x.toml", &text).expect("parses");
    let sensor = VirtualSensor::new(descriptor, SensorLimits::default());
    let field = |name: &str, field_type| Field {
        name: name.into(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    let fields = vec![
        field("v", FieldType::Double),
        field("room", FieldType::Text),
    ];
    let bind = SensorCommand::Bind {
        alias: "s".into(),
        stream: "in".into(),
        schema: StreamSchema { fields, key: None },
    };
    (sensor, Input::Command(bind))
}

/// The same by both paths.
fn both(keys: &str) -> [VirtualSensor; 2] {
    let sql = "select count(*) as n, avg(v) as mean from s";
    let sensors = [sql.to_owned(), format!("{sql} having 1")].map(|sql| sensor(keys, &sql));
    assert!(sensors[0].is_compiled() && !sensors[1].is_compiled());
    sensors
}

fn step(
    sensor: &mut VirtualSensor,
    now_ns: i64,
    input: Input<SensorInput, SensorCommand>,
) -> Vec<SensorEvent> {
    let now = Instant::from_nanos(now_ns.unsigned_abs());
    sensor.handle_input(now, input);
    let outputs = std::iter::from_fn(|| sensor.poll_output());
    let event = |output| match output {
        Output::Event(event) => event,
        Output::Transmit(never) => match never {},
    };
    outputs.map(event).collect()
}

fn input(number: u64, source_time: i64, receive_time: i64, key: &str, value: f64) -> SensorInput {
    SensorInput {
        stream: "in".into(),
        element: Arc::new(StreamElement {
            position: Position {
                epoch: Epoch(1),
                sequence: number,
            },
            source_time: Timestamp(source_time),
            receive_time: Timestamp(receive_time),
            key: Some(key.into()),
            values: vec![Value::Double(value), Value::Text(format!("room {key}"))],
            quality: Quality::Good,
            origin: None,
        }),
    }
}

/// Time, key, count and mean of each output; other events as text.
type Row = (i64, Option<String>, i64, Option<f64>);

fn rows(events: &[SensorEvent]) -> Vec<Row> {
    let row = |event: &SensorEvent| match event {
        SensorEvent::Output(element) => {
            // A sensor over this one would not use it otherwise.
            assert!(!Timing::default().is_early(element), "{element:?}");
            let (count, mean) = match element.values[..] {
                [Value::Integer(count), Value::Double(mean)] => (count, Some(mean)),
                [Value::Integer(count), Value::Null] => (count, None),
                _ => panic!("{element:?}"),
            };
            Some((element.source_time.0, element.key.clone(), count, mean))
        }
        SensorEvent::DeadLetter { .. } => None,
        other => panic!("{other:?}"),
    };
    events.iter().filter_map(row).collect()
}

#[test]
fn on_the_clock_of_the_node_silence_is_a_value() {
    for mut sensor in both("window = \"30s\"\nslide = \"10s\"\nclock = \"node\"\nwait = \"1s\"") {
        assert!(sensor.follows_clock());
        // The machine's clock starts at zero, the node's shows 1000 s.
        let start = 1_000 * SECOND;
        let clock = Input::Command(SensorCommand::Clock(Timestamp(start + 2 * SECOND)));
        assert_eq!(step(&mut sensor, 0, clock), []);
        // The source's clock is wrong by a day.
        for second in [3, 4] {
            let received = start + second * SECOND;
            let one = input(
                second as u64,
                received - 86_400 * SECOND,
                received,
                "a",
                second as f64,
            );
            assert_eq!(
                step(&mut sensor, (second - 2) * SECOND, Input::Receive(one)),
                []
            );
        }
        let mut found = Vec::new();
        while found.len() < 6 {
            let deadline = sensor.deadline().expect("a turn ends");
            let now = i64::try_from(deadline.as_nanos()).unwrap();
            found.extend(rows(&step(&mut sensor, now, Input::Timeout)));
        }
        let at = |second: i64| start + second * SECOND;
        let wanted = [
            (at(10), None, 2, Some(3.5)),
            (at(20), None, 2, Some(3.5)),
            (at(30), None, 2, Some(3.5)),
            (at(40), None, 0, None),
            (at(50), None, 0, None),
            (at(60), None, 0, None),
        ];
        assert_eq!(found, wanted);
        // The machine slept for an hour: a minute of turns is evaluated, the rest counted.
        let clock = Input::Command(SensorCommand::Clock(Timestamp(at(3_661))));
        let found = rows(&step(&mut sensor, 3_659 * SECOND, clock));
        assert_eq!(found.len(), 60);
        assert_eq!(found[59].0, at(3_660));
        assert_eq!(sensor.window_counters("s").unwrap().turns_skipped, 300);
        // The node's clock was set back by an hour.
        let clock = Input::Command(SensorCommand::Clock(Timestamp(at(61))));
        assert_eq!(step(&mut sensor, 3_660 * SECOND, clock), []);
        let clock = Input::Command(SensorCommand::Clock(Timestamp(at(71))));
        let found = rows(&step(&mut sensor, 3_670 * SECOND, clock));
        assert_eq!(found, [(at(70), None, 0, None)]);
    }
}

#[test]
fn a_turn_waits_for_late_elements() {
    for (late, dead) in [("insert", 0), ("drop", 0), ("dead_letter", 1)] {
        let keys = format!("window = \"20s\"\nslide = \"10s\"\nwait = \"2s\"\nlate = \"{late}\"");
        for mut sensor in both(&keys) {
            let mut found = Vec::new();
            let mut letters = 0;
            // The last one is of a turn that has closed.
            let times = [0, 5, 11, 9, 12, 13, 21, 22, 8, 35];
            for (number, time) in times.iter().enumerate() {
                let one = input(
                    number as u64,
                    time * SECOND,
                    100 * SECOND,
                    "a",
                    number as f64,
                );
                let events = step(&mut sensor, 0, Input::Receive(one));
                letters += events
                    .iter()
                    .filter(|event| matches!(event, SensorEvent::DeadLetter { .. }))
                    .count();
                found.extend(rows(&events));
            }
            let means: Vec<_> = found
                .iter()
                .map(|(time, _, n, mean)| (time / SECOND, *n, mean.unwrap()))
                .collect();
            let first = [(10, 3, 4.0 / 3.0), (20, 6, 15.0 / 6.0)];
            assert_eq!(means[..2], first, "{late}");
            // 21, 22 and, in the window, 11 to 13.
            assert_eq!(
                means[2],
                (30, 5, (2.0 + 4.0 + 5.0 + 6.0 + 7.0) / 5.0),
                "{late}"
            );
            assert_eq!(letters, dead, "{late}");
            let counters = sensor.window_counters("s").unwrap();
            assert_eq!(
                counters.late_dropped, 1,
                "{late}: the window no longer reaches it"
            );
            // Silence closes the turn that is open.
            let deadline = i64::try_from(sensor.deadline().unwrap().as_nanos()).unwrap();
            assert_eq!(deadline, 12 * SECOND);
            let silent = rows(&step(&mut sensor, deadline, Input::Timeout));
            assert_eq!(
                silent
                    .iter()
                    .map(|row| (row.0 / SECOND, row.2))
                    .collect::<Vec<_>>(),
                [(40, 3)]
            );
        }
    }
}

#[test]
fn a_late_element_enters_the_windows_that_still_reach_it() {
    for mut sensor in both("window = \"20s\"\nslide = \"10s\"\nwait = \"1ms\"") {
        let mut found = Vec::new();
        for (number, time) in [1, 12, 3, 25].iter().enumerate() {
            let one = input(number as u64, time * SECOND, 100 * SECOND, "a", 1.0);
            found.extend(rows(&step(&mut sensor, 0, Input::Receive(one))));
        }
        let counts: Vec<_> = found.iter().map(|row| (row.0 / SECOND, row.2)).collect();
        assert_eq!(counts, [(10, 1), (20, 3)]);
        assert_eq!(sensor.window_counters("s").unwrap().late_inserted, 1);
    }
}

#[test]
fn a_clock_that_runs_fast_stops_nothing() {
    let year_2099 = 4_070_908_800 * SECOND;
    for (keys, letters) in [
        ("window = 3", 0),
        ("window = \"5s\"", 0),
        (
            "window = \"5s\"\nslide = \"1s\"\nearly = \"dead_letter\"",
            1,
        ),
    ] {
        for mut sensor in both(keys) {
            let mut found = Vec::new();
            let mut told = 0;
            for number in 1..=8 {
                let time = match number {
                    4 => year_2099,
                    number => number * SECOND,
                };
                let one = input(number as u64, time, number * SECOND, "a", number as f64);
                let events = step(&mut sensor, 0, Input::Receive(one));
                told += events
                    .iter()
                    .filter(|event| {
                        matches!(event, SensorEvent::DeadLetter { alias, reason: Refusal::Early, input }
                            if alias == "s" && input.element.source_time.0 == year_2099)
                    })
                    .count();
                found.extend(rows(&events));
            }
            assert_eq!(told, letters, "{keys}");
            let times: Vec<i64> = found.iter().map(|row| row.0 / SECOND).collect();
            assert_eq!(times, [1, 2, 3, 5, 6, 7, 8], "{keys}");
            assert_eq!(sensor.window_counters("s").unwrap().early_dropped, 1);
        }
    }
    // A minute ahead is usual; who knows better says so.
    let mut sensor = sensor(
        "window = 3\nahead = \"366d\"",
        "select count(*) as n, avg(v) as mean from s",
    );
    let one = input(1, 300 * 86_400 * SECOND, SECOND, "a", 1.0);
    assert_eq!(step(&mut sensor, 0, Input::Receive(one)).len(), 1);
}

#[test]
fn equal_times_are_kept_unless_they_must_be_unique() {
    for (keys, wanted, dropped) in [("", 4, 0), ("unique_times = true", 2, 2)] {
        for mut sensor in both(&format!("window = 10\n{keys}")) {
            let mut last = Vec::new();
            for (number, time) in [1, 1, 2, 1].iter().enumerate() {
                let one = input(number as u64, time * SECOND, 9 * SECOND, "a", number as f64);
                let found = rows(&step(&mut sensor, 0, Input::Receive(one)));
                last = if found.is_empty() { last } else { found };
            }
            assert_eq!(last[0].2, wanted);
            assert_eq!(sensor.window_counters("s").unwrap().equal_times, dropped);
        }
    }
}

#[test]
fn keys_are_bounded_and_the_least_recently_used_is_dropped() {
    for mut sensor in both("window = 3\nper = \"room\"\nkeys = 2") {
        let mut count = |number: u64, key: &str| {
            let time = number as i64 * SECOND;
            let one = input(number, time, time, key, number as f64);
            let found = rows(&step(&mut sensor, 0, Input::Receive(one)));
            assert_eq!(found[0].1, Some(format!("room {key}")));
            found[0].2
        };
        let keys = ["a", "b", "a", "c", "a", "b", "a", "c"];
        let counts: Vec<i64> = (1..)
            .zip(keys)
            .map(|(number, key)| count(number, key))
            .collect();
        assert_eq!(counts, [1, 1, 2, 1, 3, 1, 3, 1]);
        assert_eq!(sensor.window_counters("s").unwrap().keys_dropped, 3);
    }
}

#[test]
fn a_key_must_be_a_field_with_equal_values() {
    for (per, reason) in [
        ("v", "s: `per` cannot be the field \"v\", which is Double"),
        ("floor", "s: it has no field \"floor\", which `per` names"),
    ] {
        let (mut sensor, bind) = unbound(
            &format!("per = \"{per}\""),
            "select count(*) as n, 0.5 as mean from s",
        );
        let reason = reason.to_owned();
        assert_eq!(step(&mut sensor, 0, bind), [SensorEvent::Failed { reason }]);
    }
}

/// The count and the mean that a statement gives for a key, from all its elements.
struct Naive {
    by_key: BTreeMap<String, Vec<(i64, u64, f64)>>,
    extent: Extent,
}

impl Naive {
    fn push(&mut self, key: &str, time: i64, number: u64, value: f64) -> (i64, f64) {
        let held = self.by_key.entry(key.into()).or_default();
        held.push((time, number, value));
        held.sort_by_key(|(time, number, _)| (*time, *number));
        let newest = held.last().map_or(0, |last| last.0);
        match self.extent {
            Extent::Count(count) => {
                let over = held.len().saturating_sub(count);
                held.drain(..over);
            }
            Extent::Time(length) => {
                held.retain(|(time, _, _)| *time > newest - length.as_nanos() as i64);
            }
        }
        let sum: f64 = held.iter().map(|(_, _, value)| value).sum();
        (held.len() as i64, sum / held.len() as f64)
    }
}

fn extents() -> impl Strategy<Value = (String, Extent)> {
    prop_oneof![
        (1_usize..6).prop_map(|count| (format!("window = {count}"), Extent::Count(count))),
        (1_u64..20).prop_map(|seconds| {
            let length = Duration::from_secs(seconds);
            (format!("window = \"{seconds}s\""), Extent::Time(length))
        }),
    ]
}

#[test]
fn a_restart_with_an_empty_window_closes_no_turn_twice() {
    let keys = "window = \"1s\"\nslide = \"3s\"\nwait = \"2s\"";
    let of = |number: u64, seconds: i64| input(number, seconds * SECOND, 20 * SECOND, "a", 1.0);
    for (mut first, mut second) in both(keys).into_iter().zip(both(keys)) {
        step(&mut first, 0, Input::Receive(of(1, 3)));
        // It closes the turn from 3 s to 6 s, whose last second has no element.
        let closed = step(&mut first, 0, Input::Receive(of(2, 8)));
        assert_eq!(rows(&closed), [(6 * SECOND, None, 0, None)]);
        let needed = first.first_held("in").map(|first| first.sequence);
        assert_eq!(needed, Some(1));
        let elements = vec![of(1, 3), of(2, 8)];
        let recall = Input::Command(SensorCommand::Recall { elements });
        assert_eq!(step(&mut second, 0, recall), []);
        for sensor in [&mut first, &mut second] {
            // Four seconds late, in the turn that was evaluated before the restart.
            assert_eq!(step(sensor, 0, Input::Receive(of(3, 4))), []);
            let next = step(sensor, 0, Input::Receive(of(4, 11)));
            assert_eq!(rows(&next), [(9 * SECOND, None, 1, Some(1.0))]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn each_key_has_its_own_window(
        (window, extent) in extents(),
        by_field in any::<bool>(),
        steps in prop::collection::vec((0_usize..4, 0_i64..3, -50_i32..50), 1..80),
    ) {
        let per = if by_field { "room" } else { "key" };
        for mut sensor in both(&format!("{window}\nper = \"{per}\"")) {
            let mut naive = Naive { by_key: BTreeMap::new(), extent };
            for (number, (key, late, value)) in (1_u64..).zip(&steps) {
                let key = ["a", "b", "c", "d"][*key];
                let time = (number as i64 * 2 - late) * SECOND;
                // Sums of eighths are exact, in any order.
                let value = f64::from(*value) / 8.0;
                let one = input(number, time, 1_000 * SECOND, key, value);
                let before = sensor.window_counters("s").unwrap().late_dropped;
                let found = rows(&step(&mut sensor, 0, Input::Receive(one)));
                if sensor.window_counters("s").unwrap().late_dropped > before {
                    prop_assert_eq!(found, []);
                    continue;
                }
                let (count, mean) = naive.push(key, time, number, value);
                let key = if by_field { format!("room {key}") } else { key.to_owned() };
                let found: Vec<_> = found.into_iter().map(|row| (row.1, row.2, row.3)).collect();
                prop_assert_eq!(found, [(Some(key), count, Some(mean))]);
            }
        }
    }

    #[test]
    fn a_restart_restores_the_windows(
        (window, _) in extents(),
        more in prop_oneof![
            Just(""), Just("late = \"drop\""), Just("per = \"key\""), Just("slide = \"3s\""),
            Just("slide = \"3s\"\nwait = \"2s\""), Just("slide = \"3s\"\nwait = \"2s\"\nlate = \"drop\""),
        ],
        cut in 1_usize..60,
        steps in prop::collection::vec((0_usize..3, 0_i64..8, -50_i32..50), 60..90),
    ) {
        for [mut first, mut second] in [0, 1].map(|path| {
            let mut one = both(&format!("{window}\n{more}"));
            let mut two = both(&format!("{window}\n{more}"));
            one.swap(0, path);
            two.swap(0, path);
            let ([one, _], [two, _]) = (one, two);
            [one, two]
        }) {
            let inputs: Vec<SensorInput> = (1_u64..).zip(&steps).map(|(number, (key, late, value))| {
                let time = (number as i64 - late) * SECOND;
                let key = ["a", "b", "c"][*key];
                input(number, time, (number as i64 + 20) * SECOND, key, f64::from(*value) / 8.0)
            }).collect();
            for one in &inputs[..cut] {
                step(&mut first, 0, Input::Receive(one.clone()));
            }
            let evaluated = first.progress().map(|(_, at)| at.sequence).max().unwrap_or(0);
            // After the last evaluation elements may have left windows that it saw.
            let mut at_evaluation = both(&format!("{window}\n{more}"));
            let [known, _] = &mut at_evaluation;
            for one in &inputs[..evaluated as usize] {
                step(known, 0, Input::Receive(one.clone()));
            }
            let from = known.first_held("in").map_or(evaluated + 1, |first| first.sequence);
            let elements = inputs[from as usize - 1..evaluated as usize].to_vec();
            if !elements.is_empty() {
                let recall = SensorCommand::Recall { elements };
                prop_assert_eq!(step(&mut second, 0, Input::Command(recall)), []);
                let counters = second.window_counters("s").unwrap();
                prop_assert_eq!(counters, WindowCounters::default());
            }
            for one in &inputs[evaluated as usize..cut] {
                step(&mut second, 0, Input::Receive(one.clone()));
            }
            for one in &inputs[cut..] {
                let wanted = step(&mut first, 0, Input::Receive(one.clone()));
                let found = step(&mut second, 0, Input::Receive(one.clone()));
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
